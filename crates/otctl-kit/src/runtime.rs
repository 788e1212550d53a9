//! Runs the loops of one controller until told to stop. [`run`] is what a `main` calls; [`Runtime`] is the same inside a
//! process that has other things to do: tests, the demo. [`once`] is for programs that do one thing and end.
//!
//! ```text
//! watches  ══════════════════════════════════════════════════════▶ always: a standby's caches are warm
//! server   ══════════════════════════════════════════════════════▶ always: a standby is ready
//! elector  ── standby ──┬── leading ──┬── standby ──┬── leading ──▶ vacated after the loops have ended
//! loops                 └─────────────┘             └──── drain ┘   only while leading, on complete caches
//! ```

mod assembly;
mod context;
mod duty;
mod lasting;
mod telling;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use prometheus::PullingGauge;
use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

pub use assembly::Controllers;
pub use context::{Context, Settings};
pub use duty::Signs;

use self::assembly::Parts;
use self::lasting::Lasting;
use self::telling::telling;
use crate::args::{Args, Build};
use crate::leader::{Candidate, Elector, Role, TimingError};
use crate::metrics::{Family, LOG_LINES_DROPPED};
use crate::server::Server;
use crate::shutdown::Shutdown;
use crate::telemetry::{self, InstallError, LogLevel, Telemetry};

/// Passes at work when told to stop have this long; the kubelet kills after 30 s, and the lease must be given back.
const DRAIN_DEADLINE: Duration = Duration::from_secs(15);
/// The exit code after a second signal.
const ABORTED: i32 = 130;

