//! The life of one image, write by write, and what it leaves: the measure for lives with faults.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use image_server::{Behaviour, Content, Fault, On};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use local_cluster::node::PodName;
use otctl_types::diskimage::Phase;
use otctl_types::names::ROLE_LABEL;
use testbed::check;
use testbed::fault::{When, at};
use testbed::mask::{EndState, difference};
use testbed::proxy::Entry;
use testbed::world::Version;

use super::SIZE;
use super::proxied::Proxied;
use crate::end_state::at_rest;
use crate::stage::{PATIENCE, Stage, pod_phase, until, well_behaved};
use crate::timeline::Timeline;

/// The image of every life, in a namespace of its own.
const NAME: &str = "disk";

/// What happens to an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It succeeds.
    Success,
    /// Its first import is killed; the second succeeds.
    Retry,
    /// It is deleted in the middle of its import.
    Deletion,
}

/// A write of a life without a death: its line with what differs from life to life left open, and which of those.
pub(crate) struct Write {
    pub(super) line: String,
    pub(super) nth: usize,
}

/// A life without a death.
pub(super) struct Clean {
    pub(super) writes: Vec<Write>,
    /// The writes in its namespace, also those before what is looked at. The ledger's are shared with other lives.
    pub(super) own: Vec<Entry>,
    pub(super) end: EndState,
    pub(super) namespace: String,
}

/// A cluster on which lives are lived, behind one proxy.
pub(super) struct Lives {
    // Before the stage: when a test fails, its log is told before the directory goes.
    pub(super) controller: Proxied,
    pub(super) stage: Stage,
    timeline: Timeline,
}

impl Lives {
    /// With a controller that rests.
    pub(super) async fn set(concurrency: &str, flags: &[&str]) -> Self {
        let stage = Stage::set(&[("concurrency", concurrency)]).await;
        let timeline = Timeline::open(&stage.client).await;
        let mut controller = Proxied::on(&stage, "faulty", flags).await;
        controller.start();
        stage.await_ledger("the queue rests", |ledger| ledger.limit.is_some()).await;
        Self { stage, controller, timeline }
    }

    /// Ends it, after a look at everything that ever was.
    pub(super) async fn finish(mut self) {
        check::expect_none(&check::ledger::intact(&self.timeline.history().await));
        self.controller.stop().await;
        self.stage.finish().await;
    }

    /// A life without a fault.
    pub(super) async fn clean(&self, life: Life) -> Clean {
        let (namespace, start) = (self.namespace().await, self.controller.asked());
        life.begin(&self.stage, &namespace).await;
        let from = self.quiet().await;
        life.go(&self.stage, &namespace).await;
        let end = at_rest(async || self.stage.end_state_in(&namespace).await).await;
        // What runs on after its image is gone keeps the slot, and who waits for that writes nothing meanwhile.
        until("its slot is free", async || {
            let active = self.stage.ledger().await.active;
            active.iter().all(|entry| entry.namespace != namespace).then_some(())
        })
        .await;
        self.quiet().await;
        let own = self.writes_in(&namespace, start);
        let writes = told(&self.controller.writes(from), &namespace);
        assert!(!writes.is_empty(), "{life:?}: nothing was written that one could die at");
        Clean { writes, own, end, namespace }
    }

    /// A namespace for one life.
    pub(super) async fn namespace(&self) -> String {
        self.stage.cluster().namespace("life").await.unwrap()
    }

    /// The writes in a namespace from there on.
    pub(super) fn writes_in(&self, namespace: &str, from: usize) -> Vec<Entry> {
        let mut log = self.controller.proxy.log_since(from);
        log.retain(|entry| entry.call.verb.is_write() && entry.call.name.starts_with(namespace));
        log
    }

    /// Every version so far of what the rules of the ledger speak of.
    pub(super) async fn history(&mut self) -> Vec<Version> {
        self.timeline.history().await
    }

    /// Waits until nothing was written for a while; how much was asked until then.
    pub(super) async fn quiet(&self) -> usize {
        let asked = self.controller.asked();
        at_rest(async || Some(self.controller.writes(asked).len())).await;
        self.controller.asked()
    }

