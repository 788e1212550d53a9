//! The protocol with one guard taken out, by changing what the product is shown or what it sends. The product itself has
//! no switch for it. Each must lead to a violation: else the model would not see what the guard is for.

use crate::config::{ALONE, Config, Kind, PLAIN, QUIET};
use crate::objects::{uid_of, uid_text};
use crate::product::{Of, Read, Told, View};
use crate::state::{Import, Key, Left, State, Uid, Write};
use crate::step::Machine;

/// A guard that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twist {
    /// The PUT of the ledger does not carry its resourceVersion.
    LedgerUnguarded,
    /// Jobs are created started.
    CreatedStarted,
    /// An entry stands for whichever attempt its image is at.
    EntryWithoutNumber,
    /// A slot is given back when its image cannot be seen.
    GoneByView,
    /// The recorded Job is whichever has its name.
    JobByName,
    /// A slot that may not be used is given back without using its number up.
    GivenBackUnused,
    /// The policy is what the watch shows.
    PolicyByView,
    /// The ledger is not read before a Job is started.
    StartUnchecked,
    /// A status is written without its resourceVersion.
    StatusUnguarded,
    /// Jobs and pods are not listed before somebody is admitted.
    WorkUnlisted,
    /// Jobs are deleted in the background, and pods are not waited for.
    PodsForgotten,
}

// What goes wrong, in the words of the invariants.
const WITHOUT_SLOT: &str = "a pod runs without its slot";
const NOT_OPEN: &str = "a pod starts for an attempt that is not open";
const OLD_POLICY: &str = "a write admits by a policy that was replaced";
const OF_THE_DEAD: &str = "the status of the dead lands on the living";
const ABOVE_THE_LIMIT: &str = "2 import pods run under a limit of 1";

/// Every guard, what goes wrong without it, and a configuration in which it is needed.
pub(crate) const MUTANTS: [(Twist, &str, Config); 11] = [
    (Twist::LedgerUnguarded, WITHOUT_SLOT, PLAIN),
    (Twist::CreatedStarted, NOT_OPEN, ALONE),
    (
        Twist::EntryWithoutNumber,
        WITHOUT_SLOT,
        Config { names: 1, present: 1, retry_limit: 1, pods_fail: true, ..PLAIN },
    ),
    (
        Twist::GoneByView,
        WITHOUT_SLOT,
        Config {
            names: 1,
            present: 0,
            behind: [&[], &[Kind::Images]],
            left: Left { creations: 1, ..QUIET },
            ..PLAIN
        },
    ),
    (Twist::JobByName, NOT_OPEN, Config { left: Left { hands: 1, lates: 1, ..QUIET }, ..ALONE }),
    (
        Twist::GivenBackUnused,
        WITHOUT_SLOT,
        Config { names: 1, present: 1, left: Left { suspensions: 1, ..QUIET }, ..PLAIN },
    ),
    (
        Twist::PolicyByView,
        OLD_POLICY,
        Config { limits: &[2, 1], behind: [&[Kind::Policy], &[]], ..PLAIN },
    ),
    (
        Twist::StartUnchecked,
        WITHOUT_SLOT,
        Config { behind: [&[Kind::Ledger], &[]], left: Left { losses: 1, ..QUIET }, ..PLAIN },
    ),
    (
        Twist::StatusUnguarded,
        OF_THE_DEAD,
        Config { left: Left { deletions: 1, creations: 1, lates: 1, ..QUIET }, ..ALONE },
    ),
    (
        Twist::WorkUnlisted,
        ABOVE_THE_LIMIT,
        Config {
            suspended: 1,
            behind: [&[], &[Kind::Images]],
            left: Left { losses: 1, ..QUIET },
            most_states: 2_000_000,
            ..PLAIN
        },
    ),
    (
        Twist::PodsForgotten,
        WITHOUT_SLOT,
        Config { left: Left { suspensions: 1, ..QUIET }, ..ALONE },
    ),
];

impl Twist {
    /// Entries stand for an image, not for an attempt.
    pub(crate) fn hides_numbers(self) -> bool {
        self == Self::EntryWithoutNumber
    }
}

impl Machine {
    /// What a pass is shown at its beginning.
    pub(crate) fn twisted_view(&self, key: Key, mut view: View) -> View {
        match (self.twist, key) {
            (Some(Twist::EntryWithoutNumber), _) => {
                view.ledger = self.renumbered(&view, view.ledger, key == Key::Queue);
            }
            (Some(Twist::JobByName), Key::Image(_)) => {
                let view_now = view.clone();
                view.imports.iter_mut().for_each(|import| self.rename(&view_now, import));
                view.imports.dedup_by_key(|import| import.id);
            }
            _ => {}
        }
        view
    }

