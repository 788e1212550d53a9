//! What the views show of the objects that have, or should have, the names of an image's children: ours, somebody else's,
//! and those on their way out.

use kube::ResourceExt;
use otctl_kit::cluster::Target;
use otctl_kit::store::{Key, Store};
use otctl_types::VMDiskImage;

use super::Presence;
use crate::children::target;
use crate::image::Image;
use crate::jobs;
use crate::names;
use crate::record::Record;

impl Image {
    /// The child of that name that is owned by this UID. A foreign object is not seen here; making the child will tell.
    pub(super) fn child<K>(&self, store: &Store<K>, image: &VMDiskImage, name: &str) -> Presence<K>
    where
        K: kube::Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        let found = store.get(&Key::new(&image.namespace().unwrap_or_default(), name));
        let ours =
            found.filter(|child| jobs::controller_uid(child.meta()) == image.uid().as_deref());
        ours.map_or(Presence::Unseen, Presence::Present)
    }

    pub(super) fn outdated(&self, image: &VMDiskImage, record: &Record) -> Vec<(Target, String)> {
        let uid = image.uid().unwrap_or_default();
        let name = image.name_any();
        let kept = record.status.current.as_ref().map(|current| current.revision.as_str());
        let revisions = [Some(record.revision.as_str()), kept];
        let data: Vec<String> =
            revisions.iter().flatten().map(|revision| names::data_name(&name, revision)).collect();
        let scratch = names::scratch_name(&name, &record.revision);
        let claims = self.views.claims.owned_by(&uid).into_iter().filter(|claim| {
            !data.contains(&claim.name_any())
                && claim.name_any() != scratch
                && claim.metadata.deletion_timestamp.is_none()
        });
        let snapshots = self.views.snapshots.owned_by(&uid).into_iter().filter(|snapshot| {
            !data.contains(&snapshot.name_any()) && snapshot.metadata.deletion_timestamp.is_none()
        });
        let claims = claims.map(|claim| (target(&*claim), claim.uid().unwrap_or_default()));
        let snapshots = snapshots.map(|snapshot| {
            (target(&*snapshot), snapshot.metadata.uid.clone().unwrap_or_default())
        });
        claims.chain(snapshots).collect()
    }

    /// The first child of that kind.
    pub(super) fn leaving(&self, image: &VMDiskImage, record: &Record) -> Option<Target> {
        let name = image.name_any();
        let data = names::data_name(&name, &record.revision);
        let scratch = names::scratch_name(&name, &record.revision);
        leaving(&self.views.claims, image, &data)
            .or_else(|| leaving(&self.views.claims, image, &scratch))
            .or_else(|| leaving(&self.views.snapshots, image, &data))
    }

    /// An object of a child's name that is neither ours nor on its way out with an earlier image. Views go by label, so
    /// not everybody's is seen; what is not is found when the child is made.
    pub(super) fn foreign(&self, image: &VMDiskImage, record: &Record) -> Option<Target> {
        let name = image.name_any();
        let data = names::data_name(&name, &record.revision);
        let scratch = names::scratch_name(&name, &record.revision);
        strange(&self.views.claims, image, &data)
            .or_else(|| strange(&self.views.claims, image, &scratch))
            .or_else(|| strange(&self.views.snapshots, image, &data))
    }
}

/// The object of that name, if it is somebody else's and stays.
fn strange<K>(store: &Store<K>, image: &VMDiskImage, name: &str) -> Option<Target>
where
    K: kube::Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let found = store.get(&Key::new(&image.namespace().unwrap_or_default(), name))?;
    let is_ours = jobs::controller_uid(found.meta()) == image.metadata.uid.as_deref();
    let is_going = leaving(store, image, name).is_some();
    (!is_ours && !is_going).then(|| target(&*found))
}

/// The object of that name, if it is on its way out: ours and being deleted, or of an image of the same name that is
/// gone, with which it goes.
fn leaving<K>(store: &Store<K>, image: &VMDiskImage, name: &str) -> Option<Target>
where
    K: kube::Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let found = store.get(&Key::new(&image.namespace().unwrap_or_default(), name))?;
    let owner = jobs::controller(found.meta())?;
    let is_ours = Some(&owner.uid) == image.metadata.uid.as_ref();
    let is_going = is_ours && found.meta().deletion_timestamp.is_some();
    let is_of_the_dead = !is_ours && jobs::is_image(owner) && owner.name == image.name_any();
    (is_going || is_of_the_dead).then(|| target(&*found))
}
