//! Every status that occurs, by number: of images and of the ledger, whole, as the product writes them. The times at which
//! a retry is due are taken to have come: time plays no part in the protocol, so every wait may be over at any moment.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::rc::Rc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use otctl_types::VMDiskImageStatus;
use otctl_types::diskimage::Phase;
use otctl_types::queue::AdmissionQueueStatus;
use policy::Ticket;
use serde_json::Value;
use testbed::explore::Folding;

use crate::objects;
use crate::state::{JobId, NAMES, Uid};

/// What the model's rules ask of an image's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) last: u8,
    pub(crate) open: Option<JobId>,
    /// Which budget the open attempt is paid from.
    pub(crate) open_budget: u8,
    /// The first ticket, if that is what it has.
    pub(crate) first_ticket: Option<u64>,
    pub(crate) has_ticket: bool,
    /// It has its data.
    pub(crate) is_done: bool,
    /// It failed for good, within this budget.
    pub(crate) final_in: Option<u8>,
    /// The attempt that ended last: its number, and whether it was charged.
    pub(crate) ended: Option<(u8, bool)>,
    /// Succeeded or Failed.
    pub(crate) is_at_its_end: bool,
}

/// What the model's rules ask of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) entries: Vec<Entry>,
    pub(crate) limit: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) uid: Uid,
    pub(crate) number: u8,
    /// The first ticket it was won with; none for a retry.
    pub(crate) first_ticket: Option<u64>,
    /// It was entered again from work that ran.
    pub(crate) is_found: bool,
}

/// A status of a ledger as the image of a name sees it, by number.
type Owned = HashMap<(u16, Option<Uid>), u16, BuildHasherDefault<Folding>>;

/// Statuses and patches by number. Number 0 is the empty status.
pub(crate) struct Statuses {
    images: RefCell<Kept<VMDiskImageStatus, Facts>>,
    ledgers: RefCell<Kept<AdmissionQueueStatus, Slots>>,
    patches: RefCell<Kept<Value, ()>>,
    patched: RefCell<HashMap<(u16, u16), u16, BuildHasherDefault<Folding>>>,
    own: RefCell<Owned>,
    budgets: [[String; 2]; NAMES],
}

/// Things that are serialised to be compared, with what was read out of them.
struct Kept<T, F> {
    numbers: HashMap<String, u16>,
    things: Vec<(Rc<T>, Rc<F>)>,
}

impl<T: serde::Serialize, F> Kept<T, F> {
    fn number(&mut self, thing: T, facts: impl FnOnce(&T) -> F) -> u16 {
        let text = serde_json::to_string(&thing).expect("a status serialises");
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        let number = u16::try_from(self.things.len()).expect("statuses are few");
        let facts = facts(&thing);
        self.numbers.insert(text, number);
        self.things.push((Rc::new(thing), Rc::new(facts)));
        number
    }
}

impl Default for Statuses {
    fn default() -> Self {
        let budgets = std::array::from_fn(|name| {
            let name = u8::try_from(name).expect("names are few");
            [objects::budget_key(name, 0), objects::budget_key(name, 1)]
        });
        let statuses = Self {
            images: RefCell::new(Kept { numbers: HashMap::new(), things: Vec::new() }),
            ledgers: RefCell::new(Kept { numbers: HashMap::new(), things: Vec::new() }),
            patches: RefCell::new(Kept { numbers: HashMap::new(), things: Vec::new() }),
            patched: RefCell::default(),
            own: RefCell::default(),
            budgets,
        };
        statuses.number_of_image(VMDiskImageStatus::default());
        statuses.number_of_ledger(&AdmissionQueueStatus::default());
        statuses
    }
}

impl Statuses {
    pub(crate) fn image(&self, number: u16) -> Rc<VMDiskImageStatus> {
        self.images.borrow().things[usize::from(number)].0.clone()
    }

    pub(crate) fn ledger(&self, number: u16) -> Rc<AdmissionQueueStatus> {
        self.ledgers.borrow().things[usize::from(number)].0.clone()
    }

    pub(crate) fn facts(&self, number: u16) -> Rc<Facts> {
        self.images.borrow().things[usize::from(number)].1.clone()
    }

    pub(crate) fn slots(&self, number: u16) -> Rc<Slots> {
        self.ledgers.borrow().things[usize::from(number)].1.clone()
    }

