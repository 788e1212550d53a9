//! What a download costs and how it goes on, counted where the bytes leave.

use std::fs;
use std::time::Duration;

use disk_importer::credentials::Keys;
use disk_importer::sha256::Sum;
use image_server::fixtures;
use image_server::{Behaviour, Content, Fault, On};
use otctl_types::import::{ImportOutcome, ImportReason};
use tokio_util::sync::CancellationToken;

use crate::lab::{
    Lab, MIB, PATH, assert_complete, assert_failed, run_import, run_probe, run_until, sha256_of,
};

fn image(size: u64) -> Content {
    Content::generated(size, 4711)
}

fn disk_hash(content: &Content, size: u64) -> String {
    content.disk_hash(size).unwrap().hex()
}

#[tokio::test]
async fn one_request_brings_an_image_that_nothing_disturbs() {
    let content = image(3 * MIB);
    let lab = Lab::serving(content.clone()).await;
    let mut target = lab.target(3 * MIB);
    let sum = format!("sha256:{}", disk_hash(&content, 3 * MIB));
    target.checksum = Some(sum.parse().unwrap());
    let report = run_import(&lab.source(), target).await;
    assert_complete(&report, &disk_hash(&content, 3 * MIB));
    assert_eq!(report.checksum, Some(sum));
    assert!(report.download_started);
    assert_eq!((report.bytes, lab.counts().bytes), (3 * MIB, 3 * MIB));
    assert_eq!(lab.counts().requests, 1);
}

#[tokio::test]
async fn a_second_run_finds_the_result_and_asks_nobody() {
    let content = image(MIB);
    let lab = Lab::serving(content.clone()).await;
    let first = lab.import(2 * MIB).await;
    let second = lab.import(2 * MIB).await;
    assert_complete(&second, &disk_hash(&content, 2 * MIB));
    assert_eq!((second.bytes, second.download_started), (0, false));
    assert_eq!((second.checksum, second.source), (first.checksum, first.source));
    assert_eq!(lab.counts().requests, 1);
}

#[tokio::test]
async fn a_result_whose_disk_is_gone_or_that_is_another_is_made_again() {
    let content = image(MIB);
    let lab = Lab::serving(content.clone()).await;
    lab.import(2 * MIB).await;
    fs::remove_file(lab.disk()).unwrap();
    assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
    assert_complete(&lab.import(3 * MIB).await, &disk_hash(&content, 3 * MIB));
    assert_eq!(lab.counts().downloads, 3);
}

#[tokio::test]
async fn cuts_cost_at_most_a_mebibyte_each() {
    let content = image(8 * MIB);
    for cut in [Fault::cut(2 * MIB), Fault::abort(2 * MIB)] {
        let lab = Lab::misbehaving(content.clone(), Behaviour::new().times(2, cut)).await;
        let report = lab.import(8 * MIB).await;
        assert_complete(&report, &disk_hash(&content, 8 * MIB));
        let counts = lab.counts();
        assert!(counts.bytes <= 8 * MIB + 2 * MIB, "{} bytes", counts.bytes);
        assert_eq!((counts.requests, counts.downloads), (3, 1));
    }
}

#[tokio::test]
async fn reconnects_end_after_the_twentieth_and_the_next_run_continues() {
    let content = image(4 * MIB);
    let cut = Fault::cut(64 * 1024 + 1);
    let lab = Lab::misbehaving(content.clone(), Behaviour::new().times(21, cut)).await;
    let report = lab.import(4 * MIB).await;
    assert_failed(&report, ImportReason::ConnectionLost);
    assert_eq!((lab.counts().requests, lab.kept()), (21, 21 * (64 * 1024 + 1)));
    assert_complete(&lab.import(4 * MIB).await, &disk_hash(&content, 4 * MIB));
    let counts = lab.counts();
    assert_eq!((counts.requests, counts.downloads, counts.bytes), (22, 1, 4 * MIB));
}

#[tokio::test]
async fn a_connection_without_a_byte_ends_the_run() {
    let behaviour = Behaviour::new().always(Fault::cut(0));
    let lab = Lab::misbehaving(image(MIB), behaviour).await;
    assert_failed(&lab.import(MIB).await, ImportReason::ConnectionLost);
    assert_eq!(lab.counts().requests, 1);
}

