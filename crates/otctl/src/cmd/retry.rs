//! `otctl retry`: asks again for what has failed.

use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use otctl_types::names::RETRY_ANNOTATION;
use serde_json::json;

use crate::cli::ChangeArgs;
use crate::client::{self, Cluster};
use crate::kind::{Found, Retry};
use crate::out;
use crate::selection::{self, Unnamed};

/// Asks again, and says what that gave.
pub(crate) async fn run(args: &ChangeArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.scope.place.cluster).await?;
    let found = selection::find(&cluster, &args.objects, &args.scope, Unnamed::Selected).await?;
    if found.is_empty() {
        out::remark(&selection::nothing(&args.objects, &args.scope, &cluster.namespace));
    }
    for one in &found {
        match one.kind.retry(&cluster, &one.object).await? {
            Retry::Nothing(why) => out::line(&format!("{} unchanged ({why})", one.reference())),
            Retry::Gives(what) => {
                ask(&cluster, one)
                    .await
                    .with_context(|| format!("{} cannot be asked for again", one.reference()))?;
                out::line(&format!("{} asked for again: {what}", one.reference()));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The time is a value that was not there before.
async fn ask(cluster: &Cluster, found: &Found) -> anyhow::Result<()> {
    let annotations = json!({RETRY_ANNOTATION: Timestamp::now().to_string()});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let name = found.object.metadata.name.as_deref().unwrap_or_default();
    let params =
        PatchParams { field_manager: Some("otctl-retry".to_owned()), ..PatchParams::default() };
    let patched = found.api(&cluster.client).patch(name, &params, &patch).await;
    patched.map(drop).map_err(|error| cluster.explained(error))
}
