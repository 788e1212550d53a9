//! Everything that the future of the model depends on, in as few bytes as it takes. What the product stores (statuses,
//! the ledger) is here by number: the objects themselves are in [`product`](crate::product).

/// Images that can have a name.
pub(crate) const NAMES: usize = 3;
/// Controllers that can act at once.
pub(crate) const CONTROLLERS: usize = 2;

/// UID of an image: the `life`-th of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Uid {
    pub(crate) name: u8,
    pub(crate) life: u8,
}

/// UID of a Job: the `serial`-th that was made for that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct JobId {
    pub(crate) image: Uid,
    pub(crate) number: u8,
    pub(crate) serial: u8,
}

/// An image as the API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Image {
    pub(crate) life: u8,
    /// Its resourceVersion, as a rank among those that anybody still holds.
    pub(crate) version: u8,
    /// When it was created, as a rank.
    pub(crate) born: u8,
    pub(crate) is_deleting: bool,
    pub(crate) is_suspended: bool,
    /// It was suspended once: then it may be overtaken.
    pub(crate) was_suspended: bool,
    /// How often a new budget was asked for.
    pub(crate) asked: u8,
    /// Number of its status.
    pub(crate) status: u16,
}

impl Image {
    /// One that was just created.
    pub(crate) fn new(life: u8) -> Self {
        Self {
            life,
            version: 1,
            born: 1,
            is_deleting: false,
            is_suspended: false,
            was_suspended: false,
            asked: 0,
            status: 0,
        }
    }
}

/// The Job of an attempt and its pod. One of them may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) id: JobId,
    pub(crate) job: JobState,
    /// It is being deleted in the foreground.
    pub(crate) is_going: bool,
    pub(crate) pod: PodState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum JobState {
    Absent,
    Suspended,
    Started,
    Complete,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum PodState {
    None,
    Running,
    Succeeded,
    Failed,
}

impl Import {
    pub(crate) fn has_job(&self) -> bool {
        self.job != JobState::Absent
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.job, JobState::Complete | JobState::Failed)
    }

    /// Of an unstarted Job, whatever happens to it changes this.
    pub(crate) fn job_version(&self) -> u8 {
        1 + 2 * self.job as u8 + u8::from(self.is_going)
    }
}

/// The ledger as the API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ledger {
    pub(crate) version: u8,
    pub(crate) status: u16,
}

/// What a pass is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Queue,
    Image(u8),
}

/// One controller process: what of its views is behind, and the pass it is in. Views that are not listed in its
/// configuration are as good as current: they are taken anew whenever a pass begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Controller {
    pub(crate) images: Option<[Option<Image>; NAMES]>,
    pub(crate) ledger: Option<Ledger>,
    pub(crate) imports: Option<Vec<Import>>,
    pub(crate) policy: Option<u8>,
    pub(crate) pass: Option<Pass>,
}

/// A pass that has begun: it has reads to make, or writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Pass {
    pub(crate) key: Key,
    pub(crate) stage: Stage,
    /// The versions that its writes are guarded by; 0 where none is any more.
    pub(crate) seen: Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Number of what was seen and read so far.
    Reading(u32),
    /// Number of the plan, and how much of it is done.
    Writing(u32, u8),
}

/// resourceVersions that were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) images: [u8; NAMES],
    pub(crate) ledger: u8,
}

/// A write, as it is sent. The guards on versions travel beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Write {
    /// PUT of the ledger's status.
    Swap(u16),
    /// Merge patch of an image's status, decided on for that UID.
    Patch(Uid, u16),
    Create {
        image: Uid,
        number: u8,
        is_started: bool,
    },
    Start(JobId),
    Delete {
        job: JobId,
        only: Option<u8>,
        is_foreground: bool,
    },
}

/// How much more may go wrong, and how often people still do something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(crate) creations: u8,
    pub(crate) deletions: u8,
    pub(crate) suspensions: u8,
    pub(crate) budgets: u8,
    /// Jobs deleted by hand, in the background.
    pub(crate) hands: u8,
    /// Ledgers emptied.
    pub(crate) losses: u8,
    /// Ledgers put back to what they were.
    pub(crate) restores: u8,
    /// Requests that arrive after their sender gave up.
    pub(crate) lates: u8,
}

/// What no object tells any more and an invariant asks for; of the present life of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ghost {
    /// Lives so far.
    pub(crate) lives: u8,
    /// Pods started, by the budget they were paid from.
    pub(crate) pods: [u8; 2],
    /// Numbers that had a pod, as bits.
    pub(crate) numbers: u8,
    /// Jobs made, by number.
    pub(crate) made: [u8; 6],
    /// The open attempt has had its pod.
    pub(crate) open_ran: bool,
    /// Somebody deleted a Job of it.
    pub(crate) has_lost_a_job: bool,
    /// The Job that completed last.
    pub(crate) done: Option<JobId>,
}

