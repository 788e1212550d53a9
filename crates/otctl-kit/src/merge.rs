//! JSON merge patches (RFC 7396): the smallest patch between two statuses, and what a patch makes of one.

use serde_json::{Map, Value};

/// The merge patch that turns `old` into `new`; none when they are equal. Arrays go whole. A null in `new` means
/// absent, because a merge patch cannot set one.
#[must_use]
pub fn merge_diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        let new = without_nulls(new);
        return (*old != new).then_some(new);
    };
    let mut patch = Map::new();
    for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
        let change = match old.get(key) {
            Some(held) => merge_diff(held, value),
            None => Some(without_nulls(value)),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    let gone = old.keys().filter(|key| new.get(*key).is_none_or(Value::is_null));
    patch.extend(gone.map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// What `patch` makes of `target`.
pub fn merge_apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let fields = target.as_object_mut().expect("it was made an object above");
    for (key, change) in patch {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge_apply(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

/// The value as a merge patch can set it: without nulls in objects. What is in an array is left as it is.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|(_, value)| !value.is_null());
            Value::Object(set.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(mut target: Value, patch: &Value) -> Value {
        merge_apply(&mut target, patch);
        target
    }

    /// The table of RFC 7396, appendix A.
    #[test]
    fn patches_apply_as_the_rfc_says() {
        let table = json!([
            [{"a": "b"}, {"a": "c"}, {"a": "c"}],
            [{"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}],
            [{"a": "b"}, {"a": null}, {}],
            [{"a": "b", "b": "c"}, {"a": null}, {"b": "c"}],
            [{"a": ["b"]}, {"a": "c"}, {"a": "c"}],
            [{"a": "c"}, {"a": ["b"]}, {"a": ["b"]}],
            [{"a": {"b": "c"}}, {"a": {"b": "d", "c": null}}, {"a": {"b": "d"}}],
            [{"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}],
            [["a", "b"], ["c", "d"], ["c", "d"]],
            [{"a": "b"}, ["c"], ["c"]],
            [{"a": "foo"}, null, null],
            [{"a": "foo"}, "bar", "bar"],
            [{"e": null}, {"a": 1}, {"e": null, "a": 1}],
            [[1, 2], {"a": "b", "c": null}, {"a": "b"}],
            [{}, {"a": {"bb": {"ccc": null}}}, {"a": {"bb": {}}}]
        ]);
        for row in table.as_array().unwrap() {
            assert_eq!(patched(row[0].clone(), &row[1]), row[2], "{row}");
        }
    }

    #[test]
    fn a_diff_holds_only_what_changed() {
        let old = json!({"phase": "Queued", "ticket": "7", "conditions": [{"type": "Ready"}], "open": {"n": 1, "uid": "x"}});
        let new = json!({"phase": "Syncing", "ticket": "7", "conditions": [{"type": "Ready"}], "open": {"n": 1}});
        assert_eq!(
            merge_diff(&old, &new),
            Some(json!({"phase": "Syncing", "open": {"uid": null}}))
        );
        assert_eq!(merge_diff(&old, &old), None);
    }

    #[test]
    fn no_status_at_all_becomes_one() {
        assert_eq!(merge_diff(&Value::Null, &json!({"a": null, "b": 1})), Some(json!({"b": 1})));
        assert_eq!(merge_diff(&Value::Null, &Value::Null), None);
    }

    fn status() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3_u8).prop_map(Value::from),
            "[ab]?".prop_map(Value::from),
        ];
        let value = leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        });
        prop::collection::btree_map("[a-d]", value, 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn the_patch_makes_the_new_of_the_old(old in status(), new in status()) {
            let old = without_nulls(&old);
            let want = without_nulls(&new);
            match merge_diff(&old, &new) {
                Some(patch) => {
                    prop_assert_ne!(&old, &want);
                    prop_assert_eq!(patched(old, &patch), want);
                }
                None => prop_assert_eq!(old, want),
            }
        }
    }
}
