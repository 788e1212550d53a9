//! What a pipeline does with workspaces, by what it prints and what it exits with.

use image_server::{Behaviour, Content, Fault};
use local_cluster::storage::IMMEDIATE_CLASS;
use otctl_types::workspace::Phase;
use serde_json::{Value, json};

use super::labs::Labs;
use crate::pipeline::terminal::Terminal;

/// Applied and waited for: ready is 0, failed is 3, a time that is over is 4, and people may look and hold it meanwhile.
pub(super) async fn a_pipeline_tells_ready_failed_and_timed_out_apart(labs: &Labs) {
    let terminal = Terminal::on(&labs.stage);
    terminal.file("good.json", &workspace("built", "example.com/web:1", &[]));
    let good = terminal.run("apply -f good.json --wait --timeout 4m").await;
    good.expect(0, "workspace.pelotech.ot/built created\n");
    good.expect(0, "workspace.pelotech.ot/built ready\n");
    terminal.run("wait ws/built --timeout 0s").await.expect(0, "workspace.pelotech.ot/built ready");
    let available = terminal.run("wait ws/built --for Available --timeout 0s").await;
    available.expect(0, "workspace.pelotech.ot/built available");
    terminal
        .run("wait ws/built --for Admitted")
        .await
        .expect(2, "possible values: ready, available");

    let missing = Behaviour::new().always(Fault::status(404));
    labs.stage.server.add("gone", Content::generated(1 << 20, 1));
    labs.stage.server.behave("gone", missing).unwrap();
    let image = json!({
        "url": labs.stage.server.url("gone"), "sourceType": "http", "diskSize": "1Mi",
        "storageClass": IMMEDIATE_CLASS,
    });
    let machine = json!({"name": "db", "spec": {"VMDiskImageName": "gone", "image": image}});
    terminal.file("failing.json", &workspace("failing", "example.com/web:1", &[machine]));
    let failed = terminal.run("apply -f failing.json --wait --timeout 4m").await;
    failed.expect(3, "error: workspace.pelotech.ot/failing has failed (");
    let told = terminal.run("wait ws/failing -o json").await;
    let told: Value = serde_json::from_str(&told.expect(3, "").out).unwrap();
    assert_eq!(told["objects"][0]["outcome"], "failed", "{told}");

    terminal.file("crashing.json", &workspace("crashing", "example.com/crash:1", &[]));
    let late = terminal.run("apply -f crashing.json --wait --timeout 5s").await;
    late.expect(4, "workspace.pelotech.ot/crashing");
    let tree = terminal.run("describe ws/crashing").await;
    tree.expect(0, "web");
    tree.expect(0, "next: ");

    terminal.run("suspend ws/built").await.expect(0, "built");
    labs.is("built", Phase::Suspended).await;
    let held = terminal.run("wait ws/built --timeout 5m").await;
    held.expect(3, "workspace.pelotech.ot/built is suspended, and is not waited for");
    terminal.run("resume ws/built").await.expect(0, "built");
    terminal.run("wait ws/built --timeout 4m").await.expect(0, "ready");
    terminal.run("get ws").await.expect(0, "failing");
    for name in ["built", "failing", "crashing"] {
        labs.delete(name).await;
        labs.is_gone(name).await;
    }
}

fn workspace(name: &str, image: &str, machines: &[Value]) -> Value {
    json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
        "metadata": {"name": name},
        "spec": {
            "virtualMachines": machines,
            "containers": [{"name": "web", "image": image, "ports": [{"containerPort": 8080}]}],
        },
    })
}
