//! What a controller is given: its settings, the API server, the clock, and where to count.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::{Controllers, RunError};
use crate::args::{Args, Build};
use crate::clock::{Clock, SystemClock};
use crate::cluster::Cluster;
use crate::health::Health;
use crate::kube_cluster::{Deadlines, KubeCluster, client};
use crate::leader::{Candidate, Timing, TimingError, boot_clock};
use crate::metrics::Metrics;
use crate::store::Key;
use crate::tenure::Tenure;
use crate::watch::WatchOptions;

/// For a TCP connection and its TLS: shorter than any call's deadline, so that another address is tried in time.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

/// What was chosen for one process, from flags or by who embeds it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What runs; its program is also the name of the lease and of the field manager.
    pub build: Build,
    /// Namespace of the installation; here is the lease.
    pub namespace: String,
    /// The policy ConfigMap.
    pub policy: Key,
    /// This process among all that ever ran, see [`Candidate::unique`].
    pub identity: String,
    /// The times of leader election; none to reconcile without a lease.
    pub election: Option<Timing>,
    /// Where the server listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Whether `/debug/state` answers every peer.
    pub state_anywhere: bool,
}

impl Settings {
    /// As the flags say.
    ///
    /// # Errors
    /// When the times of leader election do not fit together.
    pub fn from_args(args: &Args, build: Build) -> Result<Self, TimingError> {
        let name = args.identity.clone().unwrap_or_else(host);
        Ok(Self {
            build,
            namespace: args.namespace.clone(),
            policy: args.policy(),
            identity: Candidate::unique(&name),
            election: if args.leader_election { Some(args.timing()?) } else { None },
            listen: args.listen,
            state_anywhere: args.debug_state_anywhere,
        })
    }
}

/// The host's name; in a pod it is the pod's.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim()).filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned()
}

/// What all parts of a controller share. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// What was chosen.
    pub settings: Arc<Settings>,
    /// For watches; every other request goes through [`Context::cluster`].
    pub client: Client,
    /// The API server.
    pub cluster: Arc<dyn Cluster>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Who must show that it lives.
    pub health: Health,
    /// Until when this process may write.
    pub tenure: Tenure,
}

impl Context {
    /// With the API server behind `client`, which must come from [`client`](crate::kube_cluster::client).
    #[must_use]
    pub fn new(settings: Settings, client: Client) -> Self {
        let (metrics, health) = (Arc::new(Metrics::new(settings.build)), Health::default());
        let tenure = match settings.election {
            Some(_) => Tenure::not_begun(boot_clock()),
            None => Tenure::without_end(),
        };
        let cluster =
            KubeCluster::new(client.clone(), settings.build.program, Deadlines::default())
                .counted_in(metrics.clone())
                .seen_by(health.clone())
                .during(tenure.clone());
        Self {
            client,
            cluster: Arc::new(cluster),
            clock: Arc::new(SystemClock),
            metrics,
            health,
            tenure,
            settings: Arc::new(settings),
        }
    }

    /// With the API server that the flags or the environment name.
    pub(super) async fn connect(settings: Settings, args: &Args) -> Result<Self, RunError> {
        let mut config = config(args).await?;
        config.connect_timeout = Some(CONNECT_DEADLINE);
        Ok(Self::new(settings, client(config)?))
    }

    /// Nothing watched and nothing reconciled yet.
    #[must_use]
    pub fn controllers(&self) -> Controllers {
        Controllers::new(self.clone())
    }

    /// All objects of a kind, whole, counted and watched over like the rest; narrow it down with `..`.
    #[must_use]
    pub fn watch_all<K>(&self) -> WatchOptions<K> {
        WatchOptions {
            metrics: Some(self.metrics.clone()),
            ..WatchOptions::all(self.health.clone())
        }
    }
}

async fn config(args: &Args) -> Result<Config, RunError> {
    let options =
        KubeConfigOptions { context: args.context.clone(), ..KubeConfigOptions::default() };
    match (&args.kubeconfig, &args.context) {
        (Some(path), _) => {
            Ok(Config::from_custom_kubeconfig(Kubeconfig::read_from(path)?, &options).await?)
        }
        (None, Some(_)) => Ok(Config::from_kubeconfig(&options).await?),
        (None, None) => Ok(Config::infer().await?),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        kit: Args,
    }

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: one, cluster: {server: "http://127.0.0.1:1"}}
- {name: two, cluster: {server: "http://127.0.0.1:2"}}
users: [{name: me, user: {}}]
contexts:
- {name: one, context: {cluster: one, user: me}}
- {name: two, context: {cluster: two, user: me}}
"#;

    fn args(flags: &[&str]) -> Args {
        Cli::parse_from(std::iter::once("test").chain(flags.iter().copied())).kit
    }

    #[tokio::test]
    async fn kubeconfig_and_context_are_those_of_the_flags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(&path, KUBECONFIG).unwrap();
        let path = path.to_str().unwrap();
        let server = async |flags: &[&str]| {
            config(&args(flags)).await.map(|config| config.cluster_url.to_string())
        };
        assert_eq!(server(&["--kubeconfig", path]).await.unwrap(), "http://127.0.0.1:1/");
        assert_eq!(
            server(&["--kubeconfig", path, "--context", "two"]).await.unwrap(),
            "http://127.0.0.1:2/"
        );
        assert!(server(&["--kubeconfig", path, "--context", "three"]).await.is_err());
        assert!(server(&["--kubeconfig", "/absent"]).await.is_err());
    }

    #[test]
    fn two_processes_of_one_pod_are_two() {
        let settings =
            || Settings::from_args(&args(&["--identity", "pod"]), Build::of("test")).unwrap();
        assert!(settings().identity.starts_with("pod_"));
        assert_ne!(settings().identity, settings().identity);
    }

    #[test]
    fn no_election_needs_no_times() {
        let flags = ["--leader-election=false", "--renew-deadline=1h"];
        assert_eq!(Settings::from_args(&args(&flags), Build::of("test")).unwrap().election, None);
        assert!(Settings::from_args(&args(&flags[1..]), Build::of("test")).is_err());
    }
}
