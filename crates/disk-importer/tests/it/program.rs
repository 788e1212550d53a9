//! The program itself: arguments, report file, exit codes, signals, and what a kill costs.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use image_server::{Behaviour, Content, Fault};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use otctl_types::import::{ImportOutcome, ImportPhase, ImportReason, ImportReport, Progress};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::lab::{Lab, MIB, PATH, assert_complete, assert_failed};

/// Far above what anything here takes; a test that hangs ends.
pub(crate) const GUARD: Duration = Duration::from_secs(120);

pub(crate) struct Program {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    log: PathBuf,
}

impl Program {
    pub(crate) fn of(lab: &Lab, verb: &str) -> Self {
        let log = lab.directory.path().join("termination-log");
        let arguments = vec![
            verb.to_owned(),
            format!("--url={}", lab.server.url(PATH)),
            format!("--allowed-source-hosts={}", lab.hosts()),
            format!("--termination-log={}", log.display()),
        ];
        Self { arguments, environment: Vec::new(), log }
    }

    pub(crate) fn import(lab: &Lab, disk_size: u64) -> Self {
        Self::of(lab, "import")
            .with(format!("--disk-size={disk_size}"))
            .with(format!("--output={}", lab.disk().display()))
            .with(format!("--scratch={}", lab.scratch().display()))
    }

    pub(crate) fn with(mut self, argument: String) -> Self {
        self.arguments.push(argument);
        self
    }

    pub(crate) fn start(&self) -> Child {
        let _ = fs::remove_file(&self.log);
        Command::new(env!("CARGO_BIN_EXE_disk-importer"))
            .args(&self.arguments)
            .env("OTCTL_PROGRESS_KEY", "sesame")
            .env("POD_UID", "pod-1")
            .envs(self.environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Runs to the end: exit code, and the report if there is one. Nothing is on standard output.
    pub(crate) async fn run(&self) -> (i32, Option<ImportReport>) {
        let output = timeout(GUARD, self.start().wait_with_output()).await.unwrap().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        (output.status.code().unwrap(), self.report())
    }

    pub(crate) fn report(&self) -> Option<ImportReport> {
        let text = fs::read_to_string(&self.log).ok()?;
        assert!(text.len() <= 4096);
        Some(ImportReport::from_termination_message(&text).unwrap())
    }
}

fn image() -> Content {
    Content::generated(4 * MIB, 3)
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()), signal).unwrap();
}

