//! One controller process: its views, its two loops, and passes that are made when they are asked for.

use std::sync::Arc;

use clap::Parser as _;
use diskimage_controller::Args;
use diskimage_controller::exchange::Correspondence;
use diskimage_controller::image::Image;
use diskimage_controller::progress::Answer;
use diskimage_controller::queue::{PolicySource, Queue, queue};
use diskimage_controller::views::{Views, queue_key};
use otctl_kit::cluster::Cluster;
use otctl_kit::store::Key;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use serde_json::json;
use testbed::check::Linted;
use testbed::clock::VirtualClock;
use testbed::{Feed, World};

use super::objects;
use super::people;
use super::promises::Promises;
use crate::choices::Choices;
use crate::cluster::Direct;
use crate::controller::{Controller, Process};
use crate::people::{let_act, let_time_pass};

pub(super) struct Images {
    process: Process,
    queue: Linted<Queue>,
    image: Linted<Image>,
    talk: Correspondence,
}

impl Controller for Images {
    const STEPS: usize = 24;
    type Promises = Promises;

    fn populate(world: &World, choices: &mut Choices<'_>) {
        objects::populate(world, choices);
    }

    fn new(world: &World, clock: &VirtualClock) -> Self {
        let direct = Arc::new(Direct::new(world));
        let cluster: Arc<dyn Cluster> = direct.clone();
        let (views, talk) = (Views::default(), Correspondence::default());
        let policy = PolicySource {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            name: DEFAULT_POLICY_NAME.to_owned(),
        };
        let queue = queue(views.clone(), cluster.clone(), policy, Arc::new(clock.clone()));
        let settings = Arc::new(Args::parse_from(["diskimage-controller"]).settings);
        let image = Image::new(views.clone(), cluster, settings, talk.clone());
        let process = Process::new(clock, direct, feeds(&views));
        Self { process, queue: Linted(queue), image: Linted(image), talk }
    }

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn pass_all(&self) {
        self.process.pass(&self.queue, &queue_key());
        self.images().iter().for_each(|key| self.process.pass(&self.image, key));
    }

    fn go_on(&mut self, what: u8, choices: &mut Choices<'_>) {
        match what % 10 {
            0..=3 => self.pass(choices.below(5)),
            4 => self.process.hear_one(choices.below(9)),
            5 => self.process.hear_all(),
            6 => let_act(&self.process.world, choices),
            7 => let_time_pass(&self.process.world, choices),
            8 => self.be_told(choices),
            _ => people::act(&self.process.world, choices),
        }
    }
}

impl Images {
    /// Of the queue, or of one of the images.
    fn pass(&self, which: usize) {
        match which.checked_sub(1).and_then(|at| self.images().into_iter().nth(at)) {
            Some(key) => self.process.pass(&self.image, &key),
            None => self.process.pass(&self.queue, &queue_key()),
        }
    }

    fn images(&self) -> Vec<Key> {
        self.process.keys("VMDiskImage")
    }

    /// An import tells how far it is, or says nothing.
    fn be_told(&self, choices: &mut Choices<'_>) {
        let jobs = self.process.world.list("Job");
        let Some(job) = jobs.get(choices.below(jobs.len().max(1))) else { return };
        let progress = json!({
            "phase": choices.of(&["Fetching", "Verifying", "Converting", "Done"]),
            "bytes": choices.bytes(), "totalBytes": choices.bytes(), "received": choices.bytes(),
            "percent": choices.below(256),
        });
        let answer = match choices.below(4) {
            0 => Answer::Mute,
            1 => Answer::Unusable,
            _ => Answer::Told(
                serde_json::from_value(progress).expect("it has the shape of progress"),
            ),
        };
        self.talk.book.note(job["metadata"]["uid"].as_str().unwrap_or_default(), answer);
    }
}

/// Watches as the product has them.
fn feeds(views: &Views) -> Vec<Feed> {
    vec![
        Feed::new(&views.images),
        Feed::new(&views.queues),
        Feed::new(&views.policies),
        Feed::new(&views.jobs),
        Feed::new(&views.pods),
        Feed::new(&views.claims),
        Feed::new(&views.snapshots),
        Feed::new(&views.storage_classes),
        Feed::new(&views.snapshot_classes),
    ]
}
