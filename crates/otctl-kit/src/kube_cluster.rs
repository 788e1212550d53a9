//! [`Cluster`] over a real API server: a deadline on every request, a bound on writes in flight, no retries of its own,
//! every request counted, and the server's refusals told apart by what can be done about them (in `refusal`).

pub(crate) mod answer;
pub(crate) mod refusal;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use kube::api::{
    DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::client::Body;
use kube::core::{ApiResource, DynamicObject, Request as Builder, TypeMeta};
use kube::{Client, Config, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use self::answer::HttpAnswer;
use crate::cluster::{Answer, ApiError, Cluster, Request, Target};
use crate::health::Health;
use crate::metrics::Metrics;
use crate::page::Page;
use crate::plan::Propagation;
use crate::tenure::Tenure;

/// A consistent list is of few objects, and is waited for: as few requests as can be.
const PAGE_SIZE: u32 = 500;

/// API priority and fairness gives one account about 245 seats; a share of them leaves room for reads and leases.
const WRITES_IN_FLIGHT: usize = 64;

/// How long one request may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Any request but those for leases. An API server waits for a webhook for 10 s where nothing else is said: what it then
    /// answers is to be heard, since it is about that one object.
    pub call: Duration,
    /// A request for a lease: late is as bad as never.
    pub lease: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { call: Duration::from_secs(15), lease: Duration::from_secs(3) }
    }
}

/// A client that sends each request once. kube's default sends one up to 15 times, writes included, and tells nobody:
/// a create whose answer was lost would come back as a conflict with ourselves.
///
/// # Errors
/// When the credentials or certificates of `config` cannot be used.
pub fn client(mut config: Config) -> Result<Client, kube::Error> {
    config.default_retry = false;
    Client::try_from(config)
}

/// What an answer means that is no success, by its code, its `Retry-After` and its body.
#[must_use]
pub fn refused(status: u16, retry_after_seconds: Option<u64>, body: &[u8]) -> ApiError {
    // No code of a server is out of range; one that is says as little as a failing server.
    let status =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    refusal::of(&HttpAnswer { status, retry_after_seconds, body: body.to_vec() })
}

/// The API server behind a client.
pub struct KubeCluster {
    client: Client,
    field_manager: String,
    deadlines: Deadlines,
    writes: Semaphore,
    metrics: Option<Arc<Metrics>>,
    health: Health,
    tenure: Tenure,
}

impl KubeCluster {
    /// Sends through `client`, which comes from [`client`]; `field_manager` signs every write.
    #[must_use]
    pub fn new(client: Client, field_manager: &str, deadlines: Deadlines) -> Self {
        let writes = Semaphore::new(WRITES_IN_FLIGHT);
        Self {
            client,
            field_manager: field_manager.to_owned(),
            deadlines,
            writes,
            metrics: None,
            health: Health::default(),
            tenure: Tenure::without_end(),
        }
    }

    /// Writes nothing but leases outside of `tenure`.
    #[must_use]
    pub fn during(mut self, tenure: Tenure) -> Self {
        self.tenure = tenure;
        self
    }

    /// Shows to `health` when the API server answers.
    #[must_use]
    pub fn seen_by(mut self, health: Health) -> Self {
        self.health = health;
        self
    }

