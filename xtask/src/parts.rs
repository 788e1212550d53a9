//! Named parts of a long run, in order, and how long each took.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// One named part.
pub struct Part<'a> {
    name: String,
    run: Box<dyn Fn() -> anyhow::Result<()> + 'a>,
}

impl<'a> Part<'a> {
    /// A part of that name.
    pub fn new(name: impl Into<String>, run: impl Fn() -> anyhow::Result<()> + 'a) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }
}

struct Ended {
    name: String,
    took: Duration,
    failure: Option<anyhow::Error>,
}

/// What the parts are called, in their order.
#[must_use]
pub fn names<'a>(parts: &'a [Part<'_>]) -> Vec<&'a str> {
    parts.iter().map(|part| part.name.as_str()).collect()
}

/// The parts of these names, in their own order; all of them when no name is given.
///
/// # Errors
/// When there is no part of a name.
pub fn chosen<'a>(parts: Vec<Part<'a>>, wanted: &[String]) -> anyhow::Result<Vec<Part<'a>>> {
    let names = names(&parts);
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        anyhow::bail!("there is no part {unknown}; there are {}", names.join(", "));
    }
    Ok(parts.into_iter().filter(|part| wanted.is_empty() || wanted.contains(&part.name)).collect())
}

/// Runs all parts, also after one has failed, and ends with a table.
///
/// # Errors
/// When a part failed; the error names each that did.
pub fn run_all(what: &str, parts: Vec<Part<'_>>) -> anyhow::Result<()> {
    let ended: Vec<_> = parts.into_iter().map(run).collect();
    println!("\n{}", table(what, &ended));
    let failed: Vec<_> =
        ended.iter().filter(|part| part.failure.is_some()).map(|part| part.name.as_str()).collect();
    anyhow::ensure!(failed.is_empty(), "{what} failed: {}", failed.join(", "));
    Ok(())
}

fn run(part: Part<'_>) -> Ended {
    println!("\n=== {} ===", part.name);
    let start = Instant::now();
    let failure = (part.run)().err();
    if let Some(error) = &failure {
        println!("{} failed: {error:#}", part.name);
    }
    Ended { name: part.name, took: start.elapsed(), failure }
}

fn table(what: &str, ended: &[Ended]) -> String {
    let mut table = format!("{what:<24} {:>9}\n", "took");
    for part in ended {
        let mark = if part.failure.is_some() { "  FAILED" } else { "" };
        let _ = writeln!(table, "{:<24} {:>9}{mark}", part.name, minutes(part.took));
    }
    let total = ended.iter().map(|part| part.took).sum();
    let _ = write!(table, "{:<24} {:>9}", "total", minutes(total));
    table
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1}s", time.as_secs_f64())
    } else {
        format!("{}m {:02}s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_failed_part_is_named_and_does_not_stop_the_others() {
        let ran = Cell::new(0);
        let good = || {
            ran.set(ran.get() + 1);
            Ok(())
        };
        let parts = vec![
            Part::new("first", good),
            Part::new("second", || anyhow::bail!("broken")),
            Part::new("third", good),
        ];
        assert_eq!(run_all("test", parts).unwrap_err().to_string(), "test failed: second");
        assert_eq!(ran.get(), 2);
    }

    #[test]
    fn parts_are_chosen_by_name() {
        let parts = || vec![Part::new("first", || Ok(())), Part::new("second", || Ok(()))];
        let names =
            |parts: Vec<Part<'_>>| parts.into_iter().map(|part| part.name).collect::<Vec<_>>();
        assert_eq!(names(chosen(parts(), &[]).unwrap()), ["first", "second"]);
        assert_eq!(names(chosen(parts(), &["second".to_owned()]).unwrap()), ["second"]);
        let unknown = chosen(parts(), &["third".to_owned()]).err().unwrap();
        assert_eq!(unknown.to_string(), "there is no part third; there are first, second");
    }

    #[test]
    fn times_are_read_by_people() {
        assert_eq!(minutes(Duration::from_millis(1500)), "1.5s");
        assert_eq!(minutes(Duration::from_secs(187)), "3m 07s");
    }
}
