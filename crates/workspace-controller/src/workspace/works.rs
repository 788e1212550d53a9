//! What is made, changed and taken away, in which order. Pure: wanted children beside those that are there.
//!
//! ```text
//!   finalizer ─▶ network policy ─▶ images ─▶ (all usable) ─▶ Services ─▶ (all have addresses) ─▶ Deployments, machines
//! ```
//! A part that had its start is kept as it should be in every pass. One that had none is touched by nobody without a turn;
//! so one that a suspension stopped stays stopped until its turn has come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use otctl_kit::cluster::{Target, erase};
use otctl_kit::plan::{Action, Propagation, Write};
use otctl_types::names::WORKSPACE_FINALIZER;
use otctl_types::workspace::{Container, ImageRetention, Network, VirtualMachine as MachineEntry};
use otctl_types::{VMDiskImage, Workspace};
use serde::Serialize;

use super::observe::Observed;
use super::verdict::{self, Verdict};
use crate::children::machine::Power;
use crate::children::{self, Facts};
use crate::images::Disk;
use crate::kin;
use crate::owned;
use crate::parts;

/// What a pass is to bring about.
pub struct Works<'a> {
    workspace: &'a Workspace,
    observed: &'a Observed,
    facts: Facts<'a>,
    /// Entries that are made and kept as they should be.
    active: BTreeSet<&'a str>,
    /// Whether nothing runs.
    is_stopped: bool,
}

impl<'a> Works<'a> {
    /// What `verdict` asks for.
    pub fn of(workspace: &'a Workspace, observed: &'a Observed, verdict: &Verdict) -> Self {
        let active = match verdict {
            Verdict::Gone | Verdict::Leaving | Verdict::Invalid(_) => BTreeSet::new(),
            Verdict::Opening(_) | Verdict::Building | Verdict::Settling { .. } => {
                parts::names(workspace).collect()
            }
            Verdict::Suspended => made(workspace, observed),
            Verdict::Waiting(_) | Verdict::Yielding(_) | Verdict::Tending => {
                let started = parts::started(workspace);
                parts::names(workspace).filter(|name| started.contains(name)).collect()
            }
        };
        Self {
            workspace,
            observed,
            facts: observed.facts(workspace),
            active,
            is_stopped: workspace.spec.suspended,
        }
    }

    /// Everything that is to be written, in order. Nothing that is there already as it should be is among it.
    pub fn writes(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        writes.extend(self.finalizer());
        writes.extend(self.network());
        writes.extend(self.images());
        let startable = self.startable();
        writes.extend(self.services(&startable));
        if self.have_addresses(&startable) {
            writes.extend(self.deployments(&startable));
            writes.extend(self.machines(&startable));
        }
        writes.extend(self.removals());
        writes
    }

