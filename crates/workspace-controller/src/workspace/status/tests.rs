//! A table for each condition, and for what is told in one sentence.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use otctl_kit::cluster::{ApiError, Target};
use otctl_kit::reconciler::{Refusal, RefusalCause, Undone};
use otctl_types::condition::{self, find};
use otctl_types::diskimage::Phase;
use otctl_types::workspace::WorkspaceStatus;
use serde_json::json;

use super::is_news;
use crate::grounds::Ground;
use crate::workspace::decide::{decide, refused};
use crate::workspace::fixture::{Facts, LABS, bare, now, spec_of_image, with_machine, workspace};

/// What is told after a pass.
fn told(facts: Facts) -> WorkspaceStatus {
    decide(&facts.observed(), now()).status.expect("something is to be told")
}

/// `Status Reason: message` of a condition; `-` when it is absent.
fn condition(status: &WorkspaceStatus, kind: &str) -> String {
    match find(&status.conditions, kind) {
        None => "-".to_owned(),
        Some(it) if it.message.is_empty() => format!("{} {}", it.status, it.reason),
        Some(it) => format!("{} {}: {}", it.status, it.reason, it.message),
    }
}

fn check(facts: Facts, kind: &str, expected: &str) {
    assert_eq!(condition(&told(facts), kind), expected, "{kind}");
}

/// `Phase (Reason of Ready, parts): message`.
fn check_whole(facts: Facts, expected: &str) {
    let status = told(facts);
    let ready = find(&status.conditions, condition::READY).unwrap();
    let (phase, parts) = (status.phase.unwrap().as_str(), status.ready_parts.unwrap());
    let whole = format!("{phase} ({}, {parts}): {}", ready.reason, status.message.unwrap());
    assert_eq!(whole, expected);
}

fn ready() -> Facts {
    workspace().isolated().runs("api", 1).started(&["api"]).finalized()
}

const CONFLICT: &str = "Deployment labs/lab--api exists and belongs to something else; rename or delete it, or give this workspace or its entry another name";
const NOT_LISTED: &str = "namespace other is not one that the controller's chart lists; create the Workspace anew in one of: exams, labs";

#[test]
fn accepted() {
    let check = |facts: Facts, expected: &str| check(facts, condition::ACCEPTED, expected);
    check(workspace().ticket("1"), "True Accepted");
    check(with_machine().ticket("1").image_in(Phase::Failed), "True Accepted");
    check(
        workspace().foreign::<Deployment>("lab--api"),
        &format!("False NameConflict: {CONFLICT}"),
    );
    check(
        workspace().spec(|spec| spec.namespace = Some("other".to_owned())),
        &format!("False NamespaceNotAllowed: {NOT_LISTED}"),
    );
}

#[test]
fn admitted() {
    let check = |facts: Facts, expected: &str| check(facts, condition::ADMITTED, expected);
    let waiting = || workspace().ticket("1");
    check(waiting(), "False Queued: waits for a slot");
    check(waiting().behind(0), "False SlotsBusy: waits for a slot");
    check(
        waiting().behind(1),
        "False SlotsBusy: waits for a slot, 1 workspace was there before it",
    );
    check(
        waiting().behind(4),
        "False SlotsBusy: waits for a slot, 4 workspaces were there before it",
    );
    check(
        waiting().policy(|policy| policy.workspace_concurrency = 0),
        "False Paused: nobody is admitted: workspaceConcurrency of the policy is 0",
    );
    check(waiting().slot(1), "True Admitted");
    check(workspace().open(1), "True Admitted");
    check(ready(), "True Admitted: its start is over: no slot is needed any more");
    check(
        with_machine().ticket("1").image_in(Phase::Syncing),
        "False AwaitingImages: VMDiskImage 'debian' is waited for: Syncing: the words of the image",
    );
    check(
        waiting().ground(Ground::Terminating),
        "False NamespaceTerminating: namespace 'labs' is being deleted; this goes on when one of that name is there again",
    );
    check(
        waiting().suspended(),
        "False Suspended: suspended; set suspended to false to start it again",
    );
    check(ready().deleted(), "False Deleting");
}

