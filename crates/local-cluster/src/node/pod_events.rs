//! Events about pods, as kubelet writes them: of the core group, which is the only one that a node may write.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use serde_json::json;

/// How grave an Event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Gravity {
    Normal,
    Warning,
}

/// What makes two Events the same one, which is then counted: pod, part of it, reason and message.
type Key = (String, Option<String>, String, String);

/// The Events of one node.
pub(super) struct PodEvents {
    client: Client,
    node: String,
    /// Name and count of each.
    known: Mutex<HashMap<Key, (String, i32)>>,
}

impl PodEvents {
    pub(super) fn new(client: &Client, node: &str) -> Self {
        Self { client: client.clone(), node: node.to_owned(), known: Mutex::default() }
    }

    /// A Warning about `pod`. One that cannot be written is lost, as kubelet's are.
    pub(super) async fn warn(&self, pod: &Pod, (reason, message): (&str, &str)) {
        self.publish(pod.object_ref(&()), Gravity::Warning, (reason, message)).await;
    }

    /// An Event about a container of `pod`.
    pub(super) async fn about(
        &self,
        (pod, container): (&Pod, &Container),
        gravity: Gravity,
        (reason, message): (&str, &str),
    ) {
        let field_path = Some(format!("spec.containers{{{}}}", container.name));
        let reference = ObjectReference { field_path, ..pod.object_ref(&()) };
        self.publish(reference, gravity, (reason, message)).await;
    }

    /// Forgets what was written about a pod that is gone.
    pub(super) fn forget(&self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        self.with(|known| known.retain(|(about, ..), _| *about != uid));
    }

    async fn publish(
        &self,
        about: ObjectReference,
        gravity: Gravity,
        (reason, message): (&str, &str),
    ) {
        let namespace = about.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let (uid, part) = (about.uid.clone().unwrap_or_default(), about.field_path.clone());
        let key = (uid, part, reason.to_owned(), message.to_owned());
        let written = match self.counted(&key) {
            Some((name, count)) => {
                let patch = json!({"count": count, "lastTimestamp": Time(Timestamp::now())});
                events.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
            }
            None => {
                let event = self.event(about, gravity, (reason, message));
                self.with(|known| known.insert(key, (event.name_any(), 1)));
                events.create(&PostParams::default(), &event).await.map(drop)
            }
        };
        if let Err(error) = written {
            tracing::debug!(%error, reason, "an event was lost");
        }
    }

    /// Counts an Event that was written before.
    fn counted(&self, key: &Key) -> Option<(String, i32)> {
        self.with(|known| {
            let (name, count) = known.get_mut(key)?;
            *count += 1;
            Some((name.clone(), *count))
        })
    }

    fn event(
        &self,
        about: ObjectReference,
        gravity: Gravity,
        (reason, message): (&str, &str),
    ) -> Event {
        let name = about.name.clone().unwrap_or_default();
        let now = Time(Timestamp::now());
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", rand::random::<u64>())),
                namespace: about.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: about,
            type_: Some(match gravity {
                Gravity::Normal => "Normal".to_owned(),
                Gravity::Warning => "Warning".to_owned(),
            }),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(self.node.clone()),
            }),
            reporting_component: Some("kubelet".to_owned()),
            reporting_instance: Some(self.node.clone()),
            ..Event::default()
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<Key, (String, i32)>) -> T) -> T {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
