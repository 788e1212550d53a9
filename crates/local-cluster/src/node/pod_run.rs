//! The life of one pod on the node: started, watched, ended, confirmed gone.
//!
//! ```text
//! accepted ─▶ (held) ─▶ prepared ─▶ running ─▶ ended ─▶ deleted ─▶ confirmed
//!                           ▲          │ restartPolicy
//!                           └──────────┘
//! ```

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use tokio::time::Instant;

use super::addresses::PodAddress;
use super::cluster_io::Presence;
use super::container_state::{Termination, termination_message};
use super::inbox::{Ending, Inbox, Interruption};
use super::launch::{self, Launch};
use super::pod_status::{Containers, Phase, Report};
use super::preparation::Preparation;
use super::running::RunningProcess;
use super::{NodeContext, PodName};

const LONGEST_RESTART_BACKOFF: Duration = Duration::from_secs(300);

/// Carries one pod from the moment it is bound to the node until it is gone.
pub(super) struct PodRun {
    context: Arc<NodeContext>,
    inbox: Inbox,
    pod: Arc<Pod>,
    report: Report,
}

/// How the pod's life on the node ended.
#[derive(PartialEq, Eq)]
enum Halt {
    /// The object is gone: nobody to report to.
    Gone,
    /// The containers ended, by themselves or by order; `report` says how.
    Ended,
}

impl PodRun {
    pub(super) fn new(context: Arc<NodeContext>, inbox: Inbox) -> Self {
        Self { context, pod: inbox.pod(), inbox, report: Report::accepted() }
    }

    pub(super) async fn run(mut self) {
        let present = match self.phase() {
            Some("Succeeded" | "Failed") => Presence::Present,
            // A process started before this node was: nothing of it is known here.
            Some("Running") => {
                self.report.end(Termination::unknown());
                self.publish().await
            }
            _ => match self.live().await {
                Halt::Gone => Presence::Gone,
                Halt::Ended => self.publish().await,
            },
        };
        if present == Presence::Present && self.inbox.removal().await != Interruption::Gone {
            self.context.confirm_deletion(&self.pod).await;
        }
        self.remove_files().await;
    }

    fn phase(&self) -> Option<&str> {
        self.pod.status.as_ref()?.phase.as_deref()
    }

    async fn publish(&self) -> Presence {
        self.context.write_status(&self.pod, &self.report.to_patch(&self.pod)).await
    }

