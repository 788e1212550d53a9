//! A controller small enough to read at once, that follows the ledger protocol: one loop gives tickets and slots, one
//! carries out one attempt per image. Each [`Mutation`] is a mistake that the harness must find.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};
use otctl_kit::cluster::{ApiError, Target, erase};
use otctl_kit::driver::owner_key;
use otctl_kit::plan::{Action, Next, Plan, Propagation, Write};
use otctl_kit::reader::Reader;
use otctl_kit::reconciler::{Observation, Reconciler, Subject};
use otctl_kit::store::{Key, Store};
use otctl_types::diskimage::{OpenAttempt, Phase};
use otctl_types::names::{ATTEMPT_ANNOTATION, IMAGE_QUEUE, ROLE_LABEL};
use otctl_types::queue::ActiveEntry;
use otctl_types::{AdmissionQueue, AdmissionQueueStatus, VMDiskImage, VMDiskImageStatus};
use policy::Ticket;
use serde_json::{Value, json};

use super::{Connection, Instance, Loop, Order, Sim, Wakes};
use crate::views::Feed;
use crate::world::World;

/// A seeded mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    None,
    /// Import Jobs are created running.
    StartsAtOnce,
    /// The Job is started before its attempt is on record.
    StartsUnrecorded,
    /// One more than the limit is admitted.
    AdmitsOneMore,
    /// The youngest goes first.
    AdmitsBackwards,
    /// The slot is given back as soon as the Job is on record.
    GivesBackEarly,
    /// The slot of an image that is gone is given back without a look at its Job and pod.
    TrustsAbsence,
    /// The number of the attempt stands in memory.
    CountsInMemory,
    /// The Job has no owner.
    ForgetsOwner,
    /// The Job is started by name alone.
    AppliesByName,
    /// An attempt is closed when the cache lacks its Job, without a look at its pod.
    ClosesWithoutLook,
    /// Decides by something else than the facts.
    Moody,
    /// Never wakes the queue when an attempt has ended.
    WakesNobody,
}

/// A world with that controller in it.
pub(crate) fn toy(order: Order, mutation: Mutation) -> Sim {
    let starts = AtomicI64::new(0);
    let sim = Sim::new(order).with_process("toy", move |connection| {
        instance(connection, mutation, starts.fetch_add(1, Ordering::Relaxed) + 1)
    });
    sim.world.create(&AdmissionQueue::new(IMAGE_QUEUE, otctl_types::AdmissionQueueSpec::default()));
    crate::builders::policy().concurrency(1).apply(&sim.world);
    sim
}

pub(crate) fn images(world: &World) -> Vec<VMDiskImage> {
    world
        .list("VMDiskImage")
        .into_iter()
        .map(|image| serde_json::from_value(image).unwrap())
        .collect()
}

fn instance(connection: &Connection, mutation: Mutation, start: i64) -> Instance {
    let views = Views::default();
    let [slots, attempts] = [Wakes::new(&connection.clock), Wakes::new(&connection.clock)];
    let (queue, image) = (slots.clone(), attempts.clone());
    views.images.subscribe(move |object| {
        image.wake(&Key::of(object));
        if mutation != Mutation::WakesNobody {
            queue.wake(&Key::new("", IMAGE_QUEUE));
        }
    });
    let (image, images) = (attempts.clone(), views.images.clone());
    views
        .queues
        .subscribe(move |_| images.all().iter().for_each(|object| image.wake(&Key::of(&**object))));
    let (image, queue) = (attempts.clone(), slots.clone());
    views.jobs.subscribe(move |job| {
        owner_key::<VMDiskImage, _>(job).iter().for_each(|key| image.wake(key));
        queue.wake(&Key::new("", IMAGE_QUEUE));
    });
    let (image, images, queue) = (attempts.clone(), views.images.clone(), slots.clone());
    views.pods.subscribe(move |_| {
        images.all().iter().for_each(|object| image.wake(&Key::of(&**object)));
        queue.wake(&Key::new("", IMAGE_QUEUE));
    });
    let reader = Reader::new(connection.cluster.clone());
    Instance {
        feeds: vec![
            Feed::new(&views.images),
            Feed::new(&views.queues),
            Feed::new(&views.jobs),
            Feed::new(&views.pods),
        ],
        loops: vec![
            Loop::of(
                Slots { views: views.clone(), reader: reader.clone(), mutation },
                connection,
                &slots,
            ),
            Loop::of(Attempts { views, reader, mutation, start }, connection, &attempts),
        ],
    }
}

#[derive(Clone, Default)]
struct Views {
    images: Store<VMDiskImage>,
    queues: Store<AdmissionQueue>,
    jobs: Store<Job>,
    pods: Store<Pod>,
}

