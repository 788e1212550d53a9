//! For an installation that is removed: takes the finalizer of the controller off every Workspace, so that each can be
//! deleted without it. What it made goes by its owner references.
//!
//! The controller's Deployment goes first, and with it every pod: a controller that runs would put its finalizers back.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject};
use otctl_kit::args::Args as KitArgs;
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request, Target};
use otctl_kit::commit::{Author, CommitError, commit};
use otctl_kit::plan::{Action, Plan, Propagation, Write};
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::Subject;
use otctl_kit::runtime::RunError;
use otctl_types::Workspace;
use otctl_types::names::{WORKSPACE_CONTROLLER, WORKSPACE_FINALIZER};
use serde_json::Value;

/// How soon it is looked again whether the controller is gone.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What it is told.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "release-finalizers")]
pub struct Args {
    /// Settings that every controller has.
    #[command(flatten)]
    pub kit: KitArgs,
    /// Name of the controller's Deployment, in the namespace of the installation.
    #[arg(long, value_name = "NAME", default_value = WORKSPACE_CONTROLLER)]
    pub deployment: String,
}

/// Why Workspaces were not let go.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] RunError),
    /// The API server did not tell what is there.
    #[error("the API server did not tell what is there")]
    Read(#[from] ApiError),
    /// A write was refused.
    #[error(transparent)]
    Write(#[from] Box<CommitError>),
}

/// Does it as the process.
///
/// # Errors
/// When it cannot start, or the API server refuses something.
pub async fn run(args: &Args) -> Result<ExitCode, ReleaseError> {
    otctl_kit::runtime::once(&args.kit, WORKSPACE_CONTROLLER, async |context| {
        let author = Author { controller: WORKSPACE_CONTROLLER, at: context.clock.now() };
        let deployment = Target::new::<Deployment>(Some(&args.kit.namespace), &args.deployment);
        let released = release(&context.cluster, author, &deployment).await;
        released.inspect(|count| tracing::info!(workspaces = count, "released"))
    })
    .await??;
    Ok(ExitCode::SUCCESS)
}

/// Takes the Deployment away, waits until the last pod of it is gone, and takes the finalizers off. Gives how many
/// Workspaces had one.
///
/// # Errors
/// When the API server refuses something.
pub async fn release(
    cluster: &Arc<dyn Cluster>,
    author: Author,
    deployment: &Target,
) -> Result<usize, ReleaseError> {
    end_controller(cluster, author, deployment).await?;
    let mut released = 0;
    for workspace in workspaces(&**cluster).await? {
        if let Some(write) = without_ours(&workspace) {
            carry_out(&**cluster, author, Some(&subject(&workspace)), write).await?;
            released += 1;
        }
    }
    Ok(released)
}

/// With `Foreground` a Deployment is there until the last of its pods is gone.
async fn end_controller(
    cluster: &Arc<dyn Cluster>,
    author: Author,
    deployment: &Target,
) -> Result<(), ReleaseError> {
    let reader = Reader::new(cluster.clone());
    let namespace = deployment.namespace.as_deref();
    while let Some(uid) = reader.uid::<Deployment>(namespace, &deployment.name).await? {
        let action = Action::Delete {
            target: deployment.clone(),
            uid,
            resource_version: None,
            propagation: Propagation::Foreground,
        };
        let write = Write { action, because: "it would put its finalizers back" };
        carry_out(&**cluster, author, None, write).await?;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// All of them, also those that cannot be read as what they should be.
async fn workspaces(cluster: &dyn Cluster) -> Result<Vec<DynamicObject>, ApiError> {
    let resource = ApiResource::erase::<Workspace>(&());
    let list = Request::List { resource, namespace: None, selector: String::new() };
    match cluster.call(list).await? {
        Answer::Objects(objects) => Ok(objects),
        Answer::Object(_) | Answer::Absent | Answer::Done => {
            Err(ApiError::Unreadable { detail: "a list was answered without one".to_owned() })
        }
    }
}

/// The finalizers of others stay.
fn without_ours(workspace: &DynamicObject) -> Option<Write> {
    let (ours, others): (Vec<_>, Vec<_>) =
        workspace.finalizers().iter().cloned().partition(|it| it == WORKSPACE_FINALIZER);
    let because = "its controller is removed";
    (!ours.is_empty()).then_some(Write { action: Action::Finalize(others), because })
}

fn subject(workspace: &DynamicObject) -> Subject {
    Subject {
        target: Target::new::<Workspace>(None, &workspace.name_any()),
        uid: workspace.uid().unwrap_or_default(),
        resource_version: workspace.resource_version().unwrap_or_default(),
        status: Value::Null,
    }
}

async fn carry_out(
    cluster: &dyn Cluster,
    author: Author,
    subject: Option<&Subject>,
    write: Write,
) -> Result<(), ReleaseError> {
    let plan: Plan<()> = Plan { writes: vec![write], ..Plan::rest("Releasing") };
    commit(cluster, author, subject, &plan).await.map(drop).map_err(Box::new)?;
    Ok(())
}
