//! Only the executor, the ledger and the lease write to the API server; a controller decides.

use super::Problems;
use crate::repository::Source;

/// What a write is made of: the client's parameters, and the kit's own requests.
const TOKENS: [&str; 10] = [
    "PostParams",
    "PatchParams",
    "DeleteParams",
    "Request::Create",
    "Request::Apply",
    "Request::Replace",
    "Request::PatchStatus",
    "Request::Strip",
    "Request::Delete",
    "replace_status(",
];
/// Files and folders of the kit that write, and `cluster.rs`, which says what a request is.
const WRITERS: [&str; 6] =
    ["cluster.rs", "kube_cluster.rs", "commit", "ledger.rs", "leader", "commit.rs"];
/// Lines elsewhere that may write, and why: the Event of a pass that failed is no part of a plan.
const EXCEPTIONS: [(&str, &str); 1] =
    [("crates/otctl-kit/src/driver.rs", "Request::Create(erase(&event))")];

pub(super) fn check(sources: &[Source]) -> Problems {
    let watched = sources.iter().filter(|source| !source.is_test() && must_not_write(&source.path));
    watched.flat_map(problems_of).collect()
}

fn must_not_write(path: &str) -> bool {
    if let Some(inner) = path.strip_prefix("crates/otctl-kit/src/") {
        let first = inner.split('/').next().unwrap_or_default();
        return !WRITERS
            .iter()
            .any(|writer| first == *writer || first.strip_suffix(".rs") == Some(writer));
    }
    path.split('/').nth(1).is_some_and(|name| name.ends_with("-controller"))
}

fn problems_of(source: &Source) -> Problems {
    let found = source.code().filter_map(|(number, line)| {
        let token = TOKENS.iter().find(|token| line.contains(*token))?;
        let path = &source.path;
        if EXCEPTIONS.iter().any(|(file, write)| path == file && line.contains(write)) {
            return None;
        }
        Some(format!(
            "{path}:{number} writes ({token}): return it in a plan, which `commit` carries out"
        ))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> usize {
        check(&[Source { path: path.to_owned(), text: text.to_owned() }]).len()
    }

    #[test]
    fn writers_write_and_nobody_else_does() {
        let write = "let created = api.create(&PostParams::default(), &job).await;";
        assert_eq!(problems("crates/otctl-kit/src/commit/writer.rs", write), 0);
        assert_eq!(problems("crates/otctl-kit/src/leader/elector.rs", write), 0);
        assert_eq!(problems("crates/otctl-kit/src/kube_cluster.rs", write), 0);
        assert_eq!(problems("crates/otctl-kit/src/driver.rs", write), 1);
        assert_eq!(problems("crates/diskimage-controller/src/image.rs", write), 1);
        assert_eq!(problems("crates/diskimage-controller/tests/it/main.rs", write), 0);
        assert_eq!(problems("crates/local-cluster/src/node/mod.rs", write), 0);
    }

    #[test]
    fn a_comment_does_not_write() {
        assert_eq!(
            problems("crates/diskimage-controller/src/image.rs", "/// Never with PostParams.\n"),
            0
        );
    }
}
