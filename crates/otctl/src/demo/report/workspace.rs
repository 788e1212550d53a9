//! What came of the workspace, held against what must.

use std::time::Duration;

use otctl_types::condition::Reason;
use otctl_types::workspace::Phase;

use crate::demo::lab::{CONCURRENCY, Disks, MACHINES, PARTS};
use crate::demo::scenario::Hashes;
use crate::demo::story::{Part, Story};
use crate::out;

const COLUMNS: [&str; 4] = ["PART", "READY AFTER", "SHA256 OF ITS DISK", "WHERE IT STOOD"];

#[cfg(test)]
pub(super) mod tests;

/// What was seen of the workspace.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    /// What was told of it, from before it was there.
    pub(crate) story: Story,
    /// What its machines read.
    pub(crate) disks: Disks,
    /// What the disk of each image must hash to.
    pub(crate) expected: Hashes,
}

impl Lab {
    /// Everything that is not as it must be; empty if all is right.
    pub(super) fn problems(&self) -> Vec<String> {
        let images = MACHINES.iter().filter_map(|(_, image)| self.image_problem(image));
        let disks = MACHINES.iter().filter_map(|(entry, image)| self.disk_problem(entry, image));
        let parts = self.story.parts.iter().filter_map(part_problem);
        let single = [
            self.phase_problem(),
            self.parts_problem(),
            self.edit_problem(),
            self.reason_problem(),
            self.policy_problem(),
            self.slot_problem(),
        ];
        single.into_iter().flatten().chain(parts).chain(images).chain(disks).collect()
    }

    fn phase_problem(&self) -> Option<String> {
        let phase = self.story.phase();
        let told = phase.map_or("without a phase", Phase::as_str);
        (phase != Some(Phase::Ready)).then(|| format!("it is {told}, not Ready"))
    }

    fn parts_problem(&self) -> Option<String> {
        let told = self.story.parts.len();
        (told != PARTS).then(|| format!("it told of {told} parts, not of {PARTS}"))
    }

    /// The generation grows with every edit of the spec.
    fn edit_problem(&self) -> Option<String> {
        let generation = self.story.workspace.as_ref().and_then(|it| it.metadata.generation);
        (generation != Some(1)).then(|| "it was edited, or is gone".to_owned())
    }

    fn reason_problem(&self) -> Option<String> {
        let is_told = self.story.reasons.iter().any(|it| it == Reason::ImageNotFound.as_str());
        (!is_told).then(|| "it never said that an image is missing".to_owned())
    }

    fn policy_problem(&self) -> Option<String> {
        let Story { policy, pods, .. } = &self.story;
        match (policy, pods.iter().min()) {
            (_, None) => Some("no pod of it was seen".to_owned()),
            (None, Some(_)) => Some("there is no network policy that isolates it".to_owned()),
            (Some(policy), Some(pod)) => {
                (policy > pod).then(|| "a pod of it was there before its policy".to_owned())
            }
        }
    }

    fn slot_problem(&self) -> Option<String> {
        match self.story.most_slots() {
            0 => Some("its slot was not seen, so the count proves nothing".to_owned()),
            most => (most > CONCURRENCY)
                .then(|| format!("{most} were active at once, {CONCURRENCY} are allowed")),
        }
    }

    fn image_problem(&self, image: &str) -> Option<String> {
        let made = self.story.images.get(image).copied();
        let is_later = self.story.made.zip(made).is_some_and(|(own, made)| own < made);
        (!is_later).then(|| format!("image '{image}' was not made after it"))
    }

    fn disk_problem(&self, entry: &str, image: &str) -> Option<String> {
        let expected = self.expected.get(image).map_or("none", String::as_str);
        match self.disks.get(entry) {
            None => Some(format!("{entry}: no pod of the machine was found")),
            Some(Err(cause)) => Some(format!("{entry}: what it read is not known: {cause}")),
            Some(Ok(read)) => (read != expected).then(|| {
                format!("{entry}: its disk hashes to {read}, the raw content to {expected}")
            }),
        }
    }

    /// The table of parts and what holds for all of them.
    pub(super) fn text(&self) -> String {
        let table = out::table(&COLUMNS, self.story.parts.iter().map(|part| self.cells(part)));
        let most = self.story.most_slots();
        format!(
            "{table}\n{}\n{}\nMost workspaces active at once: {most} of {CONCURRENCY} allowed.",
            self.course(),
            self.order()
        )
    }

    fn cells(&self, part: &Part) -> [String; 4] {
        let ready_after = part.ready_after.map_or_else(|| "-".to_owned(), seconds);
        [part.name.clone(), ready_after, self.hash_cell(&part.name), part.words.join(", ")]
    }

    fn hash_cell(&self, entry: &str) -> String {
        let machine = MACHINES.iter().find(|(name, _)| *name == entry);
        let Some((_, image)) = machine else { return "-".to_owned() };
        match self.disks.get(entry) {
            Some(Ok(read)) if Some(read) == self.expected.get(image) => {
                format!("{}… ok", beginning(read))
            }
            Some(Ok(read)) => format!("{}… WRONG", beginning(read)),
            Some(Err(_)) | None => "unknown".to_owned(),
        }
    }

    /// When it was ready, and what it said until then.
    fn course(&self) -> String {
        let said = self.story.reasons.split_last().map(|(_, before)| before.join(", "));
        let said = said.unwrap_or_default();
        match self.story.ready_after.map(seconds) {
            Some(after) => {
                format!("Ready {after} after it was created; until then it said {said}.")
            }
            None => format!("Not ready; it said {}.", self.story.reasons.join(", ")),
        }
    }

    /// What was there before what.
    fn order(&self) -> String {
        let image = MACHINES.iter().find_map(|(_, image)| self.image_problem(image));
        let image = image.unwrap_or_else(|| "It was there before its images".to_owned());
        let pods = self.story.pods.len();
        let policy = self.policy_problem();
        let policy = policy
            .unwrap_or_else(|| format!("its network policy before the first of its {pods} pods"));
        format!("{image}, {policy}.")
    }
}

fn part_problem(part: &Part) -> Option<String> {
    let last = part.words.last().map_or("nothing", String::as_str);
    part.ready_after.is_none().then(|| format!("{}: it is {last}, not ready", part.name))
}

fn beginning(sum: &str) -> String {
    sum.chars().take(16).collect()
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f32())
}
