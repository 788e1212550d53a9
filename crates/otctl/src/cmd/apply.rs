//! `otctl apply`: manifests to the cluster, and the wait for those of ours.

use std::process::ExitCode;

use anyhow::Context as _;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::apply::{Applied, Applier, Terms};
use crate::cli::{ApplyArgs, Format};
use crate::client::{self, Cluster};
use crate::cmd::wait;
use crate::kind::{self, Found};
use crate::manifest::{self, Manifest};
use crate::out;
use crate::wait::Awaited;

/// Applies everything, then waits if that is asked for.
pub(crate) async fn run(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let manifests = manifest::read(&args.filenames, args.recursive)?;
    let cluster = client::connect(&args.place.cluster).await?;
    let applied = apply(&cluster, &manifests, args).await;
    let failed = manifests.len() - applied.len();
    let ended = if args.wait && failed == 0 {
        wait_for(&cluster, &applied, args).await?
    } else {
        Vec::new()
    };
    if let Some(Format::Json) = args.output {
        out::line(&json_text(&applied, &ended)?);
    }
    if failed > 0 {
        anyhow::bail!("{failed} of {} objects were not applied{}", manifests.len(), unwaited(args));
    }
    Ok(wait::exit_code(&ended))
}

/// Those that could be applied. What is wrong with others is told at once.
async fn apply(cluster: &Cluster, manifests: &[Manifest], args: &ApplyArgs) -> Vec<Applied> {
    let terms = Terms {
        namespace: args.place.namespace.clone(),
        is_forced: args.force_conflicts,
        is_dry: args.dry_run.is_some(),
    };
    let mut applier = Applier::new(cluster, terms);
    let mut applied = Vec::new();
    for manifest in manifests {
        match applier.apply(manifest).await {
            Ok(one) => {
                if args.output.is_none() {
                    out::line(&sentence(&one, args));
                }
                applied.push(one);
            }
            Err(error) => out::error(&error),
        }
    }
    applied
}

/// As kubectl says it.
fn sentence(applied: &Applied, args: &ApplyArgs) -> String {
    let dry = args.dry_run.map_or("", |_| " (server dry run)");
    let name = kind::reference(&applied.resource, &applied.object.name_any());
    format!("{name} {}{dry}", applied.change.word())
}

fn unwaited(args: &ApplyArgs) -> &'static str {
    if args.wait { ", and none is waited for" } else { "" }
}

async fn wait_for(
    cluster: &Cluster,
    applied: &[Applied],
    args: &ApplyArgs,
) -> anyhow::Result<Vec<Awaited>> {
    let ours: Vec<Found> = applied.iter().filter_map(|one| one.ours.clone()).collect();
    if ours.is_empty() {
        out::remark("nothing of this is waited for: other kinds are applied and left alone");
        return Ok(Vec::new());
    }
    wait::until(&cluster.client, ours, args.until(), args.output).await
}

/// What was applied, each with how the wait for it ended.
fn json_text(applied: &[Applied], ended: &[Awaited]) -> anyhow::Result<String> {
    let objects = applied.iter().map(|one| {
        let mut told = told(one);
        let uid = &one.object.metadata.uid;
        let waited = ended.iter().find(|ended| ended.found.object.metadata.uid == *uid);
        if let (Some(fields), Some(Value::Object(waited))) =
            (told.as_object_mut(), waited.map(wait::told))
        {
            fields.extend(waited);
        }
        told
    });
    let objects: Vec<Value> = objects.collect();
    serde_json::to_string_pretty(&json!({"objects": objects}))
        .context("what was applied cannot be written as JSON")
}

fn told(applied: &Applied) -> Value {
    json!({
        "apiVersion": applied.resource.api_version, "kind": applied.resource.kind,
        "namespace": applied.object.namespace(), "name": applied.object.name_any(),
        "change": applied.change.word(),
    })
}
