//! The Lease object: what is read from it and how it is written.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::core::ObjectMeta;

/// What decides of a lease. It carries no time of day.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Who holds it; empty for nobody.
    pub holder: String,
    /// The resourceVersion it was read at.
    pub version: String,
    /// How long its holder may be silent, as the holder states it; none if it cannot be read.
    pub duration: Option<Duration>,
}

impl Record {
    /// What decides of `lease`.
    #[must_use]
    pub fn of(lease: &Lease) -> Self {
        let spec = lease.spec.as_ref();
        let seconds = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            holder: spec.and_then(|spec| spec.holder_identity.clone()).unwrap_or_default(),
            version: lease.metadata.resource_version.clone().unwrap_or_default(),
            duration: seconds.map(Duration::from_secs),
        }
    }
}

/// A lease without a holder, to be applied: metadata alone.
pub(super) fn empty(namespace: &str, name: &str) -> Lease {
    let metadata = ObjectMeta {
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    };
    Lease { metadata, spec: None }
}

/// `lease` as held by `holder`. Its times are for people; its transitions count the terms.
pub(super) fn held(lease: &Lease, holder: &str, duration_seconds: i32, now: Timestamp) -> Lease {
    let old = lease.spec.clone().unwrap_or_default();
    let is_ours = old.holder_identity.as_deref() == Some(holder);
    let transitions = old.lease_transitions.unwrap_or(0);
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(duration_seconds),
        acquire_time: if is_ours { old.acquire_time } else { Some(MicroTime(now)) },
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(if is_ours { transitions } else { transitions.saturating_add(1) }),
        ..old
    };
    Lease { metadata: lease.metadata.clone(), spec: Some(spec) }
}

/// How often the lease has changed hands.
pub(super) fn term(lease: &Lease) -> u64 {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    transitions.and_then(|transitions| transitions.try_into().ok()).unwrap_or(0)
}

/// `lease` given back.
pub(super) fn vacant(lease: &Lease, now: Timestamp) -> Lease {
    let old = lease.spec.clone().unwrap_or_default();
    let spec =
        LeaseSpec { holder_identity: Some(String::new()), renew_time: Some(MicroTime(now)), ..old };
    Lease { metadata: lease.metadata.clone(), spec: Some(spec) }
}
