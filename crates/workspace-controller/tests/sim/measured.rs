//! What is counted is what has happened, as the history of every version tells it: once each, in any order, with another
//! controller beside and after a death at any write.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use otctl_kit::args::Build;
use otctl_kit::metrics::{Leads, Metrics};
use otctl_types::workspace::Phase;
use otctl_types::{Workspace, condition};
use serde_json::json;
use testbed::sim::{Connection, Order, every_crash_point};
use testbed::{Health, Instance, Sim};
use workspace_controller::metrics::measure;

use crate::builders::{container, synced_image, workspace};
use crate::controller::{edit, furnish, instance_over, limit, views};
use crate::orders::{five, meanwhile, orders};

const MINUTE: Duration = Duration::from_secs(60);

/// What the processes of a simulation have counted, those that died included.
#[derive(Clone, Default)]
struct Counted(Rc<Mutex<Vec<Metrics>>>);

impl Counted {
    fn instance(&self, connection: &Connection, leads: bool) -> Instance {
        let (views, registry) = (views(), Metrics::new(Build::of("test")));
        let leads: Leads = Arc::new(move || leads);
        measure(&registry, &views, Arc::new(connection.clock.clone()), leads);
        self.0.lock().unwrap().push(registry);
        instance_over(&views, connection)
    }

    /// Sums over all processes, by series.
    fn sums(&self) -> HashMap<String, u64> {
        let mut sums = HashMap::new();
        for registry in self.0.lock().unwrap().iter() {
            for line in registry.render().unwrap().lines() {
                let Some((series, value)) = line.rsplit_once(' ') else { continue };
                *sums.entry(series.to_owned()).or_default() += value.parse::<u64>().unwrap_or(0);
            }
        }
        sums
    }

