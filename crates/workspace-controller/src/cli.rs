//! The command line of this controller, and what it watches.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{FromArgMatches, Parser, Subcommand};
use otctl_kit::args::Args as KitArgs;
use otctl_kit::driver::Trigger;
use otctl_kit::metrics::leads;
use otctl_kit::runtime::{Context, Controllers, RunError};
use otctl_kit::watch::WatchOptions;
use otctl_queue::PolicySource;
use otctl_types::names::{WORKSPACE_CONTROLLER, WORKSPACE_LABEL, WORKSPACE_QUEUE};

use crate::config::{Settings, Site};
use crate::metrics::measure;
use crate::queue::queue;
use crate::release;
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

/// What the program of the controller is asked to do.
#[derive(Clone, Debug)]
pub enum Program {
    /// To be the controller.
    Controller(Box<Args>),
    /// Something else, once.
    Task(Task),
}

/// What the program does besides running the controller.
#[derive(Clone, Debug, Subcommand)]
pub enum Task {
    /// End the controller and take its finalizer off every Workspace: for an installation that is removed.
    ReleaseFinalizers(Box<release::Args>),
}

impl Program {
    /// The command line of this process; ends the process when it cannot be read.
    #[must_use]
    pub fn read() -> Self {
        Self::of(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// As a command line says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        match matches.subcommand_name() {
            Some(_) => Task::from_arg_matches(&matches).map(Self::Task),
            None => Args::from_arg_matches(&matches).map(|args| Self::Controller(Box::new(args))),
        }
    }

    /// The controller's flags, or a task in their place. A derived optional group would not do: clap takes one that is
    /// made of groups for absent.
    fn command() -> clap::Command {
        // The last one to add something describes the program.
        let tasks = Task::augment_subcommands(clap::Command::new(WORKSPACE_CONTROLLER));
        let command = <Args as clap::Args>::augment_args(tasks);
        command.args_conflicts_with_subcommands(true).subcommand_negates_reqs(true)
    }
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
    let through = (context.cluster.clone(), context.clock.clone());
    let queue = queue(views.clone(), site.clone(), source, through.clone());
    let workspaces = Reconciler::new(views.clone(), site, through);
    measure(&context.metrics, &views, context.clock.clone(), leads(&context.tenure));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn program(flags: &[&str]) -> Result<Program, clap::Error> {
        Program::of([WORKSPACE_CONTROLLER].iter().chain(flags))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Program::command().debug_assert();
    }

    #[test]
    fn without_a_task_it_is_the_controller() {
        let read = program(&["--default-namespace=labs", "--listen=127.0.0.1:0"]).unwrap();
        let Program::Controller(args) = read else { panic!("{read:?}") };
        assert_eq!(args.settings.default_namespace, "labs");
        assert!(program(&[]).is_err(), "a default namespace is needed");
        let help = Program::command().render_help().to_string();
        assert!(help.starts_with("Stands up"), "{help}");
    }

    #[test]
    fn a_task_has_flags_of_its_own() {
        let read = program(&["release-finalizers", "--deployment=rooms", "--namespace=ops"]);
        let Program::Task(Task::ReleaseFinalizers(args)) = read.unwrap() else { panic!() };
        assert_eq!((args.deployment.as_str(), args.kit.namespace.as_str()), ("rooms", "ops"));
        assert!(program(&["--default-namespace=labs", "release-finalizers"]).is_err());
    }
}
