//! What is listed, and under which name.

use std::os::unix::fs::symlink;
use std::process::Command;

use local_cluster::Progress;
use local_cluster::programs::{Program, Sources};

use crate::{otctl, stdout};

#[test]
fn help_lists_what_people_use_and_hides_the_rest() {
    let help = stdout(&otctl().arg("--help").output().unwrap());
    let seen = ["get", "describe", "apply", "wait", "retry", "suspend", "resume"];
    for command in seen.into_iter().chain(["demo", "up", "queue", "crds", "completion"]) {
        assert!(
            help.lines().any(|line| line.trim_start().starts_with(&format!("{command} "))),
            "{command}:\n{help}"
        );
    }
    assert!(!help.contains("run-controller") && !help.contains("run-importer"), "{help}");
}

#[test]
fn a_typo_is_told_from_a_failure() {
    let output = otctl().arg("qeue").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("queue"),
        "the nearest command is named"
    );
}

#[test]
fn kubectl_finds_it_as_a_sub_command() {
    let programs = Sources::from_env()
        .unwrap()
        .find_or_build(&[Program::Kubectl], &Progress::default())
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_otctl"), directory.path().join("kubectl-otctl")).unwrap();
    let mut kubectl = Command::new(&programs[&Program::Kubectl]);
    let help =
        stdout(&kubectl.args(["otctl", "--help"]).env("PATH", directory.path()).output().unwrap());
    assert!(help.contains("Usage: kubectl otctl [OPTIONS] <COMMAND>"), "{help}");
}

#[test]
fn a_shell_can_read_the_script_that_completes() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&otctl().args(["completion", shell]).output().unwrap());
        assert!(script.contains("otctl"), "{shell}: {script}");
    }
    let script = stdout(&otctl().args(["completion", "bash"]).output().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("otctl.bash");
    std::fs::write(&file, script).unwrap();
    let read = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(read.status.success() && read.stderr.is_empty(), "{read:?}");
}

#[test]
fn exit_codes_are_told_where_they_are_needed() {
    for command in ["wait", "apply"] {
        let help = stdout(&otctl().args([command, "--help"]).output().unwrap());
        let told = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in ["3 an object has failed", "4 the time was up", "[default: 30m]"] {
            assert!(told.contains(part), "{command} {part}: {help}");
        }
    }
}

#[test]
fn what_could_not_be_printed_is_a_failure_unless_nobody_reads() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = otctl().arg("crds").stdout(full).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("not everything could be printed"), "{told}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = otctl().arg("crds").stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn crds_prints_both_kinds() {
    let text = stdout(&otctl().arg("crds").output().unwrap());
    for name in ["admissionqueues.pelotech.ot", "vmdiskimages.pelotech.ot"] {
        assert!(text.contains(&format!("name: {name}")), "{name}");
    }
}
