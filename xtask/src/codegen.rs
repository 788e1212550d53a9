//! Files that are written from the code and committed, so that a review sees what a change does to users.

mod definitions;
mod doc_comments;
mod metrics;
mod reference;
mod roles;
mod schema_page;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::repository;

/// A file as it should be.
#[derive(Debug, PartialEq, Eq)]
pub struct Output {
    /// From the root.
    pub path: PathBuf,
    /// All of its text.
    pub text: String,
}

/// Folders in which every file of that extension is written here, so that another one is left over.
const OWNED: [(&str, &str); 3] =
    [("crds", "yaml"), ("charts/otctl-crds/templates", "yaml"), ("docs/reference", "md")];

/// Writes what is not as it should be; with `check` fails instead.
///
/// # Errors
/// When a file cannot be read or written, or `check` finds a difference.
pub fn run(check: bool) -> anyhow::Result<()> {
    let outputs = outputs()?;
    let stale: Vec<_> = outputs.iter().filter(|output| is_stale(output)).collect();
    let left_over = left_over(&outputs)?;
    if check {
        let paths = stale.iter().map(|output| &output.path).chain(&left_over);
        let paths: Vec<_> = paths.map(|path| path.display().to_string()).collect();
        anyhow::ensure!(
            paths.is_empty(),
            "run `cargo xtask codegen`; not as the code says: {}",
            paths.join(", ")
        );
        println!("{} files are as the code says", outputs.len());
        return Ok(());
    }
    for output in stale {
        write(output)?;
    }
    for path in left_over {
        println!("removed {}", path.display());
        fs::remove_file(repository::root().join(path))?;
    }
    Ok(())
}

/// Every generated file.
///
/// # Errors
/// When the source that documentation is taken from cannot be read.
pub fn outputs() -> anyhow::Result<Vec<Output>> {
    let mut outputs = definitions::outputs()?;
    outputs.extend(roles::outputs());
    outputs.extend(reference::outputs()?);
    Ok(outputs)
}

fn is_stale(output: &Output) -> bool {
    fs::read_to_string(repository::root().join(&output.path)).ok().as_ref() != Some(&output.text)
}

fn left_over(outputs: &[Output]) -> anyhow::Result<Vec<PathBuf>> {
    let wanted: BTreeSet<_> = outputs.iter().map(|output| output.path.as_path()).collect();
    let mut left_over = Vec::new();
    for (folder, extension) in OWNED {
        let Ok(entries) = fs::read_dir(repository::root().join(folder)) else { continue };
        for entry in entries {
            let path = Path::new(folder).join(entry?.file_name());
            if path.extension().is_some_and(|it| it == extension)
                && !wanted.contains(path.as_path())
            {
                left_over.push(path);
            }
        }
    }
    Ok(left_over)
}

fn write(output: &Output) -> anyhow::Result<()> {
    let path = repository::root().join(&output.path);
    let folder = path.parent().expect("every output is in a folder");
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(&path, &output.text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", output.path.display());
    Ok(())
}
