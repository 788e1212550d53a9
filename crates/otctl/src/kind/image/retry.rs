//! What a retry gives an image: pure.

use otctl_queue::effective_policy;
use otctl_types::condition::Reason;
use otctl_types::{AdmissionQueueStatus, VMDiskImage};

use super::{Retry, arguments};
use crate::kind::{Standing, Verdict};

/// What asking again for this image comes to.
pub(super) fn retry(
    image: &VMDiskImage,
    standing: &Standing,
    ledger: Option<&AdmissionQueueStatus>,
) -> Retry {
    if image.metadata.deletion_timestamp.is_some() {
        return Retry::Nothing("it is being deleted".to_owned());
    }
    if standing.verdict == Verdict::Reached {
        return Retry::Nothing("it is ready".to_owned());
    }
    Retry::Gives(format!("{}{}", budget(ledger), follows(image, standing)))
}

fn budget(ledger: Option<&AdmissionQueueStatus>) -> String {
    let limit = ledger.map(|status| effective_policy(Some(status)).retry_limit.saturating_add(1));
    match limit {
        Some(1) => "a new budget of 1 download".to_owned(),
        Some(limit) => format!("a new budget of {limit} downloads"),
        None => "a new budget of downloads".to_owned(),
    }
}

/// What else there is to know of it.
fn follows(image: &VMDiskImage, standing: &Standing) -> String {
    let is = |reason: Reason| standing.reason == reason.as_str();
    let runs = image.status.as_ref().and_then(|status| status.open_attempt.as_ref());
    if image.spec.suspend {
        return format!("; it stays suspended until `otctl resume {}`", arguments(image));
    }
    if is(Reason::InvalidSpec) {
        return format!("; but its spec must be edited first: {}", standing.message);
    }
    if is(Reason::SnapshotFailed) {
        return "; its data is kept, and its snapshot is taken anew".to_owned();
    }
    match runs {
        Some(open) => format!(", for what comes after attempt {}, which goes on", open.number),
        None => "; it queues for its next attempt".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::progress::Progress;

    fn image(suspend: bool, status: &Value) -> VMDiskImage {
        let object = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage",
            "metadata": {"name": "web", "namespace": "lab"},
            "spec": {"url": "http://images/a", "sourceType": "http", "suspend": suspend},
            "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn standing(verdict: Verdict, reason: &str) -> Standing {
        Standing {
            verdict,
            phase: String::new(),
            reason: reason.to_owned(),
            message: "edit url".to_owned(),
            progress: Progress::default(),
        }
    }

    #[track_caller]
    fn check(image: &VMDiskImage, standing: &Standing, expected: &str) {
        let Retry::Gives(what) = retry(image, standing, Some(&AdmissionQueueStatus::default()))
        else {
            panic!("it gives something");
        };
        assert_eq!(what, expected);
    }

    #[test]
    fn a_failed_image_queues_with_a_new_budget() {
        let failed = standing(Verdict::Failed, "SourceNotFound");
        check(
            &image(false, &json!({})),
            &failed,
            "a new budget of 3 downloads; it queues for its next attempt",
        );
        let unknown = retry(&image(false, &json!({})), &failed, None);
        let expected = "a new budget of downloads; it queues for its next attempt";
        assert_eq!(unknown, Retry::Gives(expected.to_owned()));
    }

    #[test]
    fn what_is_ready_gets_nothing() {
        let ready = standing(Verdict::Reached, "Succeeded");
        assert_eq!(
            retry(&image(false, &json!({})), &ready, None),
            Retry::Nothing("it is ready".to_owned())
        );
    }

    #[test]
    fn what_a_retry_does_not_help_is_told() {
        let (going, failed) =
            (standing(Verdict::Going, "Importing"), standing(Verdict::Failed, "InvalidSpec"));
        let budget = "a new budget of 3 downloads";
        let cases = [
            (
                true,
                json!({}),
                &going,
                "; it stays suspended until `otctl resume vmdiskimage/web -n lab`",
            ),
            (false, json!({}), &failed, "; but its spec must be edited first: edit url"),
            (
                false,
                json!({"openAttempt": {"number": 2, "jobUID": "a"}}),
                &going,
                ", for what comes after attempt 2, which goes on",
            ),
            (
                false,
                json!({}),
                &standing(Verdict::Failed, "SnapshotFailed"),
                "; its data is kept, and its snapshot is taken anew",
            ),
        ];
        for (suspend, status, standing, follows) in cases {
            check(&image(suspend, &status), standing, &format!("{budget}{follows}"));
        }
    }
}
