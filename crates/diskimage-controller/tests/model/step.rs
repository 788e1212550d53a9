//! What may happen next: a controller begins a pass, reads or writes in it, or dies; a late request arrives; the Job
//! controller, the kubelet and the garbage collector act; people create, delete, edit and break things.

mod people;
mod workers;
mod writes;

use std::cell::Cell;
use std::fmt;

pub(crate) use self::workers::due;
pub(crate) use self::writes::{MOST_JOBS, MOST_JOBS_IN_A_FAIR_RUN};

use crate::config::{Config, Kind};
use crate::mutants::Twist;
use crate::objects::{job_text, uid_text};
use crate::product::{Next, Of, Product, Read, Told, View};
use crate::state::{
    CONTROLLERS, Controller, Ghost, Image, Import, Key, Ledger, NAMES, Pass, PodState, Seen, Stage,
    State, Uid, Write,
};

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A view of a controller catches up.
    CatchUp(u8, Kind),
    Begin(u8, Key),
    Read(u8, Read),
    Write(u8, Write),
    /// The write leaves, and its sender dies, is paused or gives up before it arrives.
    Delay(u8, Write),
    /// It dies between two writes, or the answer to the last one is lost.
    Die(u8),
    /// A delayed request arrives.
    Arrive(Write),
    Worker(Worker, Import),
    Person(Person, u8),
}

/// What the rest of the cluster does with a Job and its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    StartPod,
    Succeed,
    Fail,
    /// The Job controller notices that the pod has ended.
    Notice,
    /// A pod whose Job goes is ended.
    EndPod,
    /// A deletion in the foreground is over.
    Remove,
    /// The garbage collector deletes the Job of a dead image.
    Collect,
}

/// What people do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Person {
    Create,
    Delete,
    /// A deleted image with a finalizer is gone.
    Vanish,
    Suspend,
    Resume,
    AskAgain,
    /// Deletes the n-th Job in the background.
    DeleteJob,
    ChangePolicy,
    EmptyLedger,
    KeepLedger,
    RestoreLedger,
}

/// The model of one configuration.
pub(crate) struct Machine {
    pub(crate) config: Config,
    pub(crate) twist: Option<Twist>,
    pub(crate) product: Product,
    /// Jobs made for one number, at most.
    pub(crate) most_jobs: Cell<u8>,
}

impl Machine {
    pub(crate) fn new(config: Config, twist: Option<Twist>) -> Self {
        let product = Product::new(config.limits, config.retry_limit);
        Self { config, twist, product, most_jobs: Cell::new(MOST_JOBS) }
    }

    /// The state in which everything begins.
    pub(crate) fn beginning(&self) -> State {
        let mut state = State {
            images: [None; NAMES],
            ledger: Ledger { version: 1, status: 0 },
            policy: 0,
            imports: Vec::new(),
            controllers: Default::default(),
            late: Vec::new(),
            left: self.config.left,
            saved: None,
            ghosts: [Ghost::default(); NAMES],
            policies_since: 1,
            robbed: Vec::new(),
            late_births: 0,
            wrong: None,
        };
        for name in 0..self.config.present {
            self.create(&mut state, name);
        }
        for image in state.images.iter_mut().flatten().take(usize::from(self.config.suspended)) {
            image.is_suspended = true;
            image.was_suspended = true;
        }
        for (controller, behind) in state.controllers.iter_mut().zip(self.config.behind) {
            *controller = blank(behind, &state.images, state.ledger);
        }
        state.settle();
        state
    }

    /// Calls `each` for every act and the state that it leads to.
    pub(crate) fn all_acts(&self, state: &State, each: &mut dyn FnMut(Act, State)) {
        let mut give = |act, mut after: State| {
            after.settle();
            each(act, after);
        };
        for controller in 0..self.config.controllers {
            self.acts_of_controller(state, controller, &mut give);
        }
        let mut before = None;
        for (at, late) in state.late.iter().enumerate() {
            if before.replace(late) != Some(late) {
                let mut after = state.clone();
                let (write, seen) = after.late.remove(at);
                self.carry_out(&mut after, write, seen);
                give(Act::Arrive(write), after);
            }
        }
        self.acts_of_workers(state, &mut give);
        self.acts_of_people(state, &mut give);
    }

