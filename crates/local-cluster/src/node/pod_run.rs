//! The life of one pod on the node: started, watched, ended, confirmed gone. Each of its containers has a task of its
//! own ([`super::container_run`]); this one tells the API server what they say.
//!
//! ```text
//! accepted ─▶ (held) ─▶ volumes ─▶ containers ─▶ ended ─▶ deleted ─▶ confirmed
//! ```

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::addresses::PodAddress;
use super::cluster_io::Presence;
use super::container_report::ContainerReport;
use super::container_run::{Change, ContainerRun, Voice};
use super::container_state::Termination;
use super::images::Content;
use super::inbox::{Ending, Inbox, Interruption};
use super::mounts::{self, NotYet, Volumes, mounts};
use super::orders::{Order, Orders};
use super::pod_status::Report;
use super::preparation::{Preparation, until_there};
use super::{NodeContext, PodName, launch};

/// Carries one pod from the moment it is bound to the node until it is gone.
pub(super) struct PodRun {
    context: Arc<NodeContext>,
    inbox: Inbox,
    pod: Arc<Pod>,
    report: Report,
    crew: Crew,
}

/// The tasks that carry the containers of a pod. Dropping it ends them.
struct Crew {
    orders: watch::Sender<Order>,
    /// Ends once every container has ended and all is told.
    changes: mpsc::UnboundedReceiver<Change>,
    _tasks: JoinSet<()>,
    _address: Option<PodAddress>,
}

impl Crew {
    /// Of a pod that was not started.
    fn none() -> Self {
        let (orders, _) = Orders::channel();
        let (_, changes) = mpsc::unbounded_channel();
        Self { orders, changes, _tasks: JoinSet::new(), _address: None }
    }
}

impl PodRun {
    pub(super) fn new(context: Arc<NodeContext>, inbox: Inbox) -> Self {
        let pod = inbox.pod();
        Self { report: Report::accepted(&pod), crew: Crew::none(), context, pod, inbox }
    }

    pub(super) async fn run(mut self) {
        let present = match self.phase() {
            Some("Succeeded" | "Failed") => Presence::Present,
            // Processes started before this node was: nothing of them is known here.
            Some("Running") => {
                self.report.end_rest();
                self.publish().await
            }
            _ => self.live().await,
        };
        if present == Presence::Present && self.inbox.removal().await != Interruption::Gone {
            self.context.confirm_deletion(&self.pod).await;
        }
        self.context.events.forget(&self.pod);
        self.remove_files().await;
    }

    fn phase(&self) -> Option<&str> {
        self.pod.status.as_ref()?.phase.as_deref()
    }

    async fn publish(&mut self) -> Presence {
        let patch = self.report.patch(&self.pod);
        self.context.write_status(&self.pod, &patch).await
    }

