//! Alerts, their tests and dashboards, as they stand in the charts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

use crate::charts::{self, CHARTS};

/// Ends the name of a file with tests of rules.
const TESTS: &str = "_test.yaml";
/// What Grafana puts into an expression, and what stands there for the checks.
const VARIABLES: [(&str, &str); 2] = [("$__rate_interval", "5m"), ("$namespace", ".*")];

/// A file of rules.
pub(super) struct RuleFile {
    /// Where it is.
    pub(super) path: PathBuf,
    /// Every alert in it.
    pub(super) alerts: Vec<Alert>,
}

/// One alert, as Prometheus reads it.
#[derive(Deserialize)]
pub(super) struct Alert {
    /// Its name.
    pub(super) alert: String,
    /// When it holds.
    pub(super) expr: String,
    /// How urgent it is.
    #[serde(default)]
    pub(super) labels: BTreeMap<String, String>,
    /// What people are told.
    #[serde(default)]
    pub(super) annotations: BTreeMap<String, String>,
}

/// A dashboard.
pub(super) struct Dashboard {
    /// Where it is.
    pub(super) path: PathBuf,
    /// All of it.
    pub(super) json: Value,
}

/// Something that is asked of Prometheus, and where that stands.
#[derive(Clone, Debug)]
pub(super) struct Expression {
    /// The file and what in it.
    pub(super) place: String,
    /// With everything in it that Grafana would fill in.
    pub(super) text: String,
}

/// Every file of rules.
///
/// # Errors
/// When one cannot be read.
pub(super) fn rules() -> anyhow::Result<Vec<RuleFile>> {
    #[derive(Deserialize)]
    struct File {
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    struct Group {
        rules: Vec<Alert>,
    }
    let paths = files("alerts", ".yaml")?.into_iter().filter(|path| !is_test(path));
    let read = |path: PathBuf| {
        let file: File = yaml(&path)?;
        let alerts = file.groups.into_iter().flat_map(|group| group.rules).collect();
        Ok(RuleFile { path, alerts })
    };
    paths.map(read).collect()
}

/// Every file of tests of rules, with what is in it.
///
/// # Errors
/// When one cannot be read.
pub(super) fn rule_tests() -> anyhow::Result<Vec<(PathBuf, Value)>> {
    let paths = files("alerts", TESTS)?;
    paths.into_iter().map(|path| yaml(&path).map(|tests| (path, tests))).collect()
}

/// Every dashboard.
///
/// # Errors
/// When one cannot be read.
pub(super) fn dashboards() -> anyhow::Result<Vec<Dashboard>> {
    let read = |path: PathBuf| {
        let json = serde_json::from_str(&text(&path)?)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Dashboard { path, json })
    };
    files("dashboards", ".json")?.into_iter().map(read).collect()
}

impl RuleFile {
    /// What its alerts ask.
    #[must_use]
    pub(super) fn expressions(&self) -> Vec<Expression> {
        let of =
            |alert: &Alert| Expression { place: alert.alert.clone(), text: alert.expr.clone() };
        self.alerts.iter().map(of).collect()
    }
}

impl Dashboard {
    /// Every panel that shows something.
    #[must_use]
    pub(super) fn panels(&self) -> Vec<&Value> {
        let mut panels = Vec::new();
        collect_panels(&self.json, &mut panels);
        panels
    }

    /// What its panels ask.
    #[must_use]
    pub(super) fn expressions(&self) -> Vec<Expression> {
        let of_panel = |panel: &Value| {
            let title = panel["title"].as_str().unwrap_or_default().to_owned();
            let targets = panel["targets"].as_array().cloned().unwrap_or_default();
            let of_target = move |target: Value| Expression {
                place: format!("{}: {title}, {}", self.name(), target["refId"]),
                text: filled_in(target["expr"].as_str().unwrap_or_default()),
            };
            targets.into_iter().map(of_target).collect::<Vec<_>>()
        };
        self.panels().into_iter().flat_map(of_panel).collect()
    }

    /// Its file.
    #[must_use]
    pub(super) fn name(&self) -> String {
        name(&self.path)
    }
}

/// The name of a file.
#[must_use]
pub(super) fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn collect_panels<'a>(holder: &'a Value, into: &mut Vec<&'a Value>) {
    for panel in holder["panels"].as_array().into_iter().flatten() {
        if panel["type"] != "row" {
            into.push(panel);
        }
        collect_panels(panel, into);
    }
}

fn filled_in(expression: &str) -> String {
    VARIABLES.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// The files of every chart in a folder of this name.
fn files(folder: &str, ending: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for chart in CHARTS {
        let folder = charts::folder(chart).join("files").join(folder);
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry.with_context(|| format!("cannot list {}", folder.display()))?.path();
            if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_test(path: &Path) -> bool {
    path.to_string_lossy().ends_with(TESTS)
}

fn yaml<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    serde_saphyr::from_str(&text(path)?).with_context(|| format!("cannot read {}", path.display()))
}

fn text(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
