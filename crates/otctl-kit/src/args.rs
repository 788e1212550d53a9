//! Flags and environment shared by all controllers. A controller flattens [`Args`] into its own command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use tracing_subscriber::filter::ParseError;

use crate::leader::{Timing, TimingError};
use crate::store::Key;
use crate::telemetry::{self, LogFormat};

/// What runs: for `--version`, the metric `otctl_build_info` and the resource of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Build {
    /// Name of the program: `diskimage-controller`.
    pub program: &'static str,
    /// Version of the workspace.
    pub version: &'static str,
    /// The commit it was built from; `unknown` where neither git nor a repository was at hand.
    pub commit: &'static str,
}

impl Build {
    /// This build, as the program of that name. Which commit it is, `build.rs` finds out; a build needs neither git nor
    /// a repository.
    #[must_use]
    pub fn of(program: &'static str) -> Self {
        Self { program, version: env!("CARGO_PKG_VERSION"), commit: env!("OTCTL_COMMIT") }
    }
}

/// Version and commit, for `#[command(version = otctl_kit::args::version())]`.
#[must_use]
pub fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let build = Build::of("");
        format!("{} (commit {})", build.version, build.commit)
    });
    &TEXT
}

/// The shared flags.
#[derive(Clone, Debug, clap::Args)]
// Without this the line above becomes the description of every controller that flattens it.
#[command(about = None, long_about = None)]
pub struct Args {
    /// Kubeconfig file; without it the KUBECONFIG variable, the default file or the pod's account is used
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig; without it the current one
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,

    /// Namespace of the installation: here are the lease and, unless told otherwise, the policy
    #[arg(long, env = "POD_NAMESPACE", hide_env_values = true, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// Name of this process in the lease and in traces; without it the host's name
    #[arg(long, env = "POD_NAME", hide_env_values = true, value_name = "NAME")]
    pub identity: Option<String>,

    /// Name of the ConfigMap that holds the policy
    #[arg(long, env = "OTCTL_POLICY_NAME", hide_env_values = true, value_name = "NAME", default_value = DEFAULT_POLICY_NAME)]
    pub policy_name: String,

    /// Namespace of the policy; without it the installation's
    #[arg(long, env = "OTCTL_POLICY_NAMESPACE", hide_env_values = true, value_name = "NAMESPACE")]
    pub policy_namespace: Option<String>,

    /// Reconcile only while holding the lease; switch off only where one process runs
    #[arg(long, env = "OTCTL_LEADER_ELECTION", hide_env_values = true, value_name = "BOOL", action = clap::ArgAction::Set, default_value_t = true)]
    pub leader_election: bool,

    /// How long a silent holder keeps the lease
    #[arg(long, env = "OTCTL_LEASE_DURATION", hide_env_values = true, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "15s")]
    pub lease_duration: Duration,

    /// How long after its last renewal a holder stops its own work
    #[arg(long, env = "OTCTL_RENEW_DEADLINE", hide_env_values = true, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "10s")]
    pub renew_deadline: Duration,

    /// Time between renewals, and between looks at another's lease
    #[arg(long, env = "OTCTL_RETRY_PERIOD", hide_env_values = true, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "2s")]
    pub retry_period: Duration,

    /// Address for /livez, /readyz, /metrics, /debug/state and /log-level; port 0 takes a free one
    #[arg(
        long,
        env = "OTCTL_LISTEN",
        hide_env_values = true,
        value_name = "ADDRESS",
        default_value = "0.0.0.0:8080"
    )]
    pub listen: SocketAddr,

    /// Answer /debug/state to every peer instead of to loopback only
    #[arg(long, env = "OTCTL_DEBUG_STATE_ANYWHERE", hide_env_values = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub debug_state_anywhere: bool,

    /// What to log: a level or directives such as `info,otctl_kit=debug`
    #[arg(long, env = "RUST_LOG", hide_env_values = true, value_name = "FILTER", value_parser = filter, default_value = "info")]
    pub log_level: String,

    /// How to log; `auto` is text on a terminal and JSON otherwise
    #[arg(long, env = "OTCTL_LOG_FORMAT", hide_env_values = true, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    pub log_format: LogFormat,
}

impl Args {
    /// Where the policy is.
    #[must_use]
    pub fn policy(&self) -> Key {
        Key::new(self.policy_namespace.as_deref().unwrap_or(&self.namespace), &self.policy_name)
    }

    /// The times of leader election.
    ///
    /// # Errors
    /// When they cannot keep two processes apart, see [`Timing::new`].
    pub fn timing(&self) -> Result<Timing, TimingError> {
        Timing::new(self.lease_duration, self.renew_deadline, self.retry_period)
    }
}

/// Refuses on the command line what the log filter could not read later.
fn filter(text: &str) -> Result<String, ParseError> {
    telemetry::filter(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    /// Tests flags.
    #[derive(Parser)]
    #[command(name = "test-controller", version = version())]
    struct Cli {
        #[command(flatten)]
        kit: Args,
    }

    fn parse(flags: &[&str]) -> Result<Args, clap::Error> {
        Cli::try_parse_from(std::iter::once("test-controller").chain(flags.iter().copied()))
            .map(|cli| cli.kit)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_are_those_of_the_charts() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.listen, "0.0.0.0:8080".parse().unwrap());
        assert!(args.leader_election);
        assert_eq!(args.policy(), Key::new(&args.namespace, "sync-operator-policy"));
        assert_eq!(args.lease_duration, Duration::from_secs(15));
        args.timing().unwrap();
    }

    #[test]
    fn flags_are_read() {
        let args = parse(&[
            "--namespace=ops",
            "--policy-namespace=conf",
            "--policy-name=limits",
            "--leader-election=false",
            "--lease-duration=1s",
            "--renew-deadline=700ms",
            "--retry-period=200ms",
            "--listen=127.0.0.1:0",
            "--log-format=json",
            "--log-level=info,otctl_kit=debug",
        ])
        .unwrap();
        assert_eq!(args.policy(), Key::new("conf", "limits"));
        assert!(!args.leader_election);
        assert_eq!(args.renew_deadline, Duration::from_millis(700));
        assert_eq!(args.log_format, LogFormat::Json);
        args.timing().unwrap();
    }

    #[test]
    fn unknown_flags_and_wrong_values_are_fatal() {
        for flags in [
            "--leader-elect=false",
            "--leader-election",
            "--lease-duration=15",
            "--listen=8080",
            "--log-level=otctl=loud",
            "--log-format=xml",
        ] {
            assert!(parse(&[flags]).is_err(), "{flags} was taken");
        }
    }

    #[test]
    fn times_that_let_two_lead_are_refused() {
        assert!(parse(&["--renew-deadline=20s"]).unwrap().timing().is_err());
        assert!(parse(&["--retry-period=10s"]).unwrap().timing().is_err());
    }

    #[test]
    fn help_names_the_environment() {
        let help = Cli::command().render_long_help().to_string();
        assert!(
            help.starts_with("Tests flags"),
            "the shared flags took the place of the description: {help}"
        );
        for name in
            ["POD_NAMESPACE", "POD_NAME", "RUST_LOG", "OTCTL_LISTEN", "OTCTL_LEADER_ELECTION"]
        {
            assert!(help.contains(name), "{name} is not in --help");
        }
    }

    #[test]
    fn version_names_the_commit() {
        assert!(version().starts_with(env!("CARGO_PKG_VERSION")), "{}", version());
        assert!(version().contains("commit "), "{}", version());
    }
}