    async fn remove_files(&self) {
        let dir = launch::pod_dir(&self.context.state_dir, &self.pod.uid().unwrap_or_default());
        if let Err(error) = tokio::fs::remove_dir_all(&dir).await
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, dir = %dir.display(), "could not remove the files of a pod");
        }
    }

    /// From the first report to the last.
    async fn live(&mut self) -> Presence {
        if self.publish().await == Presence::Gone {
            return Presence::Gone;
        }
        let contents = self.contents();
        let volumes = match self.prepared(&contents).await {
            Ok(volumes) => volumes,
            Err(cause) => return self.end(cause).await,
        };
        if let Err(error) = self.start(contents, &volumes) {
            self.report.end_all(|_| Termination::not_started(&error));
            return self.publish().await;
        }
        self.follow().await
    }

    /// What each container runs.
    fn contents(&self) -> Vec<Content> {
        let containers = self.pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        let NodeContext { images, program, .. } = &*self.context;
        containers.iter().map(|container| images.content(container, program)).collect()
    }

    /// Waits until the pod is not held and its volumes are there. One that is only reported Running needs none.
    async fn prepared(&mut self, contents: &[Content]) -> Result<Volumes, Interruption> {
        let Self { context, inbox, pod, report, .. } = self;
        let preparing = async {
            context.holds.released(&PodName::from(&**pod)).await;
            if contents.iter().all(|content| *content == Content::OnPaper) {
                return Volumes::new();
            }
            until_there(context, VolumesOf { context, pod, report }).await
        };
        tokio::select! {
            biased;
            cause = inbox.interruption() => Err(cause),
            volumes = preparing => Ok(volumes),
        }
    }

    /// Gives the pod its address and starts a task for each container.
    fn start(&mut self, contents: Vec<Content>, volumes: &Volumes) -> std::io::Result<()> {
        let address = if contents.iter().all(|content| *content == Content::OnPaper) {
            self.context.addresses.service()
        } else {
            self.context.addresses.loopback()
        };
        let Some(address) = address else {
            return Err(std::io::Error::other("no free address for a pod"));
        };
        self.report.ip = Some(address.ip());
        let (orders, receiver) = Orders::channel();
        let (sender, changes) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        for (index, content) in contents.into_iter().enumerate() {
            let voice = Voice { index, changes: sender.clone() };
            let container = self.container(voice, (volumes, address.ip()), receiver.clone());
            tasks.spawn(container.run(content));
        }
        self.crew = Crew { orders, changes, _tasks: tasks, _address: Some(address) };
        Ok(())
    }

    fn container(
        &self,
        voice: Voice,
        (volumes, address): (&Volumes, IpAddr),
        orders: Orders,
    ) -> ContainerRun {
        let containers = self.pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        let container = containers[voice.index].clone();
        ContainerRun {
            context: self.context.clone(),
            pod: self.pod.clone(),
            mounts: mounts(&container, volumes),
            container,
            address,
            orders,
            voice,
            report: ContainerReport::creating(),
            failures: 0,
        }
    }

    /// Tells what containers say until all have ended, or the pod must not go on.
    async fn follow(&mut self) -> Presence {
        let mut present = Presence::Present;
        while present == Presence::Present {
            let change = tokio::select! {
                biased;
                cause = self.inbox.interruption() => return self.end(cause).await,
                change = self.crew.changes.recv() => change,
            };
            let Some(Change { index, report }) = change else { break };
            self.report.containers[index] = report;
            let patch = self.report.patch(&self.pod);
            present = tokio::select! {
                present = self.context.write_status(&self.pod, &patch) => present,
                cause = self.inbox.interruption() => return self.end(cause).await,
            };
        }
        present
    }

    /// Ends what runs and reports it.
    async fn end(&mut self, cause: Interruption) -> Presence {
        self.stop(&cause).await;
        match cause {
            Interruption::Gone => return Presence::Gone,
            Interruption::Deleted { .. } => self.report.end_rest(),
            Interruption::Commanded(Ending::Evict) => {
                self.report.end_rest();
                self.report.evicted = true;
            }
            Interruption::Commanded(Ending::Finish { exit_code, message }) => {
                self.report.end_all(|container| {
                    let started = container.end().or(container.last.as_ref());
                    let started = started.and_then(|end| end.started_at);
                    Termination::with_code(exit_code, started, message.clone())
                });
            }
        }
        self.publish().await
    }

    /// Waits until every container has ended, and hurries if that is asked for.
    async fn stop(&mut self, cause: &Interruption) {
        let (asked, mut order, mut listens) = (Instant::now(), Order::of(cause), true);
        loop {
            self.crew.orders.send_replace(order);
            tokio::select! {
                change = self.crew.changes.recv() => match change {
                    Some(Change { index, report }) => self.report.containers[index] = report,
                    None => return,
                },
                next = self.inbox.next_interruption(), if listens => {
                    listens = next != Interruption::Gone;
                    order = order.hurried_by(asked, &next);
                }
            }
        }
    }
}

/// The volumes of a pod, in its directory or where they are kept.
struct VolumesOf<'a> {
    context: &'a NodeContext,
    pod: &'a Pod,
    report: &'a Report,
}

impl Preparation for VolumesOf<'_> {
    type Found = Volumes;

    async fn look(&self) -> Result<Volumes, NotYet> {
        let uid = self.pod.uid().unwrap_or_default();
        let directory = launch::pod_dir(&self.context.state_dir, &uid);
        std::fs::create_dir_all(&directory).map_err(|error| NotYet::volume(error.to_string()))?;
        mounts::volumes(self.context, self.pod, &directory).await
    }

    async fn tell(&self, problem: &NotYet) {
        self.context.events.warn(self.pod, (problem.event, &problem.message));
        let mut report = self.report.clone();
        for container in &mut report.containers {
            container.wait(problem.waiting, problem.shown());
        }
        self.context.write_status(self.pod, &report.patch(self.pod)).await;
    }
}