    /// The active entries that nothing holds back: of those that have their first start, none before every disk is there.
    fn startable(&self) -> BTreeSet<&'a str> {
        let started = parts::started(self.workspace);
        let is_waiting = |entry: &MachineEntry| {
            let disk = self.observed.disks.get(&entry.name);
            !started.contains(entry.name.as_str()) && !matches!(disk, Some(Disk::Available(_)))
        };
        if !self.is_stopped && self.workspace.spec.virtual_machines.iter().any(is_waiting) {
            return self.active.iter().copied().filter(|name| started.contains(name)).collect();
        }
        self.active.clone()
    }

    fn network_spec(&self) -> Network {
        self.workspace.spec.network.clone()
    }

    /// The policy outlives the pods: so must the workspace that owns it.
    fn finalizer(&self) -> Option<Write> {
        let is_wanted = self.network_spec().isolate && !self.active.is_empty();
        match (is_wanted, self.observed.has_finalizer()) {
            (true, false) => Some(finalize(self.workspace, &[WORKSPACE_FINALIZER], "its network policy is to outlive its pods")),
            (false, true) if !self.network_spec().isolate => {
                Some(finalize(self.workspace, &[], "it is not isolated any more"))
            }
            (true, true) | (false, _) => None,
        }
    }

    /// Before the images, since it costs nothing, and long before any pod.
    fn network(&self) -> Option<Write> {
        let own = own_policy(self.observed);
        if !self.network_spec().isolate {
            return own.map(|own| delete(&**own, "it is not isolated any more"));
        }
        if self.active.is_empty() {
            return None;
        }
        let wanted = children::network_policy::network_policy(&self.facts);
        bring_about(&wanted, own.map(|own| &**own), "its pods are to be isolated from the first moment")
    }

    fn images(&self) -> Vec<Write> {
        let named = self.workspace.spec.virtual_machines.iter();
        let active = named.filter(|entry| self.active.contains(entry.name.as_str()));
        let mut seen = BTreeSet::new();
        let once = active.filter(|entry| seen.insert(&entry.spec.vm_disk_image_name));
        let kept = once.filter_map(|entry| self.image(entry));
        let left = self.observed.former_images.iter();
        kept.chain(left.map(|image| self.unshare(image, "no entry names it any more"))).collect()
    }

    /// The image is made, or this workspace's share in it put as `imageRetention` says.
    fn image(&self, entry: &MachineEntry) -> Option<Write> {
        match self.observed.images.get(&entry.spec.vm_disk_image_name) {
            None => {
                let image = children::image::image(&self.facts, entry)?;
                Some(create(&image, "there is none of that name, and its entry says how it is made"))
            }
            Some(image) if image.metadata.deletion_timestamp.is_some() => None,
            Some(image) if !children::image::is_made_by_workspace(image) => None,
            Some(image) => {
                let is_shared = self.has_share(image);
                match (self.workspace.spec.image_retention, is_shared) {
                    (ImageRetention::Delete, false) => Some(self.share(image)),
                    (ImageRetention::Retain, true) => {
                        Some(self.unshare(image, "its images are retained"))
                    }
                    (ImageRetention::Delete, true) | (ImageRetention::Retain, false) => None,
                }
            }
        }
    }

    fn has_share(&self, image: &VMDiskImage) -> bool {
        let uid = self.workspace.uid().unwrap_or_default();
        image.owner_references().iter().any(|owner| owner.uid == uid)
    }

    /// The image goes with the last of its owners.
    fn share(&self, image: &VMDiskImage) -> Write {
        let mut owners = image.owner_references().to_vec();
        owners.extend(children::image::owner_reference(self.workspace));
        own(image, owners, "it goes with the last workspace that uses it")
    }

    /// Without this workspace's share. An image that nobody has a share in any more goes, as it would have with its last
    /// owner; unless it is to be retained.
    fn unshare(&self, image: &Arc<VMDiskImage>, because: &'static str) -> Write {
        let uid = self.workspace.uid().unwrap_or_default();
        let mut owners = image.owner_references().to_vec();
        owners.retain(|owner| owner.uid != uid);
        let is_last = owners.is_empty()
            && self.workspace.spec.image_retention == ImageRetention::Delete
            && children::image::is_made_by_workspace(image);
        if is_last {
            return delete(&**image, "its last workspace does not use it any more");
        }
        own(image, owners, because)
    }

    fn services(&self, startable: &BTreeSet<&str>) -> Vec<Write> {
        let of_machines = self.machine_entries(startable).map(|entry| {
            let address = self.address_before(&entry.name);
            children::service::of_machine(&self.facts, entry, address.as_deref())
        });
        let of_containers = self.container_entries(startable).map(|entry| {
            let address = self.address_before(&entry.name);
            children::service::of_container(&self.facts, entry, address.as_deref())
        });
        let wanted = of_machines.chain(of_containers);
        let found: BTreeMap<String, &Service> =
            self.observed.services.iter().map(|it| (it.name_any(), &**it)).collect();
        wanted
            .filter_map(|wanted| service(&wanted, found.get(&wanted.name_any()).copied()))
            .collect()
    }

    /// The address that a Service had before it was lost: pods know it.
    fn address_before(&self, entry: &str) -> Option<String> {
        let mut deployments = self.observed.deployments.iter();
        let known = deployments.find_map(|it| children::host_aliases::address(it, entry));
        known.filter(|_| self.observed.service(entry).is_none()).map(str::to_owned)
    }

    /// Whether pods that are made now can be told every name.
    fn have_addresses(&self, startable: &BTreeSet<&str>) -> bool {
        startable.iter().all(|entry| {
            let spec = self.observed.service(entry).and_then(|service| service.spec.as_ref());
            spec.is_some_and(|spec| spec.cluster_ip.as_ref().is_some_and(|ip| !ip.is_empty()))
        })
    }

    fn deployments(&self, startable: &BTreeSet<&str>) -> Vec<Write> {
        let addresses = self.observed.addresses();
        let wanted = self.container_entries(startable).map(|entry| {
            let replicas = if self.is_stopped { 0 } else { entry.replicas };
            let found = self.observed.deployment(&entry.name);
            let aliases = children::host_aliases::host_aliases(&addresses);
            let wanted = children::deployment::deployment(&self.facts, entry, replicas, aliases);
            let settled = found.map(|found| children::host_aliases::settled(wanted.clone(), found));
            (settled.unwrap_or(wanted), found)
        });
        wanted
            .filter_map(|(wanted, found)| bring_about(&wanted, found, "its entry runs"))
            .collect()
    }

    fn machines(&self, startable: &BTreeSet<&str>) -> Vec<Write> {
        if !self.observed.has_kubevirt {
            return Vec::new();
        }
        self.machine_entries(startable).flat_map(|entry| self.machine(entry)).collect()
    }

    /// A machine and the claim that is its disk. The claim is made once and never changed.
    fn machine(&self, entry: &MachineEntry) -> Vec<Write> {
        let Some(instance) = &entry.spec.instance else { return Vec::new() };
        let claim = self.observed.claim(&entry.name);
        let image = self.observed.images.get(&entry.spec.vm_disk_image_name);
        let mut writes = Vec::new();
        let name = match (claim, image) {
            (Some(claim), _) => {
                writes.extend(self.keep(entry, claim));
                claim.name_any()
            }
            (None, Some(image)) => {
                let Some(made) = children::claim::claim(&self.facts, entry, image) else {
                    return Vec::new();
                };
                writes.extend(bring_about(&made, None, "it is the disk of its machine"));
                made.name_any()
            }
            (None, None) => return Vec::new(),
        };
        let power = if self.is_stopped { Power::Off } else { Power::AsAsked };
        let wanted = children::machine::machine(&self.facts, (entry, instance), &name, power);
        let found = self.observed.machine(&entry.name);
        writes.extend(bring_about(&wanted, found, "its entry runs"));
        writes
    }

    fn keep(&self, entry: &MachineEntry, claim: &PersistentVolumeClaim) -> Option<Write> {
        let revision = kin::revision_of(&claim.metadata)?;
        let wanted = children::claim::kept(&self.facts, entry, revision, claim);
        bring_about(&wanted, Some(claim), "it is the disk of its machine")
    }

    fn machine_entries(&self, names: &BTreeSet<&str>) -> impl Iterator<Item = &'a MachineEntry> {
        let entries = self.workspace.spec.virtual_machines.iter();
        entries.filter(|entry| names.contains(entry.name.as_str()))
    }

    fn container_entries(&self, names: &BTreeSet<&str>) -> impl Iterator<Item = &'a Container> {
        let entries = self.workspace.spec.containers.iter();
        entries.filter(|entry| names.contains(entry.name.as_str()))
    }

    /// Children of entries that are not in the spec any more, machines before the claims that they use.
    fn removals(&self) -> Vec<Write> {
        let because = "its entry was removed";
        let observed = self.observed;
        let keeps = kin::of_children(self.workspace);
        let mut writes = Vec::new();
        let machines = observed.machines.iter().filter(|it| !keeps.machines.contains(&it.name_any()));
        writes.extend(machines.filter(|it| stays(&***it)).map(|it| delete(&**it, because)));
        let deployments =
            observed.deployments.iter().filter(|it| !keeps.deployments.contains(&it.name_any()));
        writes.extend(deployments.filter(|it| stays(&***it)).map(|it| delete(&**it, because)));
        let services =
            observed.services.iter().filter(|it| !keeps.services.contains(&it.name_any()));
        writes.extend(services.filter(|it| stays(&***it)).map(|it| delete(&**it, because)));
        let claims = observed.claims.iter().filter(|it| !self.has_instance(it));
        writes.extend(claims.filter(|it| stays(&***it)).map(|it| delete(&**it, because)));
        writes
    }

    fn has_instance(&self, claim: &PersistentVolumeClaim) -> bool {
        let entry = kin::entry_of(&claim.metadata);
        let mut machines = self.workspace.spec.virtual_machines.iter();
        machines.any(|it| Some(it.name.as_str()) == entry && it.spec.instance.is_some())
    }
}

