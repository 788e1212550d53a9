//! Reads what an admission rests on. Members and the ledger come from the watches; whatever could admit too many if it
//! were stale is read from the API server, after the version of the ledger that the admission will replace: the policy,
//! then what runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::reconciler::{Observation, Subject};
use otctl_types::AdmissionQueue;

use crate::decide;
use crate::document::Document;
use crate::line::{Line, Queue};
use crate::work::Work;

/// Everything a queue decides on.
pub struct Observed<L: Line> {
    /// The ledger; none before it was made.
    pub ledger: Option<Arc<AdmissionQueue>>,
    /// Everything that may wait.
    pub members: Vec<Arc<L::Member>>,
    /// The facts of this line.
    pub facts: L::Facts,
    /// The policy ConfigMap.
    pub document: Document,
    /// What became of holders that are not among the members, by UID.
    pub missing: BTreeMap<String, Trace>,
    /// Unfinished work, if it was listed: without it nobody is admitted.
    pub work: Option<Work>,
}

impl<L: Line<Facts: Clone>> Clone for Observed<L> {
    fn clone(&self) -> Self {
        Self {
            ledger: self.ledger.clone(),
            members: self.members.clone(),
            facts: self.facts.clone(),
            document: self.document.clone(),
            missing: self.missing.clone(),
            work: self.work.clone(),
        }
    }
}

/// What consistent reads found of a holder that is gone from the members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trace {
    /// It is there after all: the view is behind.
    Alive,
    /// It is gone; this is left of it, and what runs goes with this.
    Left {
        /// Which object.
        target: Target,
        /// Its UID.
        uid: String,
    },
    /// It is gone, and something that runs for it is not.
    Runs,
    /// Nothing of it is left.
    Nothing,
}

impl<L: Line> Observation for Observed<L> {
    fn subject(&self) -> Option<Subject> {
        let queue = self.ledger.as_ref()?;
        Some(Subject {
            target: Target::new::<AdmissionQueue>(None, &queue.name_any()),
            uid: queue.uid().unwrap_or_default(),
            resource_version: queue.resource_version().unwrap_or_default(),
            status: serde_json::to_value(&queue.status).expect("a status serialises"),
        })
    }
}

impl<L: Line> Queue<L> {
    /// Reads the facts.
    pub(crate) async fn look(&self) -> Result<Observed<L>, ApiError> {
        let ledger = self.ledgers.get(&Self::key());
        let members = self.line.members();
        let mut observed = Observed {
            ledger,
            facts: self.line.facts(&members),
            members,
            document: self.source.as_seen(&self.policies, &self.reader).await,
            missing: BTreeMap::new(),
            work: None,
        };
        if decide::changes_policy(&observed) {
            observed.document = self.source.now(&self.reader).await;
        }
        for entry in decide::missing_holders(&observed) {
            let trace = self.line.trace(&entry, &self.reader).await?;
            observed.missing.insert(entry.uid, trace);
        }
        self.line.complete(&mut observed, &self.reader).await?;
        if decide::needs_work(&observed, self.clock.now()) {
            observed.document = self.source.now(&self.reader).await;
            observed.work = Some(self.line.work(&self.reader).await?);
        }
        Ok(observed)
    }
}
