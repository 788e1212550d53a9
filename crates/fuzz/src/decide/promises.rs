//! What must hold of every write of the controller, whatever was there before it: nothing of strangers is touched, no
//! slot above the limit, one import at a time and on record before it runs, no copy deleted that is the only one, every
//! status within the bounds of its schema.

use std::collections::BTreeSet;

use diskimage_controller::children::claim::is_finished;
use diskimage_controller::names::{self, JobRole, attempt_number};
use diskimage_controller::proof::is_hollow;
use diskimage_controller::record::Record;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use otctl_types::VMDiskImage;
use otctl_types::names::{IMAGE_QUEUE, OWNER_LABEL, ROLE_LABEL};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::world::{Id, Verb, Version};

use crate::promises::{Seen, controller, items, text};
use crate::schema;

/// Kinds that are made for an image and owned by it.
const CHILDREN: [&str; 3] = ["Job", "PersistentVolumeClaim", "VolumeSnapshot"];

/// The cluster as it was at the last look, and what the controller has made since it started.
#[derive(Default)]
pub(super) struct Promises {
    seen: Seen,
    /// UIDs of import Jobs.
    made: BTreeSet<String>,
}

impl crate::promises::Promises for Promises {
    fn seen(&mut self) -> &mut Seen {
        &mut self.seen
    }

    fn check_write(&mut self, version: &Version) {
        let (id, object) = (&version.id, &version.object);
        let before = self.seen.live.get(id);
        match (id.kind.as_str(), version.verb) {
            ("VMDiskImage" | "AdmissionQueue", Verb::Status) => self.check_status(version, before),
            ("AdmissionQueue", Verb::Created) | ("Event", _) => {}
            (kind, Verb::Created) if CHILDREN.contains(&kind) => {
                let owner = self.owner_of(object);
                assert!(owner.is_some(), "{id} was made for nobody who is there");
                self.check_made(version);
            }
            (kind, Verb::Applied) if CHILDREN.contains(&kind) => {
                self.check_ours(id, before);
                self.check_started(version, before);
            }
            (kind, Verb::Deleting | Verb::Removed) if CHILDREN.contains(&kind) => {
                self.check_ours(id, before);
                self.check_copies(version, before);
            }
            ("Pod", Verb::Deleting | Verb::Removed) => Self::check_left_over(id, before),
            (_, verb) => panic!("{id}: {verb:?} is none of the controller's business"),
        }
    }
}

impl Promises {
    /// What is deleted or changed is controlled by an image of ours: by the UID of one that is there, or as the child of
    /// one that is gone.
    fn check_ours(&self, id: &Id, before: Option<&Value>) {
        let is_child = |owner: &Value| {
            let group = text(&owner["apiVersion"]).split_once('/').map(|(group, _)| group);
            owner["kind"] == "VMDiskImage" && group == Some("pelotech.ot")
        };
        let is_there = before.and_then(|before| self.owner_of(before)).is_some();
        let is_ours = is_there || before.and_then(controller).is_some_and(is_child);
        assert!(is_ours, "{id} is not ours: {:?}", before.map(|object| &object["metadata"]));
    }

    /// The only pods that are deleted have ended, belong to no Job any more, and were made for one of an image's.
    fn check_left_over(id: &Id, before: Option<&Value>) {
        let pod = before.expect("only what is there is deleted");
        let has_ended = matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed");
        let labels = &pod["metadata"]["labels"];
        let was_made = labels[OWNER_LABEL].is_string() && labels[ROLE_LABEL].is_string();
        assert!(has_ended, "{id} was deleted while it may run");
        assert!(controller(pod).is_none() && was_made, "{id} is not ours");
    }

    fn check_status(&self, version: &Version, before: Option<&Value>) {
        let (id, status) = (&version.id, &version.object["status"]);
        let problems = schema::problems(&id.kind, status);
        assert!(problems.is_empty(), "{id}: {}", problems.join("; "));
        let before = before.map_or(&Value::Null, |before| &before["status"]);
        if id.kind == "AdmissionQueue" {
            return self.check_ledger(status, before);
        }
        let last = |status: &Value| status["lastAttempt"].as_i64().unwrap_or(0);
        assert!(last(status) >= last(before), "{id}: the number of the last attempt fell");
    }

    /// Whoever is new in the ledger, and has nothing that runs or may run, was admitted: there is room.
    fn check_ledger(&self, status: &Value, before: &Value) {
        let (active, was) = (items(&status["active"]), items(&before["active"]));
        let slot = |entry: &Value| (text(&entry["uid"]).to_owned(), entry["attempt"].clone());
        let held: Vec<_> = was.iter().map(slot).collect();
        let admitted: Vec<_> = active
            .iter()
            .map(slot)
            .filter(|new| !held.contains(new) && !self.may_run(&new.0))
            .collect();
        let limit = status["limit"].as_u64().unwrap_or(0);
        let has_room = active.len() as u64 <= limit;
        assert!(
            admitted.is_empty() || has_room,
            "{admitted:?} admitted, {} of {limit} active",
            active.len()
        );
        let uids: BTreeSet<&str> = active.iter().map(|entry| text(&entry["uid"])).collect();
        let is_new = |uid: &str| admitted.iter().any(|(admitted, _)| admitted == uid);
        let doubled = active.len() > uids.len()
            && uids.iter().any(|uid| {
                is_new(uid) && active.iter().filter(|entry| text(&entry["uid"]) == *uid).count() > 1
            });
        assert!(!doubled, "an image holds two slots: {active:?}");
    }

