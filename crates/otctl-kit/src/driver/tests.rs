//! The loop with a reconciler whose passes do what their object is called.

mod own_writes;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::clock::SystemClock;
use crate::cluster::{Answer, Target};
use crate::error::Category;
use crate::plan::{Next, Plan};
use crate::reconciler::{Observation, Refusal, RefusalCause, Subject, Told, Undone};
use crate::report::Outcome;

/// Tells each pass it begins, and passes as its object's name says.
struct Named {
    began: UnboundedSender<Key>,
}

struct Seen(Key);

impl Observation for Seen {
    fn subject(&self) -> Option<Subject> {
        let target = Target::new::<ConfigMap>(self.0.scope(), &self.0.name);
        Some(Subject {
            target,
            uid: "u-1".to_owned(),
            resource_version: "1".to_owned(),
            status: json!({"phase": "old"}),
        })
    }
}

impl Reconciler for Named {
    type Observed = Seen;
    type Status = Value;
    const NAME: &'static str = "named";

    async fn observe(&self, key: &Key) -> Result<Seen, ApiError> {
        self.began.send(key.clone()).unwrap();
        match key.name.as_str() {
            "hang" => std::future::pending().await,
            "unreachable" => Err(ApiError::Unknown { detail: "connection refused".to_owned() }),
            _ => Ok(Seen(key.clone())),
        }
    }

    fn decide(observed: &Seen, _: Timestamp) -> Plan<Value> {
        match observed.0.name.as_str() {
            "panic" => panic!("index out of bounds"),
            "again" => Plan { next: Next::At(Timestamp::MIN), ..Plan::rest("again") },
            "forbidden" => {
                Plan { status: Some(json!({"phase": "new"})), ..Plan::rest("forbidden") }
            }
            _ => Plan::rest("calm"),
        }
    }

    fn refused(_: &Seen, undone: &Undone<'_>, _: Timestamp) -> Option<Told<Value>> {
        let Refusal { target, cause } = undone.first;
        let status = match cause {
            RefusalCause::Panicked { message } => json!({"phase": "defect", "why": message}),
            RefusalCause::Api(_) | RefusalCause::Foreign(_) => {
                json!({"phase": "refused", "target": target.to_string()})
            }
        };
        Some(status.into())
    }
}

/// Refuses the phase `new` and takes everything else; keeps what it took.
#[derive(Default)]
struct Strict {
    taken: Mutex<Vec<Value>>,
}

impl Cluster for Strict {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        let answer = match request {
            Request::PatchStatus { patch, .. } if patch["status"]["phase"] == "new" => {
                Err(ApiError::Forbidden {
                    detail: "no".to_owned(),
                    quota: false,
                    namespace_terminating: false,
                })
            }
            Request::PatchStatus { patch, .. } => {
                self.taken.lock().unwrap().push(patch["status"].clone());
                Ok(Answer::Object(erase(&ConfigMap::default())))
            }
            Request::Create(event) => {
                self.taken.lock().unwrap().push(event.data["reason"].clone());
                Ok(Answer::Object(event))
            }
            other => panic!("{other:?}"),
        };
        futures::future::ready(answer).boxed()
    }
}

struct Running {
    trigger: Trigger,
    began: UnboundedReceiver<Key>,
    cluster: Arc<Strict>,
    health: Health,
    drain: CancellationToken,
    abort: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn run(concurrency: usize) -> Running {
    let (sender, began) = unbounded_channel();
    let (cluster, health) = (Arc::new(Strict::default()), Health::default());
    let options = DriverOptions { concurrency, metrics: None, health: health.clone() };
    let driver =
        Driver::new(Named { began: sender }, cluster.clone(), Arc::new(SystemClock), options);
    let trigger = driver.trigger();
    let (drain, abort) = (CancellationToken::new(), CancellationToken::new());
    let (drained, aborted) = (drain.clone(), abort.clone());
    let task =
        tokio::spawn(async move { driver.run(drained.cancelled(), aborted.cancelled()).await });
    Running { trigger, began, cluster, health, drain, abort, task }
}

impl Running {
    fn wake(&self, names: &[&str]) {
        names.iter().for_each(|name| self.trigger.wake(&Key::new("lab", name)));
    }

    async fn next(&mut self) -> String {
        let guard = Duration::from_secs(30);
        tokio::time::timeout(guard, self.began.recv()).await.expect("a pass begins").unwrap().name
    }

