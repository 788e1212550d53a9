//! Every version of what the ledger's rules speak of, from watches that were opened before a run, as the history that
//! the checks of `testbed` read. The same checks judge the world in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use otctl::demo::peak::{follow, version};
use otctl_kit::store::Key;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, ROLE_LABEL};
use otctl_types::{AdmissionQueue, VMDiskImage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::world::{Id, Verb, Version};
use tokio::task::JoinSet;

use crate::stage::until;

/// What was seen so far.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<BTreeMap<u64, Version>>>);

/// Watches of images, the ledger, the policy, import Jobs and import pods.
pub(crate) struct Timeline {
    seen: Seen,
    client: Client,
    watches: JoinSet<anyhow::Error>,
}

impl Timeline {
    /// Opens the watches; nothing that happens after this is missed, and what is there already is the beginning.
    pub(crate) async fn open(client: &Client) -> Self {
        let mut timeline =
            Self { seen: Seen::default(), client: client.clone(), watches: JoinSet::new() };
        timeline.watch::<VMDiskImage>(Api::all(client.clone()), everything()).await;
        timeline.watch::<AdmissionQueue>(Api::all(client.clone()), everything()).await;
        timeline.watch::<ConfigMap>(policies(client), only_policy()).await;
        timeline.watch::<Job>(Api::all(client.clone()), only_imports()).await;
        timeline.watch::<Pod>(Api::all(client.clone()), only_imports()).await;
        timeline
    }

    /// The history up to now, in the order in which the API server committed it.
    ///
    /// # Panics
    /// When a watch broke, so that something may have been missed.
    pub(crate) async fn history(&mut self) -> Vec<Version> {
        self.await_caught_up::<VMDiskImage>(Api::all(self.client.clone()), everything()).await;
        self.await_caught_up::<AdmissionQueue>(Api::all(self.client.clone()), everything()).await;
        self.await_caught_up::<ConfigMap>(policies(&self.client), only_policy()).await;
        self.await_caught_up::<Job>(Api::all(self.client.clone()), only_imports()).await;
        self.await_caught_up::<Pod>(Api::all(self.client.clone()), only_imports()).await;
        if let Some(broken) = self.watches.try_join_next() {
            panic!("a watch broke: {:?}", broken.unwrap());
        }
        self.seen.0.lock().unwrap().values().cloned().collect()
    }

    async fn watch<K>(&mut self, api: Api<K>, only: Selection)
    where
        K: Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize
            + Send
            + 'static,
    {
        let from = version(&api).await.unwrap();
        for object in api.list(&only.list()).await.unwrap() {
            self.seen.note(Verb::Created, &object);
        }
        let seen = self.seen.clone();
        self.watches.spawn(follow(api, only.watch(), from, move |event| seen.see(&event)));
    }

    /// Waits until the newest version of everything that is there was seen, and nothing else is taken for alive.
    async fn await_caught_up<K>(&self, api: Api<K>, only: Selection)
    where
        K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        let kind = K::kind(&()).into_owned();
        until(&format!("the watch of {kind} has seen everything"), async || {
            let listed = api.list(&only.list()).await.unwrap();
            let there: BTreeMap<Id, u64> =
                listed.iter().map(|object| (id(object), revision(object))).collect();
            (self.seen.alive(&kind) == there).then_some(())
        })
        .await;
    }
}

impl Seen {
    fn see<K: Resource<DynamicType = ()> + Serialize>(&self, event: &WatchEvent<K>) {
        match event {
            WatchEvent::Added(object) => self.note(Verb::Created, object),
            WatchEvent::Modified(object) => self.note(Verb::Status, object),
            WatchEvent::Deleted(object) => self.note(Verb::Removed, object),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => {}
        }
    }

    fn note<K: Resource<DynamicType = ()> + Serialize>(&self, verb: Verb, object: &K) {
        let mut json = serde_json::to_value(object).unwrap();
        json["kind"] = json!(K::kind(&()));
        let version = Version {
            id: id(object),
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

fn everything() -> Selection {
    Selection::default()
}

fn only_imports() -> Selection {
    Selection { labels: format!("{ROLE_LABEL}=import"), ..Selection::default() }
}

fn only_policy() -> Selection {
    Selection { fields: format!("metadata.name={DEFAULT_POLICY_NAME}"), ..Selection::default() }
}

fn policies(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), DEFAULT_NAMESPACE)
}

fn id<K: Resource<DynamicType = ()>>(object: &K) -> Id {
    Id::new(&K::kind(&()), &Key::new(&object.namespace().unwrap_or_default(), &object.name_any()))
}

fn revision<K: Resource>(object: &K) -> u64 {
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
