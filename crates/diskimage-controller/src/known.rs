//! What follows from an image alone, computed once per version of it: hashes, its place in the order, its host. A pass of
//! the queue looks at every image; with ten thousand of them it must not hash ten thousand specs, several times each.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use otctl_kit::store::Version;
use otctl_types::VMDiskImage;
use policy::Ticket;

use crate::record::Record;
use crate::source;

/// An image, and what follows from it.
#[derive(Clone, Debug)]
pub struct Known {
    /// What its status remembers, with its hashes.
    pub record: Record,
    /// Its UID.
    pub uid: String,
    /// Its ticket, if it has a readable one.
    pub ticket: Option<Ticket>,
    /// The highest ticket that an attempt of it was bought with. It may stand here alone: an attempt that is given up
    /// before it is on record leaves no ticket in status.
    pub spent: Option<Ticket>,
    /// The lane of its source.
    pub host: Option<String>,
    /// Order of first tickets: creation, then version; then UID.
    pub order: (Option<Time>, Version),
    image: Arc<VMDiskImage>,
}

impl Known {
    /// What follows from this image.
    pub fn of(image: Arc<VMDiskImage>) -> Self {
        let status = image.status.as_ref();
        let ticket = status.and_then(|status| status.ticket.as_deref());
        let attempts = status.map(|status| status.attempts.as_slice()).unwrap_or_default();
        let spent = attempts.iter().filter_map(|attempt| attempt.ticket.as_deref()?.parse().ok());
        Self {
            spent: spent.max(),
            record: Record::of_shared(&image),
            uid: image.uid().unwrap_or_default(),
            ticket: ticket.and_then(|text| text.parse().ok()),
            host: source::host(&image.spec.url),
            order: (image.creation_timestamp(), Version::of(&*image)),
            image,
        }
    }
}

impl Deref for Known {
    type Target = VMDiskImage;

    fn deref(&self) -> &VMDiskImage {
        &self.image
    }
}

/// What follows from each image, by UID. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KnownImages {
    known: Arc<Mutex<HashMap<String, Arc<Known>>>>,
}

impl KnownImages {
    /// What follows from these; what was known of others is forgotten.
    pub fn all(&self, images: Vec<Arc<VMDiskImage>>) -> Vec<Arc<Known>> {
        let mut before = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let mut after = HashMap::with_capacity(images.len());
        let mut all = Vec::with_capacity(images.len());
        for image in images {
            let held = image.metadata.uid.as_ref().and_then(|uid| before.remove(uid));
            let known = held
                .filter(|held| Arc::ptr_eq(&held.image, &image))
                .unwrap_or_else(|| Arc::new(Known::of(image)));
            after.insert(known.uid.clone(), known.clone());
            all.push(known);
        }
        *before = after;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(uid: &str, version: &str) -> Arc<VMDiskImage> {
        let mut image = VMDiskImage::new(uid, Default::default());
        image.metadata.uid = Some(uid.to_owned());
        image.metadata.resource_version = Some(version.to_owned());
        Arc::new(image)
    }

    #[test]
    fn what_follows_is_computed_once_per_version() {
        let (known, a, b) = (KnownImages::default(), image("a", "1"), image("b", "1"));
        let first = known.all(vec![a.clone(), b.clone()]);
        let changed = image("a", "2");
        let second = known.all(vec![changed, b]);
        assert!(!Arc::ptr_eq(&first[0], &second[0]) && Arc::ptr_eq(&first[1], &second[1]));
        assert_eq!(second[0].order.1, Version::read("2"));
        known.all(Vec::new());
        assert!(known.known.lock().unwrap().is_empty(), "and forgotten with the image");
    }
}
