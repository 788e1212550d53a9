//! What a workspace needs before it can be stood up: free names, disk images, KubeVirt. The queue and the workspace look at
//! this through the same eyes: where they did not agree, a slot would be given and given back for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use otctl_kit::cluster::Target;
use otctl_kit::store::Key;
use otctl_types::condition::Reason;
use otctl_types::names::LAST_ATTEMPT;
use otctl_types::workspace::{ImageRetention, VirtualMachine};
use otctl_types::{VMDiskImage, Workspace};

use crate::children;
use crate::family::{Child, ChildKind, Family};
use crate::images::{Disk, Lack, Origin};
use crate::kin;
use crate::parts;
use crate::views::Views;

/// What a workspace needs, and what there is of it.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// The images that its entries name, by name.
    pub images: BTreeMap<String, Arc<VMDiskImage>>,
    /// The disks of its machines.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Those of the images that somebody else takes along when it goes, by name.
    pub doomed: BTreeSet<String>,
    /// Who else uses an image in which this workspace takes its share now, by the image's name: all of them get theirs in the
    /// same write, so that the first that would take it along never is its only owner.
    pub users: BTreeMap<String, Vec<OwnerReference>>,
    /// What each virtual machine has of its image, by the name of its entry.
    pub disks: BTreeMap<String, Disk>,
    /// Its children, and whose names are taken.
    pub family: Family,
    /// Those of its children that are on their way out.
    pub leaving: Vec<Child>,
    /// Whether the kinds of KubeVirt are installed.
    pub has_kubevirt: bool,
}

impl Needs {
    /// What the watches tell.
    pub fn seen(views: &Views, workspace: &Workspace, namespace: &str) -> Self {
        let images = images(views, workspace, namespace);
        let known = claim_names(workspace, &images);
        let claims = kin::ours(&views.claims, workspace, namespace, &known);
        let has_kubevirt = views.machines.is_synced(namespace);
        let mut needs = Self::of((workspace, namespace), images, claims, has_kubevirt);
        let whose =
            |child: &Child| look_at(views, namespace, child, |found| kin::whose(found, workspace));
        needs.family = needs.family.with_taken(whose);
        let leaves = |child: &&Child| {
            look_at(views, namespace, child, |found| found.deletion_timestamp.is_some())
                .unwrap_or(false)
        };
        needs.leaving = needs.family.iter().filter(leaves).cloned().collect();
        let images = needs.images.iter().filter(|(_, image)| is_doomed(views, workspace, image));
        needs.doomed = images.map(|(name, _)| name.clone()).collect();
        let takes = |(name, image): &(&String, &Arc<VMDiskImage>)| {
            needs.takes_along(workspace, name)
                && children::image::is_made_by_workspace(image)
                && !owns(workspace, image)
        };
        let taken = needs.images.iter().filter(takes);
        let users = taken.map(|(name, image)| (name.clone(), users(views, workspace, image)));
        needs.users = users.collect();
        needs
    }

    /// With what follows from images and claims.
    pub(crate) fn of(
        (workspace, namespace): (&Workspace, &str),
        images: BTreeMap<String, Arc<VMDiskImage>>,
        claims: Vec<Arc<PersistentVolumeClaim>>,
        has_kubevirt: bool,
    ) -> Self {
        let mut needs = Self { images, claims, has_kubevirt, ..Self::default() };
        needs.family = Family::of(workspace, |entry| needs.claim_name(workspace, entry));
        let entries = workspace.spec.virtual_machines.iter();
        let disk = |entry: &VirtualMachine| needs.disk(workspace, namespace, entry);
        needs.disks = entries.map(|entry| (entry.name.clone(), disk(entry))).collect();
        needs
    }

    /// Whether a workspace owns an image of that name in common with others: one that retains it does as long as somebody
    /// else would take it along.
    pub fn takes_along(&self, workspace: &Workspace, name: &str) -> bool {
        workspace.spec.image_retention == ImageRetention::Delete || self.doomed.contains(name)
    }

    /// The claim that is the disk of an entry's machine. One that is on its way out is nobody's disk any more.
    pub fn claim(&self, workspace: &Workspace, entry: &str) -> Option<&PersistentVolumeClaim> {
        self.claims_of(workspace, entry).find(|claim| kin::stays(*claim))
    }

    /// A claim that was the disk of an entry's machine, and is on its way out.
    fn leaving_claim(&self, workspace: &Workspace, entry: &str) -> Option<&PersistentVolumeClaim> {
        self.claims_of(workspace, entry).find(|claim| !kin::stays(*claim))
    }

    fn claims_of(
        &self,
        workspace: &Workspace,
        entry: &str,
    ) -> impl Iterator<Item = &PersistentVolumeClaim> {
        let is_of = move |claim: &&PersistentVolumeClaim| {
            let of = kin::entry_of_claim(workspace, &claim.name_any());
            of.is_some_and(|of| of.name == entry)
        };
        self.claims.iter().map(|claim| &**claim).filter(is_of)
    }

