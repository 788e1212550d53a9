//! A burst: thousands of images in as few seconds as the API server takes, so that many have the same creation time.
//! The controller is killed while it numbers them. The first few hold the slots, since the server does not answer them;
//! then it does, and so many are let through, each of which fails at its first look.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use image_server::{Behaviour, Content, Fault, ImageServer};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use local_cluster::audit::{AuditEntry, Mark};
use otctl::installation::ControllerProcess;
use otctl_types::VMDiskImage;

use crate::bed::{Bed, NAMESPACE, image};
use crate::cli::RunArgs;
use crate::figures::{Spread, mib, ratio, time};
use crate::out;
use crate::table::Table;
use crate::usage::Usage;
use crate::waiting::until;

/// Creates at a time.
const CREATORS: usize = 32;
const CONCURRENCY: usize = 4;
/// How many are let through.
const ADMITTED: usize = 100;
/// What every image asks for.
const PATH: &str = "burst";
/// The controller has written nothing for so long: everybody was told.
const QUIET: Duration = Duration::from_secs(3);
const WITHIN: Duration = Duration::from_secs(900);

/// Tickets by name.
type Tickets = BTreeMap<String, u64>;

pub(crate) async fn run(args: &RunArgs) -> anyhow::Result<()> {
    let server = ImageServer::start().await?;
    // A disk that is larger than every image asks for: the first look ends it for good, once the server lets it look.
    server.add(PATH, Content::generated(2 << 20, 1));
    server.behave(PATH, Behaviour::new().always(Fault::stall(0)))?;
    let (hosts, concurrency) = (format!("http://{}", server.address()), CONCURRENCY.to_string());
    let policy = [
        ("allowedSourceHosts", hosts.as_str()),
        ("concurrency", concurrency.as_str()),
        ("stallTimeout", "2h"),
    ];
    let bed = Bed::whole(&policy).await?;
    let measured = Burst { bed: &bed, server: &server, count: args.most() }.measure().await;
    bed.end().await;
    measured
}

struct Burst<'a> {
    bed: &'a Bed,
    server: &'a ImageServer,
    count: usize,
}

impl Burst<'_> {
    async fn measure(&self) -> anyhow::Result<()> {
        let created = self.create().await?;
        out::line(&created.told());
        let controller = ControllerProcess::start(&self.bed.launch)?;
        let (began, half) = (Instant::now(), self.await_tickets(self.count / 2).await?);
        controller.kill().await?;
        let controller = ControllerProcess::start(&self.bed.launch)?;
        let all = self.await_tickets(self.count).await?;
        let numbered = began.elapsed();
        let changed = half.iter().filter(|(name, ticket)| all.get(*name) != Some(ticket)).count();
        out::line(&order_told(&created, &all, (half.len(), changed), numbered));

        // So that only admissions are measured.
        self.bed.await_quiet(QUIET).await?;
        let (mark, before) = (self.bed.mark()?, Usage::of(controller.id())?);
        self.server.behave(PATH, Behaviour::new())?;
        self.server.release(PATH)?;
        let ledgers = self.await_admitted(mark).await?;
        let after = Usage::of(controller.id())?;
        controller.stop().await?;
        out::line(&admissions_told(&ledgers, &all, after.cpu - before.cpu, after.peak));
        Ok(())
    }

    async fn create(&self) -> anyhow::Result<Created> {
        out::doing(&format!("{} images at once", self.count));
        let (images, began) = (self.images(), Instant::now());
        let create = |number: usize| {
            let (images, image) =
                (images.clone(), image(&format!("image-{number:05}"), &self.server.url(PATH)));
            async move { images.create(&PostParams::default(), &image).await }
        };
        let made = stream::iter(0..self.count).map(create).buffer_unordered(CREATORS);
        let made: Vec<VMDiskImage> = made.try_collect().await?;
        Ok(Created { took: began.elapsed(), order: in_order(&made)? })
    }

    /// Waits until so many have a ticket; all tickets.
    async fn await_tickets(&self, count: usize) -> anyhow::Result<Tickets> {
        let images = self.images();
        until(&format!("{count} tickets"), WITHIN, async || {
            // A list of all costs the API server more than the tickets do.
            tokio::time::sleep(Duration::from_secs(5)).await;
            let tickets = tickets(&images.list(&ListParams::default()).await?.items);
            Ok((tickets.len() >= count).then_some(tickets))
        })
        .await
    }

    /// Waits until so many were admitted; the versions of the ledger since then.
    async fn await_admitted(&self, mark: Mark) -> anyhow::Result<Vec<AuditEntry>> {
        until(&format!("{ADMITTED} admissions"), WITHIN, async || {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut ledgers = self.bed.audit(mark)?;
            ledgers
                .retain(|entry| entry.is_success() && entry.target() == "admissionqueues/status");
            Ok((admissions(&ledgers).len() >= ADMITTED.min(self.count)).then_some(ledgers))
        })
        .await
    }

    fn images(&self) -> Api<VMDiskImage> {
        Api::namespaced(self.bed.client.clone(), NAMESPACE)
    }
}

