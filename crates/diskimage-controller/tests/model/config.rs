//! What is explored: who acts, what may go wrong, and how often.

use crate::state::Left;

/// A kind whose view may be behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Images,
    Ledger,
    Imports,
    Policy,
}

/// One exploration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) name: &'static str,
    /// Names that images may have, from the first on.
    pub(crate) names: u8,
    /// How many of them are there in the beginning.
    pub(crate) present: u8,
    /// How many of those are suspended.
    pub(crate) suspended: u8,
    pub(crate) controllers: u8,
    /// What of each controller's views may be behind.
    pub(crate) behind: [&'static [Kind]; 2],
    /// The policy's `concurrency`, one after the other.
    pub(crate) limits: &'static [u32],
    pub(crate) retry_limit: u32,
    /// Whether pods may fail.
    pub(crate) pods_fail: bool,
    /// Whether an image that is deleted stays for a while.
    pub(crate) has_finalizers: bool,
    pub(crate) left: Left,
    /// Where the search is cut.
    pub(crate) most_states: usize,
}

/// Nothing goes wrong, and nobody does anything.
pub(crate) const QUIET: Left = Left {
    creations: 0,
    deletions: 0,
    suspensions: 0,
    budgets: 0,
    hands: 0,
    losses: 0,
    restores: 0,
    lates: 0,
};

/// Two controllers that see everything at once, two images, one slot, no retry.
pub(crate) const PLAIN: Config = Config {
    name: "",
    names: 2,
    present: 2,
    suspended: 0,
    controllers: 2,
    behind: [&[], &[]],
    limits: &[1],
    retry_limit: 0,
    pods_fail: false,
    has_finalizers: false,
    left: QUIET,
    most_states: 600_000,
};

/// One image and one controller.
pub(crate) const ALONE: Config = Config { names: 1, present: 1, controllers: 1, ..PLAIN };

const ALL: &[Kind] = &[Kind::Images, Kind::Ledger, Kind::Imports, Kind::Policy];

/// What every change is tested with, within a minute.
pub(crate) const SMALL: &[Config] = &[
    Config { name: "two images, two controllers", ..PLAIN },
    Config {
        name: "a late request, retries",
        names: 1,
        present: 1,
        retry_limit: 1,
        pods_fail: true,
        left: Left { lates: 1, ..QUIET },
        ..PLAIN
    },
    Config {
        name: "deleted, created again, a late request",
        left: Left { lates: 1, deletions: 1, creations: 1, ..QUIET },
        ..ALONE
    },
    Config {
        name: "the same with a finalizer",
        has_finalizers: true,
        left: Left { lates: 1, deletions: 1, creations: 1, ..QUIET },
        ..ALONE
    },
    Config {
        name: "a Job deleted by hand, retries",
        names: 1,
        present: 1,
        retry_limit: 1,
        pods_fail: true,
        left: Left { hands: 1, ..QUIET },
        ..PLAIN
    },
    Config {
        name: "the ledger emptied, two images",
        controllers: 1,
        left: Left { losses: 1, ..QUIET },
        ..PLAIN
    },
    Config {
        name: "the ledger restored, a late request",
        left: Left { restores: 1, lates: 1, ..QUIET },
        retry_limit: 1,
        pods_fail: true,
        ..ALONE
    },
    Config {
        name: "the limit changes, its view is behind",
        limits: &[1, 2, 1],
        behind: [&[Kind::Policy], &[]],
        controllers: 1,
        ..PLAIN
    },
    Config {
        name: "suspended and resumed, two images",
        controllers: 1,
        left: Left { suspensions: 1, ..QUIET },
        ..PLAIN
    },
    Config {
        name: "images are created, the view of them is behind",
        present: 0,
        controllers: 1,
        behind: [&[Kind::Images], &[]],
        left: Left { creations: 2, ..QUIET },
        ..PLAIN
    },
    Config { name: "every view behind", names: 1, present: 1, behind: [ALL, &[]], ..PLAIN },
    Config {
        name: "asked for again",
        pods_fail: true,
        left: Left { budgets: 1, lates: 1, ..QUIET },
        ..ALONE
    },
];

/// What takes hours, or does not come to its end.
pub(crate) const LARGE: &[Config] = &[
    Config {
        name: "large: two images created, two controllers",
        present: 0,
        left: Left { creations: 2, ..QUIET },
        most_states: MANY,
        ..PLAIN
    },
    Config {
        name: "large: three images, limits change",
        names: 3,
        present: 3,
        limits: &[1, 2, 1],
        controllers: 1,
        most_states: MANY,
        ..PLAIN
    },
    Config {
        name: "large: deleted, created again, two controllers",
        names: 1,
        present: 1,
        left: Left { lates: 1, deletions: 1, creations: 1, ..QUIET },
        most_states: MANY,
        ..PLAIN
    },
    Config {
        name: "large: one image, every fault once",
        left: Left {
            lates: 1,
            deletions: 1,
            creations: 1,
            hands: 1,
            suspensions: 1,
            losses: 1,
            ..QUIET
        },
        most_states: MANY,
        ..ALONE
    },
    Config {
        name: "large: two images, a late request, the ledger emptied",
        left: Left { lates: 1, losses: 1, ..QUIET },
        most_states: MANY,
        ..PLAIN
    },
    Config {
        name: "large: two images, retries, Jobs deleted by hand",
        retry_limit: 1,
        pods_fail: true,
        left: Left { hands: 1, ..QUIET },
        most_states: MANY,
        ..PLAIN
    },
    Config {
        name: "large: views behind, created and deleted",
        behind: [&[Kind::Images, Kind::Ledger, Kind::Imports], &[]],
        left: Left { creations: 1, deletions: 1, ..QUIET },
        most_states: MANY,
        ..PLAIN
    },
];

const MANY: usize = 10_000_000;
