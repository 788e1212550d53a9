//! The kinds that commands know. Another one is one more implementation of [`Kind`] in a file of its own, and a place in
//! [`KINDS`].

mod image;
mod standing;
mod told;
mod workspace;

use futures::future::BoxFuture;
use kube::api::{ApiResource, DynamicObject, TypeMeta};
use kube::{Api, Client, ResourceExt as _};
use otctl_types::condition::READY;

use self::standing::Wanted;
use crate::cli::Goal;
use crate::client::Cluster;
use crate::progress::Progress;
use crate::tree::Node;

pub(crate) use self::standing::{Standing, Verdict};

/// Every kind.
pub(crate) static KINDS: [&dyn Kind; 2] = [&image::Images, &workspace::Workspaces];

/// What commands have to know of a kind. Its status is one of ours: `observedGeneration`, `phase`, `message`, and
/// conditions as kstatus reads them.
pub(crate) trait Kind: Sync {
    /// Where it is at the API server.
    fn resource(&self) -> ApiResource;

    /// Whether its objects are in namespaces.
    fn is_namespaced(&self) -> bool;

    /// What people call it, in lower case, the full name first.
    fn names(&self) -> &'static [&'static str];

    /// The field of `spec` that holds an object up while it is true.
    fn suspend_field(&self) -> &'static str;

    /// The condition that says that there is something to use, of the spec as it is or of an earlier one.
    fn available(&self) -> &'static str;

    /// Whether the status answers everything that was asked, of what changes no generation.
    fn has_heard(&self, object: &DynamicObject) -> bool;

    /// How far it is.
    fn progress(&self, object: &DynamicObject) -> Progress;

    /// What a retry would give.
    fn retry<'a>(
        &'a self,
        cluster: &'a Cluster,
        object: &'a DynamicObject,
    ) -> BoxFuture<'a, anyhow::Result<Retry>>;

    /// The object as a tree.
    fn describe<'a>(
        &'a self,
        cluster: &'a Cluster,
        object: &'a DynamicObject,
    ) -> BoxFuture<'a, anyhow::Result<Node>>;
}

/// What asking again comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// Nothing, and why.
    Nothing(String),
    /// This.
    Gives(String),
}

impl dyn Kind {
    /// Its objects in this namespace, or in all.
    pub(crate) fn api(&self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace.filter(|_| self.is_namespaced()) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => Api::all_with(client.clone(), &self.resource()),
        }
    }

    /// Where an object stands, seen from what is wanted of it.
    pub(crate) fn judge(&self, object: &DynamicObject, goal: Goal) -> Standing {
        let wanted = Wanted {
            condition: match goal {
                Goal::Ready => READY,
                Goal::Available => self.available(),
            },
            has_heard: self.has_heard(object),
            is_suspended: self.is_suspended(object),
        };
        standing::judge(object, wanted, self.progress(object))
    }

    /// Whether the spec of an object holds it up.
    pub(crate) fn is_suspended(&self, object: &DynamicObject) -> bool {
        object.data["spec"][self.suspend_field()] == true
    }
}

/// The kind that somebody calls so: any of its names, also with its group, in any case.
pub(crate) fn named(name: &str) -> Option<&'static dyn Kind> {
    let name = name.to_ascii_lowercase();
    KINDS.into_iter().find(|kind| {
        let group = kind.resource().group;
        let bare = name.strip_suffix(&group).and_then(|name| name.strip_suffix('.'));
        kind.names().contains(&bare.unwrap_or(&name))
    })
}

/// The kind of an object that says what it is.
pub(crate) fn of(types: &TypeMeta) -> Option<&'static dyn Kind> {
    KINDS.into_iter().find(|kind| {
        let resource = kind.resource();
        resource.api_version == types.api_version && resource.kind == types.kind
    })
}

/// An object of a kind.
#[derive(Clone)]
pub(crate) struct Found {
    /// Its kind.
    pub(crate) kind: &'static dyn Kind,
    /// As it was read.
    pub(crate) object: DynamicObject,
}

impl Found {
    /// As kubectl names it: `vmdiskimage.pelotech.ot/web`.
    pub(crate) fn reference(&self) -> String {
        reference(&self.kind.resource(), &self.object.name_any())
    }

    /// Its namespace and name: `lab/web`.
    pub(crate) fn place(&self) -> String {
        let name = self.object.name_any();
        self.object.namespace().map_or(name.clone(), |namespace| format!("{namespace}/{name}"))
    }

    /// Where it is read and changed.
    pub(crate) fn api(&self, client: &Client) -> Api<DynamicObject> {
        self.kind.api(client, self.object.namespace().as_deref())
    }

    /// Where it stands.
    pub(crate) fn judge(&self, goal: Goal) -> Standing {
        self.kind.judge(&self.object, goal)
    }
}

/// As kubectl names an object: the kind in lower case, its group if it has one, and the name.
pub(crate) fn reference(resource: &ApiResource, name: &str) -> String {
    let kind = resource.kind.to_ascii_lowercase();
    let group = if resource.group.is_empty() { "" } else { "." };
    format!("{kind}{group}{}/{name}", resource.group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_what_people_call_it() {
        let names = ["vmdi", "vmdiskimage", "VMDiskImages", "image", "images"];
        for name in names.into_iter().chain(["vmdiskimage.pelotech.ot", "vmdi.pelotech.ot"]) {
            assert!(named(name).is_some(), "{name}");
        }
        for name in ["ws", "workspace", "Workspaces", "ws.pelotech.ot"] {
            assert!(named(name).is_some(), "{name}");
        }
        for name in ["", "pod", "vmdiskimage.other.group", ".pelotech.ot", "vmdiskimagepelotech.ot"]
        {
            assert!(named(name).is_none(), "{name}");
        }
    }

    #[test]
    fn no_name_leads_to_two_kinds() {
        let mut names: Vec<_> = KINDS.iter().flat_map(|kind| kind.names()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn an_object_is_named_as_kubectl_does() {
        assert_eq!(reference(&KINDS[0].resource(), "web"), "vmdiskimage.pelotech.ot/web");
        let pods = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
        assert_eq!(reference(&pods, "web"), "pod/web");
    }
}
