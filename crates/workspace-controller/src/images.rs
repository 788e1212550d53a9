//! The disk images that a workspace needs: which are there, which it can make, and what it waits for. It reads of an image
//! what its controller says of it, and the revision that was usable when a disk was made from it; later ones never touch
//! the workspace.

use otctl_types::condition::{self, Reason};
use otctl_types::diskimage::{Current, Phase};
use otctl_types::workspace::VirtualMachine;
use otctl_types::{VMDiskImage, Workspace};

use crate::children::image;

/// What the disk of a machine was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the VMDiskImage.
    pub image: String,
    /// Its revision.
    pub revision: String,
}

/// What the workspace has of an image that an entry names.
#[derive(Clone, Debug, PartialEq)]
pub enum Disk {
    /// It is usable.
    Available(Box<Current>),
    /// The machine has a disk of its own already, and needs the image no more.
    Copied,
    /// It has one, made from this, and the entry names another image or pins another revision.
    CopiedFrom(Origin),
    /// The disk that the entry's machine had, this claim, is on its way out; a new one is made when it is gone.
    Leaving(String),
    /// There is none, and the entry says how it is made.
    ToMake,
    /// There is none in this namespace, and the entry does not say how it is made.
    NotFound(String),
    /// It is being deleted.
    Terminating,
    /// It is there with another source than the entry says; the field that differs.
    Differs(&'static str),
    /// There is none, and an entry before it says otherwise how it is made; that entry, and the field that differs.
    Disputed(String, &'static str),
    /// The entry pins a revision that is not its current one; that.
    OtherRevision(String),
    /// It has failed, and has no disk; its own words.
    Failed(String),
    /// It is on its way; its own words.
    Syncing(String),
}

/// A finding about a disk that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Why.
    pub reason: Reason,
    /// A sentence for people.
    pub message: String,
}

impl Disk {
    /// What an entry has of `found`, the object of that name in `namespace`. `had` is what its own disk was made from, or what was usable
    /// when it had its start.
    pub fn of(
        entry: &VirtualMachine,
        namespace: &str,
        found: Option<&VMDiskImage>,
        had: Option<&Origin>,
    ) -> Self {
        let own = had.filter(|_| entry.spec.instance.is_some());
        if let Some(other) = own.filter(|own| own.image != entry.spec.vm_disk_image_name) {
            return Self::CopiedFrom(other.clone());
        }
        let living = found.filter(|found| found.metadata.deletion_timestamp.is_none());
        let asked = entry.spec.image.as_ref().zip(living);
        if let Some(field) = asked.and_then(|(asked, found)| image::differs(asked, &found.spec)) {
            return Self::Differs(field);
        }
        if let Some(own) = own {
            return Self::copied(entry, own);
        }
        let had = had.map(|had| had.revision.as_str());
        match (found, living) {
            (_, Some(living)) => Self::living(entry, living, had),
            (Some(_), None) => Self::Terminating,
            (None, None) if entry.spec.image.is_some() => Self::ToMake,
            (None, None) => Self::NotFound(namespace.to_owned()),
        }
    }

    /// What an entry has of an image that is not there: the first one that says how it is made makes it for all.
    pub fn to_make(entry: &VirtualMachine, recipe: &VirtualMachine) -> Self {
        let both = entry.spec.image.as_ref().zip(recipe.spec.image.as_ref());
        match both.and_then(|(asked, made)| image::differs(asked, made)) {
            Some(field) => Self::Disputed(recipe.name.clone(), field),
            None => Self::ToMake,
        }
    }

    /// Whatever became of the image since.
    fn copied(entry: &VirtualMachine, own: &Origin) -> Self {
        match &entry.spec.revision {
            Some(pinned) if *pinned != own.revision => Self::CopiedFrom(own.clone()),
            Some(_) | None => Self::Copied,
        }
    }

    fn living(entry: &VirtualMachine, found: &VMDiskImage, had: Option<&str>) -> Self {
        let Some(status) = &found.status else { return Self::unavailable(found) };
        let is_available = condition::is_true(&status.conditions, condition::AVAILABLE);
        match status.current.as_ref().filter(|_| is_available) {
            Some(current) => Self::current(entry, current, had),
            None => Self::unavailable(found),
        }
    }

    /// What was usable once stays so, whatever is current.
    fn current(entry: &VirtualMachine, current: &Current, had: Option<&str>) -> Self {
        match &entry.spec.revision {
            Some(pinned) if *pinned != current.revision && had != Some(pinned) => {
                Self::OtherRevision(current.revision.clone())
            }
            Some(_) | None => Self::Available(Box::new(current.clone())),
        }
    }

