//! Flags of the commands that read and change objects.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::ArgValueCompleter;

use super::before::Place;
use super::{ClusterArgs, Format};
use crate::completion;

/// What `wait` and `apply --wait` exit with.
pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 everything is as wanted, 1 the command itself failed, 2 it cannot be understood, 3 an object has failed \
(Stalled, or deleted while it was waited for) or is suspended, 4 the time was up. When one has failed and the time of another was up, \
it is 3.";

/// How long is waited unless somebody says otherwise.
const TIMEOUT: &str = "30m";

/// Where to look.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct WhereArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Namespace; without it that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,
    /// All namespaces.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub all_namespaces: bool,
}

impl WhereArgs {
    /// All that can be said of it in front of a command.
    pub(super) fn as_mut(&mut self) -> Place<'_> {
        Place {
            cluster: Some(&mut self.cluster),
            namespace: Some(&mut self.namespace),
            all_namespaces: Some(&mut self.all_namespaces),
        }
    }
}

/// Which objects, of those that are named.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ScopeArgs {
    /// Where they are.
    #[command(flatten)]
    pub place: WhereArgs,
    /// Only objects with these labels, such as `lab=151,tier!=test`.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub selector: Option<String>,
}

/// What to list, and how.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct GetArgs {
    /// A kind and names of it, or KIND/NAME as often as wanted; all kinds when nothing is named.
    #[arg(value_name = "KIND/NAME", add = ArgValueCompleter::new(completion::objects))]
    pub objects: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Print more, or for programs.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,
}

/// How a list is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// The object as JSON, or a List of objects.
    Json,
    /// The same as YAML.
    Yaml,
    /// With messages.
    Wide,
    /// Only KIND/NAME, as other commands take it.
    Name,
}

/// What to describe.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct DescribeArgs {
    /// A kind and names of it, or KIND/NAME as often as wanted; without names all of the kind.
    #[arg(value_name = "KIND/NAME", required = true, add = ArgValueCompleter::new(completion::objects))]
    pub objects: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub scope: ScopeArgs,
}

/// What to change.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ChangeArgs {
    /// A kind and names of it, or KIND/NAME as often as wanted; a kind alone needs a selector.
    #[arg(value_name = "KIND/NAME", required = true, add = ArgValueCompleter::new(completion::objects))]
    pub objects: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub scope: ScopeArgs,
}

/// What to wait for.
#[derive(Debug, Clone, clap::Args)]
pub struct WaitArgs {
    /// A kind and names of it, or KIND/NAME as often as wanted; a kind alone needs a selector.
    #[arg(value_name = "KIND/NAME", required = true, add = ArgValueCompleter::new(completion::objects))]
    pub objects: Vec<String>,
    /// Where.
    #[command(flatten)]
    pub scope: ScopeArgs,
    /// Until when.
    #[command(flatten)]
    pub until: UntilArgs,
    /// Print nothing but the outcome, for programs.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
}

/// Until when to wait.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct UntilArgs {
    /// What is waited for.
    #[arg(long = "for", value_enum, ignore_case = true, value_name = "WHAT", default_value_t)]
    pub goal: Goal,
    /// How long at most, such as 90s, 30m or 1h30m; 0s looks once.
    #[arg(long, value_name = "DURATION", default_value = TIMEOUT, value_parser = humantime::parse_duration)]
    pub timeout: Duration,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Goal {
    /// The spec as it is now has been carried out.
    #[default]
    Ready,
    /// There is something to use, of this spec or of an earlier one; for a workspace the same as ready.
    Available,
}

/// What to apply, and whether to wait for it.
#[derive(Debug, Clone, clap::Args)]
pub struct ApplyArgs {
    /// A file, a directory (its .yaml, .yml and .json files), or `-` for standard input; may be given several times.
    #[arg(long = "filename", short, value_name = "FILE", required = true, value_hint = clap::ValueHint::AnyPath)]
    pub filenames: Vec<PathBuf>,
    /// Also take the directories inside a directory.
    #[arg(long, short = 'R')]
    pub recursive: bool,
    /// Where.
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Take fields over that somebody else has set.
    #[arg(long)]
    pub force_conflicts: bool,
    /// `server`: let the API server check everything and store nothing.
    #[arg(long, value_enum, value_name = "WHERE", conflicts_with = "wait")]
    pub dry_run: Option<DryRun>,
    /// Wait until the objects of our kinds are as wanted.
    #[arg(long)]
    pub wait: bool,
    /// What is waited for; only with --wait.
    #[arg(
        long = "for",
        value_enum,
        ignore_case = true,
        value_name = "WHAT",
        default_value_t,
        requires = "wait"
    )]
    pub goal: Goal,
    /// How long at most, such as 90s, 30m or 1h30m; 0s looks once; only with --wait.
    #[arg(long, value_name = "DURATION", default_value = TIMEOUT, value_parser = humantime::parse_duration, requires = "wait")]
    pub timeout: Duration,
    /// Print nothing but the outcome, for programs.
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    pub output: Option<Format>,
}

impl ApplyArgs {
    /// Until when to wait.
    pub(crate) fn until(&self) -> UntilArgs {
        UntilArgs { goal: self.goal, timeout: self.timeout }
    }
}

/// Where objects go that do not say it.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct PlaceArgs {
    /// The cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Namespace of objects that name none; without it that of the kubeconfig's context.
    #[arg(long, short, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub namespace: Option<String>,
}

impl PlaceArgs {
    /// What of it says where.
    pub(super) fn as_mut(&mut self) -> Place<'_> {
        Place {
            cluster: Some(&mut self.cluster),
            namespace: Some(&mut self.namespace),
            all_namespaces: None,
        }
    }
}

/// Who checks without storing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// The API server, with all its rules.
    Server,
}
