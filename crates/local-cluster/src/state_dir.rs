//! The directory of one cluster: keys, logs, the store, kubeconfigs, volumes. Only this user may look into it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

/// Names the files of a cluster. All of it is removed at the end unless the owner chose the place.
#[derive(Debug, Clone)]
pub(crate) struct StateDir {
    root: PathBuf,
    is_temporary: bool,
}

impl StateDir {
    /// The given directory, which must be empty or absent, or a temporary one.
    pub(crate) fn create(chosen: Option<&Path>) -> io::Result<Self> {
        let root = match chosen {
            Some(path) => {
                fs::create_dir_all(path)?;
                if fs::read_dir(path)?.next().is_some() {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                path.canonicalize()?
            }
            None => tempfile::Builder::new().prefix("local-cluster-").tempdir()?.keep(),
        };
        fs::set_permissions(&root, fs::Permissions::from_mode(0o700))?;
        for part in ["pki", "logs", "kubeconfigs", "storage"] {
            fs::create_dir(root.join(part))?;
        }
        Ok(Self { root, is_temporary: chosen.is_none() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What the guard is to remove.
    pub(crate) fn disposable(&self) -> Option<&Path> {
        self.is_temporary.then_some(&*self.root)
    }

    pub(crate) fn key_file(&self, name: &str) -> PathBuf {
        self.root.join("pki").join(name)
    }

    pub(crate) fn log(&self, program: &str) -> PathBuf {
        self.root.join("logs").join(format!("{program}.log"))
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.root.join("logs/audit.jsonl")
    }

    pub(crate) fn audit_policy(&self) -> PathBuf {
        self.root.join("audit-policy.yaml")
    }

    pub(crate) fn kubeconfig(&self, who: &str) -> PathBuf {
        self.root.join("kubeconfigs").join(who)
    }

    pub(crate) fn storage(&self) -> PathBuf {
        self.root.join("storage")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_use_is_refused() {
        let chosen = tempfile::tempdir().unwrap();
        StateDir::create(Some(chosen.path())).unwrap();
        let error = StateDir::create(Some(chosen.path())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
    }

    #[test]
    fn only_a_temporary_directory_is_disposable() {
        let chosen = tempfile::tempdir().unwrap();
        assert_eq!(StateDir::create(Some(chosen.path())).unwrap().disposable(), None);
        let temporary = StateDir::create(None).unwrap();
        assert_eq!(temporary.disposable(), Some(temporary.root()));
        fs::remove_dir_all(temporary.root()).unwrap();
    }
}
