//! At which level each row of the fault catalogue is shown, read from `tests/CASES.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::repository;

/// What a row of the catalogue is called in `tests/CASES.md`, before its number.
const ROW: &str = "robustness/";
/// The levels, weakest first, each with the paths of its tests. The first that fits counts.
const LEVELS: [(&str, &[&str]); 6] = [
    ("unit", &["/src/"]),
    ("model", &["crates/diskimage-controller/tests/model/", "crates/testbed/tests/lease/"]),
    (
        "world",
        &["crates/diskimage-controller/tests/sim/", "crates/workspace-controller/tests/sim/"],
    ),
    ("program", &["crates/otctl-kit/tests/it/", "crates/disk-importer/tests/it/"]),
    ("proxy", &["crates/otctl/tests/it/faults/"]),
    ("server", &["crates/otctl/tests/it/"]),
];

/// Prints the table.
///
/// # Errors
/// When the cases cannot be read, or one is shown at no known level.
pub fn print() -> anyhow::Result<()> {
    println!("{}", table(&repository::read("tests/CASES.md")?)?);
    Ok(())
}

/// How many tests show each row at each level, as Markdown.
fn table(cases: &str) -> anyhow::Result<String> {
    let mut rows: BTreeMap<u32, [usize; LEVELS.len()]> = BTreeMap::new();
    for line in cases.lines().filter_map(|line| line.strip_prefix("| ")?.strip_prefix(ROW)) {
        let number = line.split(' ').next().unwrap_or_default();
        let row = rows.entry(number.parse()?).or_default();
        let quoted = line.split('`').skip(1).step_by(2);
        for test in quoted.filter(|quoted| quoted.contains(".rs::")) {
            let level = level(test);
            row[level.ok_or_else(|| anyhow::anyhow!("{test} is at no known level"))?] += 1;
        }
    }
    anyhow::ensure!(!rows.is_empty(), "tests/CASES.md has no {ROW} rows");
    let heads = LEVELS.map(|(name, _)| name).join(" | ");
    let mut table = format!("| row | {heads} |\n|---|{}", "---|".repeat(LEVELS.len()));
    for (number, tests) in rows {
        let cells = tests.map(|count| if count == 0 { String::new() } else { count.to_string() });
        let _ = write!(table, "\n| {number} | {} |", cells.join(" | "));
    }
    Ok(table)
}

fn level(test: &str) -> Option<usize> {
    LEVELS.iter().position(|(_, paths)| paths.iter().any(|path| test.contains(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_number_are_added_up() {
        let cases = "| robustness/2 | A of `/livez`. | `crates/otctl/tests/it/faults/a.rs::x`, `crates/b/src/c.rs::y` |\n\
                     | api/typo | B. | `crates/b/src/c.rs::y` |\n\
                     | robustness/2 | C. | `crates/otctl/tests/it/a.rs::z` |\n";
        let table = table(cases).unwrap();
        assert!(table.ends_with("| 2 | 1 |  |  |  | 1 | 1 |"), "{table}");
        assert_eq!(table.lines().count(), 3);
    }

    #[test]
    fn every_row_of_this_repository_has_a_test_at_a_level() {
        let table = table(&repository::read("tests/CASES.md").unwrap()).unwrap();
        let shown = |row: &str| row.split('|').skip(2).any(|cell| !cell.trim().is_empty());
        assert!(table.lines().count() > 40 && table.lines().skip(2).all(shown), "{table}");
    }

    #[test]
    fn a_test_at_no_level_is_named() {
        let error = table("| robustness/2 | A. | `e2e/a.rs::x` |\n").unwrap_err().to_string();
        assert_eq!(error, "e2e/a.rs::x is at no known level");
    }
}
