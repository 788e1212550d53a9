//! What the API server makes of a child is no difference; what a person makes of it is one where it is ours, and an apply
//! takes it back.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::ResourceExt;
use kube::core::DynamicObject;
use kube::runtime::wait::await_condition;
use otctl_kit::cluster::ApiError;
use serde_json::json;
use workspace_controller::owned::{Stuck, differs, stuck};

use crate::edits::{self, Edit};
use crate::stage::Stage;

/// Makes a child, and tries each edit on one that nobody has edited before.
async fn try_edits(name: &str, all: Vec<Edit>) {
    let stage = Stage::new("owned").await;
    let child = stage.child(name);
    for edit in all {
        let made = stage.create(&child).await;
        assert_eq!(differs(&child, &made), None, "{name}: defaults of the server");
        try_edit(&stage, &child, &edit).await;
        stage.delete(&child).await;
    }
}

async fn try_edit(stage: &Stage, child: &DynamicObject, edit: &Edit) {
    let uid = stage.workspace.uid().unwrap();
    let expected = edit.difference.as_ref().map(|path| path.replace("UID", &uid));
    let edited = stage.edit(child, &edit.patch).await;
    assert_eq!(differs(child, &edited), expected, "{}", edit.patch);
    let repaired = stage.apply(child).await;
    assert_eq!(differs(child, &repaired), None, "{}", edit.patch);
    // The lists of KubeVirt have no keys: what others add to them goes with whatever apply comes next.
    if expected.is_none() && child.types.as_ref().unwrap().kind != "VirtualMachine" {
        let [before, after] = [&edited, &repaired].map(|it| it.metadata.generation);
        assert_eq!(before, after, "nothing was to be repaired: {}", edit.patch);
    }
}

fn with_metadata(edits: Vec<Edit>) -> Vec<Edit> {
    edits.into_iter().chain(edits::metadata()).chain(edits::annotations("revision")).collect()
}

/// What its pods find under the names of other entries is noted on a Deployment as well.
fn with_metadata_and_hosts(edits: Vec<Edit>) -> Vec<Edit> {
    let note = "/metadata/annotations/pelotech.ot~1hosts";
    let hosts = edits::replace(note, json!("x"), "metadata.annotations[pelotech.ot/hosts]");
    let all = edits.into_iter().chain(edits::metadata()).chain(edits::annotations("hosts"));
    all.chain([hosts]).collect()
}

#[tokio::test]
async fn a_policy_is_held_to_what_was_applied() {
    try_edits("policy", edits::policy().into_iter().chain(edits::metadata()).collect()).await;
}

#[tokio::test]
async fn services_are_held_to_what_was_applied() {
    try_edits("service api-server", with_metadata(edits::service())).await;
    try_edits("service worker", with_metadata(Vec::new())).await;
    try_edits("service attacker", with_metadata(Vec::new())).await;
}

#[tokio::test]
async fn deployments_are_held_to_what_was_applied() {
    try_edits("deployment api-server", with_metadata_and_hosts(edits::deployment())).await;
    try_edits("deployment worker", with_metadata_and_hosts(Vec::new())).await;
}

/// A claim that was deleted stays until nobody uses it, so all edits are tried on one.
#[tokio::test]
async fn a_claim_is_held_to_its_metadata() {
    let stage = Stage::new("owned").await;
    let made = stage.child("claim attacker");
    let observed = stage.create(&made).await;
    assert_eq!(differs(&made, &observed), None, "defaults of the server");
    let held = stage.held_claim("attacker", observed);
    let note = "/metadata/annotations/pelotech.ot~1image";
    let image = edits::replace(note, json!("x"), "metadata.annotations[pelotech.ot/image]");
    for edit in edits::metadata().into_iter().chain(edits::annotations("image")).chain([image]) {
        try_edit(&stage, &held, &edit).await;
    }
}

#[tokio::test]
async fn machines_are_held_to_what_was_applied() {
    try_edits("machine attacker", with_metadata(edits::machine())).await;
    try_edits("machine victim", with_metadata(edits::typed_machine())).await;
}

/// What the controllers of Kubernetes write on a Deployment is theirs.
#[tokio::test]
async fn a_deployment_that_is_carried_out_is_as_it_was_applied() {
    let stage = Stage::new("carried-out").await;
    let child = stage.child("deployment api-server");
    stage.create(&child).await;
    let api: Api<Deployment> = Api::namespaced(stage.admin.clone(), &stage.namespace);
    let has_pods = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|it| it.status.as_ref());
        status.is_some_and(|status| status.replicas == Some(2))
    };
    await_condition(api, &child.name_any(), has_pods).await.unwrap();
    assert_eq!(differs(&child, &stage.read(&child).await), None);
}

