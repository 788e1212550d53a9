//! What is counted is what has happened, as the history of every version tells it: once each, in any order, with late
//! views, with another controller beside and after a death at any write.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use diskimage_controller::exchange::Correspondence;
use diskimage_controller::metrics::measure;
use diskimage_controller::views::Views;
use otctl_kit::args::Build;
use otctl_kit::metrics::{Leads, Metrics};
use otctl_types::VMDiskImage;
use otctl_types::import::ImportReason;
use testbed::builders::{image, policy, storage};
use testbed::sim::{Connection, Order, every_crash_point};
use testbed::{Instance, Sim};

use crate::controller::instance_over;
use crate::orders::{orders, six_images};

/// What the processes of a simulation have counted, those that died included.
#[derive(Clone, Default)]
struct Counted(Rc<Mutex<Vec<Metrics>>>);

impl Counted {
    fn instance(&self, connection: &Connection, leads: bool) -> Instance {
        let (views, talk) = (Views::default(), Correspondence::default());
        let registry = Metrics::new(Build::of("test"));
        let leads: Leads = Arc::new(move || leads);
        let clock = Arc::new(connection.clock.clone());
        measure(&registry, &views, clock, (talk.traffic.clone(), leads));
        self.0.lock().unwrap().push(registry);
        instance_over(&views, connection, talk)
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

    /// Attempts by reason, admissions, syncs, and bytes.
    fn told(&self) -> Truth {
        let sums = self.sums();
        let count = |series: &str| sums.get(series).copied().unwrap_or(0);
        let mut attempts = BTreeMap::new();
        for (series, value) in sums.iter().filter(|(_, value)| **value > 0) {
            if let Some((_, reason)) = series.split_once(",reason=\"")
                && series.starts_with("otctl_image_attempts_total")
            {
                attempts.insert(reason.trim_end_matches("\"}").to_owned(), *value);
            }
        }
        Truth {
            attempts,
            admissions: count("otctl_image_queue_wait_seconds_count"),
            syncs: count("otctl_image_sync_duration_seconds_count"),
            bytes: count("otctl_image_received_bytes_total"),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Truth {
    attempts: BTreeMap<String, u64>,
    admissions: u64,
    syncs: u64,
    bytes: u64,
}

impl Truth {
    /// As every version of every image tells it.
    fn of(sim: &Sim) -> Self {
        let images: Vec<VMDiskImage> = sim.world.history(|versions| {
            let images = versions.iter().filter(|version| version.id.kind == "VMDiskImage");
            images.map(|it| serde_json::from_value(it.object.clone()).unwrap()).collect()
        });
        let (mut ends, mut opened) = (BTreeMap::new(), BTreeSet::new());
        for image in &images {
            let uid = image.metadata.uid.clone();
            let status = image.status.clone().unwrap_or_default();
            opened.extend(status.open_attempt.map(|open| (uid.clone(), open.number)));
            for attempt in status.attempts {
                ends.entry((uid.clone(), attempt.number)).or_insert(attempt);
            }
        }
        let mut truth = Self::default();
        for (attempt, end) in &ends {
            let reason = end.reason.clone().unwrap();
            truth.syncs += u64::from(reason == "Succeeded");
            *truth.attempts.entry(reason).or_default() += 1;
            truth.admissions += 1;
            let bytes = end.bytes.filter(|_| opened.contains(attempt)).unwrap_or(0);
            truth.bytes += u64::try_from(bytes).unwrap();
        }
        truth
    }

    fn ends(&self) -> u64 {
        self.attempts.values().sum()
    }
}

#[test]
fn everything_is_counted_once_in_any_order() {
    for order in orders() {
        let counted = Counted::default();
        let of_one = counted.clone();
        let mut sim = Sim::new(order).with_process("one", move |at| of_one.instance(at, true));
        storage(&sim.world);
        six_images(&sim);
        sim.settle();
        let truth = Truth::of(&sim);
        assert_eq!(counted.told(), truth, "{order:?}\n{}", sim.story);
        assert!(truth.syncs == 4 && truth.attempts.len() == 4, "{truth:?}");
    }
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
        storage(&sim.world);
        six_images(&sim);
        sim.settle();
        let (told, truth) = (leading.told(), Truth::of(&sim));
        assert!(told.ends() > 0, "{order:?}\n{}", sim.story);
        let too_many =
            told.attempts.iter().find(|(reason, count)| **count > truth.attempts[*reason]);
        assert_eq!(too_many, None, "{order:?}\n{}", sim.story);
        assert!(told.syncs <= truth.syncs && told.bytes <= truth.bytes, "{told:?} {truth:?}");
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
        storage(&sim.world);
        policy().concurrency(1).set("retryBackoffDuration", "5m").apply(&sim.world);
        sim
    };
    let scenario = |sim: &mut Sim| {
        image("lab/a").import_fails(ImportReason::ServerError).create(&sim.world);
        image("lab/b").snapshot_class("snapshots").create(&sim.world);
        sim.settle();
    };
    let judge = |sim: &Sim| {
        let (told, truth) = (counted.told(), Truth::of(sim));
        let deaths = counted.0.lock().unwrap().len() - 1;
        let missed = truth.ends() - told.ends();
        assert!(missed <= deaths as u64, "{told:?}, but {truth:?}\n{}", sim.story);
        assert!(told.bytes <= truth.bytes && told.syncs <= truth.syncs, "{told:?} {truth:?}");
        if deaths == 0 {
            assert_eq!(told, truth, "{}", sim.story);
        }
    };
    every_crash_point(make, scenario, judge);
}
