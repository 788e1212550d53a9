//! The promise on virtual time: whatever is granted when, and however greedily bytes are taken,
//! between any two moments never more than the share and one slice.

use policy::bandwidth::gate::{Gate, Told, VALIDITY};
use proptest::prelude::*;

use super::*;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

fn second(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// What the gate makes of this share when it arrives at once.
fn share(share: Option<u64>, fallback: Option<u64>) -> Holding {
    let told = Told { share, fallback, ..Told::default() };
    Gate::default().take(&told, Duration::ZERO).unwrap()
}

/// A reader that takes whatever it may as soon as it may.
struct Greedy {
    pacer: Pacer,
    begun: Instant,
    now: Instant,
    /// How late a timer wakes it.
    late: Duration,
    /// When how much was taken, in order.
    taken: Vec<(Duration, u64)>,
}

impl Greedy {
    fn new(fallback: Option<u64>) -> Self {
        let begun = Instant::now();
        let pacer = Pacer::new(fallback, begun);
        Self { pacer, begun, now: begun, late: Duration::ZERO, taken: Vec::new() }
    }

    /// Takes until so much time has passed, at most `portion` bytes of each turn.
    fn run(&mut self, time: Duration, portion: usize) {
        let end = self.now + time;
        while self.now < end {
            match self.pacer.turn(self.now) {
                Turn::Take(slice) => {
                    let bytes = slice.min(portion);
                    self.pacer.took(bytes, self.now);
                    self.taken.push((self.now - self.begun, bytes as u64));
                    // Reading takes some time, also without a limit.
                    self.now += Duration::from_nanos(50 + bytes as u64 / 100);
                }
                Turn::Wait(wait) => {
                    assert!(wait > Duration::ZERO);
                    self.now = end.min(self.now + wait + self.late);
                }
            }
        }
        self.now = end;
    }

    fn total(&self) -> u64 {
        self.taken.iter().map(|(_, bytes)| bytes).sum()
    }
}

#[test]
fn a_second_at_a_rate_brings_that_rate() {
    for rate in [1, 100, 64 * KIB, 8 << 20, 200 << 20] {
        let mut reader = Greedy::new(Some(rate));
        reader.run(second(10), usize::MAX);
        let total = reader.total();
        assert!(total <= 10 * rate + slice(rate), "{total} at {rate}");
        assert!(total >= 10 * rate - slice(rate), "{total} at {rate}");
    }
}

/// A timer that wakes us late costs nothing of the rate.
#[test]
fn late_wakes_are_made_up_for() {
    for rate in [64 * KIB, 8 << 20, 200 << 20] {
        let mut reader = Greedy::new(Some(rate));
        reader.late = Duration::from_millis(1);
        reader.run(second(2), usize::MAX);
        let total = reader.total();
        assert!(total <= 2 * rate + slice(rate), "{total} at {rate}");
        assert!(total >= 2 * rate - 2 * slice(rate), "{total} at {rate}");
    }
}

#[test]
fn slices_are_short_at_low_rates_and_long_enough_to_wake_for_at_high_ones() {
    let table = [(0, 1), (100, 12), (MIB, 64 * KIB), (16 * MIB, 67_108), (200 * MIB, 838_860)];
    for (rate, expected) in table {
        assert_eq!(slice(rate), expected, "{rate}");
    }
}

#[test]
fn without_a_limit_nothing_waits() {
    let mut pacer = Pacer::new(None, Instant::now());
    for _ in 0..1000 {
        let now = Instant::now();
        assert_eq!(pacer.turn(now), Turn::Take(SLICE));
        pacer.took(SLICE, now);
    }
}

#[test]
fn a_share_above_the_fallback_ends_in_its_time() {
    let begun = Instant::now();
    let mut pacer = Pacer::new(Some(100), begun);
    for granted in [Some(1000), None] {
        pacer.grant(share(granted, Some(100)), begun);
        assert_eq!(pacer.rate(begun + VALIDITY - Duration::from_millis(1)), granted);
        assert_eq!(pacer.rate(begun + VALIDITY), Some(100));
    }
    pacer.grant(share(Some(1000), Some(100)), begun + second(4));
    assert_eq!(pacer.rate(begun + second(3) + VALIDITY), Some(1000));
    assert_eq!(pacer.rate(begun + second(4) + VALIDITY), Some(100));
    let over = Holding { lasts: Some(Duration::ZERO), ..share(Some(1000), Some(100)) };
    pacer.grant(over, begun + second(20));
    assert_eq!(pacer.rate(begun + second(20)), Some(100));
}

#[test]
fn a_share_up_to_the_fallback_stays() {
    let begun = Instant::now();
    let mut pacer = Pacer::new(None, begun);
    for (granted, fallback) in [(Some(50), Some(100)), (Some(100), Some(100)), (Some(50), None)] {
        pacer.grant(share(granted, fallback), begun);
        assert_eq!(pacer.rate(begun + second(3600)), granted);
    }
    pacer.grant(share(None, None), begun);
    assert_eq!(pacer.rate(begun + second(3600)), None);
}

#[test]
fn a_change_acts_on_a_wait_that_has_begun() {
    let begun = Instant::now();
    let mut pacer = Pacer::new(Some(800), begun);
    assert_eq!(pacer.turn(begun), Turn::Take(100));
    pacer.took(100, begun);
    assert_eq!(pacer.turn(begun), Turn::Wait(Duration::from_micros(62_500)));
    pacer.grant(share(Some(80), Some(800)), begun);
    assert_eq!(pacer.turn(begun), Turn::Wait(Duration::from_micros(62_500)));
    pacer.grant(share(Some(800_000), None), begun);
    assert_eq!(pacer.turn(begun), Turn::Wait(Duration::from_micros(40_960)));
    pacer.grant(share(None, None), begun);
    assert_eq!(pacer.turn(begun + Duration::from_nanos(1)), Turn::Take(SLICE));
}

/// One grant and how long it is left alone.
#[derive(Clone, Debug)]
struct Step {
    share: Holding,
    lasts: Duration,
}

fn step() -> impl Strategy<Value = Step> {
    let rate = || prop_oneof![1u64..200, 1_000u64..100_000, 1_000_000u64..20_000_000];
    let limits = (rate(), rate());
    (limits, 1u64..7_000).prop_map(|((granted, fallback), millis)| Step {
        share: share(Some(granted), Some(fallback)),
        lasts: Duration::from_millis(millis),
    })
}

/// What the steps allow between two moments: the sum over each stretch at one rate.
fn allowed(steps: &[Step], from: Duration, to: Duration) -> u128 {
    let mut start = Duration::ZERO;
    let mut nano_bytes = 0;
    for step in steps {
        let granted = step.share.share.unwrap();
        let fallback = step.share.fallback.unwrap();
        let lapse = if granted > fallback { step.lasts.min(VALIDITY) } else { step.lasts };
        let end = start + step.lasts;
        for (a, b, rate) in [(start, start + lapse, granted), (start + lapse, end, fallback)] {
            let overlap = b.min(to).saturating_sub(a.max(from));
            nano_bytes += overlap.as_nanos() * u128::from(rate);
        }
        start = end;
    }
    nano_bytes.div_ceil(1_000_000_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn never_more_than_the_share_and_one_slice(
        steps in proptest::collection::vec(step(), 1..5),
        portion in prop_oneof![Just(usize::MAX), 3_000usize..50_000],
    ) {
        // A first rate below every other, so that the time before the first grant is none.
        let mut reader = Greedy::new(Some(1));
        for step in &steps {
            reader.pacer.grant(step.share, reader.now);
            reader.run(step.lasts, portion);
        }
        let taken = &reader.taken;
        let rates = steps.iter().flat_map(|step| {
            [step.share.share, step.share.fallback]
        });
        let longest = u128::from(rates.flatten().map(slice).max().unwrap());
        // Windows that begin and end with a slice are the fullest; some hundred of each will do.
        let stride = taken.len() / 150 + 1;
        for first in (0..taken.len()).step_by(stride) {
            let mut sum = 0u128;
            for (index, (at, bytes)) in taken.iter().enumerate().skip(first) {
                sum += u128::from(*bytes);
                if (index - first) % stride == 0 {
                    let limit = allowed(&steps, taken[first].0, *at) + longest;
                    prop_assert!(sum <= limit, "{sum} bytes from {first} to {index}, {limit} allowed");
                }
            }
        }
    }
}
