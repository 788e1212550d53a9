//! Rendered manifests, and a cluster in which the charts are installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use local_cluster::programs::{Program, Sources};
use local_cluster::{LocalCluster, Options, Progress};
use serde_json::Value;
use tokio::sync::OnceCell;
use xtask::charts::{self, CHARTS, MONITORING, NAMESPACE};
use xtask::command::Run;

/// Wide: a machine may be busy with compilers.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Every object of a chart, with a values file and single settings.
pub(crate) fn objects(chart: &str, values: Option<&Path>, set: &[&str]) -> Vec<Value> {
    let text = charts::render(&charts::helm().unwrap(), chart, values, set).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// The same on a cluster with the Prometheus operator.
pub(crate) fn monitored_objects(chart: &str, values: Option<&Path>, set: &[&str]) -> Vec<Value> {
    let helm = charts::helm().unwrap();
    let text = charts::render_on(&MONITORING, &helm, chart, values, set).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Every chart with its defaults and with every value set: what it is, and its objects.
pub(crate) fn every_rendering() -> Vec<(String, Vec<Value>)> {
    let renderings = CHARTS.into_iter().flat_map(|chart| {
        let full = charts::full_values(chart);
        [
            (format!("{chart} with defaults"), objects(chart, None, &[])),
            (format!("{chart} with every value"), objects(chart, Some(&full), &[])),
            (format!("{chart} monitored"), monitored_objects(chart, Some(&full), &[])),
        ]
    });
    renderings.collect()
}

/// The objects of a kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Namespaces in which Workspaces are made, by default or by the full values.
const SERVED: [&str; 4] = ["labs", "courses", "exams", "research"];

/// A cluster with every chart installed as the documentation says, in a namespace that enforces `restricted`.
pub(crate) struct Installation {
    pub(crate) cluster: LocalCluster,
    /// What Helm printed of each chart.
    pub(crate) notes: BTreeMap<&'static str, String>,
    helm: PathBuf,
    kubectl: PathBuf,
}

impl Installation {
    /// The one that these tests share.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Installation> = OnceCell::const_new();
        SHARED.get_or_init(Self::install).await
    }

    async fn install() -> Self {
        let bare = Options { nodes: 0, storage: false, ..Options::default() };
        let cluster = LocalCluster::start(bare).await.unwrap();
        let wanted = [Program::Helm, Program::Kubectl];
        let found = tokio::task::spawn_blocking(move || {
            Sources::from_env()?.find_or_build(&wanted, &Progress::default())
        });
        let mut found = found.await.unwrap().unwrap();
        let [helm, kubectl] = wanted.map(|program| found.remove(&program).unwrap());
        let mut installation = Self { cluster, notes: BTreeMap::new(), helm, kubectl };
        installation.kubectl(&["create", "namespace", NAMESPACE]).unwrap();
        let enforce = "pod-security.kubernetes.io/enforce=restricted";
        installation.kubectl(&["label", "namespace", NAMESPACE, enforce]).unwrap();
        for namespace in SERVED {
            installation.kubectl(&["create", "namespace", namespace]).unwrap();
        }
        for chart in CHARTS {
            let notes = installation.install_chart(chart).unwrap();
            installation.notes.insert(chart, notes);
        }
        // A server answers 429 to lists of a kind that it has just learned.
        let list = ["get", "otctl", "--all-namespaces"];
        installation
            .wait_for("lists of the new kinds", |installation| installation.kubectl(&list).ok())
            .await;
        installation
    }

    /// Installs a chart with its defaults, and gives what Helm printed.
    pub(crate) fn install_chart(&self, chart: &str) -> anyhow::Result<String> {
        let folder = charts::folder(chart);
        self.helm(&["install", chart, folder.to_str().unwrap(), "--namespace", NAMESPACE])
    }

    /// Runs Helm as an administrator.
    pub(crate) fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        self.run(&self.helm, arguments)
    }

    /// Runs kubectl as an administrator; a warning is an error.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let strict: Vec<_> = arguments.iter().copied().chain(["--warnings-as-errors"]).collect();
        self.run(&self.kubectl, &strict)
    }

    fn run(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
        let run = Run::new(program).args(arguments.iter().copied());
        let home = self.cluster.state_dir();
        run.env("KUBECONFIG", self.cluster.kubeconfig_path()).env("HOME", home).output()
    }

    /// Waits until `found` finds something.
    pub(crate) async fn wait_for<T>(
        &self,
        what: &str,
        mut found: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
