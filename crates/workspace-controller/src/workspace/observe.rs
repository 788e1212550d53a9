//! Reads the facts of one workspace. From the watches, but for what must not be stale: whether the namespace takes
//! anything new, before something is made in it, and whether the last pod is gone, before the network policy goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::{Resource, ResourceExt};
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::ledger;
use otctl_kit::reconciler::{Observation, Subject};
use otctl_kit::store::{Key, Scoped};
use otctl_queue::effective_policy;
use otctl_types::names::{WORKSPACE_FINALIZER, WORKSPACE_LABEL};
use otctl_types::queue::{ActiveEntry, AdmissionQueueStatus};
use otctl_types::{VMDiskImage, Workspace};
use policy::{Policy, Ticket};

use super::{Reconciler, works};
use crate::config::Site;
use crate::images::Disk;
use crate::machines::VirtualMachine;
use crate::kin::{self, Whose};
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
    /// Whether the namespace takes something new; asked only when something is to be made.
    pub ground: Ground,
    /// What there is of the image of each machine, by the name of its entry.
    pub disks: BTreeMap<String, Disk>,
    /// The images that are named, by name.
    pub images: BTreeMap<String, Arc<VMDiskImage>>,
    /// Images that are not named any more and that this workspace still owns a share of.
    pub former_images: Vec<Arc<VMDiskImage>>,
    /// Every network policy of the namespace.
    pub networks: Vec<Arc<NetworkPolicy>>,
    /// The workspace's Services.
    pub services: Vec<Arc<Service>>,
    /// Its Deployments.
    pub deployments: Vec<Arc<Deployment>>,
    /// Its claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Its machines.
    pub machines: Vec<Arc<VirtualMachine>>,
    /// Its pods, by label.
    pub pods: Vec<Arc<Pod>>,
    /// Objects of others that have the name of a child.
    pub foreign: Vec<String>,
    /// Whether the kinds of KubeVirt are installed.
    pub has_kubevirt: bool,
    /// A consistent read found no pod of it any more.
    pub are_pods_gone: bool,
}

/// What the ledger tells of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hall {
    /// How many wait with a lower ticket. Those that something else holds back are among them.
    pub ahead: usize,
    /// Whether every slot is taken.
    pub is_full: bool,
}

