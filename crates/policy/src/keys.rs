//! The table of policy keys: name, form, bounds, and the field each one sets.
//!
//! Reading, writing and describing a key all follow from its row here.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::duration::{self, days, hours, minutes};
use crate::{ImportEngine, Policy, SourceHosts, quantity, spelling};

/// The field of a policy that a key sets.
type Field<T> = fn(&mut Policy) -> &mut T;

/// A row of the table.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    form: Form,
}

/// How a value is written, within which bounds. Optional ones have no default.
enum Form {
    Count(RangeInclusive<u32>, Field<u32>),
    OptionalCount(RangeInclusive<u32>, Field<Option<u32>>),
    Time(RangeInclusive<Duration>, Field<Duration>),
    OptionalTime(RangeInclusive<Duration>, Field<Option<Duration>>),
    /// At least so many bytes.
    OptionalSize(u64, Field<Option<u64>>),
    Hosts(Field<SourceHosts>),
    Engine(Field<ImportEngine>),
    /// The name of an object of this kind.
    OptionalName(&'static str, Field<Option<String>>),
}

use Form::{Count, Engine, Hosts, OptionalCount, OptionalName, OptionalSize, OptionalTime, Time};

const SECOND: Duration = Duration::from_secs(1);
const TEN_SECONDS: Duration = Duration::from_secs(10);

/// Every key, in the order in which a person reads about them.
pub(crate) static KEYS: [Key; 20] = [
    Key { name: "concurrency", form: Count(0..=1000, |p| &mut p.concurrency) },
    Key { name: "retryLimit", form: Count(0..=20, |p| &mut p.retry_limit) },
    Key {
        name: "retryBackoffDuration",
        form: Time(SECOND..=hours(24), |p| &mut p.retry_backoff_duration),
    },
    Key { name: "retryBackoffMax", form: Time(SECOND..=hours(24), |p| &mut p.retry_backoff_max) },
    Key { name: "workspaceConcurrency", form: Count(0..=1000, |p| &mut p.workspace_concurrency) },
    Key {
        name: "provisioningTimeout",
        form: Time(minutes(1)..=hours(24), |p| &mut p.provisioning_timeout),
    },
    Key {
        name: "concurrencyPerHost",
        form: OptionalCount(1..=1000, |p| &mut p.concurrency_per_host),
    },
    Key { name: "bandwidthLimit", form: OptionalSize(64 << 10, |p| &mut p.bandwidth_limit) },
    Key { name: "attemptTimeout", form: Time(minutes(1)..=days(7), |p| &mut p.attempt_timeout) },
    Key { name: "stallTimeout", form: Time(TEN_SECONDS..=hours(24), |p| &mut p.stall_timeout) },
    Key { name: "bindTimeout", form: Time(TEN_SECONDS..=hours(24), |p| &mut p.bind_timeout) },
    Key { name: "snapshotConcurrency", form: Count(1..=1000, |p| &mut p.snapshot_concurrency) },
    Key {
        name: "snapshotTimeout",
        form: Time(minutes(1)..=hours(24), |p| &mut p.snapshot_timeout),
    },
    Key { name: "maxImageSize", form: OptionalSize(1 << 20, |p| &mut p.max_image_size) },
    Key { name: "allowedSourceHosts", form: Hosts(|p| &mut p.allowed_source_hosts) },
    Key { name: "importEngine", form: Engine(|p| &mut p.import_engine) },
    Key {
        name: "pruneUnusedAfter",
        form: OptionalTime(hours(1)..=days(3650), |p| &mut p.prune_unused_after),
    },
    Key {
        name: "defaultStorageClass",
        form: OptionalName("StorageClass", |p| &mut p.default_storage_class),
    },
    Key {
        name: "defaultSnapshotClass",
        form: OptionalName("VolumeSnapshotClass", |p| &mut p.default_snapshot_class),
    },
    Key {
        name: "scratchStorageClass",
        form: OptionalName("StorageClass", |p| &mut p.scratch_storage_class),
    },
];

/// Keys that are read and checked, and that this version does not act on.
pub const NOT_ACTED_ON: [&str; 2] = ["pruneUnusedAfter", "importEngine"];

/// What a person needs to know to set a key; for generated reference pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyReference {
    /// The key in the ConfigMap.
    pub name: &'static str,
    /// What holds when it is absent; `None` when nothing is set then.
    pub default: Option<String>,
    /// Which values are accepted.
    pub accepted: String,
    /// Whether this version acts on it.
    pub is_acted_on: bool,
}

/// Every key of the policy.
pub fn keys() -> impl Iterator<Item = KeyReference> {
    KEYS.iter().map(|key| KeyReference {
        name: key.name,
        default: key.text(&mut Policy::default()),
        accepted: key.accepted(),
        is_acted_on: is_acted_on(key.name),
    })
}

/// Whether this version acts on the key of this name.
pub(crate) fn is_acted_on(name: &str) -> bool {
    !NOT_ACTED_ON.contains(&name)
}

/// The key of this name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The name of an existing key that somebody who wrote `name` probably meant.
pub(crate) fn closest(name: &str) -> Option<&'static str> {
    spelling::closest(name, KEYS.iter().map(|key| key.name))
}

