//! A cluster with the controller on it as it is installed, and everything that a scenario does to it. Nothing here
//! decides what is right; scenarios do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use image_server::{Behaviour, Content, ImageServer};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use local_cluster::audit::{AuditEntry, Mark, service_account_user};
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use local_cluster::{LocalCluster, Options};
use otctl::installation::{self, ControllerProcess, Launch};
use otctl_types::condition::{READY, find};
use otctl_types::diskimage::{AccessMode, Phase, SourceType, VMDiskImageStatus};
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER, IMAGE_QUEUE, ROLE_LABEL};
use otctl_types::queue::AdmissionQueueStatus;
use otctl_types::{AdmissionQueue, VMDiskImage, VMDiskImageSpec};
use serde_json::{Value, json};

/// Where images are.
pub(crate) const NAMESPACE: &str = "labs";
/// Whatever is waited for has come by then, or never will: the machine may be busy with compilers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// How often what is waited for is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(25);
/// What every controller here logs: a line before each write too.
const LOG_LEVEL: &str = "--log-level=info,otctl_kit::commit::write=debug";

/// A cluster, an image server, the installation, and a controller that is started, killed and started again.
pub(crate) struct Stage {
    controller: Option<ControllerProcess>,
    launch: Launch,
    starts: usize,
    /// What images are fetched from.
    pub(crate) server: Arc<ImageServer>,
    /// May do everything.
    pub(crate) client: Client,
    cluster: Option<LocalCluster>,
}

impl Stage {
    /// Everything but a controller. `policy` adds to what [`Stage::policy`] always sets.
    pub(crate) async fn set(policy: &[(&str, &str)]) -> Self {
        let server = Arc::new(ImageServer::start().await.unwrap());
        Self::set_with(server, policy, Options::default()).await
    }

    /// With this server, so that two stages can serve the same addresses, and these nodes and times.
    pub(crate) async fn set_with(
        server: Arc<ImageServer>,
        policy: &[(&str, &str)],
        options: Options,
    ) -> Self {
        // An error says that a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let program = PathBuf::from(env!("CARGO_BIN_EXE_otctl"));
        let importer = vec![program.display().to_string(), "run-importer".to_owned()];
        let cluster = LocalCluster::start(Options { importer, ..options }).await.unwrap();
        let client = cluster.admin();
        installation::apply(&client, entries(&server, policy), &[NAMESPACE]).await.unwrap();
        await_rights(&cluster).await;
        let mut launch = Launch::on(&cluster, program).await.unwrap();
        launch.flags = vec![LOG_LEVEL.to_owned()];
        Self { controller: None, launch, starts: 0, server, client, cluster: Some(cluster) }
    }

    /// Starts the controller; each start has a log of its own.
    pub(crate) fn start_controller(&mut self) {
        assert!(self.controller.is_none(), "one controller at a time");
        self.starts += 1;
        self.launch.log = self.logs().join(format!("diskimage-controller-{}.log", self.starts));
        self.controller = Some(ControllerProcess::start(&self.launch).unwrap());
    }

    /// Starts every further controller with this flag too.
    pub(crate) fn add_flag(&mut self, flag: &str) {
        self.launch.flags.push(flag.to_owned());
    }

    /// Kills the controller as a crash would.
    pub(crate) async fn kill_controller(&mut self) {
        self.controller.take().expect("a controller runs").kill().await.unwrap();
    }

    /// Asks the controller to end, and waits until it has.
    pub(crate) async fn stop_controller(&mut self) {
        self.controller.take().expect("a controller runs").stop().await.unwrap();
    }

    /// The log of the controller that was started last.
    pub(crate) fn log(&self) -> &Path {
        &self.launch.log
    }

    fn logs(&self) -> PathBuf {
        self.cluster().state_dir().join("logs")
    }

    /// The cluster, for its nodes, storage and audit log.
    pub(crate) fn cluster(&self) -> &LocalCluster {
        self.cluster.as_ref().expect("it is taken at the end only")
    }