    pub(crate) fn acts_of_controller(
        &self,
        state: &State,
        who: u8,
        give: &mut dyn FnMut(Act, State),
    ) {
        let at = usize::from(who);
        let Some(pass) = &state.controllers[at].pass else {
            self.catch_up(state, who, give);
            self.begin(state, who, give);
            return;
        };
        match pass.stage {
            Stage::Reading(moment) => {
                let Next::Read(read) = self.product.next(moment) else {
                    unreachable!("a pass that has read all writes or has ended");
                };
                let told = self.answer(state, moment, read);
                let mut after = state.clone();
                let next = self.product.go_on(moment, told);
                after.controllers[at].pass = self.at_moment(pass.key, pass.seen, next);
                give(Act::Read(who, read), after);
            }
            Stage::Writing(plan, done) => self.write(state, who, plan, done, give),
        }
    }

    fn catch_up(&self, state: &State, who: u8, give: &mut dyn FnMut(Act, State)) {
        for kind in self.config.behind[usize::from(who)] {
            let mut after = state.clone();
            let controller = &mut after.controllers[usize::from(who)];
            match kind {
                Kind::Images => controller.images = Some(state.images),
                Kind::Ledger => controller.ledger = Some(state.ledger),
                Kind::Imports => controller.imports = Some(state.imports.clone()),
                Kind::Policy => controller.policy = Some(state.policy),
            }
            if *controller != state.controllers[usize::from(who)] {
                give(Act::CatchUp(who, *kind), after);
            }
        }
    }

    pub(crate) fn begin(&self, state: &State, who: u8, give: &mut dyn FnMut(Act, State)) {
        let (view, seen) = view(state, who);
        let names = (0..).zip(&view.images).filter(|(_, image)| image.is_some());
        let keys = names.map(|(name, _)| Key::Image(name));
        for key in std::iter::once(Key::Queue).chain(keys) {
            let moment = self.product.begin(key, self.twisted_view(key, view.clone()));
            if let Some(pass) = self.at_moment(key, seen, moment) {
                let mut after = state.clone();
                after.controllers[usize::from(who)].pass = Some(pass);
                give(Act::Begin(who, key), after);
            }
        }
    }

    /// The pass at that moment; none when nothing is left to do. What no write of it will be guarded by is forgotten.
    fn at_moment(&self, key: Key, mut seen: Seen, moment: u32) -> Option<Pass> {
        let plan = match self.product.next(moment) {
            Next::Rest => None,
            Next::Write(plan) => Some(plan),
            Next::Read(_) => {
                if let Key::Image(own) = key {
                    seen.ledger = 0;
                    forget_images(&mut seen, |name| name != own);
                }
                return Some(Pass { key, stage: Stage::Reading(moment), seen });
            }
        };
        self.at_write(key, seen, self.twisted(plan, moment)?, 0)
    }

    /// The pass before the write of that number.
    fn at_write(&self, key: Key, mut seen: Seen, plan: u32, done: u8) -> Option<Pass> {
        let writes = self.product.plan(plan);
        let rest = &writes[usize::from(done)..];
        if rest.is_empty() {
            return None;
        }
        if !rest.iter().any(|write| matches!(write, Write::Swap(_))) {
            seen.ledger = 0;
        }
        forget_images(&mut seen, |name| {
            !rest.iter().any(|write| matches!(write, Write::Patch(uid, _) if uid.name == name))
        });
        Some(Pass { key, stage: Stage::Writing(plan, done), seen })
    }

    fn write(&self, state: &State, who: u8, plan: u32, done: u8, give: &mut dyn FnMut(Act, State)) {
        let at = usize::from(who);
        let Some(Pass { key, seen, .. }) = state.controllers[at].pass else { return };
        let write = self.product.plan(plan)[usize::from(done)];
        let mut after = state.clone();
        let was_done = self.carry_out(&mut after, write, seen);
        let next = was_done.then(|| self.at_write(key, seen, plan, done + 1)).flatten();
        after.controllers[at].pass = next;
        give(Act::Write(who, write), after);
        if done > 0 {
            let mut after = state.clone();
            after.controllers[at].pass = None;
            give(Act::Die(who), after);
        }
        if state.left.lates > 0 {
            let mut after = state.clone();
            after.left.lates -= 1;
            after.controllers[at].pass = None;
            let only = self.at_write(key, seen, self.product.plan_of(vec![write]), 0);
            after.late.push((write, only.map_or(seen, |pass| pass.seen)));
            give(Act::Delay(who, write), after);
        }
    }

