//! What people ask: where something stands, why, and how to go on.

use std::os::unix::fs::symlink;

use image_server::{Behaviour, Content, Fault};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::PostParams;
use local_cluster::Progress;
use local_cluster::audit::service_account_user;
use local_cluster::programs::{Program, Sources};
use serde_json::{Value, json};
use tokio::process::Command;

use super::terminal::Terminal;
use super::{SIZE, good, stalling};
use crate::stage::{NAMESPACE, Stage, until};
use crate::stdout;

/// The account of a pipeline.
pub(super) const ACCOUNT: &str = "pipeline";

/// One that stands still in its slot, and one behind it.
pub(super) async fn look_at_what_is_under_way(stage: &Stage, terminal: &Terminal) {
    terminal.file("slow.json", &json!(stalling(stage, "slow")));
    terminal.run("apply -f slow.json").await.expect(0, "slow created");
    stage.await_running(1).await;
    let late = terminal.run("apply -f slow.json --wait --timeout 1s").await;
    late.expect(4, "slow in namespace 'labs' was not ready within 1s (Importing): ");
    late.expect(4, "labs/slow: Syncing (Importing, attempt 1");
    let tree = terminal.run("describe vmdi/slow").await;
    tree.expect(0, "VMDiskImage labs/slow: Syncing (Importing)");
    tree.expect(0, "Queue: holds a slot since ");
    tree.expect(0, "(download of attempt 1): started\n");
    tree.expect(0, ": Running on node '");
    tree.expect(0, "next: ended by its node at ");
    tree.expect(0, "(the disk): Bound, ");
    tree.expect_no("Not shown");

    terminal.file("next.json", &json!(good(stage, "next")));
    terminal.run("apply -f next.json").await.expect(0, "next created");
    stage.await_reason("next", "SlotsBusy").await;
    let tree = terminal.run("describe image next").await;
    tree.expect(0, "VMDiskImage labs/next: Queued (SlotsBusy)");
    tree.expect(0, "Queue: position 1 of 1 that wait\n");
    tree.expect(0, "next: it starts as soon as there is a slot\n");
    until("its Event is told, which comes after its status", async || {
        let tree = terminal.run("describe image next").await;
        tree.expect(0, "").out.contains("Normal Queued\n").then_some(())
    })
    .await;
    list(terminal).await;
    hold_up_and_let_go_on(stage, terminal).await;

    let waiting = terminal.start(&terminal.kubeconfig, "wait vmdi/slow vmdi/next vmdi/slow");
    stage.let_go("slow");
    let ended = waiting.end().await;
    ended.expect(0, "vmdiskimage.pelotech.ot/slow in namespace 'labs' ready\n");
    ended.expect(0, "vmdiskimage.pelotech.ot/next in namespace 'labs' ready\n");
    let tree = terminal.run("describe vmdi slow").await;
    tree.expect(0, "VMDiskImage labs/slow: Succeeded");
    tree.expect(0, "Usable: snapshot '");
    tree.expect(0, "Conditions: all as they should be");
}

async fn list(terminal: &Terminal) {
    let table = terminal.run("get").await;
    table.expect(0, "NAME ").expect_no("NAMESPACE");
    let rows: Vec<Vec<&str>> =
        table.out.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert!(rows.contains(&vec!["good", "True", "Succeeded", "Succeeded"]), "{}", table.told());
    assert!(rows.contains(&vec!["next", "False", "Queued", "SlotsBusy"]), "{}", table.told());
    let names = terminal.run("get vmdi next slow -o name").await;
    assert_eq!(names.out, "vmdiskimage.pelotech.ot/next\nvmdiskimage.pelotech.ot/slow\n");
    terminal.run("get vmdi/next -o yaml").await.expect(0, "kind: VMDiskImage\n");
    let list: Value = serde_json::from_str(&terminal.run("get vmdi -o json").await.out).unwrap();
    assert_eq!((&list["kind"], list["items"].as_array().unwrap().len()), (&json!("List"), 5));
    let wide = terminal.run_as(&terminal.kubeconfig, "get images -A -o wide", "").await;
    wide.expect(0, "NAMESPACE ").expect(0, "the disk is ready to use");
    list_where_the_context_leads(terminal).await;
    for command in ["get", "describe", "suspend", "resume", "retry"] {
        let ran = terminal.run(&format!("{command} vmdi -l no=such")).await;
        ran.expect(0, "nothing found in namespace 'labs'");
    }
    what_is_there_is_told_beside_what_is_missing(terminal).await;
}

