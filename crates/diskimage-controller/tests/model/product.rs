//! The product at work: whole passes of the controller's own loops, `observe`, `decide` and `commit`, over objects made
//! from the model's facts. A pass is run up to its next consistent read; with the answer to that read it is run again,
//! and so on, until it has named its writes. The same facts and answers always give the same next step, so each is
//! computed once.

mod numbers;
mod requests;
mod script;
mod statuses;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use clap::Parser;
use diskimage_controller::Args;
use diskimage_controller::config::Settings;
use diskimage_controller::exchange::Correspondence;
use diskimage_controller::image::Image as ImageLoop;
use diskimage_controller::queue::{PolicySource, queue};
use diskimage_controller::views::Views;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use otctl_kit::cluster::Request;
use otctl_kit::driver::{Passed, pass};
use otctl_kit::store::{Change, Key as StoreKey, Store};
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, IMAGE_QUEUE};

use self::numbers::Numbers;
pub(crate) use self::requests::{Of, Read, Told};
use self::script::{Noon, Script, poll_once};
use self::statuses::Statuses;
pub(crate) use self::statuses::{Entry, Facts};
use crate::objects;
use crate::state::{Image, Import, Key, NAMES, PodState, Uid, Write};

/// What a pass begins with. Versions are left out: they travel beside the pass.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) images: [Option<Image>; NAMES],
    pub(crate) ledger: u16,
    pub(crate) policy: u8,
    pub(crate) imports: Vec<Import>,
}

impl View {
    /// The image that is seen, where it is one.
    pub(crate) fn own(&self) -> Option<Uid> {
        let seen =
            |(name, image): (u8, &Option<Image>)| image.map(|it| Uid { name, life: it.life });
        (0..).zip(&self.images).find_map(seen)
    }
}

/// What a pass does next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// It asks.
    Read(Read),
    /// It carries out the plan of that number.
    Write(u32),
    /// Nothing.
    Rest,
}

/// How far a pass has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Moment {
    key: Key,
    view: View,
    told: Vec<Told>,
}

/// The product, with everything that it was asked before.
pub(crate) struct Product {
    limits: &'static [u32],
    retry_limit: u32,
    settings: Arc<Settings>,
    statuses: Statuses,
    moments: RefCell<Numbers<Moment>>,
    nexts: RefCell<Vec<Next>>,
    plans: RefCell<Numbers<Vec<Write>>>,
    /// Passes run.
    pub(crate) runs: Cell<usize>,
}

impl Product {
    pub(crate) fn new(limits: &'static [u32], retry_limit: u32) -> Self {
        Self {
            limits,
            retry_limit,
            settings: Arc::new(Args::parse_from(["diskimage-controller"]).settings),
            statuses: Statuses::default(),
            moments: RefCell::default(),
            nexts: RefCell::default(),
            plans: RefCell::default(),
            runs: Cell::new(0),
        }
    }

    /// The statuses that occur.
    pub(crate) fn statuses(&self) -> &Statuses {
        &self.statuses
    }

    /// Begins a pass; gives the number of the moment.
    pub(crate) fn begin(&self, key: Key, view: View) -> u32 {
        let view = self.cut(key, view);
        self.reach(Moment { key, view, told: Vec::new() })
    }

    /// Goes on with the answer to the read that the moment asks for.
    pub(crate) fn go_on(&self, moment: u32, told: Told) -> u32 {
        let mut moment = Moment::clone(&self.moments.borrow().get(moment));
        moment.told.push(told);
        self.reach(moment)
    }

    /// What the pass does at that moment.
    pub(crate) fn next(&self, moment: u32) -> Next {
        self.nexts.borrow()[moment as usize]
    }

    /// The view that the pass of that moment began with.
    pub(crate) fn view(&self, moment: u32) -> View {
        self.moments.borrow().get(moment).view.clone()
    }

    /// Whether it is a pass of an image.
    pub(crate) fn is_of_image(&self, moment: u32) -> bool {
        matches!(self.moments.borrow().get(moment).key, Key::Image(_))
    }

    /// The writes of a plan.
    pub(crate) fn plan(&self, plan: u32) -> Rc<Vec<Write>> {
        self.plans.borrow().get(plan)
    }

    /// The number of a plan of these writes.
    pub(crate) fn plan_of(&self, writes: Vec<Write>) -> u32 {
        self.plans.borrow_mut().of(writes)
    }

