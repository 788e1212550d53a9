//! A cluster with the controller on it as it is installed, and everything that a scenario does to it. Nothing here
//! decides what is right; scenarios do.

mod canary;
mod collector;
mod images;
mod looks;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use image_server::ImageServer;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use kube::Client;
use local_cluster::{LocalCluster, Options};
use otctl::installation::{self, ControllerProcess, Launch};
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, DISKIMAGE_CONTROLLER};

use crate::hands::finish_but;

pub(crate) use self::canary::CREDENTIALS;
use self::collector::Collector;
pub(crate) use self::images::{has_ended, phase, ready_reason, status, well_behaved};
pub(crate) use self::looks::{account, answer_of, keep_metrics, names, pod_phase, told};

/// Where images are.
pub(crate) const NAMESPACE: &str = "labs";
/// Where workspaces may be made as well.
pub(crate) const OTHER_NAMESPACE: &str = "exams";
/// Whatever is waited for has come by then, or never will: the machine may be busy with compilers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// How soon what is waited for is looked at again, and how rarely at most: looking costs the API server.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
const LOOK_RARELY: Duration = Duration::from_millis(200);
/// Every controller here says a line before each write, and takes the lease of one that was killed after a second and
/// a half instead of fifteen.
const FLAGS: [&str; 4] = [
    "--log-level=info,otctl_kit::commit::write=debug",
    "--lease-duration=1500ms",
    "--renew-deadline=1s",
    "--retry-period=250ms",
];

/// A cluster, an image server, the installation, and a controller that is started, killed and started again.
pub(crate) struct Stage {
    controller: Option<ControllerProcess>,
    launch: Launch,
    starts: usize,
    collector: Collector,
    /// What images are fetched from.
    pub(crate) server: Arc<ImageServer>,
    /// May do everything.
    pub(crate) client: Client,
    cluster: Option<LocalCluster>,
}

impl Stage {
    /// Everything but a controller. `policy` adds to what [`Stage::policy`] always sets.
    pub(crate) async fn set(policy: &[(&str, &str)]) -> Self {
        let server = Arc::new(ImageServer::start().await.unwrap());
        Self::set_with(server, policy, Options::default()).await
    }

    /// With this server, so that two stages can serve the same addresses, and these nodes and times.
    pub(crate) async fn set_with(
        server: Arc<ImageServer>,
        policy: &[(&str, &str)],
        options: Options,
    ) -> Self {
        // An error says that a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_otctl"));
        let importer = vec![program.display().to_string(), "run-importer".to_owned()];
        let cluster = LocalCluster::start(Options { importer, ..options }).await.unwrap();
        let client = cluster.admin();
        installation::apply(&client, entries(&server, policy), &[NAMESPACE, OTHER_NAMESPACE])
            .await
            .unwrap();
        await_rights(&cluster).await;
        let mut launch = Launch::on(&cluster, program).await.unwrap();
        launch.flags = FLAGS.map(str::to_owned).to_vec();
        let collector = Collector::start().await;
        launch.environment = collector.environment();
        let cluster = Some(cluster);
        let stage =
            Self { controller: None, launch, starts: 0, collector, server, client, cluster };
        stage.credentials_in(NAMESPACE).await;
        stage
    }

