//! Where the files of the repository are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ is in the root").to_owned()
}

/// The text of a file below the root.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: impl AsRef<Path>) -> anyhow::Result<String> {
    let path = root().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// A Rust file with its path from the root.
#[derive(Debug)]
pub struct Source {
    /// From the root, with slashes.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Source {
    /// Whether it holds tests only, by the place where it is.
    #[must_use]
    pub fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Its lines before a `#[cfg(test)] mod tests {`, with their numbers from 1; comments are left out.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let end = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let lines = self.text[..end].lines().enumerate();
        lines
            .map(|(index, line)| (index + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// Every Rust file of the workspace, in the order of their paths.
///
/// # Errors
/// When one cannot be read.
pub fn sources() -> anyhow::Result<Vec<Source>> {
    let mut paths = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(&root().join(folder), &mut paths)?;
    }
    paths.sort();
    let sources = paths.into_iter().map(|path| {
        let relative = path.strip_prefix(root()).expect("it was found below the root");
        Ok(Source { path: relative.to_string_lossy().into_owned(), text: read(&path)? })
    });
    sources.collect()
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in
        fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_what_is_compiled_into_the_program() {
        let text =
            "//! Doc.\nfn a() {}\n// comment\nfn b() {}\n#[cfg(test)]\nmod tests {\nfn c() {}\n}\n";
        let source = Source { path: "x/src/a.rs".to_owned(), text: text.to_owned() };
        let code: Vec<_> = source.code().collect();
        assert_eq!(code, [(2, "fn a() {}"), (4, "fn b() {}")]);
    }

    #[test]
    fn this_file_is_found() {
        let sources = sources().unwrap();
        assert!(sources.iter().any(|source| source.path == "xtask/src/repository.rs"));
    }
}
