//! A terminal in which otctl is started, with its own directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::otctl;
use crate::stage::{NAMESPACE, PATIENCE, Stage};

/// Where commands are typed.
pub(crate) struct Terminal {
    directory: TempDir,
    /// The way into the cluster.
    pub(crate) kubeconfig: PathBuf,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    line: String,
    code: Option<i32>,
    /// What it printed to standard output.
    pub(crate) out: String,
    err: String,
}

/// A command that runs.
pub(crate) struct Running {
    line: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: String,
}

impl Terminal {
    pub(crate) fn on(stage: &Stage) -> Self {
        let kubeconfig = stage.cluster().kubeconfig_path();
        Self { directory: tempfile::tempdir().unwrap(), kubeconfig }
    }

    /// Writes a file that commands may name; JSON is YAML.
    pub(crate) fn file(&self, name: &str, object: &Value) {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, object.to_string()).unwrap();
    }

    /// Runs `otctl LINE` in the namespace of every image.
    pub(crate) async fn run(&self, line: &str) -> Ran {
        self.run_with(line, "").await
    }

    /// The same with this standard input.
    pub(crate) async fn run_with(&self, line: &str, input: &str) -> Ran {
        self.run_as(&self.kubeconfig, &format!("{line} -n {NAMESPACE}"), input).await
    }

    /// Runs `otctl LINE` as whoever has this kubeconfig.
    pub(crate) async fn run_as(&self, kubeconfig: &Path, line: &str, input: &str) -> Ran {
        let mut child = self.command(kubeconfig, line).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // One that reads nothing may be gone already.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        let output = timeout(PATIENCE, child.wait_with_output()).await;
        let output = output.unwrap_or_else(|_| panic!("otctl {line} did not end")).unwrap();
        let [out, err] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        Ran { line: line.to_owned(), code: output.status.code(), out, err }
    }

    /// Starts `otctl LINE` in the namespace of every image.
    pub(crate) fn start(&self, kubeconfig: &Path, line: &str) -> Running {
        let mut child =
            self.command(kubeconfig, &format!("{line} -n {NAMESPACE}")).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running { line: line.to_owned(), child, lines, told: String::new() }
    }

    fn command(&self, kubeconfig: &Path, line: &str) -> Command {
        let mut command = Command::from(otctl());
        command.args(line.split_whitespace()).env("KUBECONFIG", kubeconfig);
        command.current_dir(self.directory.path()).kill_on_drop(true);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A place for links to programs.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Ran {
    /// It exited with this code, and told this.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, part: &str) -> &Self {
        let is_so = self.code == Some(code) && (self.out.contains(part) || self.err.contains(part));
        assert!(is_so, "{code} and '{part}' of {}", self.told());
        self
    }

    /// It did not tell this.
    #[track_caller]
    pub(crate) fn expect_no(&self, part: &str) {
        let is_so = !self.out.contains(part) && !self.err.contains(part);
        assert!(is_so, "no '{part}' of {}", self.told());
    }

    /// Everything, for whoever looks for the cause of a failure.
    pub(crate) fn told(&self) -> String {
        format!("otctl {}: {:?}\n{}{}", self.line, self.code, self.out, self.err)
    }
}

impl Running {
    /// Waits until a line has this.
    pub(crate) async fn until(&mut self, part: &str) {
        let told = timeout(PATIENCE, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.told.push_str(&format!("{line}\n"));
                if line.contains(part) {
                    return true;
                }
            }
            false
        });
        if !told.await.unwrap_or(false) {
            // Its last words come once it has ended.
            self.child.start_kill().unwrap();
            let mut err = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
            panic!("otctl {} never said '{part}':\n{}{err}", self.line, self.told);
        }
    }

    /// Waits until it has ended.
    pub(crate) async fn end(mut self) -> Ran {
        let rest = timeout(PATIENCE, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.told.push_str(&format!("{line}\n"));
            }
            let mut err = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
            (self.child.wait().await.unwrap().code(), err)
        });
        let (code, err) = rest.await.unwrap_or_else(|_| panic!("otctl {} did not end", self.line));
        Ran { line: self.line, code, out: self.told, err }
    }
}