    /// The answer to a read, where it is not what the API server has.
    pub(crate) fn twisted_answer(
        &self,
        state: &State,
        moment: u32,
        view: &View,
        read: Read,
    ) -> Option<Told> {
        let is_of_image = self.product.is_of_image(moment);
        match (self.twist?, read) {
            (Twist::PolicyByView, Read::Policy) => Some(Told::Policy(view.policy)),
            (Twist::GoneByView, Read::Image(name)) => {
                let seen = view.images[usize::from(name)];
                Some(Told::Image(seen.map(|image| Uid { name, life: image.life })))
            }
            (Twist::GoneByView, Read::Jobs(Of::One(_))) => Some(Told::Jobs(Vec::new())),
            (Twist::GoneByView, Read::Pods(Of::One(_))) => Some(Told::Pods(Vec::new())),
            (Twist::StartUnchecked, Read::Ledger) => Some(Told::Ledger(view.ledger)),
            (Twist::WorkUnlisted, Read::Jobs(Of::All)) if !is_of_image => {
                Some(Told::Jobs(Vec::new()))
            }
            (Twist::WorkUnlisted, Read::Pods(Of::All)) if !is_of_image => {
                Some(Told::Pods(Vec::new()))
            }
            (Twist::PodsForgotten, Read::Pods(Of::All)) if is_of_image => {
                Some(Told::Pods(Vec::new()))
            }
            (Twist::EntryWithoutNumber, Read::Ledger) => {
                let uid = view.own();
                let own = self.product.statuses().of_one(state.ledger.status, uid);
                Some(Told::Ledger(self.renumbered(view, own, false)))
            }
            (Twist::JobByName, Read::Jobs(Of::All)) if is_of_image => {
                let uid = view.own();
                let mine =
                    state.imports.iter().filter(|it| it.has_job() && Some(it.id.image) == uid);
                let mut mine: Vec<Import> = mine.copied().collect();
                mine.iter_mut().for_each(|import| self.rename(view, import));
                Some(Told::Jobs(mine))
            }
            _ => None,
        }
    }

    /// What a pass sends.
    pub(crate) fn twisted(&self, plan: Option<u32>, moment: u32) -> Option<u32> {
        let Some(twist) = self.twist else { return plan };
        let view = self.product.view(moment);
        let Some(plan) = plan else {
            let is_due = twist == Twist::GivenBackUnused && !self.product.is_of_image(moment);
            let after = is_due.then(|| self.without_unused(&view, view.ledger));
            let given_back = after.filter(|after| *after != view.ledger)?;
            return Some(self.product.plan_of(vec![Write::Swap(given_back)]));
        };
        let writes = self.product.plan(plan);
        let twisted = writes.iter().map(|write| match (*write, twist) {
            (Write::Create { image, number, .. }, Twist::CreatedStarted) => {
                Write::Create { image, number, is_started: true }
            }
            (Write::Delete { job, only, .. }, Twist::PodsForgotten) => {
                Write::Delete { job, only, is_foreground: false }
            }
            (Write::Swap(status), Twist::GivenBackUnused) => {
                Write::Swap(self.without_unused(&view, status))
            }
            (write, _) => write,
        });
        Some(self.product.plan_of(twisted.collect()))
    }

    /// The ledger without the entries of images that may not start.
    fn without_unused(&self, view: &View, status: u16) -> u16 {
        let mut ledger = (*self.product.statuses().ledger(status)).clone();
        let images = (0..).zip(&view.images).filter_map(|(name, image)| Some((name, (*image)?)));
        for (name, image) in images.filter(|(_, image)| image.is_suspended || image.is_deleting) {
            let facts = self.product.statuses().facts(image.status);
            let uid = uid_text(Uid { name, life: image.life });
            ledger.active.retain(|entry| {
                entry.uid != uid || facts.open.is_some() || entry.attempt <= i64::from(facts.last)
            });
        }
        ledger.active_count = i32::try_from(ledger.active.len()).ok();
        self.product.statuses().number_of_ledger(&ledger)
    }

    /// The ledger as it would read if entries had no numbers.
    fn renumbered(&self, view: &View, status: u16, is_for_queue: bool) -> u16 {
        let mut ledger = (*self.product.statuses().ledger(status)).clone();
        for entry in &mut ledger.active {
            let Some(uid) = uid_of(&entry.uid) else { continue };
            let Some(image) = view.images[usize::from(uid.name)].filter(|it| it.life == uid.life)
            else {
                continue;
            };
            let facts = self.product.statuses().facts(image.status);
            let is_next = facts.open.is_none() && !is_for_queue;
            entry.attempt = i64::from(facts.last.max(u8::from(is_for_queue)) + u8::from(is_next));
        }
        self.product.statuses().number_of_ledger(&ledger)
    }

    /// Takes a Job of the open attempt's number for the one on record.
    fn rename(&self, view: &View, import: &mut Import) {
        let open = view.images.iter().flatten().find_map(|image| {
            let open = self.product.statuses().facts(image.status).open?;
            ((open.image, open.number) == (import.id.image, import.id.number)).then_some(open)
        });
        import.id = open.unwrap_or(import.id);
    }
}