/// A state of the whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) images: [Option<Image>; NAMES],
    pub(crate) ledger: Ledger,
    /// Which of the configuration's limits is in the ConfigMap.
    pub(crate) policy: u8,
    pub(crate) imports: Vec<Import>,
    pub(crate) controllers: [Controller; CONTROLLERS],
    /// Requests under way whose senders have given up.
    pub(crate) late: Vec<(Write, Seen)>,
    pub(crate) left: Left,
    /// A ledger that was kept to be put back.
    pub(crate) saved: Option<u16>,
    pub(crate) ghosts: [Ghost; NAMES],
    /// Policies in force since the ledger was last written, as bits.
    pub(crate) policies_since: u8,
    /// Attempts whose entry somebody took away.
    pub(crate) robbed: Vec<(Uid, u8)>,
    /// Jobs made for dead images: none of their UIDs comes again.
    pub(crate) late_births: u8,
    /// What was wrong with the last act.
    pub(crate) wrong: Option<&'static str>,
}

impl State {
    /// The living image of that UID.
    pub(crate) fn image(&self, uid: Uid) -> Option<&Image> {
        self.images[usize::from(uid.name)].as_ref().filter(|image| image.life == uid.life)
    }

    pub(crate) fn blame(&mut self, what: &'static str) {
        self.wrong.get_or_insert(what);
    }

    /// Brings it into the form that is equal for states that do not differ: versions and times count only by their
    /// order, lists by their content.
    pub(crate) fn settle(&mut self) {
        self.imports.retain(|import| import.has_job() || import.pod == PodState::Running);
        self.imports.sort_unstable();
        let imports = &self.imports;
        self.robbed.retain(|(uid, number)| {
            imports.iter().any(|import| (import.id.image, import.id.number) == (*uid, *number))
        });
        self.late.sort_unstable();
        for name in 0..NAMES {
            rank(&mut self.versions_of(name));
        }
        rank(&mut self.ledger_versions());
        rank(&mut self.births());
    }

    fn versions_of(&mut self, name: usize) -> Vec<&mut u8> {
        let current = self.images[name].iter_mut().map(|image| &mut image.version);
        let late = self.late.iter_mut().map(|(_, seen)| &mut seen.images[name]);
        let mut all: Vec<&mut u8> = current.chain(late).collect();
        for Controller { images, pass, .. } in &mut self.controllers {
            all.extend(
                images.iter_mut().flat_map(|images| &mut images[name]).map(|it| &mut it.version),
            );
            all.extend(pass.iter_mut().map(|pass| &mut pass.seen.images[name]));
        }
        all
    }

    fn ledger_versions(&mut self) -> Vec<&mut u8> {
        let mut all = vec![&mut self.ledger.version];
        all.extend(self.late.iter_mut().map(|(_, seen)| &mut seen.ledger));
        for Controller { ledger, pass, .. } in &mut self.controllers {
            all.extend(ledger.iter_mut().map(|ledger| &mut ledger.version));
            all.extend(pass.iter_mut().map(|pass| &mut pass.seen.ledger));
        }
        all
    }

    fn births(&mut self) -> Vec<&mut u8> {
        let mut all: Vec<&mut u8> =
            self.images.iter_mut().flatten().map(|it| &mut it.born).collect();
        for Controller { images, .. } in &mut self.controllers {
            all.extend(images.iter_mut().flatten().flatten().map(|image| &mut image.born));
        }
        all
    }

    /// A version that nobody has seen of that image.
    pub(crate) fn next_version(&mut self, name: usize) -> u8 {
        self.versions_of(name).into_iter().map(|version| *version).max().unwrap_or(0) + 1
    }

    /// A version that nobody has seen of the ledger.
    pub(crate) fn next_ledger_version(&mut self) -> u8 {
        self.ledger_versions().into_iter().map(|version| *version).max().unwrap_or(0) + 1
    }

    /// After everything that was created so far.
    pub(crate) fn next_birth(&mut self) -> u8 {
        self.births().into_iter().map(|born| *born).max().unwrap_or(0) + 1
    }
}

/// Numbers by their order, from 1; 0 stays.
fn rank(values: &mut [&mut u8]) {
    let before = |values: &[&mut u8], value: u8| {
        let lower = values.iter().filter(|other| ***other > 0 && ***other < value);
        let mut found = [0_u8; 8];
        let mut count = 0;
        for other in lower {
            if !found[..count].contains(other) {
                found[count] = **other;
                count += 1;
            }
        }
        count
    };
    if values.iter().all(|value| **value <= 1) {
        return;
    }
    let ranks: Vec<usize> = values.iter().map(|value| before(values, **value)).collect();
    for (value, rank) in values.iter_mut().zip(ranks).filter(|(value, _)| ***value > 0) {
        **value = u8::try_from(rank + 1).expect("few are held at a time");
    }
}
