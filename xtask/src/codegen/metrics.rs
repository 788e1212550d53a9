//! The page of metrics: every family, and what its labels can be.

use std::fmt::Write as _;

use anyhow::Context as _;
use otctl_kit::error::Category;
use otctl_kit::metrics::{FAMILIES, Family, Kind, PROCESS_FAMILIES};
use otctl_kit::report::Outcome;

use workspace_controller::metrics::{End, Wish};

use super::reference::cell;
use crate::families::{CONTROLLERS, all};

const INTRODUCTION: &str = "# Metrics

Every controller serves them at `/metrics`, the one that leads and those that stand by. How they add up over replicas:

- **Gauges** tell what each replica watches, which is the same for all, or of the one that leads: take the highest,
  `max(otctl_images_waiting)`.
- **Counters and histograms** count what this process has done. What happens to images and Workspaces is counted by the
  leader alone, and once, whatever is repeated or seen again: add them up,
  `sum(rate(otctl_image_received_bytes_total[5m]))`. A restart begins at 0, as Prometheus expects; what happens in the
  moment between two leaders may be counted by none.

What several controllers measure is told apart by the program:
`otctl_leader * on (job, instance) group_left (program) otctl_build_info{program=\"diskimage-controller\"}`.

Each chart brings alerts and a dashboard: with `metrics.enabled`, `metrics.prometheusRule.enabled` and
`metrics.dashboards.enabled`. What to do about
an alert: [runbook.md](../runbook.md#alerts).
";

const TURN_ENDS: &str = "every part that it was for was ready; `provisioningTimeout` of the policy was over before; the API server calls \
     something of it invalid; nothing could be done, such as while disk images are synced; it was suspended or deleted";

pub(super) fn page() -> anyhow::Result<String> {
    let mut text = INTRODUCTION.to_owned();
    section(&mut text, "Every controller", &FAMILIES);
    for controller in CONTROLLERS {
        section(&mut text, controller.program, controller.families);
    }
    section(&mut text, "The process", &PROCESS_FAMILIES);
    text += "\n## Labels\n\nThe values of a label are a closed set; no name of an object is among them.\n\n\
             | label | values |\n|---|---|\n";
    for label in labels() {
        let values = values(label).with_context(|| format!("nothing is said of label {label}"))?;
        let _ = writeln!(text, "| `{label}` | {} |", cell(&values));
    }
    Ok(text)
}

fn section(text: &mut String, title: &str, families: &[Family]) {
    let _ =
        write!(text, "\n## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for family in families {
        let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {}{} |",
            family.name,
            family.kind.word(),
            labels.join(", "),
            cell(family.help),
            buckets(family.kind)
        );
    }
}

fn buckets(kind: Kind) -> String {
    let Kind::Histogram(buckets) = kind else { return String::new() };
    let buckets: Vec<_> = buckets.iter().map(f64::to_string).collect();
    format!(" Buckets: {}.", buckets.join(", "))
}

/// Every label, in the order in which they are met.
fn labels() -> Vec<&'static str> {
    let mut labels = Vec::new();
    for label in all().flat_map(|family| family.labels) {
        if !labels.contains(label) {
            labels.push(label);
        }
    }
    labels
}

fn values(label: &str) -> Option<String> {
    let list = |values: &[&str]| {
        values.iter().map(|value| format!("`{value}`")).collect::<Vec<_>>().join(", ")
    };
    let programs: Vec<_> = CONTROLLERS.iter().map(|it| it.program).collect();
    let mut loops: Vec<&str> = Vec::new();
    for name in CONTROLLERS.iter().flat_map(|it| it.loops) {
        if !loops.contains(name) {
            loops.push(name);
        }
    }
    Some(match label {
        "controller" => format!("the loop: {}", list(&loops)),
        "outcome" => list(&Outcome::LABELS),
        "category" => list(&Category::ALL.map(Category::label)),
        "verb" => "as the API server names it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`".to_owned(),
        "code" => "the status of the answer; `none` where none came".to_owned(),
        "kind" => "a kind that is watched".to_owned(),
        "program" => list(&programs),
        "version" | "commit" => "of the build".to_owned(),
        "phase" => "as in status".to_owned(),
        "reason" => "as in status and conditions: [conditions.md](conditions.md); `other` for a word that none of them is".to_owned(),
        "class" => format!(
            "{}; the last three as in [conditions.md](conditions.md#how-an-attempt-fails)",
            list(&diskimage_controller::metrics::CLASSES)
        ),
        "end" => format!("{}: {TURN_ENDS}", list(&End::ALL.map(End::label))),
        "since" => list(&Wish::ALL.map(Wish::label)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_and_every_label_has_its_row() {
        let page = page().unwrap();
        for family in all() {
            assert!(page.contains(&format!("\n| `{}` | ", family.name)), "{}", family.name);
        }
        for label in labels() {
            assert!(page.contains(&format!("\n| `{label}` | ")), "{label}");
        }
    }
}
