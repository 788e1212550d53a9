//! A pod's namespace and name.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// Names a pod. Where a fault takes a prefix, `name` is the prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodName {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl PodName {
    /// Names `namespace/name`.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// True if `self`, taken as a prefix, covers `pod`.
    pub(super) fn covers(&self, pod: &PodName) -> bool {
        self.namespace == pod.namespace && pod.name.starts_with(&self.name)
    }
}

impl From<&Pod> for PodName {
    fn from(pod: &Pod) -> Self {
        Self::new(pod.namespace().unwrap_or_default(), pod.name_any())
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