    /// Replaces the policy by these entries and those that every stage needs.
    pub(crate) async fn policy(&self, policy: &[(&str, &str)]) {
        let entries = entries(&self.server, policy);
        installation::apply_policy(&self.client, entries).await.unwrap();
    }

    /// Ends everything, after a look that the controller was never refused for lack of a right.
    pub(crate) async fn finish(mut self) {
        let refused: Vec<String> = self
            .requests(Mark::default())
            .iter()
            .filter(|entry| entry.is_forbidden())
            .map(told)
            .collect();
        assert!(refused.is_empty(), "the account lacks rights:\n{}", refused.join("\n"));
        self.end().await;
    }

    /// Ends everything.
    pub(crate) async fn end(&mut self) {
        if let Some(controller) = self.controller.take() {
            controller.stop().await.unwrap();
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.shutdown().await;
        }
    }
}

/// What the controller said last goes with a failed test.
impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() && self.cluster.is_some() {
            let log = std::fs::read_to_string(&self.launch.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(30)..];
            eprintln!("the controller's last lines:\n{}", last.join("\n"));
        }
    }
}

/// Images.
impl Stage {
    /// Serves `content` as it behaves at `/<name>` and gives the image that asks for it: a raw disk of 1 MiB with a
    /// snapshot.
    pub(crate) fn image(&self, name: &str, content: Content, behaviour: Behaviour) -> VMDiskImage {
        self.server.add(name, content);
        self.server.behave(name, behaviour).unwrap();
        self.image_of(name, &self.server.url(name))
    }

    /// The image that asks for whatever is at `url`.
    pub(crate) fn image_of(&self, name: &str, url: &str) -> VMDiskImage {
        let spec = VMDiskImageSpec {
            url: url.to_owned(),
            source_type: SourceType::Http,
            access_modes: vec![AccessMode::ReadWriteOnce],
            disk_size: Some("1Mi".to_owned()),
            storage_class: Some(IMMEDIATE_CLASS.to_owned()),
            snapshot_class: Some(SNAPSHOT_CLASS.to_owned()),
            ..VMDiskImageSpec::default()
        };
        let mut image = VMDiskImage::new(name, spec);
        image.metadata.namespace = Some(NAMESPACE.to_owned());
        image
    }

    /// Creates an image.
    pub(crate) async fn create(&self, image: &VMDiskImage) -> VMDiskImage {
        self.images().create(&PostParams::default(), image).await.unwrap()
    }

    /// Creates, one after the other, so that their order is known.
    pub(crate) async fn create_all(&self, images: &[VMDiskImage]) {
        for image in images {
            self.create(image).await;
        }
    }

    /// Images of the namespace.
    pub(crate) fn images(&self) -> Api<VMDiskImage> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The image as it is now.
    pub(crate) async fn read(&self, name: &str) -> VMDiskImage {
        self.images().get(name).await.unwrap()
    }

