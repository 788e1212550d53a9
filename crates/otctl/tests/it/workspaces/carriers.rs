//! What becomes a pod, or is one: each kind that can carry the label of a workspace, and where.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt as _};
use otctl_types::names::WORKSPACE_LABEL;
use serde_json::{Value, json};

use super::LABS;

/// A kind, and where its labels are.
pub(super) struct Carrier {
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    /// A pointer to the labels that a pod gets.
    labels: &'static str,
    /// What is no template cannot be changed at all: the API server refuses it before admission.
    pub(super) is_frozen: bool,
    spec: fn() -> Value,
}

const OF_TEMPLATE: &str = "/spec/template/metadata/labels";

pub(super) const CARRIERS: [Carrier; 12] = [
    Carrier { spec: pod, ..carrier("v1", "Pod", "/metadata/labels") },
    Carrier {
        spec: || json!({"replicas": 0, "selector": app(), "template": {"spec": pod()}}),
        ..carrier("v1", "ReplicationController", OF_TEMPLATE)
    },
    Carrier { spec: selecting, ..carrier("apps/v1", "Deployment", OF_TEMPLATE) },
    Carrier { spec: selecting, ..carrier("apps/v1", "ReplicaSet", OF_TEMPLATE) },
    Carrier {
        spec: || {
            let mut spec = selecting();
            spec["serviceName"] = json!("none");
            spec
        },
        ..carrier("apps/v1", "StatefulSet", OF_TEMPLATE)
    },
    Carrier {
        spec: || json!({"selector": {"matchLabels": app()}, "template": {"spec": pod()}}),
        ..carrier("apps/v1", "DaemonSet", OF_TEMPLATE)
    },
    Carrier { spec: job, is_frozen: true, ..carrier("batch/v1", "Job", OF_TEMPLATE) },
    Carrier {
        spec: || json!({"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": {"spec": job()}}),
        ..carrier("batch/v1", "CronJob", "/spec/jobTemplate/spec/template/metadata/labels")
    },
    Carrier { spec: machine, ..carrier("kubevirt.io/v1", "VirtualMachine", OF_TEMPLATE) },
    Carrier {
        spec: || json!({"domain": {"devices": {}}}),
        ..carrier("kubevirt.io/v1", "VirtualMachineInstance", "/metadata/labels")
    },
    Carrier {
        spec: machine,
        ..carrier("kubevirt.io/v1", "VirtualMachineInstanceReplicaSet", OF_TEMPLATE)
    },
    Carrier {
        spec: || json!({"virtualMachineTemplate": {"spec": machine()}}),
        ..carrier(
            "pool.kubevirt.io/v1beta1",
            "VirtualMachinePool",
            "/spec/virtualMachineTemplate/spec/template/metadata/labels",
        )
    },
];

const fn carrier(version: &'static str, kind: &'static str, labels: &'static str) -> Carrier {
    Carrier { version, kind, labels, is_frozen: false, spec: || Value::Null }
}

fn app() -> Value {
    json!({"app": "a"})
}

fn pod() -> Value {
    json!({"restartPolicy": "Always", "containers": [{"name": "a", "image": "example.com/a:1"}]})
}

fn selecting() -> Value {
    json!({"replicas": 0, "selector": {"matchLabels": app()}, "template": {"spec": pod()}})
}

fn job() -> Value {
    let mut pod = pod();
    pod["restartPolicy"] = json!("Never");
    json!({"suspend": true, "template": {"spec": pod}})
}

fn machine() -> Value {
    json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}})
}

impl Carrier {
    /// One with this value of the label, or without the label.
    pub(super) fn object(&self, name: &str, label: Option<&str>) -> Value {
        let mut object = json!({
            "apiVersion": self.version, "kind": self.kind,
            "metadata": {"name": name, "namespace": LABS}, "spec": (self.spec)(),
        });
        merge(&mut object, &self.patch(&label.map_or(Value::Null, Value::from)));
        object
    }

    /// The same as an object of the client.
    pub(super) fn dynamic(&self, name: &str, label: Option<&str>) -> DynamicObject {
        serde_json::from_value(self.object(name, label)).unwrap()
    }

    /// What changes the label and nothing else; null removes it. Templates have what their selectors want; a pod that had
    /// it would be adopted.
    pub(super) fn patch(&self, value: &Value) -> Value {
        let app = if self.labels == "/metadata/labels" { "none" } else { "a" };
        let labels = json!({"app": app, WORKSPACE_LABEL: value});
        let parts = self.labels[1..].split('/').rev();
        parts.fold(labels, |inner, part| json!({part: inner}))
    }

    /// Whether an object has the label, and which.
    pub(super) fn label<'a>(&self, object: &'a Value) -> Option<&'a str> {
        object.pointer(self.labels)?[WORKSPACE_LABEL].as_str()
    }
}

fn merge(target: &mut Value, patch: &Value) {
    for (name, value) in patch.as_object().into_iter().flatten() {
        match value {
            Value::Object(_) => merge(&mut target[name], value),
            Value::Null => {}
            _ => target[name] = value.clone(),
        }
    }
}

/// Of KubeVirt's kinds those that nothing here acts on, as open as an API server lets a kind be.
pub(super) async fn install_kinds(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (group, version, kind) in [
        ("kubevirt.io", "v1", "VirtualMachineInstanceReplicaSet"),
        ("pool.kubevirt.io", "v1beta1", "VirtualMachinePool"),
    ] {
        let plural = format!("{}s", kind.to_lowercase());
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let crd = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": version, "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
            },
        });
        let crd: CustomResourceDefinition = serde_json::from_value(crd).unwrap();
        let apply = PatchParams::apply("tests");
        api.patch(&crd.name_any(), &apply, &Patch::Apply(&crd)).await.unwrap();
        let is_served = conditions::is_crd_established();
        await_condition(api.clone(), &crd.name_any(), is_served).await.unwrap();
    }
}
