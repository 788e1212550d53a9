//! One image on one server, and a volume's worth of directories: what every test here needs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use disk_importer::bandwidth::Bandwidth;
use disk_importer::connection::Resolver;
use disk_importer::credentials::Credentials;
use disk_importer::import::import;
use disk_importer::probe::probe;
use disk_importer::progress::Tally;
use disk_importer::report;
use disk_importer::settings::{
    Access, Expected, Limits, Source, SourceType, Target, Timing, VolumeMode,
};
use image_server::{Behaviour, Content, Counts, ImageServer};
use otctl_types::import::{ImportOutcome, ImportReason, ImportReport};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const MIB: u64 = 1024 * 1024;
pub(crate) const PATH: &str = "/image";

/// Waits short enough for tests and long enough for a busy machine.
pub(crate) fn quick() -> Timing {
    Timing {
        connect: Duration::from_secs(30),
        look: Duration::from_secs(30),
        stall: Duration::from_secs(30),
        reconnect_first: Duration::from_millis(1),
        reconnect_max: Duration::from_millis(5),
        reconnects: 20,
    }
}

pub(crate) struct Lab {
    pub(crate) server: ImageServer,
    pub(crate) directory: TempDir,
}

impl Lab {
    pub(crate) async fn serving(content: Content) -> Self {
        let server = ImageServer::start().await.unwrap();
        server.add(PATH, content);
        let directory = tempfile::tempdir().unwrap();
        for volume in ["disk", "scratch"] {
            fs::create_dir(directory.path().join(volume)).unwrap();
        }
        Self { server, directory }
    }

    pub(crate) async fn misbehaving(content: Content, behaviour: Behaviour) -> Self {
        let lab = Self::serving(content).await;
        lab.server.behave(PATH, behaviour).unwrap();
        lab
    }

    /// The rule that lists this lab's server by name.
    pub(crate) fn hosts(&self) -> String {
        format!("http://{}", self.server.address())
    }

    pub(crate) fn source(&self) -> Source {
        Source {
            url: self.server.url(PATH).parse().unwrap(),
            source_type: SourceType::Http,
            credentials: Credentials::default(),
            access: Access {
                hosts: self.hosts().parse().unwrap(),
                api_addresses: Vec::new(),
                resolver: Resolver::default(),
            },
            limits: Limits::default(),
            timing: quick(),
            bandwidth: Bandwidth::default(),
        }
    }

    pub(crate) fn target(&self, disk_size: u64) -> Target {
        Target {
            output: self.disk(),
            volume_mode: VolumeMode::Filesystem,
            disk_size,
            scratch: self.scratch(),
            pod_uid: "pod-1".to_owned(),
            checksum: None,
            expected: Expected::default(),
        }
    }

    pub(crate) fn disk(&self) -> PathBuf {
        self.directory.path().join("disk/disk.img")
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.directory.path().join("scratch")
    }

    pub(crate) fn counts(&self) -> Counts {
        self.server.counts(PATH)
    }

    pub(crate) async fn import(&self, disk_size: u64) -> ImportReport {
        run_import(&self.source(), self.target(disk_size)).await
    }

    /// Bytes the disk takes on the file system, holes left out.
    pub(crate) fn allocated(&self) -> u64 {
        fs::metadata(self.disk()).unwrap().blocks() * 512
    }

    /// Bytes of the source that the record or the note vouches for.
    pub(crate) fn kept(&self) -> u64 {
        let texts =
            ["checkpoint.json", "progress.json"].map(|name| fs::read(self.scratch().join(name)));
        let texts = texts.iter().flatten();
        let told = texts.map(|text| serde_json::from_slice::<serde_json::Value>(text).unwrap());
        told.map(|told| told["offset"].as_u64().unwrap()).max().unwrap_or(0)
    }
}

pub(crate) async fn run_probe(source: &Source) -> ImportReport {
    let tally = Arc::new(Tally::default());
    match probe(source, Arc::clone(&tally)).await {
        Ok(()) => report::complete(&tally, None),
        Err(failure) => report::failed(&tally, &failure),
    }
}

pub(crate) async fn run_import(source: &Source, target: Target) -> ImportReport {
    run_until(source, target, &CancellationToken::new()).await
}

pub(crate) async fn run_until(
    source: &Source,
    target: Target,
    cancel: &CancellationToken,
) -> ImportReport {
    let tally = Arc::new(Tally::default());
    let mut source = source.clone();
    source.limits.disk_size = Some(target.disk_size);
    match import(&source, Arc::new(target), &tally, cancel).await {
        Ok(imported) => report::complete(&tally, Some(imported)),
        Err(failure) => report::failed(&tally, &failure),
    }
}

#[track_caller]
pub(crate) fn assert_failed(report: &ImportReport, reason: ImportReason) {
    assert_eq!(report.outcome, ImportOutcome::Failed, "{report:?}");
    assert_eq!(report.reason, Some(reason), "{report:?}");
    assert!(!report.message.is_empty());
    assert_eq!(report.disk_checksum, None);
}

#[track_caller]
pub(crate) fn assert_complete(report: &ImportReport, disk_sha256: &str) {
    assert_eq!(report.outcome, ImportOutcome::Complete, "{report:?}");
    assert_eq!(report.reason, None);
    assert_eq!(report.disk_checksum.as_deref(), Some(format!("sha256:{disk_sha256}").as_str()));
}

/// The disk's hash by reading it, so that nothing is believed.
pub(crate) fn sha256_of(path: &std::path::Path) -> String {
    let sum = disk_importer::sha256::Sum::of(&fs::read(path).unwrap());
    sum.to_string().trim_start_matches("sha256:").to_owned()
}
