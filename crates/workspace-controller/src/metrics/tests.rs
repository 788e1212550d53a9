//! What is measured, as a scrape sees it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use otctl_kit::args::Build;
use otctl_kit::metrics::Family;
use otctl_kit::store::Change;
use serde_json::{Value, json};
use testbed::VirtualClock;

use super::*;

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
        let (views, registry) = (Views::new(&[]), Metrics::new(Build::of("test")));
        let leads = Arc::new(AtomicBool::new(true));
        let asked = leads.clone();
        measure(&registry, &views, noon(), Arc::new(move || asked.load(Ordering::SeqCst)));
        Self { views, registry, leads, versions: 0 }
    }

    fn metadata(&mut self, name: &str) -> Value {
        self.versions += 1;
        json!({
            "name": name, "uid": name, "resourceVersion": self.versions.to_string(),
            "creationTimestamp": "2026-05-01T11:00:00Z",
        })
    }

    fn workspace(&mut self, name: &str, status: &Value) {
        let workspace = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "metadata": self.metadata(name),
            "spec": {}, "status": status,
        });
        self.views.workspaces.apply(Change::Present(serde_json::from_value(workspace).unwrap()));
    }

    fn gone(&mut self, name: &str) {
        let mut last = self.views.workspaces.get(&Key::new("", name)).unwrap().as_ref().clone();
        self.versions += 1;
        last.metadata.resource_version = Some(self.versions.to_string());
        self.views.workspaces.apply(Change::Gone(last));
    }

    fn ledger(&mut self, status: &Value) {
        let queue = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": self.metadata("workspaces"),
            "spec": {}, "status": status,
        });
        self.views.queues.apply(Change::Present(serde_json::from_value(queue).unwrap()));
    }

    /// Every series that tells something else than zero, without the buckets.
    fn told(&self) -> HashMap<String, String> {
        let text = self.registry.render().unwrap();
        let series = text.lines().filter_map(|line| line.rsplit_once(' '));
        let ours = series
            .filter(|(name, _)| is_ours(name))
            .filter(|(name, value)| !name.contains("_bucket") && *value != "0");
        ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn check(&self, expected: &[(&str, &str)]) {
        let expected =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        assert_eq!(self.told(), expected.collect());
    }

    /// What was counted: counters, and how often and how long histograms were told.
    fn counted(&self, series: &str) -> String {
        self.told().get(series).cloned().unwrap_or_default()
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with("otctl_workspace") || name.starts_with("otctl_policy")
}

fn condition(kind: &str, status: &str, reason: &str, time: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": format!("2026-05-01T{time}:00Z"),
    })
}

fn ready(phase: &str, reason: &str) -> Value {
    let status = if phase == "Ready" { "True" } else { "False" };
    json!({"phase": phase, "conditions": [condition("Ready", status, reason, "11:00")]})
}

/// The status in a turn of that number, and after it.
fn open(turn: i64) -> Value {
    let since = "2026-05-01T11:30:00Z";
    json!({
        "phase": "Provisioning", "ticket": "1", "queuedAt": "2026-05-01T11:29:00Z",
        "openTurn": {"number": turn, "since": since}, "lastTurn": turn,
        "conditions": [condition("Ready", "False", "Progressing", "11:00")],
    })
}

fn settled(turn: i64) -> Value {
    let conditions = [condition("Ready", "True", "AllReady", "11:40")];
    json!({"phase": "Ready", "lastTurn": turn, "readyParts": "1/1", "conditions": conditions})
}

const TURNS: &str = "otctl_workspace_turns_total{end=\"ready\"}";
const STOPPED: &str = "otctl_workspace_turns_total{end=\"stopped\"}";

#[test]
fn the_table_is_what_is_registered() {
    let mut measured = Measured::new();
    measured.workspace("a", &Value::Null);
    measured.ledger(&json!({"limit": 1}));
    let text = measured.registry.render().unwrap();
    for Family { name, help, kind, .. } in FAMILIES {
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.word());
        assert!(text.contains(&head), "{head} is not in {text}");
    }
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    assert_eq!(types.filter(|name| is_ours(name)).count(), FAMILIES.len(), "{text}");
}