    fn told(&self) -> Truth {
        let sums = self.sums();
        let count = |series: &str| sums.get(series).copied().unwrap_or(0);
        let turns = |end: &str| count(&format!("otctl_workspace_turns_total{{end=\"{end}\"}}"));
        let ready = |wish: &str| {
            count(&format!("otctl_workspace_ready_duration_seconds_count{{since=\"{wish}\"}}"))
        };
        Truth {
            admissions: count("otctl_workspace_queue_wait_seconds_count"),
            ready: turns("ready"),
            timed_out: turns("timed_out"),
            refused: turns("refused"),
            given_back: turns("given_back"),
            stopped: turns("stopped"),
            created: ready("creation"),
            fulfilled: ready("creation") + ready("resumption") + ready("edit"),
            recovered: count("otctl_workspace_recovery_duration_seconds_count"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Truth {
    /// Turns that began.
    admissions: u64,
    /// Turns by their end.
    ready: u64,
    timed_out: u64,
    refused: u64,
    given_back: u64,
    stopped: u64,
    /// Workspaces that became ready for the first time, and were neither suspended nor Failed before.
    created: u64,
    /// How often one became ready after it was created, resumed or edited.
    fulfilled: u64,
    /// How often one became ready again by itself.
    recovered: u64,
}

impl Truth {
    /// As every version of every Workspace tells it.
    fn of(sim: &Sim) -> Self {
        let versions: Vec<Workspace> = sim.world.history(|versions| {
            let workspaces = versions.iter().filter(|version| version.id.kind == "Workspace");
            workspaces.map(|it| serde_json::from_value(it.object.clone()).unwrap()).collect()
        });
        let mut lives: HashMap<String, Vec<Workspace>> = HashMap::new();
        for version in versions {
            lives.entry(version.metadata.uid.clone().unwrap()).or_default().push(version);
        }
        let mut truth = Self::default();
        lives.values().for_each(|life| truth.add(life));
        truth
    }

    fn add(&mut self, life: &[Workspace]) {
        let open = |it: &Workspace| Some(it.status.as_ref()?.open_turn.as_ref()?.number);
        let nothing = Workspace::new("before", life[0].spec.clone());
        let mut readiness = Readiness::default();
        for (before, after) in std::iter::once(&nothing).chain(life).zip(life) {
            match (open(before), open(after)) {
                (None, Some(_)) => self.admissions += 1,
                (Some(_), None) => self.add_end(after),
                (was, is) => assert_eq!(was, is, "one turn ends before another begins"),
            }
            readiness.see(after, self);
        }
        let was_open = life.last().is_some_and(|last| open(last).is_some());
        self.stopped += u64::from(was_open);
    }

    fn add_end(&mut self, after: &Workspace) {
        let status = after.status.as_ref().unwrap();
        let ready = condition::find(&status.conditions, condition::READY).unwrap();
        let containers = condition::is_true(&status.conditions, condition::CONTAINERS_READY);
        let machines = condition::is_true(&status.conditions, condition::VIRTUAL_MACHINES_READY);
        let end = match ready.reason.as_str() {
            "Suspended" | "Deleting" => &mut self.stopped,
            _ if status.started_parts.is_empty() => &mut self.given_back,
            _ if status.ticket.is_some() => &mut self.given_back,
            _ if containers && machines => &mut self.ready,
            "Rejected" => &mut self.refused,
            _ => &mut self.timed_out,
        };
        *end += 1;
    }

    fn ends(&self) -> u64 {
        self.ready + self.timed_out + self.refused + self.given_back + self.stopped
    }

    fn fits_into(&self, other: &Self) -> bool {
        let pairs = [
            (self.admissions, other.admissions),
            (self.ready, other.ready),
            (self.timed_out, other.timed_out),
            (self.refused, other.refused),
            (self.given_back, other.given_back),
            (self.stopped, other.stopped),
            (self.created, other.created),
            (self.fulfilled + self.recovered, other.fulfilled + other.recovered),
        ];
        pairs.into_iter().all(|(mine, theirs)| mine <= theirs)
    }
}

/// Whether a Workspace was ready, as its versions show one after the other.
#[derive(Default)]
struct Readiness {
    is_ready: bool,
    was_ready: bool,
    was_stopped: bool,
    has_failed: bool,
    generation: Option<i64>,
    is_edited: bool,
}

impl Readiness {
    fn see(&mut self, version: &Workspace, truth: &mut Truth) {
        let Some(status) = &version.status else { return };
        match status.phase {
            Some(Phase::Suspended) => self.was_stopped = true,
            Some(Phase::Failed) => self.has_failed = true,
            Some(Phase::Provisioning | Phase::Ready) | None => {}
        }
        let is_ready = condition::is_true(&status.conditions, condition::READY);
        if is_ready && !self.is_ready && !self.has_failed {
            let is_wished = !self.was_ready || self.was_stopped || self.is_edited;
            truth.created += u64::from(!self.was_ready && !self.was_stopped);
            *(if is_wished { &mut truth.fulfilled } else { &mut truth.recovered }) += 1;
        }
        if self.is_ready && !is_ready {
            self.is_edited = status.observed_generation != self.generation;
        }
        if is_ready {
            *self = Self {
                is_ready,
                was_ready: true,
                generation: status.observed_generation,
                ..Self::default()
            };
        }
        self.is_ready = is_ready;
    }
}

#[test]
fn everything_is_counted_once_in_any_order() {
    for order in orders() {
        let counted = Counted::default();
        let of_one = counted.clone();
        let mut sim = Sim::new(order).with_process("one", move |at| of_one.instance(at, true));
        furnish(&sim.world);
        limit(&sim.world, "2");
        five(&sim);
        meanwhile(&mut sim);
        let truth = Truth::of(&sim);
        assert_eq!(counted.told(), truth, "{order:?}\n{}", sim.story);
        assert!(truth.created >= 3 && truth.ends() == truth.admissions, "{truth:?}");
    }
}

/// Starts that are in time and too late, a wait for an image, an added entry, a suspension, and a part that breaks.
#[test]
fn each_kind_of_start_is_counted_as_what_it_is() {
    let counted = Counted::default();
    let of_one = counted.clone();
    let mut sim = Sim::new(Order::Fixed).with_process("one", move |at| of_one.instance(at, true));
    furnish(&sim.world);
    limit(&sim.world, "2");
    synced_image(&sim.world, "debian");
    workspace("quick").machine("db", "debian").container("api").create(&sim.world);
    sim.settle();
    edit(&sim.world, "quick", |spec| spec.containers.push(container("web")));
    sim.settle();
    edit(&sim.world, "quick", |spec| spec.suspended = true);
    sim.settle();
    edit(&sim.world, "quick", |spec| spec.suspended = false);
    sim.settle();
    sim.world.fare("slow", Health::NeverReady);
    workspace("late").container("slow").create(&sim.world);
    sim.settle();
    sim.world.fare("slow", Health::Fine);
    sim.settle();
    let deployment = crate::controller::at("quick--api");
    sim.world.edit("Deployment", &deployment, |it| it["spec"]["replicas"] = json!(3));
    sim.settle();
    let expected = Truth {
        admissions: 4,
        ready: 3,
        timed_out: 1,
        created: 2,
        fulfilled: 4,
        recovered: 1,
        ..Truth::default()
    };
    let timed_out = sim.world.history(|versions| {
        let events = versions.iter().filter(|version| version.id.kind == "Event");
        events.filter(|it| it.object["reason"] == "ProvisioningTimedOut").count()
    });
    assert_eq!((counted.told(), timed_out), (expected, 1), "\n{}", sim.story);
    assert_eq!(Truth::of(&sim), expected, "\n{}", sim.story);
}

/// Whatever the other does, the one that counts never counts too much; and alone it is the other that tells nothing.
#[test]
fn of_two_that_work_at_once_only_the_leader_counts() {
    for order in orders() {
        let (leading, standing_by) = (Counted::default(), Counted::default());
        let (one, two) = (leading.clone(), standing_by.clone());
        let mut sim = Sim::new(order)
            .with_process("one", move |at| one.instance(at, true))
            .with_process("two", move |at| two.instance(at, false));
        furnish(&sim.world);
        limit(&sim.world, "2");
        five(&sim);
        meanwhile(&mut sim);
        let (told, truth) = (leading.told(), Truth::of(&sim));
        assert!(told.ends() > 0, "{order:?}\n{}", sim.story);
        assert!(told.fits_into(&truth), "{order:?}: {told:?}, but {truth:?}\n{}", sim.story);
        assert_eq!(standing_by.told(), Truth::default(), "{order:?}\n{}", sim.story);
    }
}

/// A death takes what was not counted yet, one write's worth, and nothing is counted twice for it. An answer that is
/// lost takes nothing.
#[test]
fn a_death_at_any_write_costs_one_count_at_most() {
    let counted = Counted::default();
    let make = || {
        let of_one = counted.clone();
        counted.0.lock().unwrap().clear();
        let sim =
            Sim::new(Order::Fixed).with_process("controller", move |at| of_one.instance(at, true));
        furnish(&sim.world);
        limit(&sim.world, "1");
        sim
    };
    let scenario = |sim: &mut Sim| {
        for name in ["lab", "next"] {
            workspace(name).container("api").create(&sim.world);
        }
        sim.settle();
        // Whoever comes later tells by the times that it was ready before.
        sim.advance(MINUTE);
        edit(&sim.world, "lab", |spec| spec.suspended = true);
        sim.settle();
        sim.advance(MINUTE);
        edit(&sim.world, "lab", |spec| spec.suspended = false);
        sim.settle();
    };
    let judge = |sim: &Sim| {
        let (told, truth) = (counted.told(), Truth::of(sim));
        let deaths = u64::try_from(counted.0.lock().unwrap().len() - 1).unwrap();
        assert!(told.fits_into(&truth), "{told:?}, but {truth:?}\n{}", sim.story);
        let missed = [
            truth.admissions - told.admissions,
            truth.ends() - told.ends(),
            truth.fulfilled + truth.recovered - told.fulfilled - told.recovered,
        ];
        assert!(missed.iter().all(|it| *it <= deaths), "{told:?}, but {truth:?}\n{}", sim.story);
        if deaths == 0 {
            assert_eq!(told, truth, "{}", sim.story);
        }
    };
    every_crash_point(make, scenario, judge);
}
