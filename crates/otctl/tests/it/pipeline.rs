//! What a pipeline does with otctl, and what people ask it beside: every command on one cluster, by what it prints and
//! what it exits with.

mod people;
pub(crate) mod terminal;

use image_server::{Behaviour, Content, Fault};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use otctl_types::VMDiskImage;
use serde_json::{Value, json};
use testbed::fault::{What, at};
use testbed::proxy::Proxy;

use self::terminal::Terminal;
use crate::stage::{NAMESPACE, Stage, well_behaved};

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
/// One at a time, one retry, and none of them while a test looks.
const POLICY: [(&str, &str); 3] =
    [("concurrency", "1"), ("retryLimit", "1"), ("retryBackoffDuration", "1h")];

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_and_its_people_are_told_what_is_the_case() {
    let mut stage = Stage::set(&POLICY).await;
    stage.start_controller();
    let terminal = Terminal::on(&stage);
    mistakes_are_told_from_failures(&terminal).await;
    everything_is_applied_and_ours_are_waited_for(&stage, &terminal).await;
    what_others_have_set_is_taken_over_on_demand_only(&stage, &terminal).await;
    a_source_that_is_not_there_fails_and_is_asked_for_again(&stage, &terminal).await;
    an_edit_is_waited_for_and_not_what_was_before_it(&stage, &terminal).await;
    people::look_at_what_is_under_way(&stage, &terminal).await;
    people::look_at_what_waits_for_its_next_attempt(&stage, &terminal).await;
    people::may_read_little(&stage, &terminal).await;
    people::type_less(&terminal).await;
    an_api_server_that_is_away_is_waited_for_and_a_deletion_is_not(&stage, &terminal).await;
    stage.finish().await;
}

fn good(stage: &Stage, name: &str) -> VMDiskImage {
    stage.image(name, Content::generated(SIZE, 1), well_behaved())
}

/// One whose download stands still halfway.
fn stalling(stage: &Stage, name: &str) -> VMDiskImage {
    stage.image(name, Content::generated(SIZE, 1), Behaviour::new().then(Fault::stall(SIZE / 2)))
}

fn settings(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"key": value}})
}

async fn mistakes_are_told_from_failures(terminal: &Terminal) {
    let cases = [
        ("wait vmdi", "name an object, as KIND/NAME, or select some with -l"),
        ("wait pod/a", "'pod' is no kind that is known here"),
        ("wait vmdi/a --timeout soon", "soon"),
        ("apply", "--filename"),
        ("apply -f a.yaml --timeout 5m", "--wait"),
        ("get vmdi a b/c", "KIND/NAME"),
    ];
    for (line, part) in cases {
        terminal.run(line).await.expect(2, part);
    }
    terminal.run("wait vmdi/absent").await.expect(1, "\"absent\" not found");
    terminal.run("apply -f absent.yaml").await.expect(1, "'absent.yaml' cannot be read");
    terminal.file(
        "strange.json",
        &json!({"apiVersion": "a.b/v1", "kind": "Strange", "metadata": {"name": "a"}}),
    );
    let strange = terminal.run("apply -f strange.json").await;
    strange.expect(1, "the cluster has no kind Strange in a.b/v1; install its definition first");
}

async fn everything_is_applied_and_ours_are_waited_for(stage: &Stage, terminal: &Terminal) {
    terminal.file("all/1.json", &settings("a"));
    terminal.file("all/2.json", &json!(good(stage, "good")));
    let dry = terminal.run("apply -f all --dry-run=server").await;
    dry.expect(0, "vmdiskimage.pelotech.ot/good created (server dry run)");
    terminal.run("get vmdi").await.expect(0, "nothing found in namespace 'labs'");

    let first = terminal.run("apply -f all --wait --timeout 5m").await;
    first.expect(0, "configmap/settings created\n");
    first.expect(0, "vmdiskimage.pelotech.ot/good created\n");
    first.expect(0, "vmdiskimage.pelotech.ot/good in namespace 'labs' ready\n");
    let again = terminal.run("apply -f all --wait").await;
    again.expect(0, "configmap/settings unchanged\n");
    again.expect(0, "vmdiskimage.pelotech.ot/good unchanged\n");
    terminal.run("wait vmdi/good --for available --timeout 0s").await.expect(0, "available\n");
    terminal.run("retry vmdi/good").await.expect(0, "unchanged (it is ready)");

    terminal.file("settings.json", &settings("b"));
    let alone = terminal.run("apply -f settings.json --wait").await;
    alone.expect(0, "configmap/settings configured\n");
    alone.expect(0, "nothing of this is waited for");
    let mut typo = json!(good(stage, "typo"));
    typo["spec"]["urll"] = json!("http://a");
    terminal.file("typo.json", &typo);
    let typo = terminal.run("apply -f typo.json --wait").await;
    typo.expect(1, "urll");
    typo.expect(1, "1 of 1 objects were not applied, and none is waited for");
}