struct Slots {
    views: Views,
    reader: Reader,
    mutation: Mutation,
}

struct Queue {
    ledger: AdmissionQueue,
    images: Vec<VMDiskImage>,
    /// Holders that a consistent read found gone, and nothing of them running.
    gone: Vec<String>,
    /// Jobs of holders that are gone.
    left: Vec<Job>,
    limit: usize,
    mutation: Mutation,
}

impl Observation for Queue {
    fn subject(&self) -> Option<Subject> {
        Some(subject(&self.ledger, &self.ledger.status))
    }
}

impl Reconciler for Slots {
    type Observed = Queue;
    type Status = AdmissionQueueStatus;
    const NAME: &'static str = "queue";

    async fn observe(&self, _: &Key) -> Result<Queue, ApiError> {
        let ledger: AdmissionQueue =
            self.reader.get(None, IMAGE_QUEUE).await?.expect("tests begin with a ledger");
        let mut images: Vec<VMDiskImage> =
            self.views.images.all().iter().map(|image| (**image).clone()).collect();
        images.sort_by_key(|image| image.metadata.uid.clone());
        let (mut gone, mut left) = (Vec::new(), Vec::new());
        for entry in ledger.status.iter().flat_map(|status| &status.active) {
            let is_seen =
                images.iter().any(|image| image.metadata.uid.as_ref() == Some(&entry.uid));
            if is_seen {
                continue;
            }
            let now: Option<VMDiskImage> =
                self.reader.get(Some(&entry.namespace), &entry.name).await?;
            if now.is_some_and(|now| now.metadata.uid.as_ref() == Some(&entry.uid)) {
                continue;
            }
            let job: Option<Job> =
                self.reader.get(Some(&entry.namespace), &job_name(&entry.uid, 1)).await?;
            let pods: Vec<Pod> = self.reader.list(Some(&entry.namespace), "").await?;
            let runs = pods.iter().any(|pod| pod.name_any().starts_with(&job_name(&entry.uid, 1)));
            if (job.is_none() && !runs) || self.mutation == Mutation::TrustsAbsence {
                gone.push(entry.uid.clone());
            }
            left.extend(job);
        }
        let policy: Vec<k8s_openapi::api::core::v1::ConfigMap> = self.reader.list(None, "").await?;
        let data = policy.into_iter().find_map(|policy| policy.data?.remove("concurrency"));
        let limit = data.and_then(|text| text.parse().ok()).unwrap_or(1);
        Ok(Queue { ledger, images, gone, left, limit, mutation: self.mutation })
    }

    fn decide(observed: &Queue, now: Timestamp) -> Plan<AdmissionQueueStatus> {
        let mut plan = Plan::rest("slots");
        let before = observed.ledger.status.clone().unwrap_or_default();
        let status = admit(observed, &before, now);
        if status != before {
            let whole = serde_json::to_value(&status).unwrap();
            plan.writes.push(Write { action: Action::Swap(whole), because: "slots came free" });
        }
        for job in &observed.left {
            plan.writes.push(delete(job, "its image is gone"));
        }
        let tickets =
            observed.images.iter().filter_map(|image| image.status.as_ref()?.ticket.as_ref());
        let mut next = Ticket::next_first(tickets.filter_map(|ticket| ticket.parse().ok()));
        for image in observed.images.iter().filter(|image| ticket(image).is_none()) {
            plan.writes.push(Write { action: mark(image, next), because: "it is next in line" });
            next = Ticket::next_first([next]);
        }
        plan
    }
}

fn admit(observed: &Queue, before: &AdmissionQueueStatus, now: Timestamp) -> AdmissionQueueStatus {
    let mut status = before.clone();
    status.active.retain(|entry| {
        let image =
            observed.images.iter().find(|image| image.metadata.uid.as_ref() == Some(&entry.uid));
        let record = image.and_then(|image| image.status.as_ref());
        let used = record.and_then(|status| status.last_attempt).unwrap_or(0) >= entry.attempt;
        let is_open = record.is_some_and(|status| status.open_attempt.is_some());
        let early = observed.mutation == Mutation::GivesBackEarly;
        !(observed.gone.contains(&entry.uid) || used && (!is_open || early))
    });
    let mut waiting: Vec<(Ticket, &VMDiskImage)> = observed
        .images
        .iter()
        .filter(|image| image.status.as_ref().and_then(|status| status.last_attempt).is_none())
        .filter_map(|image| Some((ticket(image)?, image)))
        .filter(|(_, image)| {
            !status.active.iter().any(|entry| Some(&entry.uid) == image.metadata.uid.as_ref())
        })
        .collect();
    waiting.sort_by_key(|(ticket, _)| *ticket);
    if observed.mutation == Mutation::AdmitsBackwards {
        waiting.reverse();
    }
    let limit = observed.limit + usize::from(observed.mutation == Mutation::AdmitsOneMore);
    let room = limit.saturating_sub(status.active.len());
    status
        .active
        .extend(waiting.into_iter().take(room).map(|(ticket, image)| entry(image, ticket, now)));
    status.limit = i32::try_from(observed.limit).ok();
    status
}

