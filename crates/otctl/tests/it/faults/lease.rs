//! Two controllers and one lease: at most one acts, whatever becomes of the lease and of the way to it, and whoever wakes
//! up late does no harm.

use std::time::{Duration, Instant};

use image_server::{Behaviour, Content, Fault, On};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use otctl::demo::peak::{History, Peak};
use otctl_types::diskimage::Phase;
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER};
use serde_json::{Value, json};
use testbed::check;
use testbed::fault::{Point, What, at};

use super::SIZE;
use super::proxied::Proxied;
use crate::hands::merge;
use crate::stage::{PATIENCE, Stage, phase, status, until};
use crate::timeline::Timeline;

const LIMIT: usize = 2;
const IMAGES: usize = 24;
/// A transfer takes about half a second, so that some run at every moment.
const BYTES_PER_SECOND: u64 = 160 << 10;
/// The lease's, long enough that a busy machine loses it by no fault of ours.
const DURATION: Duration = Duration::from_secs(4);
const FLAGS: &[&str] = &["--lease-duration=4s", "--renew-deadline=2s", "--retry-period=500ms"];

#[tokio::test(flavor = "multi_thread")]
async fn at_most_one_acts_whatever_becomes_of_the_lease() {
    let stage = Stage::set(&[("concurrency", "2")]).await;
    let peak = History::open(&stage.client).await.unwrap();
    let mut timeline = Timeline::open(&stage.client).await;
    create(&stage).await;
    let mut one = Proxied::on(&stage, "one", FLAGS).await;
    let mut other = Proxied::on(&stage, "other", FLAGS).await;
    one.start();
    one.await_log("took the lease").await;
    other.start();
    other.await_log("listening").await;

    renewal_lost(&one).await;
    every_call_late(&one, &other).await;
    expect_apart(&acts(&one), &acts(&other));
    // By hand, two may act for a moment: the promises that are looked at in the end hold all the same.
    deleted_and_edited(&stage, &one, &other).await;
    let leader = if leads(&one) { &one } else { &other };
    let standby = if leads(&one) { &other } else { &one };
    paused(leader, standby).await;

    for image in stage.await_all_ended().await {
        let name = image.name_any();
        assert_eq!(phase(&image), Some(Phase::Succeeded), "{name}");
        assert_eq!(status(&image).attempts.len(), 1, "{name}");
        assert_eq!(stage.server.counts(&name).downloads, 1, "{name}");
    }
    one.stop().await;
    other.stop().await;
    let (entries, pods) = peak.close().await.unwrap();
    let transfers = stage.server.totals().most_open_data;
    assert_eq!(Peak { entries, pods, transfers }.most(), LIMIT);
    check::expect_none(&check::ledger::intact(&timeline.history().await));
    stage.finish().await;
}

async fn create(stage: &Stage) {
    for number in 0..IMAGES {
        let content = Content::generated(SIZE, number as u64);
        let pace = Fault::rate_limit(BYTES_PER_SECOND).on(On::Data);
        let image = stage.image(&format!("image-{number}"), content, Behaviour::new().always(pace));
        stage.create(&image).await;
    }
}

/// A renewal is committed and its answer lost, twice in a row.
async fn renewal_lost(one: &Proxied) {
    one.proxy.add(at("update Lease").times(2).then(What::Lose));
    tokio::time::timeout(PATIENCE, one.proxy.struck(2)).await.expect("two answers were lost");
    let renewals = || {
        let log = one.proxy.log();
        log.iter().filter(|entry| entry.call.to_string().starts_with("update Lease")).count()
    };
    let lost = renewals();
    until("the lease is renewed", async || (renewals() > lost + 2).then_some(())).await;
    assert!(leads(one), "two lost answers do not cost the lease");
    one.proxy.faults().clear();
}

