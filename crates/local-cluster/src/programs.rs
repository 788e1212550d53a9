//! Which programs a cluster is made of, and where they are found: `KUBEBUILDER_ASSETS`, `PATH`, the cache, or built
//! once into the cache (`programs/build.rs`).
//!
//! A program that is found counts only if it says that it is of the pinned minor version. API server, controller
//! manager and scheduler are released together, so they are taken from one directory or are all built.

mod build;

use std::{
    collections::BTreeMap,
    env, fmt,
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub use self::build::BuildError;
use crate::progress::Progress;

/// A program that this crate can find or build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The store.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of the built-in kinds.
    KubeControllerManager,
    /// Gives pods a node.
    KubeScheduler,
    /// The command line.
    Kubectl,
    /// Renders and installs charts.
    Helm,
}

impl Program {
    /// What a control plane runs.
    pub const CONTROL_PLANE: [Self; 4] =
        [Self::Etcd, Self::KubeApiserver, Self::KubeControllerManager, Self::KubeScheduler];

    /// Every program.
    pub const ALL: [Self; 6] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Helm,
    ];

    /// The name of its file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
        }
    }

    /// The minor version that the tests run with.
    pub fn pinned_minor(self) -> &'static str {
        match self {
            Self::Etcd => "3.6",
            Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubectl => "1.34",
            Self::Helm => "4.3",
        }
    }

    fn version_arguments(self) -> &'static [&'static str] {
        match self {
            Self::Kubectl => &["version", "--client"],
            Self::Helm => &["version", "--short"],
            Self::Etcd
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler => &["--version"],
        }
    }

    /// Whether it must come from the same directory as its siblings.
    fn is_released_with_siblings(self) -> bool {
        matches!(self, Self::KubeApiserver | Self::KubeControllerManager | Self::KubeScheduler)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.file_name())
    }
}

/// Where each program was found.
pub type Programs = BTreeMap<Program, PathBuf>;

/// Why a program cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    /// There is no place for a cache.
    #[error("cannot place the cache: neither XDG_CACHE_HOME nor HOME is set")]
    PlaceCache,
    /// The cache directory cannot be used.
    #[error("cannot use the cache directory '{}'", path.display())]
    UseCache {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The Go tool did not build it.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A program was built, but is not what it should be.
    #[error("'{}' does not say that it is version {}", path.display(), program.pinned_minor())]
    CheckBuilt {
        /// The program.
        program: Program,
        /// The file that was built.
        path: PathBuf,
    },
}

/// The directories that programs are looked for in, best first, and the cache that they are built into.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Directories of programs that somebody else put there.
    pub directories: Vec<PathBuf>,
    /// The directory that holds what was built; it is created when needed.
    pub cache: PathBuf,
}

impl Sources {
    /// `KUBEBUILDER_ASSETS`, then the directories of `PATH`; the cache is below `XDG_CACHE_HOME` or `~/.cache`.
    pub fn from_env() -> Result<Self, ProgramsError> {
        let not_empty = |name| env::var_os(name).filter(|value| !value.is_empty());
        let cache_home = not_empty("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(Path::new(&not_empty("HOME")?).join(".cache")))
            .ok_or(ProgramsError::PlaceCache)?;
        let path = env::var_os("PATH").unwrap_or_default();
        Ok(Self {
            directories: not_empty("KUBEBUILDER_ASSETS")
                .map(PathBuf::from)
                .into_iter()
                .chain(env::split_paths(&path))
                .collect(),
            cache: cache_home.join("otctl").join(build::KUBERNETES_VERSION),
        })
    }

    /// The wanted programs, as far as they are there already.
    pub fn find(&self, wanted: &[Program]) -> Programs {
        let (siblings, single): (Vec<_>, Vec<_>) =
            wanted.iter().copied().partition(|program| program.is_released_with_siblings());
        let mut found = self.find_together(&siblings).unwrap_or_default();
        found.extend(single.iter().filter_map(|program| self.find_together(&[*program])).flatten());
        found
    }

    /// The wanted programs; those that are not there are built, which takes minutes once and is reported line by line.
    ///
    /// Blocks. Of several processes that need the same program one builds it and the others wait.
    pub fn find_or_build(
        &self,
        wanted: &[Program],
        progress: &Progress,
    ) -> Result<Programs, ProgramsError> {
        let found = self.find(wanted);
        if found.len() == wanted.len() {
            return Ok(found);
        }
        let _lock = self.lock_cache(progress)?;
        let mut found = self.find(wanted);
        let missing: Vec<_> =
            wanted.iter().copied().filter(|program| !found.contains_key(program)).collect();
        build::build(&missing, &self.cache, progress)?;
        for program in missing {
            let path = self.cache.join(program.file_name());
            if !has_pinned_minor(program, &path) {
                return Err(ProgramsError::CheckBuilt { program, path });
            }
            found.insert(program, path);
        }
        Ok(found)
    }

    /// The first directory that holds all of these in the pinned minor version.
    fn find_together(&self, programs: &[Program]) -> Option<Programs> {
        self.directories.iter().chain([&self.cache]).find_map(|directory| {
            let paths = programs.iter().map(|program| {
                let path = directory.join(program.file_name());
                has_pinned_minor(*program, &path).then_some((*program, path))
            });
            paths.collect()
        })
    }

    fn lock_cache(&self, progress: &Progress) -> Result<File, ProgramsError> {
        let use_cache = |source| ProgramsError::UseCache { path: self.cache.clone(), source };
        fs::create_dir_all(&self.cache).map_err(use_cache)?;
        let lock = File::create(self.cache.join(".lock")).map_err(use_cache)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.say("waiting for another process that is building programs");
                lock.lock().map_err(use_cache)?;
            }
            Err(TryLockError::Error(source)) => return Err(use_cache(source)),
        }
        Ok(lock)
    }
}

/// Whether the file is a program that says it is of the pinned minor version.
fn has_pinned_minor(program: Program, path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let output = Command::new(path).args(program.version_arguments()).stdin(Stdio::null()).output();
    let Ok(output) = output else { return false };
    let text = String::from_utf8_lossy(&output.stdout);
    let is_pinned = version_in(&text).is_some_and(|version| is_of_minor(version, program));
    if !is_pinned {
        tracing::debug!(%program, path = %path.display(), said = %text.trim(), "passed over a program");
    }
    output.status.success() && is_pinned
}

/// The first word that looks like a version, without its `v`.
fn version_in(output: &str) -> Option<&str> {
    output
        .split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'))
}

fn is_of_minor(version: &str, program: Program) -> bool {
    version
        .strip_prefix(program.pinned_minor())
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_each_program_says_of_itself() {
        let said = [
            ("Kubernetes v1.34.3\n", "1.34.3"),
            ("etcd Version: 3.6.16\nGit SHA: none\nGo Version: go1.26.8\n", "3.6.16"),
            ("Client Version: v1.34.3\nKustomize Version: v5.7.1\n", "1.34.3"),
            ("v4.3.1+gabcdef0\n", "4.3.1+gabcdef0"),
            ("v4.3", "4.3"),
        ];
        for (text, version) in said {
            assert_eq!(version_in(text), Some(version), "{text}");
        }
        assert_eq!(version_in("no version here."), None);
    }

    #[test]
    fn a_longer_number_is_another_minor() {
        assert!(is_of_minor("3.6.16", Program::Etcd));
        assert!(!is_of_minor("3.60.1", Program::Etcd));
        assert!(!is_of_minor("1.35.0", Program::Kubectl));
        assert!(is_of_minor("4.3", Program::Helm));
    }
}
