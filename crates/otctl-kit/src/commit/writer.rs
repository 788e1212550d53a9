//! How each kind of write is made, and what its answer means.

use kube::core::DynamicObject;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{Author, Step, WriteError};
use crate::cluster::{Answer, ApiError, Cluster, Request, Target, erase};
use crate::expectations::{Expectation, Fact};
use crate::merge::merge_diff;
use crate::notice;
use crate::plan::{Action, Notice};
use crate::reconciler::Subject;
use crate::store::Version;

/// Makes the writes of one plan.
pub(super) struct Writer<'a> {
    cluster: &'a dyn Cluster,
    author: Author,
    /// The plan's own object, as our own writes move it on.
    subject: Option<Subject>,
    /// What the answers told so far.
    expected: Vec<Expectation>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(cluster: &'a dyn Cluster, author: Author, subject: Option<&Subject>) -> Self {
        Self { cluster, author, subject: subject.cloned(), expected: Vec::new() }
    }

    /// What the plan is about, for logs.
    pub(super) fn about(&self) -> String {
        self.subject.as_ref().map(|subject| subject.target.to_string()).unwrap_or_default()
    }

    /// The plan's own object as the writes left it, and what views are expected to show of all they told.
    pub(super) fn into_parts(self) -> (Option<Subject>, Vec<Expectation>) {
        (self.subject, self.expected)
    }

    pub(super) async fn carry_out(&mut self, step: &Step<'_>) -> Result<(), WriteError> {
        match step {
            Step::Write(write) | Step::Clear(write) => self.write(&write.action).await,
            Step::Status { whole, .. } => self.patch_status(whole).await,
            Step::Notice(notice) => self.publish(notice).await,
        }
    }

    async fn write(&mut self, action: &Action) -> Result<(), WriteError> {
        match action {
            Action::Remember(status) => self.patch_status(status).await,
            Action::Swap(status) => self.swap(status).await,
            Action::Finalize(finalizers) => self.finalize(finalizers).await,
            Action::Mark { target, resource_version, fields } => {
                let patch = status_patch(resource_version, fields);
                let target = target.clone();
                let guard = Guard::of(&target).version(resource_version);
                self.change(Request::PatchStatus { target, patch }, guard).await
            }
            Action::Ensure(object) if says_anything(object) => Err(WriteError::Unsound {
                why: "an ensure that sets anything could win over another's",
            }),
            Action::Ensure(object) => {
                let guard = Guard::of(&Target::of(object));
                self.change(Request::Apply(object.clone()), guard).await
            }
            Action::Create(object) => {
                let made = self.make(object, Request::Create(object.clone())).await;
                self.settled(object, made).await
            }
            Action::Establish(object) => self.establish(object).await,
            Action::Either { wanted, otherwise } => self.either(wanted, otherwise).await,
            Action::Apply(object) if object.metadata.uid.is_none() => Err(WriteError::Unsound {
                why: "an apply without a uid could take over another's object",
            }),
            Action::Apply(object) => {
                let uid = object.metadata.uid.as_deref().unwrap_or_default();
                let guard = Guard::of(&Target::of(object)).uid(uid);
                let version = object.metadata.resource_version.iter();
                let guard = version.fold(guard, |guard, version| guard.version(version));
                self.change(Request::Apply(object.clone()), guard).await
            }
            Action::Strip { target, uid, resource_version, places } => {
                let request = Request::Strip {
                    target: target.clone(),
                    uid: uid.clone(),
                    resource_version: resource_version.clone(),
                    places: places.clone(),
                };
                let guard = Guard::of(target).uid(uid).version(resource_version);
                self.change(request, guard).await
            }
            Action::Delete { target, uid, resource_version, propagation } => {
                let request = Request::Delete {
                    target: target.clone(),
                    uid: uid.clone(),
                    resource_version: resource_version.clone(),
                    propagation: *propagation,
                };
                let guard = Guard::of(target).uid(uid);
                let guard = resource_version.iter().fold(guard, |guard, each| guard.version(each));
                self.delete(request, guard).await
            }
        }
    }

    async fn either(&mut self, wanted: &Action, otherwise: &Action) -> Result<(), WriteError> {
        match Box::pin(self.write(wanted)).await {
            Err(WriteError::Refused(error)) if otherwise.helps(&error) => {
                Box::pin(self.write(otherwise)).await
            }
            done => done,
        }
    }

    /// Sends what differs, be it nothing: what follows may rely on nobody else having written meanwhile. The
    /// resourceVersion is the only guard of a status: the API server ignores a uid there.
    async fn patch_status(&mut self, status: &Value) -> Result<(), WriteError> {
        let subject = self.subject()?;
        let change = merge_diff(&subject.status, status).unwrap_or_else(|| json!({}));
        let patch = status_patch(&subject.resource_version, &change);
        let target = subject.target.clone();
        let guard = Guard::of(&target).version(&subject.resource_version).uid(&subject.uid);
        self.write_own(Request::PatchStatus { target, patch }, guard, status).await
    }

    /// A PUT of the status ignores everything of the object but its identity and version.
    async fn swap(&mut self, status: &Value) -> Result<(), WriteError> {
        let Subject { target, uid, resource_version, .. } = self.subject()?;
        let mut object =
            DynamicObject::new(&target.name, &target.resource).data(json!({ "status": status }));
        object.metadata.namespace.clone_from(&target.namespace);
        object.metadata.uid = Some(uid.clone());
        object.metadata.resource_version = Some(resource_version.clone());
        let guard = Guard::of(target).version(resource_version).uid(uid);
        self.write_own(Request::ReplaceStatus(Box::new(object)), guard, status).await
    }

    async fn finalize(&mut self, finalizers: &[String]) -> Result<(), WriteError> {
        let Subject { target, uid, resource_version, status } = self.subject()?.clone();
        let metadata =
            json!({ "uid": uid, "resourceVersion": resource_version, "finalizers": finalizers });
        let guard = Guard::of(&target).version(&resource_version).uid(&uid);
        let patch = json!({ "metadata": metadata });
        self.write_own(Request::Patch { target, patch }, guard, &status).await
    }

    /// A write to the subject; the next one is guarded by the version it leaves.
    async fn write_own(
        &mut self,
        request: Request,
        guard: Guard,
        status: &Value,
    ) -> Result<(), WriteError> {
        match self.send(request, guard).await {
            Ok(Answer::Object(object)) => {
                if let Some(subject) = &mut self.subject {
                    subject.resource_version = object.resource_version().unwrap_or_default();
                    subject.status = status.clone();
                }
                Ok(())
            }
            Ok(_) => Err(ApiError::Unreadable {
                detail: "a write was answered without the object".to_owned(),
            }
            .into()),
            Err(ApiError::NotFound { .. }) => Err(WriteError::Gone),
            Err(error) => Err(error.into()),
        }
    }

    /// A write to another object that was read: if that is gone, what was read is out of date.
    async fn change(&mut self, request: Request, guard: Guard) -> Result<(), WriteError> {
        match self.send(request, guard).await {
            Ok(_) => Ok(()),
            Err(ApiError::NotFound { detail }) => Err(ApiError::Conflict { detail }.into()),
            Err(error) => Err(error.into()),
        }
    }

    async fn establish(&mut self, object: &DynamicObject) -> Result<(), WriteError> {
        let mut only_new = Box::new(object.clone());
        only_new.metadata.resource_version = Some(NOBODYS_VERSION.to_owned());
        let made = self.make(object, Request::Apply(only_new)).await;
        self.settled(object, made.map_err(taken)).await
    }

    async fn make(&mut self, object: &DynamicObject, request: Request) -> Result<(), ApiError> {
        let guard = Guard::of(&Target::of(object));
        self.send(request, guard).await.map(drop)
    }

    /// A name that is taken, and a create whose outcome is not known, are settled by looking who owns the name. What nobody
    /// is to own is nobody's to claim: whoever made it, it is looked at anew.
    async fn settled(
        &mut self,
        object: &DynamicObject,
        made: Result<(), ApiError>,
    ) -> Result<(), WriteError> {
        let target = Target::of(object);
        match made {
            Ok(()) => Ok(()),
            Err(ApiError::AlreadyExists) if !has_controller(object) => {
                Err(ApiError::Conflict { detail: format!("{target} is there already") }.into())
            }
            Err(error) if matches!(error, ApiError::AlreadyExists) || error.is_unknown() => {
                self.settle(target, error).await
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn settle(&mut self, target: Target, error: ApiError) -> Result<(), WriteError> {
        match self.cluster.call(Request::Get(target.clone())).await? {
            Answer::Object(found) if self.owns(&found) => {
                self.expected.extend(Guard::of(&target).tells(&Ok(Answer::Object(found))));
                Ok(())
            }
            Answer::Object(found) => {
                let found = Box::new(found.metadata);
                Err(WriteError::Foreign { object: target.to_string(), found })
            }
            _ if matches!(error, ApiError::AlreadyExists) => {
                Err(ApiError::Conflict { detail: format!("{target} was there and went") }.into())
            }
            _ => Err(error.into()),
        }
    }

    fn owns(&self, found: &DynamicObject) -> bool {
        let mut owners = found.meta().owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        self.subject
            .as_ref()
            .zip(controller)
            .is_some_and(|(subject, owner)| owner.uid == subject.uid)
    }

    async fn delete(&mut self, request: Request, guard: Guard) -> Result<(), WriteError> {
        match self.send(request, guard).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a write and keeps what its answer tells of the object.
    async fn send(&mut self, request: Request, guard: Guard) -> Result<Answer, ApiError> {
        let answer = self.cluster.call(request).await;
        self.expected.extend(guard.tells(&answer));
        answer
    }

    async fn publish(&self, notice: &Notice) -> Result<(), WriteError> {
        let regarding =
            notice.regarding.clone().map_or_else(|| self.subject().map(Subject::reference), Ok)?;
        let event = notice::event(notice, regarding, self.author);
        match self.cluster.call(Request::Create(erase(&event))).await {
            Ok(_) | Err(ApiError::AlreadyExists) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn subject(&self) -> Result<&Subject, WriteError> {
        self.subject
            .as_ref()
            .ok_or(WriteError::Unsound { why: "it writes about an object that is gone" })
    }
}

/// A resourceVersion that no object has: the store counts from it before it holds anything.
const NOBODYS_VERSION: &str = "1";

/// An object that has another version than nobody's is there.
fn taken(error: ApiError) -> ApiError {
    if matches!(error, ApiError::Conflict { .. }) { ApiError::AlreadyExists } else { error }
}

/// Which object a write is to, and the preconditions it carries.
struct Guard {
    target: Target,
    version: Option<Version>,
    uid: Option<String>,
}

impl Guard {
    fn of(target: &Target) -> Self {
        Self { target: target.clone(), version: None, uid: None }
    }

    fn version(self, version: &str) -> Self {
        Self { version: Some(Version::read(version)), ..self }
    }

    fn uid(self, uid: &str) -> Self {
        Self { uid: Some(uid.to_owned()), ..self }
    }

    /// What the answer tells of the object. A refusal for another reason tells nothing, nor does an answer that did not
    /// come. A deletion whose answer still shows the object has begun; any other is over.
    fn tells(self, answer: &Result<Answer, ApiError>) -> Option<Expectation> {
        let left = self.version.map(Fact::Left);
        let gone = self.uid.map(|uid| Fact::Gone { uid });
        let fact = match answer {
            Ok(Answer::Object(object)) => Some(Fact::Reached(Version::of(&**object))),
            Ok(Answer::Done) | Err(ApiError::NotFound { .. }) => gone.or(left),
            Err(ApiError::Conflict { .. }) => left.or(gone),
            Ok(Answer::Absent | Answer::Objects(_)) | Err(_) => None,
        };
        fact.map(|fact| Expectation { target: self.target, fact })
    }
}

fn has_controller(object: &DynamicObject) -> bool {
    object.owner_references().iter().any(|owner| owner.controller == Some(true))
}

/// Whether it holds more than metadata. An empty spec says nothing; kinds that require one get it so.
fn says_anything(object: &DynamicObject) -> bool {
    let fields = object.data.as_object().into_iter().flatten();
    let mut said =
        fields.filter(|(_, value)| !value.as_object().is_some_and(serde_json::Map::is_empty));
    said.next().is_some()
}

fn status_patch(version: &str, fields: &Value) -> Value {
    json!({ "metadata": { "resourceVersion": version }, "status": fields })
}
