//! The controller dies at every write of an image's life, and what is left in the end is what a life without a death
//! leaves: before the write has left, with it under way, when the server has carried it out, and when its answer was
//! read.

use testbed::fault::{Point, What};

use super::lives::{Clean, Life, Lives, Write};
use super::proxied::ALONE;
use super::setting;
use crate::stage::PATIENCE;

const POINTS: [Point; 4] = [Point::Before, Point::UnderWay, Point::Commit, Point::Reply];

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_life_is_survived() {
    let all = setting("OTCTL_CRASH_POINTS", String::new()) == "all";
    let lives: &[Life] =
        if all { &[Life::Success, Life::Retry, Life::Deletion] } else { &[Life::Success] };
    let points: &[Point] = if all { &POINTS } else { &[Point::Commit] };
    let mut scene = Lives::set("1", ALONE).await;
    let mut run = 0;
    for life in lives {
        let clean = scene.clean(*life).await;
        for point in points {
            for write in &clean.writes {
                crash(&mut scene, *life, &clean, (write, *point)).await;
                run += 1;
            }
        }
        println!("{life:?}: {} writes, survived at {points:?}", clean.writes.len());
    }
    println!("{run} crash points, {} controllers killed", scene.controller.proxy.kills());
    assert_eq!(scene.controller.proxy.kills(), run, "one death at each");
    scene.finish().await;
}

/// The life once more with a death at this write.
async fn crash(scene: &mut Lives, life: Life, clean: &Clean, (write, point): (&Write, Point)) {
    let namespace = scene.namespace().await;
    life.begin(&scene.stage, &namespace).await;
    let fault = write.of(&namespace).point(point).then(What::Kill);
    let told = format!("{life:?}: {fault}");
    let (before, kills) = (scene.controller.asked(), scene.controller.proxy.kills() + 1);
    scene.controller.proxy.add(fault);
    let (stage, controller) = (&scene.stage, &mut scene.controller);
    let both = async { tokio::join!(life.go(stage, &namespace), controller.revive(kills)) };
    if tokio::time::timeout(PATIENCE, both).await.is_err() {
        let asked = scene.controller.writes(before).join("\n");
        panic!("{told}: it was never met, or its life never ended; asked was\n{asked}");
    }
    assert!(scene.controller.proxy.faults().unmet().is_empty());
    scene.controller.proxy.faults().clear();
    scene.expect_end(&told, &namespace, &clean.end).await;
}
