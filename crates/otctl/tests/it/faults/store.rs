//! The store behind the API server stands still, as one without a quorum does.

use std::time::Duration;

use image_server::{Behaviour, Content, Fault, On};
use local_cluster::programs::Program;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use otctl::demo::peak::{History, Peak};
use testbed::check;

use super::SIZE;
use super::acting::expect_done_once;
use crate::stage::{Stage, until};
use crate::timeline::Timeline;

const LIMIT: usize = 2;
const IMAGES: usize = 6;
/// Longer than any lease and any request lasts.
const OUTAGE: Duration = Duration::from_secs(20);

/// A store that stands still. Dropping this lets it go on.
struct Stopped(Pid);

impl Stopped {
    fn of(stage: &Stage) -> Self {
        let mut programs = stage.cluster().process_ids();
        let (_, id) = programs.find(|(program, _)| *program == Program::Etcd).unwrap();
        kill(Pid::from_raw(id), Signal::SIGSTOP).unwrap();
        Self(Pid::from_raw(id))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // An error means that it has ended, which the test tells in its own way.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// Imports end and others wait while nothing can be written or read. Nothing is done twice, and nothing is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stands_still_delays_everything_and_loses_nothing() {
    let mut stage = Stage::set(&[("concurrency", "2")]).await;
    let peak = History::open(&stage.client).await.unwrap();
    let mut timeline = Timeline::open(&stage.client).await;
    for number in 0..IMAGES {
        let stalls = Behaviour::new().then(Fault::stall(SIZE / 2).on(On::Data));
        let content = Content::generated(SIZE, number as u64);
        stage.create(&stage.image(&format!("image-{number}"), content, stalls)).await;
    }
    stage.start_controller();
    stage.await_running(LIMIT).await;

    let (stopped, mark) = (Stopped::of(&stage), stage.mark());
    (0..IMAGES).for_each(|number| stage.let_go(&format!("image-{number}")));
    until("both transfers are over", async || {
        (stage.server.totals().counts.open_data == 0).then_some(())
    })
    .await;
    // The fault itself, not a wait for something.
    tokio::time::sleep(OUTAGE).await;
    let asked = stage.requests(mark);
    let unanswered = asked.iter().filter(|request| request.code >= 500 || request.code == 0);
    let (unanswered, asked) = (unanswered.count(), asked.len());
    drop(stopped);

    expect_done_once(&stage).await;
    let (entries, pods) = peak.close().await.unwrap();
    let transfers = stage.server.totals().most_open_data;
    println!(
        "the store stood still for {OUTAGE:?}: {unanswered} of {asked} requests were in vain; at most {entries} \
         entries, {pods} import pods, {transfers} transfers at once"
    );
    assert!(unanswered > 0, "the controller did not notice");
    assert_eq!(Peak { entries, pods, transfers }.most(), LIMIT);
    check::expect_none(&check::ledger::intact(&timeline.history().await));
    stage.finish().await;
}
