//! What is measured, as a scrape sees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use otctl_kit::args::Build;
use otctl_kit::metrics::Family;
use otctl_kit::store::Change;
use serde_json::{Value, json};
use testbed::VirtualClock;

use super::*;
use crate::record;

fn noon() -> Arc<VirtualClock> {
    let clock = VirtualClock::default();
    clock.set("2026-05-01T12:00:00Z".parse().unwrap());
    Arc::new(clock)
}

/// Views, and what is measured of them.
struct Measured {
    views: Views,
    registry: Metrics,
    leads: Arc<AtomicBool>,
    versions: u64,
}

impl Measured {
    fn new() -> Self {
        let (views, registry) = (Views::default(), Metrics::new(Build::of("test")));
        let leads = Arc::new(AtomicBool::new(true));
        let asked = leads.clone();
        let counted: (_, Leads) =
            (Traffic::default(), Arc::new(move || asked.load(Ordering::SeqCst)));
        measure(&registry, &views, noon(), counted);
        Self { views, registry, leads, versions: 0 }
    }

    fn metadata(&mut self, name: &str) -> Value {
        self.versions += 1;
        json!({"name": name, "namespace": "lab", "uid": name, "resourceVersion": self.versions.to_string()})
    }

    fn image(&mut self, name: &str, status: &Value) {
        let image = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage", "metadata": self.metadata(name),
            "spec": {"url": "http://host/a", "sourceType": "http"}, "status": status,
        });
        self.views.images.apply(Change::Present(serde_json::from_value(image).unwrap()));
    }

    fn ledger(&mut self, status: &Value) {
        let mut metadata = self.metadata("vmdiskimages");
        metadata["namespace"] = Value::Null;
        let queue = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": metadata, "spec": {},
            "status": status,
        });
        self.views.queues.apply(Change::Present(serde_json::from_value(queue).unwrap()));
    }

    /// Every series that tells something else than zero, without the buckets.
    fn told(&self) -> HashMap<String, String> {
        let text = self.registry.render().unwrap();
        let series = text.lines().filter_map(|line| line.rsplit_once(' '));
        let ours = series
            .filter(|(name, _)| name.starts_with("otctl_image") || name.starts_with("otctl_policy"))
            .filter(|(name, value)| !name.contains("_bucket") && *value != "0");
        ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn check(&self, expected: &[(&str, &str)]) {
        let expected =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(self.told(), expected.collect());
    }
}

fn ready(phase: &str, reason: &str) -> Value {
    let condition = json!({
        "type": "Ready", "status": "False", "reason": reason, "message": "",
        "lastTransitionTime": "2026-05-01T11:00:00Z",
    });
    json!({"phase": phase, "conditions": [condition]})
}

/// The status after so many attempts that failed.
fn failed(times: i64) -> Value {
    let attempt = |number| json!({"number": number, "reason": "ServerError", "charged": true});
    json!({"phase": "Queued", "lastAttempt": times, "attempts": (1..=times).map(attempt).collect::<Vec<_>>()})
}

const FAILED: &str = "otctl_image_attempts_total{class=\"transient\",reason=\"ServerError\"}";

#[test]
fn the_table_is_what_is_registered() {
    let mut measured = Measured::new();
    measured.image("a", &Value::Null);
    measured.ledger(&json!({"limit": 1}));
    let text = measured.registry.render().unwrap();
    for Family { name, help, kind, .. } in FAMILIES {
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.word());
        assert!(text.contains(&head), "{head} is not in {text}");
    }
    let ours = |name: &str| name.starts_with("otctl_image") || name.starts_with("otctl_policy");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(types.filter(|name| ours(name)).count(), FAMILIES.len(), "{text}");
}