async fn what_is_there_is_told_beside_what_is_missing(terminal: &Terminal) {
    for (command, told) in [("get", "next"), ("describe", "VMDiskImage labs/next")] {
        let ran = terminal.run(&format!("{command} vmdi absent next")).await;
        ran.expect(1, told).expect(1, "\"absent\" not found");
    }
    let list = terminal.run("get vmdi/next vmdi/absent -o json").await;
    list.expect(1, "absent");
    let list: Value = serde_json::from_str(&list.out).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let none = terminal.run("get vmdi/absent -o yaml").await;
    none.expect(1, "absent");
    assert_eq!(none.out, "");
    // Nothing is changed by halves.
    terminal.run("suspend vmdi next absent").await.expect(1, "absent").expect_no("suspended");
}

/// The namespace of whoever names none is that of the context.
async fn list_where_the_context_leads(terminal: &Terminal) {
    let text = std::fs::read_to_string(&terminal.kubeconfig).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["contexts"][0]["context"]["namespace"] = json!(NAMESPACE);
    terminal.file("labs.kubeconfig", &kubeconfig);
    let kubeconfig = terminal.path().join("labs.kubeconfig");
    let names = terminal.run_as(&kubeconfig, "get vmdi/good -o name", "").await;
    names.expect(0, "vmdiskimage.pelotech.ot/good\n");
}

async fn hold_up_and_let_go_on(stage: &Stage, terminal: &Terminal) {
    terminal.run("suspend vmdi/next").await.expect(0, "vmdiskimage.pelotech.ot/next suspended\n");
    terminal.run("suspend vmdi/next").await.expect(0, "next unchanged (suspended already)\n");
    stage.await_reason("next", "Suspended").await;
    let tree = terminal.run("describe vmdi/next").await;
    tree.expect(0, "`otctl resume vmdiskimage/next -n labs` lets it go on").expect_no("position");
    let asked = terminal.run("retry vmdi/next").await;
    asked.expect(0, "it stays suspended until `otctl resume vmdiskimage/next -n labs`");
    let held = terminal.run("wait vmdi/next --timeout 5m").await;
    held.expect(3, "is suspended, and is not waited for: otctl resume lets it go on");
    terminal.run("resume vmdi/next").await.expect(0, "vmdiskimage.pelotech.ot/next resumed\n");
    terminal.run("resume vmdi/next").await.expect(0, "next unchanged (not suspended)\n");
    assert!(!stage.read("next").await.spec.suspend);
}

/// A source that fails in passing, which a retry does not wait out.
pub(super) async fn look_at_what_waits_for_its_next_attempt(stage: &Stage, terminal: &Terminal) {
    let busy = Behaviour::new().always(Fault::status(503));
    stage.create(&stage.image("busy", Content::generated(SIZE, 3), busy)).await;
    stage.await_reason("busy", "Backoff").await;
    let tree = terminal.run("describe vmdi/busy").await;
    tree.expect(0, "VMDiskImage labs/busy: Queued (Backoff)");
    tree.expect(0, "next: the next attempt at ")
        .expect(0, " (in ")
        .expect(0, "or later, when there is a slot");
    tree.expect(0, "Attempts: 1 of 2 downloads charged\n").expect(0, "1: ServerError");
    stage.let_go("busy");
    terminal.run("retry vmdi/busy").await.expect(0, "a new budget of 2 downloads");
    terminal.run("wait vmdi/busy").await.expect(0, "busy in namespace 'labs' ready\n");
}