    fn unavailable(found: &VMDiskImage) -> Self {
        let status = found.status.as_ref();
        let message = status.and_then(|status| status.message.clone()).unwrap_or_default();
        match status.and_then(|status| status.phase) {
            Some(Phase::Failed) => Self::Failed(message),
            Some(phase) => Self::Syncing(format!("{phase:?}: {message}")),
            None => Self::Syncing("its controller has not looked at it yet".to_owned()),
        }
    }

    /// Whether a slot could be used now: the disk is there, or can be made.
    pub fn is_usable(&self) -> bool {
        self.is_there() || *self == Self::ToMake
    }

    /// Whether the machine could run now.
    pub fn is_there(&self) -> bool {
        matches!(self, Self::Available(_) | Self::Copied | Self::CopiedFrom(_))
    }

    /// Whether only a person can help.
    pub fn is_stalled(&self) -> bool {
        match self {
            Self::Failed(_) | Self::Differs(_) | Self::Disputed(..) | Self::CopiedFrom(_) => true,
            Self::Available(_)
            | Self::Copied
            | Self::Leaving(_)
            | Self::ToMake
            | Self::NotFound(_)
            | Self::Terminating
            | Self::OtherRevision(_)
            | Self::Syncing(_) => false,
        }
    }

    /// Why it is not usable yet; none when it is.
    pub fn lack(&self, entry: &VirtualMachine) -> Option<Lack> {
        let name = &entry.spec.vm_disk_image_name;
        let (reason, message) = match self {
            Self::Available(_) | Self::Copied => return None,
            Self::CopiedFrom(_) | Self::Leaving(_) => return self.lack_of_own(entry),
            Self::ToMake => (Reason::Creating, format!("VMDiskImage '{name}' is to be made")),
            Self::NotFound(namespace) => (
                Reason::ImageNotFound,
                format!(
                    "there is no VMDiskImage '{name}' in namespace {namespace}: create it there, or say in `image` of entry '{}' how it is made",
                    entry.name
                ),
            ),
            Self::Terminating => (
                Reason::ImageTerminating,
                format!("VMDiskImage '{name}' is being deleted; it is waited for until it is gone"),
            ),
            Self::Differs(field) => (
                Reason::ImageDiffers,
                format!(
                    "VMDiskImage '{name}' is there with another `{field}` than `image` of entry '{}': use another name, or remove `image` to use it as it is",
                    entry.name
                ),
            ),
            Self::Disputed(other, field) => (
                Reason::ImageDiffers,
                format!(
                    "entries '{other}' and '{}' make VMDiskImage '{name}' with another `{field}` each: give one of them another `VMDiskImageName`, or remove `image` of one",
                    entry.name
                ),
            ),
            Self::OtherRevision(current) => (
                Reason::RevisionNotFound,
                format!(
                    "VMDiskImage '{name}' is at revision {current}, and entry '{}' pins {}: remove `revision`, or name that one",
                    entry.name,
                    entry.spec.revision.as_deref().unwrap_or_default()
                ),
            ),
            Self::Failed(words) => {
                (Reason::ImageFailed, format!("VMDiskImage '{name}' has failed: {words}"))
            }
            Self::Syncing(words) => {
                (Reason::AwaitingImages, format!("VMDiskImage '{name}' is waited for: {words}"))
            }
        };
        Some(Lack { reason, message })
    }

    /// Why the disk that the machine has, or had, is not the one that its entry asks for.
    fn lack_of_own(&self, entry: &VirtualMachine) -> Option<Lack> {
        let name = &entry.spec.vm_disk_image_name;
        let (reason, message) = match self {
            Self::CopiedFrom(Origin { image, .. }) if image != name => (
                Reason::ImageDiffers,
                format!(
                    "the disk of entry '{}' was made from VMDiskImage '{image}', and holds what its guest wrote: it is not replaced. Name that image, or remove the entry and add it again",
                    entry.name
                ),
            ),
            Self::CopiedFrom(Origin { revision, .. }) => (
                Reason::RevisionNotFound,
                format!(
                    "the disk of entry '{}' was made from revision {revision} of VMDiskImage '{name}', and holds what its guest wrote: it is not replaced. Pin that revision, or remove the entry and add it again",
                    entry.name
                ),
            ),
            Self::Leaving(claim) => (
                Reason::OldChildTerminating,
                format!(
                    "PersistentVolumeClaim '{claim}', the disk of entry '{}', is being deleted: a new one is made when it is gone",
                    entry.name
                ),
            ),
            _ => return None,
        };
        Some(Lack { reason, message })
    }
}

/// Whether a workspace names the image.
pub fn is_named(workspace: &Workspace, image: &str) -> bool {
    workspace.spec.virtual_machines.iter().any(|entry| entry.spec.vm_disk_image_name == image)
}
