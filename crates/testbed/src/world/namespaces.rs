//! Namespaces: one that is deleted takes nothing new, loses everything in it, and goes. Tests that make no namespace need
//! none.

use otctl_kit::cluster::ApiError;
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::json;

use super::objects::State;
use super::requests::not_found;
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
        None if state.namespaces.contains(namespace) => Err(not_found(&of)),
        Some(_) | None => Ok(()),
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