struct Attempts {
    views: Views,
    reader: Reader,
    mutation: Mutation,
    /// How many times this process was started.
    start: i64,
}

struct Image {
    image: Option<VMDiskImage>,
    /// The ledger holds attempt 1 of it now.
    is_held: bool,
    job: Option<Job>,
    /// Neither its Job nor a pod of it is there.
    is_gone: bool,
    number: i64,
    mutation: Mutation,
}

impl Observation for Image {
    fn subject(&self) -> Option<Subject> {
        self.image.as_ref().map(|image| subject(image, &image.status))
    }
}

impl Reconciler for Attempts {
    type Observed = Image;
    type Status = VMDiskImageStatus;
    const NAME: &'static str = "image";

    async fn observe(&self, key: &Key) -> Result<Image, ApiError> {
        let image = self.views.images.get(key).map(|image| (*image).clone());
        let uid = image.as_ref().and_then(|image| image.metadata.uid.clone()).unwrap_or_default();
        let ledger: Option<AdmissionQueue> = self.reader.get(None, IMAGE_QUEUE).await?;
        let active = ledger.and_then(|ledger| ledger.status).unwrap_or_default().active;
        let number = if self.mutation == Mutation::CountsInMemory { self.start } else { 1 };
        let name = job_name(&uid, number);
        let is_sought = |job: &&std::sync::Arc<Job>| {
            self.mutation != Mutation::CountsInMemory || job.name_any() == name
        };
        let job = self.views.jobs.owned_by(&uid).iter().find(is_sought).map(|job| (**job).clone());
        let pods: Vec<Pod> = self.reader.list(key.scope(), "").await?;
        let is_gone = job.is_none()
            && self.reader.get::<Job>(key.scope(), &name).await?.is_none()
            && !pods.iter().any(|pod| pod.name_any().starts_with(&name));
        let is_held = active.iter().any(|entry| entry.uid == uid);
        Ok(Image { image, is_held, job, is_gone, number, mutation: self.mutation })
    }

    fn decide(observed: &Image, _: Timestamp) -> Plan<VMDiskImageStatus> {
        let Some(image) = &observed.image else { return Plan::rest("gone") };
        let status = image.status.clone().unwrap_or_default();
        match (&status.open_attempt, status.last_attempt) {
            (None, Some(_)) => Plan::rest("done"),
            (None, None) if !observed.is_held => wait(&status),
            (None, None) => begin(observed, image, &status),
            (Some(open), _) => go_on(observed, open, &status),
        }
    }
}

fn wait(status: &VMDiskImageStatus) -> Plan<VMDiskImageStatus> {
    let mut plan = Plan::rest("queued");
    if status.ticket.is_some() {
        plan.status = Some(VMDiskImageStatus { phase: Some(Phase::Queued), ..status.clone() });
    }
    plan
}

fn begin(
    observed: &Image,
    image: &VMDiskImage,
    status: &VMDiskImageStatus,
) -> Plan<VMDiskImageStatus> {
    let mut plan = Plan::rest("begin");
    let Some(job) = &observed.job else {
        let job = build_job(observed, image);
        plan.writes.push(Write { action: Action::Create(erase(&job)), because: "it was admitted" });
        return plan;
    };
    if observed.mutation == Mutation::StartsUnrecorded && is_suspended(job) {
        plan.writes.push(start(job));
        return plan;
    }
    let open = OpenAttempt {
        number: 1,
        job_uid: job.metadata.uid.clone().unwrap_or_default(),
        started_at: None,
        ticket: status.ticket.clone(),
        budget: None,
        revision: None,
        never_ran: false,
        cut: None,
    };
    plan.status = Some(VMDiskImageStatus {
        phase: Some(Phase::Syncing),
        last_attempt: Some(1),
        open_attempt: Some(open),
        ..status.clone()
    });
    plan
}