/// Entries of which something was made.
fn made<'a>(workspace: &'a Workspace, observed: &Observed) -> BTreeSet<&'a str> {
    let is_made = |entry: &str| {
        observed.deployment(entry).is_some()
            || observed.machine(entry).is_some()
            || observed.service(entry).is_some()
    };
    parts::names(workspace).filter(|entry| is_made(entry)).collect()
}

/// Whether something is to be made that is not there.
pub fn makes_anything(observed: &Observed) -> bool {
    let Some(workspace) = &observed.workspace else { return false };
    // The time decides only when a turn is over, and makes nothing.
    let verdict = verdict::judge(observed, jiff::Timestamp::MIN);
    let writes = Works::of(workspace, observed, &verdict).writes();
    writes.iter().any(|write| matches!(write.action, Action::Create(_) | Action::Establish(_)))
}

/// Whether every part is ready.
pub fn is_all_ready(observed: &Observed) -> bool {
    observed.reports().iter().all(|part| part.is_ready)
}

/// Whether nothing is seen of the workspace any more but its policy.
pub fn awaits_last_pod(observed: &Observed) -> bool {
    let is_leaving = observed
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.metadata.deletion_timestamp.is_some());
    is_leaving
        && observed.has_finalizer()
        && observed.pods.is_empty()
        && observed.deployments.is_empty()
        && observed.machines.is_empty()
}

