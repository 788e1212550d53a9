//! Exhaustive search: every state that a model can reach, breadth first, so that the first violation found is one of the
//! shortest. A state that was seen is remembered by a fingerprint of 64 bits alone: of ten million states, two share one
//! with a probability of 3 in a million, and then one of them is not looked at.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// What is explored.
pub trait Model {
    /// Everything that the future depends on. States that do not differ must be equal, and hash alike.
    type State: Clone + Hash;
    /// Something that may happen.
    type Act: Copy;

    /// Where it begins.
    fn start(&self) -> Self::State;

    /// Calls `each` for all that may happen next, in an order that depends on `state` alone.
    fn acts(&self, state: &Self::State, each: &mut dyn FnMut(Self::Act, Self::State));

    /// What must never be the case and is.
    fn broken(&self, state: &Self::State) -> Option<String>;

    /// A line about an act and what it changed.
    fn tell(&self, act: Self::Act, before: &Self::State, after: &Self::State) -> String;
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Search {
    /// States that differ.
    pub states: usize,
    /// Acts carried out, those included that led to a state that was known.
    pub acts: usize,
    /// Acts on the way to the state that is farthest from the start.
    pub depth: usize,
    /// Whether every state was reached.
    pub is_complete: bool,
    /// The first state that must not be, if there is one.
    pub violation: Option<Violation>,
}

/// How a state that must not be is reached.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong with it.
    pub what: String,
    /// One line per act.
    pub story: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in (1..).zip(&self.story) {
            writeln!(f, "{number:>4} {line}")?;
        }
        write!(f, "     => {}", self.what)
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = if self.is_complete { "to the end" } else { "not to the end" };
        write!(f, "{} states, {} acts, depth {}, {end}", self.states, self.acts, self.depth)
    }
}

/// Explores `model` until a violation, the last state, or `limit` states. `look` is shown every new state, and may name
/// a violation of its own.
pub fn explore<M: Model>(
    model: &M,
    limit: usize,
    look: &mut dyn FnMut(&M::State) -> Option<String>,
) -> Search {
    let mut walk = Walk::new(model, limit);
    let start = model.start();
    walk.violation = walk.enter(&start, Origin { parent: 0, turn: 0 }, look);
    let mut level = vec![(0, start)];
    while !level.is_empty() && walk.violation.is_none() && walk.origins.len() < limit {
        level = walk.next_level(level, look);
    }
    Search {
        states: walk.origins.len(),
        acts: walk.acts,
        depth: walk.depth,
        is_complete: level.is_empty(),
        violation: walk.violation,
    }
}

/// Where a state was reached from: the number of that state, and which of its acts it was.
#[derive(Clone, Copy)]
struct Origin {
    parent: u32,
    turn: u16,
}

struct Walk<'a, M: Model> {
    model: &'a M,
    limit: usize,
    known: HashSet<u64, BuildHasherDefault<AsItIs>>,
    /// By number of the state.
    origins: Vec<Origin>,
    acts: usize,
    depth: usize,
    violation: Option<Violation>,
}

impl<'a, M: Model> Walk<'a, M> {
    fn new(model: &'a M, limit: usize) -> Self {
        Self {
            model,
            limit,
            known: HashSet::default(),
            origins: Vec::new(),
            acts: 0,
            depth: 0,
            violation: None,
        }
    }

    fn next_level(
        &mut self,
        level: Vec<(u32, M::State)>,
        look: &mut dyn FnMut(&M::State) -> Option<String>,
    ) -> Vec<(u32, M::State)> {
        let mut next = Vec::new();
        for (number, state) in level {
            let mut turn = 0;
            self.model.acts(&state, &mut |_, after| {
                let origin = Origin { parent: number, turn };
                turn += 1;
                self.acts += 1;
                if self.violation.is_some() || self.is_known(&after) {
                    return;
                }
                let entered = u32::try_from(self.origins.len()).expect("fewer than 2^32 states");
                self.violation = self.enter(&after, origin, look);
                next.push((entered, after));
            });
            if self.violation.is_some() || self.origins.len() >= self.limit {
                break;
            }
        }
        self.depth += usize::from(!next.is_empty());
        next
    }

    fn is_known(&mut self, state: &M::State) -> bool {
        !self.known.insert(fingerprint(state))
    }

    fn enter(
        &mut self,
        state: &M::State,
        origin: Origin,
        look: &mut dyn FnMut(&M::State) -> Option<String>,
    ) -> Option<Violation> {
        if self.origins.is_empty() {
            self.is_known(state);
        }
        self.origins.push(origin);
        let what = self.model.broken(state).or_else(|| look(state))?;
        let story = self.story(self.origins.len() - 1);
        Some(Violation { what, story })
    }

    /// Walks to the state of that number again, and tells it.
    fn story(&self, number: usize) -> Vec<String> {
        let mut turns = Vec::new();
        let mut at = number;
        while at != 0 {
            turns.push(self.origins[at].turn);
            at = self.origins[at].parent as usize;
        }
        let mut state = self.model.start();
        let mut lines = Vec::new();
        for turn in turns.into_iter().rev() {
            let mut taken = None;
            let mut at = 0;
            self.model.acts(&state, &mut |act, after| {
                if at == turn {
                    taken = Some((act, after));
                }
                at += 1;
            });
            let (act, after) =
                taken.expect("acts come in an order that depends on the state alone");
            lines.push(self.model.tell(act, &state, &after));
            state = after;
        }
        lines
    }
}

