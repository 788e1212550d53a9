//! How old a state of an object is.

use std::fmt;

use kube::Resource;

/// A resourceVersion. They compare as integers (Kubernetes 1.35 says so; etcd's revisions always did), within a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u128);

impl Version {
    /// The version of that text; an unreadable one is the oldest.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self(text.parse().unwrap_or_default())
    }

    /// The version of an object.
    pub fn of<K: Resource>(object: &K) -> Self {
        object.meta().resource_version.as_deref().map(Self::read).unwrap_or_default()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
