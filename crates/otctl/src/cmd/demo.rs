//! `otctl demo`: the main job from nothing to a checked result, in order.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::future::try_join_all;
use image_server::ImageServer;
use kube::api::PostParams;
use kube::{Api, Client};
use local_cluster::LocalCluster;
use local_cluster::kubevirt::KubeVirt;
use local_cluster::node::ProcessNode;
use otctl_types::condition::{READY, find};
use otctl_types::{VMDiskImage, Workspace};
use tracing_subscriber::EnvFilter;

use crate::cli::{LocalArgs, QueueName};
use crate::demo::chronicle::Chronicle;
use crate::demo::lab;
use crate::demo::peak::{History, Peak};
use crate::demo::report::workspace::Lab;
use crate::demo::report::{Report, Seen};
use crate::demo::scenario::{
    CONCURRENCY, Expected, Hashes, NAMESPACE, Scene, expected_hashes, scenes,
};
use crate::demo::verify::{Disk, restored_disk};
use crate::demo::view::show_until_ended;
use crate::installation::{Controller, ControllerProcess, Launch, Policy, own_program};
use crate::live::Live;
use crate::local;
use crate::out;
use crate::signals::Interruption;

/// A run that is not over by then has failed.
const OVER_WITHIN: Duration = Duration::from_secs(5 * 60);

/// What to do when it went wrong: logs go with everything else.
const LOOK_CLOSER: &str =
    "To look closer: otctl demo --state-dir DIRECTORY keeps every log and volume there.";

/// Plays the demo to its end, or to Ctrl-C. Either way nothing of it is left running.
pub(crate) async fn run(args: LocalArgs) -> anyhow::Result<ExitCode> {
    logs();
    let mut interruption = Interruption::listen()?;
    let is_right = tokio::select! {
        played = play(args) => played.inspect_err(|_| out::line(LOOK_CLOSER))?,
        code = interruption.arrives() => {
            out::line("stopped; everything it started has ended");
            return Ok(code);
        }
    };
    if is_right {
        return Ok(ExitCode::SUCCESS);
    }
    out::line(LOOK_CLOSER);
    Ok(ExitCode::FAILURE)
}

/// Only what goes wrong, and only to standard error: the view is the log. The client's failures are told by whoever
/// asked, and a cluster that starts refuses for a while.
pub(super) fn logs() {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("error,kube_client=off"));
    let stderr = std::io::stderr;
    tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_env_filter(filter)
        .init();
}

/// Whether all is right. What it starts ends with it, the last first.
async fn play(args: LocalArgs) -> anyhow::Result<bool> {
    let started = Instant::now();
    let cluster = local::start(args, &[]).await?;
    let stage = Stage::set(&cluster).await?;
    let history = History::open(&stage.client).await?;
    let chronicle = Chronicle::open(&stage.client).await?;
    let mut images = start_controller(Controller::Diskimage, &cluster).await?;
    let mut workspaces = start_controller(Controller::Workspace, &cluster).await?;
    let report = tokio::select! {
        report = stage.play(cluster.nodes(), history, chronicle) => report?,
        ended = images.ends() => return Err(ended),
        ended = workspaces.ends() => return Err(ended),
    };
    out::line(&report.text());
    workspaces.stop().await?;
    images.stop().await?;
    stage.end().await;
    cluster.shutdown().await;
    out::line(&format!("The run took {:.0} s.", started.elapsed().as_secs_f32()));
    Ok(report.problems().is_empty())
}

async fn start_controller(
    controller: Controller,
    cluster: &LocalCluster,
) -> anyhow::Result<ControllerProcess> {
    ControllerProcess::start(&Launch::of(controller, cluster, own_program()?).await?)
}

/// What images are synced from and into, and what machines run on.
struct Stage {
    client: Client,
    server: ImageServer,
    scenes: Vec<Scene>,
    kubevirt: KubeVirt,
}

impl Stage {
    /// Everything but the controllers, the workspace and the images.
    async fn set(cluster: &LocalCluster) -> anyhow::Result<Self> {
        let server = ImageServer::start().await?;
        let scenes = scenes();
        scenes.iter().try_for_each(|scene| scene.serve(&server))?;
        out::line(
            "installing the kinds, the policy, the controllers' accounts and a stand-in for KubeVirt",
        );
        let kubevirt = local::install(cluster, policy(&server)).await?;
        Ok(Self { client: cluster.admin(), server, scenes, kubevirt })
    }

    async fn end(self) {
        drop(self.kubevirt);
        self.server.shutdown().await;
    }

