//! Prometheus' own tools. They come from the distribution, not from the registries that everything else comes from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use super::documents::{self, Expression};
use crate::command::Run;

/// `promtool` and the server that it comes with.
pub(super) struct Tools {
    /// Checks rules, and asks servers.
    pub(super) promtool: PathBuf,
    /// The server.
    pub(super) prometheus: PathBuf,
}

impl Tools {
    /// Where they are.
    ///
    /// # Errors
    /// When one is missing, with the package to install.
    pub(super) fn find() -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find = |program: &str| {
            let places = std::env::split_paths(&path).map(|folder| folder.join(program));
            places.into_iter().find(|place| place.is_file()).with_context(|| {
                format!(
                    "{program} is not on the PATH: install the package prometheus, which holds it (Debian, Ubuntu: \
                     apt-get install --no-install-recommends prometheus)"
                )
            })
        };
        Ok(Self { promtool: find("promtool")?, prometheus: find("prometheus")? })
    }

    /// Whether every file of rules can be loaded.
    ///
    /// # Errors
    /// When one cannot.
    pub(super) fn check_rules(&self) -> anyhow::Result<()> {
        let files = documents::rules()?;
        anyhow::ensure!(!files.is_empty(), "no chart has rules");
        files.iter().try_for_each(|file| self.run().args(["check", "rules"]).path(&file.path).run())
    }

    /// Whether alerts fire when they should, and only then.
    ///
    /// # Errors
    /// When one does not.
    pub(super) fn test_rules(&self) -> anyhow::Result<()> {
        let files = documents::rule_tests()?;
        anyhow::ensure!(!files.is_empty(), "no chart has tests of rules");
        let test = |path: &Path| self.run().args(["test", "rules"]).path(path).run();
        files.iter().try_for_each(|(path, _)| test(path))
    }

    /// Whether all of these are expressions: rules that record them say so, each in a group named for where it stands.
    ///
    /// # Errors
    /// When one is none.
    pub(super) fn parse(&self, expressions: &[Expression], folder: &Path) -> anyhow::Result<()> {
        anyhow::ensure!(!expressions.is_empty(), "there is no expression");
        let groups = expressions.iter().map(|expression| {
            let rule = json!({"record": "otctl:parsed", "expr": expression.text});
            json!({"name": expression.place, "rules": [rule]})
        });
        let file = folder.join("expressions.yaml");
        let rules = json!({"groups": groups.collect::<Vec<_>>()});
        // Every JSON is YAML.
        fs::write(&file, serde_json::to_string_pretty(&rules)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        self.run().args(["check", "rules", "--lint=none"]).path(&file).run()
    }

    /// Whether names, types and texts of a scrape follow Prometheus' conventions.
    ///
    /// # Errors
    /// When one does not.
    pub(super) fn check_metrics(&self, scrape: &Path) -> anyhow::Result<()> {
        self.run().args(["check", "metrics"]).input(scrape)?.run()
    }

    /// What a server answers to an expression now, a line for each series.
    ///
    /// # Errors
    /// When it refuses it.
    pub(super) fn ask(&self, server: &str, expression: &str) -> anyhow::Result<String> {
        let answer = self.run().args(["query", "instant", server, expression]).output()?;
        Ok(answer.trim().to_owned())
    }

    fn run(&self) -> Run {
        Run::new(&self.promtool)
    }
}
