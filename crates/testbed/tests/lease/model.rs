//! Candidates, their requests under way, the lease, and the time.

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::Duration;

use otctl_kit::cluster::ApiError;
use otctl_kit::leader::{CALL_DEADLINE, Moment, Record, Step, Timing, View, step};
use testbed::explore::{Model, fingerprint};

use crate::mutants::Twist;

/// Candidates at once.
const CANDIDATES: usize = 2;
/// Seconds until one must lead after the last fault: two durations, by the slower clock, and the one that has begun.
const RECOVERY: usize = 12;
/// Acts within one moment of a fair run; many more than a candidate ever has to make.
const FAIR_ACTS: usize = 40;

/// One exploration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    /// Seconds.
    pub(crate) horizon: u8,
    /// Milliseconds that each candidate's clock goes on in a second.
    pub(crate) speeds: [u64; CANDIDATES],
    /// Seconds that may pass while somebody has something to do: a request, its answer or a process takes so long. Any
    /// other time passes only when all wait.
    pub(crate) slow: u8,
    /// How often a candidate is stopped, for any time.
    pub(crate) pauses: u8,
    /// How often one is killed and started again.
    pub(crate) restarts: u8,
    /// How often people delete the lease.
    pub(crate) deletions: u8,
    /// How often people write another name into it. (An empty one is how a holder gives it back: who writes that by hand
    /// lets another lead before the holder has noticed.)
    pub(crate) edits: u8,
    pub(crate) most_states: usize,
}

pub(crate) const PLAIN: Config = Config {
    name: "",
    horizon: 14,
    speeds: [1000, 1000],
    slow: 5,
    pauses: 0,
    restarts: 0,
    deletions: 0,
    edits: 0,
    most_states: 500_000,
};

/// The lease as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) version: u8,
    pub(crate) holder: String,
    /// When it was last written by a holder, by that holder's wall clock.
    pub(crate) renewed: u8,
}