    /// How many of them there are, of images and of the ledger.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.images.borrow().things.len(), self.ledgers.borrow().things.len())
    }

    pub(crate) fn number_of_ledger(&self, status: &AdmissionQueueStatus) -> u16 {
        self.ledgers.borrow_mut().number(status.clone(), slots)
    }

    pub(crate) fn number_of_patch(&self, patch: &Value) -> u16 {
        self.patches.borrow_mut().number(patch.clone(), |_| ())
    }

    fn number_of_image(&self, mut status: VMDiskImageStatus) -> u16 {
        status.next_retry_at = status.next_retry_at.map(|_| Time(objects::noon()));
        self.images.borrow_mut().number(status, |status| self.facts_of(status))
    }

    /// The status of an image after a patch.
    pub(crate) fn patched(&self, status: u16, patch: u16) -> u16 {
        if let Some(known) = self.patched.borrow().get(&(status, patch)) {
            return *known;
        }
        let mut value = serde_json::to_value(&*self.image(status)).expect("a status serialises");
        let fields = self.patches.borrow().things[usize::from(patch)].0.clone();
        merge(&mut value, &fields);
        let after = self.number_of_image(serde_json::from_value(value).expect("it stays a status"));
        self.patched.borrow_mut().insert((status, patch), after);
        after
    }

    /// The ledger as one image looks at it: its own entries and the policy in effect.
    pub(crate) fn of_one(&self, ledger: u16, uid: Option<Uid>) -> u16 {
        if let Some(known) = self.own.borrow().get(&(ledger, uid)) {
            return *known;
        }
        let text = uid.map(objects::uid_text);
        let whole = self.ledger(ledger);
        let own = whole.active.iter().filter(|entry| Some(&entry.uid) == text.as_ref());
        let status = AdmissionQueueStatus {
            active: own.cloned().collect(),
            policy: whole.policy.clone(),
            ..AdmissionQueueStatus::default()
        };
        let number = self.number_of_ledger(&status);
        self.own.borrow_mut().insert((ledger, uid), number);
        number
    }

    fn facts_of(&self, status: &VMDiskImageStatus) -> Facts {
        let budget_of = |key: Option<&str>| {
            let keys = self.budgets.iter().flat_map(|keys| (0..).zip(keys));
            keys.filter(|(_, own)| key == Some(own.as_str())).map(|(asked, _)| asked).next()
        };
        let ticket = status.ticket.as_deref().and_then(|text| text.parse::<Ticket>().ok());
        let open = status.open_attempt.as_ref();
        let ended = status.attempts.last();
        Facts {
            last: small(status.last_attempt.unwrap_or(0)),
            open: open
                .map(|open| objects::job_of(&open.job_uid).expect("the UID of an import Job")),
            open_budget: open.and_then(|open| budget_of(open.budget.as_deref())).unwrap_or(0),
            first_ticket: first(ticket),
            has_ticket: ticket.is_some(),
            is_done: status.current.is_some(),
            final_in: ended
                .filter(|attempt| attempt.is_final)
                .and_then(|attempt| budget_of(attempt.budget.as_deref())),
            ended: ended.map(|attempt| (small(attempt.number), attempt.charged)),
            is_at_its_end: matches!(status.phase, Some(Phase::Succeeded | Phase::Failed)),
        }
    }
}

fn slots(status: &AdmissionQueueStatus) -> Slots {
    let entries = status.active.iter().map(|entry| Entry {
        uid: objects::uid_of(&entry.uid).expect("the UID of an image"),
        number: small(entry.attempt),
        first_ticket: first(entry.ticket.parse().ok()).filter(|ticket| *ticket > 0),
        is_found: entry.ticket == "0",
    });
    let limit = status.limit.map(|limit| u32::try_from(limit).expect("it is not below 0"));
    Slots { entries: entries.collect(), limit }
}

fn first(ticket: Option<Ticket>) -> Option<u64> {
    ticket
        .filter(|ticket| ticket.retry_at().is_none())
        .map(|ticket| Ticket::highest_first([ticket]))
}

fn small(number: i64) -> u8 {
    u8::try_from(number).expect("attempts are few")
}

/// A merge patch, as RFC 7386 has it.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let object = target.as_object_mut().expect("it is one now");
    for (key, value) in fields {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