    async fn remove_files(&self) {
        let dir = launch::pod_dir(&self.context.state_dir, &self.pod.uid().unwrap_or_default());
        if let Err(error) = tokio::fs::remove_dir_all(&dir).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, dir = %dir.display(), "could not remove the files of a pod");
        }
    }

    async fn live(&mut self) -> Halt {
        if self.publish().await == Presence::Gone {
            return Halt::Gone;
        }
        let pod = self.pod.clone();
        match launch::process_container(&pod) {
            Some(container) => self.live_as_process(container).await,
            None => self.live_on_paper().await,
        }
    }

    /// A pod that is only reported Running.
    async fn live_on_paper(&mut self) -> Halt {
        let name = PodName::from(&*self.pod);
        tokio::select! {
            biased;
            cause = self.inbox.interruption() => return self.end_unstarted(cause),
            () = self.context.holds.released(&name) => {}
        }
        let address = self.context.addresses.service();
        let started = self.enter_running(address.as_ref());
        if self.publish().await == Presence::Gone {
            return Halt::Gone;
        }
        let cause = self.inbox.interruption().await;
        let killed = Termination::with_code(137, Some(started), String::new());
        self.end_as(cause, killed)
    }

    async fn live_as_process(&mut self, container: &Container) -> Halt {
        let Some(address) = self.context.addresses.loopback() else {
            self.report
                .end(Termination::not_started(&std::io::Error::other("no free address in 127/8")));
            return Halt::Ended;
        };
        loop {
            let preparation = Preparation {
                context: &self.context,
                pod: &self.pod,
                container,
                address: address.ip(),
                report: self.report.clone(),
            };
            let launch = tokio::select! {
                biased;
                cause = self.inbox.interruption() => return self.end_unstarted(cause),
                launch = preparation.until_ready() => launch,
            };
            let started = self.enter_running(Some(&address));
            let (end, cause) = self.run_once(container, &launch, started).await;
            if let Some(cause) = cause {
                return self.end_as(cause, end);
            }
            if !self.restarts_after(&end) {
                self.report.end(end);
                return Halt::Ended;
            }
            if let Some(halt) = self.back_off(end).await {
                return halt;
            }
        }
    }

    fn enter_running(&mut self, address: Option<&PodAddress>) -> Timestamp {
        let since = Timestamp::now();
        self.report.phase = Phase::Running;
        self.report.containers = Containers::Running { since };
        self.report.ip = address.map(PodAddress::ip);
        since
    }

    /// One run of the process. Returns how it ended and, if not by itself, at whose word.
    async fn run_once(
        &mut self,
        container: &Container,
        launch: &Launch,
        started: Timestamp,
    ) -> (Termination, Option<Interruption>) {
        let uid = self.pod.uid().unwrap_or_default();
        let mut process = match RunningProcess::spawn(launch, &uid, &self.context.groups) {
            Ok(process) => process,
            Err(error) => return (Termination::not_started(&error), None),
        };
        let running = self.report.to_patch(&self.pod);
        let publishing = self.context.write_status(&self.pod, &running);
        let exit = async { tokio::join!(process.wait(), publishing).0 };
        let (status, cause) = tokio::select! {
            biased;
            status = exit => (status, None),
            cause = self.inbox.interruption() => {
                (stop(&mut process, &cause, &mut self.inbox).await, Some(cause))
            }
        };
        drop(process);
        let status = match status {
            Ok(status) => status,
            Err(error) => return (Termination::not_started(&error), cause),
        };
        let message = termination_message(container, status, &launch.termination_log, &launch.log);
        (Termination::exited(status, started, message), cause)
    }

    fn restarts_after(&self, end: &Termination) -> bool {
        let policy = self.pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        match policy {
            Some("Never") => false,
            Some("OnFailure") => !end.succeeded(),
            _ => true,
        }
    }

    /// Waits before the next run: not before the first restart, then longer each time.
    async fn back_off(&mut self, end: Termination) -> Option<Halt> {
        let delay = restart_delay(self.context.restart_backoff, self.report.restarts);
        self.report.restarts += 1;
        self.report.last = Some(end);
        if delay.is_zero() {
            return None;
        }
        let message = format!("back-off {}s restarting failed container", delay.as_secs());
        self.report.containers = Containers::Waiting { reason: "CrashLoopBackOff", message };
        if self.publish().await == Presence::Gone {
            return Some(Halt::Gone);
        }
        tokio::select! {
            cause = self.inbox.interruption() => Some(self.end_unstarted(cause)),
            () = tokio::time::sleep(delay) => None,
        }
    }

    /// The end of a pod of which nothing runs: its last run counts, if it had one.
    fn end_unstarted(&mut self, cause: Interruption) -> Halt {
        let end = self.report.last.clone().unwrap_or_else(Termination::unknown);
        self.end_as(cause, end)
    }

    fn end_as(&mut self, cause: Interruption, end: Termination) -> Halt {
        match cause {
            Interruption::Gone => return Halt::Gone,
            Interruption::Deleted { .. } => self.report.end(end),
            Interruption::Commanded(Ending::Evict) => self.report.evict(end),
            Interruption::Commanded(Ending::Finish { exit_code, message }) => {
                self.report.end(Termination::with_code(exit_code, end.started_at, message));
            }
        }
        Halt::Ended
    }
}

fn restart_delay(first: Duration, restarts: u32) -> Duration {
    match restarts {
        0 => Duration::ZERO,
        n => first.saturating_mul(2_u32.saturating_pow(n - 1)).min(LONGEST_RESTART_BACKOFF),
    }
}

/// Ends a process at the word of `cause`: deletion has its grace, everything else has none.
async fn stop(
    process: &mut RunningProcess,
    cause: &Interruption,
    inbox: &mut Inbox,
) -> std::io::Result<ExitStatus> {
    let Interruption::Deleted { grace } = cause else {
        process.kill();
        return process.wait().await;
    };
    process.terminate();
    let asked = Instant::now();
    let mut deadline = asked + *grace;
    loop {
        tokio::select! {
            status = process.wait() => return status,
            () = tokio::time::sleep_until(deadline) => {
                process.kill();
                return process.wait().await;
            }
            next = inbox.next_interruption() => match next {
                // A second deletion may shorten the grace, never lengthen it.
                Interruption::Deleted { grace } => deadline = deadline.min(asked + grace),
                Interruption::Gone | Interruption::Commanded(_) => deadline = asked,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_restart_is_at_once_and_the_delay_is_bounded() {
        let first = Duration::from_secs(10);
        let delays = [0, 1, 2, 3, 40].map(|restarts| restart_delay(first, restarts).as_secs());
        assert_eq!(delays, [0, 10, 20, 40, 300]);
    }
}
