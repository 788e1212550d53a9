//! Nothing turns verification of certificates off.

use super::Problems;
use crate::repository::Source;

/// Ways of the libraries in use.
const TOKENS: [&str; 4] = [
    "accept_invalid_certs",
    "danger_accept_invalid",
    "set_certificate_verifier",
    "insecure-skip-tls-verify",
];
/// This file names them.
const HERE: &str = "xtask/src/tidy/transport.rs";
/// A kubelet's probes verify nobody, and so do those of the nodes that stand for one; nothing that is installed uses it.
const PROBES: &str = "crates/local-cluster/src/node/probes/attempt.rs";

pub(super) fn check(sources: &[Source]) -> Problems {
    let watched = sources
        .iter()
        .filter(|source| !source.is_test() && ![HERE, PROBES].contains(&source.path.as_str()));
    let found = watched.flat_map(|source| {
        source.code().filter_map(move |(number, line)| {
            let token = TOKENS.iter().find(|token| line.contains(*token))?;
            Some(format!("{}:{number} turns verification off ({token})", source.path))
        })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verification_stays_on() {
        let source = |path: &str| Source {
            path: path.to_owned(),
            text: "builder.danger_accept_invalid_certs(true)".to_owned(),
        };
        assert_eq!(check(&[source("crates/disk-importer/src/client.rs")]).len(), 1);
        assert_eq!(check(&[source("crates/disk-importer/tests/it/main.rs")]), Problems::new());
    }
}
