//! What the chart of the workspace controller has besides: the namespaces that it serves, and how it is removed.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::audit::service_account_user;
use otctl_kit::cluster::{Cluster, Target};
use otctl_kit::commit::Author;
use otctl_kit::kube_cluster::{Deadlines, KubeCluster, client};
use otctl_types::Workspace;
use otctl_types::names::WORKSPACE_FINALIZER;
use serde_json::{Value, json};
use workspace_controller::cli::{Args, Program, Task};
use workspace_controller::rbac::{RELEASE, RIGHTS};
use workspace_controller::release::release;
use xtask::charts::{self, NAMESPACE};

use crate::support::{Installation, objects, of_kind};

const CHART: &str = "workspace-controller";
/// A second release beside the one of all tests, since it is removed.
const LEAVING: &str = "leaving";

fn rules(object: &Value) -> Vec<PolicyRule> {
    serde_json::from_value(object["rules"].clone()).unwrap()
}

/// The object of that kind and name, in a namespace or in none.
fn named<'a>(objects: &'a [Value], kind: &str, name: &str, namespace: Option<&str>) -> &'a Value {
    let mut found = of_kind(objects, kind).into_iter().filter(|object| {
        object["metadata"]["name"] == name && object["metadata"]["namespace"].as_str() == namespace
    });
    found.next().unwrap_or_else(|| panic!("no {kind} {name} in {namespace:?}"))
}

#[test]
fn the_roles_are_the_lists_in_the_code() {
    let objects = objects(CHART, None, &["policy.name=limits", "policy.namespace=conf"]);
    let role = |name, namespace| rules(named(&objects, "Role", name, Some(namespace)));
    let cluster_role = |name| rules(named(&objects, "ClusterRole", name, None));
    assert_eq!(cluster_role(CHART), RIGHTS.cluster_rules());
    assert_eq!(cluster_role("workspace-controller-served"), RIGHTS.served_rules());
    assert_eq!(role("workspace-controller-events", "default"), RIGHTS.event_rules());
    assert_eq!(role(CHART, NAMESPACE), RIGHTS.installation_rules());
    assert_eq!(role("workspace-controller-policy", "conf"), RIGHTS.policy_rules("limits"));
    let released: Vec<PolicyRule> = RELEASE.iter().map(|rule| rule.policy_rule()).collect();
    assert_eq!(cluster_role("workspace-controller-release"), released);
    assert_eq!(of_kind(&objects, "Role").len(), 4, "and the Deployment's, which is not a list");
}

#[test]
fn what_it_makes_it_may_make_in_the_listed_namespaces_alone() {
    let objects = objects(CHART, None, &["namespaces={exams,labs}", "defaultNamespace=courses"]);
    let bindings = of_kind(&objects, "RoleBinding");
    let served =
        bindings.iter().filter(|it| it["roleRef"]["name"] == "workspace-controller-served");
    let namespaces: Vec<_> = served.map(|it| it["metadata"]["namespace"].clone()).collect();
    assert_eq!(namespaces, ["courses", "exams", "labs"]);
    let of_cluster = of_kind(&objects, "ClusterRoleBinding");
    assert!(of_cluster.iter().all(|it| it["roleRef"]["name"] != "workspace-controller-served"));
}

#[test]
fn namespaces_that_the_controller_refuses_are_refused_before() {
    let helm = charts::helm().unwrap();
    let refusal = |set| charts::render(&helm, CHART, None, &[set]).unwrap_err().to_string();
    for set in ["namespaces={labs,kube-labs}", "defaultNamespace=kube-system"] {
        let refusal = refusal(set);
        assert!(
            refusal.contains("belongs to Kubernetes, and no Workspace is made there"),
            "{refusal}"
        );
    }
    for set in ["namespaces={sync-operator}", "defaultNamespace=sync-operator"] {
        let refusal = refusal(set);
        assert!(
            refusal.contains("sync-operator is the namespace of the installation"),
            "{refusal}"
        );
    }
    for set in ["defaultNamespace=", "namespaces={Labs}"] {
        assert!(refusal(set).contains("amespace"), "{set}");
    }
}

/// The arguments of the only container of the only such workload.
fn arguments(objects: &[Value], kind: &str) -> Vec<String> {
    let container = &of_kind(objects, kind)[0]["spec"]["template"]["spec"]["containers"][0];
    serde_json::from_value(container["args"].clone()).unwrap()
}

