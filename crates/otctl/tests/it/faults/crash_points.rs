//! The controller dies at every write of an image's life, and what is left in the end is what a life without a death
//! leaves: before the write has left, with it under way, when the server has carried it out, and when its answer was
//! read.

use testbed::fault::{Point, What};
use testbed::setting;

use super::lives::{Clean, Life, Lives, Write};
use super::proxied::ALONE;
use crate::stage::{PATIENCE, Stage, until};

const POINTS: [Point; 4] = [Point::Before, Point::UnderWay, Point::Commit, Point::Reply];

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_life_is_survived() {
    let lives: &[Life] = match setting("OTCTL_CRASH_POINTS", String::new()).as_str() {
        "" => &[],
        "all" => &[Life::Success, Life::Retry, Life::Deletion],
        "deletion" => &[Life::Deletion],
        other => panic!("OTCTL_CRASH_POINTS={other}"),
    };
    let (lives, points): (&[Life], &[Point]) =
        if lives.is_empty() { (&[Life::Success], &[Point::Commit]) } else { (lives, &POINTS) };
    let mut scene = Lives::set("1", ALONE).await;
    let mut run = 0;
    for life in lives {
        let (clean, before) = (scene.clean(*life).await, run);
        for point in points {
            for write in &clean.writes {
                run += usize::from(crash(&mut scene, *life, &clean, (write, *point)).await);
            }
        }
        let (writes, deaths) = (clean.writes.len(), run - before);
        println!("{life:?}: {writes} writes, {deaths} deaths survived at {points:?}");
        assert!(deaths >= points.len(), "{life:?}: hardly any of its writes was met");
    }
    println!("{run} crash points, {} controllers killed", scene.controller.proxy.kills());
    assert_eq!(scene.controller.proxy.kills(), run, "one death at each");
    scene.finish().await;
}

/// The life once more with a death at this write; whether it was made. Only what is deleted with its owner may be gone
/// before the controller comes to it: the garbage collector is faster now and then.
async fn crash(
    scene: &mut Lives,
    life: Life,
    clean: &Clean,
    (write, point): (&Write, Point),
) -> bool {
    let namespace = scene.namespace().await;
    life.begin(&scene.stage, &namespace).await;
    let fault = write.of(&namespace).point(point).then(What::Kill);
    let told = format!("{life:?}: {fault}");
    let (before, kills) = (scene.controller.asked(), scene.controller.proxy.kills() + 1);
    scene.controller.proxy.add(fault);
    let (stage, controller) = (&scene.stage, &mut scene.controller);
    let both = async {
        let lived = life.go(stage, &namespace);
        if life != Life::Deletion {
            tokio::join!(lived, controller.revive(kills));
            return true;
        }
        tokio::select! {
            () = controller.proxy.killed(kills) => {}
            () = async { lived.await; await_free_slot(stage, &namespace).await } => {}
        }
        let is_met = controller.proxy.faults().unmet().is_empty();
        if is_met {
            controller.revive(kills).await;
        }
        is_met
    };
    let Ok(is_met) = tokio::time::timeout(PATIENCE, both).await else {
        let asked = scene.controller.writes(before).join("\n");
        panic!("{told}: it was never met, or its life never ended; asked was\n{asked}");
    };
    scene.controller.proxy.faults().clear();
    scene.expect_end(&told, &namespace, &clean.end).await;
    is_met
}

/// Nothing of a deleted image is waited for any more.
async fn await_free_slot(stage: &Stage, namespace: &str) {
    until("its slot is free", async || {
        let active = stage.ledger().await.active;
        active.iter().all(|entry| entry.namespace != namespace).then_some(())
    })
    .await;
}