impl Key {
    /// Sets the key's field from a whole text.
    ///
    /// A text that cannot be read leaves the field as it was and gives back what is accepted.
    pub(crate) fn read(&self, text: &str, policy: &mut Policy) -> Result<(), String> {
        let is_read = match &self.form {
            Count(bounds, field) => set(field(policy), count(text, bounds)),
            OptionalCount(bounds, field) => set(field(policy), count(text, bounds).map(Some)),
            Time(bounds, field) => set(field(policy), time(text, bounds)),
            OptionalTime(bounds, field) => set(field(policy), time(text, bounds).map(Some)),
            OptionalSize(least, field) => set(field(policy), size(text, *least).map(Some)),
            Engine(field) => set(field(policy), text.parse().ok()),
            OptionalName(_, field) => set(field(policy), name(text).map(Some)),
            Hosts(field) => {
                let hosts =
                    text.parse().map_err(|error| format!("{}: {error}", self.accepted()))?;
                set(field(policy), Some(hosts))
            }
        };
        if is_read { Ok(()) } else { Err(self.accepted()) }
    }

    /// The field's value as a text that [`Key::read`] reads back; `None` when it is not set.
    ///
    /// Takes the policy mutably because a row knows its field by one function for both ways.
    pub(crate) fn text(&self, policy: &mut Policy) -> Option<String> {
        match &self.form {
            Count(_, field) => Some(field(policy).to_string()),
            OptionalCount(_, field) => field(policy).map(|count| count.to_string()),
            Time(_, field) => Some(duration::format(*field(policy))),
            OptionalTime(_, field) => field(policy).map(duration::format),
            OptionalSize(_, field) => field(policy).map(quantity::format),
            Hosts(field) => Some(field(policy).to_string()),
            Engine(field) => Some(field(policy).to_string()),
            OptionalName(_, field) => field(policy).clone(),
        }
    }

    /// Gives `to` the value that `from` has.
    pub(crate) fn copy(&self, from: &mut Policy, to: &mut Policy) {
        match &self.form {
            Count(_, field) => *field(to) = *field(from),
            OptionalCount(_, field) => *field(to) = *field(from),
            Time(_, field) => *field(to) = *field(from),
            OptionalTime(_, field) => *field(to) = *field(from),
            OptionalSize(_, field) => *field(to) = *field(from),
            Hosts(field) => field(to).clone_from(field(from)),
            Engine(field) => *field(to) = *field(from),
            OptionalName(_, field) => field(to).clone_from(field(from)),
        }
    }

    /// Which values are accepted, in words.
    pub(crate) fn accepted(&self) -> String {
        match &self.form {
            Count(bounds, _) => accepted_count(bounds),
            OptionalCount(bounds, _) => {
                format!("{}, or no such key for no limit", accepted_count(bounds))
            }
            Time(bounds, _) => accepted_time(bounds),
            OptionalTime(bounds, _) => {
                format!("{}, or no such key for never", accepted_time(bounds))
            }
            OptionalSize(least, _) => format!(
                "a size of at least {} such as 200Mi or 1.5Gi, or no such key for no limit",
                quantity::format(*least)
            ),
            Hosts(_) => {
                "* alone for any host, scheme and port, or [http://|https://]host[:port] entries separated by commas: \
                 without a scheme https, without a port the scheme's, never a path; a * in a host stands for any characters"
                    .to_owned()
            }
            Engine(_) => "pod or cdi".to_owned(),
            OptionalName(kind, _) => {
                format!("the name of a {kind}, or no such key for the default")
            }
        }
    }
}

fn accepted_count(bounds: &RangeInclusive<u32>) -> String {
    format!("a whole number from {} to {}", bounds.start(), bounds.end())
}

fn accepted_time(bounds: &RangeInclusive<Duration>) -> String {
    let (start, end) = (duration::format(*bounds.start()), duration::format(*bounds.end()));
    format!("a duration from {start} to {end} such as 90s, 5m, 2h30m or 7d")
}

fn set<T>(field: &mut T, value: Option<T>) -> bool {
    value.map(|value| *field = value).is_some()
}

fn count(text: &str, bounds: &RangeInclusive<u32>) -> Option<u32> {
    // Rust's own parser would take a plus sign.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten().filter(|count| bounds.contains(count))
}

fn time(text: &str, bounds: &RangeInclusive<Duration>) -> Option<Duration> {
    duration::parse(text).ok().filter(|time| bounds.contains(time))
}

fn size(text: &str, least: u64) -> Option<u64> {
    quantity::parse(text).ok().filter(|size| *size >= least)
}

/// A DNS subdomain, as Kubernetes wants the names of classes.
fn name(text: &str) -> Option<String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(|byte| is_inner(*byte))
            && bytes.last().is_some_and(|byte| is_inner(*byte))
            && bytes.iter().all(|byte| is_inner(*byte) || *byte == b'-')
    };
    (text.len() <= 253 && text.split('.').all(is_label)).then(|| text.to_owned())
}
