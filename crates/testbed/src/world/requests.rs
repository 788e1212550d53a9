//! What the API server answers to a request of the kit: preconditions, subresources, merging.

use kube::core::{ApiResource, DynamicObject};
use otctl_kit::cluster::{Answer, ApiError, Request, Target};
use otctl_kit::plan::Propagation;
use otctl_kit::store::Key;
use serde_json::{Value, json};

use super::objects::{State, id_of};
use super::{Id, Verb, apply, namespaces, schema};
use crate::json::{map, merge, text};

pub(super) fn answer(state: &mut State, request: Request) -> Result<Answer, ApiError> {
    namespaces::allow(state, &request)?;
    match request {
        Request::Get(target) => get(state, &target),
        Request::List { resource, namespace, selector } => {
            objects(state, &resource, namespace.as_deref(), &selector).map(Answer::Objects)
        }
        Request::Create(object) => create(state, sent(&object)),
        Request::Apply(object) => apply::apply(state, &sent(&object)),
        Request::Replace(object) => replace(state, sent(&object)),
        Request::ReplaceStatus(object) => replace_status(state, &sent(&object)),
        Request::Patch { target, patch } => self::patch(state, &target, &patch),
        Request::Strip { target, uid, resource_version, places } => {
            let preconditions = json!({"uid": uid, "resourceVersion": resource_version});
            strip(state, &target, &preconditions, &places)
        }
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

pub(super) fn create(state: &mut State, mut object: Value) -> Result<Answer, ApiError> {
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
    namespaces::admit(state, &id)?;
    schema::check(state, &id, None, &object)?;
    map(&mut object).remove("status");
    read(&state.insert(id, object))
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

/// Everything but status is taken from the patch. Its uid and resourceVersion are preconditions.
fn patch(state: &mut State, target: &Target, patch: &Value) -> Result<Answer, ApiError> {
    let id = id_of_target(target);
    let held = state.get(&id).ok_or_else(|| not_found(&id))?;
    check_preconditions(&id, held, &patch["metadata"])?;
    let (mut next, mut given) = (held.clone(), patch.clone());
    map(&mut given).remove("status");
    merge(&mut next, &given);
    read(&state.update(&id, next, Verb::Update))
}

/// A place that is not there makes the patch invalid.
fn strip(
    state: &mut State,
    target: &Target,
    preconditions: &Value,
    places: &[String],
) -> Result<Answer, ApiError> {
    let id = id_of_target(target);
    let held = state.get(&id).ok_or_else(|| not_found(&id))?;
    check_preconditions(&id, held, preconditions)?;
    let mut next = held.clone();
    for place in places {
        take_out(&mut next, place)
            .ok_or_else(|| ApiError::Invalid { detail: format!("{id} has no {place}") })?;
    }
    schema::check(state, &id, Some(held), &next)?;
    read(&state.update(&id, next, Verb::Update))
}

fn take_out(object: &mut Value, place: &str) -> Option<Value> {
    let (parent, last) = place.rsplit_once('/')?;
    match object.pointer_mut(parent)? {
        Value::Array(items) => {
            let at = last.parse().ok().filter(|at| *at < items.len())?;
            Some(items.remove(at))
        }
        Value::Object(fields) => fields.remove(last),
        _ => None,
    }
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
pub(super) fn check_preconditions(id: &Id, held: &Value, wanted: &Value) -> Result<(), ApiError> {
    for field in ["uid", "resourceVersion"] {
        let (given, actual) = (text(&wanted[field]), text(&held["metadata"][field]));
        if !given.is_empty() && given != actual {
            return Err(conflict(id, &format!("{field} {given} was asked for, it is {actual}")));
        }
    }
    Ok(())
}

pub(super) fn conflict(id: &Id, why: &str) -> ApiError {
    ApiError::Conflict { detail: format!("{id}: {why}") }
}

pub(super) fn not_found(id: &Id) -> ApiError {
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

pub(super) fn read(object: &Value) -> Result<Answer, ApiError> {
    Ok(Answer::Object(Box::new(dynamic(object)?)))
}

fn dynamic(object: &Value) -> Result<DynamicObject, ApiError> {
    serde_json::from_value(object.clone())
        .map_err(|error| ApiError::Unreadable { detail: error.to_string() })
}
