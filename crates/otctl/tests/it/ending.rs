//! Whatever ends the demo, nothing of it stays.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::otctl;
use crate::processes::{Process, descendants, is_running, wait_for};

/// A demo in the middle of its imports.
struct Demo {
    process: Child,
    started: Vec<Process>,
    state: PathBuf,
}

impl Demo {
    fn start() -> Self {
        let mut process = otctl().arg("demo").stdout(Stdio::piped()).spawn().unwrap();
        let id = i32::try_from(process.id()).unwrap();
        let mut lines =
            BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("Syncing")), "an image is admitted");
        // Read on, or the demo has nobody to print to.
        std::thread::spawn(move || lines.for_each(drop));
        let started = wait_for("an import runs", || {
            let started = descendants(id);
            started
                .iter()
                .any(|process| process.command.contains(" run-importer import "))
                .then_some(started)
        });
        let state = state_directory(&started);
        Self { process, started, state }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }

    fn end(mut self) -> ExitStatus {
        let status = self.process.wait().unwrap();
        wait_for("everything it started has ended", || {
            let left: Vec<_> = self.started.iter().filter(|process| is_running(process)).collect();
            (left.is_empty() && !self.state.exists()).then_some(())
        });
        status
    }
}

/// Where the API server was told to keep its keys.
fn state_directory(started: &[Process]) -> PathBuf {
    let apiserver = started.iter().find(|process| process.command.contains("kube-apiserver "));
    let mut words = apiserver.expect("an API server runs").command.split([' ', '=']);
    let key = words.find(|word| word.starts_with('/') && word.contains("local-cluster-")).unwrap();
    let mut path = PathBuf::from(key);
    while !path.file_name().unwrap().to_string_lossy().starts_with("local-cluster-") {
        path.pop();
    }
    path
}

fn assert_everything_runs(started: &[Process]) {
    for program in [
        "etcd ",
        "kube-apiserver ",
        "kube-controller-manager ",
        "kube-scheduler ",
        " run-controller ",
    ] {
        assert!(
            started.iter().any(|process| process.command.contains(program)),
            "{program} among {started:#?}"
        );
    }
}

#[test]
fn ctrl_c_leaves_nothing_running() {
    let demo = Demo::start();
    assert_everything_runs(&demo.started);
    assert!(demo.state.is_dir());
    demo.signal(Signal::SIGINT);
    assert_eq!(demo.end().code(), Some(130));
}

#[test]
fn neither_does_a_kill() {
    let demo = Demo::start();
    assert_everything_runs(&demo.started);
    demo.signal(Signal::SIGKILL);
    assert_eq!(demo.end().code(), None, "it was killed");
}
