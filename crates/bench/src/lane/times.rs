//! When each image came how far, from the API server's own log. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;
use local_cluster::audit::AuditEntry;
use otctl_types::names::{OWNER_LABEL, ROLE_LABEL};
use serde_json::Value;

use crate::figures::Spread;

/// What is known of every image, by UID.
#[derive(Default)]
pub(super) struct Times {
    lives: BTreeMap<String, Life>,
    /// UIDs in the ledger.
    holders: BTreeSet<String>,
    /// When slots became free that nobody has taken yet.
    free: VecDeque<Timestamp>,
}

/// When it came how far.
#[derive(Default)]
struct Life {
    created: Option<Timestamp>,
    admitted: Option<Timestamp>,
    /// When the slot became free that it was admitted to; none of the first ones.
    slot_free: Option<Timestamp>,
    child: Option<Timestamp>,
    pod_ended: Option<Timestamp>,
    released: Option<Timestamp>,
    ready: Option<Timestamp>,
}

impl Times {
    /// `entries` in the order of the answers.
    pub(super) fn of(entries: &[AuditEntry]) -> Self {
        let mut times = Self::default();
        for entry in entries.iter().filter(|entry| entry.is_write() && entry.is_success()) {
            if let Some(object) = &entry.response_object {
                times.note(entry, object);
            }
        }
        times
    }

    fn note(&mut self, entry: &AuditEntry, object: &Value) {
        let at = entry.answered_at;
        let uid = || object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        match (entry.verb.as_str(), entry.target().as_str()) {
            ("create", "vmdiskimages") => {
                self.life(uid()).created = Some(at);
            }
            ("update", "admissionqueues/status") => self.ledger(at, object),
            ("create", "jobs") => {
                let owner = object["metadata"]["ownerReferences"][0]["uid"].as_str();
                if let Some(owner) = owner {
                    self.life(owner.to_owned()).child.get_or_insert(at);
                }
            }
            (_, "pods/status") if is_ended_import(object) => {
                let owner = object["metadata"]["labels"][OWNER_LABEL].as_str();
                self.life(owner.unwrap_or_default().to_owned()).pod_ended.get_or_insert(at);
            }
            ("patch", "vmdiskimages/status") if object["status"]["phase"] == "Succeeded" => {
                self.life(uid()).ready.get_or_insert(at);
            }
            _ => {}
        }
    }

    /// A slot that somebody takes is the one that has been free longest.
    fn ledger(&mut self, at: Timestamp, ledger: &Value) {
        let active = ledger["status"]["active"].as_array().into_iter().flatten();
        let now: Vec<String> =
            active.filter_map(|entry| Some(entry["uid"].as_str()?.to_owned())).collect();
        let before = std::mem::replace(&mut self.holders, now.iter().cloned().collect());
        for uid in before.iter().filter(|uid| !now.contains(uid)) {
            self.free.push_back(at);
            self.life(uid.clone()).released.get_or_insert(at);
        }
        for uid in now.into_iter().filter(|uid| !before.contains(uid)) {
            let slot_free = self.free.pop_front();
            let life = self.life(uid);
            life.admitted.get_or_insert(at);
            life.slot_free = slot_free;
        }
    }

    fn life(&mut self, uid: String) -> &mut Life {
        self.lives.entry(uid).or_default()
    }

    pub(super) fn wait(&self) -> Spread {
        self.spread(|life| (life.created, life.admitted))
    }

    pub(super) fn first_child(&self) -> Spread {
        self.spread(|life| (life.admitted, life.child))
    }

    pub(super) fn work(&self) -> Spread {
        self.spread(|life| (life.child, life.ready))
    }

    pub(super) fn life_times(&self) -> Spread {
        self.spread(|life| (life.created, life.ready))
    }

    pub(super) fn release(&self) -> Spread {
        self.spread(|life| (life.pod_ended, life.released))
    }