/// Why a controller did not start, or did not end as it should.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The flags about leader election do not fit together.
    #[error("the times of leader election do not fit together")]
    FitTimes(#[from] TimingError),
    /// Logs were not installed.
    #[error("logs were not installed")]
    InstallLogs(#[from] InstallError),
    /// The signals cannot be listened to.
    #[error("the signals cannot be listened to")]
    ListenSignals(#[source] io::Error),
    /// No usable kubeconfig.
    #[error("the kubeconfig cannot be used")]
    ReadKubeconfig(#[from] kube::config::KubeconfigError),
    /// No kubeconfig and no account of a pod.
    #[error("there is neither a usable kubeconfig nor the account of a pod")]
    InferConfig(#[from] kube::config::InferConfigError),
    /// The client was not built.
    #[error("the client was not built")]
    BuildClient(#[from] kube::Error),
    /// The address is not to be had.
    #[error("did not listen at {address}")]
    Bind {
        /// Which address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A task that should last ended.
    #[error("the {what} ended by itself")]
    EndEarly {
        /// Which one.
        what: &'static str,
        /// Its panic, if it panicked.
        source: Option<JoinError>,
    },
}

/// Runs the controller `name` as the process: logs, signals, client, server, lease, loops. `assemble` says what to watch
/// and what to reconcile. Returns when a signal has ended it; a second signal ends the process.
///
/// # Errors
/// When it cannot start, or a part of it dies.
pub async fn run(
    args: &Args,
    name: &'static str,
    assemble: impl FnOnce(&Context) -> Controllers,
) -> Result<ExitCode, RunError> {
    // Fails only where the process chose one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = Settings::from_args(args, Build::of(name))?;
    let telemetry = Telemetry::install(&telemetry::Settings {
        filter: &args.log_level,
        format: args.log_format,
        build: settings.build,
        instance: &settings.identity,
    })?;
    let shutdown = Shutdown::new();
    shutdown.listen().map_err(RunError::ListenSignals)?;
    let context = Context::connect(settings, args).await?;
    context.metrics.register(dropped_lines(&telemetry));
    let controllers = assemble(&context);
    let runtime = Runtime::bind(context, controllers, Some(telemetry.level())).await?;
    tokio::select! {
        ended = runtime.run(shutdown.clone()) => {
            let ended = ended.inspect_err(|error| tracing::error!(error = error as &dyn Error, "a part died"));
            ended.map(|()| ExitCode::SUCCESS)
        }
        () = shutdown.aborted() => std::process::exit(ABORTED),
    }
}

/// Does one thing as the process `name`, without a lease, a server and loops: logs, client, and then `work`.
///
/// # Errors
/// When it cannot start.
pub async fn once<T>(
    args: &Args,
    name: &'static str,
    work: impl AsyncFnOnce(Context) -> T,
) -> Result<T, RunError> {
    // Fails only where the process chose one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let settings = Settings { election: None, ..Settings::from_args(args, Build::of(name))? };
    let _telemetry = Telemetry::install(&telemetry::Settings {
        filter: &args.log_level,
        format: args.log_format,
        build: settings.build,
        instance: &settings.identity,
    })?;
    Ok(work(Context::connect(settings, args).await?).await)
}

fn dropped_lines(telemetry: &Telemetry) -> PullingGauge {
    let dropped = telemetry.dropped_lines();
    let Family { name, help, .. } = LOG_LINES_DROPPED;
    #[expect(clippy::cast_precision_loss, reason = "a metric's value is a float")]
    let read = move || dropped.dropped_lines() as f64;
    PullingGauge::new(name, help, Box::new(read)).expect("the name is a valid constant")
}

/// A controller whose server has its address and which otherwise has not begun.
pub struct Runtime {
    context: Context,
    parts: Arc<Parts>,
    server: Server,
    role: watch::Receiver<Role>,
    /// None to lead without a lease.
    elector: Option<Elector>,
}

impl Runtime {
    /// Takes the server's address and makes ready to stand for the lease. `log_level` is what `PUT /log-level` changes.
    ///
    /// # Errors
    /// When the address cannot be taken.
    pub async fn bind(
        context: Context,
        controllers: Controllers,
        log_level: Option<LogLevel>,
    ) -> Result<Self, RunError> {
        let parts = Arc::new(controllers.into_parts());
        let (role, elector) = stand(&context);
        let telling = telling(&context, &parts, role.clone(), log_level);
        let address = context.settings.listen;
        let server = Server::bind(address, telling)
            .await
            .map_err(|source| RunError::Bind { address, source })?;
        tracing::info!(address = %server.address(), identity = context.settings.identity, "listening");
        Ok(Self { context, parts, server, role, elector })
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Runs until `shutdown` asks to drain; then ends the loops, gives the lease back, stops the rest. Dropping it in
    /// the middle ends everything where it is, as a crash would.
    ///
    /// # Errors
    /// When a part that should last ends by itself.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), RunError> {
        let (streams, vacate, stop) =
            (Shutdown::new(), CancellationToken::new(), CancellationToken::new());
        let mut lasting = Lasting::default();
        for start in &self.parts.streams {
            lasting.keep("watch", start(self.context.client.clone(), streams.clone()));
        }
        lasting.spawn("server", self.server.serve(stop.clone()));
        lasting.spawn("leader metric", mirror(self.context.clone(), self.role.clone()));
        let mut election = Lasting::default();
        if let Some(elector) = self.elector {
            election.spawn("leader election", elector.run(vacate.clone()));
        }
        let worked = tokio::select! {
            () = work(&self.parts, self.role.clone(), &shutdown) => Ok(()),
            error = lasting.first_end() => Err(error),
            error = election.first_end() => Err(error),
        };
        vacate.cancel();
        election.all_end().await;
        streams.ask();
        stop.cancel();
        worked
    }
}

/// Loops while leading, until told to stop.
async fn work(parts: &Parts, mut role: watch::Receiver<Role>, shutdown: &Shutdown) {
    if parts.loops.is_empty() {
        return shutdown.draining().await;
    }
    loop {
        tokio::select! {
            biased;
            () = shutdown.draining() => return,
            () = may_begin(parts, &mut role) => {}
        }
        tracing::info!("reconciling");
        join_all(
            parts.loops.iter().map(|each| each.run(drain(shutdown), abort(role.clone(), shutdown))),
        )
        .await;
        tracing::info!("stopped reconciling");
        if shutdown.is_draining() {
            return;
        }
    }
}

/// Waits until leading and all caches are complete: on a part of one, what is not there yet would be taken for gone.
async fn may_begin(parts: &Parts, role: &mut watch::Receiver<Role>) {
    for cache in &parts.caches {
        (cache.synced)().await;
    }
    for told in &parts.optional {
        told().await;
    }
    if role.wait_for(|role| *role == Role::Leading).await.is_err() {
        // Nobody elects any more; whoever ended that ends us.
        std::future::pending::<()>().await;
    }
}

fn drain(shutdown: &Shutdown) -> BoxFuture<'_, ()> {
    Box::pin(shutdown.draining())
}

/// Resolves when the role changes from what it was, even if it has changed back since, or when draining takes too long.
fn abort(mut role: watch::Receiver<Role>, shutdown: &Shutdown) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        tokio::select! {
            () = changed(&mut role) => {}
            () = async {
                shutdown.draining().await;
                tokio::time::sleep(DRAIN_DEADLINE).await;
            } => tracing::warn!("passes at work were dropped: draining took too long"),
        }
    })
}

/// Who tells our role, and the elector that decides it, if one does.
fn stand(context: &Context) -> (watch::Receiver<Role>, Option<Elector>) {
    let Some(timing) = context.settings.election else {
        return (watch::Sender::new(Role::Leading).subscribe(), None);
    };
    let candidate = Candidate {
        namespace: context.settings.namespace.clone(),
        lease: context.settings.build.program.to_owned(),
        identity: context.settings.identity.clone(),
        timing,
    };
    let elector = Elector::new(context.cluster.clone(), candidate)
        .seen_by(&context.health)
        .grants(&context.tenure);
    (elector.role(), Some(elector))
}

/// Keeps the metric equal to the role.
async fn mirror(context: Context, mut role: watch::Receiver<Role>) {
    loop {
        context.metrics.leader(*role.borrow_and_update() == Role::Leading);
        changed(&mut role).await;
    }
}

/// Waits for a change of the role, for ever when nobody changes it any more: without an election, or at the end.
async fn changed(role: &mut watch::Receiver<Role>) {
    if role.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}
