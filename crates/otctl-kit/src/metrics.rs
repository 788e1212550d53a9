//! The metric families that all controllers have in common, on a registry of their own: no globals, so several
//! controllers live in one process. What only one controller measures is in a table of its own there, made of the same
//! [`Family`], and registered by that controller.
//!
//! Every label is a `&'static str` of a closed enum, or a kind that is watched. The name of an object cannot become a
//! label, so the number of series does not grow with what users create.

mod families;
mod family;
mod lives;
mod scraped;

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry, TEXT_FORMAT, TextEncoder,
};

pub(crate) use self::families::LOG_LINES_DROPPED;
use self::families::{
    BUILD, ERRORS, LEADER, OVERDUE, PASS_SECONDS, PASSES, QUEUE_DEPTH, REQUESTS, UNREADABLE,
};
pub use self::families::{FAMILIES, PROCESS_FAMILIES};
pub use self::family::{Family, Kind};
pub use self::lives::{Leads, Life, Lives, leads};
pub use self::scraped::Scraped;
use crate::args::Build;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = TEXT_FORMAT;

/// The registry of a process and the families that all controllers have.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pass_seconds: HistogramVec,
    passes: IntCounterVec,
    errors: IntCounterVec,
    overdue: IntCounterVec,
    queue_depth: IntGaugeVec,
    requests: IntCounterVec,
    unreadable: IntGaugeVec,
    leader: IntGauge,
}

impl Metrics {
    /// All families, registered; `build` becomes the labels of `otctl_build_info`.
    #[must_use]
    pub fn new(build: Build) -> Self {
        let registry = Registry::new();
        let metrics = Self {
            pass_seconds: PASS_SECONDS.histograms(),
            passes: PASSES.counters(),
            errors: ERRORS.counters(),
            overdue: OVERDUE.counters(),
            queue_depth: QUEUE_DEPTH.gauges(),
            requests: REQUESTS.counters(),
            unreadable: UNREADABLE.gauges(),
            leader: LEADER.gauges().with_label_values::<&str>(&[]),
            registry,
        };
        metrics.register(metrics.pass_seconds.clone());
        metrics.register(metrics.passes.clone());
        metrics.register(metrics.errors.clone());
        metrics.register(metrics.overdue.clone());
        metrics.register(metrics.queue_depth.clone());
        metrics.register(metrics.requests.clone());
        metrics.register(metrics.unreadable.clone());
        metrics.register(metrics.leader.clone());
        metrics.register(build_labels(build));
        metrics.register(ProcessCollector::for_self());
        metrics
    }

    /// Adds a family of one controller.
    ///
    /// # Panics
    /// When a family of that name is there already: names are constants, so this is found by the first start.
    pub fn register(&self, family: impl Collector + 'static) {
        self.registry
            .register(Box::new(family))
            .expect("each family is registered once, under a valid name");
    }