#[test]
fn creating_works() {
    let check = |facts: Facts, expected: &str| check(facts, condition::CREATING_WORKS, expected);
    check(workspace().ticket("1"), "False Queued: waits for a slot");
    check(workspace().slot(1), "True Creating: parts are being made");
    check(workspace().open(1), "True Creating: parts are being made");
    // The pass that makes the last of it tells that all is made.
    check(workspace().open(1).isolated().service("api"), "False AllCreated");
    check(workspace().open(1).isolated().runs("api", 0), "False AllCreated");
    check(ready(), "False AllCreated");
    check(ready().container("web"), "False Queued: waits for a slot");
    check(
        with_machine().isolated().service("db").started(&["db"]).without_kubevirt(),
        "False KubeVirtNotInstalled: virtual machines are asked for with `instance`, and KubeVirt is not installed in this cluster: install it, and this goes on by itself",
    );
    check(
        with_machine().isolated().service("db").started(&["db"]).without_image(),
        "False ImageNotFound: there is no VMDiskImage 'debian' in namespace labs: create it there, or say in `image` of entry 'db' how it is made",
    );
    let lost = workspace().started(&["api"]).ground(Ground::Absent);
    check(
        lost,
        "False NamespaceNotFound: there is no namespace 'labs': create it, and this goes on by itself",
    );
}

#[test]
fn network_ready() {
    let check = |facts: Facts, expected: &str| check(facts, condition::NETWORK_READY, expected);
    check(workspace().ticket("1"), "False Queued: there is no network policy");
    check(workspace().slot(1), "False Creating: there is no network policy");
    check(ready(), "True Isolated");
    check(
        workspace().open(1).spec(|spec| spec.network.isolate = false),
        "True NotIsolated: network.isolate is false: whatever the cluster lets through reaches the parts",
    );
    let open = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]});
    check(
        ready().other_policy(&open),
        "False WeakenedByOtherPolicy: other network policies let through what its own does not: other; remove them, or narrow their podSelector",
    );
    let narrow = json!({"podSelector": {"matchLabels": {"app": "theirs"}}, "policyTypes": ["Ingress"], "ingress": [{}]});
    check(ready().other_policy(&narrow), "True Isolated");
}

#[test]
fn images_ready() {
    let check = |facts: Facts, expected: &str| check(facts, condition::IMAGES_READY, expected);
    check(ready(), "True NothingAsked");
    check(with_machine().ticket("1"), "True AllReady");
    check(
        with_machine().ticket("1").image_in(Phase::Failed),
        "False ImageFailed: VMDiskImage 'debian' has failed: the words of the image",
    );
    let brings = with_machine().ticket("1").without_image();
    let brings = brings.entry_of("db", |entry| entry.spec.image = Some(spec_of_image()));
    check(brings, "False Creating: VMDiskImage 'debian' is to be made");
    // What only a person can help with is told first.
    let two = bare().ticket("1").image_entry("one").image_entry("two");
    let two = two.entry_of("one", |entry| {
        entry.spec.vm_disk_image_name = "missing".to_owned();
    });
    check(
        two.image_in(Phase::Failed),
        "False ImageFailed: VMDiskImage 'debian' has failed: the words of the image",
    );
}

#[test]
fn virtual_machines_ready() {
    let check =
        |facts: Facts, expected: &str| check(facts, condition::VIRTUAL_MACHINES_READY, expected);
    check(ready(), "True NothingAsked");
    check(bare().image_entry("data").ticket("1"), "True NothingAsked");
    check(
        with_machine().ticket("1"),
        "False Creating: virtual machine 'db': it has not been made yet",
    );
    let runs = |word: &str| with_machine().isolated().machine_is("db", word).started(&["db"]);
    check(runs("Running"), "True AllReady");
    check(runs("Starting"), "False Progressing: virtual machine 'db': KubeVirt says Starting");
    check(
        runs("ErrorUnschedulable"),
        "False Unschedulable: virtual machine 'db': KubeVirt says ErrorUnschedulable",
    );
}

#[test]
fn containers_ready() {
    let check = |facts: Facts, expected: &str| check(facts, condition::CONTAINERS_READY, expected);
    check(with_machine().ticket("1"), "True NothingAsked");
    check(workspace().ticket("1"), "False Creating: container 'api': it has not been made yet");
    check(ready(), "True AllReady");
    let starting = || workspace().isolated().open(1).runs("api", 0);
    check(starting(), "False Progressing: container 'api': 0 of 1 pods are ready");
    check(
        starting().pod_waits("api", "ImagePullBackOff", "no such image"),
        "False ImagePullBackOff: container 'api': no such image",
    );
    // What is broken comes before what is on its way, whichever is first in the spec.
    let two = workspace().container("web").isolated().open(1).runs("api", 0).runs("web", 0);
    check(
        two.pod_waits("web", "ImagePullBackOff", "no such image"),
        "False ImagePullBackOff: container 'web': no such image",
    );
}

