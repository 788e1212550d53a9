//! Arguments, environment, signals and exit codes: what a run is started with and how it ends.
//!
//! Exit code 0: complete. 1: failed, with a report. 2: arguments that cannot be read; no report.

use std::convert::Infallible;
use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand};
use otctl_types::import::{
    ImportOutcome, ImportReason, ImportReport, POD_UID_VARIABLE, PROGRESS_KEY_VARIABLE,
};
use policy::SourceHosts;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::bandwidth::Bandwidth;
use crate::client::is_fetchable;
use crate::connection::Resolver;
use crate::credentials::Credentials;
use crate::failure::Failure;
use crate::import::{Imported, import};
use crate::probe::probe;
use crate::progress::{Tally, serve};
use crate::report;
use crate::settings::{
    Access, Expected, Limits, ProgressEndpoint, Source, SourceType, Target, Timing, VolumeMode,
};
use crate::sha256::Sum;

/// Fetches a disk image, verifies it and writes it as a raw disk.
#[derive(Debug, Parser)]
#[command(name = "disk-importer", version)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Look at the first bytes of the source.
    Probe(SourceArgs),
    /// Fetch the source and write the disk.
    Import(Box<ImportArgs>),
}

/// Where the image is and what it must fit into.
#[derive(Debug, clap::Args)]
pub struct SourceArgs {
    /// Address of the image. Taken as any text, so that no error about it is printed: it may
    /// carry a signature.
    #[arg(long, value_parser = secret)]
    pub url: SecretString,
    /// How to speak to it.
    #[arg(long, value_enum, default_value = "http")]
    pub source_type: SourceType,
    /// The policy's rule for source hosts.
    #[arg(long, default_value = "*")]
    pub allowed_source_hosts: SourceHosts,
    /// Addresses of the API server, which only a host listed by name may lead to.
    #[arg(long, default_value = "")]
    pub refused_addresses: Addresses,
    /// Largest source the policy accepts, in bytes.
    #[arg(long)]
    pub max_image_size: Option<u64>,
    /// Size of the disk, in bytes.
    #[arg(long)]
    pub disk_size: Option<u64>,
    /// Directory in which the source's Secret is mounted.
    #[arg(long)]
    pub secret_dir: Option<PathBuf>,
    /// Where the report goes.
    #[arg(long, default_value = "/dev/termination-log")]
    pub termination_log: PathBuf,
    /// Longest without a byte, in seconds.
    #[arg(long, default_value_t = 600)]
    pub stall_timeout: u64,
}

/// Everything an import needs.
#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// The source.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The file to make, or the block device to fill.
    #[arg(long, default_value = "/disk/disk.img")]
    pub output: PathBuf,
    /// Which of the two it is.
    #[arg(long, value_enum, default_value = "Filesystem")]
    pub volume_mode: VolumeMode,
    /// Directory of the scratch volume.
    #[arg(long, default_value = "/scratch")]
    pub scratch: PathBuf,
    /// What the source's bytes must hash to: sha256: and 64 hexadecimal digits.
    #[arg(long)]
    pub checksum: Option<Sum>,
    /// The entity tag that the probe saw.
    #[arg(long)]
    pub expected_etag: Option<String>,
    /// The length that the probe saw, in bytes.
    #[arg(long)]
    pub expected_size: Option<u64>,
    /// Where to serve progress.
    #[arg(long)]
    pub progress_address: Option<SocketAddr>,
    /// The key that requests for progress must carry.
    #[arg(long, env = PROGRESS_KEY_VARIABLE, hide_env_values = true, default_value = "", value_parser = secret)]
    pub progress_key: SecretString,
    /// Bytes per second that may be received until the controller grants another share, and when
    /// it was not heard of for a while; absent: no limit.
    #[arg(long)]
    pub bandwidth_share: Option<u64>,
    /// UID of this pod.
    #[arg(long, env = POD_UID_VARIABLE, default_value = "")]
    pub pod_uid: String,
}

/// Comma-separated addresses; empty text is none of them.
#[derive(Clone, Debug, Default)]
pub struct Addresses(pub Vec<IpAddr>);