    /// Waits until what is left in a namespace is what should be, and its slot is free.
    pub(super) async fn expect_end(&self, told: &str, namespace: &str, wanted: &EndState) {
        let (deadline, mut last) = (Instant::now() + PATIENCE, None);
        loop {
            if let Some(end) = self.stage.end_state_in(namespace).await {
                let differs = difference(wanted, &end);
                let active = self.stage.ledger().await.active;
                if differs.is_empty() && active.iter().all(|entry| entry.namespace != namespace) {
                    return;
                }
                last = Some(differs);
            }
            if Instant::now() > deadline {
                let last = last.as_deref().unwrap_or("it has not settled");
                panic!("{told}: it ends otherwise:\n{last}{}", self.stage.told(namespace).await);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Write {
    /// Whether it is to an object that all lives share.
    pub(super) fn is_shared(&self) -> bool {
        !self.line.contains(PLACE)
    }

    /// The same write in the life of this name.
    pub(crate) fn of(&self, name: &str) -> When {
        at(&self.line.replace(PLACE, name)).nth(self.nth)
    }
}

impl Life {
    /// What comes before the writes that are looked at.
    pub(super) async fn begin(self, stage: &Stage, namespace: &str) {
        match self {
            Self::Success | Self::Retry => self.serve(stage),
            Self::Deletion => {
                self.serve(stage);
                self.create(stage, namespace).await;
                self.running_import(stage, namespace).await;
            }
        }
    }

    /// The life, until it is over.
    pub(super) async fn go(self, stage: &Stage, namespace: &str) {
        match self {
            Self::Success => self.create(stage, namespace).await,
            Self::Retry => {
                self.create(stage, namespace).await;
                let pod = PodName::new(namespace, self.running_import(stage, namespace).await);
                let killed = stage.cluster().nodes().iter().any(|node| node.kill(&pod).is_ok());
                assert!(killed, "no node runs {pod:?}");
            }
            Self::Deletion => {
                let images = stage.images_in(namespace);
                images.delete(NAME, &DeleteParams::default()).await.unwrap();
                return until("the image is gone", async || {
                    images.get_opt(NAME).await.unwrap().is_none().then_some(())
                })
                .await;
            }
        }
        until(&format!("{self:?} in {namespace} succeeds"), async || {
            let image = stage.images_in(namespace).get(NAME).await.unwrap();
            (image.status.as_ref()?.phase == Some(Phase::Succeeded)).then_some(())
        })
        .await;
    }

    /// Where the source of its image is.
    fn path(self) -> &'static str {
        match self {
            Self::Success => "whole",
            Self::Retry => "stalls-once",
            Self::Deletion => "stalls",
        }
    }

    /// But for a success, the first transfer stands still in the middle.
    fn serve(self, stage: &Stage) {
        let behaviour = match self {
            Self::Success => well_behaved(),
            Self::Retry | Self::Deletion => {
                Behaviour::new().then(Fault::stall(SIZE / 2).on(On::Data))
            }
        };
        stage.server.add(self.path(), Content::generated(SIZE, 1));
        stage.server.behave(self.path(), behaviour).unwrap();
    }

    async fn create(self, stage: &Stage, namespace: &str) {
        let image = stage.image_of(NAME, &stage.server.url(self.path()));
        stage.create_in(namespace, image).await;
    }

    /// The name of the import pod, once it runs and its transfer stands still.
    async fn running_import(self, stage: &Stage, namespace: &str) -> String {
        let pods: Api<Pod> = Api::namespaced(stage.client.clone(), namespace);
        let imports = ListParams::default().labels(&format!("{ROLE_LABEL}=import"));
        until("an import runs", async || {
            let pods = pods.list(&imports).await.unwrap().items;
            let is_open = stage.server.counts(self.path()).open_data == 1;
            pods.iter().find(|pod| pod_phase(pod) == "Running" && is_open).map(|pod| pod.name_any())
        })
        .await
    }
}

/// Stands for the name of a life in the line of a write: of an image that is its namespace, of a workspace its own name.
const PLACE: &str = "{life}";

/// The writes of the life of this name as they are found in another one.
pub(crate) fn told(lines: &[String], name: &str) -> Vec<Write> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let lines = lines.iter().map(|line| open(line, name));
    lines
        .map(|line| {
            let nth = seen.entry(line.clone()).or_default();
            *nth += 1;
            Write { nth: *nth, line }
        })
        .collect()
}

/// A line with what is made from UIDs and names left open.
fn open(line: &str, name: &str) -> String {
    let is_hash = |word: &str| word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    let line = line.replace(name, PLACE);
    let words: Vec<&str> = line.split_inclusive(['-', '.', ' ', '/']).collect();
    let opened = words.iter().map(|word| {
        let end = word.len() - usize::from(word.ends_with(['-', '.', ' ', '/']));
        if is_hash(&word[..end]) { format!("*{}", &word[end..]) } else { (*word).to_owned() }
    });
    opened.collect()
}
