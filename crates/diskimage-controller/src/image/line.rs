//! How many wait before an image. Told once, when it begins to wait; counted over all that wait, so the count is kept:
//! ten thousand images that are created together must not each look at all the others.

use std::sync::{Arc, Mutex, PoisonError};

use otctl_types::diskimage::{Phase, VMDiskImageStatus};
use policy::Ticket;

use crate::views::Views;

/// The tickets of those that waited when it was last looked at, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    tickets: Arc<Mutex<Vec<Ticket>>>,
}

impl Line {
    /// At most how many are before `own`: those that left since are counted, those that came with it too.
    pub(super) fn ahead(&self, own: Ticket, views: &Views) -> usize {
        let mut tickets = self.tickets.lock().unwrap_or_else(PoisonError::into_inner);
        // Tickets are given in order, so a line that has this one in it has all before it.
        if tickets.binary_search(&own).is_err() {
            *tickets = waiting(views);
        }
        tickets.partition_point(|ticket| *ticket < own)
    }
}

fn waiting(views: &Views) -> Vec<Ticket> {
    let waits = |status: &VMDiskImageStatus| matches!(status.phase, None | Some(Phase::Queued));
    let images = views.images.all();
    let waiting =
        images.iter().filter_map(|image| image.status.as_ref()).filter(|status| waits(status));
    let mut tickets: Vec<Ticket> =
        waiting.filter_map(|status| status.ticket.as_deref()?.parse().ok()).collect();
    tickets.sort_unstable();
    tickets
}

#[cfg(test)]
mod tests {
    use otctl_kit::store::Change;
    use otctl_types::VMDiskImage;

    use super::*;

    fn image(name: &str, ticket: &str, phase: Option<Phase>) -> VMDiskImage {
        let mut image = VMDiskImage::new(name, Default::default());
        image.metadata.resource_version = Some("1".to_owned());
        let status = image.status.get_or_insert_default();
        status.ticket = Some(ticket.to_owned());
        status.phase = phase;
        image
    }

    fn first(number: u64) -> Ticket {
        Ticket::first(number)
    }

    #[test]
    fn those_that_wait_with_lower_tickets_are_ahead() {
        let (line, views) = (Line::default(), Views::default());
        views.images.apply(Change::All(vec![
            image("a", "1", Some(Phase::Syncing)),
            image("b", "2", Some(Phase::Queued)),
            image("c", "3", None),
            image("d", "4", None),
        ]));
        assert_eq!((line.ahead(first(3), &views), line.ahead(first(4), &views)), (1, 2));
        views.images.apply(Change::Present(image("e", "5", None)));
        assert_eq!(line.ahead(first(5), &views), 3, "a ticket that is new is looked for");
    }
}
