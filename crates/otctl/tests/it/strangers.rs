//! Names: long ones, taken ones, the same ones elsewhere; and creates that are refused.

use diskimage_controller::names::{self, JobRole};
use image_server::Content;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, ResourceQuota};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::storage::IMMEDIATE_CLASS;
use otctl_types::VMDiskImage;
use otctl_types::condition::{ACCEPTED, find};
use otctl_types::diskimage::Phase;
use otctl_types::queue::ActiveEntry;
use serde_json::json;

use crate::hands::finish_but;
use crate::stage::{Stage, phase, ready_reason, status, until, well_behaved};

const MIB: u64 = 1 << 20;

/// What is waited for is looked at again after 30 s, so all of it waits at once.
#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_long_taken_or_elsewhere_and_creates_that_are_refused() {
    let mut stage = Stage::set(&[("concurrency", "3")]).await;
    let twin = stage.cluster().namespace("twin").await.unwrap();
    let tight = stage.cluster().namespace("tight").await.unwrap();
    let walled = stage.cluster().namespace("walled").await.unwrap();
    create_long_names(&stage).await;
    create_twins(&stage, &twin).await;
    let (claim, job) = create_beside_strangers(&stage).await;
    create_refused(&stage, [&tight, &walled]).await;
    stage.start_controller();

    expect_refused(&stage, &tight, "QuotaExceeded").await;
    expect_refused(&stage, &walled, "Rejected").await;
    expect_conflicts_told(&stage, &claim, &job).await;
    allow(&stage, &tight).await;
    expect_twins_apart(&stage, &twin).await;
    for name in long_names() {
        let done = status(&stage.await_phase(&name, Phase::Succeeded).await);
        assert!(done.current.unwrap().snapshot.is_some());
    }
    expect_conflicts_healed(&stage).await;
    expect_refusals_healed(&stage, [&tight, &walled]).await;
    // A quota refuses with 403 too.
    finish_but(stage, |entry| {
        entry.namespace == tight && entry.resource == "persistentvolumeclaims"
    })
    .await;
}

/// Of 70 characters, and as long as a name may be, with dots where a Job's name may have none.
fn long_names() -> [String; 3] {
    let dotted =
        format!("{}.{}", "very-long-name.".repeat(16).trim_end_matches('.'), "x".repeat(12));
    [format!("lab-{}", "a".repeat(66)), dotted.clone(), format!("{}y", &dotted[..dotted.len() - 1])]
}

async fn create_long_names(stage: &Stage) {
    for (name, seed) in long_names().into_iter().zip(1..) {
        assert!((70..=253).contains(&name.len()), "{}", name.len());
        let mut image =
            stage.image(&format!("long-{seed}"), Content::generated(MIB, seed), well_behaved());
        image.metadata.name = Some(name);
        stage.create(&image).await;
    }
}

/// Two images of one name; that of the other namespace finds nothing at its address.
async fn create_twins(stage: &Stage, twin: &str) {
    stage.create(&stage.image("lab-1", Content::generated(MIB, 9), well_behaved())).await;
    stage.create_in(twin, stage.image_of("lab-1", &stage.server.url("nowhere"))).await;
}

async fn expect_twins_apart(stage: &Stage, twin: &str) {
    stage.await_phase("lab-1", Phase::Succeeded).await;
    let failed = until("the twin has failed", async || {
        let image = stage.images_in(twin).get("lab-1").await.unwrap();
        (phase(&image) == Some(Phase::Failed)).then_some(image)
    })
    .await;
    assert_eq!(ready_reason(&status(&failed)), "SourceNotFound");
    stage.images_in(twin).delete("lab-1", &DeleteParams::default()).await.unwrap();
    let kept = stage.claims().get("lab-1-mine").await.unwrap();
    assert_eq!(kept.metadata.deletion_timestamp, None, "a claim with our labels is not ours");
}

/// Somebody's claim and Job of the names of children, and a claim that has our labels. The names hold the image's UID, so
/// the images come first; no controller runs yet.
async fn create_beside_strangers(stage: &Stage) -> (String, String) {
    let named = |name| stage.image(name, Content::generated(MIB, 8), well_behaved());
    let conflicted = stage.create(&named("claimed")).await;
    let revision = names::revision(&conflicted.spec);
    let claim = names::data_name("claimed", &revision);
    create_claim(stage, &claim, &conflicted).await;
    create_claim(stage, "lab-1-mine", &stage.read("lab-1").await).await;

    let conflicted = stage.create(&named("jobbed")).await;
    let (uid, revision) = (conflicted.uid().unwrap(), names::revision(&conflicted.spec));
    let job = names::job_name("jobbed", &uid, &revision, JobRole::Probe, 1);
    create_job(stage, &job).await;
    (claim, job)
}

async fn create_claim(stage: &Stage, name: &str, beside: &VMDiskImage) {
    let claim = serde_json::from_value::<PersistentVolumeClaim>(json!({
        "metadata": {"name": name, "labels": {
            "pelotech.ot/owner-uid": beside.uid(), "app.kubernetes.io/managed-by": "otctl",
            "owner": beside.name_any(),
        }},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": IMMEDIATE_CLASS,
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }));
    stage.claims().create(&PostParams::default(), &claim.unwrap()).await.unwrap();
}

async fn create_job(stage: &Stage, name: &str) {
    let job = serde_json::from_value::<Job>(json!({
        "metadata": {"name": name},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "mine", "image": "mine"}],
        }}},
    }));
    stage.jobs().create(&PostParams::default(), &job.unwrap()).await.unwrap();
}

