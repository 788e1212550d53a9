use std::io::Write as _;

use super::*;

const PATCH: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1","stage":"ResponseComplete","requestURI":"/apis/pelotech.ot/v1alpha1/namespaces/lab/vmdiskimages/a/status?fieldManager=image","verb":"patch","user":{"username":"system:serviceaccount:lab:c","groups":["system:authenticated"]},"sourceIPs":["127.0.0.1"],"userAgent":"otctl","objectRef":{"resource":"vmdiskimages","namespace":"lab","name":"a","apiGroup":"pelotech.ot","apiVersion":"v1alpha1","subresource":"status"},"responseStatus":{"metadata":{},"code":200},"requestObject":{"status":{"phase":"Queued"}},"responseObject":{"kind":"VMDiskImage"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}"#;
const READYZ: &str = r#"{"kind":"Event","stage":"ResponseComplete","requestURI":"/readyz","verb":"get","user":{"username":"admin"},"requestReceivedTimestamp":"2026-01-02T03:04:05.000006Z","stageTimestamp":"2026-01-02T03:04:05.100006Z"}"#;

fn log(text: &str) -> (tempfile::TempDir, AuditLog) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    std::fs::write(&path, text).unwrap();
    (directory, AuditLog::at(path))
}

#[test]
fn a_write_keeps_who_what_and_the_objects() {
    let (_directory, log) = log(&format!("{PATCH}\n"));
    let [entry] = log.entries().unwrap().try_into().unwrap();
    assert_eq!(entry.user, service_account_user("lab", "c"));
    assert_eq!(entry.target(), "vmdiskimages/status");
    assert_eq!((entry.namespace.as_str(), entry.name.as_str(), entry.code), ("lab", "a", 200));
    assert_eq!(entry.request_object.as_ref().unwrap()["status"]["phase"], "Queued");
    assert_eq!((entry.answered_at - entry.received_at).get_milliseconds(), 100);
    assert!(entry.is_write() && entry.is_success() && !entry.is_forbidden());
}

#[test]
fn a_dry_run_is_not_a_write() {
    let (_directory, log) = log(&format!("{}\n", PATCH.replace("?field", "?dryRun=All&field")));
    assert!(!log.entries().unwrap()[0].is_write());
}

#[test]
fn what_is_no_resource_has_no_target() {
    let (_directory, log) = log(&format!("{READYZ}\n"));
    assert_eq!(log.entries().unwrap()[0].target(), "");
}

#[test]
fn a_half_written_line_is_not_read_yet() {
    let (_directory, log) = log(&format!("{READYZ}\n{}", &PATCH[..200]));
    let mark = log.mark().unwrap();
    assert_eq!(log.entries().unwrap().len(), 1);
    let mut file = std::fs::OpenOptions::new().append(true).open(&log.path).unwrap();
    writeln!(file, "{}", &PATCH[200..]).unwrap();
    assert_eq!(log.entries().unwrap().len(), 2);
    let [entry] = log.since(mark).unwrap().try_into().unwrap();
    assert_eq!(entry.verb, "patch", "a mark is at the beginning of a line");
    assert_eq!(log.since(log.mark().unwrap()).unwrap().len(), 0);
}

#[test]
fn a_line_that_is_no_event_is_an_error() {
    let (_directory, log) = log("{}\n");
    assert!(matches!(log.entries(), Err(AuditError::ParseLine { .. })));
}

#[tokio::test]
async fn waiting_ends_at_the_deadline() {
    let (_directory, log) = log(&format!("{READYZ}\n"));
    let waited = log.wait_for(log.mark().unwrap(), Duration::ZERO, |_| true).await;
    assert!(matches!(waited, Err(AuditError::AwaitEntry { .. })));
}
