//! Every bound of the schema, each overstepped once, on a real API server.

use kube::{
    Api, Error, ResourceExt as _,
    api::{DynamicObject, PostParams},
    discovery::ApiResource,
};
use otctl_types::Workspace;
use serde_json::{Value, json};

use super::full;
use crate::judge::schema;
use crate::support::Kubectl;

/// Breaks every pattern.
const OF_NO_FORM: &str = " /";

/// A value that is out of bounds: where it is in the spec, and how the API server names that place.
struct Overstep {
    pointer: String,
    path: String,
    value: Value,
}

/// Walks a schema and a value that has everything in it.
#[derive(Default)]
struct Walk {
    found: Vec<Overstep>,
}

impl Walk {
    fn look(&mut self, schema: &Value, value: &Value, pointer: &str, path: &str) {
        for value in wrong(schema, value) {
            self.found.push(Overstep { pointer: pointer.to_owned(), path: path.to_owned(), value });
        }
        for (name, field) in value.as_object().into_iter().flatten() {
            let known = &schema["properties"][name];
            let inner = if known.is_null() { &schema["additionalProperties"] } else { known };
            let pointer = format!("{pointer}/{}", name.replace('/', "~1"));
            self.look(inner, field, &pointer, &format!("{path}.{name}"));
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let pointer = format!("{pointer}/{index}");
            self.look(&schema["items"], item, &pointer, &format!("{path}[{index}]"));
        }
    }
}

/// Values that the schema does not take in the place of `good`.
fn wrong(schema: &Value, good: &Value) -> Vec<Value> {
    let bound = |key: &str| schema[key].as_i64().or(schema[key].as_f64().map(|it| it as i64));
    let length = |key: &str| bound(key).map(|length| usize::try_from(length).unwrap());
    let mut wrong = vec![of_another_type(good)];
    wrong.extend(bound("minimum").map(|least| json!(least - 1)));
    wrong.extend(bound("maximum").map(|most| json!(most + 1)));
    wrong.extend(length("maxLength").map(|most| json!("a".repeat(most + 1))));
    wrong.extend(length("minLength").map(|least| json!("a".repeat(least - 1))));
    wrong.extend(schema["pattern"].as_str().map(|_| json!(OF_NO_FORM)));
    wrong.extend(schema["enum"].as_array().map(|_| json!("Nonsense")));
    wrong.extend(length("minItems").map(|_| json!([])));
    wrong.extend(length("maxItems").map(|most| json!(vec![good[0].clone(); most + 1])));
    wrong.extend(length("maxProperties").map(|most| {
        (0..=most)
            .map(|n| (format!("key-{n}"), json!("1")))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }));
    wrong
}

fn of_another_type(good: &Value) -> Value {
    match good {
        Value::Bool(_) => json!("yes"),
        Value::Array(_) => json!({}),
        Value::Object(_) => json!([]),
        Value::String(_) | Value::Number(_) | Value::Null => json!(true),
    }
}

#[tokio::test]
async fn what_is_out_of_bounds_is_refused_with_its_path() {
    let kubectl = Kubectl::shared().await;
    let kind = ApiResource::erase::<Workspace>(&());
    let workspaces: Api<DynamicObject> = Api::all_with(kubectl.cluster.admin(), &kind);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let good: DynamicObject = serde_json::from_value(full()).unwrap();
    workspaces.create(&dry_run, &good).await.unwrap();

    let mut walk = Walk::default();
    walk.look(&schema("Workspace")["properties"]["spec"], &full()["spec"], "", "spec");
    assert!(walk.found.len() > 300, "{} bounds were found", walk.found.len());
    for Overstep { pointer, path, value } in walk.found {
        let mut bad = good.clone();
        *bad.data["spec"].pointer_mut(&pointer).unwrap() = value.clone();
        let told = match workspaces.create(&dry_run, &bad).await {
            Err(Error::Api(refusal)) => refusal.message,
            other => panic!("{path} = {value}: {:?}", other.map(|made| made.name_any())),
        };
        assert!(told.contains(&path), "{path} = {value}: {told}");
    }
}

#[tokio::test]
async fn what_is_required_is_missed_by_its_path() {
    let kubectl = Kubectl::shared().await;
    let kind = ApiResource::erase::<Workspace>(&());
    let workspaces: Api<DynamicObject> = Api::all_with(kubectl.cluster.admin(), &kind);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (parent, field) in [
        ("/virtualMachines/0", "name"),
        ("/virtualMachines/0", "spec"),
        ("/virtualMachines/0/spec", "VMDiskImageName"),
        ("/virtualMachines/0/spec/image", "url"),
        ("/virtualMachines/0/spec/instance/ports/0", "port"),
        ("/containers/0", "name"),
        ("/containers/0", "image"),
        ("/containers/0/ports/0", "containerPort"),
        ("/containers/0/env/0", "name"),
        ("/containers/0/env/1/valueFrom/configMapKeyRef", "name"),
        ("/containers/0/env/1/valueFrom/configMapKeyRef", "key"),
        ("/containers/0/env/3/valueFrom/fieldRef", "fieldPath"),
        ("/containers/0/envFrom/0/configMapRef", "name"),
        ("/containers/0/livenessProbe/httpGet", "port"),
        ("/containers/0/imagePullSecrets/0", "name"),
        ("/containers/0/securityContext/seccompProfile", "type"),
        ("/network/ingress/0", "from"),
        ("/network/egress/0", "to"),
        ("/network/egress/0/ports/0", "port"),
    ] {
        let mut bad: DynamicObject = serde_json::from_value(full()).unwrap();
        let fields = bad.data["spec"].pointer_mut(parent).unwrap().as_object_mut().unwrap();
        fields.remove(field).unwrap();
        let told = match workspaces.create(&dry_run, &bad).await {
            Err(Error::Api(refusal)) => refusal.message,
            other => panic!("{parent}/{field}: {:?}", other.map(|made| made.name_any())),
        };
        assert!(
            told.contains(field) && told.contains("Required value"),
            "{parent}/{field}: {told}"
        );
    }
}
