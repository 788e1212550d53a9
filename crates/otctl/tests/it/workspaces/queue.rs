//! The ledger of workspaces is not deleted by mistake, also where the controller of images is not installed.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use otctl_types::AdmissionQueue;
use otctl_types::names::{DISKIMAGE_CONTROLLER, WORKSPACE_QUEUE};
use serde_json::json;

use super::{installed, refusal};
use crate::stage::until;

/// Makes the ledger, and tells whether nobody deletes it.
pub(super) async fn is_guarded(client: &Client) -> bool {
    let queues: Api<AdmissionQueue> = Api::all(client.clone());
    ensure(&queues, WORKSPACE_QUEUE).await;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    queues.delete(WORKSPACE_QUEUE, &dry).await.is_err()
}

async fn ensure(queues: &Api<AdmissionQueue>, name: &str) {
    let queue = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "AdmissionQueue", "metadata": {"name": name},
    });
    queues.patch(name, &PatchParams::apply("test"), &Patch::Apply(&queue)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_workspaces_stays_by_the_chart_of_workspaces_alone() {
    let client = installed().await.admin();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let of_images = format!("{DISKIMAGE_CONTROLLER}-queue-deletion");
    bindings.delete(&of_images, &DeleteParams::default()).await.unwrap();
    let queues: Api<AdmissionQueue> = Api::all(client.clone());
    until("the other chart's guard acts no more", async || {
        ensure(&queues, "another").await;
        queues.delete("another", &DeleteParams::default()).await.ok()
    })
    .await;
    let (delete, every) = (DeleteParams::default(), ListParams::default());
    let told = refusal(queues.delete(WORKSPACE_QUEUE, &delete).await);
    let way_out = "kubectl annotate admissionqueue workspaces pelotech.ot/force-delete=true";
    assert!(told.contains(way_out), "{told}");
    let told = refusal(queues.delete_collection(&delete, &every).await);
    assert!(told.contains(way_out), "{told}");
    assert!(queues.get_opt(WORKSPACE_QUEUE).await.unwrap().is_some());
}
