//! Gauges that are read where they stand when somebody asks for them: nothing is counted, and series go with the objects.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus::IntGaugeVec;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use super::Family;

type Fill<const N: usize> = Box<dyn Fn(&[IntGaugeVec; N]) + Send + Sync>;

/// Families that are filled at each reading.
pub struct Scraped<const N: usize> {
    fill: Fill<N>,
    /// Emptied and filled at each reading, which one at a time makes.
    families: Mutex<[IntGaugeVec; N]>,
    described: [IntGaugeVec; N],
}

impl<const N: usize> Scraped<N> {
    /// These families, of which `fill` sets what is the case.
    pub fn new(
        families: [Family; N],
        fill: impl Fn(&[IntGaugeVec; N]) + Send + Sync + 'static,
    ) -> Self {
        let described = families.map(|family| family.gauges());
        Self { fill: Box::new(fill), families: Mutex::new(described.clone()), described }
    }
}

impl<const N: usize> Collector for Scraped<N> {
    fn desc(&self) -> Vec<&Desc> {
        self.described.iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.iter().for_each(IntGaugeVec::reset);
        (self.fill)(&families);
        families.iter().flat_map(Collector::collect).collect()
    }
}

impl<const N: usize> fmt::Debug for Scraped<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scraped").field("families", &self.described).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::args::Build;
    use crate::metrics::Metrics;

    const FAMILY: Family = Family::gauge("otctl_test_objects", &["phase"], "Objects by phase.");

    #[test]
    fn a_series_goes_with_what_it_tells() {
        let (phases, metrics) = (Arc::new(AtomicI64::new(2)), Metrics::new(Build::of("test")));
        let asked = phases.clone();
        metrics.register(Scraped::new([FAMILY], move |[family]| {
            let count = asked.load(Ordering::SeqCst);
            ["a", "b"].iter().zip(0..count).for_each(|(phase, _)| {
                family.with_label_values(&[*phase]).set(count);
            });
        }));
        let told = || {
            let text = metrics.render().unwrap();
            let ours = text.lines().filter(|line| line.starts_with("otctl_test_objects"));
            ours.map(str::to_owned).collect::<Vec<_>>()
        };
        let series =
            |phase: &str, count: i64| format!("otctl_test_objects{{phase=\"{phase}\"}} {count}");
        assert_eq!(told(), [series("a", 2), series("b", 2)]);
        phases.store(1, Ordering::SeqCst);
        assert_eq!(told(), [series("a", 1)]);
        phases.store(0, Ordering::SeqCst);
        assert_eq!(told(), [""; 0]);
    }
}