    /// What controllers here are started with in their environment: where traces go.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.collector.environment()
    }

    /// Starts the controller; each start has a log of its own.
    pub(crate) fn start_controller(&mut self) {
        assert!(self.controller.is_none(), "one controller at a time");
        self.starts += 1;
        self.launch.log = self.logs().join(format!("diskimage-controller-{}.log", self.starts));
        self.controller = Some(ControllerProcess::start(&self.launch).unwrap());
    }

    /// Starts controllers with the lease times of an installation: on a busy machine the short ones are lost now and
    /// then, which repeats a pass.
    pub(crate) fn keep_lease(&mut self) {
        self.launch.flags.truncate(1);
    }

    /// Kills the controller as a crash would.
    pub(crate) async fn kill_controller(&mut self) {
        self.controller.take().expect("a controller runs").kill().await.unwrap();
    }

    /// Asks the controller to end, and waits until it has.
    pub(crate) async fn stop_controller(&mut self) {
        self.controller.take().expect("a controller runs").stop().await.unwrap();
    }

    /// The log of the controller that was started last.
    pub(crate) fn log(&self) -> &Path {
        &self.launch.log
    }

    /// Waits until the controller that was started last has logged this.
    pub(crate) async fn await_log(&self, part: &str) {
        until(&format!("the controller logs {part}"), async || {
            std::fs::read_to_string(self.log()).unwrap().contains(part).then_some(())
        })
        .await;
    }

    fn logs(&self) -> PathBuf {
        self.cluster().state_dir().join("logs")
    }

    /// The cluster, for its nodes, storage and audit log.
    pub(crate) fn cluster(&self) -> &LocalCluster {
        self.cluster.as_ref().expect("it is taken at the end only")
    }

    /// The cluster, to take a part of it away for a moment.
    pub(crate) fn cluster_mut(&mut self) -> &mut LocalCluster {
        self.cluster.as_mut().expect("it is taken at the end only")
    }

    /// Replaces the policy by these entries and those that every stage needs.
    pub(crate) async fn policy(&self, policy: &[(&str, &str)]) {
        let entries = entries(&self.server, policy);
        installation::apply_policy(&self.client, entries).await.unwrap();
    }

    /// Ends everything, after a look that the controller was never refused for lack of a right.
    pub(crate) async fn finish(self) {
        finish_but(self, |_| false).await;
    }

    /// Ends everything, after a look that nothing has told a secret.
    pub(crate) async fn end(&mut self) {
        if self.controller.is_some() {
            keep_metrics(self.log()).await;
            self.stop_controller().await;
            let traces = self.collector.text();
            assert!(traces.contains("pass"), "a controller that ends sends its spans");
        }
        self.expect_secrets_kept();
        if let Some(cluster) = self.cluster.take() {
            cluster.shutdown().await;
        }
    }
}

/// What the controller said last goes with a failed test.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() && self.cluster.is_some() {
            let log = std::fs::read_to_string(&self.launch.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            eprintln!("the controller's last lines:\n{}", last.join("\n"));
        }
    }
}

/// Waits until `look` gives something, and ends the test with `what` if it does not within [`PATIENCE`].
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    until_found(what, async || look().await.ok_or_else(String::new)).await
}

/// The same of a look that says what it finds instead; the test ends with the last of that.
pub(crate) async fn until_found<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let (deadline, mut pause) = (Instant::now() + PATIENCE, LOOK_AGAIN);
    loop {
        match look().await {
            Ok(found) => return found,
            Err(instead) => {
                let is_early = Instant::now() < deadline;
                assert!(is_early, "not within {PATIENCE:?}: {what} {instead}");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 5 / 4).min(LOOK_RARELY);
    }
}

/// The server is on loopback, so it must be listed by name; tests do not wait five minutes for a retry.
fn entries(server: &ImageServer, policy: &[(&str, &str)]) -> installation::Policy {
    let hosts = format!("http://{}", server.address());
    let always = [("allowedSourceHosts", hosts.as_str()), ("retryBackoffDuration", "1s")];
    let all = always.iter().chain(policy);
    all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The API server learns of roles and bindings by watches. One right of each role is waited for.
async fn await_rights(cluster: &LocalCluster) {
    let rights = [
        ("pelotech.ot", "vmdiskimages", "list", None),
        ("coordination.k8s.io", "leases", "get", Some(DISKIMAGE_CONTROLLER)),
        ("", "configmaps", "get", Some(DEFAULT_POLICY_NAME)),
    ];
    for (group, resource, verb, name) in rights {
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some(verb.to_owned()),
            name: name.map(str::to_owned),
            namespace: name.map(|_| DEFAULT_NAMESPACE.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(account()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        cluster.await_right(spec).await.unwrap();
    }
}
