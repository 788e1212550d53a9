//! Every flag and sub-command. What they do is in `cmd`.

mod before;
mod objects;

use std::path::{Path, PathBuf};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use self::before::Place;
use self::objects::EXIT_CODES;
pub use self::objects::{
    ApplyArgs, ChangeArgs, DescribeArgs, DryRun, GetArgs, Goal, Output, PlaceArgs, ScopeArgs,
    UntilArgs, WaitArgs, WhereArgs,
};

/// The name that makes a program a sub-command of kubectl.
const PLUGIN: &str = "kubectl-otctl";

/// Disk images and workspaces of virtual machines and containers on Kubernetes: under one policy, shown as they are.
#[derive(Debug, Parser)]
#[command(name = "otctl", version = otctl_kit::args::version(), arg_required_else_help = true)]
pub struct Cli {
    /// Where, of what is said in front of the command.
    #[command(flatten, next_help_heading = "Where, before a command or after it")]
    pub before: WhereArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Stand up a workspace and sync its disk images on a control plane of this machine, and check every promise.
    ///
    /// Starts a real API server, the controllers, a stand-in for KubeVirt and an image server as processes of this
    /// machine, on loopback only, and ends all of them. The workspace is created before its images. Exits with 0 only if
    /// every image went as it should, and the workspace became ready by itself.
    Demo(LocalArgs),
    /// Run the demo's control plane until Ctrl-C, for development.
    ///
    /// Its nodes find the container images that the examples name: each is a small server that takes any arguments and
    /// answers at the ports of its container. What else a pod names is not found, as in a registry, unless it is given
    /// with --container-image.
    Up(UpArgs),
    /// List objects with what is the case: whether they are ready, why not, how far they are.
    ///
    /// READY is Unknown, and PHASE `Unseen`, as long as the controller has not looked at the spec as it is now.
    Get(GetArgs),
    /// Show an object as a tree: each part, its state, what it waits for, what happens next and when.
    ///
    /// Needs no right on Secrets. What the rights do not suffice for is named and left out.
    Describe(DescribeArgs),
    /// Apply manifests of any kinds by server-side apply, and wait for those of ours with --wait.
    ///
    /// Says `created`, `configured` or `unchanged` of each object. Nothing is applied when a file cannot be read.
    #[command(after_help = EXIT_CODES)]
    Apply(ApplyArgs),
    /// Wait until objects are ready, or have failed.
    ///
    /// All named objects are waited for, also after one of them has failed. A state that was told of an earlier spec,
    /// or before a retry was asked for, is no answer. An API server that answered once and is away for a while is asked
    /// again.
    #[command(after_help = EXIT_CODES)]
    Wait(WaitArgs),
    /// Ask again for what has failed: gives a new budget of downloads.
    Retry(ChangeArgs),
    /// Hold objects up: what they hold is given back, what was fetched is kept.
    Suspend(ChangeArgs),
    /// Let suspended objects go on.
    Resume(ChangeArgs),
    /// Show which images and workspaces run and which wait, in the order in which they will start.
    ///
    /// A queue each: `vmdiskimages` and `workspaces`. POSITION is the place among those that start as soon as there is
    /// room. What something else holds back (a class, a Secret or an image that is missing, a retry that is not due) has
    /// none and stands below: nobody waits for it, and it keeps its turn. A workspace that has had its start, or is
    /// suspended, needs no slot and is in no queue.
    Queue(QueueArgs),
    /// Print the custom resource definitions.
    Crds(CrdsArgs),
    /// Print a script that completes commands, flags and names of objects.
    ///
    /// bash: `source <(otctl completion bash)` in ~/.bashrc; zsh: the same with `zsh` in ~/.zshrc; fish: `otctl
    /// completion fish | source` in ~/.config/fish/config.fish. For `kubectl otctl`, with kubectl's own completion: a
    /// link to this program named `kubectl_complete-otctl` in the PATH.
    Completion(CompletionArgs),
    /// Run a controller, as its own program does.
    #[command(subcommand, hide = true)]
    RunController(Box<Controller>),
    /// Run the importer, as its own program does.
    #[command(hide = true)]
    RunImporter(Box<disk_importer::cli::Args>),
    /// Run in the place of an image's program, on a node of the demo.
    #[command(hide = true)]
    RunContainer(local_cluster::container::Args),
}

/// Which controller to run.
#[derive(Debug, Subcommand)]
pub enum Controller {
    /// Disk images.
    Diskimage(diskimage_controller::cli::Args),
    /// Workspaces.
    Workspace(workspace_controller::cli::Args),
}

/// Which cluster.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ClusterArgs {
    /// Kubeconfig file; without it the KUBECONFIG variable or the default file is used.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// How the control plane of this machine is run.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct LocalArgs {
    /// Keep keys, logs and volumes in this directory, which must be empty or absent; without it they are removed at
    /// the end.
    #[arg(long, value_name = "DIRECTORY")]
    pub state_dir: Option<PathBuf>,
}

/// How the control plane of this machine is run for development.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct UpArgs {
    /// The control plane.
    #[command(flatten)]
    pub local: LocalArgs,
    /// Let nodes find this container image too, such as registry.example.com/web:1. Can be repeated.
    #[arg(long = "container-image", value_name = "NAME")]
    pub container_images: Vec<String>,
}

