//! The first look: what it learns, what it refuses, and what it costs.

use std::time::Duration;

use disk_importer::settings::Limits;
use image_server::fixtures;
use image_server::{Behaviour, Content, CutKind, Fault, On};
use otctl_types::import::{ImageFormat, ImportOutcome, ImportReason, ImportReport};

use crate::lab::{Lab, MIB, PATH, assert_failed, run_probe};

const KIB_64: u64 = 64 * 1024;

async fn probe_of(content: Content, behaviour: Behaviour) -> (Lab, ImportReport) {
    let lab = Lab::misbehaving(content, behaviour).await;
    let report = run_probe(&lab.source()).await;
    (lab, report)
}

fn image() -> Content {
    Content::bytes(fixtures::PLAIN.bytes)
}

#[tokio::test]
async fn learns_everything_from_one_small_request() {
    let (lab, report) = probe_of(image(), Behaviour::new()).await;
    assert_eq!(report.outcome, ImportOutcome::Complete, "{report:?}");
    assert!(!report.download_started);
    let source = report.source.unwrap();
    assert_eq!(source.format, ImageFormat::Qcow2);
    assert_eq!(source.size, Some(fixtures::PLAIN.bytes.len() as u64));
    assert_eq!(source.virtual_size, Some(fixtures::PLAIN.virtual_size));
    assert!(source.accepts_ranges && source.etag.unwrap().starts_with('"'));
    let counts = lab.counts();
    assert_eq!((counts.requests, counts.probes, counts.downloads), (1, 1, 0));
    assert!(counts.bytes <= KIB_64);
}

#[tokio::test]
async fn a_raw_image_has_the_size_of_its_file() {
    let (_lab, report) = probe_of(Content::generated(3 * MIB + 512, 1), Behaviour::new()).await;
    let source = report.source.unwrap();
    assert_eq!((source.format, source.virtual_size), (ImageFormat::Raw, Some(3 * MIB + 512)));
}

#[tokio::test]
async fn an_image_shorter_than_a_look_is_seen_whole() {
    let (_lab, report) = probe_of(Content::generated(512, 1), Behaviour::new()).await;
    assert_eq!((report.outcome, report.bytes), (ImportOutcome::Complete, 512));
}

#[tokio::test]
async fn a_server_without_ranges_is_left_after_the_first_bytes() {
    let behaviour = Behaviour::new().always(Fault::NoRanges);
    let (_lab, report) = probe_of(Content::generated(64 * MIB, 1), behaviour).await;
    assert!(!report.source.unwrap().accepts_ranges);
    assert!(report.bytes <= KIB_64, "{} bytes", report.bytes);
}

#[tokio::test]
async fn a_disk_too_small_costs_at_most_64_kib() {
    for behaviour in [Behaviour::new(), Behaviour::new().always(Fault::NoRanges)] {
        let lab = Lab::misbehaving(Content::bytes(fixtures::LARGE.bytes), behaviour).await;
        let mut source = lab.source();
        source.limits = Limits { disk_size: Some(1024 * MIB), image_size: None };
        let report = run_probe(&source).await;
        assert_failed(&report, ImportReason::TooSmall);
        assert_eq!(report.source.unwrap().virtual_size, Some(5 * 1024 * MIB));
        assert!(report.bytes <= KIB_64);
        assert!(lab.counts().requests == 1);
    }
}

#[tokio::test]
async fn a_source_above_the_policys_limit_is_too_large() {
    let lab = Lab::serving(image()).await;
    let mut source = lab.source();
    source.limits = Limits { image_size: Some(1000), disk_size: None };
    assert_failed(&run_probe(&source).await, ImportReason::TooLarge);
}

#[tokio::test]
async fn every_status_is_a_reason_and_asked_for_once() {
    let table = [
        (404, ImportReason::SourceNotFound),
        (410, ImportReason::SourceNotFound),
        (401, ImportReason::Forbidden),
        (403, ImportReason::Forbidden),
        (400, ImportReason::Forbidden),
        (429, ImportReason::Throttled),
        (408, ImportReason::ServerError),
        (500, ImportReason::ServerError),
        (503, ImportReason::ServerError),
        (204, ImportReason::BadFormat),
        (416, ImportReason::BadFormat),
    ];
    for (code, reason) in table {
        let (lab, report) = probe_of(image(), Behaviour::new().always(Fault::status(code))).await;
        assert_failed(&report, reason);
        assert_eq!((lab.counts().requests, report.retry_after_seconds), (1, None), "{code}");
    }
}

#[tokio::test]
async fn a_source_that_asks_for_patience_is_throttled() {
    for code in [429, 503] {
        let fault = Fault::Status { code, retry_after: Some(7) };
        let (_lab, report) = probe_of(image(), Behaviour::new().always(fault)).await;
        assert_failed(&report, ImportReason::Throttled);
        assert_eq!(report.retry_after_seconds, Some(7));
    }
}

#[tokio::test]
async fn pages_lengthless_and_empty_sources_are_refused() {
    let (_lab, report) = probe_of(image(), Behaviour::new().always(Fault::HtmlPage)).await;
    assert_failed(&report, ImportReason::BadFormat);
    let behaviour = Behaviour::new().always(Fault::NoRanges).always(Fault::NoLength);
    let (_lab, report) = probe_of(image(), behaviour).await;
    assert_failed(&report, ImportReason::SizeUnknown);
    let (_lab, report) = probe_of(Content::bytes(*b""), Behaviour::new()).await;
    assert_failed(&report, ImportReason::BadFormat);
}

#[tokio::test]
async fn images_with_bytes_elsewhere_or_unread_features_are_refused() {
    let unread = [&fixtures::ZSTD, &fixtures::SUBCLUSTERS];
    for fixture in unread.into_iter().chain(fixtures::REFUSED) {
        let (_lab, report) = probe_of(Content::bytes(fixture.bytes), Behaviour::new()).await;
        assert_failed(&report, ImportReason::UnsupportedFormat);
        assert!(report.message.contains("qemu-img"), "no way out in {:?}", report.message);
    }
}

#[tokio::test]
async fn silence_is_no_progress_and_a_closed_door_a_lost_connection() {
    for fault in [Fault::Mute, Fault::stall(100)] {
        let behaviour = Behaviour::new().always(fault.on(On::Any));
        let lab = Lab::misbehaving(image(), behaviour).await;
        let mut source = lab.source();
        source.timing.stall = Duration::from_millis(200);
        assert_failed(&run_probe(&source).await, ImportReason::NoProgress);
    }
    let behaviour = Behaviour::new().always(Fault::HangUp { kind: CutKind::Abort });
    let (_lab, report) = probe_of(image(), behaviour).await;
    assert_failed(&report, ImportReason::ConnectionLost);
}

#[tokio::test]
async fn a_port_nobody_listens_on_is_a_lost_connection() {
    let lab = Lab::serving(image()).await;
    let source = lab.source();
    lab.server.shutdown().await;
    assert_failed(&run_probe(&source).await, ImportReason::ConnectionLost);
}

#[tokio::test]
async fn messages_do_not_repeat_the_query() {
    let lab = Lab::misbehaving(image(), Behaviour::new().always(Fault::status(403))).await;
    let mut source = lab.source();
    source.url.set_query(Some("X-Amz-Signature=open-sesame"));
    let report = run_probe(&source).await;
    let json = report.to_termination_message();
    assert!(json.contains(PATH) && !json.contains("open-sesame"), "{json}");
}
