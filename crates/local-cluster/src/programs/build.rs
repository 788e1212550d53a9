//! Builds programs from pinned Go modules (`tools/`). The module files are part of this program, so that an installed
//! binary can build as well as a checkout.

use std::{
    collections::VecDeque,
    fs, io,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::Program;
use crate::progress::Progress;

/// The release that API server, controller manager, scheduler and kubectl are built from; it also names the cache.
pub(super) const KUBERNETES_VERSION: &str = "v1.34.3";

/// How many lines of a failed build are shown.
const SHOWN_LINES: usize = 20;
/// A progress line is said after so many compiled packages; the largest build has about 2,500.
const PACKAGES_PER_LINE: usize = 250;

/// Why the Go tool did not build a program.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no Go tool.
    #[error(
        "cannot run 'go' to build {program}: install Go 1.26 or newer, or set KUBEBUILDER_ASSETS to a directory \
         that holds it"
    )]
    RunGo {
        /// What was to be built.
        program: Program,
        /// What the system said.
        source: io::Error,
    },
    /// The build failed.
    #[error("cannot build {program}; the Go tool said:\n{output}")]
    Compile {
        /// What was to be built.
        program: Program,
        /// The last lines of its output.
        output: String,
    },
    /// A file of the build cannot be written.
    #[error("cannot write below '{}'", path.display())]
    WriteFiles {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A Go module of ours that pins one release of something.
struct GoModule {
    go_mod: &'static str,
    go_sum: &'static str,
    link_flags: &'static str,
    usual_time: &'static str,
    /// Each program with its package.
    packages: &'static [(Program, &'static str)],
}

/// One module per release, since their requirements exclude each other.
const MODULES: [GoModule; 3] = [
    GoModule {
        go_mod: include_str!("../../tools/kubernetes/go.mod"),
        go_sum: include_str!("../../tools/kubernetes/go.sum"),
        link_flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.3 \
                     -X k8s.io/component-base/version.gitMajor=1 \
                     -X k8s.io/component-base/version.gitMinor=34",
        usual_time: "4 to 7 minutes",
        packages: &[
            (Program::KubeApiserver, "k8s.io/kubernetes/cmd/kube-apiserver"),
            (Program::KubeControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager"),
            (Program::KubeScheduler, "k8s.io/kubernetes/cmd/kube-scheduler"),
            (Program::Kubectl, "k8s.io/kubernetes/cmd/kubectl"),
        ],
    },
    GoModule {
        go_mod: include_str!("../../tools/etcd/go.mod"),
        go_sum: include_str!("../../tools/etcd/go.sum"),
        link_flags: "-s -w",
        usual_time: "1 minute",
        packages: &[(Program::Etcd, "go.etcd.io/etcd/server/v3")],
    },
    GoModule {
        go_mod: include_str!("../../tools/helm/go.mod"),
        go_sum: include_str!("../../tools/helm/go.sum"),
        link_flags: "-s -w -X helm.sh/helm/v4/internal/version.version=v4.3.1",
        usual_time: "2 to 7 minutes",
        packages: &[(Program::Helm, "helm.sh/helm/v4/cmd/helm")],
    },
];

/// Builds the programs into the directory `cache`, module by module.
pub(super) fn build(
    programs: &[Program],
    cache: &Path,
    progress: &Progress,
) -> Result<(), BuildError> {
    for module in &MODULES {
        let packages: Vec<_> =
            module.packages.iter().filter(|(program, _)| programs.contains(program)).collect();
        if packages.is_empty() {
            continue;
        }
        let names: Vec<_> = packages.iter().map(|(program, _)| program.file_name()).collect();
        let names = names.join(", ");
        progress.say(&format!("building {names} ({}, once)", module.usual_time));
        for (program, package) in packages {
            build_one(module, (*program, package), cache, progress)?;
        }
        progress.say(&format!("built {names}: kept in {}", cache.display()));
    }
    Ok(())
}

/// Builds one program beside its place and moves it there, so that nobody ever finds half a program.
fn build_one(
    module: &GoModule,
    (program, package): (Program, &str),
    cache: &Path,
    progress: &Progress,
) -> Result<(), BuildError> {
    let write = |source| BuildError::WriteFiles { path: cache.to_owned(), source };
    let workspace = prepare(module, cache.join(".build")).map_err(write)?;
    let mut command = Command::new("go");
    command
        .args(["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"])
        .args(["-ldflags", module.link_flags, "-o", program.file_name(), package])
        .env("GOWORK", "off")
        .current_dir(&workspace);
    run(command, program, progress)?;
    let built = workspace.join(program.file_name());
    fs::rename(built, cache.join(program.file_name())).map_err(write)?;
    fs::remove_dir_all(workspace).map_err(write)
}

/// A directory with the module's files and nothing of an earlier build that was cut off; the cache is locked.
fn prepare(module: &GoModule, workspace: PathBuf) -> io::Result<PathBuf> {
    if workspace.exists() {
        fs::remove_dir_all(&workspace)?;
    }
    fs::create_dir(&workspace)?;
    fs::write(workspace.join("go.mod"), module.go_mod)?;
    fs::write(workspace.join("go.sum"), module.go_sum)?;
    Ok(workspace)
}

/// Runs the Go tool. With `-v` it names each package that it compiles on stderr, which is counted for the progress.
fn run(mut command: Command, program: Program, progress: &Progress) -> Result<(), BuildError> {
    let no_go = |source| BuildError::RunGo { program, source };
    let mut go = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_go)?;
    let mut last_lines = VecDeque::new();
    let stderr = BufReader::new(go.stderr.take().expect("stderr is a pipe"));
    for (count, line) in stderr.lines().map_while(Result::ok).enumerate() {
        if (count + 1).is_multiple_of(PACKAGES_PER_LINE) {
            progress.say(&format!("{program}: {} packages done, now {line}", count + 1));
        }
        last_lines.push_back(line);
        if last_lines.len() > SHOWN_LINES {
            last_lines.pop_front();
        }
    }
    if go.wait().map_err(no_go)?.success() {
        return Ok(());
    }
    Err(BuildError::Compile { program, output: Vec::from(last_lines).join("\n") })
}
