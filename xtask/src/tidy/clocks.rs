//! Who reads the time: one file of the kit. A decision takes it as an argument.

use super::Problems;
use crate::repository::Source;

/// Ways to read the time of day.
const TIME_OF_DAY: [&str; 3] = ["Timestamp::now", "Zoned::now", "SystemTime::now"];
/// Ways to measure time, which a pure file does not do either.
const MEASURING: [&str; 2] = ["Instant::now", ".elapsed()"];
/// The one place.
const CLOCK: &str = "crates/otctl-kit/src/clock.rs";
/// Files of a controller that decide or build.
const PURE_FILES: [&str; 3] = ["decide", "verdict", "status"];

pub(super) fn check(sources: &[Source]) -> Problems {
    sources.iter().filter(|source| !source.is_test()).flat_map(problems_of).collect()
}

fn problems_of(source: &Source) -> Problems {
    let mut tokens = Vec::new();
    if has_a_clock(&source.path) && source.path != CLOCK {
        tokens.extend(TIME_OF_DAY);
    }
    if is_pure(&source.path) {
        tokens.extend(MEASURING);
    }
    let found = source.code().filter_map(|(number, line)| {
        let token = tokens.iter().find(|token| line.contains(*token))?;
        Some(format!("{}:{number} reads the time ({token}): take it as an argument", source.path))
    });
    found.collect()
}

fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// Crates in which the kit's clock is the only one.
fn has_a_clock(path: &str) -> bool {
    matches!(crate_of(path), "policy" | "otctl-types" | "otctl-kit")
        || crate_of(path).ends_with("-controller")
}

fn is_pure(path: &str) -> bool {
    if crate_of(path) == "policy" {
        return true;
    }
    let is_controller = crate_of(path).ends_with("-controller");
    let mut parts = path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    is_controller && parts.any(|part| PURE_FILES.contains(&part) || part == "children")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[Source { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn one_file_reads_the_time_of_day() {
        let read = "let now = Timestamp::now();";
        assert_eq!(problems(CLOCK, read), 0);
        assert_eq!(problems("crates/otctl-kit/src/driver.rs", read), 1);
        assert_eq!(problems("crates/diskimage-controller/src/image/observe.rs", read), 1);
        assert_eq!(problems("crates/policy/src/retry.rs", read), 1);
        assert_eq!(problems("crates/local-cluster/src/audit.rs", read), 0);
    }

    #[test]
    fn a_decision_measures_nothing() {
        let measure = "let start = Instant::now();";
        assert_eq!(problems("crates/diskimage-controller/src/queue/decide.rs", measure), 1);
        assert_eq!(problems("crates/diskimage-controller/src/children/job.rs", measure), 1);
        assert_eq!(problems("crates/diskimage-controller/src/progress.rs", measure), 0);
        assert_eq!(problems("crates/otctl-kit/src/health.rs", measure), 0);
    }
}
