//! `CreatingWorks`: whether something is being made, and why not.

use otctl_types::condition::{self, Finding, Reason};

use super::{Sight, because};
use crate::family::ChildKind;
use crate::needs::no_kubevirt;
use crate::workspace::verdict;

impl Sight<'_> {
    /// What is made in this pass counts as made.
    pub(super) fn creating_works(&self) -> Finding {
        let trouble = self.standing.trouble.as_ref().map(|trouble| trouble.lack.clone());
        if let Some(lack) = trouble.or_else(|| verdict::ground(self.observed)) {
            return because(false, lack);
        }
        let is_at_work = self.standing.verdict.keeps_turn() || self.standing.makes_anything;
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
        let of_name = self.observed.needs.leftover(&self.observed.namespace);
        let of_disk = || self.observed.lacks_of_disks().into_iter().next();
        let of_kubevirt = || (!self.observed.needs.has_kubevirt).then(no_kubevirt);
        match of_name.or_else(of_disk).or_else(of_kubevirt) {
            Some(lack) => because(false, lack),
            None => Finding::new(true, Reason::Creating, "parts are being made"),
        }
    }

    /// The claim of a machine is made with it.
    fn is_all_made(&self) -> bool {
        let family = self.observed.needs.family.iter();
        let mut family = family.filter(|child| child.kind != ChildKind::Claim);
        self.observed.workspace.is_some()
            && family.all(|it| self.observed.has(it) || self.standing.touched.contains(it))
    }
}