#[test]
fn ready_is_the_first_that_is_not_as_it_should_be() {
    check_whole(ready(), "Ready (AllReady, 1/1): every part is ready");
    check_whole(workspace().ticket("1"), "Provisioning (Queued, 0/1): waits for a slot");
    check_whole(workspace().slot(1), "Provisioning (Progressing, 0/1): parts are being made");
    check_whole(
        workspace().isolated().open(1).runs("api", 0),
        "Provisioning (Progressing, 0/1): container 'api': 0 of 1 pods are ready",
    );
    check_whole(
        workspace().isolated().open_since(1, 3600).runs("api", 0),
        "Provisioning (Degraded, 0/1): container 'api': 0 of 1 pods are ready",
    );
    check_whole(
        workspace().isolated().runs("api", 0).started(&["api"]),
        "Provisioning (Degraded, 0/1): container 'api': 0 of 1 pods are ready",
    );
    check_whole(
        workspace()
            .isolated()
            .runs("api", 1)
            .started(&["api"])
            .spec(|spec| spec.containers[0].image = "api:2".to_owned()),
        "Provisioning (Progressing, 0/1): container 'api': it is being made or changed",
    );
    check_whole(
        with_machine().ticket("1").image_in(Phase::Failed),
        "Failed (ImageFailed, 0/1): VMDiskImage 'debian' has failed: the words of the image",
    );
    check_whole(
        workspace().foreign::<Deployment>("lab--api"),
        &format!("Failed (NameConflict, 0/1): {CONFLICT}"),
    );
    check_whole(
        workspace().suspended(),
        "Suspended (Suspended, 0/1): suspended; set suspended to false to start it again",
    );
    check_whole(
        workspace().started(&["api"]).ground(Ground::Terminating),
        "Provisioning (NamespaceTerminating, 0/1): namespace 'labs' is being deleted; this goes on when one of that name is there again",
    );
    let open = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]});
    check_whole(
        ready().other_policy(&open),
        "Provisioning (WeakenedByOtherPolicy, 1/1): other network policies let through what its own does not: other; remove them, or narrow their podSelector",
    );
}

#[test]
fn reconciling_stalled_and_deleting_are_there_only_while_true() {
    let check = |facts: Facts, expected: [&str; 3]| {
        let status = told(facts);
        let kinds = [condition::RECONCILING, condition::STALLED, condition::DELETING];
        let found = kinds.map(|kind| find(&status.conditions, kind).map(|it| it.reason.clone()));
        assert_eq!(found.map(|it| it.unwrap_or("-".to_owned())), expected);
    };
    check(ready(), ["-", "-", "-"]);
    check(workspace().ticket("1"), ["Queued", "-", "-"]);
    check(workspace().open(1), ["Progressing", "-", "-"]);
    check(with_machine().ticket("1").image_in(Phase::Failed), ["-", "ImageFailed", "-"]);
    check(with_machine().image_in(Phase::Failed).suspended(), ["-", "-", "-"]);
    check(workspace().foreign::<Service>("lab--api"), ["-", "NameConflict", "-"]);
    check(workspace().suspended(), ["-", "-", "-"]);
    check(ready().suspended().pod_going("api", 0), ["Suspended", "-", "-"]);
    check(ready().deleted().pod_going("api", 0), ["Deleting", "-", "Deleting"]);
    check(
        workspace().foreign::<Service>("lab--api").deleted().finalized(),
        ["Deleting", "-", "Deleting"],
    );
}

#[test]
fn deleting_names_what_does_not_end() {
    let leaving = || ready().deleted();
    let check = |facts: Facts, expected: &str| {
        assert_eq!(told(facts).message.unwrap(), expected);
    };
    check(leaving().pod_going("api", 0), "waits for its pods and parts to end");
    check(leaving().pod_going("api", 29), "waits for its pods and parts to end");
    check(leaving().pod_going("api", 30), "these pods do not end: lab--api-x");
    let without_pods =
        "these parts do not go: Deployment lab--api (finalizers: foregroundDeletion)";
    check(leaving().deployment_going(29), "waits for its pods and parts to end");
    check(leaving().deployment_going(30), without_pods);
    check(leaving().deployment_going(30).pod_going("api", 30), "these pods do not end: lab--api-x");
    let kept = "its pods and parts are gone, and finalizers of others keep it: example.com/backup";
    check(workspace().deleted().finalized().kept(), kept);
    check(leaving().kept(), "waits for its pods and parts to end");
}

