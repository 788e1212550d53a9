//! The faults of the files in `crates/testbed/faults`, on a real API server. The same files strike on the world in memory in
//! the tests of the controller.

use testbed::fault;

use super::lives::{Life, Lives};
use super::proxied::ALONE;
use crate::stage::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_life_ends_the_same_whatever_a_file_does_to_it() {
    let scene = Lives::set("1", ALONE).await;
    let clean = scene.clean(Life::Success).await;
    let files = fault::files().unwrap();
    assert!(files.len() >= 4, "{}", files.len());
    for (name, faults) in files {
        let namespace = scene.namespace().await;
        faults.into_iter().for_each(|fault| scene.controller.proxy.add(fault));
        Life::Success.go(&scene.stage, &namespace).await;
        until(&format!("every fault of {name} has struck"), async || {
            scene.controller.proxy.faults().unmet().is_empty().then_some(())
        })
        .await;
        scene.controller.proxy.faults().clear();
        scene.expect_end(&name, &namespace, &clean.end).await;
    }
    scene.finish().await;
}
