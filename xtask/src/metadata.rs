//! What cargo knows of the packages that the workspace is built from.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde::Deserialize;

use crate::command::cargo;

/// What is built for; as in `deny.toml`. The lock file also holds packages of other platforms.
const PLATFORMS: [&str; 2] =
    ["--filter-platform=x86_64-unknown-linux-gnu", "--filter-platform=aarch64-unknown-linux-gnu"];

/// All packages that are built.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Ours and others'.
    pub packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
}

/// One package.
#[derive(Debug, Deserialize)]
pub struct Package {
    id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its licence as an SPDX expression.
    pub license: Option<String>,
    /// Where it is from; absent for those of the workspace.
    pub source: Option<String>,
    /// What it names in its manifest.
    pub dependencies: Vec<Dependency>,
}

/// A dependency as a manifest names it.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package.
    pub name: String,
    /// Absent, `dev` or `build`.
    pub kind: Option<String>,
}

impl Dependency {
    /// Whether only tests use it.
    #[must_use]
    pub fn is_dev(&self) -> bool {
        self.kind.as_deref() == Some("dev")
    }
}

impl Metadata {
    /// Asks cargo.
    ///
    /// # Errors
    /// When cargo does not tell, for instance because the lock file is out of date.
    pub fn read() -> anyhow::Result<Self> {
        let json =
            cargo(["metadata", "--format-version=1", "--locked"]).args(PLATFORMS).output()?;
        serde_json::from_str(&json).context("cannot read what cargo says of its packages")
    }

    /// The packages of this repository.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}
