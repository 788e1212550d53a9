//! The order of writes, what each refusal means, and that nothing is claimed that did not happen.

use std::collections::VecDeque;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{ApiResource, DynamicObject, ObjectMeta};
use serde_json::json;

use super::*;
use crate::cluster::{Answer, Request, erase};
use crate::plan::{Next, Propagation};

mod lanes;
mod views;

/// Answers from a script and keeps what it was asked. When the script ends, everything succeeds.
#[derive(Default)]
struct Scripted {
    answers: Mutex<VecDeque<Result<Answer, ApiError>>>,
    asked: Mutex<Vec<Request>>,
}

impl Scripted {
    fn new(answers: impl IntoIterator<Item = Result<Answer, ApiError>>) -> Self {
        Self { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() }
    }

    /// What was asked, a line each.
    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(line).collect()
    }

    fn patch(&self, number: usize) -> Value {
        match &self.asked.lock().unwrap()[number] {
            Request::Patch { patch, .. } | Request::PatchStatus { patch, .. } => patch.clone(),
            other => panic!("{other:?}"),
        }
    }
}

impl Cluster for Scripted {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        let number = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(request);
            asked.len()
        };
        let scripted = self.answers.lock().unwrap().pop_front();
        // Each write moves the version on.
        let answer = scripted.unwrap_or_else(|| Ok(object(&format!("10{number}"), None)));
        futures::future::ready(answer).boxed()
    }
}

fn line(request: &Request) -> String {
    match request {
        Request::Get(target) => format!("get {target}"),
        Request::List { resource, .. } => format!("list {}", resource.kind),
        Request::Create(object) => format!("create {}", object.types.as_ref().unwrap().kind),
        Request::Apply(object) => format!("apply {}", object.types.as_ref().unwrap().kind),
        Request::Replace(_) => "replace".to_owned(),
        Request::ReplaceStatus(_) => "replace status".to_owned(),
        Request::Patch { target, .. } => format!("patch {target}"),
        Request::PatchStatus { target, .. } => format!("patch status of {target}"),
        Request::Strip { target, resource_version, places, .. } => {
            format!("strip {target} at {resource_version} of {places:?}")
        }
        Request::Delete { target, .. } => format!("delete {target}"),
    }
}

const SUBJECT: &str = "ConfigMap lab/a";

fn subject() -> Subject {
    Subject {
        target: Target::new::<ConfigMap>(Some("lab"), "a"),
        uid: "u-1".to_owned(),
        resource_version: "7".to_owned(),
        status: json!({"phase": "Queued", "ticket": "3"}),
    }
}

