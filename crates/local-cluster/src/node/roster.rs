//! The pods bound to a node, followed by a watch; one task carries each.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::inbox::{Ending, Inbox, Wish};
use super::pod_run::PodRun;
use super::{NodeContext, PodName};

/// Where the wishes about each pod go, by the pod's UID.
#[derive(Default)]
pub(super) struct Roster {
    seats: Mutex<HashMap<String, watch::Sender<Wish>>>,
}

impl Roster {
    /// Commands the end of a pod; false if it is not here.
    pub(super) fn end(&self, pod: &PodName, ending: &Ending) -> bool {
        let Some(uid) = self.uid(pod) else { return false };
        self.with(|seats| {
            seats.get(&uid).is_some_and(|seat| {
                seat.send_modify(|wish| wish.ending = Some(ending.clone()));
                true
            })
        })
    }

    /// The UID of a pod that is here.
    pub(super) fn uid(&self, pod: &PodName) -> Option<String> {
        self.with(|seats| {
            let here = |seat: &watch::Sender<Wish>| PodName::from(&*seat.borrow().pod) == *pod;
            seats.iter().find(|(_, seat)| here(seat)).map(|(uid, _)| uid.clone())
        })
    }

    /// Passes a pod on to the task that carries it; a new one's inbox is returned.
    fn deliver(&self, pod: Pod) -> Option<Inbox> {
        let (uid, pod) = (pod.uid().unwrap_or_default(), Arc::new(pod));
        self.with(|seats| {
            if let Some(seat) = seats.get(&uid) {
                seat.send_modify(|wish| wish.pod = pod);
                return None;
            }
            let (seat, wishes) = watch::channel(Wish { pod, ending: None });
            seats.insert(uid, seat);
            Some(Inbox::new(wishes))
        })
    }

    fn remove(&self, pod: &Pod) {
        self.with(|seats| seats.remove(&pod.uid().unwrap_or_default()));
    }

    fn keep(&self, uids: &BTreeSet<String>) {
        self.with(|seats| seats.retain(|uid, _| uids.contains(uid)));
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, watch::Sender<Wish>>) -> T) -> T {
        change(&mut self.seats.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Follows the pods bound to the node until the task is ended; that ends theirs too.
pub(super) async fn follow(context: Arc<NodeContext>) {
    let bound_here = watcher::Config::default().fields(&format!("spec.nodeName={}", context.name));
    let pods: Api<Pod> = Api::all(context.client.clone());
    let mut stream = watcher(pods, bound_here).default_backoff().boxed();
    let mut crew = Crew { context, carriers: JoinSet::new(), listed: BTreeSet::new() };
    loop {
        tokio::select! {
            event = stream.next() => match event {
                Some(Ok(event)) => crew.take(event).await,
                Some(Err(error)) => tracing::debug!(%error, "the watch of pods will be opened again"),
                None => return,
            },
            Some(ended) = crew.carriers.join_next() => note_panic(ended),
        }
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "the task that carried a pod panicked");
    }
}

/// The tasks that carry pods, and what a list that is under way has shown so far.
struct Crew {
    context: Arc<NodeContext>,
    carriers: JoinSet<()>,
    listed: BTreeSet<String>,
}

impl Crew {
    /// A node that is cut off hears nothing, so events wait for the link.
    async fn take(&mut self, event: watcher::Event<Pod>) {
        self.context.link.up().await;
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(pod) => {
                self.listed.insert(pod.uid().unwrap_or_default());
                self.carry(pod);
            }
            watcher::Event::InitDone => self.context.roster.keep(&self.listed),
            watcher::Event::Apply(pod) => self.carry(pod),
            watcher::Event::Delete(pod) => self.context.roster.remove(&pod),
        }
    }

    fn carry(&mut self, pod: Pod) {
        if let Some(inbox) = self.context.roster.deliver(pod) {
            self.carriers.spawn(PodRun::new(self.context.clone(), inbox).run());
        }
    }
}
