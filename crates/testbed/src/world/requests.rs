//! What the API server answers to a request of the kit: preconditions, subresources, merging.

use kube::core::{ApiResource, DynamicObject};
use otctl_kit::cluster::{Answer, ApiError, Request, Target};
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::objects::{State, id_of};
use super::{Id, Verb};
use crate::json::{items, list, map, merge, text, uid};

pub(super) fn answer(state: &mut State, request: Request) -> Result<Answer, ApiError> {
    match request {
        Request::Get(target) => get(state, &target),
        Request::List { resource, namespace, selector } => {
            objects(state, &resource, namespace.as_deref(), &selector).map(Answer::Objects)
        }
        Request::Create(object) => create(state, sent(&object)),
        Request::Apply(object) => apply(state, &sent(&object)),
        Request::Replace(object) => replace(state, sent(&object)),
        Request::ReplaceStatus(object) => replace_status(state, &sent(&object)),
        Request::PatchStatus { target, patch } => patch_status(state, &target, &patch),
        Request::Delete { target, uid, resource_version, propagation } => {
            let preconditions = json!({"uid": uid, "resourceVersion": resource_version});
            delete(state, &target, &preconditions, propagation)
        }
    }
}

fn get(state: &State, target: &Target) -> Result<Answer, ApiError> {
    state.get(&id_of_target(target)).map_or(Ok(Answer::Absent), read)
}

fn objects(
    state: &State,
    resource: &ApiResource,
    namespace: Option<&str>,
    selector: &str,
) -> Result<Vec<DynamicObject>, ApiError> {
    let mut found = Vec::new();
    for (id, object) in state.of_kind(&resource.kind) {
        let in_scope = namespace.is_none_or(|namespace| namespace == id.key.namespace);
        if in_scope && is_selected(object, selector)? {
            found.push(dynamic(object)?);
        }
    }
    Ok(found)
}

