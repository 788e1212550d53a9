//! The controller of workspaces dies at every write of a workspace's life, and what is left in the end is what a life
//! without a death leaves: before the write has left, with it under way, when the server has carried it out, and when its
//! answer was read.

use testbed::fault::{Point, What};
use testbed::setting;

use super::lives::{Clean, Life, Lives};
use crate::faults::lives::Write;
use crate::stage::PATIENCE;

const POINTS: [Point; 4] = [Point::Before, Point::UnderWay, Point::Commit, Point::Reply];

#[tokio::test(flavor = "multi_thread")]
async fn every_write_of_a_workspaces_life_is_survived() {
    let (lives, points): (&[Life], &[Point]) =
        match setting("OTCTL_CRASH_POINTS", String::new()).as_str() {
            "" => (&[Life::Creation, Life::Deletion], &[Point::Commit]),
            "all" => (&Life::ALL, &POINTS),
            other => panic!("OTCTL_CRASH_POINTS={other}"),
        };
    let mut scene = Lives::set(points.len() > 1).await;
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
        assert!(
            deaths * 4 >= writes * points.len() * 3,
            "{life:?}: hardly any of its writes was met"
        );
    }
    println!("{run} crash points, {} controllers killed", scene.controller.proxy.kills());
    assert_eq!(scene.controller.proxy.kills(), run, "one death at each");
    scene.finish().await;
}

/// The life once more with a death at this write; whether it was made. What is told of a part that is on its way may be
/// told a moment later, together with the next.
async fn crash(
    scene: &mut Lives,
    life: Life,
    clean: &Clean,
    (write, point): (&Write, Point),
) -> bool {
    let name = scene.begin(life).await;
    let fault = write.of(&name).point(point).then(What::Kill);
    let told = format!("{life:?}: {fault}");
    let (before, kills) = (scene.controller.asked(), scene.controller.proxy.kills() + 1);
    scene.controller.proxy.add(fault);
    scene.go(life, &name).await;
    let lived = async {
        tokio::select! {
            () = scene.controller.proxy.killed(kills) => {}
            () = scene.is_over(life, &name) => {}
        }
    };
    if tokio::time::timeout(PATIENCE, lived).await.is_err() {
        let asked = scene.controller.writes(before).join("\n");
        panic!("{told}: its life never ended; asked was\n{asked}");
    }
    let is_met = scene.controller.proxy.kills() == kills;
    if !is_met {
        println!("{told}: there is no such write this time");
    }
    if is_met {
        scene.controller.revive(kills).await;
    }
    scene.controller.proxy.faults().clear();
    scene.expect_end(&told, &name, &clean.end).await;
    scene.remove(&name).await;
    is_met
}
