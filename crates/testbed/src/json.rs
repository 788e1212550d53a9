//! Short ways to read and change objects held as JSON. A field that is absent reads as empty.

use serde_json::{Map, Value, json};

/// A string field, or the empty string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The elements of a list field.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The map at `value`, made if there is none.
pub(crate) fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it was made a map just now")
}

/// The list at `value`, made if there is none.
pub(crate) fn list(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it was made a list just now")
}

/// UID of an object.
pub(crate) fn uid(object: &Value) -> &str {
    text(&object["metadata"]["uid"])
}

/// Whether the object is being deleted.
pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// The owner reference that is marked as the controller's.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    items(&object["metadata"]["ownerReferences"])
        .iter()
        .find(|owner| owner["controller"] == json!(true))
}

/// Whether a condition of that type is True.
pub(crate) fn is_condition_true(object: &Value, kind: &str) -> bool {
    let conditions = items(&object["status"]["conditions"]).iter();
    conditions
        .filter(|condition| condition["type"] == kind)
        .any(|condition| condition["status"] == "True")
}

/// Sets a condition; `transition` is written only when its status changes.
pub(crate) fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    transition: &str,
) {
    let conditions = list(&mut object["status"]["conditions"]);
    let held = conditions.iter().position(|condition| condition["type"] == kind);
    let since =
        held.filter(|at| conditions[*at]["status"] == status).map(|at| conditions[at].clone());
    let since = since
        .map_or_else(|| json!(transition), |condition| condition["lastTransitionTime"].clone());
    let condition = json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": since});
    match held {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// RFC 7386: `patch` over `target`; null removes.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    let target = map(target);
    for (name, field) in fields {
        if field.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.as_str()).or_insert(Value::Null), field);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_replaces_lists_removes_nulls_and_keeps_the_rest() {
        let mut object = json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"});
        merge(&mut object, &json!({"a": {"c": [3], "e": {"f": null, "g": 1}}, "d": null}));
        assert_eq!(object, json!({"a": {"b": 1, "c": [3], "e": {"g": 1}}}));
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let mut object = json!({});
        set_condition(&mut object, "Ready", "False", "A", "t1");
        set_condition(&mut object, "Ready", "False", "B", "t2");
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "t1");
        set_condition(&mut object, "Ready", "True", "C", "t3");
        assert_eq!(object["status"]["conditions"][0]["lastTransitionTime"], "t3");
        assert!(is_condition_true(&object, "Ready"));
    }
}
