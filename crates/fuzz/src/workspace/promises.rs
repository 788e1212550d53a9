//! What must hold of every write of the controller, whatever was there before it: nothing of strangers is touched, the
//! policy comes before the pods and outlives them, no workload without a turn, no slot above the limit, every status within the bounds of
//! its schema. A controller that has not heard the news yet acts on what was so once.

use std::collections::{BTreeMap, BTreeSet};

use otctl_kit::store::Key;
use otctl_types::names::{
    ENTRY_LABEL, MADE_BY_ANNOTATION, MADE_BY_WORKSPACE, OWNER_LABEL, WORKSPACE_FINALIZER,
    WORKSPACE_LABEL,
};
use serde_json::Value;
use testbed::world::{Id, Verb, Version};
use workspace_controller::names;

use super::objects::LABS;
use crate::promises::{Seen, controller, items, text};
use crate::schema;

const CHILDREN: [&str; 5] =
    ["Service", "Deployment", "NetworkPolicy", "VirtualMachine", "PersistentVolumeClaim"];

/// The cluster as it was at the last look, and what was so once.
#[derive(Default)]
pub(super) struct Promises {
    seen: Seen,
    /// UIDs of the Workspaces that there ever were, and their names.
    workspaces: BTreeMap<String, String>,
    /// UIDs of those whose own policy ever was there.
    guarded: BTreeSet<String>,
    /// UIDs of those that ever were not to be isolated, or were accepted where the controller has no business: no policy of
    /// theirs is promised to outlive anything.
    unguarded: BTreeSet<String>,
    /// UIDs of those that ever had an open turn.
    opened: BTreeSet<String>,
    /// UIDs of those that ever had given their entry a start, and the entry.
    started: BTreeSet<(String, String)>,
}

impl crate::promises::Promises for Promises {
    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }

    fn check_write(&mut self, version: &Version) {
        let (id, object) = (&version.id, &version.object);
        let before = self.seen.live.get(id);
        match (id.kind.as_str(), version.verb) {
            ("Workspace" | "AdmissionQueue", Verb::Status) => self.check_status(version, before),
            ("AdmissionQueue", Verb::Created) | ("Event", _) => {}
            ("Workspace", Verb::Update | Verb::Removed) => {
                let before = before.unwrap_or(&Value::Null);
                check_finalizers(id, before, object);
                if is_let_go(before, object) {
                    self.check_pods_are_gone(id, text(&before["metadata"]["uid"]));
                }
            }
            ("VMDiskImage", Verb::Created) => check_made_by(id, object),
            ("VMDiskImage", Verb::Applied) => check_made_by(id, before.unwrap_or(&Value::Null)),
            ("VMDiskImage", Verb::Deleting | Verb::Removed) => {
                let image = before.unwrap_or(&Value::Null);
                check_made_by(id, image);
                let owners = items(&image["metadata"]["ownerReferences"]);
                // One may be named twice.
                let owners: BTreeSet<&str> =
                    owners.iter().map(|owner| text(&owner["uid"])).collect();
                assert!(owners.len() <= 1, "{id} has other owners: {owners:?}");
            }
            (kind, Verb::Created) if CHILDREN.contains(&kind) => self.check_made(id, object),
            (kind, _) if CHILDREN.contains(&kind) => {
                let before = before.unwrap_or_else(|| panic!("{id} was not there"));
                assert!(self.is_ours(before), "{id} is not ours: {}", before["metadata"]);
                if matches!(version.verb, Verb::Deleting | Verb::Removed) {
                    let guarded = self.guarded_by(id, before);
                    guarded.into_iter().for_each(|uid| self.check_pods_are_gone(id, &uid));
                }
            }
            (_, verb) => panic!("{id}: {verb:?} is none of the controller's business"),
        }
    }

    fn learn(&mut self, version: &Version) {
        let (id, object) = (&version.id, &version.object);
        match id.kind.as_str() {
            "Workspace" => self.learn_workspace(object),
            "NetworkPolicy" if !version.is_removal() => {
                let guarded = self.guarded_by(id, object);
                self.guarded.extend(guarded);
            }
            _ => {}
        }
    }
}

impl Promises {
    fn learn_workspace(&mut self, object: &Value) {
        let (uid, status) = (text(&object["metadata"]["uid"]).to_owned(), &object["status"]);
        let is_elsewhere = |namespace: &Value| !namespace.is_null() && *namespace != LABS;
        if object["spec"]["network"]["isolate"] == false
            || is_elsewhere(&object["spec"]["namespace"])
            || is_elsewhere(&status["namespace"])
        {
            self.unguarded.insert(uid.clone());
        }
        if !status["openTurn"].is_null() {
            self.opened.insert(uid.clone());
        }
        let started = items(&status["startedParts"]).iter();
        self.started.extend(started.map(|entry| (uid.clone(), text(entry).to_owned())));
        self.workspaces.insert(uid, text(&object["metadata"]["name"]).to_owned());
    }

