//! What we are built from: licences, crates that are banned, and where crates come from. The lists are in `deny.toml`,
//! which cargo-deny reads too where it is installed; it adds advisories, for which it needs the network.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde::Deserialize;

use super::{Problems, licence};
use crate::metadata::{Metadata, Package};

/// The parts of `deny.toml` that are read here.
#[derive(Debug, Deserialize)]
struct Deny {
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
struct Licenses {
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Bans {
    deny: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

pub(super) fn check(metadata: &Metadata, deny: &str) -> anyhow::Result<Problems> {
    let deny: Deny = toml::from_str(deny).context("cannot read deny.toml")?;
    Ok(metadata.packages.iter().flat_map(|package| deny.problems_of(package)).collect())
}

impl Deny {
    fn problems_of(&self, package: &Package) -> Problems {
        let name = format!("{} {}", package.name, package.version);
        let mut problems = Vec::new();
        if let Some(ban) = self.bans.deny.iter().find(|ban| ban.name == package.name) {
            problems.push(format!("{name} is banned: {}", ban.reason));
        }
        let is_allowed = |expression: &str| licence::is_satisfied(expression, &self.licenses.allow);
        match package.license.as_deref() {
            None => problems.push(format!("{name} names no licence")),
            Some(expression) if !is_allowed(expression) => {
                problems.push(format!("{name} has a licence that is not allowed: {expression}"));
            }
            Some(_) => {}
        }
        let source = package.source.as_deref();
        let allowed = |source: &str| {
            self.sources.allow_registry.iter().any(|it| source == format!("registry+{it}"))
        };
        if let Some(source) = source.filter(|source| !allowed(source)) {
            problems.push(format!("{name} comes from {source}"));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str = r#"
        [licenses]
        allow = ["MIT"]
        [bans]
        deny = [{ crate = "openssl-sys", reason = "one TLS" }]
        [sources]
        allow-registry = ["https://example.com/index"]
    "#;

    fn problems(package: &serde_json::Value) -> Problems {
        let metadata = serde_json::json!({"packages": [package], "workspace_members": []});
        check(&serde_json::from_value(metadata).unwrap(), DENY).unwrap()
    }

    fn package(name: &str, license: Option<&str>, source: &str) -> serde_json::Value {
        serde_json::json!({
            "id": name, "name": name, "version": "1.0.0", "license": license, "source": source, "dependencies": [],
        })
    }

    #[test]
    fn a_package_as_it_should_be_is_fine() {
        assert_eq!(
            problems(&package("a", Some("MIT"), "registry+https://example.com/index")),
            Problems::new()
        );
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let here = "registry+https://example.com/index";
        assert_eq!(
            problems(&package("openssl-sys", Some("MIT"), here)),
            ["openssl-sys 1.0.0 is banned: one TLS"]
        );
        assert_eq!(problems(&package("a", Some("GPL-3.0"), here)).len(), 1);
        assert_eq!(problems(&package("a", None, here)), ["a 1.0.0 names no licence"]);
        assert_eq!(problems(&package("a", Some("MIT"), "git+https://example.com/a")).len(), 1);
    }
}
