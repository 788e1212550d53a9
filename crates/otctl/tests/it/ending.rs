//! Whatever ends the demo, nothing of it stays.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::ExitStatus;

use nix::sys::signal::{Signal, kill};

use crate::processes::{Process, Running, descendants, is_running, running, wait_for};

/// A demo in the middle of its imports.
struct Demo {
    process: Running,
    started: Vec<Process>,
    state: PathBuf,
}

impl Demo {
    fn start() -> Self {
        let mut process = Running::start("demo");
        let id = process.pid().as_raw();
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
        kill(self.process.pid(), signal).unwrap();
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
        " run-controller diskimage ",
        " run-controller workspace ",
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

/// `otctl demo` or `up` whose control plane has only begun to start.
struct Beginning {
    process: Running,
    started: Vec<Process>,
    state: PathBuf,
}

impl Beginning {
    fn of(command: &str) -> Self {
        let process = Running::start(command);
        let id = process.pid().as_raw();
        let started = wait_for("the first process of the control plane appears", || {
            let started = descendants(id);
            started.iter().any(|process| process.command.contains("etcd --name")).then_some(started)
        });
        // The guard knows what it has to remove.
        let guard = started.iter().find(|process| process.command.contains("local-cluster-guard"));
        let words = guard.expect("the guard is there first").command.split(' ');
        let state = words.rev().find(|word| word.contains("/local-cluster-")).unwrap();
        let state = PathBuf::from(state);
        assert!(state.is_dir());
        Self { process, started, state }
    }

    /// Sends the signal; what was printed and the exit code, once the program has ended. Nothing may be left by then.
    fn ends_by(mut self, signal: Signal) -> (String, Option<i32>) {
        kill(self.process.pid(), signal).unwrap();
        let mut printed = String::new();
        self.process.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
        let code = self.process.wait().unwrap().code();
        let place = self.state.display().to_string();
        let is_left = |process: &Process| is_running(process) && process.command.contains(&place);
        let left = self.started.iter().filter(|process| is_running(process)).cloned();
        let left: Vec<_> = left.chain(running().filter(is_left)).collect();
        assert!(left.is_empty(), "it said that all has ended: {left:#?}");
        assert!(!self.state.exists());
        (printed, code)
    }
}

#[test]
fn a_start_that_is_interrupted_has_ended_when_it_says_so() {
    let (printed, code) = Beginning::of("demo").ends_by(Signal::SIGINT);
    assert!(printed.contains("everything it started has ended"), "{printed}");
    assert_eq!(code, Some(130));
}

#[test]
fn so_has_one_that_is_told_to_end() {
    let (printed, code) = Beginning::of("up").ends_by(Signal::SIGTERM);
    assert!(printed.contains("everything it started has ended"), "{printed}");
    assert_eq!(code, Some(143));
}
