//! The policy ConfigMap as it is found, and where it is.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::ResourceExt;
use otctl_kit::reader::Reader;
use otctl_kit::store::{Key, Store};
use otctl_types::queue::AdmissionQueueStatus;
use policy::Policy;

/// Where the policy is.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// Namespace of the ConfigMap.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// What a look at the policy ConfigMap gave.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// It is there.
    Present {
        /// Its entries.
        entries: BTreeMap<String, String>,
        /// For Events about it.
        reference: Box<ObjectReference>,
    },
    /// A consistent read found none.
    Absent,
    /// It could not be read; the cause.
    Unreadable(String),
}

/// The policy in effect as the ledger tells it.
#[must_use]
pub fn effective_policy(status: Option<&AdmissionQueueStatus>) -> Policy {
    let nothing = BTreeMap::new();
    Policy::from_entries(status.map_or(&nothing, |status| &status.policy))
}

impl PolicySource {
    /// The ConfigMap from the watch; only its absence is confirmed, since absence puts defaults in effect.
    pub async fn as_seen(&self, seen: &Store<ConfigMap>, reader: &Reader) -> Document {
        match seen.get(&Key::new(&self.namespace, &self.name)) {
            Some(map) => present(&map),
            None => self.now(reader).await,
        }
    }

    /// The ConfigMap by a consistent read.
    pub async fn now(&self, reader: &Reader) -> Document {
        match reader.get::<ConfigMap>(Some(&self.namespace), &self.name).await {
            Ok(Some(map)) => present(&map),
            Ok(None) => Document::Absent,
            Err(error) => Document::Unreadable(error.to_string()),
        }
    }
}

fn present(map: &ConfigMap) -> Document {
    let reference = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        namespace: map.namespace(),
        name: Some(map.name_any()),
        uid: map.uid(),
        ..ObjectReference::default()
    };
    Document::Present { entries: entries(map), reference: Box::new(reference) }
}

/// All that stands in it as text. A value that is none cannot be read as any key's, and is told like every such value.
fn entries(map: &ConfigMap) -> BTreeMap<String, String> {
    let text = |(key, bytes): (&String, &ByteString)| {
        (key.clone(), String::from_utf8_lossy(&bytes.0).into_owned())
    };
    let mut entries = map.data.clone().unwrap_or_default();
    entries.extend(map.binary_data.iter().flatten().map(text));
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_policy_holds_as_bytes_is_read_like_its_texts() {
        let bytes = |text: &[u8]| ByteString(text.to_vec());
        let map = ConfigMap {
            data: Some([("retryLimit".to_owned(), "7".to_owned())].into()),
            binary_data: Some(
                [
                    ("concurrency".to_owned(), bytes(b"3")),
                    ("stallTimeout".to_owned(), bytes(b"\xff")),
                ]
                .into(),
            ),
            ..ConfigMap::default()
        };
        let (policy, problems) = policy::document(&entries(&map), &policy::Policy::default());
        assert_eq!((policy.concurrency, policy.retry_limit), (3, 7));
        assert_eq!(
            problems.iter().map(|problem| problem.key.as_str()).collect::<Vec<_>>(),
            ["stallTimeout"]
        );
    }
}
