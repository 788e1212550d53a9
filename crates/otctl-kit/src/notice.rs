//! A [`Notice`] as the Event that users see. Its name is computed from what it says, so that saying it again, after a
//! crash or a lost answer, says nothing twice.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use sha2::{Digest, Sha256};

use crate::commit::Author;
use crate::plan::Notice;

/// The API refuses a longer note.
const NOTE_BYTES: usize = 1024;
/// Where Events about cluster-scoped objects live.
const CLUSTER_SCOPED: &str = "default";
/// The longest name of an object.
const NAME_BYTES: usize = 253;

/// The Event that tells `notice` about `regarding`.
pub(crate) fn event(notice: &Notice, regarding: ObjectReference, author: Author) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name(notice, &regarding)),
            namespace: Some(
                regarding.namespace.clone().unwrap_or_else(|| CLUSTER_SCOPED.to_owned()),
            ),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(author.at)),
        type_: Some(if notice.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(notice.reason.clone()),
        action: Some(notice.action.to_owned()),
        note: Some(cut(&notice.message)),
        regarding: Some(regarding),
        reporting_controller: Some(author.controller.to_owned()),
        reporting_instance: Some(author.controller.to_owned()),
        ..Event::default()
    }
}

fn name(notice: &Notice, regarding: &ObjectReference) -> String {
    let mut hash = Sha256::new();
    for part in [regarding.uid.as_deref().unwrap_or_default(), &notice.reason, &notice.message] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let tail = format!(".{}", hex::encode(&hash.finalize()[..8]));
    let name = regarding.name.as_deref().unwrap_or_default();
    let head = &name[..name.floor_char_boundary(NAME_BYTES - tail.len())];
    format!("{}{tail}", head.trim_end_matches(['.', '-']))
}

/// At most [`NOTE_BYTES`], with a mark where something is missing.
fn cut(message: &str) -> String {
    if message.len() <= NOTE_BYTES {
        return message.to_owned();
    }
    let mark = "…";
    format!("{}{mark}", &message[..message.floor_char_boundary(NOTE_BYTES - mark.len())])
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn about(namespace: Option<&str>, name: &str, uid: &str) -> ObjectReference {
        let [namespace, name, uid] =
            [namespace, Some(name), Some(uid)].map(|text| text.map(str::to_owned));
        ObjectReference { namespace, name, uid, ..ObjectReference::default() }
    }

    fn told(regarding: ObjectReference, message: &str) -> Event {
        let (reason, message) = ("SyncFailed".to_owned(), message.to_owned());
        let notice = Notice { warning: true, reason, action: "Sync", message, regarding: None };
        event(
            &notice,
            regarding,
            Author { controller: "diskimage-controller", at: Timestamp::UNIX_EPOCH },
        )
    }

    fn name_of(uid: &str, message: &str) -> String {
        told(about(Some("lab"), "a", uid), message).metadata.name.unwrap()
    }

    #[test]
    fn the_same_words_about_the_same_object_are_one_event() {
        let first = name_of("u-1", "attempt 1 failed");
        assert_eq!(first, name_of("u-1", "attempt 1 failed"));
        assert_ne!(first, name_of("u-1", "attempt 2 failed"));
        assert_ne!(first, name_of("u-2", "attempt 1 failed"));
    }

    #[test]
    fn long_names_and_messages_are_cut_to_what_the_api_takes() {
        let event = told(about(Some("lab"), &"a.".repeat(126), "u-1"), &"ü".repeat(2000));
        let name = event.metadata.name.unwrap();
        assert!(name.len() <= NAME_BYTES && !name.contains(".."), "{name}");
        let note = event.note.unwrap();
        assert!(note.len() <= NOTE_BYTES && note.ends_with('…'), "{}", note.len());
    }

    #[test]
    fn events_about_cluster_scoped_objects_live_in_default() {
        let namespace = |scope| told(about(scope, "q", "u-1"), "x").metadata.namespace.unwrap();
        assert_eq!(
            (namespace(None), namespace(Some("lab"))),
            ("default".to_owned(), "lab".to_owned())
        );
    }
}
