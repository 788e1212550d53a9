//! Dependencies point one way.

use std::collections::BTreeSet;

use super::Problems;
use crate::metadata::{Metadata, Package};

/// What each crate may use of ours. Controllers share a row, so that none can use another.
const LAYERS: [(&str, &[&str]); 9] = [
    ("otctl-types", &[]),
    ("policy", &[]),
    ("local-cluster", &[]),
    ("image-server", &[]),
    ("otctl-kit", &["otctl-types"]),
    ("otctl-queue", &["otctl-kit", "otctl-types", "policy"]),
    ("disk-importer", &["otctl-types", "policy"]),
    ("testbed", &["otctl-kit", "otctl-types", "policy"]),
    ("-controller", &["otctl-kit", "otctl-queue", "otctl-types", "policy"]),
];
/// Those that put everything together.
const TOPS: [&str; 4] = ["bench", "fuzz", "otctl", "xtask"];
/// What a pure crate must not use: it could then read or wait.
const IMPURE: [(&str, &[&str]); 2] = [
    ("policy", &["kube", "k8s-openapi", "tokio", "reqwest", "futures"]),
    ("otctl-types", &["tokio", "reqwest", "futures"]),
];

pub(super) fn check(metadata: &Metadata) -> Problems {
    let members: BTreeSet<_> = metadata.members().map(|package| package.name.as_str()).collect();
    metadata.members().flat_map(|package| problems_of(package, &members)).collect()
}

fn problems_of(package: &Package, members: &BTreeSet<&str>) -> Problems {
    let name = package.name.as_str();
    let used: Vec<_> =
        package.dependencies.iter().filter(|it| !it.is_dev()).map(|it| it.name.as_str()).collect();
    let mut problems = Vec::new();
    for (pure, banned) in IMPURE {
        let banned = used.iter().filter(|used| name == pure && banned.contains(*used));
        problems
            .extend(banned.map(|used| format!("{name} must stay pure and must not use {used}")));
    }
    if TOPS.contains(&name) {
        return problems;
    }
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| name.ends_with(layer)) else {
        problems.push(format!("{name} has no layer: add it to LAYERS in xtask/src/tidy/layers.rs"));
        return problems;
    };
    let ours = used.iter().filter(|used| members.contains(*used) && !allowed.contains(used));
    problems.extend(ours.map(|used| format!("{name} must not use {used}")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The problems of a package that uses others, as its manifest would say it.
    fn problems(name: &str, used: &[(&str, Option<&str>)]) -> Problems {
        let dependencies: Vec<_> = used
            .iter()
            .map(|(name, kind)| serde_json::json!({"name": name, "kind": kind}))
            .collect();
        let package = serde_json::json!({
            "id": name, "name": name, "version": "1.0.0", "license": null, "source": null, "dependencies": dependencies,
        });
        let members = [
            "policy",
            "otctl-kit",
            "diskimage-controller",
            "datasync-controller",
            "testbed",
            "otctl",
        ];
        problems_of(&serde_json::from_value(package).unwrap(), &BTreeSet::from(members))
    }

    #[test]
    fn a_controller_uses_the_kit_and_no_other_controller() {
        let used =
            [("otctl-kit", None), ("policy", None), ("kube", None), ("testbed", Some("dev"))];
        assert_eq!(problems("diskimage-controller", &used), Problems::new());
        let found = problems("diskimage-controller", &[("datasync-controller", None)]);
        assert_eq!(found, ["diskimage-controller must not use datasync-controller"]);
    }

    #[test]
    fn test_crates_are_for_tests() {
        assert_eq!(problems("otctl-kit", &[("testbed", None)]), ["otctl-kit must not use testbed"]);
    }

    #[test]
    fn policy_stays_pure() {
        assert_eq!(
            problems("policy", &[("tokio", None)]),
            ["policy must stay pure and must not use tokio"]
        );
        assert_eq!(problems("policy", &[("tokio", Some("dev"))]), Problems::new());
    }

    #[test]
    fn a_new_crate_needs_a_layer() {
        assert_eq!(problems("stray", &[]).len(), 1);
        assert_eq!(problems("otctl", &[("diskimage-controller", None)]), Problems::new());
    }
}
