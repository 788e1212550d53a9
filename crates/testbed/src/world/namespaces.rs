//! Namespaces: one that is deleted takes nothing new, loses everything in it, and goes. Tests that make no namespace need
//! none.

use otctl_kit::cluster::{ApiError, Request, Target};
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::json;

use super::objects::State;
use super::{Id, Verb};
use crate::json::{is_deleting, list};

/// The finalizer by which a namespace stays until it is empty. On a real server it stands in the spec.
pub(super) const EMPTIED: &str = "kubernetes";

/// What is due for a namespace.
pub(super) enum Deed {
    /// Delete an object in it.
    Empty(Id),
    /// It is empty.
    Release,
}

/// Whether a new object is taken.
pub(super) fn admit(state: &State, id: &Id) -> Result<(), ApiError> {
    let namespace = &id.key.namespace;
    let of = Id::new("Namespace", &Key::new("", namespace));
    match state.get(&of) {
        _ if namespace.is_empty() => Ok(()),
        Some(held) if is_deleting(held) => Err(ApiError::Forbidden {
            detail: format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            ),
            quota: false,
            namespace_terminating: true,
        }),
        Some(_) | None => Ok(()),
    }
}

/// Whether a controller may ask for anything in a namespace: with one that is gone its rights there went.
pub(super) fn allow(state: &State, request: &Request) -> Result<(), ApiError> {
    let Some(namespace) = of_request(request) else { return Ok(()) };
    let is_there = state.get(&Id::new("Namespace", &Key::new("", &namespace))).is_some();
    if is_there || !state.namespaces.contains(&namespace) {
        return Ok(());
    }
    Err(ApiError::Forbidden {
        detail: format!("the controller cannot do that in the namespace {namespace:?}"),
        quota: false,
        namespace_terminating: false,
    })
}

fn of_request(request: &Request) -> Option<String> {
    let of_target = |target: &Target| match target.resource.kind.as_str() {
        "Namespace" => Some(target.name.clone()),
        _ => target.namespace.clone(),
    };
    match request {
        Request::List { namespace, .. } => namespace.clone(),
        Request::Create(object)
        | Request::Apply(object)
        | Request::Replace(object)
        | Request::ReplaceStatus(object) => of_target(&Target::of(object)),
        Request::Get(target)
        | Request::Strip { target, .. }
        | Request::Patch { target, .. }
        | Request::PatchStatus { target, .. }
        | Request::Delete { target, .. } => of_target(target),
    }
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    let namespace = state.get(id).filter(|_| id.kind == "Namespace")?;
    if !is_deleting(namespace) {
        return None;
    }
    let inside: Vec<_> =
        state.objects().filter(|(inner, _)| inner.key.namespace == id.key.name).collect();
    match inside.iter().find(|(_, object)| !is_deleting(object)) {
        Some((inner, _)) => Some(Deed::Empty((*inner).clone())),
        None => inside.is_empty().then_some(Deed::Release),
    }
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    match deed {
        Deed::Empty(inner) => {
            state.delete(&inner, Propagation::Background);
            format!("{inner} goes with its namespace")
        }
        Deed::Release => {
            let mut namespace = state.get(id).expect("a deed is about what is held").clone();
            list(&mut namespace["metadata"]["finalizers"]).retain(|it| it != &json!(EMPTIED));
            state.update(id, namespace, Verb::Update);
            format!("{id} is empty")
        }
    }
}

#[cfg(test)]
mod tests {
    use otctl_kit::cluster::Request;
    use serde_json::Value;

    use super::*;
    use crate::builders::key;
    use crate::clock::VirtualClock;
    use crate::world::World;

    fn create(world: &World, name: &str) -> Result<(), ApiError> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "labs"},
        });
        let object = serde_json::from_value(object).unwrap();
        world.request("controller", Request::Create(Box::new(object))).map(drop)
    }

    fn run(world: &World) {
        while let Some(act) = world.acts().first() {
            world.perform(act);
        }
    }

    #[test]
    fn a_namespace_that_goes_takes_nothing_and_is_gone_when_it_is_empty() {
        let world = World::new(&VirtualClock::default());
        create(&world, "without-one").expect("no test needs a namespace");
        world.create_value(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "labs"}}),
        );
        create(&world, "held").unwrap();
        world.edit("ConfigMap", &key("labs/held"), |it| {
            it["metadata"]["finalizers"] = json!(["somebody/else"]);
        });
        world.delete("Namespace", &key("labs"), Propagation::Background);
        let refused = create(&world, "late");
        let is_going = |it: &ApiError| {
            matches!(it, ApiError::Forbidden { namespace_terminating: true, quota: false, .. })
        };
        assert!(refused.as_ref().is_err_and(is_going), "{refused:?}");
        run(&world);
        let names: Vec<Value> =
            world.list("ConfigMap").iter().map(|it| it["metadata"]["name"].clone()).collect();
        assert_eq!(names, [json!("held")]);
        assert_eq!(world.list("Namespace").len(), 1);
        world.edit("ConfigMap", &key("labs/held"), |it| it["metadata"]["finalizers"] = json!([]));
        run(&world);
        assert!(world.list("Namespace").is_empty() && world.list("ConfigMap").is_empty());
        let later = create(&world, "later");
        let is_barred =
            |it: &ApiError| matches!(it, ApiError::Forbidden { namespace_terminating: false, .. });
        assert!(later.as_ref().is_err_and(is_barred), "{later:?}");
    }
}
