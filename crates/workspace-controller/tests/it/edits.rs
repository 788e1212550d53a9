//! What a person may do to a child, and where it is then no longer as it was applied.

use serde_json::{Value, json};

/// An edit as a JSON patch, and the path of the difference that it makes; none where it concerns nobody but the editor.
pub(crate) struct Edit {
    pub(crate) patch: Value,
    pub(crate) difference: Option<String>,
}

pub(crate) fn replace(path: &str, value: Value, difference: &str) -> Edit {
    owned(operation("replace", path, value), difference)
}

fn remove(path: &str, difference: &str) -> Edit {
    owned(operation("remove", path, Value::Null), difference)
}

fn insert(path: &str, value: Value, difference: &str) -> Edit {
    owned(operation("add", path, value), difference)
}

fn owned(operation: Value, difference: &str) -> Edit {
    Edit { patch: Value::Array(vec![operation]), difference: Some(difference.to_owned()) }
}

/// An addition that is the editor's own.
fn theirs(path: &str, value: Value) -> Edit {
    Edit { patch: Value::Array(vec![operation("add", path, value)]), difference: None }
}

fn operation(verb: &str, path: &str, value: Value) -> Value {
    let mut operation = json!({"op": verb, "path": path});
    operation["value"] = value;
    operation
}

/// What can be done to the metadata of every child.
pub(crate) fn metadata() -> Vec<Edit> {
    let label = |name: &str| format!("metadata.labels[{name}]");
    let controller = "metadata.ownerReferences[UID].controller";
    vec![
        remove("/metadata/labels/pelotech.ot~1owner-uid", &label("pelotech.ot/owner-uid")),
        replace(
            "/metadata/labels/app.kubernetes.io~1name",
            json!("x"),
            &label("app.kubernetes.io/name"),
        ),
        replace("/metadata/labels", json!({"a": "b"}), &label("app.kubernetes.io/component")),
        remove("/metadata/ownerReferences", "metadata.ownerReferences[UID]"),
        replace("/metadata/ownerReferences/0/controller", json!(false), controller),
        theirs("/metadata/labels/team", json!("red")),
    ]
}

/// What can be done to the annotations of a child, of which `first` is the first of ours.
pub(crate) fn annotations(first: &str) -> Vec<Edit> {
    let ours = |name: &str| format!("metadata.annotations[pelotech.ot/{name}]");
    let revision = "/metadata/annotations/pelotech.ot~1revision";
    vec![
        replace("/metadata/annotations", json!({"note": "seen"}), &ours(first)),
        replace(revision, json!("x"), &ours("revision")),
        theirs("/metadata/annotations/note", json!("seen")),
    ]
}

/// Nothing can be added to a policy.
pub(crate) fn policy() -> Vec<Edit> {
    vec![
        insert("/spec/ingress/-", json!({}), "spec"),
        insert("/spec/egress/-", json!({"to": [{"podSelector": {}}]}), "spec"),
        remove("/spec/egress/0", "spec"),
        remove("/spec/ingress", "spec"),
        replace("/spec/podSelector/matchLabels", json!({"a": "b"}), "spec"),
        insert("/spec/podSelector/matchLabels/a", json!("b"), "spec"),
        replace("/spec/policyTypes", json!(["Ingress"]), "spec"),
        remove("/spec/egress/1/ports/0", "spec"),
        remove("/spec/egress/2/to/0/ipBlock/except", "spec"),
    ]
}

/// Of the Service of `api-server`.
pub(crate) fn service() -> Vec<Edit> {
    vec![
        replace("/spec/type", json!("NodePort"), "spec.type"),
        replace("/spec/selector", json!({"app": "spy"}), "spec.selector"),
        insert("/spec/selector/app", json!("none"), "spec.selector"),
        remove("/spec/ports/3", "spec.ports[9090/TCP]"),
        replace("/spec/ports/1/targetPort", json!(1), "spec.ports[8080/TCP].targetPort"),
        replace("/spec/ports/1/name", json!("x"), "spec.ports[8080/TCP].name"),
        theirs("/spec/ports/-", json!({"port": 1, "name": "theirs"})),
        theirs("/spec/sessionAffinity", json!("ClientIP")),
    ]
}

/// Of the Deployment of `api-server`.
pub(crate) fn deployment() -> Vec<Edit> {
    let label = "spec.template.metadata.labels[app.kubernetes.io/name]";
    let own = [
        replace("/spec/replicas", json!(5), "spec.replicas"),
        replace("/spec/revisionHistoryLimit", json!(3), "spec.revisionHistoryLimit"),
        replace("/spec/minReadySeconds", json!(0), "spec.minReadySeconds"),
        replace("/spec/strategy", json!({"type": "Recreate"}), "spec.strategy.type"),
        replace("/spec/template/metadata/labels/app.kubernetes.io~1name", json!("x"), label),
        theirs("/spec/progressDeadlineSeconds", json!(300)),
        theirs("/spec/template/metadata/labels/team", json!("red")),
        theirs("/spec/template/metadata/annotations", json!({"mesh": "on"})),
    ];
    own.into_iter().chain(pods()).chain(container()).chain(probes()).chain(rights()).collect()
}

