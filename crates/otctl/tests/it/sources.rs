//! Sources as they are out there: replaced midway, without ranges, gone, locked, of other bytes than promised.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image_server::{Behaviour, Content, Fault, On};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use otctl_types::VMDiskImage;
use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use serde_json::json;

use crate::stage::{NAMESPACE, Stage, ready_reason, status, until, well_behaved};

const MIB: u64 = 1 << 20;
const USER: &str = "user";
const PASSWORD: &str = "canary-password";

fn hash(content: &Content) -> String {
    format!("sha256:{}", content.disk_hash(8 * MIB).unwrap().hex())
}

fn of_8_mib(mut image: VMDiskImage) -> VMDiskImage {
    image.spec.disk_size = Some("8Mi".to_owned());
    image
}

fn reasons(status: &VMDiskImageStatus) -> Vec<&str> {
    status.attempts.iter().filter_map(|attempt| attempt.reason.as_deref()).collect()
}

fn disk(status: &VMDiskImageStatus) -> Option<&str> {
    status.current.as_ref()?.disk_checksum.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn sources_fail_in_their_own_ways_and_are_told_apart() {
    let policy = [("concurrency", "4"), ("retryLimit", "3")];
    let mut stage = Stage::set(&policy).await;
    create_locked(&stage).await;
    create_interrupted(&stage).await;
    create_refused(&stage).await;
    stage.start_controller();

    expect_a_locked_source_waits_for_its_secret(&stage).await;
    expect_a_wrong_checksum_is_final(&mut stage).await;
    expect_interruptions_healed(&stage).await;
    expect_refusals_named(&stage).await;
    stage.finish().await;
}

/// Locked sources: one whose Secret comes later, one with the wrong password.
async fn create_locked(stage: &Stage) {
    let locked = || {
        let value = format!("Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
        Behaviour::new().always(Fault::RequireAuthorization { value })
    };
    for (name, secret) in [("locked", "later"), ("wrong-password", "wrong")] {
        let mut image = stage.image(name, Content::generated(MIB, 1), locked());
        image.spec.secret_ref = Some(secret.to_owned());
        stage.create(&image).await;
    }
    create_secret(stage, "wrong", USER, "canary-12345").await;
}

async fn create_secret(stage: &Stage, name: &str, user: &str, password: &str) {
    let secret = serde_json::from_value::<Secret>(json!({
        "metadata": {"name": name},
        "stringData": {"accessKeyId": user, "secretKey": password},
    }));
    secrets(stage).create(&PostParams::default(), &secret.unwrap()).await.unwrap();
}

fn secrets(stage: &Stage) -> Api<Secret> {
    Api::namespaced(stage.client.clone(), NAMESPACE)
}

/// Without its Secret an image holds no slot; it starts when the Secret is there, and a Secret that is made anew is no
/// reason to fetch anything again.
async fn expect_a_locked_source_waits_for_its_secret(stage: &Stage) {
    let waits = stage.await_reason("locked", "SecretNotFound").await;
    assert_eq!(status(&waits).phase, Some(Phase::Queued));
    assert_eq!(stage.server.counts("locked").requests, 0, "nothing was asked without it");
    until("the slot is free", async || {
        (!stage.active().await.contains(&"locked".to_owned())).then_some(())
    })
    .await;
    create_secret(stage, "later", USER, PASSWORD).await;
    let done = status(&stage.await_phase("locked", Phase::Succeeded).await);
    assert_eq!(reasons(&done), ["SecretNotFound", "Succeeded"]);
    assert_eq!(done.budget.unwrap().charged, 1, "waiting is not charged");
    for _ in 0..3 {
        secrets(stage).delete("later", &DeleteParams::default()).await.unwrap();
        create_secret(stage, "later", USER, PASSWORD).await;
    }
    let wrong = status(&stage.await_phase("wrong-password", Phase::Failed).await);
    assert_eq!((ready_reason(&wrong), wrong.attempts.len()), ("Forbidden", 1));
}

/// Interrupted: replaced at the source, and cut without a way to resume.
async fn create_interrupted(stage: &Stage) {
    let replaced = Behaviour::new().then(Fault::cut(3 * MIB)).then(Fault::ChangeEtag.on(On::Data));
    let no_ranges = Behaviour::new().always(Fault::NoRanges).then(Fault::cut(3 * MIB));
    for (name, behaviour) in [("replaced", replaced), ("no-ranges", no_ranges)] {
        stage.create(&of_8_mib(stage.image(name, content(), behaviour))).await;
    }
}

fn content() -> Content {
    Content::generated(8 * MIB, 2)
}

async fn expect_interruptions_healed(stage: &Stage) {
    let replaced = status(&stage.await_phase("replaced", Phase::Succeeded).await);
    assert_eq!(reasons(&replaced), ["SourceChanged", "Succeeded"]);
    let no_ranges = status(&stage.await_phase("no-ranges", Phase::Succeeded).await);
    for (name, status) in [("replaced", &replaced), ("no-ranges", &no_ranges)] {
        let counts = stage.server.counts(name);
        let bytes = counts.bytes - counts.probe_bytes;
        println!(
            "'{name}' of 8 MiB, cut after 3: {} downloads, {bytes} bytes, attempts {:?}",
            counts.downloads,
            reasons(status)
        );
        assert_eq!(disk(status), Some(&*hash(&content())), "{status:#?}");
        assert!((11 * MIB..=12 * MIB).contains(&bytes), "all of it again, once: {bytes}");
    }
    assert_eq!(reasons(&no_ranges), ["ConnectionLost", "Succeeded"]);
}

/// What a person must change, and a name and a class that only look like it.
async fn create_refused(stage: &Stage) {
    stage.create(&stage.image("lab-404", Content::generated(MIB, 3), well_behaved())).await;
    let mut image = stage.image("no-class", Content::generated(MIB, 3), well_behaved());
    image.spec.storage_class = Some("404-not-found".to_owned());
    stage.create(&image).await;
    stage.create(&stage.image_of("really-404", &stage.server.url("really-404"))).await;
    let mut image = stage.image("other-bytes", Content::generated(MIB, 4), well_behaved());
    image.spec.checksum = Some(format!("sha256:{}", "0".repeat(64)));
    stage.create(&image).await;
}

async fn expect_refusals_named(stage: &Stage) {
    stage.await_phase("lab-404", Phase::Succeeded).await;
    let waits = stage.await_reason("no-class", "StorageClassNotFound").await;
    assert_eq!(status(&waits).phase, Some(Phase::Queued));
    assert_eq!(stage.server.counts("no-class").requests, 0, "nothing is asked before");
    let gone = status(&stage.await_phase("really-404", Phase::Failed).await);
    assert_eq!(ready_reason(&gone), "SourceNotFound");
}

/// A wrong checksum is one download, whatever is touched afterwards.
async fn expect_a_wrong_checksum_is_final(stage: &mut Stage) {
    stage.await_reason("other-bytes", "ChecksumMismatch").await;
    stage.patch("other-bytes", &json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    stage.kill_controller().await;
    stage.policy(&[("concurrency", "3"), ("retryLimit", "9")]).await;
    stage.start_controller();
    stage.patch("other-bytes", &json!({"metadata": {"labels": {"touched": "again"}}})).await;
    // The controller has looked at everything again once it has done this.
    stage.create(&stage.image("later", Content::generated(MIB, 5), well_behaved())).await;
    stage.await_phase("later", Phase::Succeeded).await;
    let status = status(&stage.read("other-bytes").await);
    let downloads = stage.server.counts("other-bytes").downloads;
    println!("a wrong checksum, touched, restarted and under another policy: {downloads} download");
    assert_eq!((downloads, status.attempts.len()), (1, 1), "{status:#?}");
    assert_eq!((status.phase, ready_reason(&status)), (Some(Phase::Failed), "ChecksumMismatch"));
}
