//! Tickets: the order in which waiting objects are admitted.
//!
//! First tickets count 1, 2, 3, … A retry takes a new ticket when its backoff ends: behind every
//! first ticket given until then, before every one given later, and among such retries by time.
//!
//! | text | meaning |
//! |---|---|
//! | `7` | the seventh first ticket |
//! | `7+2026-05-01T12:09:00Z` | a retry due at that time, behind 7 and before 8 |
//!
//! Who gives tickets, and when, is the queue's to say.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

/// A place in the order. Ties are broken by the object's UID.
///
/// Tickets are stored as text, and each has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket {
    // Field order is the order of tickets; `None` sorts before any time.
    number: u64,
    retry_at: Option<Timestamp>,
}

impl Ticket {
    /// The first ticket with this number.
    #[must_use]
    pub const fn first(number: u64) -> Self {
        Self { number, retry_at: None }
    }

    /// The ticket of a retry due at `at`, when `highest_first` was the highest first ticket given
    /// (0 for none). Kept to the millisecond.
    #[must_use]
    pub fn retry(highest_first: u64, at: Timestamp) -> Self {
        let at = Timestamp::from_millisecond(at.as_millisecond())
            .expect("dropping a part of a millisecond moves a time towards the epoch");
        Self { number: highest_first, retry_at: Some(at) }
    }

    /// The highest first ticket that these prove was given, or 0.
    ///
    /// A retry's time does not count; the number before it does, since it was given once. Without
    /// it the number would be given again when all who held higher first tickets are in retry, and
    /// a newcomer would overtake them.
    #[must_use]
    pub fn highest_first(seen: impl IntoIterator<Item = Self>) -> u64 {
        seen.into_iter().map(|ticket| ticket.number).max().unwrap_or(0)
    }

    /// The first ticket that follows all of these.
    #[must_use]
    pub fn next_first(seen: impl IntoIterator<Item = Self>) -> Self {
        Self::first(Self::highest_first(seen).saturating_add(1))
    }

    /// When the retry is due; `None` for a first ticket.
    #[must_use]
    pub const fn retry_at(self) -> Option<Timestamp> {
        self.retry_at
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.retry_at {
            None => write!(f, "{}", self.number),
            Some(at) => write!(f, "{}+{at}", self.number),
        }
    }
}

/// Why a text is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// The text is not what a ticket is written as.
    #[error(
        "{found:?} is not a ticket; accepted is a number such as 7, or 7+2026-05-01T12:09:00Z for a retry"
    )]
    ReadTicket {
        /// What was found.
        found: String,
    },
}

impl FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        read(text)
            // Zeros in front, other time zones and the like would be a second text of a ticket.
            .filter(|ticket| ticket.to_string() == text)
            .ok_or_else(|| TicketError::ReadTicket { found: text.to_owned() })
    }
}

fn read(text: &str) -> Option<Ticket> {
    match text.split_once('+') {
        None => text.parse().ok().map(Ticket::first),
        Some((number, at)) => Some(Ticket::retry(number.parse().ok()?, at.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_retry_is_behind_all_given_and_before_all_to_come() {
        let noon = at("2026-05-01T12:00:00Z");
        let later = at("2026-05-01T12:00:01Z");
        let order = [
            Ticket::retry(0, noon),
            Ticket::first(1),
            Ticket::first(7),
            Ticket::retry(7, noon),
            Ticket::retry(7, later),
            Ticket::first(8),
        ];
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
    }

    #[test]
    fn reads_as_people_write() {
        assert_eq!(Ticket::first(7).to_string(), "7");
        let retry = Ticket::retry(7, at("2026-05-01T12:09:00.123456789Z"));
        assert_eq!(retry.to_string(), "7+2026-05-01T12:09:00.123Z");
        assert_eq!(
            Ticket::retry(7, at("2026-05-01T12:09:00Z")).to_string(),
            "7+2026-05-01T12:09:00Z"
        );
    }

    #[test]
    fn has_one_text_only() {
        let texts = [
            "",
            "abc",
            "-1",
            "+7",
            "07",
            "7 ",
            " 7",
            "7.0",
            "18446744073709551616",
            "7+",
            "+2026-05-01T12:09:00Z",
            "7+2026-05-01",
            "7+2026-05-01T12:09:00",
            "7+2026-05-01T14:09:00+02:00",
            "7+2026-05-01t12:09:00z",
            "7+2026-05-01T12:09:00.000Z",
            "7+2026-05-01T12:09:00.1234Z",
            "7+2026-05-01T12:09:00Z[UTC]",
        ];
        for text in texts {
            assert!(text.parse::<Ticket>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_retry_does_not_raise_the_highest_but_keeps_it() {
        let noon = at("2026-05-01T12:00:00Z");
        assert_eq!(Ticket::highest_first([]), 0);
        assert_eq!(Ticket::next_first([]), Ticket::first(1));
        let seen = [Ticket::first(3), Ticket::retry(5, noon)];
        assert_eq!(Ticket::next_first(seen), Ticket::first(6));
        assert!(Ticket::next_first(seen) > Ticket::retry(5, noon));
    }

    fn any_time() -> impl Strategy<Value = Timestamp> {
        let range = Timestamp::MIN.as_millisecond()..=Timestamp::MAX.as_millisecond();
        (range, 0..999_999_i64).prop_map(|(millis, nanos)| {
            let time = Timestamp::from_millisecond(millis).unwrap();
            time.checked_add(std::time::Duration::from_nanos(nanos.unsigned_abs())).unwrap_or(time)
        })
    }

    fn any_ticket() -> impl Strategy<Value = Ticket> {
        prop_oneof![
            any::<u64>().prop_map(Ticket::first),
            (any::<u64>(), any_time()).prop_map(|(number, time)| Ticket::retry(number, time)),
            (0..3_u64, any_time()).prop_map(|(number, time)| Ticket::retry(number, time)),
        ]
    }

    proptest! {
        #[test]
        fn text_round_trips(ticket in any_ticket()) {
            prop_assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }

        #[test]
        fn any_text_is_read_back_the_same_or_refused(text in "\\PC*", near in "[0-9]{0,3}[+]?[0-9TZ:.-]{0,24}") {
            for text in [text, near] {
                if let Ok(ticket) = text.parse::<Ticket>() {
                    prop_assert_eq!(ticket.to_string(), text);
                }
            }
        }

        #[test]
        fn a_new_first_ticket_is_behind_all_seen(seen in proptest::collection::vec((0..1_000_u64, proptest::option::of(any_time())), 0..20)) {
            let seen: Vec<Ticket> = seen
                .into_iter()
                .map(|(number, time)| time.map_or(Ticket::first(number), |time| Ticket::retry(number, time)))
                .collect();
            let next = Ticket::next_first(seen.iter().copied());
            prop_assert!(seen.iter().all(|ticket| *ticket < next));
        }
    }
}
