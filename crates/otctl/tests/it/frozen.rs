//! An importer that was stopped: it can neither go on nor say so.

use std::process::Command;

use image_server::{Behaviour, Content, Fault};
use otctl_types::diskimage::Phase;

use crate::processes::{Process, descendants, wait_for};
use crate::stage::{Stage, status};

const MIB: u64 = 1 << 20;

/// Its attempt ends as one without progress, is charged, and the next one goes on where it was. The policy's
/// `stallTimeout` is 30 s, so that a busy machine does not look frozen.
pub(crate) async fn expect_a_frozen_import_to_end(stage: &Stage) {
    let slowly = Behaviour::new().always(Fault::rate_limit(MIB));
    let mut image = stage.image("frozen", Content::generated(16 * MIB, 3), slowly);
    image.spec.disk_size = Some("16Mi".to_owned());
    image.spec.snapshot_class = None;
    stage.create(&image).await;
    stage.await_transfer("frozen", 2 * MIB).await;
    let importer = importer_of("/frozen");
    freeze(&importer);
    let ended = stage.await_image("frozen", |status| !status.attempts.is_empty()).await;
    let ended = status(&ended).attempts[0].clone();
    println!("a frozen import ended: {}", ended.message.clone().unwrap());
    assert_eq!((ended.reason.as_deref(), ended.charged), (Some("NoProgress"), true));
    stage.let_go("frozen");
    let done = status(&stage.await_phase("frozen", Phase::Succeeded).await);
    assert_eq!(done.attempts.len(), 2, "{:#?}", done.attempts);
    assert_eq!(stage.server.counts("frozen").downloads, 1, "what was fetched was kept");
}

fn importer_of(path: &str) -> Process {
    wait_for("its process runs", || {
        let ours = i32::try_from(std::process::id()).unwrap();
        let is_it = |process: &Process| {
            process.command.contains("run-importer import") && process.command.contains(path)
        };
        descendants(ours).into_iter().find(is_it)
    })
}

fn freeze(process: &Process) {
    let id = process.id.to_string();
    assert!(Command::new("kill").args(["-STOP", &id]).status().unwrap().success());
}
