//! The virt-launcher pod of an instance. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::objects::VirtualMachineInstance;

/// The image of every virt-launcher pod: what a node must be told of for machines to run.
pub const LAUNCHER_IMAGE: &str = "quay.io/kubevirt/virt-launcher:v1.9.0";
/// The label with the UID of the instance.
pub(super) const CREATED_BY: &str = "kubevirt.io/created-by";

/// Where the stand-in for the guest says that it is up; not one of the guest's own ports.
const DOMAIN_PORT: u16 = 49_151;
const DISKS: &str = "/var/run/kubevirt-private/vmi-disks";
const SECRETS: &str = "/var/run/kubevirt-private/secret";
/// What a guest that says nothing has to shut down, and what the pod has more than the guest, in seconds.
const DEFAULT_GRACE: i64 = 30;
const MORE_GRACE: i64 = 15;
/// Parts of an instance that a pod has under the same name.
const SHARED: [&str; 8] = [
    "affinity",
    "dnsConfig",
    "dnsPolicy",
    "nodeSelector",
    "priorityClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
];

/// A claim that a volume of the instance is held by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) volume: String,
    pub(super) claim: String,
    pub(super) is_block: bool,
}

/// The pod of `instance` with these disks.
pub(super) fn pod(instance: &VirtualMachineInstance, disks: &[Disk]) -> serde_json::Result<Pod> {
    let grace = instance.spec.termination_grace_period_seconds.unwrap_or(DEFAULT_GRACE);
    let mut spec = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "hostname": instance.name_any().replace('.', "-"),
        "terminationGracePeriodSeconds": grace + MORE_GRACE,
        "containers": [compute(instance, disks)],
        "volumes": volumes(instance, disks),
    });
    for part in SHARED {
        if let Some(value) = instance.spec.rest.get(part) {
            spec[part] = value.clone();
        }
    }
    serde_json::from_value(json!({"metadata": metadata(instance), "spec": spec}))
}

fn metadata(instance: &VirtualMachineInstance) -> Value {
    let name = instance.name_any();
    let mut labels = instance.labels().clone();
    labels.extend([
        ("kubevirt.io".to_owned(), "virt-launcher".to_owned()),
        (CREATED_BY.to_owned(), instance.uid().unwrap_or_default()),
        ("vm.kubevirt.io/name".to_owned(), name.clone()),
    ]);
    let mut annotations: BTreeMap<_, _> = instance.annotations().clone();
    annotations.insert("kubevirt.io/domain".to_owned(), name.clone());
    json!({
        "generateName": format!("virt-launcher-{name}-"),
        "labels": labels,
        "annotations": annotations,
        "ownerReferences": [instance.controller_owner_ref(&())],
    })
}

fn compute(instance: &VirtualMachineInstance, disks: &[Disk]) -> Value {
    let path = |disk: &Disk| match disk.is_block {
        true => format!("/dev/{}", disk.volume),
        false => format!("{DISKS}/{}/disk.img", disk.volume),
    };
    let arguments: Vec<_> = disks.iter().map(|disk| format!("--disk={}", path(disk))).collect();
    let devices = disks.iter().filter(|disk| disk.is_block);
    let devices = devices.map(|disk| json!({"name": disk.volume, "devicePath": path(disk)}));
    let mounts = disks
        .iter()
        .filter(|disk| !disk.is_block)
        .map(|disk| json!({"name": disk.volume, "mountPath": format!("{DISKS}/{}", disk.volume)}));
    let secrets = secrets(instance).map(|(volume, _)| {
        json!({"name": volume, "mountPath": format!("{SECRETS}/{volume}"), "readOnly": true})
    });
    json!({
        "name": "compute",
        "image": LAUNCHER_IMAGE,
        "command": ["/usr/bin/virt-launcher-monitor"],
        "args": arguments,
        "ports": ports(instance),
        "resources": {"requests": requests(&instance.spec.domain)},
        // The domain is up once the disks were read.
        "startupProbe": {"httpGet": {"port": DOMAIN_PORT}, "periodSeconds": 1, "failureThreshold": 3600},
        "readinessProbe": instance.spec.readiness_probe,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "runAsNonRoot": true,
            "runAsUser": 107,
        },
        "volumeDevices": devices.collect::<Vec<_>>(),
        "volumeMounts": mounts.chain(secrets).collect::<Vec<_>>(),
    })
}