    /// What the disk of an entry was made from: as its claim says; of an entry that runs no machine, as is on record.
    pub fn made_from(&self, workspace: &Workspace, entry: &VirtualMachine) -> Option<Origin> {
        let recorded = parts::made_from(workspace, entry);
        let named = &entry.spec.vm_disk_image_name;
        if entry.spec.instance.is_none() {
            return recorded.filter(|recorded| recorded.image == *named);
        }
        let claim = self.claim(workspace, &entry.name)?;
        let said = kin::revision_of(&claim.metadata).map(str::to_owned);
        // What is noted on a claim can be changed or taken off. Its name cannot.
        let name = claim.name_any();
        let suffix = name.rsplit_once('-').map(|(_, suffix)| suffix.to_owned());
        let of_record = recorded.as_ref().map(|recorded| recorded.revision.clone());
        let mut known =
            said.into_iter().chain(of_record).chain(current(&self.images, entry)).chain(suffix);
        let revision =
            known.find(|revision| kin::claim_name(workspace, &entry.name, revision) == name)?;
        // A record of before it ran a machine tells of another disk. Images of one source share a revision.
        let own =
            parts::disk(workspace, entry).filter(|disk| disk.copied && disk.revision == revision);
        let image = own.map(|disk| disk.image);
        let image = image.or_else(|| kin::image_of(&claim.metadata).map(str::to_owned));
        Some(Origin { image: image.unwrap_or_else(|| named.clone()), revision })
    }

    /// Why a name is not free in the namespace.
    pub fn conflict(&self, namespace: &str) -> Option<Lack> {
        self.family.taken().map(|first| name_conflict(&first.target(namespace)))
    }

    /// What an earlier workspace of the same name has left in the way.
    pub fn leftover(&self, namespace: &str) -> Option<Lack> {
        self.family.left().map(|first| of_earlier(&first.target(namespace)))
    }

    /// Why a slot could not be used, or not be used any further.
    pub fn obstacle(&self, workspace: &Workspace, namespace: &str) -> Option<Lack> {
        let wanted = parts::machines_to_start(workspace);
        let of_disk = wanted.iter().find_map(|entry| {
            let disk = self.disks.get(&entry.name).filter(|disk| !disk.is_usable())?;
            disk.lack(entry)
        });
        let needs_kubevirt = wanted.iter().any(|entry| entry.spec.instance.is_some());
        let of_machines = || (needs_kubevirt && !self.has_kubevirt).then(no_kubevirt);
        let of_names = self.leftover(namespace).or_else(|| self.outgoing(workspace, namespace));
        out_of_numbers(workspace).or(of_names).or(of_disk).or_else(of_machines)
    }

    /// What is to start is made anew once what it was is gone. Disks have words of their own.
    fn outgoing(&self, workspace: &Workspace, namespace: &str) -> Option<Lack> {
        let is_awaited = |child: &&Child| {
            let mut entries = parts::unstarted(workspace);
            child.kind != ChildKind::Claim && !child.is_taken && entries.any(|it| child.is_of(it))
        };
        let child = self.leaving.iter().find(is_awaited)?;
        let message = format!(
            "{} is being deleted: it is made anew when it is gone",
            child.target(namespace)
        );
        Some(Lack { reason: Reason::OldChildTerminating, message })
    }

    fn disk(&self, workspace: &Workspace, namespace: &str, entry: &VirtualMachine) -> Disk {
        let name = &entry.spec.vm_disk_image_name;
        let found = self.images.get(name).map(|image| &**image);
        let disk = Disk::of(entry, namespace, found, self.made_from(workspace, entry).as_ref());
        let disk = match (&disk, parts::recipe(workspace, name)) {
            (Disk::NotFound(_) | Disk::ToMake, Some(recipe)) => Disk::to_make(entry, recipe),
            _ => disk,
        };
        let is_new = disk.is_usable() && entry.spec.instance.is_some();
        let is_new = is_new && self.claim(workspace, &entry.name).is_none();
        match self.leaving_claim(workspace, &entry.name).filter(|_| is_new) {
            Some(claim) => Disk::Leaving(claim.name_any()),
            None => disk,
        }
    }

    /// Name of the disk of an entry's machine: of the one that is there, or the one that would be made now.
    fn claim_name(&self, workspace: &Workspace, entry: &VirtualMachine) -> Option<String> {
        let found = self.claim(workspace, &entry.name).map(|claim| claim.name_any());
        let current = || current(&self.images, entry);
        found.or_else(|| Some(kin::claim_name(workspace, &entry.name, &current()?)))
    }
}

/// Somebody else's object is in the way.
pub fn name_conflict(target: &Target) -> Lack {
    Lack {
        reason: Reason::NameConflict,
        message: format!(
            "{target} exists and belongs to something else; rename or delete it, or give this workspace or its entry another name"
        ),
    }
}

/// An object of an earlier workspace of the same name is in the way. Nobody has to do anything, unless its collection is held
/// up.
pub fn of_earlier(target: &Target) -> Lack {
    Lack {
        reason: Reason::OldChildTerminating,
        message: format!(
            "{target} was made for an earlier workspace of this name, which is gone; it is waited for until garbage collection has taken it. If it stays, delete it by hand"
        ),
    }
}

