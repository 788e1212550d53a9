//! Both controllers as they are installed, on nodes that run what is made, and what a scenario does with workspaces.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use image_server::ImageServer;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, ResourceExt as _};
use local_cluster::Options;
use local_cluster::audit::{AuditEntry, Mark, service_account_user};
use local_cluster::kubevirt::LAUNCHER_IMAGE;
use local_cluster::node::{Image, Images};
use otctl::installation::{self, Controller, ControllerProcess, Launch};
use otctl_types::Workspace;
use otctl_types::condition::find;
use otctl_types::names::{DEFAULT_NAMESPACE, OWNER_LABEL, WORKSPACE_CONTROLLER};
use otctl_types::workspace::{Phase, WorkspaceStatus};
use serde_json::{Value, json};

use crate::stage::{Stage, told, until, until_found};

/// Says a line before each write, and takes the lease of a dead one soon.
const FLAGS: [&str; 5] = [
    "--log-level=info,otctl_kit::commit::write=debug",
    "--lease-duration=1500ms",
    "--renew-deadline=1s",
    "--retry-period=250ms",
    "--namespaces=exams",
];

/// A stage whose controller of disk images runs, and the controller of workspaces, which is started, killed and started
/// again.
pub(super) struct Labs {
    pub(super) stage: Stage,
    pub(super) launch: Launch,
    starts: usize,
    controller: Option<ControllerProcess>,
}

impl Labs {
    /// Everything but the controller of workspaces. `policy` adds to what every stage sets.
    pub(super) async fn set(policy: &[(&str, &str)], options: Options) -> Self {
        let server = Arc::new(ImageServer::start().await.unwrap());
        let options = Options { images: images(), ..options };
        let mut stage = Stage::set_with(server, policy, options).await;
        installation::guard(&stage.client).await.unwrap();
        stage.start_controller();
        let launch = launch(&stage).await;
        Self { stage, launch, starts: 0, controller: None }
    }

    /// Starts the controller of workspaces; each start has a log of its own.
    pub(super) fn start(&mut self) {
        assert!(self.controller.is_none(), "one controller at a time");
        self.starts += 1;
        self.launch.log =
            self.launch.log.with_file_name(format!("workspace-controller-{}.log", self.starts));
        self.controller = Some(ControllerProcess::start(&self.launch).unwrap());
    }

    /// Kills it as a crash would.
    pub(super) async fn kill(&mut self) {
        self.controller.take().expect("a controller runs").kill().await.unwrap();
    }

    /// Asks it to end, if it runs, and waits: then its watches stand in the audit log too.
    pub(super) async fn stop(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.stop().await.unwrap();
        }
    }

    /// Ends everything, after a look that neither account was refused for lack of a right: `is_other` are the refusals
    /// that have another cause, such as a quota.
    pub(super) async fn finish_but(mut self, is_other: impl Fn(&AuditEntry) -> bool) {
        self.stop().await;
        let requests = self.requests(Mark::default());
        let lacking = requests.iter().filter(|entry| entry.is_forbidden() && !is_other(entry));
        let lacking: Vec<String> = lacking.map(told).collect();
        assert!(lacking.is_empty(), "the account lacks rights:\n{}", lacking.join("\n"));
        self.stage.finish().await;
    }

    /// Everything that the controller of workspaces asked since then.
    pub(super) fn requests(&self, since: Mark) -> Vec<AuditEntry> {
        let user = service_account_user(DEFAULT_NAMESPACE, WORKSPACE_CONTROLLER);
        let mut requests = self.stage.audit(since);
        requests.retain(|entry| entry.user == user);
        requests
    }

    /// Its writes since then, those of its lease left out.
    pub(super) fn writes(&self, since: Mark) -> Vec<AuditEntry> {
        let mut requests = self.requests(since);
        requests.retain(|entry| entry.is_write() && entry.resource != "leases");
        requests
    }
}

/// Another controller of workspaces on this stage.
pub(super) async fn launch(stage: &Stage) -> Launch {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_otctl"));
    let mut launch = Launch::of(Controller::Workspace, stage.cluster(), program).await.unwrap();
    launch.environment = stage.environment();
    launch.flags = FLAGS.map(str::to_owned).to_vec();
    launch
}

