//! What downloads cost, counted where the bytes leave: by the server, on the sockets.

use image_server::fixtures::LARGE;
use image_server::{Behaviour, Content, Counts, Fault, On};
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;

use crate::stage::{Stage, ready_reason, status, until, well_behaved};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;
/// How often each large transfer is interrupted.
const INTERRUPTIONS: u64 = 5;
/// Bytes that each of the interrupted answers has.
const PART: u64 = 8 * MIB;
/// What an interruption may cost.
const TOLL: u64 = MIB;
/// What the first look may cost.
const PROBE: u64 = 64 << 10;
const RETRY_LIMIT: u64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn no_failure_costs_more_than_it_must() {
    let policy = [("concurrency", "4"), ("retryLimit", "6"), ("retryBackoffMax", "1s")];
    let mut stage = Stage::set(&policy).await;
    let content = Content::generated(SIZE, 1);
    let cut = Behaviour::new().times(usize::try_from(INTERRUPTIONS).unwrap(), Fault::cut(PART));
    let stalled =
        Behaviour::new().times(usize::try_from(INTERRUPTIONS).unwrap(), Fault::stall(PART));
    stage.create(&large(stage.image("cut", content.clone(), cut))).await;
    stage.create(&large(stage.image("killed", content.clone(), stalled))).await;
    for (name, content, behaviour) in failing() {
        stage.create(&stage.image(name, content, behaviour)).await;
    }
    stage.create(&stage.image_of("not-found", &stage.server.url("not-found"))).await;
    stage.start_controller();

    for number in 1..=INTERRUPTIONS {
        kill_import(&stage, "killed", number * PART).await;
        if number % 2 == 0 {
            stage.kill_controller().await;
            stage.start_controller();
        }
    }
    stage.await_all_ended().await;
    let hash = format!("sha256:{}", content.disk_hash(SIZE).unwrap().hex());
    for name in ["cut", "killed"] {
        expect_cheap(&stage, name, &hash).await;
    }
    expect_probe_only(&stage).await;
    expect_nothing_asked_again(&stage).await;
    expect_the_budget(&stage).await;
    stage.finish().await;
}

/// With a disk as large as what is served.
fn large(mut image: VMDiskImage) -> VMDiskImage {
    image.spec.disk_size = Some("64Mi".to_owned());
    image
}

/// A disk that is too large for its claim, with and without ranges, and servers that never give the data.
fn failing() -> [(&'static str, Content, Behaviour); 4] {
    let large = || Content::bytes(LARGE.bytes);
    let no_ranges = Behaviour::new().always(Fault::NoRanges);
    let no_data = Behaviour::new().always(Fault::status(503).on(On::Data));
    let nothing = Behaviour::new().always(Fault::status(503));
    [
        ("too-large", large(), well_behaved()),
        ("too-large-no-ranges", large(), no_ranges),
        ("fails", Content::generated(MIB, 2), no_data),
        ("fails-at-first", Content::generated(MIB, 2), nothing),
    ]
}

fn data_bytes(counts: Counts) -> u64 {
    counts.bytes - counts.probe_bytes
}

/// Kills the import of this image once the server has written so many bytes of data in all.
async fn kill_import(stage: &Stage, name: &str, bytes: u64) {
    until(&format!("{bytes} bytes of '{name}' are on their way"), async || {
        let counts = stage.server.counts(name);
        (data_bytes(counts) >= bytes && counts.open_data == 1).then_some(())
    })
    .await;
    stage.kill_import(name).await;
    until("its transfer is closed", async || {
        (stage.server.counts(name).open_data == 0).then_some(())
    })
    .await;
}

async fn expect_cheap(stage: &Stage, name: &str, hash: &str) {
    let image = stage.read(name).await;
    let (status, counts) = (status(&image), stage.server.counts(name));
    let bytes = data_bytes(counts);
    println!(
        "egress of '{name}': {bytes} bytes for {SIZE}, {} more than its size over {INTERRUPTIONS} interruptions; {} attempts, {} requests",
        bytes.saturating_sub(SIZE),
        status.attempts.len(),
        counts.requests
    );
    assert_eq!(status.phase, Some(Phase::Succeeded), "{status:#?}");
    assert_eq!(status.current.unwrap().disk_checksum.as_deref(), Some(hash));
    assert!((SIZE..=SIZE + INTERRUPTIONS * TOLL).contains(&bytes), "{bytes}");
    assert_eq!(counts.downloads, 1, "it began at byte 0 once");
    let attempts = if name == "killed" { INTERRUPTIONS + 1 } else { 1 };
    assert_eq!(status.attempts.len() as u64, attempts);
}

/// A disk that does not fit is known by the first bytes.
async fn expect_probe_only(stage: &Stage) {
    let counts = stage.server.counts("too-large");
    println!("egress of 'too-large': {} bytes in {} requests", counts.bytes, counts.requests);
    assert_eq!(ready_reason(&status(&stage.read("too-large").await)), "TooSmall");
    assert!(counts.bytes <= PROBE && counts.downloads == 0, "{counts:?}");

    let without_ranges = status(&stage.read("too-large-no-ranges").await);
    let read = without_ranges.attempts[0].bytes.unwrap();
    let written = stage.server.counts("too-large-no-ranges").bytes;
    println!("egress of 'too-large-no-ranges': {read} bytes read, {written} written");
    assert_eq!(ready_reason(&without_ranges), "TooSmall");
    assert!(u64::try_from(read).unwrap() <= PROBE, "{read}");
    assert_eq!(without_ranges.attempts.len(), 1);
}

async fn expect_nothing_asked_again(stage: &Stage) {
    let (status, counts) =
        (status(&stage.read("not-found").await), stage.server.counts("not-found"));
    println!("egress of 'not-found': {} requests, {} bytes", counts.requests, counts.bytes);
    assert_eq!(ready_reason(&status), "SourceNotFound");
    assert_eq!((counts.requests, status.attempts.len()), (1, 1));
}

/// A server that never gives the data is asked as often as the budget says, whoever restarts.
async fn expect_the_budget(stage: &Stage) {
    for name in ["fails", "fails-at-first"] {
        let (status, counts) = (status(&stage.read(name).await), stage.server.counts(name));
        println!(
            "egress of '{name}': {} downloads, {} requests over two restarts, retryLimit {RETRY_LIMIT}",
            counts.downloads, counts.requests
        );
        assert_eq!(ready_reason(&status), "RetriesExhausted", "{status:#?}");
        assert!(status.message.unwrap().contains("ServerError"));
    }
    assert_eq!(stage.server.counts("fails").downloads, RETRY_LIMIT + 1);
    let at_first = stage.server.counts("fails-at-first");
    assert_eq!((at_first.downloads, at_first.requests), (0, RETRY_LIMIT + 1));
}
