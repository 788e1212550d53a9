//! A right is taken away while images sync: what needs it waits and says why, the rest goes on, and it heals.

use image_server::Content;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use local_cluster::audit::Mark;
use otctl_types::condition::{READY, find};
use otctl_types::diskimage::Phase;
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER};
use serde_json::json;

use crate::stage::{NAMESPACE, Stage, account, phase, status, told, until, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
const CLAIMS: &str = "diskimage-controller-claims";
const CLAIM_RESOURCE: &str = "persistentvolumeclaims";

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_lost_right_waits_and_says_so_while_the_rest_goes_on() {
    let mut stage = Stage::set(&[("concurrency", "3")]).await;
    grant_claims_by_a_binding_of_their_own(&stage).await;
    stage.start_controller();
    stage.create(&stage.image("before", Content::generated(SIZE, 1), well_behaved())).await;
    stage.await_phase("before", Phase::Succeeded).await;

    let lost = stage.mark();
    bindings(&stage).delete(CLAIMS, &DeleteParams::default()).await.unwrap();
    await_right(&stage, false).await;
    stage.create(&stage.image("needs-it", Content::generated(SIZE, 2), well_behaved())).await;
    let refused = stage.await_reason("needs-it", "Rejected").await;
    let ready = find(&status(&refused).conditions, READY).cloned().unwrap();
    assert!(ready.message.contains(CLAIM_RESOURCE), "the message says what: {}", ready.message);
    assert_eq!(phase(&refused), Some(Phase::Queued), "it waits");
    assert_eq!(
        status(&refused).budget.map(|budget| budget.charged),
        Some(0),
        "it costs no download"
    );
    stage.await_ledger("it gave its slot back", |ledger| ledger.active.is_empty()).await;
    expect_event(&stage, "needs-it", CLAIM_RESOURCE).await;

    // What asks nothing of claims is judged to its end meanwhile.
    stage.create(&stage.image_of("not-there", &stage.server.url("nowhere"))).await;
    stage.await_reason("not-there", "SourceNotFound").await;
    assert_ne!(phase(&stage.read("needs-it").await), Some(Phase::Succeeded));

    bindings(&stage).create(&PostParams::default(), &binding()).await.unwrap();
    await_right(&stage, true).await;
    let healed = stage.await_phase("needs-it", Phase::Succeeded).await;
    assert_eq!(status(&healed).budget.map(|budget| budget.charged), Some(1));
    assert_eq!(stage.server.counts("needs-it").downloads, 1);
    expect_only_claims_refused(&stage, lost);
    stage.end().await;
}

/// Refusals are about claims, all after the right was taken, and not many: each is followed by a wait.
fn expect_only_claims_refused(stage: &Stage, lost: Mark) {
    let refused = |since| {
        let mut entries = stage.requests(since);
        entries.retain(|entry| entry.is_forbidden());
        entries
    };
    let (all, after) = (refused(Mark::default()), refused(lost));
    let others: Vec<String> =
        all.iter().filter(|entry| entry.resource != CLAIM_RESOURCE).map(told).collect();
    println!("a right was taken: {} requests were refused", all.len());
    assert!(others.is_empty(), "{}", others.join("\n"));
    assert_eq!(all.len(), after.len(), "none before it was taken");
    assert!((1..10).contains(&all.len()), "{} refusals", all.len());
}

/// The installation grants claims with everything else; here they get a role that can be taken away alone.
async fn grant_claims_by_a_binding_of_their_own(stage: &Stage) {
    let roles: Api<ClusterRole> = Api::all(stage.client.clone());
    let mut whole = roles.get(DISKIMAGE_CONTROLLER).await.unwrap();
    let is_about_claims = |rule: &PolicyRule| {
        rule.resources.iter().flatten().any(|resource| resource == CLAIM_RESOURCE)
    };
    let (claims, rest): (Vec<_>, Vec<_>) =
        whole.rules.unwrap_or_default().into_iter().partition(is_about_claims);
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": CLAIMS}, "rules": claims,
    });
    roles.patch(CLAIMS, &PatchParams::apply("test"), &Patch::Apply(&role)).await.unwrap();
    bindings(stage).create(&PostParams::default(), &binding()).await.unwrap();
    whole.rules = Some(rest);
    roles.replace(DISKIMAGE_CONTROLLER, &PostParams::default(), &whole).await.unwrap();
    await_right(stage, true).await;
}

fn bindings(stage: &Stage) -> Api<ClusterRoleBinding> {
    Api::all(stage.client.clone())
}

fn binding() -> ClusterRoleBinding {
    serde_json::from_value(json!({
        "metadata": {"name": CLAIMS},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLAIMS},
        "subjects": [{"kind": "ServiceAccount", "namespace": DEFAULT_NAMESPACE, "name": DISKIMAGE_CONTROLLER}],
    }))
    .unwrap()
}

/// Waits until the API server knows that the account may, or may not, create claims.
async fn await_right(stage: &Stage, wanted: bool) {
    let reviews: Api<SubjectAccessReview> = Api::all(stage.client.clone());
    let spec = SubjectAccessReviewSpec {
        user: Some(account()),
        resource_attributes: Some(ResourceAttributes {
            resource: Some(CLAIM_RESOURCE.to_owned()),
            verb: Some("create".to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ResourceAttributes::default()
        }),
        ..SubjectAccessReviewSpec::default()
    };
    let review = k8s_openapi::api::authorization::v1::SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    };
    until("the right is as wanted", async || {
        let answer = reviews.create(&PostParams::default(), &review).await.unwrap();
        (answer.status.is_some_and(|status| status.allowed) == wanted).then_some(())
    })
    .await;
}

async fn expect_event(stage: &Stage, name: &str, part: &str) {
    until(&format!("an Event on '{name}' that names {part}"), async || {
        let events = stage.events(NAMESPACE).await;
        events.into_iter().find(|event| {
            let regarding = event.regarding.as_ref().and_then(|about| about.name.as_deref());
            regarding == Some(name)
                && event.type_.as_deref() == Some("Warning")
                && event.note.as_deref().unwrap_or_default().contains(part)
        })
    })
    .await;
}