fn program(objects: &[Value], kind: &str) -> Program {
    let arguments = arguments(objects, kind);
    let line = std::iter::once(CHART.to_owned()).chain(arguments.clone());
    Program::of(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn controller(objects: &[Value]) -> Box<Args> {
    let program = program(objects, "Deployment");
    let Program::Controller(args) = program else { panic!("{program:?}") };
    args
}

#[test]
fn the_program_takes_every_argument_of_its_chart() {
    let args = controller(&objects(CHART, None, &[]));
    let code = Program::of([CHART, "--default-namespace=labs"]).unwrap();
    let Program::Controller(code) = code else { panic!() };
    assert_eq!(args.settings.served_namespaces(), ["labs"]);
    assert_eq!(args.settings.dns_namespace, code.settings.dns_namespace);
    assert_eq!(args.settings.dns_pod_labels, code.settings.dns_pod_labels);
    assert_eq!(args.settings.dns_port, code.settings.dns_port);
    assert_eq!(args.settings.dns_cidrs, code.settings.dns_cidrs);
    assert_eq!(args.settings.ingress_selector, None);
    assert_eq!(args.kit.policy(), code.kit.policy());
    args.kit.timing().unwrap();

    let objects = objects(CHART, Some(&charts::full_values(CHART)), &[]);
    let full = controller(&objects);
    assert_eq!(full.settings.default_namespace, "courses");
    assert_eq!(full.settings.served_namespaces(), ["courses", "exams", "research"]);
    assert_eq!((full.settings.dns_namespace.as_str(), full.settings.dns_port), ("dns", 1053));
    assert_eq!(full.settings.dns_pod_labels, "app=coredns,tier=system".parse().unwrap());
    assert_eq!(full.settings.dns_cidrs.len(), 2);
    let ingress = "kubernetes.io/metadata.name=ingress/app.kubernetes.io/name=nginx";
    assert_eq!(full.settings.ingress_selector, Some(ingress.parse().unwrap()));
    let Program::Task(Task::ReleaseFinalizers(task)) = program(&objects, "Job") else { panic!() };
    assert_eq!(
        named(&objects, "Deployment", &task.deployment, Some(NAMESPACE))["kind"],
        "Deployment"
    );
}

/// Two Workspaces as the controller leaves them, and one that has come back from somewhere with another's finalizer too.
async fn workspaces_with_finalizers(installed: &Installation) -> Api<Workspace> {
    let workspaces: Api<Workspace> = Api::all(installed.cluster.admin());
    for (name, finalizers) in [
        ("leaving-1", json!([WORKSPACE_FINALIZER])),
        ("leaving-2", json!([])),
        ("leaving-3", json!(["example.com/theirs", WORKSPACE_FINALIZER])),
    ] {
        let workspace = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
            "metadata": {"name": name, "finalizers": finalizers},
            "spec": {"containers": [{"name": "web", "image": "example.com/web:1"}]},
        });
        let workspace = serde_json::from_value(workspace).unwrap();
        workspaces.create(&PostParams::default(), &workspace).await.unwrap();
    }
    workspaces
}

