//! Server-side apply. All controllers of the world are one field manager, as each object has one: what it applied before
//! and applies no more goes, what others set stays. Which lists are merged item by item, and which maps are one value, is
//! how the schemas of Kubernetes say it.

use otctl_kit::cluster::{Answer, ApiError};
use serde_json::{Map, Value, json};

use super::objects::{State, id_of};
use super::requests::{check_preconditions, conflict, create, read};
use super::{Verb, schema};
use crate::json::{items, list, map, text, uid};

/// Lists that are merged: a kind (empty: every one), where, and the fields that tell items apart; none where the items
/// themselves do.
const LISTS: [(&str, &str, &[&str]); 9] = [
    ("", "metadata.ownerReferences", &["uid"]),
    ("", "metadata.finalizers", &[]),
    ("Service", "spec.ports", &["port", "protocol"]),
    ("Deployment", "spec.template.spec.containers", &["name"]),
    ("Deployment", "spec.template.spec.containers[].env", &["name"]),
    ("Deployment", "spec.template.spec.containers[].ports", &["containerPort", "protocol"]),
    ("Deployment", "spec.template.spec.hostAliases", &["ip"]),
    ("Deployment", "spec.template.spec.imagePullSecrets", &["name"]),
    ("Deployment", "spec.template.spec.volumes", &["name"]),
];

/// Maps that are one value.
const WHOLE: [(&str, &str); 3] = [
    ("Service", "spec.selector"),
    ("Deployment", "spec.selector"),
    ("NetworkPolicy", "spec.podSelector"),
];

/// Creates, or merges what is given; status is left alone. An object that names a UID is never created by it.
pub(super) fn apply(state: &mut State, object: &Value) -> Result<Answer, ApiError> {
    let id = id_of(object);
    let mut given = object.clone();
    map(&mut given).remove("status");
    let Some(held) = state.get(&id) else {
        if !uid(object).is_empty() {
            return Err(conflict(
                &id,
                "the provided object specified a uid, and no existing object was found",
            ));
        }
        let created = create(state, object.clone())?;
        let of = state.get(&id).map(|made| uid(made).to_owned()).expect("it was made just now");
        state.applied.insert(of, given);
        return Ok(created);
    };
    check_preconditions(&id, held, &object["metadata"])?;
    let (of, mut merged) = (uid(held).to_owned(), held.clone());
    let before = state.applied.get(&of).cloned().unwrap_or_default();
    let place = Place { kind: id.kind.clone(), path: String::new() };
    place.forget(&mut merged, &before, &given);
    place.merge(&mut merged, &given);
    schema::check(state, &id, Some(held), &merged)?;
    state.applied.insert(of.clone(), given);
    let updated = state.update(&id, merged, Verb::Applied);
    if state.get(&id).is_none() {
        state.applied.remove(&of);
    }
    read(&updated)
}

/// A place in an object.
struct Place {
    kind: String,
    path: String,
}

impl Place {
    /// Takes out of `held` what was applied before and is not given any more.
    fn forget(&self, held: &mut Value, before: &Value, given: &Value) {
        if let Some(keys) = self.keys() {
            let (before, given) = (items(before), items(given));
            let is_given_up = |item: &Value| {
                find(keys, before, item).is_some() && find(keys, given, item).is_none()
            };
            list(held).retain(|item| !is_given_up(item));
            for item in list(held) {
                let both = find(keys, before, item).zip(find(keys, given, item));
                let (old, new) = both.map(|(old, new)| (old.clone(), new.clone())).unzip();
                if let (Some(old), Some(new)) = (old, new) {
                    self.item().forget(item, &old, &new);
                }
            }
            return;
        }
        let (Some(fields), Some(before)) = (held.as_object_mut(), before.as_object()) else {
            return;
        };
        for (name, old) in before {
            let place = self.field(name);
            match (given.get(name), fields.get_mut(name)) {
                (None, Some(field)) if place.keys().is_some() => {
                    place.forget(field, old, &json!([]))
                }
                (None, _) => drop(fields.remove(name)),
                (Some(new), Some(field)) if !place.is_whole() => place.forget(field, old, new),
                (Some(_), _) => {}
            }
        }
    }

    fn merge(&self, held: &mut Value, given: &Value) {
        if let Some(keys) = self.keys() {
            let given = items(given);
            for item in given {
                let others = list(held);
                match others.iter().position(|other| is_same(keys, other, item)) {
                    Some(at) => self.item().merge(&mut others[at], item),
                    None => others.push(item.clone()),
                }
            }
            return;
        }
        match given {
            Value::Object(fields) if !self.is_whole() => self.merge_fields(map(held), fields),
            _ => *held = given.clone(),
        }
    }

    fn merge_fields(&self, held: &mut Map<String, Value>, given: &Map<String, Value>) {
        for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
            self.field(name).merge(held.entry(name).or_insert(Value::Null), value);
        }
    }

    fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { kind: self.kind.clone(), path: format!("{}{dot}{name}", self.path) }
    }

    fn item(&self) -> Self {
        Self { kind: self.kind.clone(), path: format!("{}[]", self.path) }
    }

    fn keys(&self) -> Option<&'static [&'static str]> {
        let is_here =
            |kind: &str, path: &str| (kind.is_empty() || kind == self.kind) && path == self.path;
        let mut lists = LISTS.iter();
        lists.find(|(kind, path, _)| is_here(kind, path)).map(|(_, _, keys)| *keys)
    }

    fn is_whole(&self) -> bool {
        WHOLE.contains(&(self.kind.as_str(), self.path.as_str()))
    }
}