#[tokio::test]
async fn an_error_while_reconnecting_keeps_what_is_here() {
    let content = image(2 * MIB);
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(Fault::status(502));
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    let report = lab.import(2 * MIB).await;
    assert_failed(&report, ImportReason::ServerError);
    assert!(report.download_started);
    assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
    assert_eq!((lab.counts().bytes, lab.counts().downloads), (2 * MIB, 1));
}

#[tokio::test]
async fn a_replaced_source_ends_the_run_and_the_next_begins_anew() {
    let content = image(2 * MIB);
    for lasting in [Fault::rate_limit(1 << 30), Fault::IgnoreIfRange] {
        let behaviour =
            Behaviour::new().always(lasting).then(Fault::cut(MIB)).then(Fault::ChangeEtag);
        let lab = Lab::misbehaving(content.clone(), behaviour).await;
        assert_failed(&lab.import(2 * MIB).await, ImportReason::SourceChanged);
        assert_eq!(lab.kept(), 0);
        assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
        assert!(lab.counts().bytes <= 5 * MIB);
    }
}

#[tokio::test]
async fn another_length_under_the_same_tag_is_a_lie_and_no_change() {
    let lab = Lab::serving(image(2 * MIB)).await;
    let probed = run_probe(&lab.source()).await.source.unwrap();
    assert!(probed.etag.is_some());
    let lie = || Fault::WrongLength { announced: 3 * MIB };
    lab.server.behave(PATH, Behaviour::new().always(lie())).unwrap();
    let mut target = lab.target(4 * MIB);
    (target.expected.etag, target.expected.size) = (probed.etag, probed.size);
    let report = run_import(&lab.source(), target).await;
    assert_failed(&report, ImportReason::LengthMismatch);
    assert!(report.message.contains(&(2 * MIB).to_string()), "{}", report.message);
    lab.server.behave(PATH, Behaviour::new().then(Fault::cut(MIB)).then(lie())).unwrap();
    assert_failed(&lab.import(2 * MIB).await, ImportReason::LengthMismatch);
}

#[tokio::test]
async fn a_source_that_is_not_what_the_probe_saw_has_changed() {
    let content = image(2 * MIB);
    let lab = Lab::serving(content).await;
    let mut target = lab.target(2 * MIB);
    target.expected.etag = Some("\"another\"".to_owned());
    assert_failed(&run_import(&lab.source(), target).await, ImportReason::SourceChanged);
    let mut target = lab.target(2 * MIB);
    target.expected.size = Some(2 * MIB - 1);
    assert_failed(&run_import(&lab.source(), target).await, ImportReason::SourceChanged);
    assert!(lab.counts().bytes < 4 * MIB);
}

#[tokio::test]
async fn kept_bytes_of_another_version_than_the_probe_saw_are_dropped() {
    let content = image(2 * MIB);
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(Fault::status(500));
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    lab.import(2 * MIB).await;
    assert_eq!(lab.kept(), MIB);
    lab.server.change_etag(PATH).unwrap();
    let mut target = lab.target(2 * MIB);
    target.expected.etag = crate::lab::run_probe(&lab.source()).await.source.unwrap().etag;
    let report = run_import(&lab.source(), target).await;
    assert_complete(&report, &disk_hash(&content, 2 * MIB));
    assert_eq!(report.bytes, 2 * MIB);
}

#[tokio::test]
async fn without_ranges_a_cut_ends_the_run_and_the_next_takes_it_whole() {
    let content = image(2 * MIB);
    let behaviour = Behaviour::new().always(Fault::NoRanges).times(2, Fault::cut(MIB));
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    for requests in [1, 2] {
        assert_failed(&lab.import(2 * MIB).await, ImportReason::ConnectionLost);
        assert_eq!(lab.counts().requests, requests);
    }
    let report = lab.import(2 * MIB).await;
    assert_complete(&report, &disk_hash(&content, 2 * MIB));
    assert!(!report.source.unwrap().accepts_ranges);
}