async fn wait_for_bytes(lab: &Lab, bytes: u64) {
    let mut counts = lab.server.watch(PATH);
    let enough = counts.wait_for(|counts| counts.bytes >= bytes);
    timeout(GUARD, enough).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_probe_says_what_it_saw_and_exits_0() {
    let lab = Lab::serving(image()).await;
    let (code, report) = Program::of(&lab, "probe").run().await;
    let report = report.unwrap();
    assert_eq!((code, report.outcome), (0, ImportOutcome::Complete));
    assert_eq!(report.source.unwrap().size, Some(4 * MIB));
}

#[tokio::test]
async fn a_failure_exits_1_with_its_reason() {
    let lab = Lab::misbehaving(image(), Behaviour::new().always(Fault::status(404))).await;
    let (code, report) = Program::import(&lab, 4 * MIB).run().await;
    assert_eq!(code, 1);
    assert_failed(&report.unwrap(), ImportReason::SourceNotFound);
}

/// A file system has a longest file; a limit of the process answers with the same error.
#[tokio::test]
async fn a_disk_that_is_longer_than_a_file_may_be_is_refused_before_the_download() {
    const LIMITED: &str = r#"trap '' XFSZ; ulimit -f 16384; exec "$0" "$@""#;
    let lab = Lab::serving(image()).await;
    let program = Program::import(&lab, 64 * MIB);
    let run = Command::new("sh")
        .args(["-c", LIMITED, env!("CARGO_BIN_EXE_disk-importer")])
        .args(&program.arguments)
        .env("POD_UID", "pod-1")
        .kill_on_drop(true)
        .output();
    timeout(GUARD, run).await.unwrap().unwrap();
    let report = program.report().unwrap();
    assert_failed(&report, ImportReason::TooLarge);
    for words in ["a disk of 64Mi (diskSize)", "lower diskSize", "volumeMode Block"] {
        assert!(report.message.contains(words), "{}", report.message);
    }
    assert_eq!(lab.counts().requests, 0);
    assert!(!lab.disk().with_added_extension("partial").exists());
}

#[tokio::test]
async fn what_arguments_alone_can_tell_is_told_unasked() {
    let lab = Lab::serving(image()).await;
    let program = || Program::of(&lab, "probe");
    let refused = [
        (program().with("--secret-dir=/nonexistent".to_owned()), ImportReason::SecretNotFound),
        (Program::of(&lab, "import"), ImportReason::Internal),
    ];
    for (program, reason) in refused {
        let (code, report) = program.run().await;
        assert_eq!(code, 1);
        assert_failed(&report.unwrap(), reason);
    }
    for url in ["http://u:sesame@127.0.0.1/i", "ftp://127.0.0.1/i", "sesame", ""] {
        let mut program = program();
        program.arguments[1] = format!("--url={url}");
        let (code, report) = program.run().await;
        let report = report.unwrap();
        assert_failed(&report, ImportReason::AddressRefused);
        assert!(code == 1 && !report.message.contains("sesame"), "{report:?}");
    }
    assert_eq!(lab.counts().requests, 0);
}

#[tokio::test]
async fn arguments_that_cannot_be_read_exit_2_without_a_report() {
    let lab = Lab::serving(image()).await;
    for argument in
        ["--no-such-flag", "--disk-size=many", "--allowed-source-hosts=a b", "--checksum=md5:1"]
    {
        let (code, report) = Program::import(&lab, 1).with(argument.to_owned()).run().await;
        assert_eq!((code, report), (2, None), "{argument}");
    }
}

#[tokio::test]
async fn an_empty_list_of_refused_addresses_refuses_none() {
    let lab = Lab::serving(image()).await;
    let program = Program::of(&lab, "probe").with("--refused-addresses=".to_owned());
    assert_eq!(program.run().await.0, 0);
    let program =
        Program::of(&lab, "probe").with("--refused-addresses=10.0.0.1,fd00::1".to_owned());
    assert_eq!(program.run().await.0, 0);
}

#[tokio::test]
async fn progress_is_shown_to_whoever_has_the_key() {
    let lab = Lab::misbehaving(image(), Behaviour::new().then(Fault::stall(MIB))).await;
    let address = free_address().await;
    let program = Program::import(&lab, 4 * MIB).with(format!("--progress-address={address}"));
    let child = program.start();
    wait_for_bytes(&lab, MIB).await;
    let progress = loop {
        let (status, body) = get_progress(address, Some("Bearer sesame")).await;
        assert_eq!(status, 200);
        let progress: Progress = serde_json::from_str(&body).unwrap();
        if progress.bytes == MIB {
            break progress;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((progress.total_bytes, progress.percent), (Some(4 * MIB), 25));
    assert_eq!((progress.phase, progress.received), (ImportPhase::Fetching, MIB));
    for key in [None, Some("Bearer other"), Some("Bearer "), Some("sesame"), Some("Basic sesame")] {
        assert_eq!(get_progress(address, key).await.0, 401, "{key:?}");
    }
    lab.server.release(PATH).unwrap();
    let output = timeout(GUARD, child.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success());
}

#[tokio::test]
async fn sigterm_keeps_every_byte_and_reports_an_interruption() {
    let lab = Lab::misbehaving(image(), Behaviour::new().then(Fault::stall(MIB))).await;
    let program = Program::import(&lab, 4 * MIB);
    let mut child = program.start();
    wait_for_source(&lab, MIB).await;
    signal(&child, Signal::SIGTERM);
    let status = timeout(GUARD, child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(1));
    assert_failed(&program.report().unwrap(), ImportReason::Interrupted);
    assert_eq!(lab.kept(), MIB);
    let (code, report) = program.run().await;
    assert_eq!(code, 0);
    assert_complete(&report.unwrap(), &image().disk_hash(4 * MIB).unwrap().hex());
    assert_eq!((lab.counts().bytes, lab.counts().downloads), (4 * MIB, 1));
}

/// The promise of at most 1 MiB per interruption, at full speed and without warning.
#[tokio::test]
async fn each_sigkill_costs_at_most_a_mebibyte() {
    const SIZE: u64 = 48 * MIB;
    let content = Content::generated(SIZE, 5);
    let lab = Lab::serving(content.clone()).await;
    let program = Program::import(&lab, SIZE);
    for interruption in 1..=5 {
        let mut child = program.start();
        wait_for_bytes(&lab, interruption * 8 * MIB).await;
        signal(&child, Signal::SIGKILL);
        timeout(GUARD, child.wait()).await.unwrap().unwrap();
        assert_eq!(program.report(), None, "it ended before the kill");
    }
    let (code, report) = program.run().await;
    assert_eq!(code, 0);
    assert_complete(&report.unwrap(), &content.disk_hash(SIZE).unwrap().hex());
    let counts = lab.counts();
    assert!(counts.bytes <= SIZE + 5 * MIB, "{} bytes over", counts.bytes - SIZE);
    assert_eq!(counts.downloads, 1);
}

async fn wait_for_source(lab: &Lab, bytes: u64) {
    let source = lab.scratch().join("source");
    let arrived = async {
        while fs::metadata(&source).map_or(0, |file| file.len()) < bytes {
            tokio::task::yield_now().await;
        }
    };
    timeout(GUARD, arrived).await.unwrap();
}

/// A port that was free a moment ago; the program is told a port, it cannot choose one.
pub(crate) async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn get_progress(address: SocketAddr, key: Option<&str>) -> (u16, String) {
    ask(address, "GET", key, "").await
}

/// Waits until the program listens.
pub(crate) async fn post_progress(
    address: SocketAddr,
    key: Option<&str>,
    body: &str,
) -> (u16, String) {
    ask(address, "POST", key, body).await
}

async fn ask(address: SocketAddr, method: &str, key: Option<&str>, body: &str) -> (u16, String) {
    let mut stream = timeout(GUARD, connect(address)).await.unwrap();
    let key = key.map(|key| format!("authorization: {key}\r\n")).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "{method} /progress HTTP/1.1\r\nhost: importer\r\n{key}content-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn connect(address: SocketAddr) -> TcpStream {
    loop {
        match TcpStream::connect(address).await {
            Ok(stream) => return stream,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}
