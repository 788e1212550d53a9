//! The vocabulary of decisions: what a plan may hold. A plan leaves nothing to choose: whole objects, an order, a reason
//! per write, the whole status, when to look again. [`commit`](crate::commit) carries plans out; nothing here does IO.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::DynamicObject;
use serde_json::Value;

use crate::cluster::{ApiError, Target};

/// What a pass decided.
#[derive(Clone, Debug)]
pub struct Plan<S> {
    /// The state the object was judged to be in: a short constant for logs, spans and goldens.
    pub verdict: &'static str,
    /// What to write first, in this order; the first failure ends the pass.
    pub writes: Vec<Write>,
    /// What to write then: lanes that do not rest on each other. A write that is refused ends its own lane, and the others
    /// go on; after that nothing else of the plan is written.
    pub lanes: Vec<Vec<Write>>,
    /// The whole status after all writes, or none to leave it alone.
    pub status: Option<S>,
    /// Events, published only after the status was written.
    pub notices: Vec<Notice>,
    /// Deletions that the status justifies: made last, and only after it stands, at the version that was observed. One
    /// that is refused takes nothing back from what the status and the Events say.
    pub clear: Vec<Write>,
    /// When to look again if nothing wakes us before.
    pub next: Next,
}

impl<S> Plan<S> {
    /// A plan that writes nothing and waits.
    pub fn rest(verdict: &'static str) -> Self {
        Self {
            verdict,
            writes: Vec::new(),
            lanes: Vec::new(),
            status: None,
            clear: Vec::new(),
            notices: Vec::new(),
            next: Next::Wait,
        }
    }

    /// Everything that is written before the status, in the order in which it is.
    pub fn before_status(&self) -> impl DoubleEndedIterator<Item = &Write> {
        self.writes.iter().chain(self.lanes.iter().flatten())
    }
}

/// One write, with the reason why it is made.
#[derive(Clone, Debug)]
pub struct Write {
    /// What to do.
    pub action: Action,
    /// A phrase for logs and goldens: "because it was admitted".
    pub because: &'static str,
}

/// What a write does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Status of the plan's own object, written *before* the writes that follow it, because they destroy what it
    /// remembers or rely on its being on record: the whole status as it is to be after this write; only what differs
    /// is sent, guarded by the resourceVersion that was observed.
    Remember(Value),
    /// Compare-and-swap of the whole status of the plan's own object, by PUT. A conflict ends the pass.
    Swap(Value),
    /// Finalizers of the plan's own object, all of them as they are to be, others' too: by merge patch, guarded by the
    /// version that was observed. An apply takes back only what it set itself, and a finalizer that came with a manifest,
    /// or back from a backup, would stay for ever.
    Finalize(Vec<String>),
    /// Fields of another object's status, by merge patch with the resourceVersion that was observed (queue: the ticket).
    Mark {
        /// Whose status.
        target: Target,
        /// The resourceVersion that was observed.
        resource_version: String,
        /// The fields to merge into `status`.
        fields: Value,
    },
    /// Server-side apply of metadata alone: makes a named singleton of ours if it is missing. Two who do it at once do
    /// not disturb each other, since neither sets anything.
    Ensure(Box<DynamicObject>),
    /// POST. An object of that name that is ours already counts as done; another's is an error. Where it is to have no
    /// controller owner, whatever is there is looked at anew.
    Create(Box<DynamicObject>),
    /// Makes an object that is changed by [`Apply`](Self::Apply) later: a server-side apply that names a version which no
    /// object has, so it can only create. What is made by POST stays owned by that request: no later apply could take a
    /// field of it back. An object of that name counts as with [`Create`](Self::Create).
    Establish(Box<DynamicObject>),
    /// Two ways to the same object: where the API server calls `wanted` invalid, `otherwise`. Whether it will is not known
    /// before: something that is to be had again may be somebody else's by now, and so may what an apply is to take back.
    /// What is there is taken out or deleted only where the API server says that something of it is there twice: a policy of
    /// the cluster calls invalid what it likes, and then what runs stays as it is.
    Either {
        /// What is done if it can be.
        wanted: Box<Action>,
        /// What is done if it cannot.
        otherwise: Box<Action>,
    },
    /// Server-side apply of an object that was read and is ours, or of our part of one that is not: an owner reference.
    /// Carries its `metadata.uid`, and its resourceVersion where what is applied
    /// rests on what else the object holds.
    Apply(Box<DynamicObject>),
    /// Places of an object that was read and is ours, taken out whoever set them: what an apply would put beside them is
    /// refused. By JSON patch, so that nothing else of the object is said; guarded by its version, since places in a list
    /// are numbers.
    Strip {
        /// What to take them out of.
        target: Target,
        /// UID of the object that was read.
        uid: String,
        /// The resourceVersion that was observed.
        resource_version: String,
        /// JSON pointers, taken out in this order: of a list the last place first.
        places: Vec<String>,
    },
    /// DELETE with the UID as precondition, and the resourceVersion too if one is given.
    Delete {
        /// What to delete.
        target: Target,
        /// UID of the object that was read.
        uid: String,
        /// Also require this version.
        resource_version: Option<String>,
        /// How its dependents go.
        propagation: Propagation,
    },
}