#[test]
fn conditions_are_in_order_and_of_the_generation_that_was_judged() {
    let status = told(workspace().open(1));
    let kinds: Vec<_> = status.conditions.iter().map(|it| &*it.type_).collect();
    let order = [
        "Accepted",
        "Admitted",
        "CreatingWorks",
        "NetworkReady",
        "ImagesReady",
        "VirtualMachinesReady",
        "ContainersReady",
        "Ready",
        "Reconciling",
    ];
    assert_eq!(kinds, order);
    assert_eq!(status.observed_generation, Some(1));
    assert!(status.conditions.iter().all(|it| it.observed_generation == Some(1)));
}

#[test]
fn a_refused_write_is_told_where_people_look() {
    let told = |error: &ApiError, facts: Facts| {
        let target = Target::new::<Service>(Some(LABS), "lab--api");
        let refusal = Refusal { target: &target, cause: RefusalCause::Api(error) };
        refused(&facts.observed(), &Undone::of(refusal), now()).unwrap().status
    };
    let quota = ApiError::Forbidden {
        detail: "exceeded quota: labs".to_owned(),
        quota: true,
        namespace_terminating: false,
    };
    let status = told(&quota, workspace().open(1));
    let words = "Service labs/lab--api was refused by a quota: exceeded quota: labs";
    assert_eq!(condition(&status, condition::READY), format!("False QuotaExceeded: {words}"));
    assert_eq!(
        condition(&status, condition::CREATING_WORKS),
        format!("False QuotaExceeded: {words}")
    );
    assert_eq!(status.message.as_deref(), Some(words));
    assert_eq!(condition(&status, condition::STALLED), "-");
    let invalid = ApiError::Invalid { detail: "spec.ports: too many".to_owned() };
    let status = told(&invalid, workspace().open(1));
    assert!(condition(&status, condition::STALLED).starts_with("True Rejected"));
    let target = Target::new::<Service>(Some(LABS), "lab--api");
    let found = ObjectMeta::default();
    let foreign = Refusal { target: &target, cause: RefusalCause::Foreign(&found) };
    let status = refused(&workspace().open(1).observed(), &Undone::of(foreign), now());
    let status = status.unwrap().status;
    assert!(condition(&status, condition::ACCEPTED).starts_with("False NameConflict: Service"));
}

/// What was told stands, but for the reason; nothing is judged or aggregated that might meet the same defect again.
#[test]
fn a_defect_is_told_and_costs_nobody_a_slot() {
    let target = Target::new::<Service>(Some(LABS), "lab--api");
    let told = |facts: Facts| {
        let panicked = Refusal { target: &target, cause: RefusalCause::Panicked { message: "x" } };
        let status = refused(&facts.observed(), &Undone::of(panicked), now()).unwrap().status;
        assert!(condition(&status, condition::READY).starts_with("False InternalError"));
        assert!(status.message.as_ref().unwrap().contains("a defect of its own"), "{status:?}");
        status
    };
    let numbers = |status: &WorkspaceStatus| {
        (status.last_turn, status.open_turn.as_ref().map(|turn| turn.number))
    };
    assert_eq!(numbers(&told(workspace().ticket("1").slot(1))), (Some(1), None), "given back");
    assert!(told(workspace().slot(1)).ticket.is_some(), "it keeps its place");
    assert_eq!(numbers(&told(workspace().open_since(1, 1))).1, Some(1), "its time is not over");
    let late = told(workspace().open_since(1, 1_000_000));
    assert_eq!(numbers(&late).1, None);
    assert_eq!(late.started_parts, [""; 0], "nothing of it is known to have started");
}

