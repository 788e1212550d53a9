//! What this controller measures, as a table.

use otctl_kit::metrics::Family;
use otctl_queue::metrics::POLICY_VALID;

/// From seconds, where slots are free, to a night, where they are not.
const WAIT_SECONDS: [f64; 13] =
    [1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 43_200.0];
/// 5 GB at 1 GB/s take seconds, 50 GB from a slow source hours.
const SYNC_SECONDS: [f64; 14] = [
    5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0,
    86_400.0,
];

pub(super) const IMAGES: Family =
    Family::gauge("otctl_images", &["phase"], "VMDiskImages by phase.");
pub(super) const UNREADY: Family = Family::gauge(
    "otctl_images_unready",
    &["phase", "reason"],
    "VMDiskImages that are not Succeeded, by phase and by the reason of their condition Ready.",
);
pub(super) const WAITING: Family = Family::gauge(
    "otctl_images_waiting",
    &[],
    "VMDiskImages that wait for a slot or for the end of their backoff.",
);
pub(super) const OLDEST: Family = Family::gauge(
    "otctl_image_queue_oldest_age_seconds",
    &[],
    "How long the VMDiskImage that waits longest for a slot has had its ticket; 0 when none waits.",
);
pub(super) const ACTIVE: Family =
    Family::gauge("otctl_image_slots_active", &[], "Slots of the image queue in use.");
pub(super) const LIMIT: Family = Family::gauge(
    "otctl_image_slots_limit",
    &[],
    "Slots of the image queue, as the policy sets them.",
);
pub(super) const SNAPSHOTS: Family = Family::gauge(
    "otctl_image_snapshots_active",
    &[],
    "Snapshots of images that are being taken, or may be.",
);
pub(super) const SNAPSHOT_LIMIT: Family = Family::gauge(
    "otctl_image_snapshots_limit",
    &[],
    "Snapshots of images at once, as the policy sets them.",
);
pub(super) const RECEIVED: Family = Family::counter(
    "otctl_image_received_bytes_total",
    &[],
    "Bytes that imports have received from their sources, as they tell it while they run.",
);
pub(super) const ATTEMPTS: Family = Family::counter(
    "otctl_image_attempts_total",
    &["class", "reason"],
    "Attempts that ended, by what that asks for and by their reason in status.",
);
pub(super) const WAIT: Family = Family::histogram(
    "otctl_image_queue_wait_seconds",
    &[],
    "From the ticket of an attempt to its slot; from the image's creation if it got both at once.",
    &WAIT_SECONDS,
);
pub(super) const SYNC: Family = Family::histogram(
    "otctl_image_sync_duration_seconds",
    &[],
    "From the slot of the attempt that brought the data to Succeeded, its snapshot included.",
    &SYNC_SECONDS,
);
pub(super) const READY: Family = Family::histogram(
    "otctl_image_ready_duration_seconds",
    &[],
    "From the creation of an image to its first Succeeded, for images that no person had to see to.",
    &SYNC_SECONDS,
);
pub(super) const LATE: Family = Family::counter(
    "otctl_image_snapshots_late_total",
    &[],
    "Snapshots that were not ready within snapshotTimeout of the policy.",
);

/// What this controller measures beside what every controller does.
pub const FAMILIES: [Family; 15] = [
    IMAGES,
    UNREADY,
    WAITING,
    OLDEST,
    ACTIVE,
    LIMIT,
    SNAPSHOTS,
    SNAPSHOT_LIMIT,
    POLICY_VALID,
    RECEIVED,
    ATTEMPTS,
    WAIT,
    SYNC,
    READY,
    LATE,
];