    async fn stop(self) -> Arc<Strict> {
        self.drain.cancel();
        self.task.await.unwrap();
        self.cluster
    }
}

#[tokio::test]
async fn a_panic_puts_its_object_aside_and_the_others_go_on() {
    let mut running = run(1);
    running.wake(&["panic", "a", "b"]);
    assert_eq!(
        [running.next().await, running.next().await, running.next().await],
        ["panic", "a", "b"]
    );
    let places = running.trigger.places();
    let aside = places.iter().find(|place| place.object == "lab/panic").unwrap();
    assert_eq!((aside.state, aside.failures), ("waiting", 1));
    let told = [json!({"phase": "defect", "why": "index out of bounds"}), json!("InternalError")];
    assert_eq!(*running.stop().await.taken.lock().unwrap(), told);
}

#[tokio::test]
async fn a_pass_that_hangs_holds_one_place_only() {
    let mut running = run(2);
    running.wake(&["hang", "a", "b", "c"]);
    let mut began = Vec::new();
    for _ in 0..4 {
        began.push(running.next().await);
    }
    assert_eq!(began, ["hang", "a", "b", "c"]);
    running.abort.cancel();
    running.task.await.unwrap();
    let states: Vec<(String, &str)> =
        running.trigger.places().into_iter().map(|place| (place.object, place.state)).collect();
    assert_eq!(states, [("lab/hang".to_owned(), "ready")], "it is due when the loop runs again");
    assert_eq!(running.health.wedged(), []);
}

#[tokio::test]
async fn a_failure_is_tried_again_without_a_trigger() {
    let mut running = run(4);
    running.wake(&["unreachable"]);
    for _ in 0..4 {
        assert_eq!(running.next().await, "unreachable");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_time_wakes_the_loop() {
    let mut running = run(4);
    running.wake(&["again"]);
    assert_eq!([running.next().await, running.next().await], ["again", "again"]);
    running.stop().await;
}

#[tokio::test]
async fn a_refusal_is_told_in_the_status_and_as_an_event() {
    let mut running = run(1);
    running.wake(&["forbidden", "a"]);
    assert_eq!([running.next().await, running.next().await], ["forbidden", "a"]);
    let told =
        [json!({"phase": "refused", "target": "ConfigMap lab/forbidden"}), json!("Forbidden")];
    assert_eq!(*running.stop().await.taken.lock().unwrap(), told);
}

#[tokio::test]
async fn a_pass_tells_what_it_did() {
    let (began, _keep) = unbounded_channel();
    let (reconciler, cluster) = (Named { began }, Strict::default());
    let calm = pass(&reconciler, &cluster, &Key::new("lab", "a"), &SystemClock).await;
    assert_eq!((calm.verdict, calm.outcome), ("calm", Outcome::Rested));
    let refused = pass(&reconciler, &cluster, &Key::new("lab", "forbidden"), &SystemClock).await;
    assert_eq!(
        (refused.verdict, refused.outcome),
        ("forbidden", Outcome::Failed(Category::Forbidden))
    );
    assert_eq!(refused.writes, ["status phase, target"]);
    let panicked = pass(&reconciler, &cluster, &Key::new("lab", "panic"), &SystemClock).await;
    assert_eq!(panicked.outcome, Outcome::Failed(Category::Panicked));
    assert_eq!(panicked.writes, ["status phase, why"]);
    assert_eq!(panicked.error.unwrap().chain(), "panicked: index out of bounds");
    let unread = pass(&reconciler, &cluster, &Key::new("lab", "unreachable"), &SystemClock).await;
    assert_eq!(
        (unread.verdict, unread.outcome),
        ("unobserved", Outcome::Failed(Category::Transient))
    );
}

#[test]
fn a_child_wakes_its_owner_of_the_right_kind() {
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ConfigMap".to_owned(),
        name: "a".to_owned(),
        uid: "u-1".to_owned(),
        controller: Some(true),
        ..OwnerReference::default()
    };
    let metadata = |owner| ObjectMeta {
        namespace: Some("lab".to_owned()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let child = Pod { metadata: metadata(owner.clone()), ..Pod::default() };
    assert_eq!(owner_key::<ConfigMap, _>(&child), Some(Key::new("lab", "a")));
    assert_eq!(owner_key::<Pod, _>(&child), None);
    let other_group = OwnerReference { api_version: "example.org/v1".to_owned(), ..owner };
    let child = Pod { metadata: metadata(other_group), ..Pod::default() };
    assert_eq!(owner_key::<ConfigMap, _>(&child), None);
}