    /// Asks for the workspace, syncs the images, reads every disk back, and tells what was seen.
    async fn play(
        &self,
        nodes: &[ProcessNode],
        history: History,
        mut chronicle: Chronicle,
    ) -> anyhow::Result<Report> {
        // Begun long before they are needed, since hashing takes a while.
        let hashes = tokio::task::spawn_blocking(expected_hashes);
        self.ask_for_workspace(&mut chronicle).await?;
        let own = self.scenes.iter().filter(|scene| !scene.is_of_workspace).count();
        out::line(&format!("syncing {own} images and what it makes, {CONCURRENCY} at a time"));
        let images = self.sync(&mut chronicle).await?;
        out::line("restoring every snapshot into a new claim and hashing the disks");
        let expected = hashes.await??;
        let images = self.read_back(&images, &expected).await?;
        let disks = lab::disks(&self.client, nodes).await?;
        let (entries, pods) = history.close().await?;
        let transfers = self.server.totals().most_open_data;
        let peak = Peak { entries, pods, transfers };
        let lab = Lab { story: chronicle.close().await?, disks, expected };
        Ok(Report { images, peak, lab })
    }

    /// Creates the workspace, and waits until it says that an image is missing.
    async fn ask_for_workspace(&self, chronicle: &mut Chronicle) -> anyhow::Result<()> {
        out::line(&format!("creating the workspace '{}', before any of its images", lab::NAME));
        let workspaces: Api<Workspace> = Api::all(self.client.clone());
        let workspace = lab::workspace(&self.server, &self.scenes)?;
        let created = workspaces.create(&PostParams::default(), &workspace).await;
        created.context("the workspace cannot be created")?;
        let told = chronicle.until(|story| !story.reasons.is_empty());
        let told = tokio::time::timeout(OVER_WITHIN, told).await;
        told.context("nothing was said of the workspace in 5 minutes")??;
        chronicle.story().message().iter().for_each(|message| out::line(&format!("  {message}")));
        Ok(())
    }

    /// Creates the images and shows what becomes of them and of the workspace; the images when all have ended.
    async fn sync(&self, chronicle: &mut Chronicle) -> anyhow::Result<Vec<Arc<VMDiskImage>>> {
        let images: Api<VMDiskImage> = Api::namespaced(self.client.clone(), NAMESPACE);
        for scene in self.scenes.iter().filter(|scene| !scene.is_of_workspace) {
            let created = images.create(&PostParams::default(), &scene.image(&self.server)).await;
            created.with_context(|| format!("image '{}' cannot be created", scene.name))?;
        }
        let mut live = Live::open(&self.client, Some(QueueName::Images)).await?;
        let ended = show_until_ended(&mut live, chronicle, &self.server, &self.scenes);
        tokio::time::timeout(OVER_WITHIN, ended)
            .await
            .context("the images and the workspace did not come to an end in 5 minutes")??;
        Ok(live.images())
    }

    /// What was seen of every image.
    async fn read_back(
        &self,
        images: &[Arc<VMDiskImage>],
        hashes: &Hashes,
    ) -> anyhow::Result<Vec<Seen>> {
        let seen = self.scenes.iter().map(|scene| async {
            let image =
                images.iter().find(|image| image.metadata.name.as_deref() == Some(scene.name));
            let image = image.with_context(|| format!("image '{}' is gone", scene.name))?;
            let expected_sha256 = hashes.get(scene.name).cloned();
            anyhow::Ok(Seen {
                expected_sha256,
                disk: self.disk(scene, image).await,
                ..self.seen(scene, image)
            })
        });
        try_join_all(seen).await
    }

    async fn disk(&self, scene: &Scene, image: &VMDiskImage) -> Option<Result<Disk, String>> {
        match scene.expected {
            Expected::Disk { .. } => {
                Some(restored_disk(&self.client, image).await.map_err(|error| out::causes(&error)))
            }
            Expected::Refusal { .. } => None,
        }
    }

    /// Everything but the disk.
    fn seen(&self, scene: &Scene, image: &VMDiskImage) -> Seen {
        let status = image.status.clone().unwrap_or_default();
        Seen {
            name: scene.name,
            expected: scene.expected,
            phase: status.phase,
            reason: find(&status.conditions, READY)
                .map(|ready| ready.reason.clone())
                .unwrap_or_default(),
            attempts: status.attempts.len(),
            counts: self.server.counts(&scene.path()),
            size: scene.size(),
            expected_sha256: None,
            disk: None,
        }
    }
}

/// The server is on loopback, so it must be listed by name.
fn policy(server: &ImageServer) -> Policy {
    let entries = [
        ("concurrency", CONCURRENCY.to_string()),
        ("workspaceConcurrency", lab::CONCURRENCY.to_string()),
        ("retryLimit", "2".to_owned()),
        ("retryBackoffDuration", "3s".to_owned()),
        ("allowedSourceHosts", format!("http://{}", server.address())),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
