//! Gives turns: to the controllers' passes, to the delivery of what they watch, to the other components of the cluster,
//! and to the clock when nothing else has anything to do. In a fixed order that reads well, or in an order drawn from a
//! seed; whole passes at a time, or single requests of several passes in turns.

mod crash;
mod news;
mod process;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod toy;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use otctl_kit::cluster::Cluster;
use otctl_kit::store::Key;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

pub use crash::{CrashPoints, Ways, crash_points, every_crash_point};
pub use process::{Instance, Loop, Told, Wakes};

use crate::clock::VirtualClock;
use crate::fault::{Call, Fault, Faults};
use crate::mask::{self, EndState};
use crate::story::Story;
use crate::wire::Network;
use crate::world::{Act, World};
use process::{Landing, Process, Turn};

/// More turns than any scenario needs; beyond it, it does not converge.
const MOST_TURNS: usize = 20_000;
/// So many moves of the clock without a single write mean that only timers are left.
const IDLE_MOVES: usize = 16;

/// In which order turns are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// News first, then passes, then the components; pods end last, so that as many as may run at once.
    Fixed,
    /// Drawn from the seed; a pass is one turn. News may come late.
    Shuffled(u64),
    /// Drawn from the seed; every request of a pass is a turn, so that passes interleave.
    Interleaved(u64),
}

/// What a controller process is made with.
#[derive(Clone)]
pub struct Connection {
    /// The API server, as this process reaches it.
    pub cluster: Arc<dyn Cluster>,
    /// The time.
    pub clock: VirtualClock,
    /// Whether loops wait until their views show what they wrote, see [`Sim::reading_own_writes`].
    pub reads_own_writes: bool,
}

type Factory = Arc<dyn Fn(&Connection) -> Instance>;
type Invariant = Box<dyn Fn(&World) -> Vec<String>>;

/// A simulation: one world and the controller processes that work in it.
pub struct Sim {
    /// The cluster.
    pub world: World,
    /// What happened.
    pub story: Story,
    network: Network,
    processes: Vec<Process>,
    order: Order,
    random: StdRng,
    held: BTreeSet<String>,
    reads_own_writes: bool,
    invariants: Vec<Invariant>,
    verdicts: BTreeMap<(String, Key), String>,
    turns: usize,
    /// The time of the last line of the story.
    told_at: Timestamp,
}

/// One turn that could be given now.
#[derive(Clone, Debug)]
enum Step {
    Start(usize),
    Process(usize, Turn),
    Act(Act),
    Land,
}

impl Sim {
    /// An empty world without processes.
    #[must_use]
    pub fn new(order: Order) -> Self {
        let seed = match order {
            Order::Fixed => 0,
            Order::Shuffled(seed) | Order::Interleaved(seed) => seed,
        };
        Self {
            world: World::new(&VirtualClock::default()),
            story: Story::default(),
            network: Network::default(),
            processes: Vec::new(),
            order,
            random: StdRng::seed_from_u64(seed),
            held: BTreeSet::new(),
            reads_own_writes: false,
            invariants: Vec::new(),
            verdicts: BTreeMap::new(),
            turns: 0,
            told_at: VirtualClock::default().now(),
        }
    }

    /// Adds a controller process; it starts at its first turn, with a complete list of all it watches. After a death it
    /// is made anew by `factory`.
    #[must_use]
    pub fn with_process(
        mut self,
        name: &str,
        factory: impl Fn(&Connection) -> Instance + 'static,
    ) -> Self {
        let factory: Factory = Arc::new(factory);
        self.processes.push(Process::new(name, factory));
        self
    }

    /// No pass begins before its views show what the last one of its key wrote, as it is with the kit's driver. Off by
    /// default, which is the harder case: that waiting saves requests, and safety must not rest on it. On, the writes
    /// can be counted: none is made twice.
    #[must_use]
    pub fn reading_own_writes(mut self) -> Self {
        self.reads_own_writes = true;
        self
    }