/// A taken name is told, holds no slot, and is not touched. Then it is given free.
async fn expect_conflicts_told(stage: &Stage, claim: &str, job: &str) {
    for name in ["claimed", "jobbed"] {
        let image = stage.await_reason(name, "NameConflict").await;
        let conditions = status(&image).conditions;
        let accepted = find(&conditions, ACCEPTED).unwrap();
        assert_eq!((&*accepted.status, &*accepted.reason), ("False", "NameConflict"));
        assert!(!stage.active().await.contains(&name.to_owned()), "it holds no slot");
    }
    let kept = stage.claims().get(claim).await.unwrap();
    assert_eq!((kept.metadata.owner_references, kept.metadata.deletion_timestamp), (None, None));
    let kept = stage.jobs().get(job).await.unwrap();
    assert_eq!((kept.metadata.owner_references, kept.metadata.deletion_timestamp), (None, None));
    stage.claims().delete(claim, &DeleteParams::default()).await.unwrap();
    stage.jobs().delete(job, &DeleteParams::background()).await.unwrap();
}

async fn expect_conflicts_healed(stage: &Stage) {
    for name in ["claimed", "jobbed"] {
        let done = status(&stage.await_phase(name, Phase::Succeeded).await);
        assert_eq!(done.budget.unwrap().charged, 1, "only the download is charged");
    }
}

/// In a namespace without room for claims, and in one that wants no Jobs.
async fn create_refused(stage: &Stage, [tight, walled]: [&str; 2]) {
    forbid_claims(stage, tight).await;
    forbid_jobs(stage, walled).await;
    for namespace in [tight, walled] {
        let image = stage.image("refused", Content::generated(MIB, 1), well_behaved());
        stage.create_in(namespace, image).await;
    }
}

/// Takes away what refuses.
async fn allow(stage: &Stage, tight: &str) {
    quotas(stage, tight).delete("tight", &DeleteParams::default()).await.unwrap();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(stage.client.clone());
    bindings.delete("no-jobs", &DeleteParams::default()).await.unwrap();
}

async fn expect_refusals_healed(stage: &Stage, namespaces: [&str; 2]) {
    for namespace in namespaces {
        let done = until("it succeeds", async || {
            let image = stage.images_in(namespace).get("refused").await.unwrap();
            (phase(&image) == Some(Phase::Succeeded)).then_some(image)
        })
        .await;
        assert_eq!(status(&done).budget.unwrap().charged, 1, "a refusal is not charged");
    }
}

fn quotas(stage: &Stage, namespace: &str) -> Api<ResourceQuota> {
    Api::namespaced(stage.client.clone(), namespace)
}

async fn forbid_claims(stage: &Stage, namespace: &str) {
    let quota = serde_json::from_value(json!({
        "metadata": {"name": "tight"}, "spec": {"hard": {"persistentvolumeclaims": "0"}},
    }));
    quotas(stage, namespace).create(&PostParams::default(), &quota.unwrap()).await.unwrap();
    until("the quota is in force", async || {
        let quota = quotas(stage, namespace).get("tight").await.unwrap();
        quota.status.and_then(|status| status.used).filter(|used| !used.is_empty())
    })
    .await;
}

async fn forbid_jobs(stage: &Stage, namespace: &str) {
    let policy = serde_json::from_value::<ValidatingAdmissionPolicy>(json!({
        "metadata": {"name": "no-jobs"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"],
            }]},
            "validations": [{"expression": "false", "message": "no Jobs are wanted here"}],
        },
    }));
    let binding = serde_json::from_value::<ValidatingAdmissionPolicyBinding>(json!({
        "metadata": {"name": "no-jobs"},
        "spec": {
            "policyName": "no-jobs", "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    }));
    let params = PostParams::default();
    Api::all(stage.client.clone()).create(&params, &policy.unwrap()).await.unwrap();
    Api::all(stage.client.clone()).create(&params, &binding.unwrap()).await.unwrap();
    let jobs: Api<Job> = Api::namespaced(stage.client.clone(), namespace);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    until("the policy is in force", async || {
        let job = serde_json::from_value(json!({
            "metadata": {"generateName": "try-"},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}],
            }}},
        }));
        jobs.create(&dry_run, &job.unwrap()).await.is_err().then_some(())
    })
    .await;
}

/// It is told with its time, and the message is the one of whoever refused.
async fn expect_refused(stage: &Stage, namespace: &str, reason: &str) {
    let image = until(&format!("{reason} is told"), async || {
        let image = stage.images_in(namespace).get("refused").await.unwrap();
        (ready_reason(&status(&image)) == reason).then_some(image)
    })
    .await;
    let status = status(&image);
    assert_eq!(status.phase, Some(Phase::Queued), "it goes on by itself");
    let attempt = status.attempts.last().unwrap();
    assert_eq!((attempt.reason.as_deref(), attempt.charged), (Some(reason), false));
    assert!(attempt.ended_at.is_some() && status.next_retry_at.is_some());
    let uid = image.uid();
    let is_its = |entry: &ActiveEntry| Some(&entry.uid) == uid.as_ref();
    stage.await_ledger("it holds no slot", |ledger| !ledger.active.iter().any(is_its)).await;
    let part = if reason == "Rejected" { "no Jobs are wanted here" } else { "exceeded quota" };
    assert!(status.message.unwrap().contains(part));
}