/// Its next turn would have a number that the API server refuses, of the ledger as a whole: nobody would be admitted.
fn out_of_numbers(workspace: &Workspace) -> Option<Lack> {
    let status = workspace.status.as_ref()?;
    let last = status.last_turn.filter(|last| *last >= LAST_ATTEMPT && status.open_turn.is_none());
    last.map(|last| Lack {
        reason: Reason::Rejected,
        message: format!(
            "status.lastTurn is {last}, and no turn has a higher number than {LAST_ATTEMPT}; create the workspace again"
        ),
    })
}

/// Machines are asked for, and nothing is there that runs them.
pub fn no_kubevirt() -> Lack {
    Lack {
        reason: Reason::KubeVirtNotInstalled,
        message: "virtual machines are asked for with `instance`, and KubeVirt is not installed in this cluster: install it, and this goes on by itself".to_owned(),
    }
}

/// Names that claims of the workspace may have: of a revision that is on record, or of one that is current.
fn claim_names(
    workspace: &Workspace,
    images: &BTreeMap<String, Arc<VMDiskImage>>,
) -> BTreeSet<String> {
    let entries = workspace.spec.virtual_machines.iter();
    let names = entries.flat_map(|entry| {
        let recorded = parts::made_from(workspace, entry).map(|recorded| recorded.revision);
        let known = recorded.into_iter().chain(current(images, entry));
        known.map(|revision| kin::claim_name(workspace, &entry.name, &revision))
    });
    names.collect()
}

/// The revision of an entry's image that is usable now.
fn current(images: &BTreeMap<String, Arc<VMDiskImage>>, entry: &VirtualMachine) -> Option<String> {
    let status = images.get(&entry.spec.vm_disk_image_name)?.status.as_ref()?;
    status.current.as_ref().map(|current| current.revision.clone())
}

/// Whether somebody else has a share in an image and means to take it along. One that is not seen any more may.
fn is_doomed(views: &Views, workspace: &Workspace, image: &VMDiskImage) -> bool {
    let others = image.owner_references().iter().filter(|owner| {
        owner.kind == Workspace::kind(&()) && Some(&owner.uid) != workspace.metadata.uid.as_ref()
    });
    others.into_iter().any(|owner| {
        let holder = views.workspaces.get(&Key::new("", &owner.name));
        holder.is_none_or(|it| it.spec.image_retention == ImageRetention::Delete)
    })
}

/// Every other workspace that uses an image and has no share in it.
fn users(views: &Views, workspace: &Workspace, image: &VMDiskImage) -> Vec<OwnerReference> {
    let all = views.workspaces.all();
    let others = all.iter().filter(|other| other.metadata.uid != workspace.metadata.uid);
    let users = others.filter(|other| uses(other, image) && !owns(other, image));
    users.map(|other| children::image::owner_reference(other)).collect()
}

/// Whether a workspace has a share in an image.
pub fn owns(workspace: &Workspace, image: &VMDiskImage) -> bool {
    image.owner_references().iter().any(|owner| Some(&owner.uid) == workspace.metadata.uid.as_ref())
}

/// Whether a workspace lives, was accepted in the namespace of an image, and asks for nothing else under its name.
fn uses(workspace: &Workspace, image: &VMDiskImage) -> bool {
    let namespace = workspace.status.as_ref().and_then(|status| status.namespace.as_deref());
    let lives = workspace.metadata.deletion_timestamp.is_none();
    let name = image.name_any();
    let entries = workspace.spec.virtual_machines.iter();
    let mut named = entries.filter(|entry| entry.spec.vm_disk_image_name == name);
    lives
        && namespace == image.metadata.namespace.as_deref()
        && named.any(|entry| {
            let asked = entry.spec.image.as_ref();
            asked.is_none_or(|asked| children::image::differs(asked, &image.spec).is_none())
        })
}

fn images(
    views: &Views,
    workspace: &Workspace,
    namespace: &str,
) -> BTreeMap<String, Arc<VMDiskImage>> {
    let named = workspace.spec.virtual_machines.iter().map(|it| &it.spec.vm_disk_image_name);
    named
        .filter_map(|name| Some((name.clone(), views.images.get(&Key::new(namespace, name))?)))
        .collect()
}

/// What `look` sees of the object that has the name of a child; none where there is no such object.
fn look_at<T>(
    views: &Views,
    namespace: &str,
    child: &Child,
    look: impl Fn(&ObjectMeta) -> T,
) -> Option<T> {
    let key = Key::new(namespace, &child.name);
    match child.kind {
        ChildKind::NetworkPolicy => views.networks.get(&key).map(|it| look(&it.metadata)),
        ChildKind::Service => views.services.get(&key).map(|it| look(&it.metadata)),
        ChildKind::Deployment => views.deployments.get(&key).map(|it| look(&it.metadata)),
        ChildKind::Claim => views.claims.get(&key).map(|it| look(&it.metadata)),
        ChildKind::VirtualMachine => views.machines.get(&key).map(|it| look(&it.metadata)),
    }
}
