use proptest::prelude::*;

use super::*;

fn waiting(id: &str, ticket: u64) -> Waiting {
    Waiting {
        id: id.to_owned(),
        ticket: Ticket::first(ticket),
        eligibility: Eligibility::Eligible,
        host: None,
    }
}

impl Waiting {
    fn from(self, host: &str) -> Self {
        Self { host: Some(host.to_owned()), ..self }
    }

    fn backing_off(self) -> Self {
        Self { eligibility: Eligibility::Backoff, ..self }
    }

    fn blocked(self, why: &str) -> Self {
        Self { eligibility: Eligibility::Blocked { why: why.to_owned() }, ..self }
    }

    fn retrying(self, highest_first: u64, at: &str) -> Self {
        Self { ticket: Ticket::retry(highest_first, at.parse().unwrap()), ..self }
    }
}

fn holding(id: &str, host: Option<&str>) -> Holding {
    Holding { id: id.to_owned(), host: host.map(str::to_owned) }
}

fn slots(concurrency: u32) -> Limits {
    Limits { concurrency, per_host: None }
}

/// `admitted; then each waiting one with its position and reason`.
fn check(waiting: &[Waiting], holding: &[Holding], limits: Limits, expected: &str) {
    let admission = admit(waiting, holding, &limits);
    let waits: Vec<String> =
        admission.waiting.iter().map(|p| format!("{} {} {}", p.position, p.id, p.reason)).collect();
    assert_eq!(format!("{}; {}", admission.admitted.join(" "), waits.join(", ")), expected);
    check_promises(waiting, holding, limits);
}

#[test]
fn nothing_waits() {
    check(&[], &[], slots(4), "; ");
}

#[test]
fn the_lowest_tickets_start_first() {
    let all = [waiting("c", 3), waiting("a", 1), waiting("b", 2)];
    check(&all, &[], slots(2), "a b; 1 c SlotsBusy");
}

#[test]
fn equal_tickets_go_by_id() {
    check(&[waiting("b", 1), waiting("a", 1)], &[], slots(1), "a; 1 b SlotsBusy");
}

#[test]
fn a_large_ticket_sorts_by_number() {
    check(&[waiting("a", 10), waiting("b", 9)], &[], slots(1), "b; 1 a SlotsBusy");
}

#[test]
fn zero_pauses() {
    let all = [waiting("a", 1), waiting("b", 2).backing_off()];
    check(&all, &[holding("x", None)], slots(0), "; 1 a Paused, 2 b Backoff");
}

#[test]
fn a_lowered_limit_admits_nobody_until_below_it() {
    let held = [holding("x", None), holding("y", None), holding("z", None)];
    check(&[waiting("a", 1)], &held, slots(2), "; 1 a SlotsBusy");
    check(&[waiting("a", 1)], &held[..2], slots(2), "; 1 a SlotsBusy");
    check(&[waiting("a", 1)], &held[..1], slots(2), "a; ");
}

#[test]
fn a_raised_limit_admits_at_once() {
    let all = [waiting("a", 1), waiting("b", 2), waiting("c", 3)];
    check(&all, &[holding("x", None)], slots(3), "a b; 1 c SlotsBusy");
}

#[test]
fn a_head_that_cannot_start_holds_nobody_up() {
    let all = [
        waiting("a", 1).blocked("StorageClassNotFound"),
        waiting("b", 2).backing_off(),
        waiting("c", 3).from("s3"),
        waiting("d", 4),
    ];
    let limits = Limits { concurrency: 2, per_host: Some(1) };
    let expected = "d; 1 a Blocked: StorageClassNotFound, 2 b Backoff, 3 c HostBusy";
    check(&all, &[holding("x", Some("s3"))], limits, expected);
}

#[test]
fn a_lane_fills_up_during_the_same_admission() {
    let all = [waiting("a", 1).from("s3"), waiting("b", 2).from("s3"), waiting("c", 3).from("cdn")];
    let limits = Limits { concurrency: 4, per_host: Some(1) };
    check(&all, &[], limits, "a c; 1 b HostBusy");
}

#[test]
fn a_lane_wider_than_all_slots_is_no_reason_to_wait_for_ever() {
    let all: Vec<Waiting> = (1..=6).map(|n| waiting(&n.to_string(), n).from("s3")).collect();
    let limits = Limits { concurrency: 4, per_host: Some(10) };
    check(&all, &[], limits, "1 2 3 4; 1 5 SlotsBusy, 2 6 SlotsBusy");
}