#[test]
fn workspaces_are_told_by_phase_and_by_why_they_are_not_ready() {
    let mut measured = Measured::new();
    measured.workspace("new", &Value::Null);
    measured.workspace("waits", &ready("Provisioning", "SlotsBusy"));
    measured.workspace("waits-too", &ready("Provisioning", "SlotsBusy"));
    measured.workspace("fails", &ready("Failed", "NameConflict"));
    measured.workspace("strange", &ready("Provisioning", "Whatever"));
    measured.workspace("done", &ready("Ready", "AllReady"));
    measured.workspace("rests", &ready("Suspended", "Suspended"));
    let unready = [
        ("phase=\"Provisioning\",reason=\"Queued\"", "1"),
        ("phase=\"Provisioning\",reason=\"SlotsBusy\"", "2"),
        ("phase=\"Failed\",reason=\"NameConflict\"", "1"),
        ("phase=\"Provisioning\",reason=\"other\"", "1"),
        ("phase=\"Suspended\",reason=\"Suspended\"", "1"),
    ];
    let series = unready.iter().flat_map(|(labels, count)| {
        let age = format!("otctl_workspace_unready_oldest_age_seconds{{{labels}}}");
        [(format!("otctl_workspaces_unready{{{labels}}}"), *count), (age, "3600")]
    });
    let series: Vec<_> = series.collect();
    let mut expected: Vec<_> = series.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    expected.extend([
        ("otctl_workspaces{phase=\"Provisioning\"}", "4"),
        ("otctl_workspaces{phase=\"Ready\"}", "1"),
        ("otctl_workspaces{phase=\"Suspended\"}", "1"),
        ("otctl_workspaces{phase=\"Failed\"}", "1"),
    ]);
    measured.check(&expected);
    measured.workspace("fails", &ready("Ready", "AllReady"));
    assert!(
        !measured.told().keys().any(|series| series.contains("NameConflict")),
        "it goes with it"
    );
}

#[test]
fn the_oldest_counts_from_the_last_thing_that_began_for_it() {
    let check = |more: &[Value], queued_at: Option<&str>, age: &str| {
        let mut conditions = vec![condition("Ready", "False", "Degraded", "11:10")];
        conditions.extend_from_slice(more);
        let mut measured = Measured::new();
        let status = json!({
            "phase": "Provisioning", "conditions": conditions,
            "queuedAt": queued_at.map(|time| format!("2026-05-01T{time}:00Z")),
        });
        measured.workspace("a", &status);
        measured.workspace("younger", &open(1));
        let labels = "{phase=\"Provisioning\",reason=\"Degraded\"}";
        let told = measured.counted(&format!("otctl_workspace_unready_oldest_age_seconds{labels}"));
        assert_eq!(told, age, "{status}");
    };
    check(&[], None, "3000");
    check(&[condition("Admitted", "True", "Admitted", "11:40")], None, "1200");
    check(&[condition("Admitted", "False", "Queued", "11:40")], None, "3000");
    check(&[condition("ImagesReady", "True", "AllReady", "11:50")], None, "600");
    check(&[condition("ImagesReady", "True", "AllReady", "11:50")], Some("11:55"), "300");
    check(&[condition("Deleting", "True", "Deleting", "11:59")], None, "60");
    check(&[condition("Stalled", "True", "ImageFailed", "13:00")], None, "");
}

#[test]
fn the_oldest_of_a_reason_is_told() {
    let mut measured = Measured::new();
    for (name, time) in [("a", "11:50"), ("b", "11:20"), ("c", "11:40")] {
        let conditions = [condition("Ready", "False", "Degraded", time)];
        measured.workspace(name, &json!({"phase": "Provisioning", "conditions": conditions}));
    }
    let labels = "{phase=\"Provisioning\",reason=\"Degraded\"}";
    assert_eq!(measured.counted(&format!("otctl_workspaces_unready{labels}")), "3");
    let age = measured.counted(&format!("otctl_workspace_unready_oldest_age_seconds{labels}"));
    assert_eq!(age, "2400");
}

