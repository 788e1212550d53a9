//! What waits in a queue, and what it wants there.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use otctl_kit::cluster::Target;
use otctl_kit::ledger::AttemptRecord;
use otctl_kit::store::Version;
use policy::Ticket;
use policy::admission::Eligibility;

/// An object that waits in a queue, with what follows from its last version.
pub trait Member: Send + Sync + 'static {
    /// Its metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Names it.
    fn target(&self) -> Target;

    /// Its UID.
    fn uid(&self) -> &str;

    /// What stands in its status as a ticket.
    fn ticket_text(&self) -> Option<&str>;

    /// Its ticket, if it has a readable one.
    fn ticket(&self) -> Option<Ticket>;

    /// The highest ticket that its record of the past bears, which is given to nobody else.
    fn spent(&self) -> Option<Ticket> {
        None
    }

    /// The highest number that it has used.
    fn last(&self) -> i64;

    /// The number that is on record as running.
    fn open(&self) -> Option<i64>;

    /// The lane that it would run in, for a limit per lane.
    fn host(&self) -> Option<&str> {
        None
    }

    /// Its place in the order of first tickets: creation, then version at first sight. UIDs break ties.
    fn order(&self) -> (Option<&Time>, Version);

    /// Whether a person holds it back, so that it gives up the place it has.
    fn is_suspended(&self) -> bool;

    /// When its backoff ends, if that is still to come.
    fn backoff_until(&self, now: Timestamp) -> Option<Timestamp> {
        let _ = now;
        None
    }

    /// The numbers that the ledger's rules look at.
    fn numbers(&self) -> AttemptRecord {
        AttemptRecord { last: self.last(), is_open: self.open().is_some() }
    }
}

/// What a member wants of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing, and its ticket, if it has one, stays as a record.
    Nothing,
    /// Nothing while it is suspended: its place is given up.
    GiveUpPlace,
    /// A slot.
    Slot {
        /// Its place, or the place it still needs.
        place: Place,
        /// Whether it could use a slot now.
        eligibility: Eligibility,
    },
}

/// A place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has this ticket.
    Held(Ticket),
    /// It needs a first ticket.
    First,
    /// It needs the ticket of a retry that was due at this time.
    Retry(Timestamp),
}
