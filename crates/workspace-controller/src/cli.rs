//! The command line of this controller, and what it watches.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use otctl_kit::args::Args as KitArgs;
use otctl_kit::driver::Trigger;
use otctl_kit::runtime::{Context, Controllers, RunError};
use otctl_kit::watch::WatchOptions;
use otctl_queue::PolicySource;
use otctl_types::names::{WORKSPACE_CONTROLLER, WORKSPACE_LABEL, WORKSPACE_QUEUE};

use crate::config::{Settings, Site};
use crate::metrics::WorkspaceMetrics;
use crate::queue::queue;
use crate::slim;
use crate::views::Views;
use crate::wiring::{Wake, wire_queue, wire_workspaces};
use crate::workspace::Reconciler;

/// Passes over workspaces at a time.
const WORKSPACE_PASSES: usize = 16;

/// Stands up isolated workspaces of virtual machines and containers.
#[derive(Clone, Debug, Parser)]
#[command(name = WORKSPACE_CONTROLLER, version)]
#[group(id = "workspace-controller")]
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
    otctl_kit::runtime::run(&args.kit, WORKSPACE_CONTROLLER, |context| {
        controllers(context, settings)
    })
    .await
}

/// What is watched and what is reconciled.
pub fn controllers(context: &Context, settings: Settings) -> Controllers {
    let views = Views::new(&settings.served_namespaces());
    let policy = &context.settings.policy;
    let source = PolicySource { namespace: policy.namespace.clone(), name: policy.name.clone() };
    let installation = context.settings.namespace.clone();
    let site = Arc::new(Site { settings, installation });
    let (cluster, clock) = (context.cluster.clone(), context.clock.clone());
    let queue = queue(views.clone(), site.clone(), source, (cluster.clone(), clock));
    let workspaces = Reconciler::new(views.clone(), cluster, site);
    context.metrics.register(WorkspaceMetrics::new(views.clone()));
    watches(context, &views)
        .reconcile(queue, 1, |trigger| wire_queue(&waking(trigger), &views))
        .reconcile(workspaces, WORKSPACE_PASSES, |trigger| {
            wire_workspaces(&waking(trigger), &views);
        })
}

fn watches(context: &Context, views: &Views) -> Controllers {
    let policy = &context.settings.policy;
    context
        .controllers()
        .watch(&views.workspaces, context.watch_all())
        .watch(
            &views.queues,
            WatchOptions {
                fields: format!("metadata.name={WORKSPACE_QUEUE}"),
                ..context.watch_all()
            },
        )
        .watch(
            &views.policies,
            WatchOptions {
                namespace: Some(policy.namespace.clone()),
                fields: format!("metadata.name={}", policy.name),
                ..context.watch_all()
            },
        )
        .watch_each(&views.images, &context.watch_all())
        .watch_each(&views.networks, &context.watch_all())
        .watch_each(&views.services, &context.watch_all())
        .watch_each(&views.deployments, &context.watch_all())
        .watch_each(
            &views.pods,
            &WatchOptions {
                labels: WORKSPACE_LABEL.to_owned(),
                slim: slim::pod,
                ..context.watch_all()
            },
        )
        .watch_each(&views.claims, &context.watch_all())
        .watch_each_optional(&views.machines, &context.watch_all())
}

fn waking(trigger: &Trigger) -> Wake {
    let trigger = trigger.clone();
    Arc::new(move |key| trigger.wake(key))
}