    /// Changes an image by a merge patch.
    pub(crate) async fn patch(&self, name: &str, patch: &Value) {
        self.images().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Deletes an image and does not wait.
    pub(crate) async fn delete(&self, name: &str) {
        self.images().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until an image is as wanted, and gives it.
    pub(crate) async fn await_image(
        &self,
        name: &str,
        is_wanted: impl Fn(&VMDiskImageStatus) -> bool,
    ) -> VMDiskImage {
        let (images, mut last) = (self.images(), None);
        let waited = tokio::time::timeout(PATIENCE, async {
            loop {
                let image = images.get(name).await.unwrap();
                if image.status.as_ref().is_some_and(&is_wanted) {
                    return image;
                }
                last = image.status;
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        let found = waited.await.ok();
        found.unwrap_or_else(|| panic!("'{name}' did not become as wanted: {}", pretty(&last)))
    }

    /// Waits until an image has this phase, and gives it.
    pub(crate) async fn await_phase(&self, name: &str, phase: Phase) -> VMDiskImage {
        self.await_image(name, |status| status.phase == Some(phase)).await
    }

    /// Waits until an image says this reason on Ready, and gives it.
    pub(crate) async fn await_reason(&self, name: &str, reason: &str) -> VMDiskImage {
        self.await_image(name, |status| ready_reason(status) == reason).await
    }

    /// Waits until every image has succeeded or failed, for as long as one more does within [`PATIENCE`]; all images.
    pub(crate) async fn await_all_ended(&self) -> Vec<VMDiskImage> {
        let (mut ended_before, mut deadline) = (0, Instant::now() + PATIENCE);
        loop {
            let images = self.images().list(&ListParams::default()).await.unwrap().items;
            let ended = images.iter().filter(|image| has_ended(image)).count();
            if ended == images.len() {
                return images;
            }
            if ended > ended_before {
                (ended_before, deadline) = (ended, Instant::now() + PATIENCE);
            }
            let open = images.iter().find(|image| !has_ended(image));
            assert!(
                Instant::now() < deadline,
                "{ended} of {} ended; one that did not: {}",
                images.len(),
                pretty(&open)
            );
            tokio::time::sleep(LOOK_AGAIN * 4).await;
        }
    }
}

/// The ledger, Jobs and pods.
impl Stage {
    /// The queue's object.
    pub(crate) fn queues(&self) -> Api<AdmissionQueue> {
        Api::all(self.client.clone())
    }

    /// The status of the ledger as it is now; empty when there is none.
    pub(crate) async fn ledger(&self) -> AdmissionQueueStatus {
        let queue = self.queues().get_opt(IMAGE_QUEUE).await.unwrap();
        queue.and_then(|queue| queue.status).unwrap_or_default()
    }

    /// Waits until the ledger is as wanted, and gives it.
    pub(crate) async fn await_ledger(
        &self,
        what: &str,
        is_wanted: impl Fn(&AdmissionQueueStatus) -> bool,
    ) -> AdmissionQueueStatus {
        until(what, async || Some(self.ledger().await).filter(&is_wanted)).await
    }

    /// The names in the ledger, in order.
    pub(crate) async fn active(&self) -> Vec<String> {
        names(&self.ledger().await)
    }

    /// Import Jobs.
    pub(crate) async fn import_jobs(&self) -> Vec<Job> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), NAMESPACE);
        jobs.list(&imports()).await.unwrap().items
    }

    /// Import pods.
    pub(crate) async fn import_pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        pods.list(&imports()).await.unwrap().items
    }

    /// Import pods that run, by name, with their UIDs.
    pub(crate) async fn running(&self) -> BTreeMap<String, String> {
        let pods = self.import_pods().await;
        let running = pods.into_iter().filter(|pod| pod_phase(pod) == "Running");
        running
            .map(|pod| {
                (pod.metadata.name.unwrap_or_default(), pod.metadata.uid.unwrap_or_default())
            })
            .collect()
    }

    /// Waits until so many import pods run, each with its transfer open at the server, and gives their UIDs by name.
    pub(crate) async fn await_running(&self, count: usize) -> BTreeMap<String, String> {
        until(&format!("{count} imports run"), async || {
            let is_open = self.server.totals().counts.open_data == count;
            Some(self.running().await).filter(|running| running.len() == count && is_open)
        })
        .await
    }

    /// The controller's lease.
    pub(crate) async fn lease(&self) -> Lease {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), DEFAULT_NAMESPACE);
        leases.get(DISKIMAGE_CONTROLLER).await.unwrap()
    }

    /// Events in a namespace.
    pub(crate) async fn events(&self, namespace: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        events.list(&ListParams::default()).await.unwrap().items
    }
}