#[test]
fn images_are_told_by_phase_and_by_why_they_are_not_ready() {
    let mut measured = Measured::new();
    measured.image("new", &Value::Null);
    measured.image("waits", &ready("Queued", "SlotsBusy"));
    measured.image("waits-too", &ready("Queued", "SlotsBusy"));
    measured.image("fails", &ready("Failed", "TooSmall"));
    measured.image("strange", &ready("Syncing", "Whatever"));
    measured.image("done", &ready("Succeeded", "Succeeded"));
    measured.check(&[
        ("otctl_images{phase=\"Queued\"}", "3"),
        ("otctl_images{phase=\"Failed\"}", "1"),
        ("otctl_images{phase=\"Syncing\"}", "1"),
        ("otctl_images{phase=\"Succeeded\"}", "1"),
        ("otctl_images_unready{phase=\"Queued\",reason=\"Queued\"}", "1"),
        ("otctl_images_unready{phase=\"Queued\",reason=\"SlotsBusy\"}", "2"),
        ("otctl_images_unready{phase=\"Failed\",reason=\"TooSmall\"}", "1"),
        ("otctl_images_unready{phase=\"Syncing\",reason=\"other\"}", "1"),
    ]);
    measured.image("fails", &ready("Queued", "SlotsBusy"));
    assert!(!measured.told().keys().any(|series| series.contains("TooSmall")), "it goes with it");
}

#[test]
fn the_ledger_is_told_as_it_stands_and_nothing_before_there_is_one() {
    let mut measured = Measured::new();
    let text = measured.registry.render().unwrap();
    assert!(!text.contains("otctl_policy_valid") && !text.contains("otctl_image_slots"), "{text}");
    measured.image("a", &json!({"ticket": "5", "queuedAt": "2026-05-01T11:58:30Z"}));
    let valid = json!({
        "type": "PolicyValid", "status": "True", "reason": "Valid", "message": "",
        "lastTransitionTime": "2026-05-01T11:00:00Z",
    });
    measured.ledger(&json!({
        "limit": 4, "activeCount": 3, "waitingCount": 2, "oldestWaitingTicket": "5", "conditions": [valid],
        "policy": {"snapshotConcurrency": "7"},
    }));
    measured.check(&[
        ("otctl_images{phase=\"Queued\"}", "1"),
        ("otctl_images_unready{phase=\"Queued\",reason=\"Queued\"}", "1"),
        ("otctl_images_waiting", "2"),
        ("otctl_image_queue_oldest_age_seconds", "90"),
        ("otctl_image_slots_active", "3"),
        ("otctl_image_slots_limit", "4"),
        ("otctl_image_snapshots_limit", "7"),
        ("otctl_policy_valid", "1"),
    ]);
}

#[test]
fn only_the_leader_counts_and_it_counts_what_is_new() {
    let mut measured = Measured::new();
    let count = |measured: &Measured| measured.told().get(FAILED).cloned();
    measured.image("a", &failed(1));
    assert_eq!(count(&measured), None, "it was so when this process came");
    measured.image("a", &failed(3));
    assert_eq!(count(&measured).as_deref(), Some("2"));
    measured.leads.store(false, Ordering::SeqCst);
    measured.image("a", &failed(4));
    assert_eq!(count(&measured).as_deref(), Some("2"), "the leader counts it");
    measured.leads.store(true, Ordering::SeqCst);
    measured.image("a", &failed(5));
    assert_eq!(count(&measured).as_deref(), Some("3"));
}

#[test]
fn another_image_of_the_name_is_another_image() {
    let mut measured = Measured::new();
    measured.image("a", &failed(1));
    let mut other = measured.views.images.all()[0].as_ref().clone();
    other.metadata.uid = Some("other".to_owned());
    other.metadata.resource_version = Some("9".to_owned());
    other.status = serde_json::from_value(failed(7)).unwrap();
    measured.views.images.apply(Change::Present(other.clone()));
    assert_eq!(measured.told().get(FAILED), None);
    other.metadata.resource_version = Some("10".to_owned());
    measured.views.images.apply(Change::Gone(other.clone()));
    other.metadata.resource_version = Some("11".to_owned());
    measured.views.images.apply(Change::Present(other));
    assert_eq!(measured.told().get(FAILED), None, "nor is one that is back");
}

#[test]
fn every_end_of_an_attempt_has_its_series_from_the_start() {
    let text = Measured::new().registry.render().unwrap();
    for reason in record::endings() {
        let label = format!("reason=\"{reason}\"}} 0");
        assert!(text.contains(&label), "{label} is not in {text}");
    }
}
