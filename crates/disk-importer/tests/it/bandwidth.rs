//! The share of the bandwidth: on virtual time to the byte, and on the running program.

use std::time::Duration;

use disk_importer::bandwidth::{Bandwidth, Paced};
use disk_importer::pacer::slice;
use image_server::Content;
use otctl_types::import::{Fence, Share, Standing};
use policy::bandwidth::gate::{Stale, VALIDITY};
use tokio::io::{AsyncReadExt as _, Repeat};
use tokio::time::{Instant, timeout};

use crate::lab::{Lab, MIB, assert_complete};
use crate::program::{GUARD, Program, free_address, post_progress};

/// One import's way of reading: as much as it gets, and when how much came.
struct Reader {
    stream: Paced<Repeat>,
    begun: Instant,
    taken: Vec<(Duration, u64)>,
}

impl Reader {
    fn new(bandwidth: &Bandwidth) -> Self {
        let stream = bandwidth.pace(tokio::io::repeat(7));
        Self { stream, begun: Instant::now(), taken: Vec::new() }
    }

    async fn read_for(mut self, time: Duration) -> Vec<(Duration, u64)> {
        let end = self.begun + time;
        let mut buffer = vec![0; 256 * 1024];
        while let Ok(count) = tokio::time::timeout_at(end, self.stream.read(&mut buffer)).await {
            self.taken.push((self.begun.elapsed(), count.unwrap() as u64));
        }
        self.taken
    }
}

/// The most that was taken in any stretch of `window`, of all readers together.
fn fullest(taken: &[(Duration, u64)], window: Duration) -> u64 {
    let mut taken = taken.to_vec();
    taken.sort_unstable();
    let mut first = 0;
    let (mut sum, mut most) = (0, 0);
    for (at, bytes) in &taken {
        sum += bytes;
        while *at - taken[first].0 > window {
            sum -= taken[first].1;
            first += 1;
        }
        most = most.max(sum);
    }
    most
}

/// Two imports under a limit of 8 MiB/s, which becomes 2 MiB/s while they run.
#[tokio::test(start_paused = true)]
async fn two_imports_never_take_more_than_the_limit_and_a_slice_each() {
    let limit = 8 * MIB;
    let shares = [Bandwidth::new(Some(limit / 2)), Bandwidth::new(Some(limit / 2))];
    let readers =
        shares.each_ref().map(|share| Reader::new(share).read_for(Duration::from_secs(20)));
    let lower = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let lower = Some(MIB);
        let share =
            Share { bytes_per_second: lower, fallback_bytes_per_second: lower, ..Share::default() };
        shares.iter().for_each(|bandwidth| bandwidth.grant(&share).unwrap());
    };
    let [one, two] = readers;
    let (one, two, ()) = tokio::join!(one, two, lower);
    let all = [one, two].concat();
    let (before, after): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(at, _)| *at < Duration::from_secs(10));
    let slices = 2 * slice(limit / 2);
    for (phase, taken, limit) in [("8 MiB/s", before, limit), ("2 MiB/s", after, 2 * MIB)] {
        let total: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
        let most = fullest(&taken, Duration::from_secs(1));
        eprintln!("limit {phase}: {total} bytes in 10 s, at most {most} in any second");
        assert!(most <= limit + slices, "{most} in a second of {limit}");
        assert!(total <= 10 * limit + slices, "{total} in 10 s of {limit}");
        assert!(total >= 10 * limit - 2 * slices, "{total} in 10 s of {limit}");
    }
}

/// 8 MiB/s, counted from now, above a fallback of 1 MiB/s.
fn lent(bandwidth: &Bandwidth, serial: u64) -> Share {
    let until = bandwidth.clock() + VALIDITY;
    Share {
        bytes_per_second: Some(8 * MIB),
        fallback_bytes_per_second: Some(MIB),
        fence: Some(Fence { term: 1, serial }),
        until_ms: Some(u64::try_from(until.as_millis()).unwrap()),
    }
}