/// What the controller asked of the API server.
impl Stage {
    /// The end of the audit log.
    pub(crate) fn mark(&self) -> Mark {
        self.cluster().audit().mark().unwrap()
    }

    /// Everything that anybody asked since then.
    pub(crate) fn audit(&self, since: Mark) -> Vec<AuditEntry> {
        self.cluster().audit().since(since).unwrap()
    }

    /// Everything that the controller's account asked since then.
    pub(crate) fn requests(&self, since: Mark) -> Vec<AuditEntry> {
        let account = account();
        let mut entries = self.audit(since);
        entries.retain(|entry| entry.user == account);
        entries
    }

    /// The controller's writes since then, those of its lease left out.
    pub(crate) fn writes(&self, since: Mark) -> Vec<AuditEntry> {
        let mut entries = self.requests(since);
        entries.retain(|entry| entry.is_write() && entry.resource != "leases");
        entries
    }
}

/// A server that does nothing wrong.
pub(crate) fn well_behaved() -> Behaviour {
    Behaviour::new()
}

/// Why an image is Ready or is not.
pub(crate) fn ready_reason(status: &VMDiskImageStatus) -> &str {
    find(&status.conditions, READY).map_or("", |ready| ready.reason.as_str())
}

/// Whether an image has succeeded or failed.
pub(crate) fn has_ended(image: &VMDiskImage) -> bool {
    matches!(phase(image), Some(Phase::Succeeded | Phase::Failed))
}

/// The phase of an image.
pub(crate) fn phase(image: &VMDiskImage) -> Option<Phase> {
    image.status.as_ref().and_then(|status| status.phase)
}

/// The status of an image; empty before the first write.
pub(crate) fn status(image: &VMDiskImage) -> VMDiskImageStatus {
    image.status.clone().unwrap_or_default()
}

/// The names in a ledger, in order.
pub(crate) fn names(ledger: &AdmissionQueueStatus) -> Vec<String> {
    ledger.active.iter().map(|entry| entry.name.clone()).collect()
}

/// The phase of a pod.
pub(crate) fn pod_phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The user name of the controller's account.
pub(crate) fn account() -> String {
    service_account_user(DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER)
}

/// A request as one line.
pub(crate) fn told(entry: &AuditEntry) -> String {
    let AuditEntry { verb, namespace, name, code, request_object, .. } = entry;
    let body = request_object.as_ref().map(Value::to_string).unwrap_or_default();
    format!("{code} {verb} {} {namespace}/{name} {body}", entry.target())
}

/// Waits until `look` gives something, and ends the test with `what` if it does not within [`PATIENCE`].
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// The server is on loopback, so it must be listed by name; tests do not wait five minutes for a retry.
fn entries(server: &ImageServer, policy: &[(&str, &str)]) -> installation::Policy {
    let hosts = format!("http://{}", server.address());
    let always = [("allowedSourceHosts", hosts.as_str()), ("retryBackoffDuration", "1s")];
    let all = always.iter().chain(policy);
    all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The API server learns of roles and bindings by watches. One right of each role is waited for.
async fn await_rights(cluster: &LocalCluster) {
    let rights = [
        ("pelotech.ot", "vmdiskimages", "list", None),
        ("coordination.k8s.io", "leases", "get", Some(DISKIMAGE_CONTROLLER)),
        ("", "configmaps", "get", Some(otctl_types::names::DEFAULT_POLICY_NAME)),
    ];
    for (group, resource, verb, name) in rights {
        let attributes = ResourceAttributes {
            group: Some(group.to_owned()),
            resource: Some(resource.to_owned()),
            verb: Some(verb.to_owned()),
            name: name.map(str::to_owned),
            namespace: name.map(|_| DEFAULT_NAMESPACE.to_owned()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(account()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        cluster.await_right(spec).await.unwrap();
    }
}

fn imports() -> ListParams {
    ListParams::default().labels(&format!("{ROLE_LABEL}=import"))
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(&json!(value)).unwrap()
}