#[tokio::test]
async fn ranges_that_go_away_within_a_run_do_not_start_a_second_download() {
    let content = image(8 * MIB);
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(Fault::NoRanges);
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    let report = lab.import(8 * MIB).await;
    assert_failed(&report, ImportReason::ConnectionLost);
    assert!(report.bytes <= 2 * MIB, "{report:?}");
    assert_eq!(lab.kept(), MIB);
    assert_complete(&lab.import(8 * MIB).await, &disk_hash(&content, 8 * MIB));
}

#[tokio::test]
async fn a_kept_part_that_is_not_continued_is_fetched_once_from_the_start() {
    let content = image(2 * MIB);
    let behaviour =
        Behaviour::new().then(Fault::cut(MIB)).then(Fault::status(500)).then(Fault::NoRanges);
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    assert_failed(&lab.import(2 * MIB).await, ImportReason::ServerError);
    let report = lab.import(2 * MIB).await;
    assert_complete(&report, &disk_hash(&content, 2 * MIB));
    assert_eq!(report.bytes, 2 * MIB);
}

#[tokio::test]
async fn weak_or_missing_entity_tags_still_continue() {
    let content = image(2 * MIB);
    for fault in [Fault::WeakEtag, Fault::NoEtag] {
        let behaviour = Behaviour::new().always(fault).then(Fault::cut(MIB));
        let lab = Lab::misbehaving(content.clone(), behaviour).await;
        assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
        assert_eq!(lab.counts().downloads, 1);
    }
}

#[tokio::test]
async fn a_range_that_begins_elsewhere_is_not_taken() {
    let shift = Fault::ShiftRange { by: 512 };
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(shift);
    let lab = Lab::misbehaving(image(2 * MIB), behaviour).await;
    assert_failed(&lab.import(2 * MIB).await, ImportReason::ServerError);
    assert_eq!(lab.kept(), MIB);
}

#[tokio::test]
async fn a_source_shorter_than_announced_is_a_length_mismatch_each_time() {
    let behaviour = Behaviour::new().always(Fault::WrongLength { announced: 2 * MIB });
    let lab = Lab::misbehaving(image(MIB), behaviour).await;
    for _ in 0..2 {
        let report = lab.import(2 * MIB).await;
        assert_failed(&report, ImportReason::LengthMismatch);
        assert!(report.message.contains(&MIB.to_string()), "{}", report.message);
    }
    assert_eq!((lab.counts().bytes, lab.counts().downloads), (MIB, 1));
}

#[tokio::test]
async fn silence_in_the_middle_is_no_progress_and_keeps_what_is_here() {
    let content = image(2 * MIB);
    let lab = Lab::misbehaving(content.clone(), Behaviour::new().then(Fault::stall(MIB))).await;
    let mut source = lab.source();
    source.timing.stall = Duration::from_millis(300);
    assert_failed(&run_import(&source, lab.target(2 * MIB)).await, ImportReason::NoProgress);
    assert_eq!(lab.kept(), MIB);
    assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
    assert_eq!(lab.counts().bytes, 2 * MIB);
}