/// The deletions of a workspace that goes: workloads and Services; when no pod is left, the policy, and the finalizer.
pub fn departure(workspace: &Workspace, observed: &Observed) -> Vec<Write> {
    if !observed.has_finalizer() {
        return Vec::new();
    }
    let because = "its workspace is being deleted";
    let mut writes = Vec::new();
    let machines = observed.machines.iter().filter(|it| stays(&***it));
    writes.extend(machines.map(|it| delete(&**it, because)));
    let deployments = observed.deployments.iter().filter(|it| stays(&***it));
    writes.extend(deployments.map(|it| delete(&**it, because)));
    let services = observed.services.iter().filter(|it| stays(&***it));
    writes.extend(services.map(|it| delete(&**it, because)));
    if observed.are_pods_gone {
        let policy = own_policy(observed).filter(|it| stays(&***it));
        writes.extend(policy.map(|it| delete(&**it, "the last pod is gone")));
        writes.push(finalize(workspace, &[], "nothing is left that must not outlive its policy"));
    }
    writes
}

/// The workspace's own network policy.
pub fn own_policy(observed: &Observed) -> Option<&Arc<NetworkPolicy>> {
    let workspace = observed.workspace.as_ref()?;
    let name = crate::names::policy_name(&workspace.name_any(), &observed.uid());
    let mut found = observed.networks.iter().filter(|policy| policy.name_any() == name);
    found.find(|policy| kin::whose(&policy.metadata, workspace) != kin::Whose::Foreign)
}

fn stays<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_none()
}

/// One that has an address cannot become one without, nor the other way round: it is made anew.
fn service(wanted: &Service, found: Option<&Service>) -> Option<Write> {
    use children::service::is_headless;
    match found.filter(|found| stays(*found)) {
        Some(found) if is_headless(found) != is_headless(wanted) => {
            Some(delete(found, "its entry has its first port, or its last one no more"))
        }
        _ => bring_about(wanted, found, "its entry is reached by this name"),
    }
}

/// Makes `wanted`, or puts right what is there of it. What is on its way out is waited for.
fn bring_about<K>(wanted: &K, found: Option<&K>, because: &'static str) -> Option<Write>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    let Some(found) = found else {
        return Some(Write { action: Action::Establish(erase(wanted)), because });
    };
    if !stays(found) {
        return None;
    }
    let (mut wanted, seen): (Box<DynamicObject>, Box<DynamicObject>) = (erase(wanted), erase(found));
    owned::differs(&wanted, &seen)?;
    wanted.metadata.uid = found.meta().uid.clone();
    Some(Write { action: Action::Apply(wanted), because })
}

fn create<K>(object: &K, because: &'static str) -> Write
where
    K: Resource<DynamicType = ()> + Serialize,
{
    Write { action: Action::Create(erase(object)), because }
}

fn delete<K: Resource<DynamicType = ()>>(object: &K, because: &'static str) -> Write {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let action = Action::Delete {
        target: Target::new::<K>(meta.namespace.as_deref(), name),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: None,
        propagation: Propagation::Background,
    };
    Write { action, because }
}

/// Our finalizers of the workspace, as they are to be; others' are theirs.
fn finalize(workspace: &Workspace, finalizers: &[&str], because: &'static str) -> Write {
    let mut object = bare(workspace);
    object.metadata.finalizers = Some(finalizers.iter().map(|it| (*it).to_owned()).collect());
    Write { action: Action::Apply(object), because }
}

/// Who owns an image, at the version at which it was seen: an owner that came since must not be lost.
fn own(
    image: &VMDiskImage,
    owners: Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference>,
    because: &'static str,
) -> Write {
    let mut object = bare(image);
    object.metadata.namespace = image.namespace();
    object.metadata.owner_references = Some(owners);
    object.metadata.resource_version = image.resource_version();
    Write { action: Action::Apply(object), because }
}

/// An object by its name and UID alone.
fn bare<K: Resource<DynamicType = ()>>(object: &K) -> Box<DynamicObject> {
    let resource = kube::core::ApiResource::erase::<K>(&());
    let mut bare = DynamicObject::new(object.meta().name.as_deref().unwrap_or_default(), &resource);
    bare.metadata.uid = object.meta().uid.clone();
    bare.data = serde_json::json!({});
    Box::new(bare)
}
