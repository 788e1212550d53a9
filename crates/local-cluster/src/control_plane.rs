//! etcd, API server, controller manager and scheduler as processes: keys and files before, readiness after.

mod flags;

use std::{
    fs::{self, File},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{Api, Client};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::{
    certificates::{Authority, Subject, TokenKeys},
    guard::{Guard, GuardedProcess},
    kubeconfig::{Access, AccessError, Credentials, write_private},
    options::NodeTimes,
    programs::{Program, Programs},
    state_dir::StateDir,
};

const AUDIT_POLICY: &str = include_str!("control_plane/audit-policy.yaml");
/// Usually 4 s; a guard for machines that are busy with compilers.
const READY_WITHIN: Duration = Duration::from_secs(180);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// How much of a program's log an error shows.
const SHOWN_LINES: usize = 20;

/// Why the control plane did not start.
#[derive(Debug, thiserror::Error)]
pub enum ControlPlaneError {
    /// A key or certificate cannot be made.
    #[error("cannot make keys and certificates")]
    MakeKeys(#[from] rcgen::Error),
    /// A file of the state directory cannot be written.
    #[error("cannot write to the state directory")]
    WriteState(#[source] io::Error),
    /// A program cannot be started.
    #[error("cannot start {program}")]
    StartProgram {
        /// The program.
        program: Program,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended instead of working.
    #[error("{program} ended with {status}; its log ends with:\n{log}")]
    KeepRunning {
        /// The program.
        program: Program,
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// Something did not become ready.
    #[error("{program} is not ready after {READY_WITHIN:?}; its log ends with:\n{log}")]
    BecomeReady {
        /// The program that was waited for.
        program: Program,
        /// The last lines of its log.
        log: String,
    },
    /// No client can be made.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// What a control plane is started with.
pub(crate) struct Settings {
    pub(crate) programs: Programs,
    /// Where the API server listens.
    pub(crate) address: SocketAddr,
    pub(crate) node_times: NodeTimes,
}

/// Who may become whom: the authority, and where its server is.
pub(crate) struct Gate {
    authority: Authority,
    server: String,
}

impl Gate {
    /// Access under a client certificate for this subject.
    pub(crate) fn access(&self, subject: Subject<'_>) -> Result<Access, rcgen::Error> {
        Ok(self.with(Credentials::Certificate(self.authority.client(subject)?)))
    }

    /// Access with these credentials.
    pub(crate) fn with(&self, credentials: Credentials) -> Access {
        Access {
            server: self.server.clone(),
            authority: self.authority.certificate().to_owned(),
            credentials,
        }
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }
}

/// The running processes, in the order in which they were started.
pub(crate) struct ControlPlane {
    processes: Vec<Running>,
    state: StateDir,
    guard: Arc<Guard>,
}

/// A program that runs, and how to start it again.
struct Running {
    program: Program,
    path: PathBuf,
    flags: Vec<String>,
    process: GuardedProcess,
}

/// Writes keys, kubeconfigs and the audit policy.
pub(crate) fn prepare(state: &StateDir, address: SocketAddr) -> Result<Gate, ControlPlaneError> {
    let write = |name: &str, text: &str| {
        write_private(&state.key_file(name), text).map_err(ControlPlaneError::WriteState)
    };
    let gate = Gate { authority: Authority::generate()?, server: format!("https://{address}") };
    let serving = gate.authority.server(&["127.0.0.1", "localhost", "kubernetes.default.svc"])?;
    write("ca.crt", gate.authority.certificate())?;
    write("server.crt", &serving.certificate)?;
    write("server.key", &serving.key)?;
    let tokens = TokenKeys::generate()?;
    write("tokens.key", &tokens.private)?;
    write("tokens.pub", &tokens.public)?;
    for program in [Program::KubeControllerManager, Program::KubeScheduler] {
        let user = format!("system:{program}");
        let access = gate.access(Subject { user: &user, group: None })?;
        access.write(&state.kubeconfig(program.file_name()))?;
    }
    fs::write(state.audit_policy(), AUDIT_POLICY).map_err(ControlPlaneError::WriteState)?;
    Ok(gate)
}

impl ControlPlane {
    /// Starts everything, and returns when the API server is ready and the controllers work.
    pub(crate) async fn start(
        state: &StateDir,
        settings: &Settings,
        guard: &Arc<Guard>,
        admin: &Client,
    ) -> Result<Self, ControlPlaneError> {
        let mut plane = Self { processes: Vec::new(), state: state.clone(), guard: guard.clone() };
        let start = |plane: &mut Self, program, flags: Vec<String>| {
            let path = settings.programs[&program].clone();
            let process = plane.spawn(program, &path, &flags)?;
            plane.processes.push(Running { program, path, flags, process });
            Ok::<_, ControlPlaneError>(())
        };
        start(&mut plane, Program::Etcd, flags::etcd())?;
        start(&mut plane, Program::KubeApiserver, flags::kube_apiserver(state, settings))?;
        plane.wait_for(Program::KubeApiserver, || is_ready(admin)).await?;
        let flags = flags::kube_controller_manager(state, settings);
        start(&mut plane, Program::KubeControllerManager, flags)?;
        start(&mut plane, Program::KubeScheduler, flags::kube_scheduler(state))?;
        plane.wait_for(Program::KubeControllerManager, || has_service_account(admin)).await?;
        Ok(plane)
    }

    /// The programs with their process ids.
    pub(crate) fn process_ids(&self) -> impl Iterator<Item = (Program, i32)> {
        self.processes.iter().map(|running| (running.program, running.process.id().as_raw()))
    }

    /// Kills a program as a crash would, and starts it again.
    pub(crate) async fn restart(&mut self, program: Program) -> Result<(), ControlPlaneError> {
        let is_it = |running: &Running| running.program == program;
        let at = self.processes.iter().position(is_it).expect("every program was started");
        let failed = |source| ControlPlaneError::StartProgram { program, source };
        let running = &mut self.processes[at];
        running.process.signal(Signal::SIGKILL).map_err(failed)?;
        running.process.wait().await.map_err(failed)?;
        let (path, flags) = (running.path.clone(), running.flags.clone());
        self.processes[at].process = self.spawn(program, &path, &flags)?;
        Ok(())
    }

    fn spawn(
        &self,
        program: Program,
        path: &Path,
        flags: &[String],
    ) -> Result<GuardedProcess, ControlPlaneError> {
        let spawn = || {
            let log = self.state.log(program.file_name());
            let log = File::options().create(true).append(true).open(log)?;
            let mut command = Guard::command(path, flags.to_vec());
            command.current_dir(self.state.root()).stdout(log.try_clone()?).stderr(log);
            self.guard.spawn(command)
        };
        spawn().map_err(|source| ControlPlaneError::StartProgram { program, source })
    }

    /// Takes note of the processes that have ended, so that none stays behind as a zombie.
    pub(crate) fn reap(&mut self) {
        for Running { program, process, .. } in &mut self.processes {
            if let Err(error) = process.try_wait() {
                tracing::debug!(%program, %error, "could not take note of an ended process");
            }
        }
    }

    async fn wait_for<F: Future<Output = bool>>(
        &mut self,
        awaited: Program,
        is_ready: impl Fn() -> F,
    ) -> Result<(), ControlPlaneError> {
        let deadline = Instant::now() + READY_WITHIN;
        while !is_ready().await {
            self.check_all_run()?;
            if Instant::now() >= deadline {
                let log = last_lines(&self.state.log(awaited.file_name()));
                return Err(ControlPlaneError::BecomeReady { program: awaited, log });
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        self.check_all_run()
    }

    fn check_all_run(&mut self) -> Result<(), ControlPlaneError> {
        for Running { program, process, .. } in &mut self.processes {
            let program = *program;
            let ended = process
                .try_wait()
                .map_err(|source| ControlPlaneError::StartProgram { program, source })?;
            if let Some(status) = ended {
                let log = last_lines(&self.state.log(program.file_name()));
                return Err(ControlPlaneError::KeepRunning { program, status, log });
            }
        }
        Ok(())
    }
}

async fn is_ready(admin: &Client) -> bool {
    let request = http::Request::get("/readyz").body(Vec::new());
    admin.request_text(request.expect("the path is a valid URI")).await.is_ok()
}

/// The first thing that the controllers do in a new cluster that anyone can see.
async fn has_service_account(admin: &Client) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    matches!(accounts.get_opt("default").await, Ok(Some(_)))
}

fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| format!("(no log: {error})"));
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
