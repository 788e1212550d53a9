//! What is built when nothing is found, with a Go tool of our own that writes scripts in place of programs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::support::wait_until;

/// Notes its arguments, waits until it may go on, and writes a script that says the version it should have.
const GO: &str = r#"#!/bin/sh
PATH=/usr/bin:/bin
echo "$@" >>"$PLACE/calls"
[ -s go.mod ] && [ -s go.sum ] || { echo "no module here" >&2; exit 1; }
[ ! -e "$PLACE/broken" ] || { echo "this does not compile" >&2; exit 1; }
while [ ! -e "$PLACE/go-on" ]; do sleep 0.02; done
while [ "$1" != -o ]; do shift; done
case $2 in
etcd) version=3.6.16 ;;
helm) version=4.3.1 ;;
*) version=1.34.3 ;;
esac
printf '#!/bin/sh\necho v%s\n' "$version" >"$2"
chmod 755 "$2"
"#;

/// A machine that has nothing but this Go tool.
struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(machine.path("bin")).unwrap();
        machine
    }

    fn with_go(self) -> Self {
        let script = r#"printf %s "$1" >"$2" && chmod 755 "$2""#;
        let mut shell = std::process::Command::new("/bin/sh");
        let status = shell.args(["-c", script, "sh", GO]).arg(self.path("bin/go")).status();
        assert!(status.unwrap().success());
        self
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(name)
    }

    fn touch(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// One line for each call of the Go tool.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    fn start(&self) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_local-cluster"));
        command
            .arg("programs")
            .env_clear()
            .env("PLACE", self.root.path())
            .env("PATH", self.path("bin"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command.spawn().unwrap()
    }

    async fn run(&self) -> Output {
        self.start().wait_with_output().await.unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test]
async fn each_program_is_built_once_and_then_found() {
    let machine = Machine::new().with_go();
    machine.touch("go-on");
    let output = machine.run().await;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 6);
    assert_eq!(machine.calls().len(), 6);
    assert!(machine.calls().iter().all(|call| call.contains("-mod=readonly")));
    assert!(machine.path("cache/otctl/v1.34.3/kube-apiserver").is_file());

    let output = machine.run().await;
    assert_eq!((text(&output.stdout).lines().count(), text(&output.stderr)), (6, String::new()));
    assert_eq!(machine.calls().len(), 6);
}

#[tokio::test]
async fn of_two_that_need_the_same_programs_one_builds_and_the_other_waits() {
    let machine = Machine::new().with_go();
    let first = machine.start();
    wait_until("the first builds", || machine.calls().len() == 1).await;
    let mut second = machine.start();
    let mut said = BufReader::new(second.stderr.take().unwrap()).lines();
    let line = said.next_line().await.unwrap().unwrap();
    assert_eq!(line, "waiting for another process that is building programs");
    machine.touch("go-on");
    for process in [first, second] {
        let output = process.wait_with_output().await.unwrap();
        assert_eq!(text(&output.stdout).lines().count(), 6);
    }
    assert_eq!(machine.calls().len(), 6);
}

#[tokio::test]
async fn what_the_go_tool_says_of_a_failure_is_shown() {
    let machine = Machine::new().with_go();
    machine.touch("broken");
    let output = machine.run().await;
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("cannot build kube-apiserver"), "{said}");
    assert!(said.contains("this does not compile"), "{said}");
}

#[tokio::test]
async fn without_a_go_tool_it_says_what_to_do() {
    let output = Machine::new().run().await;
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("install Go 1.26 or newer, or set KUBEBUILDER_ASSETS"), "{said}");
}