/// The burst as the API server took it.
struct Created {
    took: Duration,
    /// Creation time, resourceVersion and name, in their order.
    order: Vec<(String, u64, String)>,
}

impl Created {
    fn told(&self) -> String {
        let mut seconds: BTreeMap<&String, usize> = BTreeMap::new();
        for (second, ..) in &self.order {
            *seconds.entry(second).or_default() += 1;
        }
        format!(
            "{} images created in {}; at most {} of them at the same second.",
            self.order.len(),
            time(self.took),
            seconds.values().max().unwrap_or(&0)
        )
    }
}

fn in_order(made: &[VMDiskImage]) -> anyhow::Result<Vec<(String, u64, String)>> {
    let one = |image: &VMDiskImage| {
        let at = image.creation_timestamp().context("a created object has a time")?;
        let version = image.resource_version().context("a created object has a version")?;
        anyhow::Ok((at.0.to_string(), version.parse()?, image.name_any()))
    };
    let mut order = made.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?;
    order.sort_unstable();
    Ok(order)
}

fn tickets(images: &[VMDiskImage]) -> Tickets {
    let one = |image: &VMDiskImage| {
        let ticket = image.status.as_ref()?.ticket.as_deref()?;
        Some((image.name_any(), number(ticket)?))
    };
    images.iter().filter_map(one).collect()
}

fn number(ticket: &str) -> Option<u64> {
    ticket.parse().ok()
}

/// How the tickets compare with the order of creation.
fn order_told(
    created: &Created,
    tickets: &Tickets,
    (half, changed): (usize, usize),
    took: Duration,
) -> Table {
    let given: Vec<u64> =
        created.order.iter().filter_map(|(.., name)| tickets.get(name).copied()).collect();
    let mut distinct = given.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let out_of_order = given.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let rate = ratio(given.len() as f64, took.as_secs_f64()).replace(" ×", " a second");
    let mut table = Table::new(["tickets", ""]);
    for (what, figure) in [
        ("given", given.len().to_string()),
        ("different ones", distinct.len().to_string()),
        (
            "first and last",
            format!("{:?}", distinct.first().zip(distinct.last()).unwrap_or((&0, &0))),
        ),
        ("out of the order of creation", out_of_order.to_string()),
        ("there when the controller was killed", half.to_string()),
        ("of these, changed afterwards", changed.to_string()),
        ("time for all, the restart included", time(took)),
        ("rate", rate),
    ] {
        table.row([what.to_owned(), figure]);
    }
    table
}

/// How those who were admitted since the start were.
fn admissions_told(ledgers: &[AuditEntry], tickets: &Tickets, cpu: Duration, peak: u64) -> String {
    let admitted = admissions(ledgers);
    let numbers: Vec<u64> =
        admitted.iter().filter_map(|(name, _)| tickets.get(name).copied()).collect();
    let out_of_order = numbers.windows(2).filter(|pair| pair[0] >= pair[1]).count();
    let gaps =
        Spread::of(admitted.windows(2).map(|pair| {
            Duration::try_from(pair[1].1.duration_since(pair[0].1)).unwrap_or_default()
        }));
    let each = cpu / u32::try_from(admitted.len().max(1)).unwrap_or(u32::MAX);
    format!(
        "{} admitted, {CONCURRENCY} at once, while the others wait: {out_of_order} out of the order of tickets; \
         tickets {}–{}. Between two admissions p50 {}, p99 {}. CPU of the controller for each: {}; RSS at its peak {}.",
        admitted.len(),
        numbers.iter().min().unwrap_or(&0),
        numbers.iter().max().unwrap_or(&0),
        time(gaps.p50),
        time(gaps.p99),
        time(each),
        mib(peak),
    )
}

/// Names and times of admission, in their order.
fn admissions(ledgers: &[AuditEntry]) -> Vec<(String, jiff::Timestamp)> {
    let mut admitted: Vec<(String, jiff::Timestamp)> = Vec::new();
    for ledger in ledgers {
        let active =
            ledger.response_object.as_ref().and_then(|it| it["status"]["active"].as_array());
        for entry in active.into_iter().flatten() {
            let name = entry["name"].as_str().unwrap_or_default();
            if !admitted.iter().any(|(known, _)| known == name) {
                admitted.push((name.to_owned(), ledger.answered_at));
            }
        }
    }
    admitted
}