/// Whether a namespace takes something new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// It was not asked: nothing is to be made.
    Unasked,
    /// It does.
    Firm,
    /// It is being deleted.
    Terminating,
    /// There is none of that name.
    Absent,
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
        if works::makes_anything(&observed) {
            observed.ground = self.ground(&observed.namespace).await?;
        }
        if works::awaits_last_pod(&observed) {
            observed.are_pods_gone = self.are_pods_gone(&observed).await?;
        }
        Ok(observed)
    }

    /// What the watches tell.
    fn seen(&self, workspace: Option<&Arc<Workspace>>) -> Observed {
        let blank = Arc::default();
        let subject: &Arc<Workspace> = workspace.unwrap_or(&blank);
        let (uid, namespace) =
            (subject.uid().unwrap_or_default(), parts::namespace(subject, &self.site.settings));
        let queue = self.views.queue();
        let status = queue.as_ref().and_then(|queue| queue.status.as_ref());
        let mut foreign = Vec::new();
        let wanted = kin::of_children(subject);
        let children = Children { subject, uid: &uid, namespace: &namespace };
        let claims = self.views.claims.owned_by(&namespace, &uid);
        let mut observed = Observed {
            site: self.site.clone(),
            policy: effective_policy(status),
            entry: ledger::entry(status, &uid).cloned(),
            hall: self.hall(status, subject),
            ground: Ground::Unasked,
            disks: BTreeMap::new(),
            images: self.images(subject, &namespace),
            former_images: self.former_images(subject, &namespace, &uid),
            networks: self.views.networks.all_in(&namespace),
            services: children.seen(&self.views.services, &wanted.services, &mut foreign),
            deployments: children.seen(&self.views.deployments, &wanted.deployments, &mut foreign),
            machines: children.seen(&self.views.machines, &wanted.machines, &mut foreign),
            pods: self.pods(&namespace, &uid),
            has_kubevirt: self.views.machines.is_synced(&namespace),
            are_pods_gone: false,
            claims,
            namespace: namespace.clone(),
            foreign,
            workspace: workspace.cloned(),
        };
        children.seen(&self.views.networks, &wanted.networks, &mut observed.foreign);
        observed.disks = disks(subject, &observed);
        observed
    }

    fn images(&self, workspace: &Workspace, namespace: &str) -> BTreeMap<String, Arc<VMDiskImage>> {
        let named = workspace.spec.virtual_machines.iter().map(|it| &it.spec.vm_disk_image_name);
        named
            .filter_map(|name| {
                Some((name.clone(), self.views.images.get(&Key::new(namespace, name))?))
            })
            .collect()
    }

    /// Shares that an edit has left behind.
    fn former_images(
        &self,
        workspace: &Workspace,
        namespace: &str,
        uid: &str,
    ) -> Vec<Arc<VMDiskImage>> {
        let images = self.views.images.all_in(namespace).into_iter();
        images
            .filter(|image| image.owner_references().iter().any(|owner| owner.uid == uid))
            .filter(|image| !crate::images::is_named(workspace, &image.name_any()))
            .collect()
    }

    fn pods(&self, namespace: &str, uid: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.views.pods.all_in(namespace);
        pods.retain(|pod| pod.labels().get(WORKSPACE_LABEL).is_some_and(|label| label == uid));
        pods.sort_by_key(|pod| pod.name_any());
        pods
    }

    fn hall(&self, status: Option<&AdmissionQueueStatus>, workspace: &Workspace) -> Hall {
        let Some(status) = status else { return Hall::default() };
        let limit = effective_policy(Some(status)).workspace_concurrency;
        let is_full = usize::try_from(limit).is_ok_and(|limit| status.active.len() >= limit);
        Hall { ahead: self.ahead(workspace), is_full }
    }

    /// How many others with a lower ticket wait. Only told when the workspace begins to wait, so only counted then.
    fn ahead(&self, workspace: &Workspace) -> usize {
        let ticket = |it: &Workspace| it.status.as_ref()?.ticket.as_deref()?.parse::<Ticket>().ok();
        let Some(own) = ticket(workspace) else { return 0 };
        let is_open = |it: &Workspace| it.status.as_ref().is_some_and(|it| it.open_turn.is_some());
        let others = self.views.workspaces.all();
        let ahead = others.iter().filter(|it| !is_open(it) && ticket(it).is_some_and(|it| it < own));
        ahead.count()
    }

    async fn ground(&self, namespace: &str) -> Result<Ground, ApiError> {
        let found = self.reader.get::<Namespace>(None, namespace).await?;
        Ok(match found {
            None => Ground::Absent,
            Some(found) if found.metadata.deletion_timestamp.is_some() => Ground::Terminating,
            Some(_) => Ground::Firm,
        })
    }

    async fn are_pods_gone(&self, observed: &Observed) -> Result<bool, ApiError> {
        let uid = observed.uid();
        let selector = format!("{WORKSPACE_LABEL}={uid}");
        let pods = self.reader.list::<Pod>(Some(&observed.namespace), &selector).await?;
        Ok(pods.is_empty())
    }
}

/// Whose children are looked for.
struct Children<'a> {
    subject: &'a Workspace,
    uid: &'a str,
    namespace: &'a str,
}

impl Children<'_> {
    /// Those that are the workspace's, also the one of a wanted name that has lost its owner. Another's of a wanted name is
    /// told.
    fn seen<K>(
        &self,
        store: &Scoped<K>,
        wanted: &BTreeSet<String>,
        foreign: &mut Vec<String>,
    ) -> Vec<Arc<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let mut ours = store.owned_by(self.namespace, self.uid);
        for name in wanted {
            let Some(found) = store.get(&Key::new(self.namespace, name)) else { continue };
            match kin::whose(found.meta(), self.subject) {
                Whose::Ours => {}
                Whose::Orphaned => ours.push(found),
                Whose::Foreign => foreign
                    .push(Target::new::<K>(Some(self.namespace), name).to_string()),
            }
        }
        ours
    }
}

fn disks(workspace: &Workspace, observed: &Observed) -> BTreeMap<String, Disk> {
    let entries = workspace.spec.virtual_machines.iter();
    entries
        .map(|entry| {
            let found = observed.images.get(&entry.spec.vm_disk_image_name).map(|image| &**image);
            let made_from = observed.made_from(&entry.name);
            (entry.name.clone(), Disk::of(entry, found, made_from.as_deref()))
        })
        .collect()
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

    /// The revision that the disk of a machine was made from: as its claim says; of a machine that does not run here, as is
    /// on record.
    pub fn made_from(&self, entry: &str) -> Option<String> {
        let workspace = self.workspace.as_ref()?;
        let machines = &workspace.spec.virtual_machines;
        let runs = machines.iter().any(|it| it.name == entry && it.spec.instance.is_some());
        let claim = self.claims.iter().find(|claim| kin::entry_of(&claim.metadata) == Some(entry));
        match claim {
            Some(claim) => kin::revision_of(&claim.metadata).map(str::to_owned),
            None if runs => None,
            None => parts::made_from(workspace, entry).map(str::to_owned),
        }
    }
}