fn child(owner: &str) -> ConfigMap {
    let owner = OwnerReference {
        uid: owner.to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let name = Some("child".to_owned());
    let metadata =
        ObjectMeta { name, owner_references: Some(vec![owner]), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn object(version: &str, owner: Option<&str>) -> Answer {
    let mut object = erase(&child(owner.unwrap_or("nobody")));
    object.metadata.resource_version = Some(version.to_owned());
    Answer::Object(object)
}

fn write(action: Action) -> Write {
    Write { action, because: "the test says so" }
}

fn remembered() -> Value {
    json!({"phase": "Queued", "ticket": "3", "open": 1})
}

fn create() -> Write {
    write(Action::Create(erase(&child("u-1"))))
}

fn delete() -> Write {
    let target = Target::new::<ConfigMap>(Some("lab"), "old");
    let propagation = Propagation::Foreground;
    write(Action::Delete { target, uid: "u-0".to_owned(), resource_version: None, propagation })
}

fn plan(writes: Vec<Write>, status: Option<Value>) -> Plan<Value> {
    let message = "attempt 1 failed".to_owned();
    let notice = Notice {
        warning: true,
        reason: "SyncFailed".to_owned(),
        action: "Sync",
        message,
        regarding: None,
    };
    Plan { status, writes, notices: vec![notice], next: Next::Wait, ..Plan::rest("test") }
}

async fn run(cluster: &Scripted, plan: &Plan<Value>) -> Result<Committed, CommitError> {
    let author = Author { controller: "test-controller", at: Timestamp::UNIX_EPOCH };
    commit(cluster, author, Some(&subject()), plan).await
}

async fn fail(cluster: &Scripted, plan: &Plan<Value>) -> WriteError {
    run(cluster, plan).await.unwrap_err().cause
}

fn conflict() -> ApiError {
    ApiError::Conflict { detail: String::new() }
}

fn unknown() -> ApiError {
    ApiError::Unknown { detail: "connection reset".to_owned() }
}

fn not_found() -> ApiError {
    ApiError::NotFound { detail: String::new() }
}

#[tokio::test]
async fn writes_go_in_order_then_the_status_then_the_events() {
    let cluster = Scripted::default();
    let remember =
        write(Action::Remember(json!({"phase": "Queued", "ticket": "3", "lastAttempt": 1})));
    let plan = plan(
        vec![remember, delete(), create()],
        Some(json!({"phase": "Failed", "lastAttempt": 1})),
    );
    let committed = run(&cluster, &plan).await.unwrap();
    let patch = format!("patch status of {SUBJECT}");
    let want = [&patch, "delete ConfigMap lab/old", "create ConfigMap", &patch, "create Event"];
    assert_eq!(cluster.asked(), want);
    let lines = [
        "remember because the test says so",
        "delete ConfigMap lab/old because the test says so",
        "create ConfigMap child because the test says so",
        "status phase, ticket",
        "event SyncFailed",
    ];
    assert_eq!(committed.into_made().lines, lines);
}

#[tokio::test]
async fn a_deletion_that_is_refused_takes_no_news_with_it() {
    let answers = [Ok(object("8", None)), Ok(Answer::Done), Err(conflict())];
    let cluster = Scripted::new(answers);
    let plan = Plan { clear: vec![delete()], ..plan(vec![], Some(json!({"phase": "Failed"}))) };
    let error = run(&cluster, &plan).await.unwrap_err();
    let patch = format!("patch status of {SUBJECT}");
    assert_eq!(cluster.asked(), [&patch, "create Event", "delete ConfigMap lab/old"]);
    assert!(error.is_after_status, "the status is not taken back");
}

#[tokio::test]
async fn each_status_write_is_guarded_by_the_version_that_the_one_before_left() {
    let cluster = Scripted::default();
    let plan = plan(
        vec![write(Action::Remember(remembered()))],
        Some(json!({"phase": "Syncing", "open": 1})),
    );
    run(&cluster, &plan).await.unwrap();
    assert_eq!(
        cluster.patch(0),
        json!({"metadata": {"resourceVersion": "7"}, "status": {"open": 1}})
    );
    let last = json!({"metadata": {"resourceVersion": "101"}, "status": {"phase": "Syncing", "ticket": null}});
    assert_eq!(cluster.patch(1), last);
}

#[tokio::test]
async fn a_status_that_would_not_change_is_not_written() {
    let cluster = Scripted::default();
    let mut quiet = plan(Vec::new(), Some(subject().status));
    quiet.notices.clear();
    assert_eq!(run(&cluster, &quiet).await.unwrap().into_made().lines, Vec::<String>::new());
    let remembered = plan(vec![write(Action::Remember(remembered()))], Some(remembered()));
    run(&cluster, &remembered).await.unwrap();
    assert_eq!(cluster.asked(), [&format!("patch status of {SUBJECT}"), "create Event"]);
}

#[tokio::test]
async fn the_first_failure_ends_it_and_claims_nothing() {
    let forbidden = ApiError::Forbidden {
        detail: "quota".to_owned(),
        quota: true,
        namespace_terminating: false,
    };
    let refusals = [
        conflict(),
        unknown(),
        forbidden,
        ApiError::Throttled { retry_after_seconds: None },
        not_found(),
    ];
    for refusal in refusals.into_iter().chain([ApiError::Invalid { detail: String::new() }]) {
        // The look at who owns the name tells nothing either.
        let cluster = Scripted::new([Ok(Answer::Done), Err(refusal.clone()), Err(unknown())]);
        let error = run(&cluster, &plan(vec![delete(), create(), delete()], Some(json!({}))))
            .await
            .unwrap_err();
        assert_eq!((error.number, error.total, error.done.lines.len()), (2, 5, 1), "{refusal:?}");
        let asked = cluster.asked();
        assert!(
            !asked.iter().any(|line| line.contains("status") || line.contains("Event")),
            "{refusal:?}: {asked:?}"
        );
    }
}

#[tokio::test]
async fn no_event_tells_of_a_status_that_was_refused() {
    let cluster = Scripted::new([Err(conflict())]);
    assert!(matches!(
        fail(&cluster, &plan(Vec::new(), Some(json!({})))).await,
        WriteError::Refused(ApiError::Conflict { .. })
    ));
    assert_eq!(cluster.asked().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_remembered_is_not_destroyed() {
    let cluster = Scripted::new([Err(unknown())]);
    fail(&cluster, &plan(vec![write(Action::Remember(remembered())), delete()], None)).await;
    assert_eq!(cluster.asked(), [format!("patch status of {SUBJECT}")]);
}

#[tokio::test]
async fn a_taken_name_is_ours_by_the_uid_of_its_owner_alone() {
    let taken = || Err(ApiError::AlreadyExists);
    let ours = Scripted::new([taken(), Ok(object("5", Some("u-1")))]);
    run(&ours, &plan(vec![create()], None)).await.unwrap();
    let of_a_dead_namesake = Scripted::new([taken(), Ok(object("5", Some("u-0")))]);
    let error = fail(&of_a_dead_namesake, &plan(vec![create()], None)).await;
    assert_eq!(error.to_string(), "ConfigMap child exists and is not ours");
    let ownerless = DynamicObject::new("child", &ApiResource::erase::<ConfigMap>(&()));
    let strangers = Scripted::new([taken(), Ok(Answer::Object(Box::new(ownerless)))]);
    assert!(matches!(
        fail(&strangers, &plan(vec![create()], None)).await,
        WriteError::Foreign { .. }
    ));
    let gone_again = Scripted::new([taken(), Ok(Answer::Absent)]);
    let error = fail(&gone_again, &plan(vec![create()], None)).await;
    assert!(matches!(error, WriteError::Refused(ApiError::Conflict { .. })));
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_is_looked_up() {
    let done = Scripted::new([Err(unknown()), Ok(object("5", Some("u-1")))]);
    run(&done, &plan(vec![create()], None)).await.unwrap();
    assert_eq!(done.asked(), ["create ConfigMap", "get ConfigMap child", "create Event"]);
    let not_done = Scripted::new([Err(unknown()), Ok(Answer::Absent)]);
    let error = fail(&not_done, &plan(vec![create()], None)).await;
    assert!(matches!(error, WriteError::Refused(ApiError::Unknown { .. })));
}

#[tokio::test]
async fn what_is_gone_already_is_deleted() {
    let cluster = Scripted::new([Err(not_found())]);
    assert!(run(&cluster, &plan(vec![delete()], None)).await.is_ok());
    let moved_on = Scripted::new([Err(conflict())]);
    assert!(run(&moved_on, &plan(vec![delete()], None)).await.is_err());
}

#[tokio::test]
async fn a_plan_about_an_object_that_went_ends_with_it() {
    let cluster = Scripted::new([Err(not_found())]);
    assert!(matches!(fail(&cluster, &plan(Vec::new(), Some(json!({})))).await, WriteError::Gone));
    let mark = Action::Mark {
        target: subject().target,
        resource_version: "4".to_owned(),
        fields: json!({"ticket": "9"}),
    };
    let other_went = Scripted::new([Err(not_found())]);
    let error = fail(&other_went, &plan(vec![write(mark)], None)).await;
    assert!(matches!(error, WriteError::Refused(ApiError::Conflict { .. })));
}

#[tokio::test]
async fn a_swap_puts_the_whole_status_and_nothing_else_of_the_object() {
    let cluster = Scripted::default();
    let status = json!({"active": [], "limit": 3});
    run(&cluster, &plan(vec![write(Action::Swap(status.clone()))], Some(status.clone())))
        .await
        .unwrap();
    let Request::ReplaceStatus(object) = cluster.asked.lock().unwrap()[0].clone() else { panic!() };
    let metadata = json!({"name": "a", "namespace": "lab", "uid": "u-1", "resourceVersion": "7"});
    let want =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "status": status});
    assert_eq!(serde_json::to_value(&object).unwrap(), want);
    assert_eq!(cluster.asked(), ["replace status", "create Event"], "the status stands already");
}

#[tokio::test]
async fn a_mark_is_guarded_by_the_version_of_the_object_it_marks() {
    let cluster = Scripted::default();
    let target = Target::new::<ConfigMap>(Some("lab"), "b");
    let mark =
        Action::Mark { target, resource_version: "4".to_owned(), fields: json!({"ticket": "9"}) };
    run(&cluster, &plan(vec![write(mark)], None)).await.unwrap();
    assert_eq!(
        cluster.patch(0),
        json!({"metadata": {"resourceVersion": "4"}, "status": {"ticket": "9"}})
    );
}

#[tokio::test]
async fn what_is_stripped_is_stripped_of_what_was_read() {
    let strip = || Action::Strip {
        target: Target::new::<ConfigMap>(Some("lab"), "b"),
        uid: "u-2".to_owned(),
        resource_version: "4".to_owned(),
        places: vec!["/data/b".to_owned(), "/data/a".to_owned()],
    };
    let cluster = Scripted::default();
    run(&cluster, &plan(vec![write(strip())], None)).await.unwrap();
    assert_eq!(cluster.asked()[0], "strip ConfigMap lab/b at 4 of [\"/data/b\", \"/data/a\"]");
    let changed = Scripted::new([Err(conflict())]);
    let cause = fail(&changed, &plan(vec![write(strip())], None)).await;
    assert!(matches!(cause, WriteError::Refused(ApiError::Conflict { .. })), "{cause:?}");
    let gone = Scripted::new([Err(not_found())]);
    let cause = fail(&gone, &plan(vec![write(strip())], None)).await;
    assert!(matches!(cause, WriteError::Refused(ApiError::Conflict { .. })), "{cause:?}");
}

#[tokio::test]
async fn an_event_that_fails_fails_nothing_and_one_that_exists_is_done() {
    let refused = Scripted::new([Err(unknown())]);
    assert_eq!(
        run(&refused, &plan(Vec::new(), None)).await.unwrap().into_made().lines,
        Vec::<String>::new()
    );
    let there = Scripted::new([Err(ApiError::AlreadyExists)]);
    assert_eq!(
        run(&there, &plan(Vec::new(), None)).await.unwrap().into_made().lines,
        ["event SyncFailed"]
    );
}

#[tokio::test]
async fn unsound_plans_write_nothing() {
    let cluster = Scripted::default();
    let apply = write(Action::Apply(erase(&child("u-1"))));
    assert!(matches!(fail(&cluster, &plan(vec![apply], None)).await, WriteError::Unsound { .. }));
    let author = Author { controller: "test-controller", at: Timestamp::UNIX_EPOCH };
    let error =
        commit(&cluster, author, None, &plan(Vec::new(), Some(json!({"a": 1})))).await.unwrap_err();
    assert!(matches!(error.cause, WriteError::Unsound { .. }));
    assert_eq!(cluster.asked(), Vec::<String>::new());
}

fn establish() -> Write {
    write(Action::Establish(erase(&child("u-1"))))
}

#[tokio::test]
async fn what_cannot_be_had_is_made_otherwise() {
    let (mut wanted, otherwise) = (erase(&child("u-1")), erase(&child("u-1")));
    wanted.data["data"] = json!({"address": "10.0.0.1"});
    let establish = |object: &DynamicObject| Box::new(Action::Establish(Box::new(object.clone())));
    let either =
        || write(Action::Either { wanted: establish(&wanted), otherwise: establish(&otherwise) });
    let invalid = || Err(ApiError::Invalid { detail: "taken".to_owned() });
    let refusals = [invalid().unwrap_err(), not_found()];
    assert_eq!(refusals.map(|it: ApiError| establish(&wanted).helps(&it)), [true, false]);
    for (answers, sent) in [
        (vec![], vec![&wanted]),
        (vec![invalid()], vec![&wanted, &otherwise]),
        (vec![invalid(), invalid()], vec![&wanted, &otherwise]),
        (vec![Err(not_found())], vec![&wanted]),
    ] {
        let (is_refused, cluster) = (answers.len() == sent.len(), Scripted::new(answers));
        assert_eq!(run(&cluster, &plan(vec![either()], None)).await.is_err(), is_refused);
        let asked = cluster.asked.lock().unwrap();
        let applied = asked.iter().filter_map(|request| match request {
            Request::Apply(object) => Some(object.data.clone()),
            _ => None,
        });
        let expected: Vec<_> = sent.iter().map(|object| object.data.clone()).collect();
        assert_eq!(applied.collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn what_is_established_is_applied_at_a_version_that_nothing_has() {
    let cluster = Scripted::default();
    run(&cluster, &plan(vec![establish()], None)).await.unwrap();
    let asked = cluster.asked.lock().unwrap();
    let Request::Apply(object) = &asked[0] else { panic!("{asked:?}") };
    assert_eq!(object.metadata.resource_version.as_deref(), Some("1"));
}

#[tokio::test]
async fn an_object_that_is_there_already_is_ours_or_foreign() {
    let ours = || Ok(object("5", Some("u-1")));
    let settled = Scripted::new([Err(conflict()), ours()]);
    run(&settled, &plan(vec![establish()], None)).await.unwrap();
    assert_eq!(settled.asked()[..2], ["apply ConfigMap", "get ConfigMap child"]);
    let taken = Scripted::new([Err(conflict()), Ok(object("5", Some("u-9")))]);
    let cause = fail(&taken, &plan(vec![establish()], None)).await;
    assert!(matches!(cause, WriteError::Foreign { .. }), "{cause:?}");
    let gone = Scripted::new([Err(conflict()), Ok(Answer::Absent)]);
    let cause = fail(&gone, &plan(vec![establish()], None)).await;
    assert!(matches!(cause, WriteError::Refused(ApiError::Conflict { .. })), "{cause:?}");
}

#[tokio::test]
async fn what_nobody_is_to_own_is_looked_at_anew_when_it_is_there() {
    let mut free = child("u-1");
    free.metadata.owner_references = None;
    let cluster = Scripted::new([Err(ApiError::AlreadyExists)]);
    let create = write(Action::Create(erase(&free)));
    let cause = fail(&cluster, &plan(vec![create], None)).await;
    assert!(matches!(cause, WriteError::Refused(ApiError::Conflict { .. })), "{cause:?}");
    assert_eq!(cluster.asked(), ["create ConfigMap"], "whose it is says nothing");
}

#[tokio::test]
async fn finalizers_are_those_that_are_said_whoever_put_them_there() {
    let cluster = Scripted::default();
    let status = json!({"phase": "Syncing", "ticket": "3"});
    let finalizers = write(Action::Finalize(vec!["example.com/theirs".to_owned()]));
    run(&cluster, &plan(vec![finalizers], Some(status))).await.unwrap();
    assert_eq!(cluster.asked()[0], "patch ConfigMap lab/a");
    let expected = json!({"metadata": {
        "uid": "u-1", "resourceVersion": "7", "finalizers": ["example.com/theirs"],
    }});
    assert_eq!(cluster.patch(0), expected);
    assert_eq!(cluster.patch(1)["metadata"]["resourceVersion"], "101", "what they left");
}
