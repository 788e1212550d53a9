//! The command line of this controller, and what it watches.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use otctl_kit::args::Args as KitArgs;
use otctl_kit::driver::Trigger;
use otctl_kit::metrics::leads;
use otctl_kit::runtime::{Context, Controllers, RunError};
use otctl_kit::watch::WatchOptions;
use otctl_types::names::{DISKIMAGE_CONTROLLER, IMAGE_QUEUE, MANAGED_BY, ROLE_LABEL};

use crate::config::Settings;
use crate::exchange::{Correspondence, correspond};
use crate::image::Image;
use crate::metrics::measure;
use crate::queue::{PolicySource, queue};
use crate::slim;
use crate::views::Views;
use crate::wiring::{Wake, wire_images, wire_queue};

/// Passes over images at a time.
const IMAGE_PASSES: usize = 16;

/// Syncs VM disk images into the cluster under the policy.
#[derive(Clone, Debug, Parser)]
#[command(name = DISKIMAGE_CONTROLLER, version)]
#[group(id = "diskimage-controller")]
pub struct Args {
    /// Settings that every controller has.
    #[command(flatten)]
    pub kit: KitArgs,
    /// Settings of this one.
    #[command(flatten)]
    pub settings: Settings,
}

/// Runs the controller until a signal ends it.
///
/// # Errors
/// When it cannot start, or a part of it dies.
pub async fn run(args: Args) -> Result<ExitCode, RunError> {
    let settings = args.settings;
    otctl_kit::runtime::run(&args.kit, DISKIMAGE_CONTROLLER, |context| {
        controllers(context, settings)
    })
    .await
}

/// What is watched and what is reconciled.
pub fn controllers(context: &Context, settings: Settings) -> Controllers {
    let views = Views::default();
    let policy = &context.settings.policy;
    let source = PolicySource { namespace: policy.namespace.clone(), name: policy.name.clone() };
    let queue = queue(views.clone(), context.cluster.clone(), source, context.clock.clone());
    let (talk, tenure) = (Correspondence::default(), context.tenure.clone());
    let image =
        Image::new(views.clone(), context.cluster.clone(), Arc::new(settings), talk.clone());
    let counted = (talk.traffic.clone(), leads(&tenure));
    measure(&context.metrics, &views, context.clock.clone(), counted);
    watches(context, &views)
        .reconcile(queue, 1, |trigger| wire_queue(&waking(trigger), &views))
        .reconcile(image, IMAGE_PASSES, |trigger| wire_images(&waking(trigger), &views))
        .while_leading("imports", move |signs| {
            correspond(views.clone(), talk.clone(), tenure.clone(), signs)
        })
}

fn watches(context: &Context, views: &Views) -> Controllers {
    let policy = &context.settings.policy;
    let made_here = format!("app.kubernetes.io/managed-by={MANAGED_BY}");
    context
        .controllers()
        .watch(&views.images, context.watch_all())
        .watch(
            &views.queues,
            WatchOptions { fields: format!("metadata.name={IMAGE_QUEUE}"), ..context.watch_all() },
        )
        .watch(
            &views.policies,
            WatchOptions {
                namespace: Some(policy.namespace.clone()),
                fields: format!("metadata.name={}", policy.name),
                ..context.watch_all()
            },
        )
        .watch(
            &views.jobs,
            WatchOptions { labels: ROLE_LABEL.to_owned(), slim: slim::job, ..context.watch_all() },
        )
        .watch(
            &views.pods,
            WatchOptions { labels: ROLE_LABEL.to_owned(), slim: slim::pod, ..context.watch_all() },
        )
        .watch(
            &views.claims,
            WatchOptions { labels: made_here.clone(), slim: slim::claim, ..context.watch_all() },
        )
        .watch(&views.storage_classes, context.watch_all())
        .watch_optional(&views.snapshots, WatchOptions { labels: made_here, ..context.watch_all() })
        .watch_optional(&views.snapshot_classes, context.watch_all())
}

fn waking(trigger: &Trigger) -> Wake {
    let trigger = trigger.clone();
    Arc::new(move |key| trigger.wake(key))
}
