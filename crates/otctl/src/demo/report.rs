//! What came of the run, held against what must: pure. A promise that is not held here is only hoped for.

use image_server::Counts;
use otctl_types::diskimage::Phase;

use self::workspace::Lab;
use super::peak::Peak;
use super::scenario::{CONCURRENCY, Expected};
use super::verify::Disk;
use crate::out;
use crate::view;

/// Bytes of a first look, and bytes that an interruption may cost again.
const FIRST_LOOK: u64 = 64 << 10;
const PER_INTERRUPTION: u64 = 1 << 20;

const COLUMNS: [&str; 8] = [
    "IMAGE",
    "PHASE",
    "REASON",
    "ATTEMPTS",
    "FIRST LOOK",
    "FETCHED",
    "OF",
    "SHA256 OF THE RESTORED DISK",
];

/// What the columns count, where that is not what one would guess.
const LEGEND: &str = "\
FIRST LOOK is what the probe read to learn format and size, FETCHED what the download took: more than OF only where a
connection was cut, by what was on its way then (at most 1 MiB for each). An attempt that is cut goes on where it was,
so cut-twice has one; too-large was refused after the first look.";

pub(crate) mod workspace;

#[cfg(test)]
mod tests;

/// What was seen of one image.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) name: &'static str,
    /// What must have come of it.
    pub(crate) expected: Expected,
    /// Where it stands.
    pub(crate) phase: Option<Phase>,
    /// The reason of Ready.
    pub(crate) reason: String,
    /// How many attempts ended.
    pub(crate) attempts: usize,
    /// The server's numbers.
    pub(crate) counts: Counts,
    /// Length of the source.
    pub(crate) size: Option<u64>,
    /// The hash that the disk must have.
    pub(crate) expected_sha256: Option<String>,
    /// The disk in the restored claim, or why there is none.
    pub(crate) disk: Option<Result<Disk, String>>,
}

/// What was seen of the run.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// Every image.
    pub(crate) images: Vec<Seen>,
    /// The most at once.
    pub(crate) peak: Peak,
    /// The workspace.
    pub(crate) lab: Lab,
}

impl Report {
    /// Everything that is not as it must be; empty if all is right.
    pub(crate) fn problems(&self) -> Vec<String> {
        let of_images = self.images.iter().flat_map(|seen| {
            let problems = seen.problems();
            problems.into_iter().map(move |problem| format!("{}: {problem}", seen.name))
        });
        let of_lab = self.lab.problems().into_iter().map(|problem| format!("workspace: {problem}"));
        of_images.chain(peak_problem(self.peak)).chain(of_lab).collect()
    }

    /// The table of images, their peak, the workspace, and the verdict.
    pub(crate) fn text(&self) -> String {
        let table = out::table(&COLUMNS, self.images.iter().map(Seen::cells));
        let Peak { entries, pods, transfers } = self.peak;
        let most = self.peak.most();
        let peak = format!(
            "Most active at once: {most} of {CONCURRENCY} allowed (slots in the ledger {entries}, import pods {pods}, \
             transfers by the server's count {transfers})."
        );
        let (lab, verdict) = (self.lab.text(), verdict(&self.problems()));
        format!("{table}\n{LEGEND}\n{peak}\n\n{lab}\n\n{verdict}")
    }
}

fn verdict(problems: &[String]) -> String {
    if problems.is_empty() {
        return "Everything is as it must be.".to_owned();
    }
    format!("Not as it must be:\n  - {}", problems.join("\n  - "))
}

fn peak_problem(peak: Peak) -> Option<String> {
    let most = peak.most();
    if most > CONCURRENCY {
        return Some(format!("{most} were active at once, {CONCURRENCY} are allowed"));
    }
    let Peak { entries, pods, transfers } = peak;
    let counted = entries > 0 && pods > 0 && transfers > 0;
    (!counted).then(|| "a count saw nothing at all, so it proves nothing".to_owned())
}

impl Seen {
    /// Body bytes that were no first look.
    fn fetched(&self) -> u64 {
        self.counts.bytes - self.counts.probe_bytes
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = match self.expected {
            Expected::Disk { size, interruptions } => self.disk_problems(size, interruptions),
            Expected::Refusal { reason, requests } => self.refusal_problems(reason, requests),
        };
        let looks = self.counts.probe_bytes;
        let allowed = FIRST_LOOK * self.attempts.max(1) as u64;
        problems.extend(
            (looks > allowed)
                .then(|| format!("first looks cost {looks} bytes, {allowed} are allowed")),
        );
        problems
    }

    fn disk_problems(&self, size: u64, interruptions: u64) -> Vec<String> {
        let mut problems = Vec::new();
        if self.phase != Some(Phase::Succeeded) {
            problems.push(format!("it is {}, not Succeeded", self.standing()));
        }
        problems.extend(self.content_problem(size));
        problems.extend(self.cost_problem(interruptions));
        if self.counts.downloads != 1 {
            problems.push(format!(
                "{} downloads were started at byte 0, not one",
                self.counts.downloads
            ));
        }
        problems
    }

    fn content_problem(&self, size: u64) -> Option<String> {
        let disk = match &self.disk {
            Some(Ok(disk)) => disk,
            Some(Err(cause)) => return Some(format!("its disk could not be read back: {cause}")),
            None => return Some("its disk was not read back".to_owned()),
        };
        if disk.size != size {
            return Some(format!("the restored disk has {} bytes, not {size}", disk.size));
        }
        let expected = self.expected_sha256.as_deref().unwrap_or("none");
        let found = &disk.sha256;
        (found != expected)
            .then(|| format!("the restored disk hashes to {found}, the raw content to {expected}"))
    }

    fn cost_problem(&self, interruptions: u64) -> Option<String> {
        let size = self.size.unwrap_or(0);
        let most = size + interruptions * PER_INTERRUPTION;
        let fetched = self.fetched();
        (!(size..=most).contains(&fetched))
            .then(|| format!("{fetched} bytes were fetched; {size} to {most} are right with {interruptions} interruptions"))
    }

    fn refusal_problems(&self, reason: &str, requests: Option<u64>) -> Vec<String> {
        let mut problems = Vec::new();
        if self.phase != Some(Phase::Failed) || self.reason != reason {
            problems.push(format!("it is {}, not Failed with {reason}", self.standing()));
        }
        if self.fetched() > 0 {
            problems.push(format!("{} bytes were fetched after the first look", self.fetched()));
        }
        let asked = self.counts.requests;
        if let Some(allowed) = requests.filter(|allowed| *allowed != asked) {
            problems.push(format!("it was asked for {asked} times, not {allowed}"));
        }
        problems
    }

    fn standing(&self) -> String {
        let phase = self.phase.map_or("without a phase", view::phase);
        format!("{phase} ({})", self.reason)
    }

    fn cells(&self) -> [String; 8] {
        [
            self.name.to_owned(),
            self.phase.map_or("-", view::phase).to_owned(),
            self.reason.clone(),
            self.attempts.to_string(),
            out::size(self.counts.probe_bytes),
            out::size(self.fetched()),
            self.size.map_or_else(|| "-".to_owned(), out::size),
            self.hash_cell(),
        ]
    }

    fn hash_cell(&self) -> String {
        match (&self.disk, &self.expected_sha256) {
            (Some(Ok(disk)), Some(expected)) if disk.sha256 == *expected => {
                format!("{}… ok", &disk.sha256[..16])
            }
            (Some(Ok(disk)), _) => format!("{}… WRONG", &disk.sha256[..16]),
            (Some(Err(_)), _) => "unreadable".to_owned(),
            (None, _) => "-".to_owned(),
        }
    }
}