/// An edit of the pods of a template: the field, and how the difference goes on behind the place of the pods.
fn in_pods(edit: fn(&str, Value, &str) -> Edit, field: &str, value: Value, shown: &str) -> Edit {
    edit(&format!("/spec/template/spec/{field}"), value, &format!("spec.template.spec.{shown}"))
}

fn gone(path: &str, _: Value, difference: &str) -> Edit {
    remove(path, difference)
}

fn added(path: &str, value: Value, _: &str) -> Edit {
    theirs(path, value)
}

fn pods() -> Vec<Edit> {
    let line = "hostAliases[10.96.200.0].hostnames";
    let outside = json!({"ip": "10.0.0.1", "hostnames": ["outside"]});
    let sidecar = json!({"name": "mesh", "image": "mesh"});
    vec![
        in_pods(
            replace,
            "automountServiceAccountToken",
            json!(true),
            "automountServiceAccountToken",
        ),
        in_pods(replace, "enableServiceLinks", json!(true), "enableServiceLinks"),
        in_pods(insert, "hostNetwork", json!(true), "hostNetwork"),
        in_pods(insert, "hostPID", json!(true), "hostPID"),
        in_pods(insert, "hostIPC", json!(true), "hostIPC"),
        in_pods(replace, "hostAliases/0/hostnames/0", json!("x"), line),
        in_pods(insert, "hostAliases/0/hostnames/0", json!("x"), line),
        in_pods(gone, "hostAliases/1", Value::Null, "hostAliases[10.96.200.1]"),
        in_pods(gone, "imagePullSecrets/0", Value::Null, "imagePullSecrets[registry-a]"),
        in_pods(added, "hostAliases/-", outside, ""),
        in_pods(added, "imagePullSecrets/-", json!({"name": "theirs"}), ""),
        in_pods(added, "terminationGracePeriodSeconds", json!(5), ""),
        in_pods(added, "containers/-", sidecar, ""),
        in_pods(added, "tolerations", json!([{"operator": "Exists"}]), ""),
    ]
}

/// As [`in_pods`], of our container.
fn in_container(
    edit: fn(&str, Value, &str) -> Edit,
    field: &str,
    value: Value,
    shown: &str,
) -> Edit {
    in_pods(
        edit,
        &format!("containers/0/{field}"),
        value,
        &format!("containers[api-server].{shown}"),
    )
}

fn container() -> Vec<Edit> {
    let last = json!({"name": "ADDRESS", "value": "$(HOST):5432"});
    let moved = json!([
        {"op": "remove", "path": "/spec/template/spec/containers/0/env/2"},
        {"op": "add", "path": "/spec/template/spec/containers/0/env/0", "value": last},
    ]);
    let order = "spec.template.spec.containers[api-server].env";
    let variable = json!({"name": "THEIRS", "value": "1"});
    vec![
        Edit { patch: moved, difference: Some(order.to_owned()) },
        in_container(replace, "image", json!("spy"), "image"),
        in_container(replace, "command/0", json!("/bin/sh"), "command"),
        in_container(gone, "args/1", Value::Null, "args"),
        in_container(insert, "args/0", json!("--debug"), "args"),
        in_container(replace, "env/1/value", json!("spy"), "env[HOST].value"),
        in_container(gone, "env/0", Value::Null, "env[EMPTY]"),
        in_container(
            replace,
            "env/3/valueFrom/secretKeyRef/key",
            json!("x"),
            "env[PASSWORD].valueFrom.secretKeyRef.key",
        ),
        in_container(
            replace,
            "env/5/valueFrom/fieldRef/fieldPath",
            json!("metadata.uid"),
            "env[POD].valueFrom.fieldRef.fieldPath",
        ),
        in_container(gone, "envFrom/0", Value::Null, "envFrom"),
        in_container(gone, "ports/0", Value::Null, "ports[80/SCTP]"),
        in_container(replace, "ports/1/containerPort", json!(8081), "ports[8080/TCP]"),
        in_container(replace, "ports/3/name", json!("x"), "ports[9090/TCP].name"),
        in_container(replace, "resources/requests/cpu", json!("1001m"), "resources.requests.cpu"),
        in_container(gone, "resources/limits/memory", Value::Null, "resources.limits.memory"),
        in_container(added, "imagePullPolicy", json!("Always"), ""),
        in_container(added, "env/-", variable, ""),
        in_container(added, "lifecycle", json!({"preStop": {"sleep": {"seconds": 1}}}), ""),
        in_container(added, "resources/requests/ephemeral-storage", json!("1Mi"), ""),
    ]
}

