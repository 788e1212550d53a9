//! `otctl get`: objects as a list.

use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};

use crate::cli::{GetArgs, Goal, Output};
use crate::client;
use crate::kind::{Found, Standing, Verdict};
use crate::out;
use crate::selection::{self, Selected, Unnamed};

/// Prints what was found.
pub(crate) async fn run(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let cluster = client::connect(&args.scope.place.cluster).await?;
    let Selected { found, missing } = if args.objects.is_empty() {
        let found = selection::everything(&cluster, &args.scope).await?;
        Selected { found, missing: Vec::new() }
    } else {
        selection::look_up(&cluster, &args.objects, &args.scope, Unnamed::All).await?
    };
    match args.output {
        // As kubectl does: no document of the one object that is not there.
        _ if found.is_empty() && !missing.is_empty() => {}
        Some(Output::Json) => out::line(&json_text(&document(found, args))?),
        Some(Output::Yaml) => out::text(&yaml_text(&document(found, args))?),
        Some(Output::Name) => found.iter().for_each(|found| out::line(&found.reference())),
        None | Some(Output::Wide) if found.is_empty() => {
            out::remark(&selection::nothing(&args.objects, &args.scope, &cluster.namespace))
        }
        None | Some(Output::Wide) => out::line(&table(&found, args, Timestamp::now())),
    }
    Ok(out::errors(&missing))
}

fn json_text(document: &Value) -> anyhow::Result<String> {
    serde_json::to_string_pretty(document).context("the objects cannot be written as JSON")
}

fn yaml_text(document: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(document).context("the objects cannot be written as YAML")
}

/// As kubectl does: the one object that was named, else a List. Who manages which field is left out.
fn document(found: Vec<Found>, args: &GetArgs) -> Value {
    let objects = found.into_iter().map(|found| {
        let mut object = found.object;
        object.metadata.managed_fields = None;
        json!(object)
    });
    let mut objects: Vec<Value> = objects.collect();
    if objects.len() == 1 && names_one(args) {
        return objects.remove(0);
    }
    json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": objects})
}

/// `KIND/NAME`, or `KIND NAME`.
fn names_one(args: &GetArgs) -> bool {
    match args.objects.as_slice() {
        [word] => word.contains('/'),
        [kind, _name] => !kind.contains('/'),
        _ => false,
    }
}

/// What stands in a column.
type Cell = fn(&Found, &Standing, Timestamp) -> String;

fn table(found: &[Found], args: &GetArgs, now: Timestamp) -> String {
    let columns = columns(found, args);
    let header: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let rows = found.iter().map(|found| {
        let standing = found.judge(Goal::Ready);
        columns.iter().map(|(_, cell)| cell(found, &standing, now)).collect::<Vec<_>>()
    });
    out::table(&header, rows)
}

fn columns(found: &[Found], args: &GetArgs) -> Vec<(&'static str, Cell)> {
    let mut columns: Vec<(&str, Cell)> = Vec::new();
    if args.scope.place.all_namespaces {
        columns.push(("NAMESPACE", |found, _, _| {
            or_dash(&found.object.namespace().unwrap_or_default())
        }));
    }
    let is_mixed = found.iter().any(|one| one.kind.names() != found[0].kind.names());
    let name: Cell = if is_mixed {
        |found, _, _| found.reference()
    } else {
        |found, _, _| found.object.name_any()
    };
    columns.push(("NAME", name));
    columns.push(("READY", |_, standing, _| ready(standing).to_owned()));
    columns.push(("PHASE", |_, standing, _| or_dash(&standing.phase)));
    columns.push(("REASON", |_, standing, _| or_dash(&standing.reason)));
    columns.push(("PROGRESS", |_, standing, _| progress(standing)));
    columns.push(("AGE", |found, _, now| age(found, now)));
    if args.output == Some(Output::Wide) {
        columns.push(("MESSAGE", |_, standing, _| or_dash(&standing.message)));
    }
    columns
}

fn ready(standing: &Standing) -> &'static str {
    match standing.verdict {
        Verdict::Reached => "True",
        Verdict::Going if standing.is_unseen() => "Unknown",
        Verdict::Failed | Verdict::Suspended | Verdict::Going => "False",
    }
}

fn progress(standing: &Standing) -> String {
    standing.progress.percent().map_or("-".to_owned(), |percent| format!("{percent}%"))
}

fn age(found: &Found, now: Timestamp) -> String {
    found
        .object
        .creation_timestamp()
        .map_or("-".to_owned(), |at| out::span(now.duration_since(at.0)))
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ScopeArgs, WhereArgs};
    use crate::kind;

    fn image(name: &str, status: &Value) -> Found {
        let object = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
            "metadata": {
                "name": name, "namespace": "lab", "generation": 1, "creationTimestamp": "2026-05-01T11:00:00Z",
                "managedFields": [{"manager": "someone"}],
            },
            "spec": {"url": "http://images/a", "sourceType": "http"},
            "status": status,
        });
        Found {
            kind: kind::named("vmdi").unwrap(),
            object: serde_json::from_value(object).unwrap(),
        }
    }

    fn found() -> [Found; 2] {
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "SlotsBusy", "message": "waits for a slot",
            "lastTransitionTime": "2026-05-01T11:00:00Z",
        });
        let queued = json!({
            "observedGeneration": 1, "phase": "Queued", "message": "waits for a slot", "conditions": [ready],
            "progress": {"bytes": 1, "totalBytes": 4},
        });
        [image("queued", &queued), image("new", &json!({}))]
    }

    fn shown(args: &GetArgs) -> Vec<String> {
        let now = "2026-05-01T12:00:00Z".parse().unwrap();
        let text = table(&found(), args, now);
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_row_says_what_is_the_case() {
        let expected = [
            "NAME READY PHASE REASON PROGRESS AGE",
            "queued False Queued SlotsBusy 25% 1h",
            "new Unknown Unseen - - 1h",
        ];
        assert_eq!(shown(&GetArgs::default()), expected);
    }

    #[test]
    fn wide_and_all_namespaces_have_more_columns() {
        let place = WhereArgs { all_namespaces: true, ..WhereArgs::default() };
        let scope = ScopeArgs { place, ..ScopeArgs::default() };
        let args = GetArgs { scope, output: Some(Output::Wide), ..GetArgs::default() };
        assert_eq!(shown(&args)[0], "NAMESPACE NAME READY PHASE REASON PROGRESS AGE MESSAGE");
        assert_eq!(shown(&args)[1], "lab queued False Queued SlotsBusy 25% 1h waits for a slot");
    }

    #[test]
    fn one_that_is_named_is_an_object_and_others_are_a_list() {
        let named = GetArgs { objects: vec!["vmdi/queued".to_owned()], ..GetArgs::default() };
        let [one, other] = found();
        let document_of_one = document(vec![one.clone()], &named);
        assert_eq!(document_of_one["kind"], "VMDiskImage");
        assert_eq!(document_of_one["metadata"]["managedFields"], Value::Null);
        let both = ["vmdi", "queued", "absent"].map(str::to_owned).to_vec();
        let both = GetArgs { objects: both, ..GetArgs::default() };
        for args in [&both, &GetArgs::default()] {
            assert_eq!(document(vec![one.clone()], args)["kind"], "List");
        }
        assert_eq!(document(vec![one, other], &named)["items"][1]["metadata"]["name"], "new");
    }
}