    pub(super) fn refill(&self) -> Spread {
        self.spread(|life| (life.slot_free, life.child))
    }

    fn spread(&self, of: impl Fn(&Life) -> (Option<Timestamp>, Option<Timestamp>)) -> Spread {
        Spread::of(self.lives.values().filter_map(|life| {
            let (from, to) = of(life);
            // The log's clock may tell two answers of one moment in either order.
            Some(Duration::try_from(to?.duration_since(from?)).unwrap_or_default())
        }))
    }
}

fn is_ended_import(pod: &Value) -> bool {
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    pod["metadata"]["labels"][ROLE_LABEL] == "import" && matches!(phase, "Succeeded" | "Failed")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(
        at: i64,
        verb: &str,
        (resource, subresource): (&str, &str),
        object: Value,
    ) -> AuditEntry {
        AuditEntry {
            user: String::new(),
            user_agent: String::new(),
            verb: verb.to_owned(),
            uri: String::new(),
            group: String::new(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: String::new(),
            name: String::new(),
            code: 200,
            request_object: None,
            response_object: Some(object),
            received_at: Timestamp::from_second(at).unwrap(),
            answered_at: Timestamp::from_second(at).unwrap(),
        }
    }

    fn created(at: i64, uid: &str) -> AuditEntry {
        entry(at, "create", ("vmdiskimages", ""), json!({"metadata": {"uid": uid}}))
    }

    fn ledger(at: i64, uids: &[&str]) -> AuditEntry {
        let active: Vec<Value> = uids.iter().map(|uid| json!({"uid": uid})).collect();
        entry(at, "update", ("admissionqueues", "status"), json!({"status": {"active": active}}))
    }

    fn job(at: i64, uid: &str) -> AuditEntry {
        let owners = json!([{"uid": uid}]);
        entry(at, "create", ("jobs", ""), json!({"metadata": {"ownerReferences": owners}}))
    }

    fn pod_ended(at: i64, uid: &str) -> AuditEntry {
        let labels = json!({ROLE_LABEL: "import", OWNER_LABEL: uid});
        let pod = json!({"metadata": {"labels": labels}, "status": {"phase": "Succeeded"}});
        entry(at, "patch", ("pods", "status"), pod)
    }

    fn ready(at: i64, uid: &str) -> AuditEntry {
        let image = json!({"metadata": {"uid": uid}, "status": {"phase": "Succeeded"}});
        entry(at, "patch", ("vmdiskimages", "status"), image)
    }

    fn seconds(spread: Spread) -> (usize, u64) {
        (spread.count, spread.most.as_secs())
    }

    #[test]
    fn two_images_in_one_slot() {
        let log = [
            created(0, "a"),
            created(1, "b"),
            ledger(2, &["a"]),
            job(4, "a"),
            job(5, "a"),
            pod_ended(10, "a"),
            ledger(13, &["b"]),
            ready(14, "a"),
            job(17, "b"),
        ];
        let times = Times::of(&log);
        assert_eq!(seconds(times.wait()), (2, 12));
        assert_eq!(seconds(times.first_child()), (2, 4));
        assert_eq!(seconds(times.work()), (1, 10), "its first Job counts");
        assert_eq!(seconds(times.life_times()), (1, 14));
        assert_eq!(seconds(times.release()), (1, 3));
        assert_eq!(seconds(times.refill()), (1, 4), "the first slot was nobody's before");
    }

    #[test]
    fn a_slot_that_stood_free_counts_from_when_it_became_so() {
        let log = [ledger(1, &["a", "b"]), ledger(5, &["b"]), ledger(8, &["b", "c"]), job(9, "c")];
        assert_eq!(seconds(Times::of(&log).refill()), (1, 4));
    }

    #[test]
    fn what_was_refused_did_not_happen() {
        let mut refused = created(0, "a");
        refused.code = 409;
        assert!(Times::of(&[refused]).lives.is_empty());
    }
}
