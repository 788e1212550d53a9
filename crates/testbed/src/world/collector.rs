//! The garbage collector: dependents of owners that are gone, and owners that wait for their dependents.

use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::objects::{FOREGROUND, State};
use super::{Id, Verb};
use crate::json::{is_deleting, items, list, text, uid};

/// What is due for an object.
#[derive(Clone, Copy)]
pub(super) enum Deed {
    /// None of its owners is left.
    Collect(Propagation),
    /// Some of them are; the others are not named any more.
    Trim,
    /// None of its dependents is left that it had to wait for.
    Release,
}

pub(super) fn due(state: &State, id: &Id) -> Option<Deed> {
    let object = state.get(id)?;
    if is_in_foreground_deletion(object) {
        let blocks = |dependent: &Value| {
            let owners = items(&dependent["metadata"]["ownerReferences"]).iter();
            owners
                .filter(|owner| owner["uid"] == uid(object))
                .any(|owner| owner["blockOwnerDeletion"] == json!(true))
        };
        let is_blocked = state.dependents(uid(object)).any(|(_, dependent)| blocks(dependent));
        return (!is_blocked).then_some(Deed::Release);
    }
    let owners = items(&object["metadata"]["ownerReferences"]);
    if owners.is_empty() || is_deleting(object) {
        return None;
    }
    let lives = owners.iter().filter_map(|owner| owner_of(state, id, owner)).collect::<Vec<_>>();
    let is_wanted = lives.iter().any(|owner| !is_in_foreground_deletion(owner));
    let propagation =
        if lives.is_empty() { Propagation::Background } else { Propagation::Foreground };
    let is_trimmed = lives.len() == owners.len();
    match is_wanted {
        false => Some(Deed::Collect(propagation)),
        true => (!is_trimmed).then_some(Deed::Trim),
    }
}

pub(super) fn perform(state: &mut State, id: &Id, deed: Deed) -> String {
    match deed {
        Deed::Collect(propagation) => {
            state.delete(id, propagation);
            format!("{id} is collected with its owner")
        }
        Deed::Trim => {
            let held = state.get(id).expect("a deed is about what is held");
            let owners = items(&held["metadata"]["ownerReferences"]).iter();
            let left = owners.filter(|owner| owner_of(state, id, owner).is_some()).cloned();
            let (left, mut object) = (left.collect::<Vec<_>>(), held.clone());
            object["metadata"]["ownerReferences"] = json!(left);
            state.update(id, object, Verb::Update);
            format!("{id} loses the owners that are gone")
        }
        Deed::Release => {
            let mut object = state.get(id).expect("a deed is about what is held").clone();
            list(&mut object["metadata"]["finalizers"]).retain(|finalizer| finalizer != FOREGROUND);
            state.update(id, object, Verb::Update);
            format!("{id} goes after its dependents")
        }
    }
}

fn is_in_foreground_deletion(object: &Value) -> bool {
    is_deleting(object) && items(&object["metadata"]["finalizers"]).contains(&json!(FOREGROUND))
}

/// The living owner that a reference names: same namespace or cluster-scoped, and the same UID.
fn owner_of<'a>(state: &'a State, dependent: &Id, reference: &Value) -> Option<&'a Value> {
    [dependent.key.namespace.as_str(), ""].into_iter().find_map(|namespace| {
        let key = Key::new(namespace, text(&reference["name"]));
        state
            .get(&Id::new(text(&reference["kind"]), &key))
            .filter(|owner| uid(owner) == text(&reference["uid"]))
    })
}
