//! The metric families that all controllers have in common, on a registry of their own: no globals, so several
//! controllers live in one process. What only one controller measures is registered by that controller.
//!
//! Every label is a `&'static str` of a closed enum, or a kind that is watched. The name of an object cannot become a label, so the number of
//! series does not grow with what users create.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TEXT_FORMAT,
    TextEncoder,
};

use crate::args::Build;

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = TEXT_FORMAT;

/// A pass reads from memory and makes a few writes of about 2 ms each; the upper end is a deadline or two.
const PASS_BUCKETS_SECONDS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 20.0];

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
            pass_seconds: pass_seconds(),
            passes: counters(
                "otctl_reconcile_total",
                "Passes by how they ended.",
                &["controller", "outcome"],
            ),
            errors: counters(
                "otctl_reconcile_errors_total",
                "Failed passes by cause.",
                &["controller", "category"],
            ),
            overdue: counters(
                "otctl_reconcile_overdue_views_total",
                "Passes that began although a watch had not shown for 5 s what the last one wrote.",
                &["controller"],
            ),
            queue_depth: gauges(
                "otctl_queue_depth",
                "Objects that are due for a pass.",
                &["controller"],
            ),
            requests: counters(
                "otctl_api_requests_total",
                "Requests to the API server.",
                &["verb", "code"],
            ),
            unreadable: gauges(
                "otctl_watch_unreadable_objects",
                "Objects in a state that cannot be read; what was read of them before is used.",
                &["kind"],
            ),
            leader: gauge("otctl_leader", "Whether this process holds the lease and reconciles."),
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

fn pass_seconds() -> HistogramVec {
    let options = HistogramOpts::new(
        "otctl_reconcile_duration_seconds",
        "How long passes took, by how they ended.",
    )
    .buckets(PASS_BUCKETS_SECONDS.to_vec());
    HistogramVec::new(options, &["controller", "outcome"])
        .expect("name, labels and buckets are valid constants")
}

fn counters(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    IntCounterVec::new(Opts::new(name, help), labels).expect("name and labels are valid constants")
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    IntGaugeVec::new(Opts::new(name, help), labels).expect("name and labels are valid constants")
}

fn gauge(name: &str, help: &str) -> IntGauge {
    IntGauge::new(name, help).expect("the name is a valid constant")
}

/// The constant 1 whose labels say what runs.
fn build_labels(build: Build) -> IntGaugeVec {
    let family =
        gauges("otctl_build_info", "What runs; always 1.", &["program", "version", "commit"]);
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
    fn two_registries_do_not_share_series() {
        let (one, other) = (touched(), Metrics::new(Build::of("other")));
        other.leader(false);
        assert!(one.render().unwrap().contains("otctl_leader 1"));
        assert!(other.render().unwrap().contains("otctl_leader 0"));
    }
}
