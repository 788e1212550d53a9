//! Reads the facts of one workspace. From the watches, but for what must not be stale: whether the namespace takes
//! anything new, before something is made in it or all of it goes, and whether the last pod is gone, before the network policy goes.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Resource, ResourceExt};
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::ledger;
use otctl_kit::reconciler::{Observation, Subject};
use otctl_kit::store::Key;
use otctl_queue::effective_policy;
use otctl_types::condition::{ADMITTED, Reason};
use otctl_types::names::{WORKSPACE_FINALIZER, WORKSPACE_LABEL};
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use otctl_types::{VMDiskImage, Workspace};
use policy::{Policy, Ticket};

use super::Reconciler;
use crate::config::Site;
use crate::family::ChildKind;
use crate::grounds::Ground;
use crate::images;
use crate::kin;
use crate::machines::VirtualMachine;
use crate::needs::Needs;
use crate::parts;

/// Everything that is decided on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The workspace; none when it is gone.
    pub workspace: Option<Arc<Workspace>>,
    /// Where the controller works.
    pub site: Arc<Site>,
    /// Where everything is made.
    pub namespace: String,
    /// The policy in effect.
    pub policy: Policy,
    /// The workspace's entry in the ledger, as last seen.
    pub entry: Option<ActiveEntry>,
    /// What the ledger tells of the others.
    pub hall: Hall,
    /// Whether the namespace takes something new: as last known, and asked for when something is to be made.
    pub ground: Ground,
    /// What it needs before it can be stood up: names, images, KubeVirt.
    pub needs: Needs,
    /// Images that are not named any more and that this workspace still owns a share of.
    pub former_images: Vec<Arc<VMDiskImage>>,
    /// Every network policy of the namespace.
    pub networks: Vec<Arc<NetworkPolicy>>,
    /// The workspace's Services.
    pub services: Vec<Arc<Service>>,
    /// Its Deployments.
    pub deployments: Vec<Arc<Deployment>>,
    /// Its machines.
    pub machines: Vec<Arc<VirtualMachine>>,
    /// Its pods, by label.
    pub pods: Vec<Arc<Pod>>,
    /// A consistent read found no pod of it any more.
    pub are_pods_gone: bool,
}

/// What the ledger tells of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hall {
    /// How many wait for a slot with a lower ticket.
    pub ahead: usize,
    /// Whether every slot is taken.
    pub is_full: bool,
}

impl Observation for Observed {
    fn subject(&self) -> Option<Subject> {
        let workspace = self.workspace.as_ref()?;
        Some(Subject {
            target: Target::new::<Workspace>(None, &workspace.name_any()),
            uid: workspace.uid().unwrap_or_default(),
            resource_version: workspace.resource_version().unwrap_or_default(),
            status: serde_json::to_value(&workspace.status).expect("a status serialises"),
        })
    }
}

impl Reconciler {
    /// Reads the facts.
    pub(super) async fn look(&self, key: &Key) -> Result<Observed, ApiError> {
        let workspace = self.views.workspaces.get(key);
        let mut observed = self.seen(workspace.as_ref());
        if observed.asks_for_ground() {
            let grounds = &self.views.grounds;
            observed.ground =
                grounds.ask(&self.reader, &observed.namespace, self.clock.now()).await?;
        }
        if observed.awaits_last_pod() {
            observed.are_pods_gone = self.are_pods_gone(&observed).await?;
        }
        Ok(observed)
    }

    /// What the watches tell.
    fn seen(&self, workspace: Option<&Arc<Workspace>>) -> Observed {
        let blank = Arc::default();
        let subject: &Arc<Workspace> = workspace.unwrap_or(&blank);
        let (views, uid) = (&self.views, subject.uid().unwrap_or_default());
        let namespace = parts::namespace(subject, &self.site.settings);
        let queue = views.queue();
        let status = queue.as_ref().and_then(|queue| queue.status.as_ref());
        let needs = Needs::seen(views, subject, &namespace);
        let kinds = [ChildKind::Service, ChildKind::Deployment, ChildKind::VirtualMachine];
        let [services, deployments, machines] = kinds.map(|kind| needs.family.names(kind));
        Observed {
            workspace: workspace.cloned(),
            site: self.site.clone(),
            policy: effective_policy(status),
            entry: ledger::entry(status, &uid).cloned(),
            hall: self.hall(status, subject),
            ground: views.grounds.known(&namespace),
            former_images: self.former_images(subject, &namespace, &uid),
            networks: by_name(views.networks.all_in(&namespace)),
            services: kin::ours(&views.services, subject, &namespace, &services),
            deployments: kin::ours(&views.deployments, subject, &namespace, &deployments),
            machines: kin::ours(&views.machines, subject, &namespace, &machines),
            needs,
            pods: self.pods(&namespace, &uid),
            are_pods_gone: false,
            namespace,
        }
    }

