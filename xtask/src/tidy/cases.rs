//! `tests/CASES.md` promises a test for each case; here the promise is checked: the test is there, and it is a test.

use super::Problems;
use crate::repository::Source;

pub(super) fn check(document: &str, sources: &[Source]) -> Problems {
    let rows = rows(document);
    if rows.is_empty() {
        return vec!["tests/CASES.md has no table of cases".to_owned()];
    }
    rows.iter().flat_map(|row| problems_of(row, sources)).collect()
}

/// The cells of every row of a table but its head.
fn rows(document: &str) -> Vec<Vec<&str>> {
    let lines = document.lines().filter_map(|line| line.strip_prefix('|')?.strip_suffix('|'));
    let rows = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| !cells[0].starts_with("---") && cells[0] != "case").collect()
}

fn problems_of(cells: &[&str], sources: &[Source]) -> Problems {
    let case = cells[0];
    let [_, _, tests] = cells else {
        return vec![format!("case {case}: a row has a case, what is right, and its tests")];
    };
    let named: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
    if named.is_empty() {
        return vec![format!("case {case} names no test")];
    }
    let missing = named.into_iter().filter(|test| !exists(test, sources));
    missing.map(|test| format!("case {case}: there is no test {test}")).collect()
}

/// Whether `path/to/file.rs::name` is a test.
fn exists(test: &str, sources: &[Source]) -> bool {
    let Some((path, name)) = test.split_once("::") else { return false };
    let Some(source) = sources.iter().find(|source| source.path == path) else { return false };
    let name = name.rsplit("::").next().unwrap_or(name);
    let lines: Vec<_> = source.text.lines().map(str::trim).collect();
    let heads = ["fn ", "async fn "].map(|head| format!("{head}{name}("));
    let is_head = |line: &&str| heads.iter().any(|head| line.starts_with(head.as_str()));
    lines.iter().enumerate().any(|(index, line)| is_head(line) && is_marked(&lines[..index]))
}

/// Whether the attributes right above a function make it a test.
fn is_marked(above: &[&str]) -> bool {
    let attributes =
        above.iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
    attributes.clone().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "#[test]\nfn stands() {}\n\n#[tokio::test(start_paused = true)]\n/// Doc.\nasync fn waits() {}\n\nfn helps() {}\n";

    fn problems(row: &str) -> Problems {
        let source = Source { path: "crates/a/tests/it/b.rs".to_owned(), text: SOURCE.to_owned() };
        let document = format!("| case | right | tests |\n|---|---|---|\n{row}\n");
        check(&document, &[source])
    }

    #[test]
    fn a_case_with_its_tests_is_fine() {
        let row = "| 1 | It stands. | `crates/a/tests/it/b.rs::stands`, `crates/a/tests/it/b.rs::waits` |";
        assert_eq!(problems(row), Problems::new());
    }

    #[test]
    fn a_case_whose_test_is_gone_is_named() {
        assert_eq!(problems("| 1 | It stands. | |"), ["case 1 names no test"]);
        for test in [
            "crates/a/tests/it/b.rs::gone",
            "crates/a/tests/it/c.rs::stands",
            "crates/a/tests/it/b.rs::helps",
        ] {
            let expected = format!("case 1: there is no test {test}");
            assert_eq!(problems(&format!("| 1 | It stands. | `{test}` |")), [expected]);
        }
    }

    #[test]
    fn a_document_without_cases_is_a_problem() {
        assert_eq!(check("# Cases\n", &[]).len(), 1);
    }
}