#[tokio::test]
async fn a_field_that_is_not_asked_for_any_more_is_a_difference_and_goes() {
    let mut stage = Stage::new("dropped").await;
    let [deployment, service] = ["deployment api-server", "service api-server"];
    for child in [deployment, service] {
        stage.create(&stage.child(child)).await;
    }
    let entry = stage.container_mut("api-server");
    (entry.liveness_probe, entry.command) = (None, Vec::new());
    entry.env.remove(0);
    entry.ports.retain(|port| port.container_port == 9090);
    for name in [deployment, service] {
        let child = stage.child(name);
        let noted = Some("metadata.annotations[pelotech.ot/revision]".to_owned());
        assert_eq!(differs(&child, &stage.read(&child).await), noted);
        let applied = stage.apply(&child).await;
        assert_eq!(differs(&child, &applied), None);
    }
    let deployment = stage.read(&stage.child(deployment)).await;
    let container = &deployment.data["spec"]["template"]["spec"]["containers"][0];
    assert!(container["livenessProbe"].is_null() && container["command"].is_null());
    let names = |list: &serde_json::Value| -> Vec<_> {
        list.as_array().unwrap().iter().map(|it| it["name"].clone()).collect()
    };
    assert!(!names(&container["env"]).contains(&json!("EMPTY")));
    assert_eq!(names(&container["ports"]), ["metrics"]);
    let service = stage.read(&stage.child(service)).await;
    assert_eq!(names(&service.data["spec"]["ports"]), ["metrics"]);
}

/// Each is refused by the server as well, so that nothing is stripped or made anew without need. What is stripped is the
/// same object still, with what others added to it, and no field of it is nobody's to take back later.
#[tokio::test]
async fn what_no_apply_can_repair_is_known_before_it_is_tried() {
    let mut stage = Stage::new("stuck").await;
    let ports = "/spec/template/spec/containers/0/ports";
    for (name, ports, field) in [
        ("service api-server", "/spec/ports", "port"),
        ("deployment api-server", ports, "containerPort"),
    ] {
        let child = stage.child(name);
        let made = stage.create(&child).await;
        assert_eq!(stuck(&child, &made), None);
        let place = format!("{ports}/3");
        let moved = json!([{"op": "replace", "path": format!("{place}/{field}"), "value": 99}]);
        let edited = stage.edit(&child, &moved).await;
        assert_eq!(stuck(&child, &edited), Some(Stuck::Ports(vec![place.clone()])));
        let refused = stage.try_to_apply(&child).await.unwrap_err();
        assert!(refused.tells_of_duplicate(), "{refused}");
        let old = stage.strip(&made, &place).await;
        assert!(matches!(old, Err(ApiError::Conflict { .. })), "{old:?}");
        let stripped = stage.strip_at_last(&child, &place).await;
        assert_eq!(stuck(&child, &stripped), None);
        let applied = stage.apply(&child).await;
        assert_eq!(differs(&child, &applied), None);
        assert_eq!(applied.metadata.uid, made.metadata.uid);
        let count = |it: &DynamicObject| it.data.pointer(ports).unwrap().as_array().unwrap().len();
        assert_eq!(count(&applied), count(&made), "{name}");
    }
    a_name_is_free_again_once_its_port_is_not_asked_for(&mut stage).await;
    let address = stage.create(&stage.child("service api-server")).await;
    stage.container_mut("api-server").ports.clear();
    let wanted = stage.child("service api-server");
    assert_eq!(stuck(&wanted, &address), Some(Stuck::Address));
    assert!(matches!(stage.try_to_apply(&wanted).await, Err(ApiError::Invalid { .. })));
}

/// What was put back is ours alone: with its entry's port it goes.
async fn a_name_is_free_again_once_its_port_is_not_asked_for(stage: &mut Stage) {
    let in_pods = "/spec/template/spec/containers/0/ports";
    stage.container_mut("api-server").ports.retain(|port| port.container_port != 9090);
    for (name, ports) in [("service api-server", "/spec/ports"), ("deployment api-server", in_pods)]
    {
        let child = stage.child(name);
        let applied = stage.apply(&child).await;
        assert_eq!(differs(&child, &applied), None);
        let ports = applied.data.pointer(ports).unwrap().as_array().unwrap();
        assert!(ports.iter().all(|port| port["name"] != "metrics"), "{ports:?}");
        stage.delete(&child).await;
    }
}

/// An edit of the spec moves names as it likes: what is not asked for any more goes in the same apply.
#[tokio::test]
async fn a_name_that_an_edit_of_the_spec_moves_is_moved() {
    let mut stage = Stage::new("moved").await;
    let children = ["service api-server", "deployment api-server"];
    for child in children {
        stage.create(&stage.child(child)).await;
    }
    let ports = &mut stage.container_mut("api-server").ports;
    ports.iter_mut().filter(|it| it.container_port == 9090).for_each(|it| it.container_port = 99);
    for child in children {
        let child = stage.child(child);
        let applied = stage.apply(&child).await;
        assert_eq!((differs(&child, &applied), stuck(&child, &applied)), (None, None));
    }
}
