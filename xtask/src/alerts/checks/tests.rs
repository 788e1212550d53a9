//! That the files are right, and that what is wrong would be found.

use serde_json::json;

use super::*;

#[test]
fn alerts_and_dashboards_are_right() {
    assert_eq!(problems().unwrap(), [""; 0]);
    assert!(
        !documents::rules().unwrap().is_empty() && !documents::dashboards().unwrap().is_empty()
    );
}

fn check_expression(text: &str, problem: Option<&str>) {
    let expression = Expression { place: "here".to_owned(), text: text.to_owned() };
    let found = of_expression(&expression);
    let expected: Vec<_> = problem.iter().map(|problem| format!("here: {problem}")).collect();
    assert_eq!(found, expected, "{text}");
}

#[test]
fn a_metric_that_nobody_registers_is_found() {
    check_expression("max(otctl_images_waiting) > 0", None);
    let unknown = |name: &str| format!("no controller registers {name}");
    check_expression("max(otctl_image_waiting)", Some(&unknown("otctl_image_waiting")));
    check_expression("kube_pod_info", Some(&unknown("kube_pod_info")));
    check_expression("sum(rate(otctl_image_queue_wait_seconds_bucket[5m]))", None);
    check_expression(
        "sum(rate(otctl_image_queue_wait_seconds[5m]))",
        Some(&unknown("otctl_image_queue_wait_seconds")),
    );
    let expression = Expression { place: "here".to_owned(), text: "vector(1)".to_owned() };
    assert_eq!(of_expression(&expression), ["here asks for no metric"]);
}

#[test]
fn replicas_that_are_added_up_the_wrong_way_are_found() {
    let gauge = "otctl_images is a gauge that every replica tells: take the max";
    let counter = "otctl_image_attempts_total counts: take the sum of its rate or increase";
    for text in ["otctl_images", "sum(otctl_images)", "max(rate(otctl_images[5m]))"] {
        check_expression(text, Some(gauge));
    }
    check_expression("sum(max by (phase) (otctl_images))", None);
    for text in [
        "sum(otctl_image_attempts_total)",
        "max(rate(otctl_image_attempts_total[5m]))",
        "rate(otctl_image_attempts_total[5m])",
    ] {
        check_expression(text, Some(counter));
    }
    check_expression("sum(increase(otctl_image_attempts_total[1h]))", None);
    check_expression("count(otctl_build_info)", None);
}

#[test]
fn an_alert_that_tells_too_little_is_found() {
    let headings = headings("# Runbook\n\n## Alerts\n\n### OtctlDown\n");
    let url = format!("{RUNBOOK}otctldown");
    let whole = json!({
        "alert": "OtctlDown", "expr": "up", "labels": {"severity": "critical"},
        "annotations": {"summary": "a", "description": "b", "runbook_url": url},
    });
    let found = |path: &str, value: Value| {
        let mut alert = whole.clone();
        *alert.pointer_mut(path).unwrap() = value;
        of_alert(&serde_json::from_value(alert).unwrap(), &headings)
    };
    assert_eq!(found("/alert", json!("OtctlDown")), [""; 0]);
    assert_eq!(found("/alert", json!("Down")), ["Down does not begin with Otctl"]);
    let severity = "OtctlDown has no severity of critical, warning";
    assert_eq!(found("/labels/severity", json!("page")), [severity]);
    assert_eq!(found("/annotations/summary", json!("")), ["OtctlDown has no summary"]);
    for url in ["otctldown", &format!("{RUNBOOK}otctlup"), "https://elsewhere#otctldown"] {
        let found = found("/annotations/runbook_url", json!(url));
        assert_eq!(
            found,
            ["OtctlDown has no runbook_url at a section of docs/runbook.md"],
            "{url}"
        );
    }
}

#[test]
fn an_alert_without_both_tests_is_found() {
    let test = |alerts: Value| json!({"tests": [{"alert_rule_test": [{"alertname": "A", "exp_alerts": alerts}]}]});
    let (fires, silent) = (test(json!([{"exp_labels": {}}])), test(json!([])));
    assert_eq!(of_tests("A", &[fires.clone(), silent.clone()]), [""; 0]);
    assert_eq!(of_tests("A", &[fires]), ["no test in which A stays silent"]);
    assert_eq!(of_tests("A", &[silent]), ["no test in which A fires"]);
    assert_eq!(of_tests("B", &[]).len(), 2);
}

#[test]
fn a_panel_that_tells_too_little_is_found() {
    let source = json!({"uid": "${datasource}"});
    let whole = json!({
        "title": "a", "description": "b", "datasource": source, "fieldConfig": {"defaults": {"unit": "s"}},
        "targets": [{"expr": "up", "datasource": source}],
    });
    let found = |path: &str, value: Value| {
        let mut panel = whole.clone();
        *panel.pointer_mut(path).unwrap() = value;
        of_panel("d", &panel)
    };
    assert_eq!(found("/title", json!("a")), [""; 0]);
    assert_eq!(found("/description", json!("")), ["d: panel 'a' has no description"]);
    assert_eq!(found("/fieldConfig/defaults/unit", Value::Null), ["d: panel 'a' has no unit"]);
    assert_eq!(found("/targets", json!([])), ["d: panel 'a' shows nothing"]);
    let stranger = ["d: panel 'a' is not of ${datasource}"];
    assert_eq!(found("/datasource/uid", json!("prometheus")), stranger);
    assert_eq!(found("/targets/0/datasource", Value::Null), stranger);
}

#[test]
fn a_section_is_linked_as_github_does() {
    let expected = ["failed-a-person-must-change-something", "otctlimagesfailed"];
    let found =
        headings("## Failed: a person must change something\ntext # no\n### OtctlImagesFailed\n");
    assert_eq!(found, expected.map(str::to_owned).into());
}
