//! What a ledger tells as gauges. Their names are the controller's, since slots of images and of workspaces are not added
//! up; what they mean is the same.

use jiff::Timestamp;
use otctl_kit::metrics::Family;
use otctl_types::condition;
use otctl_types::queue::AdmissionQueueStatus;

/// Whether the policy could be read; every controller with slots reads it.
pub const POLICY_VALID: Family = Family::gauge(
    "otctl_policy_valid",
    &[],
    "1 when every key of the policy ConfigMap could be read.",
);

/// How many wait, how many seconds the oldest ticket among them is old, how many slots are in use and how many there are,
/// and whether the policy is valid. `queued_at` knows when a ticket was given.
#[must_use]
pub fn ledger(
    status: &AdmissionQueueStatus,
    queued_at: impl FnOnce(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> [i64; 5] {
    let oldest = status.oldest_waiting_ticket.as_deref().and_then(queued_at);
    let is_valid = condition::is_true(&status.conditions, condition::POLICY_VALID);
    [
        status.waiting_count.unwrap_or(0).into(),
        oldest.map_or(0, |since| now.duration_since(since).as_secs().max(0)),
        status.active_count.unwrap_or(0).into(),
        status.limit.unwrap_or(0).into(),
        is_valid.into(),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is told at noon, when ticket 5 is 90 s old and ticket 6 is of tomorrow.
    fn check(status: &Value, expected: [i64; 5]) {
        let at = |text: &str| text.parse::<Timestamp>().ok();
        let queued_at = |ticket: &str| match ticket {
            "5" => at("2026-05-01T11:58:30Z"),
            "6" => at("2026-05-02T12:00:00Z"),
            _ => None,
        };
        let told = ledger(
            &serde_json::from_value(status.clone()).unwrap(),
            queued_at,
            at("2026-05-01T12:00:00Z").unwrap(),
        );
        assert_eq!(told, expected, "{status}");
    }

    #[test]
    fn a_ledger_is_told_as_it_stands() {
        check(&json!({}), [0; 5]);
        let counts =
            json!({"waitingCount": 2, "oldestWaitingTicket": "5", "activeCount": 3, "limit": 4});
        check(&counts, [2, 90, 3, 4, 0]);
        check(&json!({"oldestWaitingTicket": "6"}), [0; 5]);
        check(&json!({"oldestWaitingTicket": "7"}), [0; 5]);
    }

    #[test]
    fn a_policy_is_valid_when_its_condition_is_true() {
        let condition = |status: &str| {
            let condition = json!({
                "type": "PolicyValid", "status": status, "reason": "Valid", "message": "",
                "lastTransitionTime": "2026-05-01T11:00:00Z",
            });
            json!({"conditions": [condition]})
        };
        check(&condition("True"), [0, 0, 0, 0, 1]);
        check(&condition("False"), [0; 5]);
        check(&condition("Unknown"), [0; 5]);
    }
}