    /// Shares that an edit has left behind.
    fn former_images(
        &self,
        workspace: &Workspace,
        namespace: &str,
        uid: &str,
    ) -> Vec<Arc<VMDiskImage>> {
        let mut images = self.views.images.all_in(namespace);
        images.retain(|image| {
            image.owner_references().iter().any(|owner| owner.uid == uid)
                && !images::is_named(workspace, &image.name_any())
        });
        by_name(images)
    }

    fn pods(&self, namespace: &str, uid: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.views.pods.all_in(namespace);
        pods.retain(|pod| pod.labels().get(WORKSPACE_LABEL).is_some_and(|label| label == uid));
        by_name(pods)
    }

    fn hall(&self, status: Option<&AdmissionQueueStatus>, workspace: &Workspace) -> Hall {
        let Some(status) = status else { return Hall::default() };
        let limit = effective_policy(Some(status)).workspace_concurrency;
        let is_full = usize::try_from(limit).is_ok_and(|limit| status.active.len() >= limit);
        Hall { ahead: self.ahead(workspace), is_full }
    }

    /// How many others with a lower ticket wait for a slot. Whoever waits for something else is before nobody; and they are not
    /// counted for one that does not wait itself.
    fn ahead(&self, workspace: &Workspace) -> usize {
        let ticket = |it: &Workspace| it.status.as_ref()?.ticket.as_deref()?.parse::<Ticket>().ok();
        let is_open = |it: &Workspace| it.status.as_ref().is_some_and(|it| it.open_turn.is_some());
        let Some(own) = ticket(workspace).filter(|_| !is_open(workspace)) else { return 0 };
        let others = self.views.workspaces.all();
        let ahead = others.iter().filter(|it| {
            !is_open(it) && !is_held_back(it) && ticket(it).is_some_and(|it| it < own)
        });
        ahead.count()
    }

    async fn are_pods_gone(&self, observed: &Observed) -> Result<bool, ApiError> {
        let selector = format!("{WORKSPACE_LABEL}={}", observed.uid());
        let pods = self.reader.list::<Pod>(Some(&observed.namespace), &selector).await?;
        Ok(pods.is_empty())
    }
}

/// Whether a workspace waits for something else than a slot, as far as it says so.
fn is_held_back(workspace: &Workspace) -> bool {
    let conditions = workspace.status.iter().flat_map(|status| &status.conditions);
    let mut admitted = conditions.filter(|it| it.type_ == ADMITTED && it.status == "False");
    let of_line = [Reason::Queued, Reason::SlotsBusy, Reason::Paused];
    admitted.any(|it| of_line.iter().all(|reason| reason.as_str() != it.reason))
}

/// Stores tell of their objects in no order, and what is told is to be the same each time.
fn by_name<K: Resource>(mut objects: Vec<Arc<K>>) -> Vec<Arc<K>> {
    objects.sort_by_key(|object| object.name_any());
    objects
}

impl Observed {
    /// The workspace's UID.
    pub fn uid(&self) -> String {
        self.workspace.as_ref().and_then(|workspace| workspace.uid()).unwrap_or_default()
    }

    /// Whether the workspace is to outlive its pods.
    pub fn has_finalizer(&self) -> bool {
        let finalizers = self.workspace.iter().flat_map(|workspace| workspace.finalizers());
        finalizers.into_iter().any(|finalizer| finalizer == WORKSPACE_FINALIZER)
    }

    /// Whether a turn is open, as is on record.
    pub fn has_open_turn(&self) -> bool {
        let status = self.workspace.as_ref().and_then(|workspace| workspace.status.as_ref());
        status.is_some_and(|status| status.open_turn.is_some())
    }

    /// The number of the slot that is held and was not used yet.
    pub fn held(&self) -> Option<i64> {
        let status = self.workspace.as_ref()?.status.as_ref();
        let last = status.and_then(|status| status.last_turn).unwrap_or(0);
        self.entry.as_ref().map(|entry| entry.attempt).filter(|number| *number > last)
    }

    /// Whether the controller's chart lists the namespace.
    pub fn is_served(&self) -> bool {
        let served = self.site.settings.served_namespaces();
        served.contains(&self.namespace)
    }

    /// Whether the controller can see to what is in the namespace.
    pub fn is_within_reach(&self) -> bool {
        self.is_served() && self.ground.is_within_reach()
    }

    /// Whether the controller may not look into the namespace, and that may be for a moment.
    pub fn is_cut_off(&self) -> bool {
        self.is_served() && self.ground == Ground::OutOfReach
    }
}
