//! What must hold in every state, and that from every state all comes to its end.

use otctl_types::diskimage::Phase;
use testbed::explore::Model;

use crate::objects::{job_text, uid_text};
use crate::product::Entry;
use crate::state::{Image, Import, PodState, State, Uid};
use crate::step::{Act, Machine};

impl Model for Machine {
    type State = State;
    type Act = Act;

    fn start(&self) -> State {
        self.beginning()
    }

    fn acts(&self, state: &State, each: &mut dyn FnMut(Act, State)) {
        self.all_acts(state, each);
    }

    fn broken(&self, state: &State) -> Option<String> {
        state
            .wrong
            .map(str::to_owned)
            .or_else(|| self.pods_have_slots(state))
            .or_else(|| self.first_tickets_are_in_order(state))
    }

    fn tell(&self, act: Act, before: &State, after: &State) -> String {
        let mut line = act.to_string();
        if before.ledger.status != after.ledger.status {
            line += &format!("; ledger {}", self.told_ledger(after));
        }
        for (name, image) in (0..).zip(&after.images) {
            let was = before.images[usize::from(name)];
            if let Some(image) = image
                && was.map(|was| was.status) != Some(image.status)
            {
                line += &format!("; {}", self.told_image(Uid { name, life: image.life }, image));
            }
        }
        line
    }
}

impl Machine {
    /// No more pods than the limit, each with its entry, one of an attempt at a time.
    fn pods_have_slots(&self, state: &State) -> Option<String> {
        let running: Vec<_> =
            state.imports.iter().filter(|import| import.pod == PodState::Running).collect();
        let limits = self.config.limits.iter().take(usize::from(state.policy) + 1);
        let most = limits.max().copied().unwrap_or(0) as usize;
        // Of a dead image whose entry was taken away nothing tells but a pod with a label, and anybody can make one.
        let is_lost = |import: &&&Import| {
            let of = (import.id.image, import.id.number);
            state.image(of.0).is_none() && state.robbed.contains(&of)
        };
        let counted = running.iter().filter(|import| !is_lost(import)).count();
        if counted > most {
            return Some(format!("{counted} import pods run under a limit of {most}"));
        }
        let slots = self.product.statuses().slots(state.ledger.status);
        let has_slot = |uid: Uid, number: u8| {
            slots.entries.iter().any(|entry| entry.uid == uid && entry.number == number)
                || state.robbed.contains(&(uid, number))
                || self.twist.is_some_and(|twist| twist.hides_numbers())
                    && slots.entries.iter().any(|entry| entry.uid == uid)
        };
        running.iter().enumerate().find_map(|(at, import)| {
            let id = import.id;
            let is_twin =
                |other: &&&Import| (other.id.image, other.id.number) == (id.image, id.number);
            if running[..at].iter().any(|other| is_twin(&other)) {
                return Some("two pods of one attempt run".to_owned());
            }
            (!has_slot(id.image, id.number)).then(|| "a pod runs without its slot".to_owned())
        })
    }

    /// First tickets go by creation: none is given to an image while an older one has none.
    fn first_tickets_are_in_order(&self, state: &State) -> Option<String> {
        let slots = self.product.statuses().slots(state.ledger.status);
        let living = (0..).zip(&state.images).filter_map(|(name, image)| Some((name, (*image)?)));
        let mut order: Vec<Holder> = living
            .filter(|(_, image)| !image.was_suspended && !image.is_deleting)
            .filter_map(|(name, image)| self.holder(name, &image, &slots.entries))
            .collect();
        order.sort_unstable_by_key(|holder| holder.born);
        order.windows(2).find_map(|pair| match (pair[0].ticket, pair[1].ticket) {
            (None, Some(_)) if !pair[0].waits_in_line => None,
            (None, Some(_)) => {
                Some("a later image has its ticket before an earlier one".to_owned())
            }
            (Some(elder), Some(younger)) if elder >= younger => {
                Some("first tickets do not follow the order of creation".to_owned())
            }
            _ => None,
        })
    }

    /// The image with its first ticket, in its status or in its entry; nothing once it has had another kind of ticket.
    fn holder(&self, name: u8, image: &Image, entries: &[Entry]) -> Option<Holder> {
        let facts = self.product.statuses().facts(image.status);
        if facts.has_ticket && facts.first_ticket.is_none() {
            return None;
        }
        let uid = Uid { name, life: image.life };
        let of_entry =
            entries.iter().filter(|entry| entry.uid == uid).find_map(|it| it.first_ticket);
        let ticket = facts.first_ticket.or(of_entry);
        let is_held = entries.iter().any(|entry| entry.uid == uid);
        let waits_in_line = !facts.has_ticket && facts.last == 0 && !is_held;
        Some(Holder { born: image.born, ticket, waits_in_line })
    }

    fn told_ledger(&self, state: &State) -> String {
        let slots = self.product.statuses().slots(state.ledger.status);
        let entry = |entry: &Entry| format!("{}#{}", uid_text(entry.uid), entry.number);
        let entries: Vec<String> = slots.entries.iter().map(entry).collect();
        format!(
            "[{}] limit {}",
            entries.join(", "),
            slots.limit.map_or("?".to_owned(), |it| it.to_string())
        )
    }

    fn told_image(&self, uid: Uid, image: &Image) -> String {
        let status = self.product.statuses().image(image.status);
        let facts = self.product.statuses().facts(image.status);
        let phase = status.phase.map_or("new", |phase| phase_word(phase));
        let open = facts.open.map(|job| format!(", open {}", job_text(job)));
        let ticket = status.ticket.as_deref().unwrap_or("-");
        format!(
            "{} {phase}, ticket {ticket}, last {}{}",
            uid_text(uid),
            facts.last,
            open.unwrap_or_default()
        )
    }
}

struct Holder {
    born: u8,
    ticket: Option<u64>,
    waits_in_line: bool,
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Queued => "Queued",
        Phase::Syncing => "Syncing",
        Phase::Snapshotting => "Snapshotting",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
    }
}
