//! The guard without a cluster.

use std::{sync::Arc, time::Duration};

use local_cluster::guard::Guard;
use nix::sys::signal::Signal;
use tokio::process::Command;

use crate::support::{is_running, wait_until};

const GRACE: Duration = Duration::from_secs(60);

fn guard(grace: Duration) -> Arc<Guard> {
    Arc::new(Guard::start(grace, None).unwrap())
}

/// A shell that says its line, and goes on with the script.
fn shell(script: &str) -> Command {
    let mut command = Guard::command("/bin/sh", ["-c", script]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command
}

#[tokio::test]
async fn a_process_gets_its_arguments_and_an_empty_input() {
    let directory = tempfile::tempdir().unwrap();
    let said = directory.path().join("said");
    let script = r#"printf '%s|' "$@"; cat"#;
    let arguments = ["-c", script, "sh", "a b", "", "$HOME", "--"];
    let mut command = Guard::command("/bin/sh", arguments);
    command.stdout(std::fs::File::create(&said).unwrap());
    let mut process = guard(GRACE).spawn(command).unwrap();
    assert!(process.wait().await.unwrap().success());
    assert_eq!(std::fs::read_to_string(said).unwrap(), "a b||$HOME|--|");
}

#[tokio::test]
async fn a_program_that_is_not_there_shows_as_exit_code_127() {
    let mut command = Guard::command("/does/not/exist", [""; 0]);
    command.stderr(std::process::Stdio::null());
    let status = guard(GRACE).spawn(command).unwrap().wait().await.unwrap();
    assert_eq!(status.code(), Some(127));
}

#[tokio::test]
async fn the_guards_end_ends_every_group() {
    let guard = guard(GRACE);
    let processes: Vec<_> =
        (0..3).map(|_| guard.spawn(shell("sleep 600 & sleep 600")).unwrap()).collect();
    let leaders: Vec<_> = processes.iter().map(|process| process.id().as_raw()).collect();
    assert!(leaders.iter().all(|id| is_running(*id)));
    tokio::task::spawn_blocking(move || guard.end()).await.unwrap().unwrap();
    assert!(!leaders.iter().any(|id| is_running(*id)));
}

#[tokio::test]
async fn a_group_that_does_not_listen_is_killed_after_the_grace() {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let script = format!("trap '' TERM; : >'{}'; while :; do sleep 1; done", ready.display());
    let guard = guard(Duration::from_millis(300));
    let process = guard.spawn(shell(&script)).unwrap();
    wait_until("the trap is set", || ready.exists()).await;
    tokio::task::spawn_blocking(move || guard.end()).await.unwrap().unwrap();
    assert!(!is_running(process.id().as_raw()));
}

#[tokio::test]
async fn a_group_that_was_waited_for_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let child = directory.path().join("child");
    let guard = guard(GRACE);
    let script = format!("sleep 600 & echo $! >'{}'", child.display());
    let mut process = guard.spawn(shell(&script)).unwrap();
    process.wait().await.unwrap();
    let left: i32 = std::fs::read_to_string(&child).unwrap().trim().parse().unwrap();
    wait_until("what it left behind has ended", || !is_running(left)).await;
    tokio::task::spawn_blocking(move || guard.end()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_dropped_process_is_killed_with_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let child = directory.path().join("child");
    let script =
        format!("sleep 600 & echo $! >'{0}.new'; mv '{0}.new' '{0}'; wait", child.display());
    let guard = guard(GRACE);
    let process = guard.spawn(shell(&script)).unwrap();
    wait_until("it runs", || child.exists()).await;
    let left: i32 = std::fs::read_to_string(&child).unwrap().trim().parse().unwrap();
    let leader = process.id().as_raw();
    drop(process);
    wait_until("both have ended", || !is_running(leader) && !is_running(left)).await;
}

#[tokio::test]
async fn nothing_starts_once_the_guard_has_ended() {
    let guard = guard(GRACE);
    guard.end().unwrap();
    assert!(guard.spawn(shell("sleep 600")).is_err());
}

#[tokio::test]
async fn an_end_is_asked_for_before_it_is_forced() {
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let script =
        format!("trap 'exit 7' TERM; : >'{}'; while :; do sleep 0.1; done", ready.display());
    let guard = guard(GRACE);
    let mut process = guard.spawn(shell(&script)).unwrap();
    wait_until("the trap is set", || ready.exists()).await;
    assert_eq!(process.end(GRACE).await.unwrap().code(), Some(7));
}

#[tokio::test]
async fn a_signal_reaches_the_group() {
    let guard = guard(GRACE);
    let mut process = guard.spawn(shell("sleep 600")).unwrap();
    process.signal(Signal::SIGKILL).unwrap();
    assert!(!process.wait().await.unwrap().success());
}