/// A request under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Call {
    what: Ask,
    /// By the sender's clock.
    sent: Moment,
    /// What the API server answered; none before it arrived.
    answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Ask {
    Read,
    Create,
    /// A PUT of this name, guarded by this version.
    Claim(String, u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Lease(Option<Lease>),
    Conflict,
    NotFound,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Candidate {
    view: View,
    /// As last read or written.
    lease: Option<Lease>,
    call: Option<Call>,
    /// SIGSTOP.
    is_stopped: bool,
    lives: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    second: u8,
    lease: Option<Lease>,
    versions: u8,
    candidates: [Candidate; CANDIDATES],
    /// Requests whose senders have given up.
    strays: Vec<(Ask, u8)>,
    slow: u8,
    pauses: u8,
    restarts: u8,
    deletions: u8,
    edits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Tick,
    /// The candidate carries out what `step` says.
    Step(usize, Step),
    Arrive(usize),
    Answer(usize),
    GiveUp(usize),
    ArriveLate,
    Stop(usize),
    GoOn(usize),
    Restart(usize),
    Delete,
    Edit,
}

/// The model of one configuration.
pub(crate) struct Election {
    config: Config,
    twist: Option<Twist>,
    timing: Timing,
    /// States whose recovery was looked at: the first one in which it fails ends the search.
    followed: RefCell<HashSet<u64>>,
}

impl Election {
    pub(crate) fn new(config: Config, twist: Option<Twist>) -> Self {
        let seconds = Duration::from_secs;
        let timing = Timing::new(seconds(5), seconds(4), seconds(1)).expect("the kit takes these");
        Self { config, twist, timing, followed: RefCell::default() }
    }

    /// The candidates' clocks began at different times.
    fn clock(&self, who: usize, second: u8) -> Moment {
        let begin = [100_000, 7_000][who];
        Duration::from_millis(begin + u64::from(second) * self.config.speeds[who])
    }

    fn candidate(&self, who: usize, lives: u8) -> Candidate {
        let view = View::new(format!("{}{lives}", ["a", "b"][who]), self.timing);
        Candidate { view, lease: None, call: None, is_stopped: false, lives }
    }

    /// Whether it may work: it leads, and its own lease has not ended by its own clock.
    fn may_work(&self, state: &State, who: usize) -> bool {
        let view = &state.candidates[who].view;
        view.leads() && view.deadline().is_some_and(|end| self.clock(who, state.second) < end)
    }

    /// Whether everybody has read who holds the lease. One that has not, and finds none, takes the lease for one that was
    /// never there: were it to wait, so would everybody after an installation.
    fn is_known_to_all(&self, state: &State) -> bool {
        let holder = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.holder.clone());
        let known = holder(&state.lease);
        known.is_some() && state.candidates.iter().all(|it| holder(&it.lease) == known)
    }

    /// Whether it has something to do now.
    fn is_busy(&self, state: &State, who: usize) -> bool {
        let candidate = &state.candidates[who];
        let due = step(&candidate.view, self.clock(who, state.second));
        !candidate.is_stopped && (candidate.call.is_some() || !matches!(due, Step::Wait(_)))
    }

    fn acts_of(&self, state: &State, who: usize, each: &mut dyn FnMut(Act, State)) {
        let mut act = |act, change: &dyn Fn(&mut State)| {
            let mut after = state.clone();
            change(&mut after);
            each(act, after);
        };
        let candidate = &state.candidates[who];
        if candidate.call.as_ref().is_some_and(|call| call.answer.is_none()) {
            act(Act::Arrive(who), &|after| self.arrive(after, who));
        }
        if candidate.is_stopped {
            act(Act::GoOn(who), &|after| after.candidates[who].is_stopped = false);
            return;
        }
        if state.pauses > 0 {
            act(Act::Stop(who), &|after| {
                after.pauses -= 1;
                after.candidates[who].is_stopped = true;
            });
        }
        if state.restarts > 0 {
            act(Act::Restart(who), &|after| {
                after.restarts -= 1;
                self.abandon(after, who);
                after.candidates[who] = self.candidate(who, candidate.lives + 1);
            });
        }
        match &candidate.call {
            None => {
                let due = step(&candidate.view, self.clock(who, state.second));
                if !matches!(due, Step::Wait(_)) {
                    act(Act::Step(who, due), &|after| self.carry_out(after, who, due));
                }
            }
            Some(call) => {
                if call.answer.is_some() {
                    act(Act::Answer(who), &|after| self.take_in(after, who));
                }
                if self.is_overdue(state, who, call) {
                    act(Act::GiveUp(who), &|after| self.give_up(after, who));
                }
            }
        }
    }

    /// As the elector cuts its calls.
    fn is_overdue(&self, state: &State, who: usize, call: &Call) -> bool {
        let now = self.clock(who, state.second);
        let end = state.candidates[who].view.deadline();
        now >= call.sent + CALL_DEADLINE || end.is_some_and(|end| now >= end)
    }

    fn carry_out(&self, state: &mut State, who: usize, due: Step) {
        let now = self.clock(who, state.second);
        let candidate = &mut state.candidates[who];
        let what = match due {
            Step::Read => Ask::Read,
            Step::Create => Ask::Create,
            Step::Claim => {
                let version = candidate.lease.as_ref().map_or(0, |lease| lease.version);
                Ask::Claim(format!("{}{}", ["a", "b"][who], candidate.lives), version)
            }
            Step::StepDown(_) => return candidate.view.stepped_down(),
            Step::Wait(_) => return,
        };
        candidate.call = Some(Call { what, sent: now, answer: None });
    }

    fn arrive(&self, state: &mut State, who: usize) {
        let Some(call) = &state.candidates[who].call else { return };
        let answer = self.answer(state, &call.what.clone(), who);
        if let Some(call) = &mut state.candidates[who].call {
            call.answer = Some(answer);
        }
    }

    /// What the API server makes of a request.
    fn answer(&self, state: &mut State, what: &Ask, who: usize) -> Answer {
        match what {
            Ask::Read => {}
            Ask::Create => {
                if state.lease.is_none() {
                    state.versions += 1;
                    let (version, renewed) = (state.versions, state.second);
                    state.lease = Some(Lease { version, holder: String::new(), renewed });
                }
            }
            Ask::Claim(holder, version) => {
                let Some(lease) = &state.lease else { return Answer::NotFound };
                if lease.version != *version && self.twist != Some(Twist::Unguarded) {
                    return Answer::Conflict;
                }
                state.versions += 1;
                let renewed = time_of_day(state.second, who);
                let (version, holder) = (state.versions, holder.clone());
                state.lease = Some(Lease { version, holder, renewed });
            }
        }
        Answer::Lease(state.lease.clone())
    }

    fn take_in(&self, state: &mut State, who: usize) {
        let now = self.clock(who, state.second);
        let wall = time_of_day(state.second, who);
        let candidate = &mut state.candidates[who];
        let Some(call) = candidate.call.take() else { return };
        let Some(answer) = call.answer else { return };
        match (answer, call.what) {
            (Answer::Lease(Some(lease)), Ask::Claim(..)) => {
                let sent = if self.twist == Some(Twist::ValidFromAnswer) { now } else { call.sent };
                candidate.view.claimed(record(&lease), sent, now);
                candidate.lease = Some(lease);
            }
            (Answer::Lease(lease), _) => {
                let mut seen = lease.as_ref().map(record);
                let is_old = |lease: &Lease| wall > lease.renewed + 5;
                if self.twist == Some(Twist::WallClock)
                    && let (Some(lease), Some(seen)) = (&lease, &mut seen)
                    && is_old(lease)
                {
                    seen.holder.clear();
                }
                candidate.view.read(seen, now);
                candidate.lease = lease;
            }
            (Answer::Conflict, _) => {
                candidate.view.failed(&ApiError::Conflict { detail: String::new() }, now);
            }
            (Answer::NotFound, _) => {
                candidate.view.failed(&ApiError::NotFound { detail: String::new() }, now);
            }
        }
    }

    fn give_up(&self, state: &mut State, who: usize) {
        self.abandon(state, who);
        let now = self.clock(who, state.second);
        let unknown = ApiError::Unknown { detail: String::new() };
        state.candidates[who].view.failed(&unknown, now);
    }

    /// A claim that has not arrived may still do so.
    fn abandon(&self, state: &mut State, who: usize) {
        let Some(call) = state.candidates[who].call.take() else { return };
        if call.answer.is_none() && matches!(call.what, Ask::Claim(..)) {
            let sender = u8::try_from(who).expect("two candidates");
            // Older ones carry versions that are long past.
            state.strays.retain(|(_, of)| *of != sender);
            state.strays.push((call.what, sender));
            state.strays.sort_by_key(|(_, of)| *of);
        }
    }

    /// From here on every request is answered at once and nobody is stopped: does one lead within two durations?
    pub(crate) fn recovery(&self, state: &State) -> Option<String> {
        let mut state = rested(state);
        if !self.followed.borrow_mut().insert(fingerprint(&state)) {
            return None;
        }
        for _ in 0..=RECOVERY {
            self.fair_moment(&mut state);
            if (0..CANDIDATES).filter(|who| self.may_work(&state, *who)).count() == 1 {
                return None;
            }
            state.second += 1;
        }
        Some("nobody leads two durations after the last fault".to_owned())
    }

    /// Everybody does what is due, until nothing is.
    fn fair_moment(&self, state: &mut State) {
        for _ in 0..FAIR_ACTS {
            let before = fingerprint(state);
            (0..CANDIDATES).for_each(|who| self.fair_act(state, who));
            if fingerprint(state) == before {
                return;
            }
        }
    }

    fn fair_act(&self, state: &mut State, who: usize) {
        match &state.candidates[who].call {
            Some(call) if call.answer.is_none() => self.arrive(state, who),
            Some(_) => self.take_in(state, who),
            None => {
                let due = step(&state.candidates[who].view, self.clock(who, state.second));
                self.carry_out(state, who, due);
            }
        }
    }
}

/// The state with nothing more to go wrong.
fn rested(state: &State) -> State {
    let mut state = state.clone();
    state.strays.clear();
    (state.slow, state.pauses, state.restarts, state.deletions, state.edits) = (0, 0, 0, 0, 0);
    for candidate in &mut state.candidates {
        candidate.is_stopped = false;
    }
    state
}

/// Wall clocks are apart; only a mutant looks at them.
fn time_of_day(second: u8, who: usize) -> u8 {
    second + [0, 4][who]
}

fn record(lease: &Lease) -> Record {
    Record {
        holder: lease.holder.clone(),
        version: lease.version.to_string(),
        duration: Some(Duration::from_secs(5)),
    }
}

impl Model for Election {
    type State = State;
    type Act = Act;

    fn start(&self) -> State {
        State {
            second: 0,
            lease: None,
            versions: 0,
            candidates: [self.candidate(0, 1), self.candidate(1, 1)],
            strays: Vec::new(),
            slow: self.config.slow,
            pauses: self.config.pauses,
            restarts: self.config.restarts,
            deletions: self.config.deletions,
            edits: self.config.edits,
        }
    }

    fn acts(&self, state: &State, each: &mut dyn FnMut(Act, State)) {
        for who in 0..CANDIDATES {
            self.acts_of(state, who, each);
        }
        for at in 0..state.strays.len() {
            let mut after = state.clone();
            let (what, who) = after.strays.remove(at);
            self.answer(&mut after, &what, usize::from(who));
            each(Act::ArriveLate, after);
        }
        if state.deletions > 0 && self.is_known_to_all(state) {
            let deletions = state.deletions - 1;
            each(Act::Delete, State { deletions, lease: None, ..state.clone() });
        }
        if let Some(lease) = state.lease.as_ref().filter(|_| state.edits > 0) {
            let versions = state.versions + 1;
            let holder = "somebody".to_owned();
            let lease = Some(Lease { version: versions, holder, ..lease.clone() });
            each(Act::Edit, State { edits: state.edits - 1, versions, lease, ..state.clone() });
        }
        if state.second < self.config.horizon {
            let is_slow = (0..CANDIDATES).any(|who| self.is_busy(state, who));
            if let Some(slow) = state.slow.checked_sub(u8::from(is_slow)) {
                each(Act::Tick, State { second: state.second + 1, slow, ..state.clone() });
            }
        }
    }

    fn broken(&self, state: &State) -> Option<String> {
        let leaders = (0..CANDIDATES).filter(|who| self.may_work(state, *who)).count();
        (leaders > 1).then(|| "two lead at once".to_owned())
    }

    fn tell(&self, act: Act, _: &State, after: &State) -> String {
        let holder = after.lease.as_ref().map_or("no lease".to_owned(), |it| format!("{it:?}"));
        format!("{:>2} s {act:?}; {holder}", after.second)
    }
}