#[tokio::test(flavor = "multi_thread")]
async fn workspaces_can_be_deleted_once_the_release_is_removed() {
    let installed = Installation::shared().await;
    let folder = charts::folder(CHART);
    installed.kubectl(&["create", "namespace", LEAVING]).unwrap();
    let enforce = "pod-security.kubernetes.io/enforce=restricted";
    installed.kubectl(&["label", "namespace", LEAVING, enforce]).unwrap();
    // The guard of the other release would ask the hook of this one for rights that only its own knows not to ask for.
    let other = ["delete", "validatingadmissionpolicybinding", "workspace-controller-user"];
    installed.kubectl(&other).unwrap();
    let name = format!("fullnameOverride={LEAVING}");
    let install =
        ["install", LEAVING, folder.to_str().unwrap(), "--namespace", LEAVING, "--set", &name];
    installed.helm(&install).unwrap();
    let workspaces = workspaces_with_finalizers(installed).await;
    let uninstall = ["uninstall", LEAVING, "--namespace", LEAVING, "--timeout=5m"];
    let removed = tokio::task::spawn_blocking(move || {
        installed.helm(&uninstall).map_err(|error| format!("{error:#}"))
    });
    let hook = hook_pod(installed, &removed).await;
    let released = run_hook(installed, &hook).await;
    // The pod has ended well, which here nobody else tells.
    let pods: Api<Pod> = Api::namespaced(installed.cluster.admin(), LEAVING);
    let ended = json!({"status": {"phase": "Succeeded"}});
    let patch = Patch::Merge(&ended);
    pods.patch_status(&hook.name_any(), &PatchParams::default(), &patch).await.unwrap();
    removed.await.unwrap().unwrap();

    assert!(released >= 2, "{released} were released");
    let left = ["get", "all,sa,role,rolebinding", "--namespace", LEAVING, "--output=name"];
    let left = installed.kubectl(&left).unwrap();
    let left: Vec<_> = left.lines().filter(|it| *it != "serviceaccount/default").collect();
    assert_eq!(left, [""; 0], "the hook leaves nothing");
    for (name, finalizers) in
        [("leaving-1", &[][..]), ("leaving-2", &[]), ("leaving-3", &["example.com/theirs"])]
    {
        assert_eq!(workspaces.get(name).await.unwrap().finalizers(), finalizers, "{name}");
        workspaces.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert!(workspaces.get_opt("leaving-1").await.unwrap().is_none(), "nobody holds it");
}

/// The pod of the hook's Job, once it is made; what Helm says if it ends before.
async fn hook_pod(
    installed: &Installation,
    removed: &tokio::task::JoinHandle<Result<String, String>>,
) -> Pod {
    let pods: Api<Pod> = Api::namespaced(installed.cluster.admin(), LEAVING);
    let jobs = ListParams::default().labels("batch.kubernetes.io/job-name=leaving-release");
    let deadline = std::time::Instant::now() + crate::support::SOON;
    loop {
        if let Some(pod) = pods.list(&jobs).await.unwrap().items.pop() {
            return pod;
        }
        assert!(!removed.is_finished(), "Helm did not wait for the hook");
        assert!(std::time::Instant::now() < deadline, "the hook has no pod");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// What the hook's pod would do, under its account.
async fn run_hook(installed: &Installation, pod: &Pod) -> usize {
    let account = pod.spec.as_ref().unwrap().service_account_name.clone().unwrap();
    assert_eq!(account, "leaving-release");
    let mark = installed.cluster.audit().mark().unwrap();
    let config = installed.cluster.service_account_config(LEAVING, &account).await.unwrap();
    let cluster = KubeCluster::new(client(config).unwrap(), CHART, Deadlines::default());
    let cluster: Arc<dyn Cluster> = Arc::new(cluster);
    let author = Author { controller: CHART, at: Timestamp::now() };
    let deployment = Target::new::<Deployment>(Some(LEAVING), LEAVING);
    let released = release(&cluster, author, &deployment).await.unwrap();
    let requests = installed.cluster.audit().since(mark).unwrap();
    let user = service_account_user(LEAVING, &account);
    let verbs: Vec<_> = requests
        .iter()
        .filter(|it| it.user == user && it.is_success())
        .map(|it| (it.verb.as_str(), it.resource.as_str()))
        .collect();
    for right in [
        ("get", "deployments"),
        ("delete", "deployments"),
        ("list", "workspaces"),
        ("patch", "workspaces"),
    ] {
        assert!(verbs.contains(&right), "{right:?} is granted and not used: {verbs:?}");
    }
    released
}

#[test]
fn the_label_guard_names_the_users_that_the_chart_is_told_of() {
    let set = [
        "labelGuard.replicaSetUsers={maker}",
        "labelGuard.podUsers={maker}",
        "labelGuard.kubevirtUsers={maker}",
    ];
    let objects = objects(CHART, None, &set);
    let guard = named(&objects, "ValidatingAdmissionPolicy", "workspace-controller-label", None);
    let text = guard.to_string();
    assert!(text.contains("system:serviceaccount:sync-operator:workspace-controller"), "{text}");
    assert!(text.contains("maker") && !text.contains("kube-system"), "{text}");
}

/// `GROUP RESOURCE VERB` of everything that a guard asks about, as its expressions have it.
fn asked_rights(guard: &str) -> Vec<String> {
    let between = |text: &str, from: &str| {
        let (_, rest) = text.split_once(from).unwrap();
        rest.split_once("')").unwrap().0.to_owned()
    };
    let checks = guard.split("authorizer.").skip(1);
    let right = |it: &str| ["group('", "resource('", "check('"].map(|from| between(it, from));
    checks.map(|it| right(it).join(" ")).collect()
}

#[test]
fn the_role_of_the_guide_has_every_right_that_the_user_guard_asks_for() {
    let guide = xtask::repository::read("docs/using-workspaces.md").unwrap();
    let (_, rest) =
        guide.split_once("metadata: {name: workspace-parts, namespace: labs}\n").unwrap();
    let (role, _) = rest.split_once("\n---\n").unwrap();
    let role: Value = serde_saphyr::from_str(role).unwrap();
    let rules: Vec<PolicyRule> = serde_json::from_value(role["rules"].clone()).unwrap();
    let has = |words: &[&str]| {
        let is_in =
            |list: &Option<Vec<String>>, word: &str| list.iter().flatten().any(|it| it == word);
        rules.iter().any(|rule| {
            is_in(&rule.api_groups, words[0])
                && is_in(&rule.resources, words[1])
                && rule.verbs.iter().any(|it| it == words[2])
        })
    };
    let objects = objects(CHART, None, &[]);
    let guard = named(&objects, "ValidatingAdmissionPolicy", "workspace-controller-user", None);
    let asked = asked_rights(&guard.to_string());
    assert_eq!(asked.len(), 12, "{asked:?}");
    for right in asked {
        assert!(has(&right.split(' ').collect::<Vec<_>>()), "{right}");
    }
}