fn find<'a>(keys: &[&str], all: &'a [Value], item: &Value) -> Option<&'a Value> {
    all.iter().find(|other| is_same(keys, other, item))
}

fn is_same(keys: &[&str], one: &Value, other: &Value) -> bool {
    match keys {
        [] => one == other,
        keys => keys.iter().all(|key| key_of(one, key) == key_of(other, key)),
    }
}

/// A protocol that is not named is TCP.
fn key_of(item: &Value, key: &str) -> Value {
    match (&item[key], key) {
        (Value::Null, "protocol") => json!("TCP"),
        (value, _) => {
            json!(if value.is_string() { text(value).to_owned() } else { value.to_string() })
        }
    }
}

#[cfg(test)]
mod tests {
    use otctl_kit::cluster::{Request, Target};

    use super::*;
    use crate::builders::key;
    use crate::clock::VirtualClock;
    use crate::world::World;

    fn send(world: &World, object: Value) -> Result<Answer, ApiError> {
        let object = serde_json::from_value(object).unwrap();
        world.request("controller", Request::Apply(Box::new(object)))
    }

    /// A Deployment whose container has these variables and ports.
    fn deployment(env: &Value, ports: &Value) -> Value {
        let container = json!({"name": "api", "image": "api:1", "env": env, "ports": ports});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "labs"},
            "spec": {"selector": {"matchLabels": {"a": "1"}}, "template": {"spec": {"containers": [container]}}},
        })
    }

    fn container(world: &World) -> Value {
        let found = world.get("Deployment", &key("labs/a")).unwrap();
        found["spec"]["template"]["spec"]["containers"].clone()
    }

    #[test]
    fn what_was_applied_and_is_not_any_more_goes_and_what_others_added_stays() {
        let world = World::new(&VirtualClock::default());
        let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
        send(&world, deployment(&env, &json!([]))).unwrap();
        world.edit("Deployment", &key("labs/a"), |it| {
            let containers = &mut it["spec"]["template"]["spec"]["containers"];
            containers[0]["env"].as_array_mut().unwrap().push(json!({"name": "C", "value": "3"}));
            containers.as_array_mut().unwrap().push(json!({"name": "sidecar", "image": "mesh"}));
            it["spec"]["selector"]["matchLabels"]["b"] = json!("2");
        });
        send(&world, deployment(&json!([{"name": "B", "value": "9"}]), &json!([]))).unwrap();
        let containers = container(&world);
        let left = json!([{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]);
        assert_eq!(containers[0]["env"], left);
        assert_eq!(containers[1]["name"], json!("sidecar"));
        let found = world.get("Deployment", &key("labs/a")).unwrap();
        assert_eq!(found["spec"]["selector"], json!({"matchLabels": {"a": "1"}}), "one value");
    }

    #[test]
    fn ports_are_one_by_number_and_protocol() {
        let world = World::new(&VirtualClock::default());
        let port = json!([{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}]);
        send(&world, deployment(&json!([]), &port)).unwrap();
        let named = json!([{"containerPort": 53, "protocol": "TCP", "name": "dns"}]);
        send(&world, deployment(&json!([]), &named)).unwrap();
        let ports = container(&world)[0]["ports"].clone();
        assert_eq!(ports, json!([{"containerPort": 53, "protocol": "TCP", "name": "dns"}]));
    }

    #[test]
    fn a_name_that_another_port_has_is_refused_until_that_port_is_taken_out() {
        let world = World::new(&VirtualClock::default());
        let port =
            |number: u16| json!([{"containerPort": number, "protocol": "TCP", "name": "http"}]);
        let wanted = deployment(&json!([]), &port(80));
        send(&world, wanted.clone()).unwrap();
        world.edit("Deployment", &key("labs/a"), |it| {
            it["spec"]["template"]["spec"]["containers"][0]["ports"] = port(81);
        });
        let before = world.get("Deployment", &key("labs/a")).unwrap();
        let refused = send(&world, wanted.clone()).unwrap_err();
        assert!(refused.to_string().contains("ports[1].name: Duplicate value"), "{refused}");
        assert_eq!(world.get("Deployment", &key("labs/a")).unwrap(), before);
        let place = "/spec/template/spec/containers/0/ports/0".to_owned();
        let metadata = &before["metadata"];
        let strip = |version: &str, place: &str| Request::Strip {
            target: Target::new::<k8s_openapi::api::apps::v1::Deployment>(Some("labs"), "a"),
            uid: uid(&before).to_owned(),
            resource_version: version.to_owned(),
            places: vec![place.to_owned()],
        };
        let version = text(&metadata["resourceVersion"]);
        let old = world.request("controller", strip("1", &place));
        assert!(matches!(old, Err(ApiError::Conflict { .. })), "{old:?}");
        let nowhere = world.request("controller", strip(version, "/spec/none"));
        assert!(matches!(nowhere, Err(ApiError::Invalid { .. })), "{nowhere:?}");
        world.request("controller", strip(version, &place)).unwrap();
        send(&world, wanted).unwrap();
        assert_eq!(container(&world)[0]["ports"], port(80));
    }

    #[test]
    fn a_version_that_no_object_has_creates_and_changes_nothing() {
        let world = World::new(&VirtualClock::default());
        world.create_value(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "labs"},
        }));
        let mut only_new = deployment(&json!([]), &json!([]));
        only_new["metadata"]["resourceVersion"] = json!("1");
        send(&world, only_new.clone()).unwrap();
        assert!(matches!(send(&world, only_new), Err(ApiError::Conflict { .. })));
    }
}
