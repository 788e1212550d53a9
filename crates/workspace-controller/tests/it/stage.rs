//! A Workspace that exists, on an API server that knows its kinds, and the requests of its controller.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{HostAlias, Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use local_cluster::{LocalCluster, Options};
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request, Target, erase, typed};
use otctl_kit::kube_cluster::{Deadlines, KubeCluster};
use otctl_types::condition::Reason;
use otctl_types::diskimage::{Current, VMDiskImageStatus};
use otctl_types::names::{ENTRY_LABEL, WORKSPACE_CONTROLLER, WORKSPACE_LABEL};
use otctl_types::workspace::{Container, VirtualMachine};
use otctl_types::{VMDiskImage, Workspace};
use policy::Policy;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::time::Instant;
use workspace_controller::aggregate;
use workspace_controller::children::deployment::deployment;
use workspace_controller::children::host_aliases::host_aliases;
use workspace_controller::children::machine::{Power, machine};
use workspace_controller::children::network_policy::network_policy;
use workspace_controller::children::{self, claim};
use workspace_controller::children::{Facts, service};
use workspace_controller::config::Settings;
use workspace_controller::images::Origin;

/// The definition of a kind that is not of the repository.
const VIRTUAL_MACHINES: &str = include_str!("virtualmachines.yaml");
/// The revision of every image.
const REVISION: &str = "0123456789abcdef";
/// Who edits by hand.
const PERSON: &str = "kubectl-edit";

/// How long Kubernetes may take to carry something out. Usually well below a second.
const WITHIN: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The cluster that the tests share. It has no nodes: pods wait for one for ever.
async fn cluster() -> &'static LocalCluster {
    static KINDS: OnceCell<()> = OnceCell::const_new();
    let bare = || Options { nodes: 0, storage: false, ..Options::default() };
    let cluster = LocalCluster::shared(bare).await.unwrap();
    KINDS.get_or_init(|| install_kinds(cluster.admin())).await;
    cluster
}

async fn install_kinds(admin: Client) {
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("crds");
    let texts = ["vmdiskimages", "workspaces"].map(|plural| {
        std::fs::read_to_string(crds.join(format!("{plural}.pelotech.ot.yaml"))).unwrap()
    });
    let api: Api<CustomResourceDefinition> = Api::all(admin);
    for text in texts.iter().map(String::as_str).chain([VIRTUAL_MACHINES]) {
        let crd: CustomResourceDefinition = serde_saphyr::from_str(text).unwrap();
        let apply = PatchParams::apply("tests").force();
        api.patch(&crd.name_any(), &apply, &Patch::Apply(&crd)).await.unwrap();
        await_condition(api.clone(), &crd.name_any(), is_crd_established()).await.unwrap();
    }
}

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    settings: Settings,
}

/// A Workspace in a namespace of its own.
pub(crate) struct Stage {
    pub(crate) admin: Client,
    pub(crate) workspace: Workspace,
    pub(crate) namespace: String,
    controller: KubeCluster,
    settings: Settings,
    policy: Policy,
}

impl Stage {
    /// With the workspace of `full.yaml`.
    pub(crate) async fn new(prefix: &str) -> Self {
        let cluster = cluster().await;
        let namespace = cluster.namespace(prefix).await.unwrap();
        let mut workspace: Workspace =
            serde_saphyr::from_str(include_str!("../full.yaml")).unwrap();
        workspace.metadata.name = Some(namespace.clone());
        workspace.spec.namespace = Some(namespace.clone());
        let workspaces: Api<Workspace> = Api::all(cluster.admin());
        let workspace = workspaces.create(&PostParams::default(), &workspace).await.unwrap();
        let config = cluster.admin_config();
        let client = otctl_kit::kube_cluster::client(config).unwrap();
        let controller = KubeCluster::new(client, WORKSPACE_CONTROLLER, Deadlines::default());
        let flag = format!("--default-namespace={namespace}");
        let Program { settings } = Program::parse_from(["workspace-controller", &flag]);
        let policy = Policy::default();
        Self { admin: cluster.admin(), workspace, namespace, controller, settings, policy }
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        let (workspace, namespace) = (&self.workspace, self.namespace.as_str());
        Facts { workspace, namespace, settings: &self.settings, policy: &self.policy }
    }

    pub(crate) fn container(&self, name: &str) -> &Container {
        let mut all = self.workspace.spec.containers.iter();
        all.find(|entry| entry.name == name).unwrap()
    }

    pub(crate) fn container_mut(&mut self, name: &str) -> &mut Container {
        let mut all = self.workspace.spec.containers.iter_mut();
        all.find(|entry| entry.name == name).unwrap()
    }

