//! The disk images that a workspace needs: which are there, which it can make, and what it waits for. It reads of an image
//! what its controller says of it, and the revision that was usable when a disk was made from it; later ones never touch
//! the workspace.

use otctl_types::condition::{self, Reason};
use otctl_types::diskimage::{Current, Phase};
use otctl_types::workspace::VirtualMachine;
use otctl_types::{VMDiskImage, Workspace};

use crate::children::image;

/// What the workspace has of an image that an entry names.
#[derive(Clone, Debug, PartialEq)]
pub enum Disk {
    /// It is usable.
    Available(Box<Current>),
    /// There is none, and the entry says how it is made.
    ToMake,
    /// There is none, and the entry does not say how it is made.
    NotFound,
    /// It is being deleted.
    Terminating,
    /// It is there with another source than the entry says; the field that differs.
    Differs(&'static str),
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
    /// What an entry has of `found`, the object of that name. `made_from` is the revision that its disk was made from.
    pub fn of(entry: &VirtualMachine, found: Option<&VMDiskImage>, made_from: Option<&str>) -> Self {
        let Some(found) = found else {
            return if entry.spec.image.is_some() { Self::ToMake } else { Self::NotFound };
        };
        if found.metadata.deletion_timestamp.is_some() {
            return Self::Terminating;
        }
        let wanted = entry.spec.image.as_ref();
        if let Some(field) = wanted.and_then(|wanted| image::differs(wanted, &found.spec)) {
            return Self::Differs(field);
        }
        let status = found.status.as_ref();
        let is_available =
            status.is_some_and(|it| condition::is_true(&it.conditions, condition::AVAILABLE));
        let current = status.and_then(|status| status.current.as_ref()).filter(|_| is_available);
        match current {
            Some(current) => Self::current(entry, current, made_from),
            None => Self::unavailable(found),
        }
    }

    /// What a disk was made from already counts, whatever is current.
    fn current(entry: &VirtualMachine, current: &Current, made_from: Option<&str>) -> Self {
        match &entry.spec.revision {
            Some(pinned) if *pinned != current.revision && made_from != Some(pinned) => {
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
        matches!(self, Self::Available(_) | Self::ToMake)
    }

    /// Whether only a person can help.
    pub fn is_stalled(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Differs(_))
    }

    /// Why it is not usable yet; none when it is.
    pub fn lack(&self, entry: &VirtualMachine) -> Option<Lack> {
        let name = &entry.spec.vm_disk_image_name;
        let (reason, message) = match self {
            Self::Available(_) => return None,
            Self::ToMake => (Reason::Creating, format!("VMDiskImage '{name}' is to be made")),
            Self::NotFound => (
                Reason::ImageNotFound,
                format!(
                    "there is no VMDiskImage '{name}': create it, or say in `image` of entry '{}' how it is made",
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
}

/// Whether a workspace names the image.
pub fn is_named(workspace: &Workspace, image: &str) -> bool {
    workspace.spec.virtual_machines.iter().any(|entry| entry.spec.vm_disk_image_name == image)
}
