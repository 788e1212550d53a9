//! What is said of a metric family: its name, type, labels and help, once. The registry, the reference page and the checks
//! of dashboards and alerts all come from it.

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

/// One family, before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// `otctl_<noun>_<unit>`, and `_total` for a counter.
    pub name: &'static str,
    /// What its values are.
    pub kind: Kind,
    /// Names of its labels; the values of each are a closed set.
    pub labels: &'static [&'static str],
    /// A sentence for whoever reads a graph.
    pub help: &'static str,
}

/// What the values of a family are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// It grows until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many were at most as much as each of these.
    Histogram(&'static [f64]),
}

impl Kind {
    /// The word of the text format.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl Family {
    /// A counter.
    #[must_use]
    pub const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Counter, labels, help }
    }

    /// A gauge.
    #[must_use]
    pub const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Gauge, labels, help }
    }

    /// A histogram.
    #[must_use]
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
        buckets: &'static [f64],
    ) -> Self {
        Self { name, kind: Kind::Histogram(buckets), labels, help }
    }

    /// Names under which its values are queried.
    #[must_use]
    pub fn series(&self) -> Vec<String> {
        match self.kind {
            Kind::Counter | Kind::Gauge => vec![self.name.to_owned()],
            Kind::Histogram(_) => {
                ["_bucket", "_sum", "_count"].map(|part| format!("{}{part}", self.name)).to_vec()
            }
        }
    }

    /// Its counters, none of which exists yet.
    ///
    /// # Panics
    /// When it is no counter, or its name or a label is not valid: both are constants.
    #[must_use]
    pub fn counters(&self) -> IntCounterVec {
        assert_eq!(self.kind, Kind::Counter, "{}", self.name);
        IntCounterVec::new(Opts::new(self.name, self.help), self.labels)
            .expect("name and labels are valid constants")
    }

    /// Its gauges, none of which exists yet.
    ///
    /// # Panics
    /// When it is no gauge, or its name or a label is not valid: both are constants.
    #[must_use]
    pub fn gauges(&self) -> IntGaugeVec {
        assert_eq!(self.kind, Kind::Gauge, "{}", self.name);
        IntGaugeVec::new(Opts::new(self.name, self.help), self.labels)
            .expect("name and labels are valid constants")
    }

    /// Its histograms, none of which exists yet.
    ///
    /// # Panics
    /// When it is no histogram, or its name, a label or a bucket is not valid: all are constants.
    #[must_use]
    pub fn histograms(&self) -> HistogramVec {
        let Kind::Histogram(buckets) = self.kind else { panic!("{} is no histogram", self.name) };
        let options = HistogramOpts::new(self.name, self.help).buckets(buckets.to_vec());
        HistogramVec::new(options, self.labels)
            .expect("name, labels and buckets are valid constants")
    }
}
