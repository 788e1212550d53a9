//! Consistent reads: what a decision needs that a [`Store`](crate::store::Store) may be too old for.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::ApiResource;
use serde::de::DeserializeOwned;

use crate::cluster::{Answer, ApiError, Cluster, Request, Target, typed};

/// Reads from the API server, never from a cache.
#[derive(Clone)]
pub struct Reader {
    cluster: Arc<dyn Cluster>,
}

impl Reader {
    /// Reads through `cluster`.
    #[must_use]
    pub fn new(cluster: Arc<dyn Cluster>) -> Self {
        Self { cluster }
    }

    /// The object of that name now; absence is a fact.
    ///
    /// # Errors
    /// When the server does not tell, or the object does not have the shape of `K`.
    pub async fn get<K>(&self, namespace: Option<&str>, name: &str) -> Result<Option<K>, ApiError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        match self.cluster.call(Request::Get(Target::new::<K>(namespace, name))).await? {
            Answer::Object(object) => typed(*object).map(Some),
            Answer::Absent => Ok(None),
            Answer::Objects(_) | Answer::Done => Err(strange("get")),
        }
    }

    /// The UID of the object of that name now. The rest of it need not be readable: whether something is there must not
    /// depend on what somebody wrote into it.
    ///
    /// # Errors
    /// When the server does not tell.
    pub async fn uid<K>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<String>, ApiError>
    where
        K: Resource<DynamicType = ()>,
    {
        match self.cluster.call(Request::Get(Target::new::<K>(namespace, name))).await? {
            Answer::Object(object) => Ok(object.metadata.uid),
            Answer::Absent => Ok(None),
            Answer::Objects(_) | Answer::Done => Err(strange("get")),
        }
    }

    /// All objects with those labels now, of one namespace or of all.
    ///
    /// # Errors
    /// When the server does not tell, or one of them does not have the shape of `K`: a decision over a whole set must
    /// not leave out what it cannot read.
    pub async fn list<K>(&self, namespace: Option<&str>, selector: &str) -> Result<Vec<K>, ApiError>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let request = Request::List {
            resource: ApiResource::erase::<K>(&()),
            namespace: namespace.map(str::to_owned),
            selector: selector.to_owned(),
        };
        match self.cluster.call(request).await? {
            Answer::Objects(objects) => objects.into_iter().map(typed).collect(),
            Answer::Object(_) | Answer::Absent | Answer::Done => Err(strange("list")),
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

fn strange(verb: &str) -> ApiError {
    ApiError::Unreadable { detail: format!("an answer that does not fit {verb}") }
}
