//! Whether a child is still as it was applied.
//!
//! What is asked for is owned, and nothing else: server-side apply gives each field that is sent an owner, and a field that
//! is not sent is anybody's. So a child differs when a field of what is to be applied is missing or has another value. What
//! others add is theirs: a sidecar that was injected, an annotation, a default of the server. It stays when we apply, but
//! for what they add to the lists of a machine: those have no keys, so the server replaces them as a whole.
//!
//! | kind | owned |
//! |---|---|
//! | every one | our labels, annotations and owner reference |
//! | NetworkPolicy | `spec`, as a whole: a rule that somebody adds opens it |
//! | Service | `spec`: `type`, `clusterIP` where it is known, `selector` as a whole, of `ports` ours |
//! | Deployment | `spec`: `replicas`, `minReadySeconds`, `revisionHistoryLimit`, `strategy.type`, `selector`; of the template our labels, of its pods `restartPolicy`, `automountServiceAccountToken`, `enableServiceLinks`, `hostNetwork`, `hostPID`, `hostIPC`, our `hostAliases` and `imagePullSecrets`, and of our container what the entry says, with `allowPrivilegeEscalation` and `seccompProfile` |
//! | PersistentVolumeClaim | nothing more: its spec is applied as it is found, since it cannot be changed |
//! | VirtualMachine | `spec`: `runStrategy`, `instancetype`, `preference`; of the template our labels, `cpu.cores`, `memory.guest`, and our disks, interfaces, networks and volumes |
//!
//! A field that an entry does not ask for any more is missing in what is to be applied, and tells nothing there. The
//! annotation `pelotech.ot/revision` of a child does: it is a hash of what it was made from.
//!
//! What an apply cannot put right is [`stuck`]: something is taken out of it first, or it is made anew.
//!
//! How lists and maps are compared is how the API server merges them (`RULES`): by the keys of their items, or whole.

mod amount;
mod compare;
mod stuck;

use kube::core::{DynamicObject, ObjectMeta};
use otctl_types::names::REVISION_ANNOTATION;
use serde_json::{Map, Value, json};

pub use self::stuck::{Stuck, stuck};

/// Metadata that is owned. Name and namespace say which object it is.
const METADATA: [&str; 3] = ["labels", "annotations", "ownerReferences"];

/// How two values at one place are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// As a whole: what somebody adds is a difference.
    Whole,
    /// A list, item by item: these fields tell which is which.
    By(&'static [&'static str]),
    /// A list of variables, by their names; their order counts where one may refer to another.
    Variables,
    /// An amount, by its value: `1000m` is `1`.
    Amount,
}

/// Where something else is compared than field by field, or a list otherwise than whole: a kind (empty: every one), a path
/// in which `[]` is an item and `*` any field, and how.
const RULES: [(&str, &str, Rule); 18] = [
    ("", "metadata.ownerReferences", Rule::By(&["uid"])),
    ("NetworkPolicy", "spec", Rule::Whole),
    ("Service", "spec.selector", Rule::Whole),
    ("Service", "spec.ports", Rule::By(&["port", "protocol"])),
    ("Deployment", "spec.selector", Rule::Whole),
    ("Deployment", "spec.template.spec.hostAliases", Rule::By(&["ip"])),
    ("Deployment", "spec.template.spec.imagePullSecrets", Rule::By(&["name"])),
    ("Deployment", "spec.template.spec.containers", Rule::By(&["name"])),
    ("Deployment", "spec.template.spec.containers[].env", Rule::Variables),
    (
        "Deployment",
        "spec.template.spec.containers[].ports",
        Rule::By(&["containerPort", "protocol"]),
    ),
    ("Deployment", "spec.template.spec.containers[].resources.limits.*", Rule::Amount),
    ("Deployment", "spec.template.spec.containers[].resources.requests.*", Rule::Amount),
    ("PersistentVolumeClaim", "spec.resources.requests.*", Rule::Amount),
    ("VirtualMachine", "spec.template.spec.networks", Rule::By(&["name"])),
    ("VirtualMachine", "spec.template.spec.volumes", Rule::By(&["name"])),
    ("VirtualMachine", "spec.template.spec.domain.devices.disks", Rule::By(&["name"])),
    ("VirtualMachine", "spec.template.spec.domain.devices.interfaces", Rule::By(&["name"])),
    ("VirtualMachine", "spec.template.spec.domain.memory.guest", Rule::Amount),
];

/// Where `observed` is not as `desired` says: the path of the first field, such as
/// `spec.template.spec.containers[api].image`. None when applying `desired` would change nothing that is ours.
pub fn differs(desired: &DynamicObject, observed: &DynamicObject) -> Option<String> {
    let kind = desired.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
    compare::difference(kind, &owned(desired), &owned(observed))
}

/// Whether applying `desired` makes another thing of `observed`: of its spec, and not of its metadata alone. A field that is
/// taken back leaves no trace but in the annotation that notes what it was made from.
pub fn changes(desired: &DynamicObject, observed: &DynamicObject) -> bool {
    let spec = |object: &DynamicObject| {
        let mut object = object.clone();
        object.metadata = ObjectMeta::default();
        object
    };
    let note = |object: &DynamicObject| {
        let annotations = object.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(REVISION_ANNOTATION).cloned())
    };
    let is_noted_otherwise = note(observed).is_some() && note(observed) != note(desired);
    is_noted_otherwise || differs(&spec(desired), &spec(observed)).is_some()
}

/// What is compared of an object: some of its metadata, and everything that is neither metadata nor status.
fn owned(object: &DynamicObject) -> Value {
    let metadata = serde_json::to_value(&object.metadata).expect("metadata serialises");
    let metadata: Map<_, _> = METADATA
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), metadata.get(field)?.clone())))
        .collect();
    let mut all = json!({ "metadata": metadata });
    let fields = object.data.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| *name != "status") {
        all[name] = value.clone();
    }
    all
}

#[cfg(test)]
mod tests;
