//! `cargo xtask alerts`: the alerts and dashboards of the charts by Prometheus' own tools, which come with the package
//! `prometheus` of the distribution. What can be said without them is a test of this crate as well, so that
//! `cargo xtask ci` needs no package.

mod checks;
mod documents;
mod expression;
mod live;
mod promtool;

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use otctl_kit::metrics::Kind;
use prometheus::{Registry, TextEncoder};

use self::documents::{Dashboard, Expression, RuleFile};
use self::promtool::Tools;
use crate::parts::{Part, run_all};
use crate::{families, repository};

/// Runs every check.
///
/// # Errors
/// When one fails, or the tools are missing.
pub fn run() -> anyhow::Result<()> {
    let tools = Tools::find()?;
    let folder = folder()?;
    let parts = vec![
        Part::new("files", files),
        Part::new("rules", || tools.check_rules()),
        Part::new("tests of rules", || tools.test_rules()),
        Part::new("expressions", || tools.parse(&expressions()?, &folder)),
        Part::new("families", || {
            let scrape = folder.join("families.txt");
            fs::write(&scrape, every_family()?)?;
            tools.check_metrics(&scrape)
        }),
        Part::new("live", || live::run(&tools, &folder)),
    ];
    run_all("alerts", parts)
}

fn files() -> anyhow::Result<()> {
    let problems = checks::problems()?;
    problems.iter().for_each(|problem| println!("{problem}"));
    anyhow::ensure!(problems.is_empty(), "{} problems", problems.len());
    let alerts: usize = documents::rules()?.iter().map(|file| file.alerts.len()).sum();
    let panels: usize = documents::dashboards()?.iter().map(|it| it.panels().len()).sum();
    println!("{alerts} alerts and {panels} panels are as they should be");
    Ok(())
}

fn expressions() -> anyhow::Result<Vec<Expression>> {
    let (rules, dashboards) = (documents::rules()?, documents::dashboards()?);
    let asked = rules.iter().flat_map(RuleFile::expressions);
    Ok(asked.chain(dashboards.iter().flat_map(Dashboard::expressions)).collect())
}

/// A scrape in which every family has a value.
fn every_family() -> anyhow::Result<String> {
    let registry = Registry::new();
    for family in families::all() {
        let labels = vec!["x"; family.labels.len()];
        match family.kind {
            Kind::Counter => {
                let counters = family.counters();
                counters.with_label_values(&labels).inc();
                registry.register(Box::new(counters))?;
            }
            Kind::Gauge => {
                let gauges = family.gauges();
                gauges.with_label_values(&labels).set(1);
                registry.register(Box::new(gauges))?;
            }
            Kind::Histogram(_) => {
                let histograms = family.histograms();
                histograms.with_label_values(&labels).observe(1.0);
                registry.register(Box::new(histograms))?;
            }
        }
    }
    Ok(TextEncoder::new().encode_to_string(&registry.gather())?)
}

/// An empty folder for what the tools read and write.
fn folder() -> anyhow::Result<PathBuf> {
    let folder = repository::root().join("target/alerts");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}
