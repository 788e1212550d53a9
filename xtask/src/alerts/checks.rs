//! What is wrong with alerts and dashboards that no tool of Prometheus knows: metrics that nobody registers, replicas
//! that are added up the wrong way, an alert without a section in the runbook or without a test, a panel without words.

use std::collections::BTreeSet;

use otctl_kit::metrics::{Family, Kind};
use serde_json::Value;

use super::documents::{self, Alert, Dashboard, Expression, RuleFile};
use super::expression::{Selector, selectors};
use crate::{families, repository};

/// Where the sections of the runbook are read.
const RUNBOOK: &str = "https://github.com/pelotech/otctl/blob/main/docs/runbook.md#";
const SEVERITIES: [&str; 2] = ["critical", "warning"];
/// The constant 1 that is only there to be joined.
const INFO: &str = "otctl_build_info";
/// In these a gauge that every replica tells is still told once.
const FOR_GAUGES: [&str; 3] = ["max", "count", "absent"];

/// All that is wrong, a line each.
///
/// # Errors
/// When a file cannot be read.
pub(super) fn problems() -> anyhow::Result<Vec<String>> {
    let (rules, dashboards) = (documents::rules()?, documents::dashboards()?);
    let headings = headings(&repository::read("docs/runbook.md")?);
    let tests: Vec<Value> = documents::rule_tests()?.into_iter().map(|(_, tests)| tests).collect();
    let mut problems = Vec::new();
    let alerts: Vec<&Alert> = rules.iter().flat_map(|file| &file.alerts).collect();
    for alert in &alerts {
        problems.extend(of_alert(alert, &headings));
        problems.extend(of_tests(&alert.alert, &tests));
    }
    problems.extend(twice("alert", alerts.iter().map(|alert| alert.alert.as_str())));
    problems.extend(twice("dashboard", dashboards.iter().filter_map(|it| it.json["uid"].as_str())));
    problems.extend(dashboards.iter().flat_map(of_dashboard));
    let asked = rules.iter().flat_map(RuleFile::expressions);
    let asked = asked.chain(dashboards.iter().flat_map(Dashboard::expressions));
    problems.extend(asked.flat_map(|expression| of_expression(&expression)));
    Ok(problems)
}

fn of_expression(expression: &Expression) -> Vec<String> {
    let found = selectors(&expression.text);
    if found.is_empty() {
        return vec![format!("{} asks for no metric", expression.place)];
    }
    let found = found.iter().filter_map(of_selector);
    found.map(|problem| format!("{}: {problem}", expression.place)).collect()
}

/// A metric that nobody registers; one whose meaning over replicas is missed.
fn of_selector(selector: &Selector) -> Option<String> {
    let name = &selector.name;
    let Some(family) = families::all().find(|family| family.series().contains(name)) else {
        return Some(format!("no controller registers {name}"));
    };
    let is_in =
        |functions: &[&str]| selector.within.iter().any(|it| functions.contains(&it.as_str()));
    match family {
        Family { name: INFO, .. } => None,
        Family { kind: Kind::Gauge, .. } => (!is_in(&FOR_GAUGES) || is_in(&["rate", "increase"]))
            .then(|| format!("{name} is a gauge that every replica tells: take the max")),
        Family { kind: Kind::Counter | Kind::Histogram(_), .. } => (!is_in(&["rate", "increase"])
            || !is_in(&["sum"]))
        .then(|| format!("{name} counts: take the sum of its rate or increase")),
    }
}

fn of_alert(alert: &Alert, headings: &BTreeSet<String>) -> Vec<String> {
    let Alert { alert: name, labels, annotations, .. } = alert;
    let mut problems = Vec::new();
    if !name.starts_with("Otctl") {
        problems.push(format!("{name} does not begin with Otctl"));
    }
    if !labels.get("severity").is_some_and(|it| SEVERITIES.contains(&it.as_str())) {
        problems.push(format!("{name} has no severity of {}", SEVERITIES.join(", ")));
    }
    for annotation in ["summary", "description"] {
        if annotations.get(annotation).is_none_or(String::is_empty) {
            problems.push(format!("{name} has no {annotation}"));
        }
    }
    let section = annotations.get("runbook_url").and_then(|url| url.strip_prefix(RUNBOOK));
    if !section.is_some_and(|section| headings.contains(section)) {
        problems.push(format!("{name} has no runbook_url at a section of docs/runbook.md"));
    }
    problems
}

/// An alert without a test in which it fires, or in which it does not.
fn of_tests(alert: &str, tests: &[Value]) -> Vec<String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let of_file = tests.iter().flat_map(|file| list(&file["tests"]));
    let all = of_file.flat_map(|test| list(&test["alert_rule_test"]));
    let (mut fires, mut is_silent) = (false, false);
    for test in all.filter(|test| test["alertname"] == alert) {
        match list(&test["exp_alerts"]).is_empty() {
            true => is_silent = true,
            false => fires = true,
        }
    }
    let needed = [(fires, "fires"), (is_silent, "stays silent")];
    let missing = needed.into_iter().filter(|(is_there, _)| !is_there);
    missing.map(|(_, what)| format!("no test in which {alert} {what}")).collect()
}

fn of_dashboard(dashboard: &Dashboard) -> Vec<String> {
    let name = dashboard.name();
    let mut problems = Vec::new();
    for field in ["uid", "title", "description"] {
        if dashboard.json[field].as_str().is_none_or(str::is_empty) {
            problems.push(format!("{name} has no {field}"));
        }
    }
    let variables = dashboard.json["templating"]["list"].as_array().into_iter().flatten();
    let variables: Vec<_> = variables.filter_map(|it| it["name"].as_str()).collect();
    for wanted in ["datasource", "namespace"] {
        if !variables.contains(&wanted) {
            problems.push(format!("{name} has no variable {wanted}"));
        }
    }
    problems.extend(dashboard.panels().into_iter().flat_map(|panel| of_panel(&name, panel)));
    problems
}

fn of_panel(dashboard: &str, panel: &Value) -> Vec<String> {
    let title = panel["title"].as_str().unwrap_or_default();
    let needed = [
        ("title", &panel["title"]),
        ("description", &panel["description"]),
        ("unit", &panel["fieldConfig"]["defaults"]["unit"]),
    ];
    let missing = needed.into_iter().filter(|(_, value)| value.as_str().is_none_or(str::is_empty));
    let mut problems: Vec<_> =
        missing.map(|(what, _)| format!("{dashboard}: panel '{title}' has no {what}")).collect();
    let targets = panel["targets"].as_array().cloned().unwrap_or_default();
    if targets.is_empty() {
        problems.push(format!("{dashboard}: panel '{title}' shows nothing"));
    }
    let sources = targets.iter().map(|target| &target["datasource"]["uid"]);
    if sources.chain([&panel["datasource"]["uid"]]).any(|uid| uid != "${datasource}") {
        problems.push(format!("{dashboard}: panel '{title}' is not of ${{datasource}}"));
    }
    problems
}

fn twice<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let repeated = names.filter(|name| !seen.insert(*name));
    repeated.map(|name| format!("there are two of {what} {name}")).collect()
}

/// The sections of a page as links name them.
fn headings(page: &str) -> BTreeSet<String> {
    let titles = page.lines().filter(|line| line.starts_with('#'));
    let titles = titles.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let is_kept = |it: &char| it.is_alphanumeric() || matches!(it, '-' | '_' | ' ');
    titles
        .map(|title| title.chars().filter(is_kept).collect::<String>().replace(' ', "-"))
        .collect()
}

#[cfg(test)]
mod tests;
