//! Where the programs under measurement are: beside this one, built by the same command.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A program of this workspace, from the same build.
pub(crate) fn ours(name: &str) -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("the path of this program is not known")?;
    let path = this.with_file_name(name);
    anyhow::ensure!(path.exists(), "{} is missing; `cargo xtask bench` builds it", path.display());
    Ok(path)
}

/// A program of the machine, by its name, and how to get it.
pub(crate) fn installed(name: &str, package: &str) -> anyhow::Result<()> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&folders).any(|folder| folder.join(name).exists());
    anyhow::ensure!(
        is_there,
        "{name} is not in the PATH; install it, on Debian with `apt install {package}`"
    );
    Ok(())
}

/// A shared library of the machine, and how to get it.
pub(crate) fn library(file: &str, package: &str) -> anyhow::Result<PathBuf> {
    let folder = Path::new("/usr/lib").join(machine_folder());
    let path = folder.join(file);
    anyhow::ensure!(
        path.exists(),
        "{} is missing; on Debian `apt install {package}` brings it",
        path.display()
    );
    Ok(path)
}

/// Debian's folder for libraries of this kind of machine.
fn machine_folder() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_the_way_to_get_it() {
        installed("sh", "dash").unwrap();
        let error = installed("no-such-program", "some-package").unwrap_err().to_string();
        assert!(error.contains("`apt install some-package`"), "{error}");
    }
}
