//! The other components of a cluster, as single acts: each looks at one object and does the next thing that is due.

use std::fmt;

use jiff::Timestamp;

use super::objects::State;
use super::{Id, collector, jobs, kubelet, namespaces, snapshots, volumes, workloads};

/// A component of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    /// The Job controller, its TTL part included.
    Jobs,
    /// The Deployment controller, KubeVirt, and the kubelet as far as it is about their pods.
    Workloads,
    /// Scheduler and kubelet.
    Kubelet,
    /// The storage's provisioner, and claim protection.
    Provisioner,
    /// The snapshot controller and the storage's snapshotter.
    Snapshotter,
    /// The garbage collector.
    Collector,
    /// What empties a namespace that is deleted.
    Namespaces,
}

impl Actor {
    /// Every component.
    pub const ALL: [Self; 7] = [
        Self::Jobs,
        Self::Workloads,
        Self::Kubelet,
        Self::Provisioner,
        Self::Snapshotter,
        Self::Collector,
        Self::Namespaces,
    ];
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jobs => "jobs",
            Self::Workloads => "workloads",
            Self::Kubelet => "kubelet",
            Self::Provisioner => "storage",
            Self::Snapshotter => "snapshots",
            Self::Collector => "collector",
            Self::Namespaces => "namespaces",
        })
    }
}

/// Something a component could do now: what it is follows from the object's state when it is done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Act {
    /// Which component.
    pub actor: Actor,
    /// About which object.
    pub id: Id,
}

/// Nearly every turn is news that comes or a pass that writes nothing, and leaves all as it was.
pub(super) fn pending(state: &mut State) -> Vec<Act> {
    let (revision, now) = (state.revision(), state.now());
    match &state.acts {
        Some((at, when, acts)) if (*at, *when) == (revision, now) => acts.clone(),
        _ => {
            let acts = look(state);
            state.acts = Some((revision, now, acts.clone()));
            acts
        }
    }
}

fn look(state: &State) -> Vec<Act> {
    let acts =
        Actor::ALL.into_iter().flat_map(|actor| state.objects().map(move |(id, _)| (actor, id)));
    let due = acts
        .filter(|(actor, id)| is_due(state, *actor, id))
        .map(|(actor, id)| Act { actor, id: id.clone() });
    // Pods end last, so that in a fixed order as many run at once as may.
    let (ends, others): (Vec<Act>, Vec<Act>) =
        due.partition(|act| act.actor == Actor::Kubelet && kubelet::is_end(state, &act.id));
    others.into_iter().chain(ends).collect()
}

fn is_due(state: &State, actor: Actor, id: &Id) -> bool {
    match actor {
        Actor::Jobs => jobs::due(state, id).is_some(),
        Actor::Workloads => workloads::due(state, id).is_some(),
        Actor::Kubelet => kubelet::due(state, id).is_some(),
        Actor::Provisioner => volumes::due(state, id).is_some(),
        Actor::Snapshotter => snapshots::due(state, id).is_some(),
        Actor::Collector => collector::due(state, id).is_some(),
        Actor::Namespaces => namespaces::due(state, id).is_some(),
    }
}

pub(super) fn perform(state: &mut State, act: &Act) -> String {
    state.acts = None;
    let id = &act.id;
    let told = match act.actor {
        Actor::Jobs => jobs::due(state, id).map(|deed| jobs::perform(state, id, deed)),
        Actor::Workloads => {
            workloads::due(state, id).map(|deed| workloads::perform(state, id, deed))
        }
        Actor::Kubelet => kubelet::due(state, id).map(|deed| kubelet::perform(state, id, deed)),
        Actor::Provisioner => volumes::due(state, id).map(|deed| volumes::perform(state, id, deed)),
        Actor::Snapshotter => {
            snapshots::due(state, id).map(|deed| snapshots::perform(state, id, deed))
        }
        Actor::Collector => {
            collector::due(state, id).map(|deed| collector::perform(state, id, deed))
        }
        Actor::Namespaces => {
            namespaces::due(state, id).map(|deed| namespaces::perform(state, id, deed))
        }
    };
    told.unwrap_or_else(|| panic!("{} has nothing to do with {id}", act.actor))
}

pub(super) fn next_deadline(state: &State) -> Option<Timestamp> {
    state
        .objects()
        .filter_map(|(id, _)| jobs::deadline(state, id))
        .filter(|at| *at > state.now())
        .min()
}
