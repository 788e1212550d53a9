//! What an image costs the API server. The lists are those of ARCHITECTURE.md.

use std::collections::BTreeMap;

use image_server::Content;
use local_cluster::audit::{AuditEntry, Mark};
use otctl_types::diskimage::Phase;
use serde_json::Value;

use crate::stage::{NAMESPACE, Stage, answer_of, status, told, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;

/// Writes by what they are.
type Table = BTreeMap<String, usize>;

#[tokio::test(flavor = "multi_thread")]
async fn a_successful_image_costs_exactly_what_is_listed() {
    let mut stage = Stage::set(&[("concurrency", "1")]).await;
    stage.keep_lease();
    stage.start_controller();
    stage.await_ledger("the queue rests", |ledger| ledger.limit == Some(1)).await;
    let at_rest = stage.quiet().await;

    stage.create(&stage.image("at-once", Content::generated(SIZE, 1), well_behaved())).await;
    stage.await_phase("at-once", Phase::Succeeded).await;
    let after_one = stage.quiet().await;
    expect(&stage, at_rest, &table(&admitted_at_once(&[])));

    let first = stage.image("first", Content::generated(SIZE, 2), well_behaved());
    let second = stage.image("second", Content::generated(SIZE, 3), well_behaved());
    stage.create_all(&[first, second]).await;
    stage.await_all_ended().await;
    stage.quiet().await;
    let second = of(&stage.writes(after_one), "second");
    assert_eq!(second, table(&waited()), "it waited");
    expect_effect(&stage);
    expect_counted(&stage, ["at-once", "first", "second"]).await;
    stage.finish().await;
}

/// What the metrics of the one controller tell of these images, each of which took one attempt.
async fn expect_counted(stage: &Stage, names: [&str; 3]) {
    let mut received = 0;
    for name in names {
        let status = status(&stage.read(name).await);
        received += status.attempts[0].bytes.unwrap();
    }
    assert!(received >= 3 * i64::try_from(SIZE).unwrap(), "{received}");
    let metrics = answer_of(stage.log(), "/metrics").await;
    let attempts = "otctl_image_attempts_total{class=\"succeeded\",reason=\"Succeeded\"}";
    let expected = [
        (attempts, 3),
        ("otctl_image_queue_wait_seconds_count", 3),
        ("otctl_image_sync_duration_seconds_count", 3),
        ("otctl_image_ready_duration_seconds_count", 3),
        ("otctl_image_received_bytes_total", received),
        ("otctl_images{phase=\"Succeeded\"}", 3),
        ("otctl_image_slots_active", 0),
        ("otctl_image_slots_limit", 1),
        ("otctl_policy_valid", 1),
        ("otctl_leader", 1),
    ];
    for (series, value) in expected {
        assert!(metrics.contains(&format!("\n{series} {value}\n")), "{series} {value}: {metrics}");
    }
}

/// Status 4, children 5 and the start, clean-up 3, Events 2, ledger: admission, release, the end of the snapshot.
fn admitted_at_once<'a>(more: &[(&'a str, usize)]) -> Vec<(&'a str, usize)> {
    let mut writes = vec![
        ("update admissionqueues/status", 3),
        ("patch vmdiskimages/status", 4),
        ("create jobs", 2),
        ("patch jobs", 1),
        ("create persistentvolumeclaims", 2),
        ("create volumesnapshots", 1),
        ("delete persistentvolumeclaims", 2),
        ("delete jobs", 1),
        ("create events", 2),
    ];
    writes.extend(more);
    writes
}

/// The same, and two more of its status: the ticket, and Queued. Its ledger writes are shared and not told apart.
fn waited() -> Vec<(&'static str, usize)> {
    let mut writes = admitted_at_once(&[]);
    writes.retain(|(write, _)| *write != "update admissionqueues/status");
    for (write, count) in &mut writes {
        if *write == "patch vmdiskimages/status" {
            *count += 2;
        }
    }
    writes
}

/// The controller's writes since then are exactly these.
fn expect(stage: &Stage, since: Mark, wanted: &Table) {
    let writes = stage.writes(since);
    let found = count(&writes);
    let total: usize = found.values().sum();
    let told: Vec<String> = writes.iter().map(told).collect();
    println!("an image that is admitted at once costs {total} writes: {found:?}");
    assert_eq!(found, *wanted, "{}", told.join("\n"));
}

/// The writes about one image: to itself, and to what is named after it.
fn of(writes: &[AuditEntry], name: &str) -> Table {
    let is_about = |entry: &&AuditEntry| {
        let object = entry.request_object.as_ref();
        let given = object.and_then(|object| object["metadata"]["name"].as_str());
        entry.namespace == NAMESPACE
            && (entry.name.starts_with(name) || given.is_some_and(|given| given.starts_with(name)))
    };
    let about: Vec<AuditEntry> = writes.iter().filter(is_about).cloned().collect();
    println!("{name} costs {} writes: {:?}", about.len(), count(&about));
    count(&about)
}

fn count(writes: &[AuditEntry]) -> Table {
    let mut table = Table::new();
    for entry in writes {
        *table.entry(format!("{} {}", entry.verb, entry.target())).or_default() += 1;
    }
    table
}

fn table(writes: &[(&str, usize)]) -> Table {
    writes.iter().map(|(write, count)| ((*write).to_owned(), *count)).collect()
}

/// No write was refused, and none left the object at the version that it had.
fn expect_effect(stage: &Stage) {
    let account = crate::stage::account();
    let mut versions: BTreeMap<(String, String, String), String> = BTreeMap::new();
    let mut idle = Vec::new();
    for entry in stage.audit(Mark::default()).iter().filter(|entry| entry.is_write()) {
        let is_ours = entry.user == account;
        let is_refused = (400..500).contains(&entry.code) && entry.resource != "leases";
        let name = (entry.resource.clone(), entry.namespace.clone(), entry.name.clone());
        let version = entry.response_object.as_ref().and_then(version);
        let is_same = version.is_some() && versions.get(&name) == version.as_ref();
        if is_ours && (is_refused || is_same) {
            idle.push(told(entry));
        }
        if let Some(version) = version.filter(|_| entry.is_success()) {
            versions.insert(name, version);
        }
    }
    assert!(idle.is_empty(), "writes without effect:\n{}", idle.join("\n"));
}

fn version(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}
