//! What a chart makes for whoever watches it: nothing unless asked, nothing of a kind that is not there, and the files as
//! they are.

use serde_json::{Value, json};
use xtask::charts::{self, CHARTS};

use crate::support::{monitored_objects, objects, of_kind};

const KINDS: [&str; 3] = ["ServiceMonitor", "PrometheusRule", "ConfigMap"];
const ALL: [&str; 4] = [
    "metrics.enabled=true",
    "metrics.serviceMonitor.enabled=true",
    "metrics.prometheusRule.enabled=true",
    "metrics.dashboards.enabled=true",
];

/// Charts of controllers.
fn controllers() -> impl Iterator<Item = &'static str> {
    CHARTS.into_iter().filter(|chart| *chart != "otctl-crds")
}

fn made(objects: &[Value]) -> Vec<&str> {
    KINDS.into_iter().chain(["Service"]).filter(|kind| !of_kind(objects, kind).is_empty()).collect()
}

fn file(chart: &str, path: &str) -> String {
    std::fs::read_to_string(charts::folder(chart).join("files").join(path)).unwrap()
}

#[test]
fn nothing_is_made_unless_it_is_asked_for() {
    for chart in controllers() {
        let with = |set: &[&str]| made(&monitored_objects(chart, None, set)).join(" ");
        assert_eq!(with(&[]), "", "{chart}");
        assert_eq!(with(&ALL[1..]), "", "{chart}: not without metrics.enabled");
        assert_eq!(with(&ALL[..1]), "Service", "{chart}");
        for (value, kind) in ALL[1..].iter().zip(KINDS) {
            assert_eq!(with(&[ALL[0], value]), format!("{kind} Service"), "{chart}: {value}");
        }
    }
}

#[test]
fn nothing_is_made_of_a_kind_that_is_not_installed() {
    for chart in controllers() {
        assert_eq!(made(&objects(chart, None, &ALL)), ["ConfigMap", "Service"], "{chart}");
    }
}

#[test]
fn the_monitor_finds_the_service_and_its_port() {
    for chart in controllers() {
        let objects = monitored_objects(chart, None, &ALL);
        let [monitor, service] =
            ["ServiceMonitor", "Service"].map(|kind| of_kind(&objects, kind)[0]);
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        assert!(wanted.len() > 1, "{chart}: {wanted:?}");
        for (label, value) in wanted {
            assert_eq!(&service["metadata"]["labels"][label], value, "{chart}");
        }
        assert_eq!(monitor["metadata"]["namespace"], service["metadata"]["namespace"], "{chart}");
        let job = monitor["spec"]["jobLabel"].as_str().unwrap();
        assert_eq!(service["metadata"]["labels"][job], chart, "the job is named like the program");
        let [endpoint] = &monitor["spec"]["endpoints"].as_array().unwrap()[..] else {
            panic!("{monitor}")
        };
        assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"], "{chart}");
        assert_eq!((&endpoint["path"], &endpoint["interval"]), (&json!("/metrics"), &json!("30s")));
    }
}

#[test]
fn alerts_and_dashboards_are_the_files() {
    for chart in controllers() {
        let objects = monitored_objects(chart, None, &ALL);
        let rules: Value =
            serde_saphyr::from_str(&file(chart, &format!("alerts/{chart}.yaml"))).unwrap();
        assert_eq!(of_kind(&objects, "PrometheusRule")[0]["spec"], rules, "{chart}");
        let map = of_kind(&objects, "ConfigMap")[0];
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1", "{chart}");
        let boards = map["data"].as_object().unwrap();
        assert!(!boards.is_empty(), "{chart}");
        for (name, text) in boards {
            let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let expected = file(chart, &format!("dashboards/{name}"));
            assert_eq!(parsed(text.as_str().unwrap()), parsed(&expected), "{chart}: {name}");
        }
    }
}

#[test]
fn labels_that_a_prometheus_looks_for_are_set() {
    for chart in controllers() {
        let objects = monitored_objects(chart, Some(&charts::full_values(chart)), &[]);
        for kind in KINDS.iter().filter(|kind| **kind != "ConfigMap") {
            let labels = &of_kind(&objects, kind)[0]["metadata"]["labels"];
            assert_eq!(labels["release"], "kube-prometheus-stack", "{chart}: {kind}");
        }
    }
}
