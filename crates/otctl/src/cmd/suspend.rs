//! `otctl suspend` and `otctl resume`: one field of the spec.

use std::process::ExitCode;

use anyhow::Context as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::cli::ChangeArgs;
use crate::client::{self, Cluster};
use crate::kind::Found;
use crate::out;
use crate::selection::{self, Unnamed};

/// What is to become of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// They are held up.
    Suspend,
    /// They go on.
    Resume,
}

/// Holds objects up, or lets them go on; says which were so already.
pub(crate) async fn run(args: &ChangeArgs, wish: Wish) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.scope.place.cluster).await?;
    let found = selection::find(&cluster, &args.objects, &args.scope, Unnamed::Selected).await?;
    if found.is_empty() {
        out::remark(&selection::nothing(&args.objects, &args.scope, &cluster.namespace));
    }
    for one in &found {
        let name = one.reference();
        if wish.is_fulfilled_by(one) {
            out::line(&format!("{name} unchanged ({})", wish.as_it_is()));
            continue;
        }
        let word = wish.done();
        set(&cluster, one, wish).await.with_context(|| format!("{name} cannot be {word}"))?;
        out::line(&format!("{name} {word}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// A merge patch: what is not named stays with whoever applied it. The manager says by whom, where that conflicts.
async fn set(cluster: &Cluster, found: &Found, wish: Wish) -> anyhow::Result<()> {
    let patch = json!({"spec": {found.kind.suspend_field(): wish == Wish::Suspend}});
    let name = found.object.metadata.name.as_deref().unwrap_or_default();
    let manager = Some(wish.manager().to_owned());
    let params = PatchParams { field_manager: manager, ..PatchParams::default() };
    let patched = found.api(&cluster.client).patch(name, &params, &Patch::Merge(patch)).await;
    patched.map(drop).map_err(|error| cluster.explained(error))
}

impl Wish {
    fn is_fulfilled_by(self, found: &Found) -> bool {
        let is_held = found.kind.is_suspended(&found.object);
        is_held == (self == Self::Suspend)
    }

    fn done(self) -> &'static str {
        match self {
            Self::Suspend => "suspended",
            Self::Resume => "resumed",
        }
    }

    fn as_it_is(self) -> &'static str {
        match self {
            Self::Suspend => "suspended already",
            Self::Resume => "not suspended",
        }
    }

    fn manager(self) -> &'static str {
        match self {
            Self::Suspend => "otctl-suspend",
            Self::Resume => "otctl-resume",
        }
    }
}
