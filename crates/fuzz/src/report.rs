//! What an import pod says of itself: the termination message that its node keeps, and the progress it is asked for. The
//! pod has read foreign bytes, so nothing it says is trusted: it may be wrong, and it must not be more than what is
//! remembered has room for.

use std::sync::Arc;

use diskimage_controller::image::close::{Closing, close};
use diskimage_controller::image::ending::{Ending, of_import, of_probe};
use diskimage_controller::image::observe::Work;
use diskimage_controller::record::Record;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use otctl_types::VMDiskImage;
use otctl_types::import::{FailureClass, ImportReport, Progress, TERMINATION_MESSAGE_LIMIT};
use policy::Policy;
use serde_json::{Value, from_value, json};

use crate::schema;

/// The same message as often as a budget lets it be said, and some more.
const TIMES: i64 = 12;

/// A report reads back as it is written, and however often the same is said, the status is one that the API server takes;
/// only a transient failure is tried again, and not beyond a day.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let message = &text[..text.floor_char_boundary(TERMINATION_MESSAGE_LIMIT)];
    if let Ok(report) = ImportReport::from_termination_message(message) {
        check_writing(&report);
    }
    let _ = serde_json::from_str::<Progress>(message);
    for is_failed in [false, true] {
        let work = ended(message, is_failed);
        remember(&of_import(&work));
        remember(&of_probe(&work));
    }
}

fn check_writing(report: &ImportReport) {
    let written = report.to_termination_message();
    assert!(written.len() <= TERMINATION_MESSAGE_LIMIT, "{} bytes", written.len());
    let read = ImportReport::from_termination_message(&written).expect("our own report is one");
    assert!(report.message.starts_with(&read.message), "{read:?}");
    let cut = ImportReport { message: read.message.clone(), ..report.clone() };
    if written.len() < TERMINATION_MESSAGE_LIMIT - 128 {
        assert_eq!(read, cut, "written and read");
    }
}

/// A Job that is over, and the pod in which it was carried out.
fn ended(message: &str, is_failed: bool) -> Work {
    let kind = if is_failed { "Failed" } else { "Complete" };
    let conditions = json!([{"type": kind, "status": "True", "reason": "DeadlineExceeded"}]);
    let terminated = json!({"exitCode": i32::from(is_failed), "message": message});
    let status = json!({"name": "importer", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": terminated}});
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Failed", "containerStatuses": [status]}});
    let job =
        json!({"metadata": {"name": "web-x-a1", "uid": "j"}, "status": {"conditions": conditions}});
    Work { job: Arc::new(typed::<Job>(job)), number: 1, pods: vec![Arc::new(typed::<Pod>(pod))] }
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> T {
    from_value(value).expect("it has the shape of its kind")
}

fn remember(ending: &Ending) {
    let policy = Policy::default();
    let mut now: Timestamp = "2026-01-01T12:00:00Z".parse().expect("a constant time parses");
    let mut image: VMDiskImage = typed(json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "VMDiskImage", "metadata": {"name": "web", "uid": "u"},
        "spec": {"url": "https://host/a.qcow2", "sourceType": "http"},
    }));
    for number in 1..=TIMES {
        let record = Record::of(&image);
        let closing = Closing { number, ticket: Some("1"), started_at: None, snapshot_class: None };
        let status = close(&record, closing, ending, &policy, now);
        let problems = schema::problems("VMDiskImage", &json!(status));
        assert!(problems.is_empty(), "{}", problems.join("; "));
        let class = ending.failure.as_ref().map(|failure| failure.class);
        let again = status.next_retry_at.as_ref().map(|at| at.0.duration_since(now));
        assert!(again.is_none_or(|wait| wait <= SignedDuration::from_hours(24)), "waits {again:?}");
        let may_follow = matches!(class, Some(FailureClass::Transient | FailureClass::Waiting));
        assert!(may_follow || again.is_none(), "{class:?} is tried again");
        now = status.next_retry_at.as_ref().map_or(now, |at| at.0);
        image.status = Some(status);
    }
    let charged = Record::of(&image).charged();
    assert_eq!(
        i64::from(charged),
        if ending.is_charged { TIMES } else { 0 },
        "downloads on the bill"
    );
}