#[tokio::test]
async fn told_to_stop_it_keeps_every_byte() {
    let content = image(2 * MIB);
    let lab = Lab::misbehaving(content.clone(), Behaviour::new().then(Fault::stall(MIB))).await;
    let cancel = CancellationToken::new();
    let stop = async {
        let scratch = lab.scratch().join("source");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while fs::metadata(&scratch).map_or(0, |file| file.len()) < MIB {
            assert!(tokio::time::Instant::now() < deadline, "the first half never came");
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let source = lab.source();
    let (report, ()) = tokio::join!(run_until(&source, lab.target(2 * MIB), &cancel), stop);
    assert_failed(&report, ImportReason::Interrupted);
    assert_eq!(lab.kept(), MIB);
    assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
    assert_eq!((lab.counts().bytes, lab.counts().downloads), (2 * MIB, 1));
}

#[tokio::test]
async fn a_wrong_checksum_is_terminal_and_leaves_nothing_to_resume() {
    let lab = Lab::serving(image(MIB)).await;
    let mut target = lab.target(MIB);
    target.checksum = Some(Sum::of(b"something else"));
    let report = run_import(&lab.source(), target).await;
    assert_failed(&report, ImportReason::ChecksumMismatch);
    assert!(!lab.disk().exists());
    assert_eq!((lab.kept(), lab.counts().downloads), (0, 1));
}

/// A record that claims more than the file has, or that cannot be read, is not believed.
#[tokio::test]
async fn what_is_kept_is_believed_no_further_than_the_disk() {
    let content = image(2 * MIB);
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(Fault::status(500));
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    lab.import(2 * MIB).await;
    let source = fs::OpenOptions::new().write(true).open(lab.scratch().join("source")).unwrap();
    source.set_len(MIB / 2).unwrap();
    assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
    assert_eq!(lab.counts().bytes, 2 * MIB + MIB / 2);
    fs::write(lab.scratch().join("checkpoint.json"), "{").unwrap();
    assert_complete(&lab.import(2 * MIB).await, &disk_hash(&content, 2 * MIB));
    assert_eq!(lab.counts().downloads, 2);
}

/// The kept part is hashed again, so bytes that changed under us do not pass for the source's.
#[tokio::test]
async fn a_kept_part_that_was_damaged_fails_the_checksum() {
    let content = image(2 * MIB);
    let behaviour = Behaviour::new().then(Fault::cut(MIB)).then(Fault::status(500));
    let lab = Lab::misbehaving(content.clone(), behaviour).await;
    lab.import(2 * MIB).await;
    let path = lab.scratch().join("source");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    let target = || {
        let mut target = lab.target(2 * MIB);
        let sum = format!("sha256:{}", disk_hash(&content, 2 * MIB));
        target.checksum = Some(sum.parse().unwrap());
        target
    };
    assert_failed(&run_import(&lab.source(), target()).await, ImportReason::ChecksumMismatch);
    assert_complete(&run_import(&lab.source(), target()).await, &disk_hash(&content, 2 * MIB));
}

#[tokio::test]
async fn one_run_at_a_time_uses_the_scratch_volume() {
    let lab = Lab::misbehaving(image(MIB), Behaviour::new().always(Fault::Mute)).await;
    let cancel = CancellationToken::new();
    let source = lab.source();
    let second = async {
        let mut requests = lab.server.watch(PATH);
        requests.wait_for(|counts| counts.requests == 1).await.unwrap();
        let mut target = lab.target(MIB);
        target.pod_uid = "pod-2".to_owned();
        let report = run_import(&source, target).await;
        cancel.cancel();
        report
    };
    let (first, second) = tokio::join!(run_until(&source, lab.target(MIB), &cancel), second);
    assert_failed(&first, ImportReason::Interrupted);
    assert_failed(&second, ImportReason::ScratchInUse);
    assert!(second.message.contains("pod-1"), "{}", second.message);
    assert_eq!(lab.counts().requests, 1);
}

#[tokio::test]
async fn the_first_look_is_made_again_on_what_arrives() {
    let lab = Lab::misbehaving(image(MIB), Behaviour::new().always(Fault::HtmlPage)).await;
    assert_failed(&lab.import(MIB).await, ImportReason::BadFormat);
    let content = Content::generated(64 * MIB, 1);
    let lab = Lab::serving(content).await;
    let report = lab.import(MIB).await;
    assert_failed(&report, ImportReason::TooSmall);
    assert!(report.bytes < MIB, "{} bytes", report.bytes);
    assert_eq!(report.source.unwrap().virtual_size, Some(64 * MIB));
    let lab = Lab::serving(Content::bytes(fixtures::BACKING_FILE.bytes)).await;
    assert_failed(&lab.import(MIB).await, ImportReason::UnsupportedFormat);
    assert!(!lab.disk().exists());
}

#[tokio::test]
async fn credentials_reach_a_source_that_asks_for_them() {
    let fault = Fault::RequireAuthorization { value: "Basic bGFiOnNlc2FtZQ==".to_owned() };
    let behaviour = Behaviour::new().always(fault.on(On::Any));
    let lab = Lab::misbehaving(image(MIB), behaviour).await;
    assert_failed(&lab.import(MIB).await, ImportReason::Forbidden);
    let mut source = lab.source();
    source.credentials.keys = Some(Keys::new("lab", "sesame"));
    let report = run_import(&source, lab.target(MIB)).await;
    assert_eq!(report.outcome, ImportOutcome::Complete, "{report:?}");
    assert_eq!(sha256_of(&lab.disk()), disk_hash(&image(MIB), MIB));
}
