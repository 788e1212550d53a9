//! The life of one container: pulled, started, probed, started again, ended.
//!
//! ```text
//! pulled ─▶ prepared ─▶ running ─▶ ended
//!              ▲           │ restartPolicy, after a backoff
//!              └───────────┘
//! ```

use std::net::IpAddr;
use std::pin::pin;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use tokio::sync::mpsc;

use super::NodeContext;
use super::backoff;
use super::container_report::ContainerReport;
use super::container_state::{Termination, termination_message};
use super::images::{Content, Image};
use super::launch::{Launch, Start};
use super::mounts::{Mount, NotYet};
use super::orders::Orders;
use super::pod_events::Gravity;
use super::preparation::{Preparation, until_there};
use super::probes::{Effect, Finding, Probes};
use super::running::RunningProcess;

/// Of a pod that says nothing, in seconds.
const DEFAULT_GRACE: i64 = 30;

/// What has become of one container of a pod.
pub(super) struct Change {
    /// Its place among the pod's containers.
    pub(super) index: usize,
    pub(super) report: ContainerReport,
}

/// Where a container tells its pod what has become of it.
pub(super) struct Voice {
    pub(super) index: usize,
    pub(super) changes: mpsc::UnboundedSender<Change>,
}

/// Carries one container until it has ended for good, or its pod is to end.
pub(super) struct ContainerRun {
    pub(super) context: Arc<NodeContext>,
    pub(super) pod: Arc<Pod>,
    pub(super) container: Container,
    pub(super) mounts: Vec<Mount>,
    pub(super) address: IpAddr,
    pub(super) orders: Orders,
    pub(super) voice: Voice,
    pub(super) report: ContainerReport,
    /// How often in a row it has ended soon after it was started.
    pub(super) failures: u32,
}

/// How one run of a process ended.
enum RunEnd {
    /// By itself, or killed by a probe.
    Own(Termination),
    /// Because the pod is to end.
    Ordered(Termination),
}

impl ContainerRun {
    pub(super) async fn run(mut self, content: Content) {
        match &content {
            Content::OnPaper => self.run_on_paper().await,
            Content::NotFound => self.pull_in_vain().await,
            Content::Importer(image) | Content::Program(image) => {
                self.run_processes(image, &content).await;
            }
        }
    }

    pub(super) fn tell(&self) {
        let change = Change { index: self.voice.index, report: self.report.clone() };
        // A pod whose task is gone is ended with it.
        let _ = self.voice.changes.send(change);
    }

    /// A container that is only reported Running.
    async fn run_on_paper(&mut self) {
        let started = Timestamp::now();
        self.report.run(started);
        (self.report.started, self.report.ready) = (true, true);
        self.tell();
        self.orders.until_end().await;
        self.report.end_as(Termination::with_code(137, Some(started), String::new()));
        self.tell();
    }

    async fn run_processes(&mut self, image: &Image, content: &Content) {
        loop {
            let Some(launch) = self.prepared(image, content).await else { return };
            match self.run_once(&launch).await {
                RunEnd::Ordered(end) => return self.end(end),
                RunEnd::Own(end) if !self.restarts_after(&end) => return self.end(end),
                RunEnd::Own(end) => self.back_off(end).await,
            }
        }
    }

    fn end(&mut self, end: Termination) {
        self.report.end_as(end);
        self.tell();
    }

    /// Everything the process is started with; none if the pod is to end.
    async fn prepared(&self, image: &Image, content: &Content) -> Option<Launch> {
        let mut orders = self.orders.clone();
        tokio::select! {
            biased;
            () = orders.until_end() => None,
            launch = until_there(&self.context, LaunchOf { run: self, image, content }) => Some(launch),
        }
    }

    async fn run_once(&mut self, launch: &Launch) -> RunEnd {
        let key = (self.pod.uid().unwrap_or_default(), self.container.name.clone());
        let mut process = match RunningProcess::spawn(launch, key, &self.context.groups) {
            Ok(process) => process,
            Err(error) => return RunEnd::Own(Termination::not_started(&error)),
        };
        let started = Timestamp::now();
        let probes = Probes::of(&self.container, self.address, launch, self.context.groups.guard());
        self.report.run(started);
        (self.report.started, self.report.ready) = probes.passed_at_once();
        self.tell();
        let (status, is_ordered) = self.watch(&mut process, probes).await;
        drop(process);
        let end = match status {
            Ok(status) => {
                let message = termination_message(
                    &self.container,
                    status,
                    &launch.termination_log,
                    &launch.log,
                );
                Termination::exited(status, started, message)
            }
            Err(error) => Termination::not_started(&error),
        };
        if is_ordered { RunEnd::Ordered(end) } else { RunEnd::Own(end) }
    }