    /// What the API server answers to a consistent read.
    fn answer(&self, state: &State, moment: u32, read: Read) -> Told {
        let of = |of: Of, imports: &[Import], counts: fn(&Import) -> bool| {
            let mine = |import: &&Import| of == Of::All || of == Of::One(import.id.image);
            imports.iter().filter(mine).filter(|it| counts(it)).copied().collect::<Vec<_>>()
        };
        let view = self.product.view(moment);
        if let Some(told) = self.twisted_answer(state, moment, &view, read) {
            return told;
        }
        // An image looks for its own Job in the lists that it asks for, and for its own entry in the ledger.
        let own = self.product.is_of_image(moment).then(|| view.own()).flatten();
        let narrowed = |asked: Of| own.map_or(asked, Of::One);
        match read {
            Read::Policy => Told::Policy(state.policy),
            Read::Ledger if own.is_some() => {
                Told::Ledger(self.product.statuses().of_one(state.ledger.status, own))
            }
            Read::Ledger => Told::Ledger(state.ledger.status),
            Read::Image(name) => {
                let image = state.images[usize::from(name)];
                Told::Image(image.map(|image| Uid { name, life: image.life }))
            }
            Read::Jobs(asked) => Told::Jobs(of(narrowed(asked), &state.imports, Import::has_job)),
            Read::Pods(asked) => {
                Told::Pods(of(narrowed(asked), &state.imports, |it| it.pod != PodState::None))
            }
        }
    }
}

fn forget_images(seen: &mut Seen, is_past: impl Fn(u8) -> bool) {
    for (name, version) in (0..).zip(&mut seen.images) {
        if is_past(name) {
            *version = 0;
        }
    }
}

/// What a controller sees when a pass begins, and at which versions.
fn view(state: &State, who: u8) -> (View, Seen) {
    let controller = &state.controllers[usize::from(who)];
    let images = controller.images.unwrap_or(state.images);
    let ledger = controller.ledger.unwrap_or(state.ledger);
    let view = View {
        images,
        ledger: ledger.status,
        policy: controller.policy.unwrap_or(state.policy),
        imports: controller.imports.clone().unwrap_or_else(|| state.imports.clone()),
    };
    let versions = images.map(|image| image.map_or(0, |image| image.version));
    (view, Seen { images: versions, ledger: ledger.version })
}

/// A process that has just taken everything in.
fn blank(behind: &[Kind], images: &[Option<Image>; NAMES], ledger: Ledger) -> Controller {
    let is_behind = |kind| behind.contains(&kind);
    Controller {
        images: is_behind(Kind::Images).then_some(*images),
        ledger: is_behind(Kind::Ledger).then_some(ledger),
        imports: is_behind(Kind::Imports).then(Vec::new),
        policy: is_behind(Kind::Policy).then_some(0),
        pass: None,
    }
}

const _: () = assert!(CONTROLLERS == 2, "stories call them A and B");

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |who: u8| if who == 0 { 'A' } else { 'B' };
        match self {
            Self::CatchUp(who, kind) => write!(f, "{}  sees {kind:?} as they are", name(*who)),
            Self::Begin(who, Key::Queue) => write!(f, "{}  begins a pass of the queue", name(*who)),
            Self::Begin(who, Key::Image(image)) => {
                write!(f, "{}  begins a pass of i{image}", name(*who))
            }
            Self::Read(who, read) => write!(f, "{}  reads {read:?}", name(*who)),
            Self::Write(who, write) => write!(f, "{}  {write}", name(*who)),
            Self::Delay(who, write) => write!(f, "{}  is cut off; under way: {write}", name(*who)),
            Self::Die(who) => write!(f, "{}  dies", name(*who)),
            Self::Arrive(write) => write!(f, "   arrives late: {write}"),
            Self::Worker(worker, import) => write!(f, "   {worker:?} {}", job_text(import.id)),
            Self::Person(person, what) => write!(f, "   person: {person:?} {what}"),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Swap(_) => write!(f, "writes the ledger"),
            Self::Patch(uid, _) => write!(f, "writes the status of {}", uid_text(*uid)),
            Self::Create { image, number, is_started } => {
                let how = if *is_started { "started" } else { "suspended" };
                write!(f, "creates Job {number} of {}, {how}", uid_text(*image))
            }
            Self::Start(job) => write!(f, "starts Job {}", job_text(*job)),
            Self::Delete { job, only, .. } => {
                let how = if only.is_some() { ", if it is as it was" } else { "" };
                write!(f, "deletes Job {}{how}", job_text(*job))
            }
        }
    }
}