/// Equality and presence, which is all that the kit's callers use.
fn is_selected(object: &Value, selector: &str) -> Result<bool, ApiError> {
    let labels = &object["metadata"]["labels"];
    for term in selector.split(',').filter(|term| !term.is_empty()) {
        if term.contains(['!', ' ', '(']) {
            return Err(ApiError::Invalid {
                detail: format!("the world reads no selector like \"{term}\""),
            });
        }
        let holds = match term.split_once('=') {
            Some((name, value)) => text(&labels[name]) == value.trim_start_matches('='),
            None => !labels[term].is_null(),
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

fn create(state: &mut State, mut object: Value) -> Result<Answer, ApiError> {
    let metadata = map(&mut object["metadata"]);
    if let Some(stem) = metadata.get("generateName").map(|stem| text(stem).to_owned())
        && !metadata.contains_key("name")
    {
        metadata.insert("name".to_owned(), json!(format!("{stem}{}", state.suffix())));
    }
    let id = id_of(&object);
    if id.key.name.is_empty() {
        return Err(ApiError::Invalid { detail: "name or generateName is required".to_owned() });
    }
    if state.get(&id).is_some() {
        return Err(ApiError::AlreadyExists);
    }
    map(&mut object).remove("status");
    read(&state.insert(id, object))
}

/// Creates, or merges the given fields; status is left alone. What was applied before and is not any more goes: all
/// controllers of the world are one field manager, as each object has one. An object that names a UID is never created by
/// it.
fn apply(state: &mut State, object: &Value) -> Result<Answer, ApiError> {
    let id = id_of(object);
    let Some(held) = state.get(&id) else {
        if !uid(object).is_empty() {
            return Err(conflict(
                &id,
                "the provided object specified a uid, and no existing object was found",
            ));
        }
        return create(state, object.clone());
    };
    check_preconditions(&id, held, &object["metadata"])?;
    let mut given = object.clone();
    map(&mut given).remove("status");
    let of = uid(held).to_owned();
    let before = state.applied.insert(of.clone(), given.clone()).unwrap_or_default();
    let mut merged = state.get(&id).expect("it was there").clone();
    forget(&mut merged, &before, &given);
    for (field, key) in [("ownerReferences", "uid"), ("finalizers", "")] {
        let [before, now] = [&before, &given].map(|it| items(&it["metadata"][field]).to_vec());
        let key = |item: &Value| if key.is_empty() { item.clone() } else { item[key].clone() };
        let is_given_up = |item: &Value| {
            before.iter().any(|it| key(it) == key(item))
                && !now.iter().any(|it| key(it) == key(item))
        };
        list(&mut merged["metadata"][field]).retain(|item| !is_given_up(item));
        add_each(&mut merged, field, &now, key);
        map(&mut given["metadata"]).remove(field);
    }
    merge(&mut merged, &given);
    let updated = state.update(&id, merged, Verb::Applied);
    if state.get(&id).is_none() {
        state.applied.remove(&of);
    }
    read(&updated)
}

/// Takes out of `held` the fields that were applied before and are not given any more.
fn forget(held: &mut Value, before: &Value, given: &Value) {
    let (Some(fields), Some(before)) = (held.as_object_mut(), before.as_object()) else { return };
    for (name, old) in before {
        match given.get(name) {
            None => drop(fields.remove(name)),
            Some(new) => {
                if let Some(field) = fields.get_mut(name) {
                    forget(field, old, new);
                }
            }
        }
    }
}

/// The lists of metadata that server-side apply merges by key.
fn add_each(object: &mut Value, field: &str, given: &[Value], key: impl Fn(&Value) -> Value) {
    for item in given {
        let held = list(&mut object["metadata"][field]);
        match held.iter_mut().find(|other| key(other) == key(item)) {
            Some(other) => *other = item.clone(),
            None => held.push(item.clone()),
        }
    }
}

fn replace(state: &mut State, mut object: Value) -> Result<Answer, ApiError> {
    let id = id_of(&object);
    let held = guarded(state, &id, &object)?;
    object["status"] = held["status"].clone();
    if object["status"].is_null() {
        map(&mut object).remove("status");
    }
    read(&state.update(&id, object, Verb::Update))
}

fn replace_status(state: &mut State, object: &Value) -> Result<Answer, ApiError> {
    let id = id_of(object);
    let mut next = guarded(state, &id, object)?;
    next["status"] = object["status"].clone();
    read(&state.update(&id, next, Verb::Status))
}

/// What a PUT would replace; it must name the resourceVersion that is held.
fn guarded(state: &State, id: &Id, object: &Value) -> Result<Value, ApiError> {
    let held = state.get(id).ok_or_else(|| not_found(id))?;
    if object["metadata"]["resourceVersion"].is_null() {
        let detail = "metadata.resourceVersion: must be specified for an update".to_owned();
        return Err(ApiError::Invalid { detail });
    }
    check_preconditions(id, held, &object["metadata"])?;
    Ok(held.clone())
}

/// Only status is taken from the patch. Its resourceVersion is a precondition; its uid is ignored, as the API server
/// does on this subresource.
fn patch_status(state: &mut State, target: &Target, patch: &Value) -> Result<Answer, ApiError> {
    let id = id_of_target(target);
    let held = state.get(&id).ok_or_else(|| not_found(&id))?;
    let precondition = json!({"resourceVersion": patch["metadata"]["resourceVersion"]});
    check_preconditions(&id, held, &precondition)?;
    let mut next = held.clone();
    if !patch["status"].is_null() {
        merge(&mut next["status"], &patch["status"]);
    }
    read(&state.update(&id, next, Verb::Status))
}

fn delete(
    state: &mut State,
    target: &Target,
    preconditions: &Value,
    propagation: Propagation,
) -> Result<Answer, ApiError> {
    let id = id_of_target(target);
    let held = state.get(&id).ok_or_else(|| not_found(&id))?;
    check_preconditions(&id, held, preconditions)?;
    state.delete(&id, propagation);
    state.get(&id).map_or(Ok(Answer::Done), read)
}

/// `uid` and `resourceVersion` of `wanted`, where given, must be those of what is held.
fn check_preconditions(id: &Id, held: &Value, wanted: &Value) -> Result<(), ApiError> {
    for field in ["uid", "resourceVersion"] {
        let (given, actual) = (text(&wanted[field]), text(&held["metadata"][field]));
        if !given.is_empty() && given != actual {
            return Err(conflict(id, &format!("{field} {given} was asked for, it is {actual}")));
        }
    }
    Ok(())
}

fn conflict(id: &Id, why: &str) -> ApiError {
    ApiError::Conflict { detail: format!("{id}: {why}") }
}

fn not_found(id: &Id) -> ApiError {
    ApiError::NotFound { detail: id.to_string() }
}

fn id_of_target(target: &Target) -> Id {
    Id::new(
        &target.resource.kind,
        &Key::new(target.namespace.as_deref().unwrap_or_default(), &target.name),
    )
}

fn sent(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("a dynamic object serialises")
}

fn read(object: &Value) -> Result<Answer, ApiError> {
    Ok(Answer::Object(Box::new(dynamic(object)?)))
}

fn dynamic(object: &Value) -> Result<DynamicObject, ApiError> {
    serde_json::from_value(object.clone())
        .map_err(|error| ApiError::Unreadable { detail: error.to_string() })
}