    /// Whether something of that image is on record as running, or is there to run.
    fn may_run(&self, uid: &str) -> bool {
        self.seen.live.iter().any(|(id, object)| match id.kind.as_str() {
            "Job" => controller(object).is_some_and(|owner| text(&owner["uid"]) == uid),
            "Pod" => object["metadata"]["labels"]
                .as_object()
                .is_some_and(|labels| labels.values().any(|value| value == uid)),
            "VMDiskImage" => {
                text(&object["metadata"]["uid"]) == uid
                    && !object["status"]["openAttempt"].is_null()
            }
            _ => false,
        })
    }

    /// A new import Job does not run yet, and is the only one of its image that the controller has made and that has not
    /// ended.
    fn check_made(&mut self, version: &Version) {
        let (id, job) = (&version.id, &version.object);
        if id.kind != "Job" || attempt_number(&id.key.name, JobRole::Import).is_none() {
            return;
        }
        assert_eq!(job["spec"]["suspend"], json!(true), "{id} was made started");
        let owner = controller(job).map(|owner| owner["uid"].clone());
        let others = self.seen.live.iter().filter(|(id, other)| {
            let is_made = self.made.contains(text(&other["metadata"]["uid"]));
            id.kind == "Job"
                && is_made
                && controller(other).map(|owner| owner["uid"].clone()) == owner
                && !has_ended(other)
        });
        let others: Vec<_> = others.map(|(id, _)| id.to_string()).collect();
        assert!(others.is_empty(), "{id} was made while there is {}", others.join(", "));
        self.made.insert(text(&job["metadata"]["uid"]).to_owned());
    }

    /// An import Job that is started is the one on record, and its slot is in the ledger.
    fn check_started(&self, version: &Version, before: Option<&Value>) {
        let (id, job) = (&version.id, &version.object);
        let number = attempt_number(&id.key.name, JobRole::Import);
        let was_suspended = before.is_some_and(|before| before["spec"]["suspend"] == json!(true));
        let Some(number) =
            number.filter(|_| was_suspended && job["spec"]["suspend"] != json!(true))
        else {
            return;
        };
        let image = self.owner_of(job).unwrap_or_else(|| panic!("{id} was started for nobody"));
        let open = &image["status"]["openAttempt"];
        assert_eq!(open["jobUID"], job["metadata"]["uid"], "{id} was started and is not on record");
        let queue = self
            .seen
            .live
            .iter()
            .find(|(id, _)| id.kind == "AdmissionQueue" && id.key.name == IMAGE_QUEUE);
        let mut active = queue.into_iter().flat_map(|(_, queue)| items(&queue["status"]["active"]));
        let is_its = |entry: &Value| {
            entry["uid"] == image["metadata"]["uid"] && entry["attempt"] == json!(number)
        };
        assert!(active.any(is_its), "{id} was started without a slot");
    }

    /// A copy of the data that the image has is deleted only while there is another.
    fn check_copies(&self, version: &Version, before: Option<&Value>) {
        let Some(image) = before.and_then(|before| self.owner_of(before)) else { return };
        let Some(typed) = typed::<VMDiskImage>(image) else { return };
        let record = Record::of(&typed);
        let (name, id) = (
            names::data_name(typed.metadata.name.as_deref().unwrap_or_default(), &record.revision),
            &version.id,
        );
        let is_going = typed.metadata.deletion_timestamp.is_some();
        if is_going
            || id.key.name != name
            || !matches!(id.kind.as_str(), "PersistentVolumeClaim" | "VolumeSnapshot")
        {
            return;
        }
        let is_owned = |object: &&Value| {
            controller(object).map(|owner| &owner["uid"]) == Some(&image["metadata"]["uid"])
        };
        let other = |kind: &str| self.seen.live.get(&Id::new(kind, &id.key)).filter(is_owned);
        let is_ready = |snapshot: &Value| snapshot["status"]["readyToUse"] == json!(true);
        if id.kind == "VolumeSnapshot" {
            let was_copy = before.is_some_and(is_ready);
            assert!(
                !was_copy || other("PersistentVolumeClaim").is_some(),
                "{id} was the only copy"
            );
        } else {
            let claim = before.and_then(typed_claim);
            let has_volume = claim.as_ref().is_some_and(|claim| !is_hollow(claim));
            let proof = claim.as_ref().is_some_and(is_finished);
            let was_copy = has_volume && (proof || record.has_fetched() || record.is_current());
            let is_kept = other("VolumeSnapshot").is_some_and(is_ready);
            assert!(!was_copy || is_kept, "{id} was the only copy: {}", image["status"]);
        }
    }

    /// The image that controls an object, if it is there.
    fn owner_of(&self, object: &Value) -> Option<&Value> {
        let uid = text(&controller(object)?["uid"]).to_owned();
        let mut images = self.seen.live.iter().filter(|(id, _)| id.kind == "VMDiskImage");
        images.find(|(_, image)| text(&image["metadata"]["uid"]) == uid).map(|(_, image)| image)
    }
}

fn typed<K: DeserializeOwned>(object: &Value) -> Option<K> {
    serde_json::from_value(object.clone()).ok()
}

fn typed_claim(object: &Value) -> Option<PersistentVolumeClaim> {
    typed(object)
}

fn has_ended(job: &Value) -> bool {
    items(&job["status"]["conditions"]).iter().any(|condition| {
        matches!(text(&condition["type"]), "Complete" | "Failed") && condition["status"] == "True"
    })
}