    /// Counts every request by verb and code.
    #[must_use]
    pub fn counted_in(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    async fn send(&self, request: Request) -> Result<Answer, ApiError> {
        let call = self.call_of(&request);
        let _turn = self.turn(&call).await;
        if call.needs_tenure && !self.tenure.is_on() {
            let detail = "this process does not lead any more".to_owned();
            return Err(ApiError::Conflict { detail });
        }
        match request {
            Request::Get(target) => self.get(call, &target).await,
            Request::List { resource, namespace, selector } => {
                self.list(call, &resource, namespace.as_deref(), &selector).await
            }
            Request::Create(object) => {
                let (path, _, body) = parts(&object)?;
                self.object(call, path.create(&self.posts(), body)).await
            }
            Request::Apply(object) => {
                let (path, name, _) = parts(&object)?;
                let apply = PatchParams::apply(&self.field_manager).force();
                self.object(call, path.patch(&name, &apply, &Patch::Apply(&object))).await
            }
            Request::Replace(object) => {
                let (path, name, body) = parts(&object)?;
                self.object(call, path.replace(&name, &self.posts(), body)).await
            }
            Request::ReplaceStatus(object) => {
                let (path, name, body) = parts(&object)?;
                let request = path.replace_subresource("status", &name, &self.posts(), body);
                self.object(call, request).await
            }
            Request::Patch { target, patch } => {
                let (path, patch) = (path_of(&target), Patch::Merge(&patch));
                self.object(call, path.patch(&target.name, &self.patches(), &patch)).await
            }
            Request::Strip { target, uid, resource_version, places } => {
                let patch = stripping(&uid, &resource_version, &places)?;
                let request = path_of(&target).patch(&target.name, &self.patches(), &patch);
                self.object(call, request).await
            }
            Request::PatchStatus { target, patch } => {
                let (path, patch) = (path_of(&target), Patch::Merge(&patch));
                let request =
                    path.patch_subresource("status", &target.name, &self.patches(), &patch);
                self.object(call, request).await
            }
            Request::Delete { target, uid, resource_version, propagation } => {
                let params = delete_params(uid, resource_version, propagation);
                let request = path_of(&target).delete(&target.name, &params);
                let bytes = self.exchange(call, request).await?;
                Ok(remains(&bytes).map_or(Answer::Done, Answer::Object))
            }
        }
    }

    async fn get(&self, call: Call, target: &Target) -> Result<Answer, ApiError> {
        let request = path_of(target).get(&target.name, &GetParams::default());
        match self.object(call, request).await {
            Err(ApiError::NotFound { .. }) => Ok(Answer::Absent),
            other => other,
        }
    }

    /// All pages of one version. A continuation that expired fails the list: half a list is none.
    async fn list(
        &self,
        call: Call,
        resource: &ApiResource,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Answer, ApiError> {
        let types =
            TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() };
        let path = path(resource, namespace);
        let mut params = ListParams::default().labels(selector).limit(PAGE_SIZE);
        let mut objects = Vec::new();
        loop {
            let page: Page<DynamicObject> = read(&self.exchange(call, path.list(&params)).await?)?;
            let next = page.next();
            // Items of built-in kinds come without their type.
            objects.extend(
                page.items
                    .into_iter()
                    .map(|object| DynamicObject { types: Some(types.clone()), ..object }),
            );
            let Some(token) = next else {
                return Ok(Answer::Objects(objects));
            };
            params.continue_token = Some(token);
        }
    }

    async fn object(&self, call: Call, request: Built) -> Result<Answer, ApiError> {
        let bytes = self.exchange(call, request).await?;
        Ok(Answer::Object(Box::new(read(&bytes)?)))
    }

    /// One HTTP request and its whole answer, within the deadline, counted.
    async fn exchange(&self, call: Call, request: Built) -> Result<Vec<u8>, ApiError> {
        let request = request.map_err(|error| ApiError::Invalid { detail: error.to_string() })?;
        let answer = tokio::time::timeout(call.deadline, self.once(request)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(unknown(&format!("no answer within {:?}", call.deadline))));
        let status = answer.as_ref().ok().map(|answer| answer.status.as_u16());
        if let Some(metrics) = &self.metrics {
            metrics.api_request(call.verb, status);
        }
        let answer = answer?;
        self.health.answered();
        if answer.status.is_success() { Ok(answer.body) } else { Err(refusal::of(&answer)) }
    }

    async fn once(&self, request: http::Request<Vec<u8>>) -> Result<HttpAnswer, ApiError> {
        let response =
            self.client.send(request.map(Body::from)).await.map_err(|error| unknown(&error))?;
        HttpAnswer::read(response).await.map_err(|error| unknown(&error))
    }

    /// A place among the writes in flight. Leases do not queue behind other writes.
    async fn turn(&self, call: &Call) -> Option<SemaphorePermit<'_>> {
        if call.needs_tenure { self.writes.acquire().await.ok() } else { None }
    }

