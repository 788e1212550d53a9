//! The API server as the kit uses it: every request that is not a watch goes through [`Cluster::call`], one request at
//! a time. That one place is where deadlines, counting and faults belong: in production it is
//! [`KubeCluster`](crate::kube_cluster::KubeCluster), in sequence tests the in-memory world, which can die before or
//! after any request.

use std::fmt;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::{ApiResource, DynamicObject};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::plan::Propagation;

/// Carries out one request.
pub trait Cluster: Send + Sync + 'static {
    /// Sends `request` and waits for the answer, at most until the deadline of its kind. A write that fails with
    /// [`ApiError::is_unknown`] may have been carried out.
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>>;
}

/// What is asked of the API server.
#[derive(Clone, Debug)]
pub enum Request {
    /// Consistent read of one object; absent is an answer, not an error.
    Get(Target),
    /// Consistent list, paged inside, optionally of one namespace, with a label selector (empty: all).
    List {
        /// Which kind.
        resource: ApiResource,
        /// One namespace, or all.
        namespace: Option<String>,
        /// Label selector; empty for all.
        selector: String,
    },
    /// POST.
    Create(Box<DynamicObject>),
    /// Server-side apply, forced, by the controller's field manager.
    Apply(Box<DynamicObject>),
    /// PUT of the whole object, guarded by its resourceVersion (leases).
    Replace(Box<DynamicObject>),
    /// PUT of the status subresource, guarded by the object's resourceVersion (the ledger).
    ReplaceStatus(Box<DynamicObject>),
    /// Merge patch of an object but its status; the patch carries the resourceVersion (finalizers).
    Patch {
        /// Which object.
        target: Target,
        /// The patch, `metadata.resourceVersion` included.
        patch: Value,
    },
    /// JSON patch that takes places out of an object, whoever set them.
    Strip {
        /// Which object.
        target: Target,
        /// UID precondition.
        uid: String,
        /// resourceVersion precondition.
        resource_version: String,
        /// JSON pointers, taken out in this order.
        places: Vec<String>,
    },
    /// Merge patch of the status subresource; the patch carries the resourceVersion.
    PatchStatus {
        /// Whose status.
        target: Target,
        /// The patch, `metadata.resourceVersion` included.
        patch: Value,
    },
    /// DELETE with preconditions.
    Delete {
        /// What.
        target: Target,
        /// UID precondition.
        uid: String,
        /// resourceVersion precondition.
        resource_version: Option<String>,
        /// How dependents go.
        propagation: Propagation,
    },
}

impl Request {
    /// Whether it changes anything.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(self, Self::Get(_) | Self::List { .. })
    }

    /// Whether it is about a lease: late is as bad as never, and whoever leads must be able to say so.
    #[must_use]
    pub fn is_about_lease(&self) -> bool {
        let kind = match self {
            Self::Get(target)
            | Self::Patch { target, .. }
            | Self::PatchStatus { target, .. }
            | Self::Strip { target, .. }
            | Self::Delete { target, .. } => Some(&target.resource.kind),
            Self::List { resource, .. } => Some(&resource.kind),
            Self::Create(object)
            | Self::Apply(object)
            | Self::Replace(object)
            | Self::ReplaceStatus(object) => object.types.as_ref().map(|types| &types.kind),
        };
        kind.is_some_and(|kind| kind == "Lease")
    }

    /// The verb as RBAC and the audit log name it.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Get(_) => "get",
            Self::List { .. } => "list",
            Self::Create(_) => "create",
            Self::Apply(_) | Self::Patch { .. } | Self::PatchStatus { .. } | Self::Strip { .. } => {
                "patch"
            }
            Self::Replace(_) | Self::ReplaceStatus(_) => "update",
            Self::Delete { .. } => "delete",
        }
    }
}

/// What the API server answered.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The object as it is now (after a write: as written).
    Object(Box<DynamicObject>),
    /// There is none of that name.
    Absent,
    /// All that matched.
    Objects(Vec<DynamicObject>),
    /// Done; nothing to tell (a deletion).
    Done,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its kind.
    pub resource: ApiResource,
    /// Its namespace; none for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Target {
    /// The object of kind `K` with that name.
    #[must_use]
    pub fn new<K: Resource<DynamicType = ()>>(namespace: Option<&str>, name: &str) -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    /// The target of an object that carries its type.
    #[must_use]
    pub fn of(object: &DynamicObject) -> Self {
        Self {
            resource: resource_of(object),
            namespace: object.namespace(),
            name: object.name_any(),
        }
    }

    /// As the `involvedObject` of an Event.
    #[must_use]
    pub fn reference(&self, uid: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(self.resource.api_version.clone()),
            kind: Some(self.resource.kind.clone()),
            name: Some(self.name.clone()),
            namespace: self.namespace.clone(),
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.resource.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}