/// 64 bits of a state, the same in every run.
#[must_use]
pub fn fingerprint(state: &impl Hash) -> u64 {
    let mut folding = Folding::default();
    state.hash(&mut folding);
    folding.finish()
}

/// Two odd numbers without a pattern.
const FOLD: (u64, u64) = (0x9e37_79b9_7f4a_7c15, 0xa076_1d64_78bd_642f);

/// Hashes by folding products: fast, and not for keys that somebody else chooses. Small values are gathered before they
/// are folded in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Folding {
    hash: u64,
    gathered: u64,
    /// Bits of `gathered`.
    bits: u32,
}

impl Folding {
    fn gather(&mut self, value: u64, bits: u32) {
        if self.bits + bits > u64::BITS {
            self.fold();
        }
        self.gathered |= value << self.bits;
        self.bits += bits;
    }

    fn fold(&mut self) {
        let product = u128::from(self.hash ^ self.gathered ^ FOLD.0) * u128::from(FOLD.1);
        self.hash = folded(product) ^ self.hash.rotate_left(23);
        (self.gathered, self.bits) = (0, 0);
    }
}

/// Both halves of a product in one.
fn folded(product: u128) -> u64 {
    (product as u64) ^ ((product >> 64) as u64)
}

impl Hasher for Folding {
    fn finish(&self) -> u64 {
        let mut last = *self;
        last.fold();
        folded(u128::from(last.hash ^ FOLD.1) * u128::from(FOLD.0))
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.gather(u64::from(*byte), 8));
    }

    fn write_u8(&mut self, value: u8) {
        self.gather(value.into(), 8);
    }

    fn write_u16(&mut self, value: u16) {
        self.gather(value.into(), 16);
    }

    fn write_u32(&mut self, value: u32) {
        self.gather(value.into(), 32);
    }

    fn write_u64(&mut self, value: u64) {
        self.gather(value & u64::from(u32::MAX), 32);
        self.gather(value >> 32, 32);
    }

    /// Lengths: those of one model's lists fit.
    fn write_usize(&mut self, value: usize) {
        self.write_u32(u32::try_from(value).expect("lists are short"));
    }

    /// Variants.
    fn write_isize(&mut self, value: isize) {
        self.gather(u64::from(value.cast_unsigned() as u8), 8);
    }
}

/// A fingerprint is a hash already.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are hashed")
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two counters that go up by one each, up to a bound; their sum must stay below a limit.
    struct Counters {
        bound: u8,
        limit: u8,
    }

    impl Model for Counters {
        type State = (u8, u8);
        type Act = &'static str;

        fn start(&self) -> Self::State {
            (0, 0)
        }

        fn acts(&self, state: &Self::State, each: &mut dyn FnMut(Self::Act, Self::State)) {
            if state.0 < self.bound {
                each("left", (state.0 + 1, state.1));
            }
            if state.1 < self.bound {
                each("right", (state.0, state.1 + 1));
            }
        }

        fn broken(&self, state: &Self::State) -> Option<String> {
            (state.0 + state.1 >= self.limit).then(|| "too many".to_owned())
        }

        fn tell(&self, act: Self::Act, _: &Self::State, after: &Self::State) -> String {
            format!("{act} to {after:?}")
        }
    }

    #[test]
    fn every_state_is_reached_once() {
        let found = explore(&Counters { bound: 9, limit: 99 }, 1000, &mut |_| None);
        assert_eq!((found.states, found.acts, found.depth), (100, 180, 18));
        assert!(found.is_complete && found.violation.is_none());
    }

    #[test]
    fn the_first_violation_is_a_shortest_one_and_is_told() {
        let found = explore(&Counters { bound: 9, limit: 3 }, 1000, &mut |_| None);
        let violation = found.violation.unwrap();
        assert_eq!(violation.story.len(), 3);
        assert!(violation.to_string().ends_with("=> too many"), "{violation}");
    }

    #[test]
    fn a_search_that_was_cut_says_so() {
        let found = explore(&Counters { bound: 9, limit: 99 }, 20, &mut |_| None);
        assert!(!found.is_complete && found.states >= 20, "{found}");
    }

    #[test]
    fn what_differs_has_another_fingerprint() {
        let all = (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).map(move |b| (a, Some(u64::from(b)))));
        let prints: HashSet<u64> = all.map(|state| fingerprint(&state)).collect();
        assert_eq!(prints.len(), 1 << 16);
        assert_ne!(fingerprint(&vec![1_u8, 2]), fingerprint(&vec![1_u8, 2, 0]));
    }

    #[test]
    fn what_a_look_names_is_a_violation() {
        let mut look = |state: &(u8, u8)| (*state == (2, 1)).then(|| "seen".to_owned());
        let found = explore(&Counters { bound: 9, limit: 99 }, 1000, &mut look);
        assert_eq!(found.violation.unwrap().story.len(), 3);
    }
}