    /// Passes of `controller` will be counted. Each of its series is there from the start, at zero: one that appears
    /// with its first event shows no growth, and no alert sees it.
    pub fn expect(
        &self,
        controller: &'static str,
        outcomes: &[&'static str],
        categories: &[&'static str],
    ) {
        for outcome in outcomes {
            self.pass_seconds.with_label_values(&[controller, outcome]);
            self.passes.with_label_values(&[controller, outcome]);
        }
        for category in categories {
            self.errors.with_label_values(&[controller, category]);
        }
        self.overdue.with_label_values(&[controller]);
        self.queue_depth.with_label_values(&[controller]);
    }

    /// Counts a pass of `controller` that ended as `outcome`.
    pub fn pass(&self, controller: &'static str, outcome: &'static str, took: Duration) {
        self.pass_seconds.with_label_values(&[controller, outcome]).observe(took.as_secs_f64());
        self.passes.with_label_values(&[controller, outcome]).inc();
    }

    /// Counts a failed pass by the category of its error.
    pub fn error(&self, controller: &'static str, category: &'static str) {
        self.errors.with_label_values(&[controller, category]).inc();
    }

    /// Counts a pass that began on a view older than our own writes, since waiting for it has an end.
    pub fn overdue(&self, controller: &'static str) {
        self.overdue.with_label_values(&[controller]).inc();
    }

    /// Notes how many objects of `controller` are due now.
    pub fn queue_depth(&self, controller: &'static str, due: usize) {
        self.queue_depth
            .with_label_values(&[controller])
            .set(i64::try_from(due).unwrap_or(i64::MAX));
    }

    /// Counts a request to the API server by the status it was answered with; none when no answer came.
    pub fn api_request(&self, verb: &'static str, status: Option<u16>) {
        let code = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.requests.with_label_values(&[verb, code.as_str()]).inc();
    }

    /// Notes how many objects of a watched kind are in a state that cannot be read.
    pub fn unreadable(&self, kind: &str, objects: usize) {
        self.unreadable.with_label_values(&[kind]).set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Notes whether this process leads.
    pub fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
    }

    /// Everything in the text format, see [`CONTENT_TYPE`].
    ///
    /// # Errors
    /// When a registered family is inconsistent, for example has no name.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }
}

/// The constant 1 whose labels say what runs.
fn build_labels(build: Build) -> IntGaugeVec {
    let family = BUILD.gauges();
    family.with_label_values(&[build.program, build.version, build.commit]).set(1);
    family
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn touched() -> Metrics {
        let metrics = Metrics::new(Build::of("test-controller"));
        metrics.pass("image", "changed", Duration::from_millis(3));
        metrics.error("image", "conflict");
        metrics.overdue("image");
        metrics.queue_depth("image", 7);
        metrics.api_request("get", Some(200));
        metrics.api_request("patch", None);
        metrics.unreadable("Job", 2);
        metrics.leader(true);
        metrics
    }

    /// The rules of promtool's `check metrics` that can be broken here.
    fn lint(text: &str) -> Vec<String> {
        let helped: HashSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next())
            .collect();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let mut problems = Vec::new();
        for (name, kind) in types {
            if !helped.contains(name) {
                problems.push(format!("{name} has no HELP"));
            }
            if (kind == "counter") != name.ends_with("_total") {
                problems
                    .push(format!("{name} is a {kind}: counters, and only they, end in _total"));
            }
            if kind == "histogram" && !name.ends_with("_seconds") && !name.ends_with("_bytes") {
                problems.push(format!("{name} does not end in its unit"));
            }
            if !name.starts_with("otctl_") && !name.starts_with("process_") {
                problems.push(format!("{name} has a strange prefix"));
            }
        }
        problems
    }

    #[test]
    fn names_follow_the_conventions() {
        let text = touched().render().unwrap();
        assert_eq!(lint(&text), Vec::<String>::new(), "{text}");
    }

    #[test]
    fn the_lint_finds_what_it_looks_for() {
        let bad = "# TYPE otctl_a counter\n# HELP otctl_b_total x\n# TYPE otctl_b_total gauge\n# HELP c y\n# TYPE c histogram";
        assert_eq!(lint(bad).len(), 5, "{:?}", lint(bad));
    }

    #[test]
    fn every_common_family_is_there_with_its_value() {
        let text = touched().render().unwrap();
        let values: HashMap<&str, &str> =
            text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
        assert_eq!(values["otctl_reconcile_total{controller=\"image\",outcome=\"changed\"}"], "1");
        assert_eq!(
            values["otctl_reconcile_duration_seconds_count{controller=\"image\",outcome=\"changed\"}"],
            "1"
        );
        assert_eq!(
            values["otctl_reconcile_errors_total{category=\"conflict\",controller=\"image\"}"],
            "1"
        );
        assert_eq!(values["otctl_reconcile_overdue_views_total{controller=\"image\"}"], "1");
        assert_eq!(values["otctl_queue_depth{controller=\"image\"}"], "7");
        assert_eq!(values["otctl_api_requests_total{code=\"200\",verb=\"get\"}"], "1");
        assert_eq!(values["otctl_api_requests_total{code=\"none\",verb=\"patch\"}"], "1");
        assert_eq!(values["otctl_watch_unreadable_objects{kind=\"Job\"}"], "2");
        assert_eq!(values["otctl_leader"], "1");
        assert!(text.contains("otctl_build_info{commit="), "{text}");
        assert!(values.contains_key("process_resident_memory_bytes"), "{text}");
    }

    #[test]
    fn the_table_is_what_is_registered() {
        let metrics = touched();
        metrics.register(LOG_LINES_DROPPED.gauges().with_label_values::<&str>(&[]));
        let text = metrics.render().unwrap();
        let told = FAMILIES.iter().chain(&PROCESS_FAMILIES).map(|family| {
            let Family { name, help, .. } = family;
            format!("# HELP {name} {help}\n# TYPE {name} {}\n", family.kind.word())
        });
        let missing: Vec<_> = told.filter(|head| !text.contains(head.as_str())).collect();
        assert_eq!(missing, [""; 0], "{text}");
        let registered = text.lines().filter(|line| line.starts_with("# TYPE ")).count();
        assert_eq!(registered, FAMILIES.len() + PROCESS_FAMILIES.len(), "{text}");
    }

    #[test]
    fn two_registries_do_not_share_series() {
        let (one, other) = (touched(), Metrics::new(Build::of("other")));
        other.leader(false);
        assert!(one.render().unwrap().contains("otctl_leader 1"));
        assert!(other.render().unwrap().contains("otctl_leader 0"));
    }
}