/// Every call takes a tenth of the lease, which costs nothing; then all of it: the other takes over, and not before.
async fn every_call_late(one: &Proxied, other: &Proxied) {
    one.proxy.add(at("any").always().then(What::Delay(DURATION / 10)));
    let before = one.writes(0).len();
    until("it goes on slowly", async || (one.writes(0).len() > before + 5).then_some(())).await;
    assert!(leads(one), "a slow server does not cost the lease");
    one.proxy.faults().clear();
    one.proxy.add(at("any").always().then(What::Delay(DURATION)));
    let slow = Instant::now();
    other.await_log("took the lease").await;
    println!("the standby took over {:.1?} after every call took {DURATION:?}", slow.elapsed());
    one.proxy.faults().clear();
}

/// Somebody deletes the lease, then writes a name of his own into it.
async fn deleted_and_edited(stage: &Stage, one: &Proxied, other: &Proxied) {
    let leases: Api<Lease> = Api::namespaced(stage.client.clone(), DEFAULT_NAMESPACE);
    leases.delete(DISKIMAGE_CONTROLLER, &DeleteParams::default()).await.unwrap();
    let deleted = Instant::now();
    let holder = async || {
        let lease = leases.get_opt(DISKIMAGE_CONTROLLER).await.unwrap()?;
        lease.spec?.holder_identity.filter(|holder| holder.starts_with("otctl"))
    };
    until("the deleted lease is held again", holder).await;
    let after_deletion = deleted.elapsed();

    let patch = json!({"spec": {"holderIdentity": "somebody"}});
    merge(&leases, DISKIMAGE_CONTROLLER, &patch).await;
    let edited = Instant::now();
    until("the edited lease is held again", holder).await;
    println!(
        "a deleted lease was held again after {after_deletion:.1?}, an edited one after {:.1?}; it lasts {DURATION:?}",
        edited.elapsed()
    );
    until("one leads", async || (leads(one) || leads(other)).then_some(())).await;
}

/// The leader is stopped with a write of the ledger on its way, for twice as long as the lease lasts. The other takes
/// over and goes on; then the write arrives, and its sender wakes up.
async fn paused(leader: &Proxied, standby: &Proxied) {
    let pause = What::Stop(DURATION * 2);
    leader.proxy.add(at("update status AdmissionQueue").point(Point::Before).then(pause));
    let taken = takes(standby);
    until("the standby takes over", async || (takes(standby) > taken).then_some(())).await;
    assert_eq!(leader.proxy.faults().unmet(), [] as [String; 0]);
    let lost = losses(leader);
    until("the one that was stopped knows", async || {
        (losses(leader) > lost || !leads(leader)).then_some(())
    })
    .await;
    leader.proxy.faults().clear();
}

fn takes(controller: &Proxied) -> usize {
    controller.log().matches("took the lease").count()
}

fn losses(controller: &Proxied) -> usize {
    controller.log().matches("stopped leading").count()
}

/// As it says itself.
fn leads(controller: &Proxied) -> bool {
    takes(controller) > losses(controller)
}

/// From when to when a controller made passes, as it says itself; the last one may go on.
fn acts(controller: &Proxied) -> Vec<(Timestamp, Option<Timestamp>)> {
    let mut acts = Vec::new();
    for line in controller.log().lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        let at = || line["timestamp"].as_str().unwrap().parse().unwrap();
        match line["message"].as_str() {
            Some("reconciling") => acts.push((at(), None)),
            Some("stopped reconciling") => acts.last_mut().unwrap().1 = Some(at()),
            _ => {}
        }
    }
    acts
}

fn expect_apart(one: &[(Timestamp, Option<Timestamp>)], other: &[(Timestamp, Option<Timestamp>)]) {
    println!("acting: one {} times, the other {} times", one.len(), other.len());
    assert!(!one.is_empty() && !other.is_empty(), "both had their turns");
    let is_before = |end: Option<Timestamp>, begin: Timestamp| end.is_some_and(|end| end <= begin);
    for (begin, end) in one {
        for (from, to) in other {
            let apart = is_before(*end, *from) || is_before(*to, *begin);
            assert!(apart, "both acted: {begin}..{end:?} and {from}..{to:?}");
        }
    }
}