    fn machine(&self, name: &str) -> &VirtualMachine {
        let mut all = self.workspace.spec.virtual_machines.iter();
        all.find(|entry| entry.name == name).unwrap()
    }

    /// A child by a short name, as it is to be applied.
    pub(crate) fn child(&self, name: &str) -> Box<DynamicObject> {
        let facts = self.facts();
        match name.split_once(' ').unwrap_or((name, "")) {
            ("policy", _) => erase(&network_policy(&facts)),
            ("service", "attacker") => {
                erase(&service::of_machine(&facts, self.machine("attacker"), None))
            }
            ("service", entry) => {
                erase(&service::of_container(&facts, self.container(entry), None))
            }
            ("deployment", entry) => {
                let entry = self.container(entry);
                erase(&deployment(&facts, entry, entry.replicas, self.aliases()))
            }
            ("claim", entry) => {
                let entry = self.machine(entry);
                erase(&claim::claim(&facts, entry, &image(entry)).unwrap())
            }
            ("machine", entry) => {
                let entry = self.machine(entry);
                let instance = entry.spec.instance.as_ref().unwrap();
                erase(&machine(&facts, (entry, instance), "disk", Power::AsAsked))
            }
            other => panic!("there is no child {other:?}"),
        }
    }

    /// What the API server says of the Workspace with another spec, and then of each child of it; nothing is stored.
    pub(crate) async fn try_spec(&mut self, spec: &Value) -> Result<(), Refusal> {
        let tried: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
            "metadata": {"name": format!("{}-try", self.namespace)}, "spec": spec,
        }))
        .unwrap();
        let kind = ApiResource::erase::<Workspace>(&());
        let all: Api<DynamicObject> = Api::all_with(self.admin.clone(), &kind);
        let made = all.create(&dry_run(), &tried).await.map_err(|it| refusal(&tried, it))?;
        self.workspace.spec = made.try_parse::<Workspace>().unwrap().spec;
        for child in self.children() {
            let made = self.api(&child).create(&dry_run(), &child).await;
            made.map_err(|it| refusal(&child, it))?;
        }
        Ok(())
    }

    /// Every child of the workspace, as it is to be applied.
    #[expect(clippy::vec_box, reason = "as plans hold them")]
    fn children(&self) -> Vec<Box<DynamicObject>> {
        let (facts, spec) = (self.facts(), &self.workspace.spec);
        let mut all = vec![erase(&network_policy(&facts))];
        for entry in &spec.containers {
            all.push(erase(&service::of_container(&facts, entry, None)));
            all.push(erase(&deployment(&facts, entry, entry.replicas, self.aliases())));
        }
        for entry in &spec.virtual_machines {
            all.push(erase(&service::of_machine(&facts, entry, None)));
            all.extend(children::image::image(&facts, entry).map(|image| erase(&image)));
            let Some(instance) = &entry.spec.instance else { continue };
            all.push(erase(&claim::claim(&facts, entry, &image(entry)).unwrap()));
            all.push(erase(&machine(&facts, (entry, instance), "disk", Power::AsAsked)));
        }
        all
    }

    /// A claim as it is held once it is there.
    pub(crate) fn held_claim(&self, entry: &str, observed: DynamicObject) -> Box<DynamicObject> {
        let observed: PersistentVolumeClaim = typed(observed).unwrap();
        let entry = self.machine(entry);
        let image = entry.spec.vm_disk_image_name.clone();
        let origin = Origin { image, revision: REVISION.to_owned() };
        erase(&claim::kept(&self.facts(), entry, &origin, &observed))
    }

    fn aliases(&self) -> Vec<HostAlias> {
        let entries = self.workspace.spec.containers.iter().map(|entry| entry.name.clone());
        let addresses: BTreeMap<_, _> = entries
            .enumerate()
            .map(|(number, entry)| (entry, format!("10.96.200.{number}")))
            .collect();
        host_aliases(&addresses)
    }

    /// Makes it as the controller does: by an apply that can only create.
    pub(crate) async fn create(&self, child: &DynamicObject) -> DynamicObject {
        let mut child = child.clone();
        child.metadata.resource_version = Some("1".to_owned());
        self.write(Request::Apply(Box::new(child))).await
    }

    /// Applies it to what is there, as the controller does.
    pub(crate) async fn apply(&self, child: &DynamicObject) -> DynamicObject {
        self.try_to_apply(child).await.unwrap()
    }

    /// As [`apply`](Self::apply), where it may be refused.
    pub(crate) async fn try_to_apply(
        &self,
        child: &DynamicObject,
    ) -> Result<DynamicObject, ApiError> {
        let mut child = child.clone();
        child.metadata.uid = self.read(&child).await.metadata.uid;
        self.controller.call(Request::Apply(Box::new(child))).await.map(object)
    }

    /// Takes a place out of it as it was read, as the controller does.
    pub(crate) async fn strip(
        &self,
        read: &DynamicObject,
        place: &str,
    ) -> Result<DynamicObject, ApiError> {
        let request = Request::Strip {
            target: Target::of(read),
            uid: read.uid().unwrap(),
            resource_version: read.resource_version().unwrap(),
            places: vec![place.to_owned()],
        };
        self.controller.call(request).await.map(object)
    }

    /// As [`strip`](Self::strip), of what it is then: who carries it out writes its status meanwhile.
    pub(crate) async fn strip_at_last(&self, child: &DynamicObject, place: &str) -> DynamicObject {
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            match self.strip(&self.read(child).await, place).await {
                Err(ApiError::Conflict { .. }) => tokio::time::sleep(LOOK_AGAIN).await,
                other => return other.unwrap(),
            }
        }
        panic!("{} changes all the time", child.name_any());
    }

    async fn write(&self, request: Request) -> DynamicObject {
        object(self.controller.call(request).await.unwrap())
    }

    /// Takes it away; nothing holds it.
    pub(crate) async fn delete(&self, child: &DynamicObject) {
        let (api, name) = (self.api(child), child.name_any());
        api.delete(&name, &DeleteParams::background()).await.unwrap();
        assert!(api.get_opt(&name).await.unwrap().is_none(), "{name} is gone");
    }

    fn api(&self, child: &DynamicObject) -> Api<DynamicObject> {
        let resource = Target::of(child).resource;
        Api::namespaced_with(self.admin.clone(), &self.namespace, &resource)
    }

    /// It as it is stored.
    pub(crate) async fn read(&self, child: &DynamicObject) -> DynamicObject {
        self.write(Request::Get(Target::of(child))).await
    }

    /// Edits it as a person does.
    pub(crate) async fn edit(&self, child: &DynamicObject, patch: &Value) -> DynamicObject {
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch.clone()).unwrap());
        let params =
            PatchParams { field_manager: Some(PERSON.to_owned()), ..PatchParams::default() };
        self.api(child).patch(&child.name_any(), &params, &patch).await.unwrap()
    }

    /// Waits until a container says this of itself, and gives its words.
    pub(crate) async fn told(&self, entry: &str, reason: Reason) -> String {
        let entry = self.container(entry);
        let child = self.child(&format!("deployment {}", entry.name));
        let mut last = None;
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            let deployment: Deployment = typed(self.read(&child).await).unwrap();
            let part =
                aggregate::container(entry, Some(&deployment), &self.pods_of(entry).await, false);
            if part.reason == reason {
                return part.message;
            }
            last = Some(part);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        panic!("{reason} was expected of {}, not {last:?}", entry.name);
    }

    async fn pods_of(&self, entry: &Container) -> Vec<Arc<Pod>> {
        let api: Api<Pod> = Api::namespaced(self.admin.clone(), &self.namespace);
        let uid = self.workspace.uid().unwrap();
        let selector = format!("{WORKSPACE_LABEL}={uid},{ENTRY_LABEL}={}", entry.name);
        let pods = api.list(&ListParams::default().labels(&selector)).await.unwrap();
        pods.items.into_iter().map(Arc::new).collect()
    }

    /// Has the namespace refuse pods that do not meet a level of Pod Security.
    pub(crate) async fn enforce(&self, level: &str) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        namespaces.patch(&self.namespace, &PatchParams::default(), &patch).await.unwrap();
    }
}

/// Of what the API server refused to make a dry run, and in which words.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The kind of it.
    pub(crate) kind: String,
    pub(crate) words: String,
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn refusal(of: &DynamicObject, error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(answer) => {
            Refusal { kind: of.types.clone().unwrap().kind, words: answer.message }
        }
        other => panic!("{other:?}"),
    }
}

fn object(answer: Answer) -> DynamicObject {
    match answer {
        Answer::Object(object) => *object,
        other => panic!("{other:?}"),
    }
}

/// The image of an entry, synced.
fn image(entry: &VirtualMachine) -> VMDiskImage {
    let of_others = json!({"url": "https://example.com/a", "sourceType": "http", "accessModes": ["ReadWriteOnce"]});
    let spec = entry.spec.image.clone();
    let spec = spec.unwrap_or_else(|| serde_json::from_value(of_others).unwrap());
    let mut image = VMDiskImage::new(&entry.spec.vm_disk_image_name, spec);
    image.status = Some(VMDiskImageStatus {
        current: Some(Current {
            revision: REVISION.to_owned(),
            snapshot: Some("attacker-012345".to_owned()),
            minimum_size: Some(1 << 30),
            ..Current::default()
        }),
        ..VMDiskImageStatus::default()
    });
    image
}