/// What of the queue to show, and how. A queue is of all namespaces, and so is what is shown unless one is named.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(
    mut_arg("namespace", |it| it.help("Only what is in this namespace, or is made there; positions count all")),
    mut_arg("all_namespaces", |it| it.help("All namespaces, as without it")),
)]
pub struct QueueArgs {
    /// Only this queue; without it all that there are.
    #[arg(value_enum, ignore_case = true, value_name = "QUEUE")]
    pub queue: Option<QueueName>,
    /// Where.
    #[command(flatten)]
    pub place: WhereArgs,
    /// Also show what is ready or has failed, and workspaces that are in no queue.
    #[arg(long, short = 'a')]
    pub all: bool,
    /// Show it once instead of following it.
    #[arg(long)]
    pub once: bool,
    /// Print it once, for programs.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
}

/// A queue, by the name of its AdmissionQueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum QueueName {
    /// That of disk images.
    #[value(name = "vmdiskimages", aliases = ["vmdiskimage", "vmdi", "image", "images"])]
    Images,
    /// That of workspaces.
    #[value(name = "workspaces", aliases = ["workspace", "ws"])]
    Workspaces,
}

/// A format for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON object.
    Json,
}

/// Which shell.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// What to do with the definitions.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct CrdsArgs {
    /// Apply them to the cluster instead of printing them.
    #[arg(long)]
    pub apply: bool,
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
}

impl Cli {
    /// The command line of this process; ends the process when it cannot be read.
    ///
    /// kubectl finds `otctl` as a sub-command when a file named `kubectl-otctl` is in the PATH. That is this program
    /// under another name (a link will do), not another program: it only has to call itself what its user typed.
    #[must_use]
    pub fn read() -> Self {
        let called = std::env::args_os().next().unwrap_or_default();
        let matches = named_as(Path::new(&called)).get_matches();
        Self::from_arg_matches(&matches).and_then(Self::told).unwrap_or_else(|error| error.exit())
    }
}

impl Command {
    /// What of it says where.
    fn place(&mut self) -> Place<'_> {
        match self {
            Self::Get(args) => args.scope.place.as_mut(),
            Self::Describe(args) => args.scope.place.as_mut(),
            Self::Wait(args) => args.scope.place.as_mut(),
            Self::Retry(args) | Self::Suspend(args) | Self::Resume(args) => {
                args.scope.place.as_mut()
            }
            Self::Apply(args) => args.place.as_mut(),
            Self::Queue(args) => args.place.as_mut(),
            Self::Crds(args) => Place { cluster: Some(&mut args.cluster), ..Place::default() },
            Self::Demo(_)
            | Self::Up(_)
            | Self::Completion(_)
            | Self::RunController(_)
            | Self::RunImporter(_)
            | Self::RunContainer(_) => Place::default(),
        }
    }
}

fn named_as(called: &Path) -> clap::Command {
    let command = Cli::command();
    if called.file_name().is_some_and(|name| name == PLUGIN) {
        command.bin_name("kubectl otctl")
    } else {
        command
    }
}

#[cfg(test)]
mod tests {
    use otctl_types::names::{IMAGE_QUEUE, WORKSPACE_QUEUE};

    use super::*;
    use crate::kind;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_hidden_commands_take_the_programs_own_flags() {
        let importer =
            ["otctl", "run-importer", "probe", "--url=http://host/a", "--disk-size=1024"];
        assert!(matches!(Cli::try_parse_from(importer).unwrap().command, Command::RunImporter(_)));
        for own in
            [&["diskimage", "--job-ttl-seconds=60"], &["workspace", "--default-namespace=labs"]]
        {
            let line =
                ["otctl", "run-controller"].iter().chain(own).chain(&["--listen=127.0.0.1:0"]);
            let parsed = Cli::try_parse_from(line).unwrap();
            assert!(matches!(parsed.command, Command::RunController(_)), "{own:?}");
        }
        let container =
            ["otctl", "run-container", "--ports=8080,8081", "--", "--exit-code=3", "any"];
        assert!(matches!(
            Cli::try_parse_from(container).unwrap().command,
            Command::RunContainer(args) if args.exit_code.is_none() && args.rest.len() == 2
        ));
    }

    #[test]
    fn a_queue_is_called_as_it_is_and_as_its_kind_is() {
        for (queue, kind) in [(QueueName::Images, "vmdi"), (QueueName::Workspaces, "ws")] {
            for name in kind::named(kind).unwrap().names() {
                assert_eq!(QueueName::from_str(name, true), Ok(queue), "{name}");
            }
        }
        assert_eq!(QueueName::from_str(IMAGE_QUEUE, false), Ok(QueueName::Images));
        assert_eq!(QueueName::from_str(WORKSPACE_QUEUE, false), Ok(QueueName::Workspaces));
    }

    #[test]
    fn a_plugin_calls_itself_what_its_user_typed() {
        let usage = |called: &str| named_as(Path::new(called)).render_usage().to_string();
        assert!(
            usage("/usr/local/bin/kubectl-otctl").contains("kubectl otctl [OPTIONS] <COMMAND>")
        );
        assert!(!usage("/usr/local/bin/otctl").contains("kubectl"));
    }
}
