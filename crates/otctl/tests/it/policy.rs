//! The policy is edited while imports run.

use image_server::{Behaviour, Content, Fault};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use otctl_types::condition::{POLICY_VALID, find};
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use otctl_types::queue::AdmissionQueueStatus;
use testbed::check;

use crate::stage::{Stage, until};
use crate::timeline::Timeline;

/// More than a first look reads.
const SIZE: u64 = 80 << 10;

/// Values that are none, and the key that the message must name.
const GARBAGE: [(&str, &str); 9] = [
    ("concurrency", "abc"),
    ("concurrency", "-1"),
    ("concurrency", "4.5"),
    ("concurrency", ""),
    ("concurrency", "1000000000"),
    ("retryBackoffDuration", "5"),
    ("retryBackoffDuration", "-5m"),
    ("retryLimit", "two"),
    ("attemptTimeout", "1s"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_acts_on_the_next_decision_and_kills_nothing() {
    let mut stage = Stage::set(&[("concurrency", "1")]).await;
    let mut timeline = Timeline::open(&stage.client).await;
    for number in 0..8 {
        stage.create(&stalling(&stage, number)).await;
    }
    stage.start_controller();
    let one = stage.await_running(1).await;
    assert_eq!(stage.active().await, ["image-0"]);

    stage.policy(&[("concurrency", "4")]).await;
    let four = stage.await_running(4).await;
    assert!(one.iter().all(|pod| four.get_key_value(pod.0) == Some(pod)), "the first runs on");

    stage.policy(&[("concurrency", "0")]).await;
    stage.await_ledger("the limit is 0", |ledger| ledger.limit == Some(0)).await;
    for waiting in ["image-4", "image-7"] {
        stage.await_reason(waiting, "Paused").await;
    }
    assert_eq!(stage.running().await, four, "nothing is killed");
    end(&stage, 0).await;
    expect_active(&stage, &["image-1", "image-2", "image-3"]).await;

    stage.policy(&[("concurrency", "2")]).await;
    stage.await_ledger("the limit is 2", |ledger| ledger.limit == Some(2)).await;
    stage.await_reason("image-4", "SlotsBusy").await;
    end(&stage, 1).await;
    expect_active(&stage, &["image-2", "image-3"]).await;
    end(&stage, 2).await;
    expect_active(&stage, &["image-3", "image-4"]).await;

    (3..8).for_each(|number| stage.let_go(&name(number)));
    stage.await_all_ended().await;
    check::expect_none(&check::ledger::intact(&timeline.history().await));
    stage.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_keeps_the_last_good_value_and_heals() {
    let mut stage = Stage::set(&[("concurrency", "2"), ("retryLimit", "7")]).await;
    stage.start_controller();
    for number in 0..4 {
        stage.create(&stalling(&stage, number)).await;
    }
    let running = stage.await_running(2).await;
    let good = stage.ledger().await.policy;
    assert_eq!((good["concurrency"].as_str(), good["retryLimit"].as_str()), ("2", "7"));

    for (key, value) in GARBAGE {
        let mut policy = vec![("concurrency", "2"), ("retryLimit", "7")];
        policy.retain(|(other, _)| *other != key);
        policy.push((key, value));
        stage.policy(&policy).await;
        expect_invalid(&stage, key, value).await;
        assert_eq!(stage.ledger().await.policy, good, "{key}={value:?} changes nothing");
    }
    stage.policy(&[("concurrency", "many"), ("retryLimit", "7")]).await;
    expect_invalid(&stage, "concurrency", "many").await;
    // It comes after the status; one that dies in between tells nobody twice.
    expect_event(&stage, "Warning", "Invalid", "many").await;
    stage.kill_controller().await;
    stage.start_controller();
    // The new process has judged once it admits: what it admits by is what it remembers.
    end(&stage, 0).await;
    expect_active(&stage, &["image-1", "image-2"]).await;
    assert_eq!(stage.ledger().await.policy, good, "it is remembered over a restart");
    assert!(stage.running().await.iter().any(|pod| running.get_key_value(pod.0) == Some(pod)));

    stage.policy(&[("concurrency", "3"), ("retryLimit", "7")]).await;
    let healed = await_policy(&stage, "True", "Valid").await;
    assert_eq!(healed.limit, Some(3));
    expect_event(&stage, "Normal", "Valid", "").await;
    expect_active(&stage, &["image-1", "image-2", "image-3"]).await;

    (1..4).for_each(|number| stage.let_go(&name(number)));
    stage.await_all_ended().await;
    expect_defaults_without_it(&stage).await;
    stage.finish().await;
}

/// The ConfigMap deleted means the defaults, and says so.
async fn expect_defaults_without_it(stage: &Stage) {
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), DEFAULT_NAMESPACE);
    maps.delete(DEFAULT_POLICY_NAME, &DeleteParams::default()).await.unwrap();
    let defaults = await_policy(stage, "True", "DefaultsInEffect").await;
    assert_eq!((defaults.limit, defaults.policy["retryLimit"].as_str()), (Some(4), "2"));
    until("an Event says so", async || {
        let events = stage.events("default").await;
        events.into_iter().find(|event| {
            event.reason.as_deref() == Some("DefaultsInEffect")
                && event.type_.as_deref() == Some("Warning")
        })
    })
    .await;
}

fn name(number: usize) -> String {
    format!("image-{number}")
}

/// An image whose import runs until it is released.
fn stalling(stage: &Stage, number: usize) -> otctl_types::VMDiskImage {
    let behaviour = Behaviour::new().then(Fault::stall(SIZE / 2));
    stage.image(&name(number), Content::generated(SIZE, number as u64), behaviour)
}

/// Lets an image come to its end, and waits for it.
async fn end(stage: &Stage, number: usize) {
    stage.let_go(&name(number));
    stage.await_phase(&name(number), otctl_types::diskimage::Phase::Succeeded).await;
}

/// These hold slots, and so they do when the queue has looked again.
async fn expect_active(stage: &Stage, wanted: &[&str]) {
    until(&format!("{wanted:?} hold the slots"), async || {
        let mut active = stage.active().await;
        active.sort();
        (active == wanted).then_some(())
    })
    .await;
}

async fn await_policy(stage: &Stage, status: &str, reason: &str) -> AdmissionQueueStatus {
    stage
        .await_ledger(&format!("PolicyValid is {status}/{reason}"), |ledger| {
            find(&ledger.conditions, POLICY_VALID)
                .is_some_and(|valid| valid.status == status && valid.reason == reason)
        })
        .await
}

/// PolicyValid says False and names key and value.
async fn expect_invalid(stage: &Stage, key: &str, value: &str) {
    stage
        .await_ledger(&format!("{key}={value:?} is told"), |ledger| {
            find(&ledger.conditions, POLICY_VALID).is_some_and(|valid| {
                valid.status == "False"
                    && valid.reason == "Invalid"
                    && valid.message.contains(key)
                    && valid.message.contains(value)
            })
        })
        .await;
}

/// An Event on the ConfigMap.
async fn expect_event(stage: &Stage, kind: &str, reason: &str, part: &str) {
    until(&format!("an Event {kind} {reason} on the policy"), async || {
        let events = stage.events(DEFAULT_NAMESPACE).await;
        events.into_iter().find(|event| {
            let about = event.regarding.as_ref();
            about.is_some_and(|about| {
                about.kind.as_deref() == Some("ConfigMap")
                    && about.name.as_deref() == Some(DEFAULT_POLICY_NAME)
            }) && event.type_.as_deref() == Some(kind)
                && event.reason.as_deref() == Some(reason)
                && event.note.as_deref().unwrap_or_default().contains(part)
        })
    })
    .await;
}