#[test]
fn a_retry_goes_behind_those_that_waited_and_before_newcomers() {
    let retry = waiting("retry", 0).retrying(2, "2026-05-01T12:00:00Z");
    let all = [waiting("new", 3), retry, waiting("old", 2)];
    check(&all, &[], slots(1), "old; 1 retry SlotsBusy, 2 new SlotsBusy");
}

#[test]
fn a_holder_is_not_admitted_again() {
    check(&[waiting("x", 1), waiting("a", 2)], &[holding("x", None)], slots(2), "a; ");
}

#[test]
fn an_id_twice_in_the_ledger_holds_two_slots() {
    let twice = [holding("x", None), holding("x", None)];
    check(&[waiting("a", 1)], &twice, slots(2), "; 1 a SlotsBusy");
}

/// What must be true of every admission, whatever the input.
fn check_promises(waiting: &[Waiting], holding: &[Holding], limits: Limits) {
    let answer = admit(waiting, holding, &limits);
    let by_id =
        |id: &String| waiting.iter().find(|w| w.id == *id).expect("answers are about who asked");
    let admitted = answer.admitted.iter().map(by_id).collect();
    let waits = answer.waiting.iter().map(|position| (by_id(&position.id), position)).collect();
    let case = Case { waiting, holding, limits, admitted, waits };
    case.check_room();
    case.check_admitted();
    case.check_everyone_is_answered();
    for (waiter, position) in &case.waits {
        case.check_reason(waiter, &position.reason);
    }
}

#[derive(Debug)]
struct Case<'a> {
    waiting: &'a [Waiting],
    holding: &'a [Holding],
    limits: Limits,
    admitted: Vec<&'a Waiting>,
    waits: Vec<(&'a Waiting, &'a Position)>,
}

impl Case<'_> {
    /// Never more than there is room for, per lane too.
    fn check_room(&self) {
        assert!(self.admitted.len() <= self.room(), "{self:#?}");
        let Some(per_host) = self.limits.per_host else { return };
        for admitted in self.admitted.iter().filter(|w| w.host.is_some()) {
            assert!(self.in_lane(admitted, &self.admitted) <= per_host as usize, "{self:#?}");
        }
    }

    /// Only who could start and holds no slot, in order.
    fn check_admitted(&self) {
        assert!(self.admitted.iter().all(|w| w.eligibility == Eligibility::Eligible), "{self:#?}");
        assert!(self.admitted.iter().all(|w| !self.holds(w)), "{self:#?}");
        assert!(self.admitted.is_sorted_by(|a, b| key(a) < key(b)), "{self:#?}");
    }

    /// Everyone is answered once, in order, without gaps.
    fn check_everyone_is_answered(&self) {
        let asked = self.waiting.iter().filter(|w| !self.holds(w)).count();
        assert_eq!(self.admitted.len() + self.waits.len(), asked, "{self:#?}");
        assert!(self.waits.iter().enumerate().all(|(n, (_, p))| p.position == n + 1), "{self:#?}");
        assert!(self.waits.is_sorted_by(|(a, _), (b, _)| key(a) < key(b)), "{self:#?}");
    }

    /// The reason is true, and nobody who could start is overtaken where there was room.
    fn check_reason(&self, waiter: &Waiting, reason: &WaitReason) {
        let (earlier, later): (Vec<&Waiting>, Vec<&Waiting>) =
            self.admitted.iter().copied().partition(|w| key(w) < key(waiter));
        let is_true = match (reason, &waiter.eligibility) {
            (WaitReason::Backoff, Eligibility::Backoff) => true,
            (WaitReason::Blocked { why }, Eligibility::Blocked { why: said }) => why == said,
            (WaitReason::Paused, Eligibility::Eligible) => self.limits.concurrency == 0,
            (WaitReason::SlotsBusy, Eligibility::Eligible) => {
                earlier.len() == self.room() && later.is_empty()
            }
            (WaitReason::HostBusy, Eligibility::Eligible) => {
                let limit = self.limits.per_host.expect("a lane is full only with a limit");
                self.in_lane(waiter, &earlier) >= limit as usize
                    && earlier.len() < self.room()
                    && later.iter().all(|w| w.host != waiter.host)
            }
            _ => false,
        };
        assert!(is_true, "{waiter:?} waits for {reason}: {self:#?}");
    }

    fn room(&self) -> usize {
        (self.limits.concurrency as usize).saturating_sub(self.holding.len())
    }

    fn in_lane(&self, waiter: &Waiting, admitted: &[&Waiting]) -> usize {
        let holding = self.holding.iter().filter(|h| h.host == waiter.host).count();
        holding + admitted.iter().filter(|w| w.host == waiter.host).count()
    }

    fn holds(&self, waiter: &Waiting) -> bool {
        self.holding.iter().any(|h| h.id == waiter.id)
    }
}