impl FromStr for Addresses {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, AddrParseError> {
        let texts = text.split(',').map(str::trim).filter(|text| !text.is_empty());
        texts.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

/// Any text, which is not shown again.
#[expect(clippy::unnecessary_wraps, reason = "the form that clap calls")]
fn secret(text: &str) -> Result<SecretString, Infallible> {
    Ok(text.into())
}

/// Runs what the arguments say and leaves the report.
pub async fn run(args: Args) -> ExitCode {
    let tally = Arc::new(Tally::default());
    let (log, result) = match args.command {
        Command::Probe(args) => {
            (args.termination_log.clone(), run_probe(args, Arc::clone(&tally)).await)
        }
        Command::Import(args) => {
            (args.source.termination_log.clone(), run_import(*args, &tally).await.map(Some))
        }
    };
    let report = match result {
        Ok(imported) => report::complete(&tally, imported),
        Err(failure) => report::failed(&tally, &failure),
    };
    leave(&report, &log)
}

async fn run_probe(args: SourceArgs, tally: Arc<Tally>) -> Result<Option<Imported>, Failure> {
    let cancel = cancelled_by_signals();
    let source = args.into_source()?;
    let probed = cancel.run_until_cancelled(probe(&source, tally)).await;
    probed.unwrap_or_else(|| Err(Failure::interrupted())).map(|()| None)
}

async fn run_import(args: ImportArgs, tally: &Arc<Tally>) -> Result<Imported, Failure> {
    let cancel = cancelled_by_signals();
    let bandwidth = Bandwidth::new(args.bandwidth_share);
    let _server = serve_progress(&args, tally, &bandwidth).await;
    let (source, target) = args.into_settings()?;
    let source = Source { bandwidth, ..source };
    import(&source, Arc::new(target), tally, &cancel).await
}

/// Without progress an import is as good as with it: a failure here is only logged.
async fn serve_progress(
    args: &ImportArgs,
    tally: &Arc<Tally>,
    bandwidth: &Bandwidth,
) -> Option<AbortOnDropHandle<()>> {
    let endpoint =
        ProgressEndpoint { address: args.progress_address?, key: args.progress_key.clone() };
    match serve(&endpoint, Arc::clone(tally), bandwidth.clone()).await {
        Ok((_, server)) => Some(server),
        Err(error) => {
            tracing::warn!(%error, address = %endpoint.address, "cannot serve progress");
            None
        }
    }
}

fn cancelled_by_signals() -> CancellationToken {
    let cancel = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let cancel = cancel.clone();
        match signal(kind) {
            Ok(mut signals) => {
                tokio::spawn(async move {
                    signals.recv().await;
                    cancel.cancel();
                });
            }
            Err(error) => tracing::warn!(%error, "cannot listen for a signal"),
        }
    }
    cancel
}

fn leave(report: &ImportReport, log: &std::path::Path) -> ExitCode {
    let reason = report.reason.map(ImportReason::as_str);
    tracing::info!(outcome = ?report.outcome, reason, bytes = report.bytes, "ended");
    if let Err(error) = report::write(report, log) {
        tracing::error!(%error, path = %log.display(), "cannot write the report");
        return ExitCode::from(1);
    }
    match report.outcome {
        ImportOutcome::Complete => ExitCode::SUCCESS,
        ImportOutcome::Failed => ExitCode::from(1),
    }
}

impl SourceArgs {
    /// The source as it is used.
    ///
    /// # Errors
    /// What a person must change: the url, the Secret, the kind of source.
    pub fn into_source(self) -> Result<Source, Failure> {
        let url = Url::parse(self.url.expose_secret()).ok().filter(is_fetchable);
        let url = url.ok_or_else(|| unfetchable(self.source_type))?;
        let credentials = match &self.secret_dir {
            Some(directory) => Credentials::read(directory)?,
            None => Credentials::default(),
        };
        let stall = Duration::from_secs(self.stall_timeout.max(1));
        Ok(Source {
            url,
            source_type: self.source_type,
            credentials,
            access: Access {
                hosts: self.allowed_source_hosts,
                api_addresses: self.refused_addresses.0,
                resolver: Resolver::default(),
            },
            limits: Limits { image_size: self.max_image_size, disk_size: self.disk_size },
            timing: Timing { stall, ..Timing::default() },
            bandwidth: Bandwidth::default(),
        })
    }
}

/// The message does not repeat the url: it may carry a signature.
fn unfetchable(source_type: SourceType) -> Failure {
    let message = match source_type {
        SourceType::Http => {
            "the url is no http or https url without user-info; \
             a user and password go into the Secret of secretRef"
        }
        SourceType::S3 => {
            "the url is no http or https url without user-info; an object in S3 is written as \
             https://HOST/BUCKET/KEY or https://BUCKET.HOST/KEY, its keys go into the Secret of secretRef"
        }
    };
    Failure::new(ImportReason::AddressRefused, message)
}

impl ImportArgs {
    /// The source and the target as they are used.
    ///
    /// # Errors
    /// As [`SourceArgs::into_source`]; `Internal` without a size for the disk.
    pub fn into_settings(self) -> Result<(Source, Target), Failure> {
        let disk_size = self.source.disk_size.filter(|size| *size > 0).ok_or_else(|| {
            Failure::new(ImportReason::Internal, "an import needs --disk-size, in bytes")
        })?;
        let target = Target {
            output: self.output,
            volume_mode: self.volume_mode,
            disk_size,
            scratch: self.scratch,
            pod_uid: self.pod_uid,
            checksum: self.checksum,
            expected: Expected { etag: self.expected_etag, size: self.expected_size },
        };
        Ok((self.source.into_source()?, target))
    }
}
