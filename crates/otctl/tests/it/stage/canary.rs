//! The credentials that every image of every stage carries to its source, and the look that ends every scenario:
//! whatever was logged, written to the API server, measured or traced holds nothing of them.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use testbed::check;

use super::Stage;

/// The Secret that images name unless a scenario says otherwise.
pub(crate) const CREDENTIALS: &str = "credentials";
/// Part of every key and password that a scenario makes up.
const CANARY: &str = "canary";
/// What is in [`CREDENTIALS`]: user and password of web servers, key id and key of stores.
const USER: &str = "canary-user";
const PASSWORD: &str = "canary/sesame+1";
/// How much is shown around what was found.
const AROUND: usize = 120;

impl Stage {
    /// Makes [`CREDENTIALS`] in a namespace that may have them.
    pub(crate) async fn credentials_in(&self, namespace: &str) {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": CREDENTIALS},
            "stringData": {"accessKeyId": USER, "secretKey": PASSWORD},
        }))
        .unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match secrets.create(&PostParams::default(), &secret).await {
            Err(kube::Error::Api(answer)) if answer.is_already_exists() => {}
            made => drop(made.unwrap()),
        }
    }

    /// Fails when anything that was told holds a secret. For whoever runs, metrics are told to a file before.
    pub(super) fn expect_secrets_kept(&self) {
        let mut found = Vec::new();
        for path in files_below(self.cluster().state_dir(), &is_told) {
            let name = path.strip_prefix(self.cluster().state_dir()).unwrap_or(&path).display();
            let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            let lines = text.lines().filter(|line| !line.contains("\"resource\":\"secrets\""));
            found.extend(lines.filter_map(leak).map(|leak| format!("{name}: …{leak}…")));
        }
        found.extend(leak(&self.collector.text()).map(|leak| format!("traces: …{leak}…")));
        check::expect_none(&found);
    }
}

/// What people read: logs of everything, the audit log with all that was written, metrics as they were kept, what pods
/// said and their last words. Not: what holds secrets by its nature, such as keys, the store and mounted volumes.
fn is_told(path: &Path) -> bool {
    let parts: Vec<_> = path.iter().filter_map(|part| part.to_str()).collect();
    parts.contains(&"logs") || path.ends_with("termination-log")
}

fn files_below(directory: &Path, is_wanted: &impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    // What pods leave goes while this looks.
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), is_wanted),
            Ok(kind) if kind.is_file() && is_wanted(&entry.path()) => vec![entry.path()],
            _ => Vec::new(),
        })
        .collect()
}

/// The first secret in a text as it is or in base64, with what is around it.
fn leak(text: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let encoded = [USER, PASSWORD, &format!("{USER}:{PASSWORD}")].map(|secret| {
        let whole = STANDARD.encode(secret);
        // The last characters depend on what follows.
        whole[..whole.len() - 4].to_lowercase()
    });
    let at =
        encoded.iter().map(String::as_str).chain([CANARY]).find_map(|part| lower.find(part))?;
    let from = lower.floor_char_boundary(at.saturating_sub(AROUND));
    let to = lower.ceil_char_boundary((at + AROUND).min(lower.len()));
    Some(lower[from..to].to_owned())
}

#[test]
fn a_secret_is_found_in_whatever_way_it_is_told() {
    let header = format!("authorization: Basic {}", STANDARD.encode(format!("{USER}:{PASSWORD}")));
    let key = format!("data: {}", STANDARD.encode(PASSWORD));
    for told in [header.as_str(), key.as_str(), "key=AKIDCANARY", "as-canary%2Fsesame"] {
        assert!(leak(told).is_some(), "{told}");
    }
    assert_eq!(leak("GET /disk 401 Unauthorized"), None);
}