/// Of whatever it is a child, and whoever finds it first: the watches, or the API server.
#[test]
fn what_an_earlier_workspace_of_its_name_left_is_told_and_is_no_failure() {
    let words = "Service labs/lab--api was made for an earlier workspace of this name, which is gone; it is waited for until garbage collection has taken it. If it stays, delete it by hand";
    let check = |status: &WorkspaceStatus, admitted: &str| {
        assert_eq!(status.phase.map(|phase| phase.as_str()), Some("Provisioning"));
        assert_eq!(status.message.as_deref(), Some(words));
        assert_eq!(condition(status, condition::ACCEPTED), "True Accepted");
        assert_eq!(condition(status, condition::ADMITTED), admitted);
        let ready = condition(status, condition::READY);
        assert_eq!(ready, format!("False OldChildTerminating: {words}"));
        assert_eq!(condition(status, condition::STALLED), "-");
    };
    let seen = told(workspace().ticket("3").left::<Service>("lab--api"));
    check(&seen, &format!("False OldChildTerminating: {words}"));
    let target = Target::new::<Service>(Some(LABS), "lab--api");
    let owner = json!({
        "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace", "name": "lab", "uid": "earlier",
        "controller": true,
    });
    let found = serde_json::from_value(json!({"ownerReferences": [owner]})).unwrap();
    let refusal = Refusal { target: &target, cause: RefusalCause::Foreign(&found) };
    let refused = refused(&workspace().open(1).observed(), &Undone::of(refusal), now());
    check(&refused.unwrap().status, "True Admitted");
    let tended = told(workspace().started(&["api"]).isolated().left::<Service>("lab--api"));
    assert_eq!(tended.message.as_deref(), Some(words), "also when it had its start");
    assert_eq!(tended.phase.map(|phase| phase.as_str()), Some("Provisioning"));
}

/// Whether the pods that its policy outlives have ended is not known.
#[test]
fn one_that_goes_from_where_nobody_may_look_says_so() {
    let leaving = || workspace().started(&["api"]).deleted().finalized();
    let status = told(leaving().ground(Ground::OutOfReach));
    let message = status.message.unwrap();
    assert!(message.starts_with("the controller may not look into namespace 'labs'"), "{message}");
    let status = told(leaving());
    assert_eq!(status.message.as_deref(), Some("waits for its pods and parts to end"));
}

#[test]
fn a_revision_is_recorded_once_it_is_used() {
    let revision = |facts: Facts| {
        let resources = told(facts).resource_status.unwrap();
        resources.virtual_machines[0].revision.clone().unwrap_or_default()
    };
    assert_eq!(revision(with_machine().ticket("1")), "");
    assert_eq!(revision(with_machine().isolated().machine_is("db", "Running").open(1)), "r1");
    let data = || bare().image_entry("data").isolated();
    assert_eq!(revision(data().ticket("1")), "");
    assert_eq!(revision(data().open(1).service("data")), "r1");
}

/// Phase, name and revision are of one image: somebody asks for that one again.
#[test]
fn what_is_told_of_an_image_is_of_the_one_that_its_entry_names() {
    let fedora = with_machine().isolated().machine_is("db", "Running").started(&["db"]);
    let fedora = fedora.copied("db", "debian").entry_of("db", |entry| {
        entry.spec.vm_disk_image_name = "fedora".to_owned();
    });
    let status = told(fedora);
    let report = &status.resource_status.as_ref().unwrap().virtual_machines[0];
    let image = (report.image.as_deref(), report.phase.as_deref(), report.revision.as_deref());
    assert_eq!(image, (Some("fedora"), Some("NotFound"), None));
    assert_eq!((&*status.disks[0].image, &*status.disks[0].revision), ("debian", "r1"));
}

#[test]
fn a_step_of_what_is_on_its_way_is_no_news() {
    let before = told(workspace().isolated().open(1).service("api"));
    let with = |change: &dyn Fn(&mut WorkspaceStatus)| {
        let mut after = before.clone();
        change(&mut after);
        is_news(Some(&before), &after)
    };
    assert!(is_news(None, &before));
    assert!(!with(&|_| {}));
    let ready = |status: &mut WorkspaceStatus, change: &dyn Fn(&mut _)| {
        let all = status.conditions.iter_mut();
        all.filter(|it| it.type_ == condition::CONTAINERS_READY).for_each(change);
    };
    assert!(!with(&|it| ready(it, &|ready| ready.message = "0 of 3 pods are ready".to_owned())));
    assert!(with(&|it| ready(it, &|ready| ready.reason = "ImagePullBackOff".to_owned())));
    assert!(with(&|it| ready(it, &|ready| ready.status = "True".to_owned())));
    assert!(with(&|it| it.ready_parts = Some("1/1".to_owned())));
    assert!(with(&|it| it.observed_generation = Some(2)));
    assert!(with(&|it| it.last_turn = Some(9)));
    assert!(!with(&|it| it.message = Some("in other words".to_owned())));
}
