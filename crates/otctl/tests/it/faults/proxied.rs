//! A controller behind a proxy of its own.

use std::path::PathBuf;

use otctl::installation::{ControllerProcess, Launch};
use testbed::proxy::Proxy;

use crate::stage::{Stage, answer_of, keep_metrics, until};

/// Says a line before each write.
const LOG: &str = "--log-level=info,otctl_kit::commit::write=debug";
/// For one that works whenever it runs.
pub(crate) const ALONE: &[&str] = &["--leader-election=false"];
/// For one that takes the lease of a dead one soon.
pub(super) const HASTY: &[&str] =
    &["--lease-duration=1500ms", "--renew-deadline=1s", "--retry-period=250ms"];

/// A controller, its proxy, and its logs: one for each start.
pub(crate) struct Proxied {
    pub(crate) proxy: Proxy,
    name: String,
    launch: Launch,
    starts: usize,
    process: Option<ControllerProcess>,
}

impl Proxied {
    /// The controller of disk images, not started yet.
    pub(super) async fn on(stage: &Stage, name: &str, flags: &[&str]) -> Self {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_otctl"));
        let launch = Launch::on(stage.cluster(), program).await.unwrap();
        Self::of(launch, stage, name, flags).await
    }

    /// Any controller, not started yet.
    pub(crate) async fn of(mut launch: Launch, stage: &Stage, name: &str, flags: &[&str]) -> Self {
        let proxy = Proxy::start(&stage.cluster().admin_config()).await.unwrap();
        launch.kubeconfig = proxy.kubeconfig(&launch.kubeconfig).unwrap();
        launch.environment = stage.environment();
        launch.flags.extend([&[LOG], flags].concat().into_iter().map(str::to_owned));
        Self { proxy, name: name.to_owned(), launch, starts: 0, process: None }
    }

    /// Starts it, or the next one.
    pub(crate) fn start(&mut self) {
        assert!(self.process.is_none(), "{} runs", self.name);
        self.starts += 1;
        let logs = self.launch.log.parent().expect("logs are in a directory").to_owned();
        self.launch.log = logs.join(format!("{}-{}.log", self.name, self.starts));
        let process = ControllerProcess::start(&self.launch).unwrap();
        self.proxy.attach(process.id());
        self.process = Some(process);
    }

    /// Waits until its proxy has killed so many in all, and starts the next.
    pub(crate) async fn revive(&mut self, kills: usize) {
        self.proxy.killed(kills).await;
        self.kill().await;
        self.start();
    }

    /// Kills it, or buries one that a fault has killed.
    pub(crate) async fn kill(&mut self) {
        self.process.take().expect("it was started").kill().await.unwrap();
    }

    /// Asks it to end, and waits; what it has measured is kept.
    pub(crate) async fn stop(&mut self) {
        keep_metrics(&self.launch.log).await;
        self.process.take().expect("it was started").stop().await.unwrap();
    }

    /// What the one that was started last has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.launch.log).unwrap_or_default()
    }

    /// Waits until the one that was started last has logged this.
    pub(super) async fn await_log(&self, part: &str) {
        until(&format!("{} logs {part}", self.name), async || {
            self.log().contains(part).then_some(())
        })
        .await;
    }

    /// The lines of its writes from there on, those of the lease left out.
    pub(crate) fn writes(&self, from: usize) -> Vec<String> {
        let log = self.proxy.log_since(from);
        let writes = log.iter().filter(|entry| entry.call.verb.is_write());
        writes
            .filter(|entry| entry.call.kind != "Lease")
            .map(|entry| entry.call.to_string())
            .collect()
    }

    /// What its server answers to this path: status line, headers and body.
    pub(super) async fn get(&self, path: &str) -> String {
        answer_of(&self.launch.log, path).await
    }

    /// How many requests there were.
    pub(crate) fn asked(&self) -> usize {
        self.proxy.asked()
    }
}

/// What it said last goes with a failed test.
impl Drop for Proxied {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(12)..].iter();
            let cut = last.map(|line| &line[..line.floor_char_boundary(300)]);
            eprintln!("the last lines of {}:\n{}", self.name, cut.collect::<Vec<_>>().join("\n"));
        }
    }
}
