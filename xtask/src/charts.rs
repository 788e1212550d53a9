//! The charts through `helm`. What only an API server can say of them is in `tests/it`.

use std::path::PathBuf;

use anyhow::Context as _;
use local_cluster::Progress;
use local_cluster::programs::{Program, Sources};

use crate::command::Run;
use crate::repository;

/// A chart, in the order in which they are installed.
pub const CHARTS: [&str; 3] = ["otctl-crds", "diskimage-controller", "workspace-controller"];
/// Kinds of the Prometheus operator, which a chart makes only where they are installed.
pub const MONITORING: [&str; 2] =
    ["monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule"];
/// The namespace that the documentation uses.
pub const NAMESPACE: &str = "sync-operator";

/// Helm, found or built.
///
/// # Errors
/// When it cannot be had.
pub fn helm() -> anyhow::Result<PathBuf> {
    let progress = Progress::new(|line| println!("{line}"));
    let mut found = Sources::from_env()?.find_or_build(&[Program::Helm], &progress)?;
    found.remove(&Program::Helm).context("helm was neither found nor built")
}

/// Where a chart is.
#[must_use]
pub fn folder(chart: &str) -> PathBuf {
    repository::root().join("charts").join(chart)
}

/// A file in which every value of a chart is set.
#[must_use]
pub fn full_values(chart: &str) -> PathBuf {
    folder(chart).join("ci/full-values.yaml")
}

/// Lints and renders every chart, with its defaults and with every value set.
///
/// # Errors
/// When a chart has a fault.
pub fn lint() -> anyhow::Result<()> {
    let helm = helm()?;
    for chart in CHARTS {
        let folder = folder(chart);
        Run::new(&helm).args(["lint", "--strict"]).path(&folder).run()?;
        Run::new(&helm)
            .args(["lint", "--strict", "--values"])
            .path(&full_values(chart))
            .path(&folder)
            .run()?;
        let full = full_values(chart);
        let renderings = [
            ("defaults", None, &[][..]),
            ("every value", Some(&full), &[]),
            ("every value and the Prometheus operator", Some(&full), &MONITORING),
        ];
        for (what, values, kinds) in renderings {
            let rendered = render_on(kinds, &helm, chart, values.map(PathBuf::as_path), &[])?;
            println!("{chart}: {} lines with {what}", rendered.lines().count());
        }
    }
    Ok(())
}

/// The manifests of a chart as they would be installed, with a values file and single settings.
///
/// # Errors
/// When the chart or its values are refused.
pub fn render(
    helm: &std::path::Path,
    chart: &str,
    values: Option<&std::path::Path>,
    set: &[&str],
) -> anyhow::Result<String> {
    render_on(&[], helm, chart, values, set)
}

/// The same for a cluster that has these kinds too.
///
/// # Errors
/// When the chart or its values are refused.
pub fn render_on(
    kinds: &[&str],
    helm: &std::path::Path,
    chart: &str,
    values: Option<&std::path::Path>,
    set: &[&str],
) -> anyhow::Result<String> {
    let mut run = Run::new(helm).args(["template", chart, "--namespace", NAMESPACE]);
    for kind in kinds {
        run = run.args(["--api-versions", kind]);
    }
    if let Some(values) = values {
        run = run.args(["--values"]).path(values);
    }
    for setting in set {
        run = run.args(["--set", setting]);
    }
    run.path(&folder(chart)).output()
}
