//! The loop around [`step`]: reads, creates, claims and gives back one Lease, and tells others who leads.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::lease::{Record, empty, held, term, vacant};
use super::{BootClock, Moment, Step, Timing, View, boot_clock, step};
use crate::clock::{Clock, SystemClock};
use crate::cluster::{Answer, ApiError, Cluster, Request, Target, erase, typed};
use crate::health::{Health, Pulse};
use crate::tenure::Tenure;

/// A lease call that takes longer is given up. Shorter than other calls: there must be time for another one.
pub const CALL_DEADLINE: Duration = Duration::from_secs(3);
/// The election shows that it lives at every step; the longest waits for a retry period, at most 80 s.
const SILENCE: Duration = Duration::from_secs(120);
/// Giving back is tried this often. If it fails, the next holder waits for the lease to run out.
const VACATE_CALLS: u32 = 4;

/// Whether this process may work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It may.
    Leading,
    /// Another may, or nobody.
    Standby,
}

/// Who stands for which lease.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease: the controller's.
    pub lease: String,
    /// Our name in the lease; different for every process that was ever started, see [`Candidate::unique`].
    pub identity: String,
    /// The times.
    pub timing: Timing,
}

impl Candidate {
    /// `name` with a random part: a restarted process must not take its predecessor's lease for its own.
    #[must_use]
    pub fn unique(name: &str) -> String {
        format!("{name}_{:016x}", rand::random::<u64>())
    }
}

/// One candidate at work.
pub struct Elector {
    cluster: Arc<dyn Cluster>,
    candidate: Candidate,
    boot: BootClock,
    clock: Arc<dyn Clock>,
    role: watch::Sender<Role>,
    pulse: Option<Pulse>,
    tenure: Option<Tenure>,
    view: View,
    /// As last read or written; a PUT starts from it and so carries its resourceVersion.
    lease: Option<Lease>,
    /// Whether a claim was ever sent: only then is there something to give back.
    has_claimed: bool,
    /// Whether the last call failed, to log a series of failures once.
    is_failing: bool,
}

impl Elector {
    /// On standby, knowing nothing.
    #[must_use]
    pub fn new(cluster: Arc<dyn Cluster>, candidate: Candidate) -> Self {
        Self::with_clocks(cluster, candidate, boot_clock(), Arc::new(SystemClock))
    }

    /// The same with other clocks.
    #[must_use]
    pub fn with_clocks(
        cluster: Arc<dyn Cluster>,
        candidate: Candidate,
        boot: BootClock,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let view = View::new(candidate.identity.clone(), candidate.timing);
        let role = watch::Sender::new(Role::Standby);
        Self {
            cluster,
            candidate,
            boot,
            clock,
            role,
            pulse: None,
            tenure: None,
            view,
            lease: None,
            has_claimed: false,
            is_failing: false,
        }
    }

    /// Shows to `health` that the election lives.
    #[must_use]
    pub fn seen_by(mut self, health: &Health) -> Self {
        self.pulse = Some(health.pulse("leader election", SILENCE));
        self
    }

    /// Lets `tenure` go on as long as the lease does.
    #[must_use]
    pub fn grants(mut self, tenure: &Tenure) -> Self {
        self.tenure = Some(tenure.clone());
        self
    }

    /// Who leads, now and later. Work must stop as soon as this says [`Role::Standby`].
    #[must_use]
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Stands until `vacate` is cancelled, then gives the lease back. Cancel it only after the work has ended: the next
    /// holder may start at once.
    pub async fn run(mut self, vacate: CancellationToken) {
        while !vacate.is_cancelled() {
            if let Some(pulse) = &self.pulse {
                pulse.beat();
            }
            let now = (self.boot)();
            match step(&self.view, now) {
                Step::Read => self.read().await,
                Step::Create => self.create().await,
                Step::Claim => self.claim().await,
                Step::StepDown(why) => self.step_down(why),
                Step::Wait(until) => {
                    let asked = vacate.cancelled();
                    let _ = tokio::time::timeout(until.saturating_sub(now), asked).await;
                }
            }
        }
        self.view.stepped_down();
        self.publish();
        if self.has_claimed {
            self.vacate().await;
        }
        if let Some(pulse) = self.pulse.take() {
            pulse.retire();
        }
    }

    async fn read(&mut self) {
        let answer = self.call(Request::Get(self.target())).await;
        let now = (self.boot)();
        match answer {
            Ok(lease) => self.take_in(lease, now),
            Err(error) => self.failed(&error, now),
        }
    }