fn key(waiting: &Waiting) -> (Ticket, &str) {
    (waiting.ticket, &waiting.id)
}

/// Every queue of three, over every ledger of at most two, under every limit.
#[test]
fn promises_hold_for_every_small_queue() {
    let choices = small_choices();
    let (ledgers, limits) = (small_ledgers(), small_limits());
    for (a, b, c) in triples(choices.len()) {
        let queue = [("a", a), ("b", b), ("c", c)]
            .map(|(id, n)| Waiting { id: id.to_owned(), ..choices[n].clone() });
        for ledger in &ledgers {
            for limits in &limits {
                check_promises(&queue, ledger, *limits);
            }
        }
    }
}

const HOSTS: [Option<&str>; 3] = [None, Some("s3"), Some("cdn")];

fn small_choices() -> Vec<Waiting> {
    let anyone = [waiting("", 1), waiting("", 0).retrying(1, "2026-05-01T12:00:00Z")];
    let eligible_or_not = anyone.into_iter().flat_map(|w| [w.clone(), w.backing_off()]);
    let in_lane =
        |w: Waiting| HOSTS.map(|host| Waiting { host: host.map(str::to_owned), ..w.clone() });
    eligible_or_not.flat_map(in_lane).collect()
}

fn small_ledgers() -> Vec<Vec<Holding>> {
    let of_two = HOSTS.map(|host| vec![holding("x", host), holding("y", Some("s3"))]);
    let of_one = HOSTS.map(|host| vec![holding("x", host)]);
    [vec![]].into_iter().chain(of_one).chain(of_two).collect()
}

fn small_limits() -> Vec<Limits> {
    let per_host = [None, Some(1), Some(2)];
    (0..=3)
        .flat_map(|concurrency| per_host.map(|per_host| Limits { concurrency, per_host }))
        .collect()
}

fn triples(count: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..count).flat_map(move |a| (0..count).flat_map(move |b| (0..count).map(move |c| (a, b, c))))
}

fn any_host() -> impl Strategy<Value = Option<String>> {
    proptest::option::of("[a-c]")
}

fn any_eligibility() -> impl Strategy<Value = Eligibility> {
    prop_oneof![
        3 => Just(Eligibility::Eligible),
        1 => Just(Eligibility::Backoff),
        1 => "[A-Z][a-z]{0,5}".prop_map(|why| Eligibility::Blocked { why }),
    ]
}

fn any_queue() -> impl Strategy<Value = Vec<Waiting>> {
    let ticket =
        (0..8_u64, proptest::option::of(0..3_i64)).prop_map(|(number, second)| match second {
            None => Ticket::first(number),
            Some(second) => Ticket::retry(number, jiff::Timestamp::from_second(second).unwrap()),
        });
    proptest::collection::vec((ticket, any_eligibility(), any_host()), 0..40).prop_map(|all| {
        let waiter = |(n, (ticket, eligibility, host))| Waiting {
            id: format!("w{n}"),
            ticket,
            eligibility,
            host,
        };
        all.into_iter().enumerate().map(waiter).collect()
    })
}

fn any_ledger() -> impl Strategy<Value = Vec<Holding>> {
    // Some ids are those of waiters, some stand twice.
    let holder = ("[xw][0-5]", any_host()).prop_map(|(id, host)| Holding { id, host });
    proptest::collection::vec(holder, 0..8)
}

proptest! {
    #[test]
    fn promises_hold_for_any_queue(
        queue in any_queue(), ledger in any_ledger(),
        concurrency in prop_oneof![0..12_u32, any::<u32>()],
        per_host in proptest::option::of(prop_oneof![0..5_u32, any::<u32>()])
    ) {
        check_promises(&queue, &ledger, Limits { concurrency, per_host });
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(queue in any_queue(), ledger in any_ledger(), concurrency in 0..12_u32) {
        let limits = Limits { concurrency, per_host: Some(2) };
        let reversed: Vec<Waiting> = queue.iter().rev().cloned().collect();
        prop_assert_eq!(admit(&queue, &ledger, &limits), admit(&reversed, &ledger, &limits));
    }
}