    /// Adds a fault.
    ///
    /// # Panics
    /// When the world cannot express it.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Self {
        self.network.add(fault).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// What strikes requests of controllers.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        self.network.faults()
    }

    /// `find` lists what is wrong with the world; anything it finds after any turn ends the test.
    #[must_use]
    pub fn always(mut self, find: impl Fn(&World) -> Vec<String> + 'static) -> Self {
        self.invariants.push(Box::new(find));
        self
    }

    /// The time of the world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.world.clock().now()
    }

    /// Versions of that kind are not delivered until [`release`](Self::release): that watch is late.
    pub fn hold(&mut self, kind: &str) {
        self.held.insert(kind.to_owned());
    }

    /// Versions of that kind are delivered again.
    pub fn release(&mut self, kind: &str) {
        self.held.remove(kind);
    }

    /// Gives no turn to the process of that name, news included, until [`resume`](Self::resume).
    pub fn pause(&mut self, name: &str) {
        self.process(name).is_paused = true;
    }

    /// Gives turns to the process of that name again.
    pub fn resume(&mut self, name: &str) {
        self.process(name).is_paused = false;
    }

    /// Kills the process of that name now; it starts again at its next turn.
    pub fn kill(&mut self, name: &str) {
        let process = self.process(name);
        process.stop();
        self.tell(name, "", "was killed");
    }

    /// Gives one turn. False when nobody has anything to do at this time.
    ///
    /// # Panics
    /// When an invariant is broken by it.
    pub fn step(&mut self) -> bool {
        let mut steps = self.possible_steps();
        if steps.is_empty() {
            return false;
        }
        self.turns += 1;
        if self.turns > MOST_TURNS {
            self.fail("it does not converge");
        }
        let at =
            if self.order == Order::Fixed { 0 } else { self.random.random_range(0..steps.len()) };
        let before = self.world.revision();
        self.take(steps.swap_remove(at));
        if self.world.revision() != before {
            self.check();
        }
        true
    }

    /// Gives turns until nobody has anything to do at this time; the clock stands still.
    ///
    /// # Panics
    /// When that never happens, or an invariant is broken on the way.
    pub fn quiesce(&mut self) {
        while self.step() {}
    }

    /// Gives turns, and moves the clock when nobody has anything to do, until only timers are left that write nothing.
    ///
    /// # Panics
    /// When that never happens, or an invariant is broken on the way.
    pub fn settle(&mut self) {
        let mut idle = 0;
        while idle < IDLE_MOVES {
            let before = self.world.revision();
            self.quiesce();
            idle = if self.world.revision() == before { idle + 1 } else { 0 };
            let Some(next) = self.next_time() else { return };
            self.world.clock().set(next);
        }
    }

    /// Lets that much time pass, with every turn that falls due on the way.
    ///
    /// # Panics
    /// As [`quiesce`](Self::quiesce).
    pub fn advance(&mut self, by: Duration) {
        let end = self.now().checked_add(by).expect("tests stay within the calendar");
        self.quiesce();
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.world.clock().set(next);
            self.quiesce();
        }
        self.world.clock().set(end);
        self.quiesce();
    }

    /// Gives turns, and moves the clock, until `is_so`.
    ///
    /// # Panics
    /// When nothing is left to do before it is so; with the story.
    pub fn run_until(&mut self, what: &str, is_so: impl Fn(&World) -> bool) {
        while !is_so(&self.world) {
            if self.step() {
                continue;
            }
            match self.next_time() {
                Some(next) => self.world.clock().set(next),
                None => self.fail(&format!("it never came to this: {what}")),
            }
        }
    }

    /// What is left, comparable with what is left of another run.
    #[must_use]
    pub fn end_state(&self) -> EndState {
        mask::end_state(self.world.objects())
    }

    /// Ends the test with the story so far.
    ///
    /// # Panics
    /// Always.
    pub fn fail(&self, why: &str) -> ! {
        panic!("{why}\norder: {:?}\n{}", self.order, self.story)
    }

    fn possible_steps(&mut self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, process) in
            self.processes.iter_mut().enumerate().filter(|(_, process)| !process.is_paused)
        {
            if process.is_down() {
                steps.push(Step::Start(at));
            } else {
                let turns = process.turns(&self.world, &self.held);
                steps.extend(turns.into_iter().map(|turn| Step::Process(at, turn)));
            }
        }
        steps.extend(self.world.acts().into_iter().map(Step::Act));
        steps.extend(self.network.is_busy().then_some(Step::Land));
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Start(at) => {
                self.processes[at].start(&self.world, &self.network, self.reads_own_writes);
                let name = self.processes[at].name().to_owned();
                self.tell(&name, "", "starts");
            }
            Step::Process(at, turn) => self.give(at, turn),
            Step::Act(act) => {
                let told = self.world.perform(&act);
                self.tell(&act.actor.to_string(), "", &told);
            }
            Step::Land => {
                let (by, request) =
                    self.network.land().expect("a request is under way when it can land");
                let line = Call::from(&request);
                let outcome = match self.world.request(&by, request) {
                    Ok(_) => "carried out".to_owned(),
                    Err(error) => error.to_string(),
                };
                self.tell("network", "", &format!("late from {by}: {line}: {outcome}"));
            }
        }
    }

    fn give(&mut self, at: usize, turn: Turn) {
        let is_whole_pass = !matches!(self.order, Order::Interleaved(_));
        let is_alone = self.processes.len() == 1;
        let process = &mut self.processes[at];
        match process.give(turn, &self.world, is_whole_pass) {
            Landing::Nothing => {}
            Landing::Died(how) => {
                let name = process.name().to_owned();
                process.stop();
                self.tell(&name, "", &how);
            }
            Landing::Passed { loop_name, key, line } => {
                let process = self.processes[at].name();
                let loop_name = if is_alone { loop_name } else { format!("{loop_name}@{process}") };
                let told =
                    self.verdicts.insert((loop_name.clone(), key.clone()), line.verdict.clone());
                if line.is_news || told.as_ref() != Some(&line.verdict) {
                    self.tell(&loop_name, &key.to_string(), &line.text);
                }
                if line.is_defect {
                    self.fail(&format!("a defect in {loop_name}: {}", line.text));
                }
            }
        }
    }

    /// One more line, after one that tells the time when that has moved.
    fn tell(&mut self, who: &str, about: &str, what: &str) {
        let now = self.now();
        if std::mem::replace(&mut self.told_at, now) != now {
            self.story.tell("clock", "", &now.strftime("%H:%M:%S").to_string());
        }
        self.story.tell(who, about, what);
    }

    fn check(&self) {
        for find in &self.invariants {
            let found = find(&self.world);
            if !found.is_empty() {
                self.fail(&found.join("\n"));
            }
        }
    }

    fn next_time(&self) -> Option<Timestamp> {
        let timers = self
            .processes
            .iter()
            .filter(|process| !process.is_paused)
            .filter_map(Process::next_time);
        timers.chain(self.world.next_deadline()).min()
    }

    fn process(&mut self, name: &str) -> &mut Process {
        let mut processes = self.processes.iter_mut();
        processes
            .find(|process| process.name() == name)
            .unwrap_or_else(|| panic!("no process \"{name}\""))
    }
}