/// A server in two versions, one that cannot start, and the program of machines. Another image is not found.
fn images() -> Images {
    let server = || Image::new([env!("CARGO_BIN_EXE_otctl"), "run-container"]);
    Images::none()
        .with("example.com/web:1", server())
        .with("example.com/web:2", server())
        .with("example.com/crash:1", server().with_arguments(["--exit-code", "3"]))
        .with(LAUNCHER_IMAGE, server())
}

/// Workspaces.
impl Labs {
    pub(super) fn workspaces(&self) -> Api<Workspace> {
        Api::all(self.stage.client.clone())
    }

    pub(super) async fn create(&self, name: &str, spec: Value) {
        let workspace = json!({
            "apiVersion": "pelotech.ot/v1alpha1", "kind": "Workspace",
            "metadata": {"name": name}, "spec": spec,
        });
        let workspace = serde_json::from_value(workspace).unwrap();
        self.workspaces().create(&PostParams::default(), &workspace).await.unwrap();
    }

    pub(super) async fn edit(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.workspaces().patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Deletes one and does not wait.
    pub(super) async fn delete(&self, name: &str) {
        self.workspaces().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn is_gone(&self, name: &str) {
        until(&format!("workspace {name} is gone"), async || {
            self.workspaces().get_opt(name).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Waits until the status of the spec as it is now is as wanted, and gives it.
    pub(super) async fn await_status(
        &self,
        name: &str,
        what: &str,
        is_wanted: impl Fn(&WorkspaceStatus) -> bool,
    ) -> WorkspaceStatus {
        until_found(&format!("{name} is {what}"), async || {
            let workspace = self.workspaces().get(name).await.unwrap();
            let status = workspace.status.unwrap_or_default();
            let is_of_now = status.observed_generation == workspace.metadata.generation;
            if is_of_now && is_wanted(&status) { Ok(status) } else { Err(pretty(&status)) }
        })
        .await
    }

    pub(super) async fn is(&self, name: &str, phase: Phase) -> WorkspaceStatus {
        self.await_status(name, phase.as_str(), |status| status.phase == Some(phase)).await
    }

    /// Waits until this condition of a workspace has this reason, and gives its words.
    pub(super) async fn says(&self, name: &str, condition: &str, reason: &str) -> String {
        let told = |status: &WorkspaceStatus| {
            let told = find(&status.conditions, condition).filter(|it| it.reason == reason);
            told.map(|it| it.message.clone())
        };
        let status = self.await_status(name, reason, |status| told(status).is_some()).await;
        told(&status).unwrap()
    }
}

/// What is made for workspaces.
impl Labs {
    /// Every child of a workspace, as `Kind/name`.
    pub(super) async fn children(&self, workspace: &str) -> BTreeMap<String, DynamicObject> {
        let uid = self.workspaces().get(workspace).await.unwrap().uid().unwrap();
        self.labelled(&format!("{OWNER_LABEL}={uid}")).await
    }

    /// Every child of any workspace, as `Kind/name`, whether its workspace is there or not.
    pub(super) async fn all_children(&self) -> BTreeMap<String, DynamicObject> {
        self.labelled(OWNER_LABEL).await
    }

    async fn labelled(&self, selector: &str) -> BTreeMap<String, DynamicObject> {
        let ours = ListParams::default().labels(selector);
        let mut children = BTreeMap::new();
        for kind in kinds() {
            // KubeVirt's kinds may not be served.
            let api: Api<DynamicObject> = Api::all_with(self.stage.client.clone(), &kind);
            let listed = api.list(&ours).await.map(|list| list.items).unwrap_or_default();
            let named =
                |child: DynamicObject| (format!("{}/{}", kind.kind, child.name_any()), child);
            children.extend(listed.into_iter().map(named));
        }
        children
    }

    /// Where a child is, of those that [`children`](Self::children) gives.
    pub(super) fn place(&self, name: &str, child: &DynamicObject) -> Api<DynamicObject> {
        let kind = name.split_once('/').unwrap().0;
        let kind = kinds().into_iter().find(|it| it.kind == kind).unwrap();
        let namespace = child.namespace().unwrap();
        Api::namespaced_with(self.stage.client.clone(), &namespace, &kind)
    }
}

fn kinds() -> [ApiResource; 5] {
    [
        ApiResource::erase::<NetworkPolicy>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<Deployment>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::from_gvk(&GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine")),
    ]
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap()
}