    /// The Workspace that controls it; or that whose UID it carries as our label, if nobody owns it.
    fn owner(&self, object: &Value) -> Option<(&str, &str)> {
        let owners = items(&object["metadata"]["ownerReferences"]);
        let uid = match controller(object) {
            Some(owner) => &owner["uid"],
            None if owners.is_empty() => &object["metadata"]["labels"][OWNER_LABEL],
            None => return None,
        };
        let (uid, name) = self.workspaces.get_key_value(text(uid))?;
        Some((uid, name))
    }

    fn is_ours(&self, object: &Value) -> bool {
        self.owner(object).is_some()
    }

    /// UID of the Workspace whose own policy that is.
    fn guarded_by(&self, id: &Id, object: &Value) -> Option<String> {
        let (uid, name) = self.owner(object).filter(|_| id.kind == "NetworkPolicy")?;
        (names::policy_name(name, uid) == id.key.name).then(|| uid.to_owned())
    }

    /// Nothing runs any more that a policy is to outlive. Where the namespace is gone nobody can know.
    fn check_pods_are_gone(&self, id: &Id, uid: &str) {
        let namespace = Id::new("Namespace", &Key::new("", LABS));
        if self.unguarded.contains(uid) || !self.seen.live.contains_key(&namespace) {
            return;
        }
        let lives = |(it, pod): &(&Id, &Value)| {
            it.kind == "Pod" && pod["metadata"]["labels"][WORKSPACE_LABEL] == uid
        };
        let pod = self.seen.live.iter().find(lives).map(|(pod, _)| pod);
        assert!(pod.is_none(), "{id} is let go before {}", pod.expect("it was found"));
    }

    fn check_made(&self, id: &Id, object: &Value) {
        let uid = controller(object).map(|owner| text(&owner["uid"]).to_owned());
        let uid = uid.filter(|uid| self.workspaces.contains_key(uid));
        let uid = uid.unwrap_or_else(|| panic!("{id} was made for nobody who was ever there"));
        if !["Deployment", "VirtualMachine"].contains(&id.kind.as_str()) {
            return;
        }
        let is_guarded = self.guarded.contains(&uid) || self.unguarded.contains(&uid);
        assert!(is_guarded, "{id} was made, and its policy never was");
        let entry = text(&object["metadata"]["labels"][ENTRY_LABEL]).to_owned();
        let is_paid = self.opened.contains(&uid) || self.started.contains(&(uid, entry));
        assert!(is_paid || is_stopped(object), "{id} was made without a turn");
    }

    fn check_status(&self, version: &Version, before: Option<&Value>) {
        let (id, status) = (&version.id, &version.object["status"]);
        let problems = schema::problems(&id.kind, status);
        assert!(problems.is_empty(), "{id}: {}", problems.join("; "));
        let before = before.map_or(&Value::Null, |before| &before["status"]);
        if id.kind == "AdmissionQueue" {
            return self.check_ledger(status, before);
        }
        let last = |status: &Value| status["lastTurn"].as_i64().unwrap_or(0);
        assert!(last(status) >= last(before), "{id}: the number of the last turn fell");
    }

    /// Whoever is new in the ledger, and has no turn on record, was admitted: there is room.
    fn check_ledger(&self, status: &Value, before: &Value) {
        let slot = |entry: &Value| (text(&entry["uid"]).to_owned(), entry["attempt"].clone());
        let held: Vec<_> = items(&before["active"]).iter().map(slot).collect();
        let active = items(&status["active"]);
        let is_admitted =
            |new: &(String, Value)| !held.contains(new) && !self.opened.contains(&new.0);
        let admitted: Vec<_> = active.iter().map(slot).filter(is_admitted).collect();
        let limit = status["limit"].as_u64().unwrap_or(0);
        let has_room = active.len() as u64 <= limit;
        assert!(
            admitted.is_empty() || has_room,
            "{admitted:?} admitted, {} of {limit} active",
            active.len()
        );
    }
}

/// Nothing but our finalizer comes or goes.
fn check_finalizers(id: &Id, before: &Value, after: &Value) {
    assert_eq!(before["spec"], after["spec"], "{id}: its spec is people's");
    let others = |object: &Value| -> Vec<String> {
        let all = items(&object["metadata"]["finalizers"]).iter().map(text).map(str::to_owned);
        all.filter(|finalizer| finalizer != WORKSPACE_FINALIZER).collect()
    };
    assert_eq!(others(before), others(after), "{id}: others' finalizers are theirs");
}

/// Whether a Workspace that is being deleted has our finalizer no more. One that lives gets it back with its next workload.
fn is_let_go(before: &Value, after: &Value) -> bool {
    let is_held = |object: &Value| {
        let mut all = items(&object["metadata"]["finalizers"]).iter();
        all.any(|finalizer| finalizer == WORKSPACE_FINALIZER)
    };
    !before["metadata"]["deletionTimestamp"].is_null() && is_held(before) && !is_held(after)
}

/// It makes no pod: of a workspace that is suspended.
fn is_stopped(workload: &Value) -> bool {
    workload["spec"]["replicas"] == 0 || workload["spec"]["runStrategy"] == "Halted"
}

fn check_made_by(id: &Id, image: &Value) {
    let made_by = &image["metadata"]["annotations"][MADE_BY_ANNOTATION];
    assert_eq!(made_by, MADE_BY_WORKSPACE, "{id} is no Workspace's");
}