    /// Probes a process until it ends, by itself, by a probe, or because the pod is to end.
    async fn watch(
        &mut self,
        process: &mut RunningProcess,
        probes: Probes,
    ) -> (std::io::Result<ExitStatus>, bool) {
        let (sender, mut findings) = mpsc::unbounded_channel();
        let mut probing = pin!(probes.follow(sender));
        let (mut orders, mut probes_on) = (self.orders.clone(), true);
        loop {
            tokio::select! {
                biased;
                status = process.wait() => return (status, false),
                () = orders.until_end() => return (orders.end(process, None).await, true),
                Some(finding) = findings.recv() => if let Some(grace) = self.note(finding) {
                    return (orders.end(process, Some(grace)).await, false);
                },
                () = &mut probing, if probes_on => probes_on = false,
            }
        }
    }

    /// Tells what a probe has found; how long the process has if it must be killed for it.
    fn note(&mut self, finding: Finding) -> Option<Duration> {
        if let Some(seen) = &finding.failure {
            let note = format!("{} probe failed: {seen}", finding.probe);
            self.say(Gravity::Warning, "Unhealthy", &note);
        }
        match finding.effect? {
            Effect::Started => {
                self.report.started = true;
                self.report.ready = self.container.readiness_probe.is_none();
            }
            Effect::Ready(ready) => self.report.ready = ready,
            Effect::Kill { grace } => {
                let probe = finding.probe.to_lowercase();
                let name = &self.container.name;
                let note = format!("Container {name} failed {probe} probe, will be restarted");
                self.say(Gravity::Normal, "Killing", &note);
                return Some(grace.unwrap_or_else(|| self.grace()));
            }
        }
        self.tell();
        None
    }

    /// An Event about this container.
    pub(super) fn say(&self, gravity: Gravity, reason: &str, note: &str) {
        let about = (&*self.pod, &self.container);
        self.context.events.about(about, gravity, (reason, note));
    }

    fn grace(&self) -> Duration {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(u64::try_from(seconds.unwrap_or(DEFAULT_GRACE)).unwrap_or(0))
    }

    fn restarts_after(&self, end: &Termination) -> bool {
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        match policy {
            Some("Never") => false,
            Some("OnFailure") => !end.succeeded(),
            _ => true,
        }
    }

    /// Waits before the next run, if the pod is not to end before: not before the first restart, then longer each time.
    async fn back_off(&mut self, end: Termination) {
        let first = self.context.backoff;
        let is_old = end.lasted() > backoff::longest(first) * 2;
        self.failures = if is_old { 1 } else { self.failures + 1 };
        self.report.last = Some(end);
        if self.failures > 1 {
            let delay = backoff::delay(first, self.failures - 1);
            self.tell_back_off(delay);
            self.goes_on_after(delay).await;
        }
        self.report.restarts += 1;
    }

    fn tell_back_off(&mut self, delay: Duration) {
        let name = &self.container.name;
        let namespace = self.pod.namespace().unwrap_or_default();
        let uid = self.pod.uid().unwrap_or_default();
        let pod = format!("{}_{namespace}({uid})", self.pod.name_any());
        let delay = backoff::in_go(delay);
        let note = format!("Back-off restarting failed container {name} in pod {pod}");
        let message = format!("back-off {delay} restarting failed container={name} pod={pod}");
        self.report.wait("CrashLoopBackOff", message);
        self.tell();
        self.say(Gravity::Warning, "BackOff", &note);
    }

    /// Waits for this long, and while the node is cut off; false, and sooner, if the pod is to end.
    pub(super) async fn goes_on_after(&self, delay: Duration) -> bool {
        let mut orders = self.orders.clone();
        let waiting = async {
            tokio::time::sleep(delay).await;
            self.context.link.up().await;
        };
        tokio::select! {
            biased;
            () = orders.until_end() => false,
            () = waiting => true,
        }
    }
}

/// What the process of a container is started with.
struct LaunchOf<'a> {
    run: &'a ContainerRun,
    image: &'a Image,
    content: &'a Content,
}

impl Preparation for LaunchOf<'_> {
    type Found = Launch;

    async fn look(&self) -> Result<Launch, NotYet> {
        let run = self.run;
        let start = Start {
            context: &run.context,
            pod: &run.pod,
            container: &run.container,
            address: run.address,
            mounts: &run.mounts,
        };
        let mut launch = start.of(self.image).await?;
        if matches!(self.content, Content::Program(_)) {
            let mut environment = start.network(&launch.directory)?;
            environment.append(&mut launch.environment);
            launch.environment = environment;
        }
        Ok(launch)
    }

    async fn tell(&self, problem: &NotYet) {
        let run = self.run;
        run.context.events.warn(&run.pod, (problem.event, &problem.message));
        let mut report = run.report.clone();
        report.wait(problem.waiting, problem.shown());
        // A pod whose task is gone is ended with it.
        let _ = run.voice.changes.send(Change { index: run.voice.index, report });
    }
}
