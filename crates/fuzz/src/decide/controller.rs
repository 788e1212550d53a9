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
use otctl_kit::reconciler::Reconciler;
use otctl_kit::store::Key;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME};
use serde_json::json;
use testbed::check::Linted;
use testbed::clock::VirtualClock;
use testbed::{Feed, World};

use super::choices::Choices;
use crate::cluster::{Direct, make};

pub(super) struct Controller {
    world: World,
    clock: VirtualClock,
    direct: Arc<Direct>,
    feeds: Vec<Feed>,
    queue: Linted<Queue>,
    image: Linted<Image>,
    talk: Correspondence,
}

impl Controller {
    /// Started just now: it has seen what is there.
    pub(super) fn new(world: &World, clock: &VirtualClock) -> Self {
        let direct = Arc::new(Direct::new(world));
        let cluster: Arc<dyn Cluster> = direct.clone();
        let (views, talk) = (Views::default(), Correspondence::default());
        let policy = PolicySource {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            name: DEFAULT_POLICY_NAME.to_owned(),
        };
        let queue = queue(views.clone(), cluster.clone(), policy, Arc::new(clock.clone()));
        let settings = Arc::new(Args::parse_from(["diskimage-controller"]).settings);
        let image = Image::new(views.clone(), cluster.clone(), settings, talk.clone());
        let mut feeds = vec![
            Feed::new(&views.images),
            Feed::new(&views.queues),
            Feed::new(&views.policies),
            Feed::new(&views.jobs),
            Feed::new(&views.pods),
            Feed::new(&views.claims),
            Feed::new(&views.snapshots),
            Feed::new(&views.storage_classes),
            Feed::new(&views.snapshot_classes),
        ];
        feeds.iter_mut().for_each(|feed| feed.relist(world));
        let (world, clock) = (world.clone(), clock.clone());
        let (queue, image) = (Linted(queue), Linted(image));
        Self { world, clock, direct, feeds, queue, image, talk }
    }

    /// Of the queue, or of one of the images.
    pub(super) fn pass(&self, which: usize) {
        match which.checked_sub(1).and_then(|at| self.images().into_iter().nth(at)) {
            Some(key) => self.make(&self.image, &key),
            None => self.make(&self.queue, &queue_key()),
        }
    }

    pub(super) fn pass_all(&self) {
        self.make(&self.queue, &queue_key());
        for key in self.images() {
            self.make(&self.image, &key);
        }
    }

    fn make<R: Reconciler>(&self, reconciler: &R, key: &Key) {
        make(reconciler, &*self.direct, key, &self.clock);
    }

    fn images(&self) -> Vec<Key> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let images =
            self.world.list("VMDiskImage").into_iter().map(|image| image["metadata"].clone());
        images.map(|meta| Key::new(&text(&meta["namespace"]), &text(&meta["name"]))).collect()
    }

    pub(super) fn hear_one(&mut self, which: usize) {
        self.feeds[which].deliver(&self.world);
    }

    pub(super) fn hear_all(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed.deliver_all(&self.world));
    }

    /// The request after so many others is lost, or its answer is.
    pub(super) fn be_in_trouble(&self, others: usize, is_carried_out: bool) {
        self.direct.be_in_trouble(others, is_carried_out);
    }

    /// Every request is answered again.
    pub(super) fn be_out_of_trouble(&self) {
        self.direct.be_out_of_trouble();
    }

    /// An import tells how far it is, or says nothing.
    pub(super) fn be_told(&self, choices: &mut Choices<'_>) {
        let jobs = self.world.list("Job");
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
