//! Every version of what the ledger's rules speak of, from watches that were opened before a run, as the history that
//! the checks of `testbed` read. The same checks judge the world in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, WatchEvent, WatchParams,
};
use kube::{Api, Client, Resource, ResourceExt as _};
use otctl::demo::peak::{follow, version};
use otctl_kit::store::Key;
use otctl_types::names::{DEFAULT_POLICY_NAME, ROLE_LABEL, WORKSPACE_QUEUE};
use otctl_types::{AdmissionQueue, VMDiskImage, Workspace};
use serde_json::{Value, json};
use testbed::world::{Id, Verb, Version};
use tokio::task::JoinSet;

use crate::stage::until;

/// What was seen so far.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u64, Version>>>);

/// Watches of everything that the rules of one kind of object speak of.
pub(crate) struct Timeline {
    seen: Seen,
    client: Client,
    subjects: Vec<Subject>,
    watches: JoinSet<anyhow::Error>,
}

impl Timeline {
    /// Opens watches of images, the ledgers, the policy, import Jobs and import pods; nothing that happens after this is
    /// missed, and what is there already is the beginning.
    pub(crate) async fn open(client: &Client) -> Self {
        let imports =
            || Selection { labels: format!("{ROLE_LABEL}=import"), ..Selection::default() };
        let policy = Selection::named(DEFAULT_POLICY_NAME);
        let mut timeline = Self::of_nothing(client);
        timeline.watch(Subject::of::<VMDiskImage>(Selection::default())).await;
        timeline.watch(Subject::of::<AdmissionQueue>(Selection::default())).await;
        timeline.watch(Subject::of::<ConfigMap>(policy)).await;
        timeline.watch(Subject::of::<Job>(imports())).await;
        timeline.watch(Subject::of::<Pod>(imports())).await;
        timeline
    }

    /// The same of workspaces, their ledger, and everything that is made for them, KubeVirt's kinds left out.
    pub(crate) async fn of_workspaces(client: &Client) -> Self {
        let mut timeline = Self::of_nothing(client);
        timeline.watch(Subject::of::<Workspace>(Selection::default())).await;
        timeline.watch(Subject::of::<AdmissionQueue>(Selection::named(WORKSPACE_QUEUE))).await;
        timeline.watch(Subject::of::<VMDiskImage>(Selection::default())).await;
        timeline.watch(Subject::of::<NetworkPolicy>(Selection::default())).await;
        timeline.watch(Subject::of::<Service>(Selection::default())).await;
        timeline.watch(Subject::of::<Deployment>(Selection::default())).await;
        timeline.watch(Subject::of::<ReplicaSet>(Selection::default())).await;
        // Of a pod that nobody labelled its owners tell.
        timeline.watch(Subject::of::<Pod>(Selection::default())).await;
        timeline
    }

    /// Goes on with the kinds of KubeVirt, which are served by now.
    pub(crate) async fn watch_machines(&mut self) {
        for kind in ["VirtualMachine", "VirtualMachineInstance"] {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", kind));
            self.watch(Subject { kind, only: Selection::default() }).await;
        }
    }

    fn of_nothing(client: &Client) -> Self {
        let (seen, watches) = (Seen::default(), JoinSet::new());
        Self { seen, client: client.clone(), subjects: Vec::new(), watches }
    }

    /// The history up to now, in the order in which the API server committed it.
    ///
    /// # Panics
    /// When a watch broke, so that something may have been missed.
    pub(crate) async fn history(&mut self) -> Vec<Version> {
        for subject in &self.subjects {
            self.await_caught_up(subject).await;
        }
        if let Some(broken) = self.watches.try_join_next() {
            panic!("a watch broke: {:?}", broken.unwrap());
        }
        self.seen.0.lock().unwrap().values().cloned().collect()
    }

    async fn watch(&mut self, subject: Subject) {
        let (api, kind) = (subject.api(&self.client), subject.kind.kind.clone());
        let from = version(&api).await.unwrap();
        for object in api.list(&subject.only.list()).await.unwrap() {
            self.seen.note(Verb::Created, &kind, &object);
        }
        let seen = self.seen.clone();
        let see = move |event| seen.see(&kind, &event);
        self.watches.spawn(follow(api, subject.only.watch(), from, see));
        self.subjects.push(subject);
    }

    /// Waits until the newest version of everything that is there was seen, and nothing else is taken for alive.
    async fn await_caught_up(&self, subject: &Subject) {
        let (api, kind) = (subject.api(&self.client), &subject.kind.kind);
        until(&format!("the watch of {kind} has seen everything"), async || {
            let listed = api.list(&subject.only.list()).await.unwrap();
            let there: BTreeMap<Id, u64> =
                listed.iter().map(|object| (id(kind, object), revision(object))).collect();
            (self.seen.alive(kind) == there).then_some(())
        })
        .await;
    }
}

impl Seen {
    fn see(&self, kind: &str, event: &WatchEvent<DynamicObject>) {
        match event {
            WatchEvent::Added(object) => self.note(Verb::Created, kind, object),
            WatchEvent::Modified(object) => self.note(Verb::Status, kind, object),
            WatchEvent::Deleted(object) => self.note(Verb::Removed, kind, object),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }

    fn note(&self, verb: Verb, kind: &str, object: &DynamicObject) {
        let mut json = serde_json::to_value(object).unwrap();
        json["kind"] = json!(kind);
        let version = Version {
            id: id(kind, object),
            revision: revision(object),
            verb,
            by: "somebody".to_owned(),
            object: json,
        };
        self.0.lock().unwrap().insert(version.revision, version);
    }

    fn alive(&self, kind: &str) -> BTreeMap<Id, u64> {
        let mut alive = BTreeMap::new();
        for version in self.0.lock().unwrap().values().filter(|version| version.id.kind == kind) {
            if version.is_removal() {
                alive.remove(&version.id);
            } else {
                alive.insert(version.id.clone(), version.revision);
            }
        }
        alive
    }
}

/// What of a kind is looked at.
#[derive(Default)]
struct Selection {
    labels: String,
    fields: String,
}

impl Selection {
    fn list(&self) -> ListParams {
        ListParams::default().labels(&self.labels).fields(&self.fields)
    }

    fn watch(&self) -> WatchParams {
        WatchParams::default().labels(&self.labels).fields(&self.fields)
    }
}

impl Selection {
    fn named(name: &str) -> Self {
        Self { fields: format!("metadata.name={name}"), ..Self::default() }
    }
}

/// A kind, and what of it.
struct Subject {
    kind: ApiResource,
    only: Selection,
}

impl Subject {
    fn of<K: Resource<DynamicType = ()>>(only: Selection) -> Self {
        Self { kind: ApiResource::erase::<K>(&()), only }
    }

    fn api(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.kind)
    }
}

fn id(kind: &str, object: &DynamicObject) -> Id {
    Id::new(kind, &Key::new(&object.namespace().unwrap_or_default(), &object.name_any()))
}

fn revision(object: &DynamicObject) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

/// The entries of a version of the ledger as (name, attempt); none when it is no version of the ledger.
pub(crate) fn entries(version: &Version) -> Option<Vec<(String, i64)>> {
    let is_ledger = version.id.kind == "AdmissionQueue" && !version.is_removal();
    let active = version.object["status"]["active"].as_array().cloned().unwrap_or_default();
    let entry = |entry: &Value| {
        let name = entry["name"].as_str().unwrap_or_default().to_owned();
        (name, entry["attempt"].as_i64().unwrap_or(0))
    };
    is_ledger.then(|| active.iter().map(entry).collect())
}