    async fn create(&mut self) {
        let lease = empty(&self.candidate.namespace, &self.candidate.lease);
        let answer = self.call(Request::Apply(erase(&lease))).await;
        let now = (self.boot)();
        match answer {
            Ok(lease) => self.take_in(lease, now),
            Err(error) => self.failed(&error, now),
        }
    }

    async fn claim(&mut self) {
        let lease = self.lease.as_ref().expect("a claim follows a read, and what was read is kept");
        let timing = self.candidate.timing;
        let claim =
            held(lease, &self.candidate.identity, timing.duration_seconds(), self.clock.now());
        self.has_claimed = true;
        let sent = (self.boot)();
        let answer = self.call(Request::Replace(erase(&claim))).await;
        let now = (self.boot)();
        match answer {
            Ok(Some(lease)) => self.claimed(lease, sent, now),
            Ok(None) => self.take_in(None, now),
            Err(error) => self.failed(&error, now),
        }
    }

    fn claimed(&mut self, lease: Lease, sent: Moment, now: Moment) {
        let led = self.view.leads();
        self.view.claimed(Record::of(&lease), sent, now);
        self.lease = Some(lease);
        self.is_failing = false;
        match (led, self.view.leads()) {
            (false, true) => tracing::info!(
                lease = self.candidate.lease,
                identity = self.candidate.identity,
                "took the lease"
            ),
            (true, false) => self.tell_loss("the answer to a renewal came too late"),
            (true, true) | (false, false) => {}
        }
        self.publish();
    }

    fn take_in(&mut self, lease: Option<Lease>, now: Moment) {
        self.view.read(lease.as_ref().map(Record::of), now);
        self.lease = lease;
        self.is_failing = false;
    }

    fn failed(&mut self, error: &ApiError, now: Moment) {
        if matches!(error, ApiError::Conflict { .. }) {
            tracing::debug!(lease = self.candidate.lease, "another wrote the lease first");
        } else if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(lease = self.candidate.lease, %error, "a lease call failed");
        }
        self.view.failed(error, now);
    }

    fn step_down(&mut self, why: &'static str) {
        if self.view.leads() {
            self.tell_loss(why);
        }
        self.view.stepped_down();
        self.publish();
    }

    fn tell_loss(&self, why: &str) {
        tracing::warn!(lease = self.candidate.lease, why, "stopped leading");
    }

    fn publish(&self) {
        if let Some(tenure) = &self.tenure {
            if self.view.leads() {
                tenure.set_term(self.lease.as_ref().map_or(0, term));
            }
            tenure.set_end(self.view.deadline());
        }
        let role = if self.view.leads() { Role::Leading } else { Role::Standby };
        self.role.send_if_modified(|known| std::mem::replace(known, role) != role);
    }

    /// Writes an empty holder if the lease names us. A claim whose answer was lost may still arrive; it is refused for
    /// its resourceVersion, or it makes ours be refused and we read again.
    async fn vacate(&mut self) {
        for _ in 0..VACATE_CALLS {
            match (self.view.names_us(), &self.lease) {
                (None, _) => self.read().await,
                (Some(true), Some(lease)) => {
                    let vacant = vacant(lease, self.clock.now());
                    let answer = self.call(Request::Replace(erase(&vacant))).await;
                    let now = (self.boot)();
                    match answer {
                        Ok(lease) => self.take_in(lease, now),
                        Err(error) => self.failed(&error, now),
                    }
                }
                (Some(_), _) => return,
            }
        }
        if self.view.names_us() != Some(false) {
            tracing::warn!(
                lease = self.candidate.lease,
                "did not give the lease back; it will run out"
            );
        }
    }

    /// One call, cut where our own validity ends: an answer that comes later is of no use.
    async fn call(&self, request: Request) -> Result<Option<Lease>, ApiError> {
        let left = self.view.deadline().map(|deadline| deadline.saturating_sub((self.boot)()));
        let limit = CALL_DEADLINE.min(left.unwrap_or(CALL_DEADLINE));
        let Ok(answer) = tokio::time::timeout(limit, self.cluster.call(request)).await else {
            return Err(ApiError::Unknown { detail: "no answer within the deadline".to_owned() });
        };
        match answer? {
            Answer::Object(object) => typed(*object).map(Some),
            Answer::Absent => Ok(None),
            Answer::Objects(_) | Answer::Done => {
                Err(ApiError::Unreadable { detail: "not a single object".to_owned() })
            }
        }
    }

    fn target(&self) -> Target {
        Target::new::<Lease>(Some(&self.candidate.namespace), &self.candidate.lease)
    }
}
