//! Hundreds of small images through the lane, really imported: how long each step takes, what it costs the API server,
//! and how much CPU.

mod times;

use std::collections::BTreeMap;
use std::time::Duration;

use image_server::{Content, ImageServer};
use kube::Api;
use kube::api::{ListParams, PostParams};
use local_cluster::audit::AuditEntry;
use otctl::installation::ControllerProcess;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;

use crate::bed::{Bed, NAMESPACE, account, snapshotted};
use crate::cli::RunArgs;
use crate::figures::{Spread, each, mib, time};
use crate::out;
use crate::table::Table;
use crate::usage::Usage;
use crate::waiting::until;

use self::times::Times;

const CONCURRENCY: usize = 8;
/// More than a first look reads.
const SIZE: u64 = 80 << 10;
const ENDED_WITHIN: Duration = Duration::from_secs(1200);

/// Imports all of them once.
pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<()> {
    let server = ImageServer::start().await?;
    let (hosts, concurrency) = (format!("http://{}", server.address()), CONCURRENCY.to_string());
    let bed = Bed::whole(&[("allowedSourceHosts", &hosts), ("concurrency", &concurrency)]).await?;
    let measured = measure(&bed, &server, args.imports).await;
    bed.end().await;
    measured
}

async fn measure(bed: &Bed, server: &ImageServer, count: usize) -> anyhow::Result<()> {
    let controller = ControllerProcess::start(&bed.launch)?;
    let images: Api<VMDiskImage> = Api::namespaced(bed.client.clone(), NAMESPACE);
    // The first one finds everything as it is after a start; the others are measured.
    server.add("first", Content::generated(SIZE, 0));
    images.create(&PostParams::default(), &snapshotted("first", &server.url("first"))).await?;
    await_ended(&images, 1).await?;

    let (mark, before) = (bed.mark()?, Cpu::of(bed, &controller)?);
    for number in 0..count {
        let name = format!("image-{number:04}");
        server.add(&name, Content::generated(SIZE, number as u64));
        images.create(&PostParams::default(), &snapshotted(&name, &server.url(&name))).await?;
    }
    await_ended(&images, count + 1).await?;
    let (after, entries) = (Cpu::of(bed, &controller)?, bed.audit(mark)?);
    let peak = Usage::of(controller.id())?.peak;
    controller.stop().await?;

    out::line(&format!("{count} images of {} KiB, {CONCURRENCY} at once.\n", SIZE >> 10));
    out::line(&times_of(&entries));
    out::line(&writes_of(&entries, count));
    out::line(&after.since(&before).told(count, peak));
    Ok(())
}

/// Waits until so many have succeeded; an error when one has failed.
async fn await_ended(images: &Api<VMDiskImage>, count: usize) -> anyhow::Result<()> {
    until("every image is ready", ENDED_WITHIN, async || {
        let all = images.list(&ListParams::default()).await?.items;
        let in_phase = |phase| {
            let status =
                |image: &&VMDiskImage| image.status.as_ref().and_then(|it| it.phase) == Some(phase);
            all.iter().filter(status).count()
        };
        anyhow::ensure!(in_phase(Phase::Failed) == 0, "an image failed");
        Ok((in_phase(Phase::Succeeded) == count).then_some(()))
    })
    .await
}

fn times_of(entries: &[AuditEntry]) -> Table {
    let times = Times::of(entries);
    let mut table = Table::new(["from → to", "images", "p50", "p99", "longest"]);
    let mut row = |name: &str, spread: Spread| {
        let Spread { count, p50, p99, most } = spread;
        table.row([name.to_owned(), count.to_string(), time(p50), time(p99), time(most)]);
    };
    row("created → admitted (it waits its turn)", times.wait());
    row("admitted → first child", times.first_child());
    row("first child → Ready", times.work());
    row("created → Ready", times.life_times());
    row("import pod ended → slot free", times.release());
    row("slot free → next image's first child", times.refill());
    table
}

/// The controller's writes, its lease left out.
fn writes_of(entries: &[AuditEntry], images: usize) -> Table {
    let user = account();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for entry in entries.iter().filter(|it| it.is_write() && it.resource != "leases") {
        if entry.user == user {
            *counts.entry(format!("{} {}", entry.verb, entry.target())).or_default() += 1;
        }
    }
    let mut table = Table::new(["write of the controller", "all", "per image"]);
    let total: usize = counts.values().sum();
    for (name, count) in counts {
        table.row([name, count.to_string(), each(count, images)]);
    }
    table.row(["together".to_owned(), total.to_string(), each(total, images)]);
    table
}

/// CPU of the two that every image costs something.
struct Cpu {
    controller: Duration,
    apiserver: Duration,
}

impl Cpu {
    fn of(bed: &Bed, controller: &ControllerProcess) -> anyhow::Result<Self> {
        let apiserver = bed.apiserver().map(Usage::of).transpose()?.unwrap_or_default();
        Ok(Self { controller: Usage::of(controller.id())?.cpu, apiserver: apiserver.cpu })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            controller: self.controller - before.controller,
            apiserver: self.apiserver - before.apiserver,
        }
    }

    fn told(&self, images: usize, peak: u64) -> String {
        let one = |cpu: Duration| time(cpu / u32::try_from(images.max(1)).unwrap_or(u32::MAX));
        format!(
            "CPU per image: controller {}, API server (for everybody) {}. RSS of the controller at its peak: {}.",
            one(self.controller),
            one(self.apiserver),
            mib(peak)
        )
    }
}