/// What a frozen import finds when it wakes ends no later than it says, and what was told before does not come back.
#[tokio::test(start_paused = true)]
async fn a_share_that_comes_late_ends_in_time_and_one_that_comes_again_is_refused() {
    let bandwidth = Bandwidth::new(Some(MIB));
    let (first, second, third) = (lent(&bandwidth, 1), lent(&bandwidth, 2), lent(&bandwidth, 3));
    let frozen = VALIDITY - Duration::from_secs(1);
    tokio::time::sleep(frozen).await;
    bandwidth.grant(&second).unwrap();
    assert_eq!(bandwidth.grant(&first), Err(Stale));
    assert_eq!(bandwidth.grant(&second), Err(Stale));
    assert_eq!(bandwidth.grant(&Share::default()), Err(Stale));
    let taken = Reader::new(&bandwidth).read_for(Duration::from_secs(2)).await;
    let total: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
    assert!((8 * MIB..=10 * MIB).contains(&total), "{total}: a second of each");
    bandwidth.grant(&third).unwrap();
    let taken = Reader::new(&bandwidth).read_for(Duration::from_secs(1)).await;
    let total: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
    assert!(total <= MIB + slice(MIB), "{total}: it had ended before it came");
}

/// A granted share lapses when nobody speaks to the import any more.
#[tokio::test(start_paused = true)]
async fn a_share_lapses_when_nothing_is_heard() {
    let bandwidth = Bandwidth::new(Some(MIB));
    bandwidth.grant(&lent(&bandwidth, 1)).unwrap();
    let taken = Reader::new(&bandwidth).read_for(Duration::from_secs(10)).await;
    let until = |seconds: u64| -> u64 {
        let end = Duration::from_secs(seconds);
        taken.iter().filter(|(at, _)| *at < end).map(|(_, bytes)| bytes).sum()
    };
    let (granted, lapsed) = (until(5), until(10) - until(5));
    assert!((39 * MIB..=41 * MIB).contains(&granted), "{granted}");
    assert!((4 * MIB..=6 * MIB).contains(&lapsed), "{lapsed}");
}

#[tokio::test]
async fn the_program_starts_with_its_fallback() {
    let content = Content::generated(MIB, 53);
    let lab = Lab::serving(content.clone()).await;
    let program = Program::import(&lab, MIB).with(format!("--bandwidth-share={MIB}"));
    let begun = std::time::Instant::now();
    let (code, report) = program.run().await;
    assert_eq!(code, 0);
    assert_complete(&report.unwrap(), &content.disk_hash(MIB).unwrap().hex());
    // A slice comes at once, the rest in its time; a busy machine only makes it longer.
    assert!(begun.elapsed() >= Duration::from_millis(800), "{:?}", begun.elapsed());
}

/// No limit.
fn fenced(serial: u64) -> Share {
    Share { fence: Some(Fence { term: 1, serial }), ..Share::default() }
}

/// At its first share the import would take a week; told better, it ends.
#[tokio::test]
async fn a_change_acts_on_the_running_import() {
    let content = Content::generated(4 * MIB, 59);
    let lab = Lab::serving(content.clone()).await;
    let address = free_address().await;
    let program = Program::import(&lab, 4 * MIB)
        .with("--bandwidth-share=8".to_owned())
        .with(format!("--progress-address={address}"));
    let child = program.start();
    let everything = serde_json::to_string(&fenced(3)).unwrap();
    let refused = [
        (None, everything.as_str(), 401),
        (Some("Bearer other"), everything.as_str(), 401),
        (Some("Bearer sesame"), "{\"bytesPerSecond\":-1}", 400),
        (Some("Bearer sesame"), "everything", 400),
        (Some("Bearer sesame"), &" ".repeat(5000), 413),
    ];
    for (key, body, expected) in refused {
        let (status, answer) = post_progress(address, key, body).await;
        assert_eq!(status, expected, "{body} {answer}");
    }
    let little =
        Share { bytes_per_second: Some(8), fallback_bytes_per_second: Some(8), ..fenced(2) };
    for (share, expected) in [(little, 200), (fenced(1), 409), (fenced(2), 409), (fenced(3), 200)] {
        let body = serde_json::to_string(&share).unwrap();
        let (status, answer) = post_progress(address, Some("Bearer sesame"), &body).await;
        let standing: Standing = serde_json::from_str(&answer).unwrap();
        assert_eq!(status, expected, "{share:?} {standing:?}");
        assert!(standing.progress.received < MIB && standing.clock_ms.is_some(), "{standing:?}");
        let taken = if expected == 200 { share.fence } else { little.fence };
        assert_eq!(standing.fence, taken);
    }
    let output = timeout(GUARD, child.wait_with_output()).await.unwrap().unwrap();
    assert!(output.status.success());
    let report = program.report().unwrap();
    assert_complete(&report, &content.disk_hash(4 * MIB).unwrap().hex());
}