fn go_on(
    observed: &Image,
    open: &OpenAttempt,
    status: &VMDiskImageStatus,
) -> Plan<VMDiskImageStatus> {
    let mut plan = Plan::rest("attempt");
    let closed = |phase| {
        Some(VMDiskImageStatus { phase: Some(phase), open_attempt: None, ..status.clone() })
    };
    match &observed.job {
        Some(job) if is_condition(job, "Complete") => plan.status = closed(Phase::Succeeded),
        Some(job) if is_condition(job, "Failed") => plan.status = closed(Phase::Failed),
        Some(job) if job.metadata.uid.as_ref() != Some(&open.job_uid) => {
            plan.writes.push(delete(job, "no record speaks for it"))
        }
        Some(job) if is_suspended(job) && observed.is_held => {
            let mut write = start(job);
            if observed.mutation == Mutation::AppliesByName
                && let Action::Apply(object) = &mut write.action
            {
                object.metadata.uid = None;
            }
            plan.writes.push(write);
        }
        Some(_) => plan.verdict = "runs",
        None if observed.is_gone || observed.mutation == Mutation::ClosesWithoutLook => {
            plan.status = closed(Phase::Failed)
        }
        None => plan.verdict = "looks",
    }
    if observed.mutation == Mutation::Moody {
        let mood = MOOD.fetch_add(1, Ordering::Relaxed);
        plan.next = Next::At(Timestamp::from_second(4_000_000_000 + mood).unwrap());
    }
    plan
}

/// What a decision must not look at.
static MOOD: AtomicI64 = AtomicI64::new(0);

fn build_job(observed: &Image, image: &VMDiskImage) -> Job {
    let uid = image.metadata.uid.clone().unwrap_or_default();
    let mut object = crate::builders::job("x/y")
        .with(|job| {
            job["metadata"] = json!({
                "name": job_name(&uid, observed.number), "namespace": image.namespace(),
                "labels": {ROLE_LABEL: "import"}, "annotations": {ATTEMPT_ANNOTATION: "1"},
            });
            job["spec"]["suspend"] = json!(observed.mutation != Mutation::StartsAtOnce);
            job["spec"]["ttlSecondsAfterFinished"] = json!(3600);
            job["spec"]["template"]["metadata"] = json!({"labels": {ROLE_LABEL: "import"}});
        })
        .build();
    if observed.mutation != Mutation::ForgetsOwner {
        object["metadata"]["ownerReferences"] = json!([image.controller_owner_ref(&()).unwrap()]);
    }
    serde_json::from_value(object).unwrap()
}

fn start(job: &Job) -> Write {
    let target = Target::new::<Job>(job.namespace().as_deref(), &job.name_any());
    let mut object = kube::core::DynamicObject::new(&target.name, &target.resource)
        .data(json!({"spec": {"suspend": false}}));
    object.metadata.namespace = target.namespace;
    object.metadata.uid.clone_from(&job.metadata.uid);
    Write { action: Action::Apply(Box::new(object)), because: "its attempt is on record" }
}

fn delete(job: &Job, because: &'static str) -> Write {
    let action = Action::Delete {
        target: Target::new::<Job>(job.namespace().as_deref(), &job.name_any()),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        resource_version: None,
        propagation: Propagation::Foreground,
    };
    Write { action, because }
}

fn mark(image: &VMDiskImage, ticket: Ticket) -> Action {
    Action::Mark {
        target: Target::new::<VMDiskImage>(image.namespace().as_deref(), &image.name_any()),
        resource_version: image.resource_version().unwrap_or_default(),
        fields: json!({"ticket": ticket.to_string()}),
    }
}

fn entry(image: &VMDiskImage, ticket: Ticket, now: Timestamp) -> ActiveEntry {
    ActiveEntry {
        namespace: image.namespace().unwrap_or_default(),
        name: image.name_any(),
        uid: image.metadata.uid.clone().unwrap_or_default(),
        attempt: 1,
        ticket: ticket.to_string(),
        host: None,
        since: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now),
    }
}

fn ticket(image: &VMDiskImage) -> Option<Ticket> {
    image.status.as_ref()?.ticket.as_ref()?.parse().ok()
}

fn job_name(uid: &str, number: i64) -> String {
    format!("import-{}-{number}", &uid[uid.len().saturating_sub(4)..])
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

fn is_condition(job: &Job, kind: &str) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == kind && condition.status == "True")
}

fn subject<K: Resource<DynamicType = ()>, S: serde::Serialize>(
    object: &K,
    status: &Option<S>,
) -> Subject {
    let meta = object.meta();
    Subject {
        target: Target::new::<K>(meta.namespace.as_deref(), &object.name_any()),
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        status: status.as_ref().map_or(Value::Null, |status| serde_json::to_value(status).unwrap()),
    }
}

/// A second process of the same controller.
pub(crate) fn another(connection: &Connection) -> Instance {
    instance(connection, Mutation::None, 1)
}
