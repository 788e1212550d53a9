//! Requests of the product as the model knows them, and the model's answers as the product reads them.

use diskimage_controller::names::{JobRole, attempt_number};
use k8s_openapi::api::batch::v1::Job;
use kube::Resource;
use kube::core::DynamicObject;
use otctl_kit::cluster::{Answer, Request, erase, typed};
use otctl_kit::plan::Propagation;
use otctl_types::names::OWNER_LABEL;
use otctl_types::queue::AdmissionQueueStatus;

use super::statuses::Statuses;
use super::{Product, View};
use crate::objects;
use crate::state::{Import, PodState, Uid, Write};

/// A consistent read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Read {
    Policy,
    Ledger,
    Image(u8),
    Jobs(Of),
    Pods(Of),
}

/// Whose Jobs or pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Of {
    All,
    One(Uid),
}

/// The answer to a read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Told {
    Policy(u8),
    Ledger(u16),
    Image(Option<Uid>),
    Jobs(Vec<Import>),
    Pods(Vec<Import>),
}

impl Product {
    pub(super) fn answer(&self, told: &Told) -> Answer {
        match told {
            Told::Policy(policy) => Answer::Object(erase(&self.config_map(*policy))),
            Told::Ledger(status) => {
                Answer::Object(erase(&objects::queue(&self.statuses.ledger(*status))))
            }
            Told::Image(None) => Answer::Absent,
            Told::Image(Some(uid)) => Answer::Object(erase(&objects::bare_image(*uid))),
            Told::Jobs(imports) => list(imports.iter().filter(|it| it.has_job()).map(objects::job)),
            Told::Pods(imports) => {
                list(imports.iter().filter(|it| it.pod != PodState::None).map(objects::pod))
            }
        }
    }
}

/// A request that changes what the model has; none for claims and Events.
pub(super) fn write(statuses: &Statuses, view: &View, request: &Request) -> Option<Write> {
    match request {
        Request::ReplaceStatus(object) => {
            assert_eq!(object.metadata.resource_version.as_deref(), Some(objects::LEDGER_VERSION));
            let status: AdmissionQueueStatus =
                serde_json::from_value(object.data["status"].clone()).expect("a status");
            Some(Write::Swap(statuses.number_of_ledger(&status)))
        }
        Request::PatchStatus { target, patch } => {
            assert_eq!(
                patch["metadata"]["resourceVersion"],
                objects::IMAGE_VERSION,
                "one write of a status a pass"
            );
            let name: u8 = target.name[1..].parse().expect("images are i0, i1, i2");
            let image = view.images[usize::from(name)].expect("it was seen");
            let number = statuses.number_of_patch(&patch["status"]);
            Some(Write::Patch(Uid { name, life: image.life }, number))
        }
        Request::Create(object) if is_job(object) => {
            let job: Job = typed(DynamicObject::clone(object)).expect("a Job");
            Some(Write::Create {
                image: objects::owner_of(&job.metadata).expect("a child has an owner"),
                number: import_number(&job.metadata.name.clone().unwrap_or_default()),
                is_started: job.spec.and_then(|spec| spec.suspend) != Some(true),
            })
        }
        Request::Apply(object) if is_job(object) => {
            assert_eq!(object.data["spec"], serde_json::json!({"suspend": false}));
            let uid = object.metadata.uid.as_deref().expect("an apply carries a UID");
            Some(Write::Start(objects::job_of(uid).expect("the UID of an import Job")))
        }
        Request::Delete { target, uid, resource_version, propagation } => {
            let job = objects::job_of(uid).filter(|_| target.resource.kind == "Job")?;
            let only = resource_version.as_ref().map(|text| text.parse().expect("a small number"));
            let is_foreground = *propagation == Propagation::Foreground;
            Some(Write::Delete { job, only, is_foreground })
        }
        Request::Create(_) | Request::Apply(_) => None,
        Request::Get(_)
        | Request::List { .. }
        | Request::Replace(_)
        | Request::Patch { .. }
        | Request::Strip { .. } => {
            panic!("the model knows no such write: {request:?}")
        }
    }
}

fn import_number(name: &str) -> u8 {
    let number = attempt_number(name, JobRole::Import).expect("only import Jobs are made here");
    u8::try_from(number).expect("attempts are few")
}

fn is_job(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "Job")
}

fn list<K>(objects: impl Iterator<Item = K>) -> Answer
where
    K: Resource<DynamicType = ()> + serde::Serialize,
{
    Answer::Objects(objects.map(|object| *erase(&object)).collect())
}

/// What a request that is no write asks for.
pub(super) fn read(request: &Request) -> Read {
    let of = |selector: &str| {
        let owner = selector.strip_prefix(OWNER_LABEL).and_then(|rest| rest.strip_prefix('='));
        owner.map_or(Of::All, |uid| Of::One(objects::uid_of(uid).expect("the UID of an image")))
    };
    match request {
        Request::Get(target) => match target.resource.kind.as_str() {
            "ConfigMap" => Read::Policy,
            "AdmissionQueue" => Read::Ledger,
            "VMDiskImage" => Read::Image(target.name[1..].parse().expect("images are i0, i1, i2")),
            kind => panic!("the model has no {kind}"),
        },
        Request::List { resource, selector, .. } => match resource.kind.as_str() {
            "Job" => Read::Jobs(of(selector)),
            "Pod" => Read::Pods(of(selector)),
            kind => panic!("the model has no {kind}"),
        },
        _ => panic!("a pass waits for reads only: {request:?}"),
    }
}
