//! What running imports tell of themselves: asked once a second over HTTP, kept in memory, read by `observe`. Losing the
//! talk changes no outcome: an import that cannot be reached shows no progress, and nothing else.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use otctl_types::import::{PROGRESS_KEY_VARIABLE, Progress};

use crate::jobs;
use crate::names::{JobRole, attempt_number};
use crate::views::Views;

/// Between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// For one answer.
const DEADLINE: Duration = Duration::from_secs(1);

/// What each image's running import last told, by UID of the image.
#[derive(Clone, Debug, Default)]
pub struct ProgressBook {
    pages: Arc<Mutex<HashMap<String, Progress>>>,
}

impl ProgressBook {
    /// What the import of this image last told.
    pub fn get(&self, uid: &str) -> Option<Progress> {
        self.lock().get(uid).cloned()
    }

    /// Notes what an import told.
    pub fn note(&self, uid: &str, progress: Progress) {
        self.lock().insert(uid.to_owned(), progress);
    }

    fn keep(&self, running: &HashSet<String>) {
        self.lock().retain(|uid, _| running.contains(uid));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Progress>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks every running import once a second, for ever.
pub async fn ask_imports(views: Views, book: ProgressBook) {
    let client = reqwest::Client::builder()
        .timeout(DEADLINE)
        .no_proxy()
        .build()
        .expect("the settings are constants");
    let mut rounds = tokio::time::interval(INTERVAL);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        let imports = running(&views);
        book.keep(&imports.iter().map(|import| import.image_uid.clone()).collect());
        join_all(imports.iter().map(|import| ask(&client, import, &book))).await;
    }
}

/// A running import and how to reach it.
struct Import {
    image_uid: String,
    address: String,
    key: String,
}

async fn ask(client: &reqwest::Client, import: &Import, book: &ProgressBook) {
    let answer = client.get(&import.address).bearer_auth(&import.key).send().await;
    let told = match answer.and_then(reqwest::Response::error_for_status) {
        Ok(answer) => answer.json::<Progress>().await,
        Err(error) => Err(error),
    };
    match told {
        Ok(progress) => book.note(&import.image_uid, progress),
        Err(error) => {
            tracing::debug!(%error, image = import.image_uid, "an import did not tell its progress")
        }
    }
}

fn running(views: &Views) -> Vec<Import> {
    let jobs = views.jobs.all();
    let imports = jobs.iter().filter(|job| {
        attempt_number(job.metadata.name.as_deref().unwrap_or_default(), JobRole::Import).is_some()
    });
    imports
        .filter(|job| !jobs::job_has_ended(job) && !jobs::is_suspended(job))
        .filter_map(|job| import(views, job))
        .collect()
}

fn import(views: &Views, job: &Job) -> Option<Import> {
    let pods = views.pods.owned_by(job.metadata.uid.as_deref()?);
    let pod = pods.iter().find(|pod| jobs::phase(pod) == Some("Running"))?;
    Some(Import {
        image_uid: jobs::controller_uid(&job.metadata)?.to_owned(),
        address: format!("http://{}/progress", authority(pod)?),
        key: key(job)?,
    })
}

fn authority(pod: &Pod) -> Option<String> {
    let address: IpAddr = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let port = pod.spec.as_ref()?.containers.first()?.ports.as_ref()?.first()?.container_port;
    Some(std::net::SocketAddr::new(address, u16::try_from(port).ok()?).to_string())
}

/// The key is read back from the Job, so that it survives a restart of the controller.
fn key(job: &Job) -> Option<String> {
    let container = job.spec.as_ref()?.template.spec.as_ref()?.containers.first()?;
    let variable =
        container.env.as_ref()?.iter().find(|variable| variable.name == PROGRESS_KEY_VARIABLE)?;
    variable.value.clone()
}
