//! Events about pods, as kubelet writes them: of the core group, which is the only one that a node may write. Nobody
//! waits for them: a task of its own writes one after the other, and what cannot be written is lost, as kubelet's are.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;

use super::NodeContext;

const COMPONENT: &str = "kubelet";

/// How grave an Event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gravity {
    Normal,
    Warning,
}

/// What is to be written.
enum Wish {
    Tell(Box<Told>),
    /// The pod with this UID is gone.
    Forget(String),
}

struct Told {
    about: ObjectReference,
    gravity: Gravity,
    reason: String,
    message: String,
}

/// Takes Events; [`EventWriter`] writes them.
pub(super) struct PodEvents(mpsc::UnboundedSender<Wish>);

impl PodEvents {
    pub(super) fn channel() -> (Self, EventWriter) {
        let (sender, wishes) = mpsc::unbounded_channel();
        (Self(sender), EventWriter { wishes, known: HashMap::new() })
    }

    /// A Warning about `pod`.
    pub(super) fn warn(&self, pod: &Pod, (reason, message): (&str, &str)) {
        self.tell(pod.object_ref(&()), Gravity::Warning, (reason, message));
    }

    /// An Event about a container of `pod`.
    pub(super) fn about(
        &self,
        (pod, container): (&Pod, &Container),
        gravity: Gravity,
        (reason, message): (&str, &str),
    ) {
        let field_path = Some(format!("spec.containers{{{}}}", container.name));
        let about = ObjectReference { field_path, ..pod.object_ref(&()) };
        self.tell(about, gravity, (reason, message));
    }

    /// Forgets what was written about a pod that is gone.
    pub(super) fn forget(&self, pod: &Pod) {
        self.wish(Wish::Forget(pod.uid().unwrap_or_default()));
    }

    fn tell(&self, about: ObjectReference, gravity: Gravity, (reason, message): (&str, &str)) {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        self.wish(Wish::Tell(Box::new(Told { about, gravity, reason, message })));
    }

    fn wish(&self, wish: Wish) {
        // A node whose tasks are gone writes nothing any more.
        let _ = self.0.send(wish);
    }
}

/// What makes two Events the same one, which is then counted: pod, part of it, reason and message.
type Key = (String, Option<String>, String, String);

/// Writes the Events of one node.
pub(super) struct EventWriter {
    wishes: mpsc::UnboundedReceiver<Wish>,
    /// Name and count of each that was written.
    known: HashMap<Key, (String, i32)>,
}

impl EventWriter {
    /// Writes until the task is ended. A node that is cut off writes nothing, and does not write it later.
    pub(super) async fn run(mut self, context: Arc<NodeContext>) {
        while let Some(wish) = self.wishes.recv().await {
            match wish {
                Wish::Forget(pod) => self.known.retain(|(about, ..), _| *about != pod),
                Wish::Tell(_) if !context.link.is_up() => {}
                Wish::Tell(told) => {
                    let reason = told.reason.clone();
                    if let Err(error) = self.write(*told, &context).await {
                        tracing::debug!(%error, reason, "an event was lost");
                    }
                }
            }
        }
    }

    async fn write(&mut self, told: Told, context: &NodeContext) -> Result<(), kube::Error> {
        let namespace = told.about.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(context.client.clone(), &namespace);
        let (pod, part) =
            (told.about.uid.clone().unwrap_or_default(), told.about.field_path.clone());
        let key = (pod, part, told.reason.clone(), told.message.clone());
        if let Some((name, count)) = self.known.get_mut(&key) {
            *count += 1;
            let patch = json!({"count": count, "lastTimestamp": Time(Timestamp::now())});
            return events
                .patch(name, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .map(drop);
        }
        let event = event(told, &context.name);
        events.create(&PostParams::default(), &event).await?;
        self.known.insert(key, (event.name_any(), 1));
        Ok(())
    }
}

fn event(told: Told, node: &str) -> Event {
    let name = told.about.name.clone().unwrap_or_default();
    let now = Time(Timestamp::now());
    let type_ = match told.gravity {
        Gravity::Normal => "Normal",
        Gravity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", rand::random::<u64>())),
            namespace: told.about.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: told.about,
        type_: Some(type_.to_owned()),
        reason: Some(told.reason),
        message: Some(told.message),
        count: Some(1),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        source: Some(EventSource {
            component: Some(COMPONENT.to_owned()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}
