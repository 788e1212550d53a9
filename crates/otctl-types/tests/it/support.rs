//! An API server that knows our kinds, seen through `kubectl` as users see it.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use local_cluster::{
    LocalCluster, Options, Progress,
    programs::{Program, Sources},
};
use serde_json::Value;
use tokio::sync::OnceCell;

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// Every example, by the name of its file.
pub(crate) fn examples() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(repository().join("examples")).unwrap();
    let mut examples: Vec<_> = folder
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    examples.sort();
    examples
}

/// `kubectl` as an administrator of the cluster that these tests share.
pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
    pub(crate) cluster: &'static LocalCluster,
}

/// What `kubectl` said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) succeeded: bool,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The output, where success is expected and nothing is worth a warning.
    #[track_caller]
    pub(crate) fn fine(self) -> String {
        assert!(self.succeeded && !self.err.contains("Warning"), "{self:#?}");
        self.out
    }

    /// What was complained about, where a refusal is expected.
    #[track_caller]
    pub(crate) fn refusal(self) -> String {
        assert!(!self.succeeded, "{self:#?}");
        self.err
    }
}

impl Kubectl {
    /// The shared cluster with the committed definitions.
    pub(crate) async fn shared() -> &'static Self {
        static SHARED: OnceCell<Kubectl> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    async fn start() -> Self {
        let bare = || Options { nodes: 0, storage: false, ..Options::default() };
        let cluster = LocalCluster::shared(bare).await.unwrap();
        let found = tokio::task::spawn_blocking(|| {
            Sources::from_env()?.find_or_build(&[Program::Kubectl], &Progress::default())
        });
        let program = found.await.unwrap().unwrap().remove(&Program::Kubectl).unwrap();
        let kubectl = Self { program, kubeconfig: cluster.kubeconfig_path(), cluster };
        let crds = repository().join("crds");
        kubectl.run(&["apply", "-f", crds.to_str().unwrap()], "").fine();
        let wait = ["wait", "--for=condition=Established", "--timeout=120s", "crd", "--all"];
        kubectl.run(&wait, "").fine();
        kubectl
    }

    /// Runs it with a manifest as its input.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> Said {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.cluster.state_dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It may end before it has read everything.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Said { succeeded: status.success(), out: text(stdout), err: text(stderr) }
    }

    /// Runs it in a namespace.
    pub(crate) fn run_in(&self, namespace: &str, arguments: &[&str], input: &str) -> Said {
        let mut all = vec!["--namespace", namespace];
        all.extend(arguments);
        self.run(&all, input)
    }

    /// Creates or changes what the manifest says.
    #[track_caller]
    pub(crate) fn apply(&self, namespace: &str, manifest: &Value) -> Said {
        self.run_in(namespace, &["apply", "--validate=strict", "-f", "-"], &manifest.to_string())
    }

    /// Merges into an object's status.
    #[track_caller]
    pub(crate) fn patch_status(&self, namespace: &str, object: &str, status: &Value) -> Said {
        let patch = serde_json::json!({ "status": status }).to_string();
        self.run_in(
            namespace,
            &["patch", object, "--subresource=status", "--type=merge", "--patch", &patch],
            "",
        )
    }

    /// An object as it is stored.
    #[track_caller]
    pub(crate) fn read(&self, namespace: &str, object: &str) -> Value {
        let json = self.run_in(namespace, &["get", object, "--output=json"], "").fine();
        serde_json::from_str(&json).unwrap()
    }
}