impl Action {
    /// What it writes, if that is not the plan's own object.
    #[must_use]
    pub fn child(&self) -> Option<Target> {
        match self {
            Self::Remember(_) | Self::Swap(_) | Self::Finalize(_) => None,
            Self::Mark { target, .. }
            | Self::Strip { target, .. }
            | Self::Delete { target, .. } => Some(target.clone()),
            Self::Ensure(object)
            | Self::Create(object)
            | Self::Establish(object)
            | Self::Apply(object) => Some(Target::of(object)),
            Self::Either { wanted, .. } => wanted.child(),
        }
    }
}

impl Action {
    /// Whether it is the way out of that refusal of another action.
    pub(crate) fn helps(&self, refusal: &ApiError) -> bool {
        let destroys = matches!(self, Self::Strip { .. } | Self::Delete { .. });
        match refusal {
            ApiError::Invalid { .. } if destroys => refusal.tells_of_duplicate(),
            ApiError::Invalid { .. } => true,
            _ => false,
        }
    }
}

/// How the dependents of a deleted object go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They go first; the object stays until they are gone.
    Foreground,
    /// They go some time later.
    Background,
}

/// An Event to publish.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    /// Warning instead of Normal.
    pub warning: bool,
    /// CamelCase word; the same enum as condition reasons.
    pub reason: String,
    /// What was being done, CamelCase: `Sync`, `Snapshot`.
    pub action: &'static str,
    /// A sentence for people, cut to 1 kB.
    pub message: String,
    /// Another object that it is about, instead of the plan's own.
    pub regarding: Option<ObjectReference>,
}

/// When an object is looked at again without a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A watch will wake us.
    Wait,
    /// At this time, or when a watch wakes us.
    At(Timestamp),
}

impl Next {
    /// The earlier of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Wait, next) | (next, Self::Wait) => next,
            (Self::At(a), Self::At(b)) => Self::At(a.min(b)),
        }
    }
}

/// One line per write, for logs and goldens.
impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} because {}", self.action, self.because)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remember(_) => write!(f, "remember"),
            Self::Swap(_) => write!(f, "swap status"),
            Self::Finalize(finalizers) if finalizers.is_empty() => {
                write!(f, "take every finalizer off")
            }
            Self::Finalize(finalizers) => write!(f, "put finalizers {}", finalizers.join(", ")),
            Self::Mark { target, .. } => write!(f, "mark {target}"),
            Self::Ensure(object) => write!(f, "ensure {}", Target::of(object)),
            Self::Create(object) => write!(f, "create {}", Target::of(object)),
            Self::Establish(object) => write!(f, "make {}", Target::of(object)),
            Self::Either { wanted, .. } => write!(f, "{wanted}"),
            Self::Apply(object) => write!(f, "apply {}", Target::of(object)),
            Self::Strip { target, places, .. } => {
                write!(f, "strip {target} of {}", places.join(", "))
            }
            Self::Delete { target, .. } => write!(f, "delete {target}"),
        }
    }
}
