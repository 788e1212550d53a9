//! The probes of a container: whether it has started, whether it is ready, whether it must be started again.

mod attempt;
mod streak;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use self::attempt::Attempt;
use self::streak::Streak;
use super::launch::Launch;
use crate::guard::Guard;

/// What came of one attempt of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// Which probe: `Startup`, `Liveness` or `Readiness`.
    pub(super) probe: &'static str,
    /// Why the attempt failed, in kubelet's words.
    pub(super) failure: Option<String>,
    /// What has changed by it.
    pub(super) effect: Option<Effect>,
}

/// What has changed for a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Started,
    Ready(bool),
    /// It must be killed and started again; the grace is the probe's own, if it has one.
    Kill {
        grace: Option<Duration>,
    },
}

/// The probes of one run of a container.
pub(super) struct Probes {
    startup: Option<Prober>,
    liveness: Option<Prober>,
    readiness: Option<Prober>,
}

impl Probes {
    /// The probes of a container that has just been started.
    pub(super) fn of(
        container: &Container,
        address: IpAddr,
        launch: &Launch,
        guard: &Arc<Guard>,
    ) -> Self {
        let since = Instant::now();
        let prober = |kind: Kind, probe: &Option<Probe>| {
            let probe = probe.as_ref()?;
            let attempt = Attempt::of((kind.name(), probe), container, address, (launch, guard));
            Some(Prober::new((kind, probe), attempt, since))
        };
        Self {
            startup: prober(Kind::Startup, &container.startup_probe),
            liveness: prober(Kind::Liveness, &container.liveness_probe),
            readiness: prober(Kind::Readiness, &container.readiness_probe),
        }
    }

    /// Whether the container counts as started, and as ready, before anything is probed.
    pub(super) fn passed_at_once(&self) -> (bool, bool) {
        let started = self.startup.is_none();
        (started, started && self.readiness.is_none())
    }

    /// Probes for as long as it is polled, and sends what it finds. Nothing else is probed before the container has
    /// started.
    pub(super) async fn follow(self, found: UnboundedSender<Finding>) {
        if let Some(startup) = self.startup {
            startup.follow(&found, |effect| *effect == Effect::Started).await;
        }
        let follow = async |prober: Option<Prober>| {
            if let Some(prober) = prober {
                prober.follow(&found, |_| false).await;
            }
        };
        tokio::join!(follow(self.liveness), follow(self.readiness));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    fn streak(self, probe: &Probe) -> Streak {
        match self {
            Self::Startup => Streak::undecided(probe),
            Self::Liveness => Streak::passing(probe),
            Self::Readiness => Streak::failing(probe),
        }
    }
}

/// One probe at its period.
struct Prober {
    kind: Kind,
    attempt: Attempt,
    streak: Streak,
    first: Instant,
    period: Duration,
    timeout: Duration,
    grace: Option<Duration>,
}

impl Prober {
    fn new((kind, probe): (Kind, &Probe), attempt: Attempt, since: Instant) -> Self {
        let seconds = |value: Option<i32>, default: u64| {
            Duration::from_secs(value.and_then(|it| u64::try_from(it).ok()).unwrap_or(default))
        };
        let grace = probe.termination_grace_period_seconds.and_then(|it| u64::try_from(it).ok());
        Self {
            kind,
            attempt,
            streak: kind.streak(probe),
            first: since + seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            grace: grace.map(Duration::from_secs),
        }
    }

    /// Sends what each attempt finds, until an effect is the `last`.
    async fn follow(mut self, found: &UnboundedSender<Finding>, last: fn(&Effect) -> bool) {
        let mut ticks = self.ticks();
        loop {
            ticks.tick().await;
            let failure = self.attempt.run(self.timeout).await.err();
            let effect = self.streak.count(failure.is_none()).and_then(|it| self.effect(it));
            let is_last = effect.as_ref().is_some_and(last);
            // Nobody listens once the container has ended.
            let _ = found.send(Finding { probe: self.kind.name(), failure, effect });
            if is_last {
                return;
            }
        }
    }

    /// At once if the first attempt is overdue, as that of a container that took long to start.
    fn ticks(&self) -> Interval {
        let mut ticks = interval_at(self.first.max(Instant::now()), self.period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    fn effect(&self, passes: bool) -> Option<Effect> {
        match (self.kind, passes) {
            (Kind::Startup, true) => Some(Effect::Started),
            (Kind::Readiness, passes) => Some(Effect::Ready(passes)),
            (Kind::Liveness, true) => None,
            (Kind::Startup | Kind::Liveness, false) => Some(Effect::Kill { grace: self.grace }),
        }
    }
}
