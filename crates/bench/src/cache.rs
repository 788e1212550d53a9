//! CPU and memory of the controller's cache with so many finished images, beside plain kube-rs, and on other allocators.

mod population;
mod template;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bed::Bed;
use crate::cli::RunArgs;
use crate::figures::{median, mib, ratio, time};
use crate::out;
use crate::subject::{Allocator, Figures, Kind, Subject};
use crate::table::Table;

use self::template::Template;

const KIT: Subject = Subject { name: "kit", kind: Kind::Kit, allocator: Allocator::System };
const PLAIN: Subject =
    Subject { name: "plain kube-rs", kind: Kind::Plain, allocator: Allocator::System };
const JEMALLOC: Allocator = Allocator::Library("libjemalloc.so.2", "libjemalloc2");
const MIMALLOC: Allocator = Allocator::Library("libmimalloc.so.2", "libmimalloc2.0");
/// The same two on other allocators.
const OTHERS: [Subject; 5] = [
    Subject { name: "kit, jemalloc", allocator: JEMALLOC, ..KIT },
    Subject { name: "kit, mimalloc", allocator: MIMALLOC, ..KIT },
    Subject { name: "kit, 2 arenas", allocator: Allocator::Arenas("2"), ..KIT },
    Subject { name: "plain, jemalloc", allocator: JEMALLOC, ..PLAIN },
    Subject { name: "plain, mimalloc", allocator: MIMALLOC, ..PLAIN },
];

/// Measures with each number of images, on one API server that is filled up in between.
pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<()> {
    let templates = Template::grown().await?;
    let bed = Bed::still(&[("concurrency", "4")]).await?;
    let measured = measure_all(args, &bed, &templates).await;
    bed.end().await;
    measured
}

async fn measure_all(args: &RunArgs, bed: &Bed, templates: &[Template]) -> anyhow::Result<()> {
    let mut there = 0;
    for size in args.sizes() {
        let filled = population::fill(&bed.client, templates, there..size).await?;
        there = size;
        out::line(&format!("{size} images; {filled} more objects than before.\n"));
        let mut runs = Runs::default();
        for subject in [KIT, PLAIN].into_iter().chain(OTHERS).cycle().take(2 * (2 + OTHERS.len())) {
            match subject.missing() {
                Some(why) => out::line(&format!("{}: not measured, {why:#}.\n", subject.name)),
                None => runs.add(subject.name, subject.measure(bed, args.rest()).await?),
            }
        }
        out::line(&runs.table());
        out::line(&runs.ratios());
    }
    Ok(())
}

/// What each subject came to, in the order in which they were first run.
#[derive(Default)]
struct Runs {
    names: Vec<&'static str>,
    of: BTreeMap<&'static str, Vec<Figures>>,
}

impl Runs {
    fn add(&mut self, name: &'static str, figures: Figures) {
        if !self.names.contains(&name) {
            self.names.push(name);
        }
        self.of.entry(name).or_default().push(figures);
    }

    fn table(&self) -> Table {
        let mut table = Table::new([
            "",
            "ready after",
            "CPU of the start",
            "RSS at its peak",
            "RSS at rest",
            "CPU a minute at rest",
            "reads, writes at the start",
            "at rest",
        ]);
        for name in &self.names {
            for run in &self.of[name] {
                table.row([
                    (*name).to_owned(),
                    time(run.ready),
                    time(run.start_cpu),
                    mib(run.peak),
                    mib(run.resident),
                    time(run.minute_cpu),
                    format!("{}, {}", run.start.reads, run.start.writes),
                    format!("{}, {}", run.rest.reads, run.rest.writes),
                ]);
            }
        }
        table
    }

    /// Each over plain kube-rs: the better of two runs of each.
    fn ratios(&self) -> Table {
        let mut table = Table::new([
            "over plain kube-rs",
            "ready",
            "CPU of the start",
            "peak",
            "at rest",
            "CPU at rest",
        ]);
        for name in self.names.iter().filter(|name| **name != PLAIN.name) {
            let over = |figure: fn(&Figures) -> f64| {
                ratio(self.middle(name, figure), self.middle(PLAIN.name, figure))
            };
            table.row([
                (*name).to_owned(),
                over(|run| run.ready.as_secs_f64()),
                over(|run| run.start_cpu.as_secs_f64()),
                over(|run| bytes(run.peak)),
                over(|run| bytes(run.resident)),
                over(|run| seconds(run.minute_cpu)),
            ]);
        }
        table
    }

    /// The median, which of two is the lower one.
    fn middle(&self, name: &str, figure: fn(&Figures) -> f64) -> f64 {
        median(self.of[name].iter().map(figure)).unwrap_or(0.0)
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}
