//! `CreatingWorks`: whether something is being made, and why not.

use otctl_types::condition::{self, Finding, Reason};

use super::{Sight, because};
use crate::kin;
use crate::needs::no_kubevirt;
use crate::parts;
use crate::workspace::verdict;

impl Sight<'_> {
    /// What is made in this pass counts as made.
    pub(super) fn creating_works(&self) -> Finding {
        let trouble = self.standing.trouble.as_ref().map(|trouble| trouble.lack.clone());
        if let Some(lack) = trouble.or_else(|| verdict::ground(self.observed)) {
            return because(false, lack);
        }
        let is_at_work = self.standing.verdict.keeps_turn() || !self.standing.making.is_empty();
        match (self.is_all_made(), is_at_work) {
            (true, _) => Finding::new(false, Reason::AllCreated, ""),
            (false, true) => Finding::new(true, Reason::Creating, "parts are being made"),
            (false, false) => self.held_up(),
        }
    }

    /// Why something is not made, and not being made either.
    fn held_up(&self) -> Finding {
        let admitted = self.admitted();
        if admitted.status == condition::Truth::False {
            return admitted;
        }
        let of_disk = self.lacks_of_disks().into_iter().next();
        let of_kubevirt = || (!self.observed.needs.has_kubevirt).then(no_kubevirt);
        match of_disk.or_else(of_kubevirt) {
            Some(lack) => because(false, lack),
            None => Finding::new(true, Reason::Creating, "parts are being made"),
        }
    }

    fn is_all_made(&self) -> bool {
        let Some(workspace) = &self.observed.workspace else { return false };
        let wanted = kin::of_children(workspace);
        let making = |kind: &str, name: &str| {
            self.standing.making.contains(&(kind.to_owned(), name.to_owned()))
        };
        let has_policy = self.observed.own_policy().is_some();
        let is_child_made = |entry: &str, name: &str| {
            let service = self.observed.service(entry).is_some() || making("Service", name);
            let deployment = !wanted.deployments.contains(name)
                || self.observed.deployment(entry).is_some()
                || making("Deployment", name);
            let machine = !wanted.machines.contains(name)
                || self.observed.machine(entry).is_some()
                || making("VirtualMachine", name);
            service && deployment && machine
        };
        let mut policies = wanted.networks.iter();
        policies.all(|name| has_policy || making("NetworkPolicy", name))
            && parts::names(workspace)
                .all(|entry| is_child_made(entry, &kin::child_name(workspace, entry)))
    }
}
