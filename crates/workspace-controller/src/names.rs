//! Names and labels that are computed, never stored. Two children never share a name: an entry has no `--` in its name, so
//! the last one of a child's name parts its workspace from its entry.

use std::collections::BTreeMap;

use otctl_types::names::{ENTRY_LABEL, MANAGED_BY, OWNER_LABEL, PART_OF, WORKSPACE_LABEL};
use sha2::{Digest, Sha256};

/// Longest name of what becomes a DNS label, and longest value of a label.
const LABEL_LIMIT: usize = 63;
/// Longest name of anything else.
const NAME_LIMIT: usize = 253;
/// Digits of a hash that stands for a whole name: two of a hundred thousand share one with a chance of 1 to 3 billion.
const NAME_DIGITS: usize = 16;
/// Digits of a hash that only tells names with one beginning, or revisions of one image, apart.
const SHORT_DIGITS: usize = 8;

/// What a child does for its workspace: the label `app.kubernetes.io/component`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// It belongs to a container.
    Container,
    /// It belongs to a virtual machine.
    Machine,
    /// It isolates.
    Network,
}

impl Component {
    /// The value of the label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Machine => "machine",
            Self::Network => "network",
        }
    }
}

/// Name of the Service, and of the Deployment or VirtualMachine, of an entry: `<workspace>--<entry>` where that is a name
/// that a Service may have.
pub fn child_name(workspace: &str, uid: &str, entry: &str) -> String {
    let plain = format!("{workspace}--{entry}");
    if is_service_name(&plain) { plain } else { hashed_name(uid, entry) }
}

/// Name of the network policy.
pub fn policy_name(workspace: &str, uid: &str) -> String {
    let plain = format!("{workspace}--network");
    if plain.len() <= NAME_LIMIT { plain } else { hashed_name(uid, "") }
}

/// Name of the claim with the disk of a virtual machine, made from that revision of its image.
pub fn claim_name(workspace: &str, uid: &str, entry: &str, revision: &str) -> String {
    let suffix = short_revision(revision);
    let plain = format!("{workspace}--{entry}-{suffix}");
    if is_service_name(&plain) { plain } else { format!("{}-{suffix}", hashed_name(uid, entry)) }
}

/// The UID stands for the workspace. Every plain name has `--` in it and this has none, so the two never meet.
fn hashed_name(uid: &str, entry: &str) -> String {
    format!("w-{}", hash(&format!("{uid}/{entry}"), NAME_DIGITS))
}

/// A DNS-1035 label: what a Service may be called.
fn is_service_name(name: &str) -> bool {
    name.len() <= LABEL_LIMIT
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// What names tell of a revision. One that comes from a status may be anything.
fn short_revision(revision: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if !revision.is_empty() && revision.chars().all(is_plain) {
        return revision.chars().take(SHORT_DIGITS).collect();
    }
    hash(revision, SHORT_DIGITS)
}

/// The beginning of the sha256 of `text`, in hexadecimal digits.
pub(crate) fn hash(text: &str, digits: usize) -> String {
    let mut hash = hex::encode(Sha256::digest(text.as_bytes()));
    hash.truncate(digits);
    hash
}

/// Labels of every child but pods: for people, and for watches and lists, which go by them. Whose a child is, its owner
/// reference says.
pub fn child_labels(
    workspace: &str,
    uid: &str,
    component: Component,
    entry: Option<&str>,
) -> BTreeMap<String, String> {
    let mut labels = common_labels(workspace, component);
    labels.insert(OWNER_LABEL.to_owned(), uid.to_owned());
    labels.extend(entry.map(|entry| (ENTRY_LABEL.to_owned(), entry.to_owned())));
    labels
}

/// Labels of pods, on the template that they are made from and nowhere else: who may set [`WORKSPACE_LABEL`] is checked
/// there. They never change: a new one would replace every pod.
pub fn pod_labels(
    workspace: &str,
    uid: &str,
    component: Component,
    entry: &str,
) -> BTreeMap<String, String> {
    let mut labels = common_labels(workspace, component);
    labels.extend(entry_selector(uid, entry));
    labels
}

/// Selects the pods of an entry. Identity and nothing else: the selector of a Deployment can never be changed.
pub fn entry_selector(uid: &str, entry: &str) -> BTreeMap<String, String> {
    let mut labels = workspace_selector(uid);
    labels.insert(ENTRY_LABEL.to_owned(), entry.to_owned());
    labels
}

/// Selects all pods of a workspace.
pub fn workspace_selector(uid: &str) -> BTreeMap<String, String> {
    [(WORKSPACE_LABEL.to_owned(), uid.to_owned())].into()
}

fn common_labels(workspace: &str, component: Component) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "workspace"),
        ("app.kubernetes.io/instance", &label_value(workspace)),
        ("app.kubernetes.io/component", component.as_str()),
        ("app.kubernetes.io/part-of", PART_OF),
        ("app.kubernetes.io/managed-by", MANAGED_BY),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .collect()
}

/// The name of an object as the value of a label: itself, or its beginning and a hash.
fn label_value(name: &str) -> String {
    if name.len() <= LABEL_LIMIT {
        return name.to_owned();
    }
    let room = LABEL_LIMIT - SHORT_DIGITS - 1;
    let cut: String = name.chars().take(room).collect();
    format!("{}-{}", cut.trim_end_matches(['-', '.']), hash(name, SHORT_DIGITS))
}

#[cfg(test)]
mod tests;
