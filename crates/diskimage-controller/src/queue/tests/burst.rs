//! Ten thousand images in one second, so that creation times tell nothing: the order is that of their creation all the
//! same, whole, and the same over crashes between two tickets.

use std::collections::BTreeMap;

use policy::Ticket;

use super::*;

const COUNT: usize = 10_000;
/// After every so many passes the process dies when so many of the pass's tickets are written.
const CRASH: (usize, usize) = (7, 37);

/// Created in the order of their versions; neither names nor UIDs nor the order in which they are seen follow it.
fn burst() -> Observed {
    let scattered = |number: usize| number * 7919 % COUNT;
    let mut observed = set(0);
    for number in 0..COUNT {
        let name = format!("image-{:05}", scattered(number));
        observed = observed.image_with(&name, None, |image| {
            image.metadata.creation_timestamp = Some(Time(now()));
            image.metadata.resource_version = Some((100 + number).to_string());
        });
    }
    observed.members.sort_by_key(|image| scattered(image.uid[6..].parse().unwrap()));
    observed
}

/// Names in the order of creation.
fn in_order(observed: &Observed) -> Vec<String> {
    let mut order: Vec<_> =
        observed.members.iter().map(|it| (it.order.1, it.uid.clone())).collect();
    order.sort();
    order.into_iter().map(|(_, name)| name).collect()
}

/// Writes so many of the tickets that a pass gives; a write gives an image a new version.
fn give(
    observed: &mut Observed,
    plan: &Plan<AdmissionQueueStatus>,
    most: usize,
    version: &mut usize,
) {
    let given: BTreeMap<String, String> = tickets(plan)
        .into_iter()
        .take(most)
        .map(|text| text.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap())
        .collect();
    for known in &mut observed.members {
        let Some(ticket) = given.get(&known.uid) else { continue };
        assert_eq!(known.ticket, None, "a ticket does not change");
        let mut image = VMDiskImage::clone(known);
        *version += 1;
        image.metadata.resource_version = Some(version.to_string());
        image.status.get_or_insert_default().ticket = Some(ticket.clone());
        *known = Arc::new(Known::of(Arc::new(image)));
    }
}

fn waiting(observed: &Observed) -> usize {
    observed.members.iter().filter(|image| image.ticket.is_none()).count()
}

#[test]
fn ten_thousand_of_one_second_are_numbered_in_the_order_of_their_creation_over_crashes() {
    let mut observed = burst();
    let (order, mut version) = (in_order(&observed), 100 + COUNT);
    let mut passes = 0;
    while waiting(&observed) > 0 {
        passes += 1;
        assert!(passes < COUNT / 50, "every pass gives tickets");
        let plan = decide(&observed, now());
        let most = if passes % CRASH.0 == 0 { CRASH.1 } else { usize::MAX };
        give(&mut observed, &plan, most, &mut version);
        observed.members.rotate_left(COUNT / 3);
    }
    let tickets: BTreeMap<&str, Option<Ticket>> =
        observed.members.iter().map(|image| (image.uid.as_str(), image.ticket)).collect();
    let numbers = (1..).map(|number| Some(Ticket::first(number)));
    let differs =
        order.iter().zip(numbers).find(|(name, ticket)| tickets[name.as_str()] != *ticket);
    assert_eq!(differs, None, "the k-th has ticket k");

    let open = Observed { members: observed.members, ..set(3) };
    let first = |number: usize| format!("{}#1@{}", order[number], number + 1);
    assert_eq!(slots(&decide(&open, now())), [first(0), first(1), first(2)]);
}