fn probes() -> Vec<Edit> {
    let headers = "livenessProbe.httpGet.httpHeaders";
    vec![
        in_container(
            replace,
            "livenessProbe/httpGet/path",
            json!("/"),
            "livenessProbe.httpGet.path",
        ),
        in_container(replace, "livenessProbe/httpGet/port", json!(1), "livenessProbe.httpGet.port"),
        in_container(replace, "livenessProbe/httpGet/httpHeaders/0/value", json!("2"), headers),
        in_container(
            replace,
            "livenessProbe/periodSeconds",
            json!(6),
            "livenessProbe.periodSeconds",
        ),
        in_container(gone, "readinessProbe", Value::Null, "readinessProbe"),
        in_container(
            replace,
            "startupProbe/exec/command",
            json!(["true"]),
            "startupProbe.exec.command",
        ),
        in_container(added, "livenessProbe/timeoutSeconds", json!(9), ""),
    ]
}

fn rights() -> Vec<Edit> {
    let right = |edit, field: &str, value, shown: &str| {
        in_container(
            edit,
            &format!("securityContext/{field}"),
            value,
            &format!("securityContext.{shown}"),
        )
    };
    vec![
        right(replace, "allowPrivilegeEscalation", json!(true), "allowPrivilegeEscalation"),
        right(replace, "runAsUser", json!(0), "runAsUser"),
        right(replace, "runAsGroup", json!(0), "runAsGroup"),
        right(replace, "runAsNonRoot", json!(false), "runAsNonRoot"),
        right(replace, "readOnlyRootFilesystem", json!(false), "readOnlyRootFilesystem"),
        right(replace, "seccompProfile/type", json!("Unconfined"), "seccompProfile.type"),
        right(replace, "capabilities/drop", json!([]), "capabilities.drop"),
        right(insert, "capabilities/add/0", json!("SYS_ADMIN"), "capabilities.add"),
    ]
}

/// Of the machine `attacker`.
pub(crate) fn machine() -> Vec<Edit> {
    let devices = "domain.devices";
    let network = json!({"name": "default", "multus": {"networkName": "outside"}});
    let label = "spec.template.metadata.labels[pelotech.ot/workspace-uid]";
    vec![
        replace("/spec/runStrategy", json!("Halted"), "spec.runStrategy"),
        remove("/spec/template/metadata/labels/pelotech.ot~1workspace-uid", label),
        in_pods(replace, "domain/cpu/cores", json!(8), "domain.cpu.cores"),
        in_pods(replace, "domain/memory/guest", json!("1Gi"), "domain.memory.guest"),
        in_pods(
            replace,
            "domain/devices/disks/0/disk/bus",
            json!("sata"),
            &format!("{devices}.disks[disk].disk.bus"),
        ),
        in_pods(
            gone,
            "domain/devices/disks/1",
            Value::Null,
            &format!("{devices}.disks[cloudinit]"),
        ),
        in_pods(
            replace,
            "domain/devices/interfaces/0",
            json!({"name": "default", "bridge": {}}),
            &format!("{devices}.interfaces[default].masquerade"),
        ),
        in_pods(replace, "networks/0", network, "networks[default].pod"),
        in_pods(
            replace,
            "volumes/0/persistentVolumeClaim/claimName",
            json!("another"),
            "volumes[disk].persistentVolumeClaim.claimName",
        ),
        in_pods(
            replace,
            "volumes/1/cloudInitNoCloud/secretRef/name",
            json!("another"),
            "volumes[cloudinit].cloudInitNoCloud.secretRef.name",
        ),
        in_pods(added, "domain/machine", json!({"type": "q35"}), ""),
        in_pods(added, "domain/devices/interfaces/0/macAddress", json!("02:00:00:00:00:01"), ""),
        in_pods(added, "networks/-", json!({"name": "second", "multus": {"networkName": "n"}}), ""),
        theirs("/spec/updateVolumesStrategy", json!("Replacement")),
    ]
}

/// Of the machine `victim`.
pub(crate) fn typed_machine() -> Vec<Edit> {
    vec![
        replace("/spec/instancetype/name", json!("u1.nano"), "spec.instancetype.name"),
        replace("/spec/preference/kind", json!("VirtualMachinePreference"), "spec.preference.kind"),
        theirs("/spec/instancetype/revisionName", json!("victim-u1.medium-1")),
    ]
}