#[test]
fn the_ledger_is_told_as_it_stands_and_nothing_before_there_is_one() {
    let mut measured = Measured::new();
    let text = measured.registry.render().unwrap();
    assert!(
        !text.contains("otctl_policy_valid") && !text.contains("otctl_workspace_slots"),
        "{text}"
    );
    let waiting = json!({"phase": "Ready", "ticket": "5", "queuedAt": "2026-05-01T11:58:30Z", "conditions": [
        condition("Ready", "True", "AllReady", "11:00"),
    ]});
    measured.workspace("a", &waiting);
    measured.ledger(&json!({
        "limit": 4, "activeCount": 3, "waitingCount": 2, "oldestWaitingTicket": "5",
        "conditions": [condition("PolicyValid", "True", "Valid", "11:00")],
    }));
    measured.check(&[
        ("otctl_workspaces{phase=\"Ready\"}", "1"),
        ("otctl_workspaces_waiting", "2"),
        ("otctl_workspace_queue_oldest_age_seconds", "90"),
        ("otctl_workspace_slots_active", "3"),
        ("otctl_workspace_slots_limit", "4"),
        ("otctl_policy_valid", "1"),
    ]);
}

#[test]
fn a_start_is_counted_with_its_times() {
    let mut measured = Measured::new();
    measured.workspace("a", &Value::Null);
    measured.workspace("a", &open(1));
    measured.workspace("a", &settled(1));
    measured.workspace("a", &settled(1));
    let ready = "otctl_workspace_ready_duration_seconds";
    measured.check(&[
        ("otctl_workspaces{phase=\"Ready\"}", "1"),
        (TURNS, "1"),
        ("otctl_workspace_queue_wait_seconds_count", "1"),
        ("otctl_workspace_queue_wait_seconds_sum", "60"),
        (&format!("{ready}_count{{since=\"creation\"}}"), "1"),
        (&format!("{ready}_sum{{since=\"creation\"}}"), "2400"),
    ]);
    let broken = [condition("Ready", "False", "Degraded", "11:41")];
    measured.workspace("a", &json!({"phase": "Provisioning", "lastTurn": 1, "conditions": broken}));
    let healed = [condition("Ready", "True", "AllReady", "11:43")];
    measured.workspace("a", &json!({"phase": "Ready", "lastTurn": 1, "conditions": healed}));
    let recovery = "otctl_workspace_recovery_duration_seconds";
    assert_eq!(measured.counted(&format!("{recovery}_count")), "1");
    assert_eq!(measured.counted(&format!("{recovery}_sum")), "120");
}

#[test]
fn only_the_leader_counts_and_it_counts_what_is_new() {
    let mut measured = Measured::new();
    measured.workspace("a", &settled(1));
    assert_eq!(measured.counted(TURNS), "", "it was so when this process came");
    measured.workspace("a", &open(2));
    measured.workspace("a", &settled(2));
    assert_eq!(measured.counted(TURNS), "1");
    measured.leads.store(false, Ordering::SeqCst);
    measured.workspace("a", &open(3));
    measured.workspace("a", &settled(3));
    assert_eq!(measured.counted(TURNS), "1", "the leader counts it");
    measured.leads.store(true, Ordering::SeqCst);
    measured.workspace("a", &open(4));
    measured.workspace("a", &settled(4));
    assert_eq!(measured.counted(TURNS), "2");
}

#[test]
fn one_that_goes_in_its_turn_has_stopped_and_another_of_its_name_is_another() {
    let mut measured = Measured::new();
    measured.workspace("a", &open(1));
    measured.gone("a");
    assert_eq!(measured.counted(STOPPED), "1");
    measured.workspace("a", &settled(7));
    assert_eq!((measured.counted(STOPPED), measured.counted(TURNS)), ("1".into(), String::new()));
}

#[test]
fn every_end_and_every_wish_has_its_series_from_the_start() {
    let text = Measured::new().registry.render().unwrap();
    let ends =
        End::ALL.map(|end| format!("otctl_workspace_turns_total{{end=\"{}\"}} 0", end.label()));
    let wishes = Wish::ALL.map(|wish| {
        format!("otctl_workspace_ready_duration_seconds_count{{since=\"{}\"}} 0", wish.label())
    });
    for series in ends.iter().chain(&wishes) {
        assert!(text.contains(series), "{series} is not in {text}");
    }
}
