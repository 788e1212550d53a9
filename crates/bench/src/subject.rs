//! A process under measurement: started, ready, at rest.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use local_cluster::audit::{AuditEntry, Mark};
use local_cluster::guard::{Guard, GuardedProcess};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, account};
use crate::usage::Usage;
use crate::waiting::until;
use crate::{out, plain, programs};

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
const READY_WITHIN: Duration = Duration::from_secs(300);
const SETTLED_WITHIN: Duration = Duration::from_secs(600);
/// A process that uses less than this in so long, twice in a row, is at rest.
const LOOK: Duration = Duration::from_secs(2);
const REST: Duration = Duration::from_millis(50);

/// What keeps the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The controller, whole: it also looks at every object once.
    Kit,
    /// Reflectors of kube-rs and nothing else.
    Plain,
}

/// What memory is had from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocator {
    /// The system's: glibc.
    System,
    /// The system's with so many arenas instead of eight for each core.
    Arenas(&'static str),
    /// This library in its place; and the package that has it.
    Library(&'static str, &'static str),
}

impl Allocator {
    fn environment(self) -> anyhow::Result<Option<(&'static str, OsString)>> {
        Ok(match self {
            Self::System => None,
            Self::Arenas(count) => Some(("MALLOC_ARENA_MAX", count.into())),
            Self::Library(file, package) => {
                Some(("LD_PRELOAD", programs::library(file, package)?.into_os_string()))
            }
        })
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// Another allocator, or a setting of the system's.
    pub(crate) allocator: Allocator,
}

/// What one run of it came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// From its start to all that is there being known to it.
    pub(crate) ready: Duration,
    /// Used until it came to rest.
    pub(crate) start_cpu: Duration,
    pub(crate) peak: u64,
    pub(crate) resident: u64,
    /// Used in a minute of rest.
    pub(crate) minute_cpu: Duration,
    /// Requests until it came to rest, those of the lease left out.
    pub(crate) start: Requests,
    /// The same, while it was watched at rest.
    pub(crate) rest: Requests,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub(crate) reads: usize,
    pub(crate) writes: usize,
}

impl Requests {
    fn of(entries: &[AuditEntry]) -> Self {
        let user = account();
        let ours = entries.iter().filter(|it| it.user == user && it.resource != "leases");
        let (writes, reads): (Vec<_>, Vec<_>) = ours.partition(|entry| entry.is_write());
        Self { reads: reads.len(), writes: writes.len() }
    }
}

struct Running {
    process: GuardedProcess,
    began: Instant,
    listens: SocketAddr,
    log: PathBuf,
    kind: Kind,
}

impl Subject {
    /// Runs it once beside `bed`, watches it for `rest` when it has come to rest, and ends it.
    pub(crate) async fn measure(&self, bed: &Bed, rest: Duration) -> anyhow::Result<Figures> {
        out::doing(self.name);
        let mark = bed.mark()?;
        let mut running = self.start(bed).await?;
        let figures = running.measure(bed, mark, rest).await;
        running.process.end(GRACE).await.context("it did not end")?;
        figures
            .with_context(|| format!("{}; its log ends with:\n{}", self.name, end_of(&running.log)))
    }

    /// Why it cannot be measured on this machine.
    pub(crate) fn missing(&self) -> Option<anyhow::Error> {
        self.allocator.environment().err()
    }

    async fn start(&self, bed: &Bed) -> anyhow::Result<Running> {
        let listens = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
        let guard = Arc::new(Guard::start(GRACE, None)?);
        let kubeconfig = format!("--kubeconfig={}", bed.launch.kubeconfig.display());
        let arguments = match self.kind {
            Kind::Plain => vec!["plain-cache".to_owned(), kubeconfig],
            Kind::Kit => {
                let own = ["run-controller", "diskimage", "--identity=bench", "--log-format=json"];
                let mut arguments: Vec<_> = own.map(str::to_owned).to_vec();
                arguments.extend([kubeconfig, format!("--listen={listens}")]);
                arguments
            }
        };
        let program = match self.kind {
            Kind::Kit => "otctl",
            Kind::Plain => "bench",
        };
        let mut command = Guard::command(programs::ours(program)?, arguments);
        command.envs(self.allocator.environment()?);
        let log = bed.log("subject");
        let output = File::create(&log)?;
        command.stdout(output.try_clone()?).stderr(output);
        let began = Instant::now();
        let process = guard.spawn(command)?;
        Ok(Running { process, began, listens, log, kind: self.kind })
    }
}

impl Running {
    async fn measure(&mut self, bed: &Bed, mark: Mark, rest: Duration) -> anyhow::Result<Figures> {
        until("it is ready", READY_WITHIN, async || self.look().await).await?;
        let ready = self.began.elapsed();
        let settled = self.settle().await?;
        let (from, started) = (bed.mark()?, bed.audit(mark)?);
        tokio::time::sleep(rest).await;
        let after = self.usage()?;
        Ok(Figures {
            ready,
            start_cpu: settled.cpu,
            peak: after.peak,
            resident: after.resident,
            minute_cpu: (after.cpu - settled.cpu).mul_f64(60.0 / rest.as_secs_f64().max(1.0)),
            start: Requests::of(&started),
            rest: Requests::of(&bed.audit(from)?),
        })
    }

    /// Whether it is ready; an error when it has ended.
    async fn look(&mut self) -> anyhow::Result<Option<()>> {
        if let Some(status) = self.process.try_wait()? {
            anyhow::bail!("it ended with {status}");
        }
        let is_ready = match self.kind {
            Kind::Kit => is_ready(self.listens).await,
            Kind::Plain => fs::read_to_string(&self.log)?.contains(plain::READY),
        };
        Ok(is_ready.then_some(()))
    }

    /// Waits until it uses next to nothing.
    async fn settle(&self) -> anyhow::Result<Usage> {
        let (deadline, mut last, mut quiet) = (Instant::now() + SETTLED_WITHIN, self.usage()?, 0);
        while quiet < 2 {
            anyhow::ensure!(Instant::now() < deadline, "it did not come to rest");
            tokio::time::sleep(LOOK).await;
            let now = self.usage()?;
            quiet = if now.cpu - last.cpu < REST { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(last)
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.process.id().as_raw())
    }
}

/// Whether `/readyz` says so.
async fn is_ready(address: SocketAddr) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    asked.await.unwrap_or(false)
}

fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