/// Those of the guest's interfaces, and our own.
fn ports(instance: &VirtualMachineInstance) -> Vec<Value> {
    let interfaces = instance.spec.domain["devices"]["interfaces"].as_array();
    let ports = interfaces.into_iter().flatten().filter_map(|it| it["ports"].as_array()).flatten();
    let own = json!({"containerPort": DOMAIN_PORT});
    let port = |port: &Value| {
        let protocol = port["protocol"].as_str().unwrap_or("TCP");
        json!({"containerPort": port["port"], "protocol": protocol})
    };
    ports.map(port).chain([own]).collect()
}

/// What the guest asks for: its own words, else a tenth of a CPU per virtual one, and its memory.
fn requests(domain: &Value) -> Value {
    let mut requests = domain["resources"]["requests"].as_object().cloned().unwrap_or_default();
    if !requests.contains_key("cpu") {
        let factor = |name: &str| domain["cpu"][name].as_u64().unwrap_or(1);
        let virtual_cpus = factor("cores") * factor("sockets") * factor("threads");
        requests.insert("cpu".to_owned(), json!(format!("{}m", virtual_cpus * 100)));
    }
    if let (false, Some(memory)) = (requests.contains_key("memory"), domain["memory"].get("guest"))
    {
        requests.insert("memory".to_owned(), memory.clone());
    }
    Value::Object(requests)
}

fn secrets(instance: &VirtualMachineInstance) -> impl Iterator<Item = (&str, &str)> {
    let volumes = instance.spec.volumes.iter();
    volumes.filter_map(|volume| Some((volume.name.as_str(), volume.secret()?)))
}

fn volumes(instance: &VirtualMachineInstance, disks: &[Disk]) -> Vec<Value> {
    let claims = disks.iter().map(
        |disk| json!({"name": disk.volume, "persistentVolumeClaim": {"claimName": disk.claim}}),
    );
    let secrets = secrets(instance)
        .map(|(volume, secret)| json!({"name": volume, "secret": {"secretName": secret}}));
    claims.chain(secrets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(spec: &Value) -> Value {
        let instance = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": "db", "uid": "u", "labels": {"team": "a"}},
            "spec": spec,
        });
        let instance = serde_json::from_value(instance).unwrap();
        let disk = |volume: &str, is_block| Disk {
            volume: volume.to_owned(),
            claim: format!("claim-{volume}"),
            is_block,
        };
        serde_json::to_value(pod(&instance, &[disk("root", false), disk("data", true)]).unwrap())
            .unwrap()
    }

    #[test]
    fn a_launcher_has_the_labels_the_disks_and_the_owner_of_its_instance() {
        let pod = made(&json!({"domain": {"devices": {}}, "nodeSelector": {"a": "b"}}));
        let metadata = &pod["metadata"];
        assert_eq!(metadata["generateName"], "virt-launcher-db-");
        assert_eq!(
            (&metadata["labels"]["team"], &metadata["labels"][CREATED_BY]),
            (&json!("a"), &json!("u"))
        );
        assert_eq!(metadata["ownerReferences"][0]["kind"], "VirtualMachineInstance");
        let compute = &pod["spec"]["containers"][0];
        let root = "--disk=/var/run/kubevirt-private/vmi-disks/root/disk.img";
        assert_eq!(compute["args"], json!([root, "--disk=/dev/data"]));
        assert_eq!(pod["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"], "claim-data");
        assert_eq!(pod["spec"]["nodeSelector"], json!({"a": "b"}));
    }

    #[test]
    fn a_guest_asks_for_a_tenth_of_its_cpus_unless_it_says_otherwise() {
        let cases = [
            (
                json!({"cpu": {"cores": 2, "sockets": 2}, "memory": {"guest": "4Gi"}}),
                json!({"cpu": "400m", "memory": "4Gi"}),
            ),
            (json!({"resources": {"requests": {"cpu": "40"}}}), json!({"cpu": "40"})),
            (json!({}), json!({"cpu": "100m"})),
        ];
        for (domain, wanted) in cases {
            assert_eq!(requests(&domain), wanted, "{domain}");
        }
    }
}