async fn what_others_have_set_is_taken_over_on_demand_only(stage: &Stage, terminal: &Terminal) {
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let theirs = PatchParams::apply("someone").force();
    maps.patch("settings", &theirs, &Patch::Apply(settings("theirs"))).await.unwrap();
    let refused = terminal.run("apply -f settings.json").await;
    refused.expect(1, "conflict with \"someone\"");
    refused.expect(1, "--force-conflicts takes the fields over");
    let forced = terminal.run("apply -f settings.json --force-conflicts").await;
    forced.expect(0, "configmap/settings configured");
}

async fn a_source_that_is_not_there_fails_and_is_asked_for_again(
    stage: &Stage,
    terminal: &Terminal,
) {
    let missing = Behaviour::new().always(Fault::status(404));
    let missing = json!(stage.image("missing", Content::generated(SIZE, 2), missing));
    let failed = terminal.run_with("apply -f - --wait --timeout 5m", &missing.to_string()).await;
    failed.expect(3, "vmdiskimage.pelotech.ot/missing created\n");
    failed.expect(
        3,
        "error: vmdiskimage.pelotech.ot/missing in namespace 'labs' has failed (SourceNotFound): ",
    );
    let told = terminal.run("wait vmdi/missing -o json").await;
    let told: Value = serde_json::from_str(&told.expect(3, "").out).unwrap();
    let object = &told["objects"][0];
    assert_eq!(
        (&object["outcome"], &object["reason"]),
        (&json!("failed"), &json!("SourceNotFound")),
        "{told}"
    );
    let tree = terminal.run("describe vmdi/missing").await;
    tree.expect(0, "VMDiskImage labs/missing: Failed (SourceNotFound)");
    tree.expect(0, "next: nothing by itself; once the cause is mended, `otctl retry vmdiskimage/missing -n labs`");
    tree.expect(0, "Stalled: True (SourceNotFound)");

    stage.let_go("missing");
    let asked = terminal.run("retry vmdi/missing").await;
    asked.expect(
        0,
        "asked for again: a new budget of 2 downloads; it queues for its next attempt\n",
    );
    // At once: what the controller told before it heard of it is no answer.
    terminal.run("wait vmdi/missing").await.expect(0, "missing in namespace 'labs' ready\n");
}

async fn an_edit_is_waited_for_and_not_what_was_before_it(stage: &Stage, terminal: &Terminal) {
    let right = good(stage, "moved");
    let wrong = stage.image_of("moved", &stage.server.url("nowhere"));
    terminal.file("moved.json", &json!(wrong));
    terminal.run("apply -f moved.json --wait").await.expect(3, "SourceNotFound");
    terminal.file("moved.json", &json!(right));
    let moved = terminal.run("apply -f moved.json --wait -o json").await;
    let told: Value = serde_json::from_str(&moved.expect(0, "").out).unwrap();
    let object = &told["objects"][0];
    assert_eq!(
        (&object["change"], &object["outcome"]),
        (&json!("configured"), &json!("reached")),
        "{told}"
    );
}

/// Its answers break off twice, and the wait goes on; what is deleted is not waited for any longer.
async fn an_api_server_that_is_away_is_waited_for_and_a_deletion_is_not(
    stage: &Stage,
    terminal: &Terminal,
) {
    stage.create(&stalling(stage, "leaving")).await;
    let proxy = Proxy::start(&stage.cluster().admin_config()).await.unwrap();
    proxy.add(at("list VMDiskImage").times(2).then(What::Cut(0)));
    let account = stage.cluster().service_account_kubeconfig(NAMESPACE, people::ACCOUNT).await;
    let kubeconfig = proxy.kubeconfig(&account.unwrap()).unwrap();
    let mut waiting = terminal.start(&kubeconfig, "wait vmdi/leaving");
    waiting.until("not up to date, the API server cannot be asked").await;
    waiting.until("up to date again").await;
    stage.delete("leaving").await;
    let ended = waiting.end().await;
    ended.expect(3, "leaving in namespace 'labs' has failed: it was deleted");
}