/// The resource of an object by its type; plurals are regular for every kind the kit writes.
fn resource_of(object: &DynamicObject) -> ApiResource {
    let types =
        object.types.clone().expect("objects of plans are made by `erase` and carry their type");
    let gvk = kube::core::GroupVersionKind::try_from(&types)
        .expect("apiVersion of a typed object is well formed");
    ApiResource::from_gvk(&gvk)
}

/// A typed object as plans and requests carry it. Its serialised form is what is sent.
///
/// # Panics
/// When `object` does not serialise to a JSON object, which no Kubernetes type does.
#[must_use]
pub fn erase<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Box<DynamicObject> {
    let mut value = serde_json::to_value(object).expect("a Kubernetes object serialises");
    value["apiVersion"] = Value::from(K::api_version(&()).into_owned());
    value["kind"] = Value::from(K::kind(&()).into_owned());
    Box::new(serde_json::from_value(value).expect("a Kubernetes object has metadata"))
}

/// An object of an answer as its type.
///
/// # Errors
/// [`ApiError::Unreadable`] when it does not have the shape of `K`.
pub fn typed<K: DeserializeOwned>(object: DynamicObject) -> Result<K, ApiError> {
    let parsed = serde_json::to_value(object).and_then(serde_json::from_value);
    parsed.map_err(|error| ApiError::Unreadable { detail: error.to_string() })
}

/// Why a request failed, by what can be done about it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ApiError {
    /// The object changed since it was read (409 Conflict), or a precondition no longer holds.
    #[error("the object changed since it was read: {detail}")]
    Conflict {
        /// The server's message.
        detail: String,
    },
    /// An object of that name exists (409 AlreadyExists).
    #[error("an object of that name exists")]
    AlreadyExists,
    /// A write to an object that is gone (404).
    #[error("not found: {detail}")]
    NotFound {
        /// The server's message; may name a missing kind instead of a missing object.
        detail: String,
    },
    /// Not permitted (403), by rights, quota or admission.
    #[error("refused: {detail}")]
    Forbidden {
        /// The server's message.
        detail: String,
        /// Whether a quota refused it.
        quota: bool,
        /// Whether the namespace is being deleted.
        namespace_terminating: bool,
    },
    /// The content was refused (400, 422).
    #[error("refused as invalid: {detail}")]
    Invalid {
        /// The server's message.
        detail: String,
    },
    /// An admission webhook that has a say could not be asked (500): nothing was written. It may be asked about this kind
    /// alone.
    #[error("an admission webhook could not be asked: {detail}")]
    WebhookFailed {
        /// The server's message.
        detail: String,
    },
    /// Asked to slow down (429).
    #[error("asked to slow down")]
    Throttled {
        /// How long, in seconds.
        retry_after_seconds: Option<u64>,
    },
    /// The server failed, the connection broke or the deadline passed: a write may have been carried out.
    #[error("no answer that tells the outcome: {detail}")]
    Unknown {
        /// What happened.
        detail: String,
    },
    /// The answer has not the shape it should have.
    #[error("unreadable answer: {detail}")]
    Unreadable {
        /// What the parser said.
        detail: String,
    },
}

impl ApiError {
    /// Whether it was refused since something of it is there twice. Validation has said so in these words since Kubernetes 1.0.
    #[must_use]
    pub fn tells_of_duplicate(&self) -> bool {
        matches!(self, Self::Invalid { detail } if detail.contains("Duplicate value"))
    }

    /// Whether somebody is to be told: it may stay so until a person does something.
    #[must_use]
    pub fn is_told(&self) -> bool {
        match self {
            Self::Forbidden { .. } | Self::Invalid { .. } | Self::WebhookFailed { .. } => true,
            Self::Conflict { .. }
            | Self::AlreadyExists
            | Self::NotFound { .. }
            | Self::Throttled { .. }
            | Self::Unknown { .. }
            | Self::Unreadable { .. } => false,
        }
    }

    /// Whether a write may have been carried out all the same.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Unreadable { .. })
    }
}
