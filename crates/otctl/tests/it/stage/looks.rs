//! What a stage shows besides images: the ledger, pods, Events, the lease, and what the controller asked for.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use local_cluster::audit::{AuditEntry, Mark, service_account_user};
use otctl_types::AdmissionQueue;
use otctl_types::names::{DEFAULT_NAMESPACE, DISKIMAGE_CONTROLLER, IMAGE_QUEUE, ROLE_LABEL};
use otctl_types::queue::AdmissionQueueStatus;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{LOOK_RARELY, NAMESPACE, PATIENCE, Stage, until};
use crate::end_state::at_rest;

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
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (running, open) = (self.running().await, self.server.totals().counts.open_data);
            if running.len() == count && open == count {
                return running;
            }
            if Instant::now() > deadline {
                let pods = serde_json::to_string_pretty(&self.import_pods().await).unwrap();
                panic!(
                    "{} of {count} pods run, {open} transfers are open; {pods}\n{}",
                    running.len(),
                    self.told(NAMESPACE).await
                );
            }
            tokio::time::sleep(LOOK_RARELY).await;
        }
    }

    /// The controller's lease.
    pub(crate) async fn lease(&self) -> Lease {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), DEFAULT_NAMESPACE);
        leases.get(DISKIMAGE_CONTROLLER).await.unwrap()
    }

    /// The Events in a namespace in words, for who looks for the cause of a failure.
    pub(crate) async fn told(&self, namespace: &str) -> String {
        let events = self.events(namespace).await;
        let told = events.iter().map(|event| {
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
            let [reason, note] = [&event.reason, &event.note].map(|text| text.as_deref());
            let [about, reason, note] = [about, reason, note].map(Option::unwrap_or_default);
            format!("{about} {reason}: {note}\n")
        });
        told.collect()
    }

    /// Events in a namespace.
    pub(crate) async fn events(&self, namespace: &str) -> Vec<Event> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        events.list(&ListParams::default()).await.unwrap().items
    }
}

/// What the controller asked of the API server.
impl Stage {
    /// Waits until the controller has written nothing for a while, and gives the end of the log.
    pub(crate) async fn quiet(&self) -> Mark {
        let mark = self.mark();
        at_rest(async || Some(self.writes(mark).len())).await;
        self.mark()
    }

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

/// What the controller that writes this log answers to a path: status line, headers and body.
pub(crate) async fn answer_of(log: &Path, path: &str) -> String {
    let listens = until("a controller says where it listens", async || listens(log));
    let mut stream = TcpStream::connect(listens.await).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Keeps what the controller that writes this log has measured, beside the log.
pub(crate) async fn keep_metrics(log: &Path) {
    let metrics = answer_of(log, "/metrics").await;
    assert!(metrics.contains("# TYPE otctl_"), "{metrics}");
    fs::write(log.with_extension("metrics"), metrics).unwrap();
}

fn listens(log: &Path) -> Option<SocketAddr> {
    let log = fs::read_to_string(log).unwrap_or_default();
    let line = log.lines().find(|line| line.contains("\"listening\""))?;
    let line: Value = serde_json::from_str(line).ok()?;
    line["address"].as_str()?.parse().ok()
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

fn imports() -> ListParams {
    ListParams::default().labels(&format!("{ROLE_LABEL}=import"))
}