    fn call_of(&self, request: &Request) -> Call {
        let lease = request.is_about_lease();
        Call {
            verb: request.verb(),
            deadline: if lease { self.deadlines.lease } else { self.deadlines.call },
            needs_tenure: request.is_write() && !lease,
        }
    }

    fn patches(&self) -> PatchParams {
        PatchParams { field_manager: Some(self.field_manager.clone()), ..PatchParams::default() }
    }

    fn posts(&self) -> PostParams {
        PostParams { field_manager: Some(self.field_manager.clone()), ..PostParams::default() }
    }
}

impl Cluster for KubeCluster {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<Answer, ApiError>> {
        Box::pin(self.send(request))
    }
}

impl fmt::Debug for KubeCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeCluster")
            .field("field_manager", &self.field_manager)
            .finish_non_exhaustive()
    }
}

type Built = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// How one request is treated.
#[derive(Clone, Copy)]
struct Call {
    verb: &'static str,
    deadline: Duration,
    /// A write of one who leads, and so one of a bounded number.
    needs_tenure: bool,
}

fn path(resource: &ApiResource, namespace: Option<&str>) -> Builder {
    Builder::new(DynamicObject::url_path(resource, namespace))
}

fn path_of(target: &Target) -> Builder {
    path(&target.resource, target.namespace.as_deref())
}

/// Where an object is written, its name, and its bytes.
fn parts(object: &DynamicObject) -> Result<(Builder, String, Vec<u8>), ApiError> {
    let target = Target::of(object);
    let body = serde_json::to_vec(object)
        .map_err(|error| ApiError::Invalid { detail: error.to_string() })?;
    Ok((path_of(&target), target.name, body))
}

/// Its uid and version are set to what they are: if they are not, that is a conflict, where a test that fails would be an
/// invalid patch.
fn stripping(uid: &str, resource_version: &str, places: &[String]) -> Result<Patch<()>, ApiError> {
    let guards = [("/metadata/uid", uid), ("/metadata/resourceVersion", resource_version)];
    let guards = guards.map(|(path, value)| json!({"op": "replace", "path": path, "value": value}));
    let removals = places.iter().map(|place| json!({"op": "remove", "path": place}));
    let steps = guards.into_iter().chain(removals).collect();
    serde_json::from_value(Value::Array(steps))
        .map(Patch::Json)
        .map_err(|error| ApiError::Invalid { detail: error.to_string() })
}

fn delete_params(
    uid: String,
    resource_version: Option<String>,
    propagation: Propagation,
) -> DeleteParams {
    let params = match propagation {
        Propagation::Foreground => DeleteParams::foreground(),
        Propagation::Background => DeleteParams::background(),
    };
    params.preconditions(Preconditions { uid: Some(uid), resource_version })
}

/// A body that ends early is a broken connection, not a strange answer.
fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Eof | serde_json::error::Category::Io => unknown(&error),
        serde_json::error::Category::Syntax | serde_json::error::Category::Data => {
            ApiError::Unreadable { detail: error.to_string() }
        }
    })
}

/// The object that a deletion leaves for now: with a finalizer, or with dependents that go first. What is gone at once is
/// answered with a Status, which has no resourceVersion.
fn remains(body: &[u8]) -> Option<Box<DynamicObject>> {
    let object: DynamicObject = serde_json::from_slice(body).ok()?;
    object.metadata.resource_version.is_some().then(|| Box::new(object))
}

fn unknown(why: &dyn fmt::Display) -> ApiError {
    ApiError::Unknown { detail: why.to_string() }
}

#[cfg(test)]
mod tests;