    /// Leaves out what the pass does not look at: an image looks at itself, its Jobs, its own entry and the policy in
    /// effect (and tells how many are ahead of it, which no decision reads). Of Jobs the queue looks at those of images
    /// that have used no number, probes among them; those are not in the model, where an image that is admitted anew after
    /// a lost ledger gets a number that the product may leave out.
    fn cut(&self, key: Key, mut view: View) -> View {
        for image in view.images.iter_mut().flatten() {
            image.version = 0;
            image.was_suspended = false;
        }
        let Key::Image(name) = key else {
            view.imports.clear();
            return view;
        };
        let own = view.images[usize::from(name)].map(|image| Uid { name, life: image.life });
        for (other, image) in (0..).zip(&mut view.images) {
            *image = image.filter(|_| other == name).map(|image| Image { born: 0, ..image });
        }
        view.imports.retain(|import| Some(import.id.image) == own);
        view.ledger = self.statuses.of_one(view.ledger, own);
        view.policy = 0;
        view
    }

    fn reach(&self, moment: Moment) -> u32 {
        let number = self.moments.borrow_mut().of(moment);
        if number as usize == self.nexts.borrow().len() {
            let moment = self.moments.borrow().get(number);
            let next = self.run(&moment);
            self.nexts.borrow_mut().push(next);
        }
        number
    }

    fn run(&self, moment: &Moment) -> Next {
        self.runs.set(self.runs.get() + 1);
        let answers = moment.told.iter().map(|told| self.answer(told)).collect();
        let script = Arc::new(Script::new(answers));
        let views = self.views(moment);
        let passed = match moment.key {
            Key::Queue => {
                let policy = PolicySource {
                    namespace: DEFAULT_NAMESPACE.to_owned(),
                    name: DEFAULT_POLICY_NAME.to_owned(),
                };
                let queue = queue(views, script.clone(), policy, Arc::new(Noon));
                let key = StoreKey::new("", IMAGE_QUEUE);
                poll_once(pass(&queue, &*script, &key, &Noon))
            }
            Key::Image(name) => {
                let image = ImageLoop::new(
                    views,
                    script.clone(),
                    self.settings.clone(),
                    Correspondence::default(),
                );
                let key = StoreKey::new("lab", &objects::image_name(name));
                poll_once(pass(&image, &*script, &key, &Noon))
            }
        };
        self.next_of(moment, passed.as_ref(), &script.sent())
    }

    fn next_of(&self, moment: &Moment, passed: Option<&Passed>, sent: &[Request]) -> Next {
        let Some(passed) = passed else {
            let last = sent.last().expect("a pass waits for its requests only");
            return Next::Read(requests::read(last));
        };
        if let Some(error) = &passed.error {
            panic!("a pass failed by itself: {error}, at {moment:?}");
        }
        let writes: Vec<Write> = sent
            .iter()
            .filter(|request| request.is_write())
            .filter_map(|it| requests::write(&self.statuses, &moment.view, it))
            .collect();
        if writes.is_empty() { Next::Rest } else { Next::Write(self.plan_of(writes)) }
    }

    fn views(&self, moment: &Moment) -> Views {
        let view = &moment.view;
        let views = Views::default();
        let mut images = Vec::new();
        for (name, image) in (0..).zip(&view.images).filter_map(|(name, it)| Some((name, (*it)?))) {
            let status = self.statuses.image(image.status);
            fill(
                &views.claims,
                match moment.key {
                    Key::Queue => Vec::new(),
                    Key::Image(_) => objects::claims(name, image.life, &status),
                },
            );
            images.push(objects::image(name, &image, &status));
        }
        fill(&views.images, images);
        let ledger = self.statuses.ledger(view.ledger);
        let mut jobs: Vec<Job> =
            view.imports.iter().filter(|it| it.has_job()).map(objects::job).collect();
        let with_pod = view.imports.iter().filter(|import| import.pod != PodState::None);
        let mut pods: Vec<_> = with_pod.map(objects::pod).collect();
        if let Key::Image(_) = moment.key {
            for entry in self.statuses.slots(view.ledger).entries.iter() {
                let (job, pod) = objects::probe(entry.uid, entry.number);
                jobs.push(job);
                pods.push(pod);
            }
        }
        fill(&views.queues, vec![objects::queue(&ledger)]);
        fill(&views.policies, vec![self.config_map(view.policy)]);
        fill(&views.jobs, jobs);
        fill(&views.pods, pods);
        fill(&views.storage_classes, vec![objects::storage_class()]);
        views
    }

    fn config_map(&self, policy: u8) -> ConfigMap {
        objects::policy(self.limits[usize::from(policy)], self.retry_limit)
    }
}

fn fill<K>(store: &Store<K>, objects: Vec<K>)
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    store.apply(Change::All(objects));
}