/// A pipeline that may see images and nothing beside them: no Secrets, no pods, no other namespace.
pub(super) async fn may_read_little(stage: &Stage, terminal: &Terminal) {
    allow_images_only(stage).await;
    let kubeconfig = stage.cluster().service_account_kubeconfig(NAMESPACE, ACCOUNT).await.unwrap();
    let mark = stage.mark();
    let run = async |line: &str| {
        terminal.run_as(&kubeconfig, &format!("{line} -n {NAMESPACE}"), "").await
    };
    run("wait vmdi/good").await.expect(0, "ready\n");
    let tree = run("describe vmdi/good").await;
    tree.expect(0, "VMDiskImage labs/good: Succeeded").expect(0, "Usable: snapshot '");
    tree.expect(0, "Not shown\n").expect(0, "pods cannot be read: pods is forbidden");
    run("suspend vmdi/good").await.expect(1, "vmdiskimage.pelotech.ot/good cannot be suspended: ");
    let user = service_account_user(NAMESPACE, ACCOUNT);
    let asked = stage.audit(mark).into_iter().filter(|entry| entry.user == user);
    let kinds: Vec<String> = asked.map(|entry| entry.resource).collect();
    assert!(
        kinds.iter().any(|kind| kind == "pods") && !kinds.iter().any(|kind| kind == "secrets"),
        "{kinds:?}"
    );
}

async fn allow_images_only(stage: &Stage) {
    let role: Role = serde_json::from_value(json!({
        "metadata": {"name": ACCOUNT},
        "rules": [{"apiGroups": ["pelotech.ot"], "resources": ["vmdiskimages"], "verbs": ["get", "list", "watch"]}],
    }))
    .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }))
    .unwrap();
    let mut account = ServiceAccount::default();
    account.metadata.name = Some(ACCOUNT.to_owned());
    let (client, params) = (&stage.client, PostParams::default());
    Api::namespaced(client.clone(), NAMESPACE).create(&params, &account).await.unwrap();
    Api::namespaced(client.clone(), NAMESPACE).create(&params, &role).await.unwrap();
    Api::namespaced(client.clone(), NAMESPACE).create(&params, &binding).await.unwrap();
    let attributes = ResourceAttributes {
        group: Some("pelotech.ot".to_owned()),
        resource: Some("vmdiskimages".to_owned()),
        verb: Some("watch".to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        ..ResourceAttributes::default()
    };
    let user = Some(service_account_user(NAMESPACE, ACCOUNT));
    let right = SubjectAccessReviewSpec {
        user,
        resource_attributes: Some(attributes),
        ..Default::default()
    };
    stage.cluster().await_right(right).await.unwrap();
}

/// Names of objects are completed, by a shell and by kubectl.
pub(super) async fn type_less(terminal: &Terminal) {
    let links = terminal.path();
    for link in ["otctl", "kubectl-otctl", "kubectl_complete-otctl"] {
        symlink(env!("CARGO_BIN_EXE_otctl"), links.join(link)).unwrap();
    }
    let programs = Sources::from_env()
        .unwrap()
        .find_or_build(&[Program::Kubectl], &Progress::default())
        .unwrap();
    let mut kubectl = Command::new(&programs[&Program::Kubectl]);
    kubectl.args(["__complete", "otctl", "describe", "vmdi", "-n", NAMESPACE, "go"]);
    kubectl.env("PATH", links).env("KUBECONFIG", &terminal.kubeconfig);
    let told = stdout(&kubectl.output().await.unwrap());
    assert!(told.starts_with("good\n:4\n"), "{told}");

    let path = format!("{}:{}", links.display(), std::env::var("PATH").unwrap());
    let script = "source <(otctl completion bash); COMP_WORDS=(otctl wait -n labs vmdi/go); COMP_CWORD=4; COMP_TYPE=9
        _clap_complete_otctl otctl vmdi/go labs; echo \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).env("PATH", path).env("KUBECONFIG", &terminal.kubeconfig);
    assert_eq!(stdout(&bash.output().await.unwrap()), "vmdi/good\n");
}
