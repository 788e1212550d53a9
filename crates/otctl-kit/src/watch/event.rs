//! One line of a watch, or one item of a list, as what it says. An object that cannot be read is itself something said:
//! it must stop no other.

use http::StatusCode;
use kube::Resource;
use kube::core::Status;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::wire::StreamError;
use crate::kube_cluster::answer::HttpAnswer;
use crate::store::Key;

/// The annotation of the bookmark after the last object of a list.
const LIST_ENDS: &str = "/metadata/annotations/k8s.io~1initial-events-end";

/// What a line says.
pub(super) enum Event<K> {
    /// The object is there, new or changed.
    Present(Item<K>),
    /// The object went.
    Gone(Item<K>),
    /// Everything up to here was told.
    Bookmark {
        /// Which version that is.
        version: String,
        /// Whether the list that the watch began with is complete.
        ends_list: bool,
    },
    /// The server ends the watch.
    Refused(StreamError),
    /// It cannot be read at all.
    Garbled(serde_json::Error),
}

/// An object as it came.
pub(super) enum Item<K> {
    /// As its type.
    Readable(K),
    /// Not as its type.
    Unreadable {
        /// Its name, if at least that can be read.
        key: Option<Key>,
        /// Its version, likewise.
        version: Option<String>,
        /// What is wrong with it.
        error: String,
    },
}

#[derive(Deserialize)]
struct Envelope<T> {
    #[serde(rename = "type")]
    says: Says,
    object: T,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Says {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Event<K> {
    /// Reads a line. Nearly all are objects that can be read, so that is tried first, without a copy.
    pub(super) fn read(line: &str) -> Self {
        match serde_json::from_str::<Envelope<K>>(line) {
            Ok(Envelope { says: Says::Added | Says::Modified, object }) => {
                Self::Present(Item::named(object))
            }
            Ok(Envelope { says: Says::Deleted, object }) => Self::Gone(Item::named(object)),
            Ok(Envelope { says: Says::Bookmark | Says::Error, .. }) | Err(_) => Self::other(line),
        }
    }

    fn other(line: &str) -> Self {
        let Envelope { says, object } = match serde_json::from_str::<Envelope<Value>>(line) {
            Ok(envelope) => envelope,
            Err(error) => return Self::bare(line, error),
        };
        match says {
            Says::Added | Says::Modified => Self::Present(Item::of(object)),
            Says::Deleted => Self::Gone(Item::of(object)),
            Says::Bookmark => Self::Bookmark {
                version: text(&object, "/metadata/resourceVersion").unwrap_or_default(),
                ends_list: text(&object, LIST_ENDS).as_deref() == Some("true"),
            },
            Says::Error => Self::Refused(refusal(&object)),
        }
    }

    /// Some servers, and what stands before them, end a watch with a bare Status.
    fn bare(line: &str, error: serde_json::Error) -> Self {
        match serde_json::from_str::<Value>(line) {
            Ok(status) if status["kind"] == "Status" => Self::Refused(refusal(&status)),
            _ => Self::Garbled(error),
        }
    }
}

impl<K: Resource<DynamicType = ()> + DeserializeOwned> Item<K> {
    /// Reads an object.
    pub(super) fn of(object: Value) -> Self {
        let key = text(&object, "/metadata/name").map(|name| Key {
            namespace: text(&object, "/metadata/namespace").unwrap_or_default(),
            name,
        });
        let version = text(&object, "/metadata/resourceVersion");
        match serde_json::from_value(object) {
            Ok(object) => Self::named(object),
            Err(error) => Self::Unreadable { key, version, error: error.to_string() },
        }
    }

    /// What has no name is no object.
    fn named(object: K) -> Self {
        if object.meta().name.is_some() {
            return Self::Readable(object);
        }
        let (version, error) = (object.meta().resource_version.clone(), "no name".to_owned());
        Self::Unreadable { key: None, version, error }
    }

    pub(super) fn version(&self) -> Option<String> {
        match self {
            Self::Readable(object) => object.meta().resource_version.clone(),
            Self::Unreadable { version, .. } => version.clone(),
        }
    }
}

/// A Status as the refusal that it would have been as an answer.
fn refusal(status: &Value) -> StreamError {
    let code = serde_json::from_value::<Status>(status.clone()).map_or(0, |status| status.code);
    let status_code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let body = status.to_string().into_bytes();
    StreamError::refused(&HttpAnswer { status: status_code, retry_after_seconds: None, body })
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer)?.as_str().map(str::to_owned)
}
