//! What Kubernetes itself says of pods that do not run, told as it says it.

use k8s_openapi::api::core::v1::{ResourceQuota, ResourceQuotaSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use otctl_types::condition::Reason;

use crate::stage::Stage;

const WORKER: &str = "worker";

#[tokio::test]
async fn a_quota_is_told_and_what_comes_after_it_too() {
    let stage = Stage::new("quota").await;
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.admin.clone(), &stage.namespace);
    let none = [("pods".to_owned(), Quantity("0".to_owned()))].into();
    let quota = ResourceQuota {
        metadata: ObjectMeta { name: Some("none".to_owned()), ..ObjectMeta::default() },
        spec: Some(ResourceQuotaSpec { hard: Some(none), ..ResourceQuotaSpec::default() }),
        status: None,
    };
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let is_counted = |it: Option<&ResourceQuota>| {
        it.is_some_and(|it| it.status.as_ref().is_some_and(|it| it.used.is_some()))
    };
    kube::runtime::wait::await_condition(quotas.clone(), "none", is_counted).await.unwrap();
    stage.create(&stage.child("deployment worker")).await;
    let words = stage.told(WORKER, Reason::QuotaExceeded).await;
    assert!(words.contains("exceeded quota: none, requested: pods=1"), "{words}");
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    let words = stage.told(WORKER, Reason::Unschedulable).await;
    assert!(words.contains("no nodes available"), "{words}");
}

#[tokio::test]
async fn every_pod_meets_baseline() {
    let stage = Stage::new("baseline").await;
    stage.enforce("baseline").await;
    for entry in ["api-server", WORKER] {
        stage.create(&stage.child(&format!("deployment {entry}"))).await;
        stage.told(entry, Reason::Unschedulable).await;
    }
}

#[tokio::test]
async fn what_restricted_refuses_is_told_in_its_words() {
    let stage = Stage::new("restricted").await;
    stage.enforce("restricted").await;
    stage.create(&stage.child("deployment worker")).await;
    let words = stage.told(WORKER, Reason::PodRefused).await;
    assert!(words.contains("violates PodSecurity \"restricted:latest\""), "{words}");
    assert!(words.contains("runAsNonRoot != true"), "{words}");
}

#[tokio::test]
async fn an_entry_that_says_what_restricted_asks_for_is_admitted() {
    let mut stage = Stage::new("restricted").await;
    stage.enforce("restricted").await;
    let context = stage.container_mut("api-server").security_context.as_mut().unwrap();
    context.capabilities.as_mut().unwrap().add.clear();
    stage.create(&stage.child("deployment api-server")).await;
    stage.told("api-server", Reason::Unschedulable).await;
}
