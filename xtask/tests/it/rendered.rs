//! What can be said of the charts without a cluster.

use clap::Parser as _;
use diskimage_controller::rbac::RIGHTS;
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::{Value, json};
use xtask::charts::{self, NAMESPACE};

use crate::support::{every_rendering, objects, of_kind};

const CONTROLLER: &str = "diskimage-controller";

fn rules(object: &Value) -> Vec<PolicyRule> {
    serde_json::from_value(object["rules"].clone()).unwrap()
}

#[test]
fn no_rule_is_wholesale_or_leads_to_secrets() {
    let mut seen = 0;
    for (rendering, objects) in every_rendering() {
        for role in of_kind(&objects, "Role").into_iter().chain(of_kind(&objects, "ClusterRole")) {
            for rule in rules(role) {
                let text = serde_json::to_string(&rule).unwrap();
                assert!(!text.contains('*') && !text.contains("secrets"), "{rendering}: {text}");
                for verb in ["escalate", "bind", "impersonate"] {
                    assert!(!rule.verbs.iter().any(|it| it == verb), "{rendering}: {text}");
                }
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "only {seen} rules were looked at");
}

#[test]
fn the_roles_are_the_list_in_the_code() {
    let objects = objects(CONTROLLER, None, &["policy.name=limits", "policy.namespace=conf"]);
    assert_eq!(rules(of_kind(&objects, "ClusterRole")[0]), RIGHTS.cluster_rules());
    let roles = of_kind(&objects, "Role");
    let [installation, policy] = roles[..] else { panic!("{roles:?}") };
    assert_eq!(installation["metadata"]["namespace"], NAMESPACE);
    assert_eq!(rules(installation), RIGHTS.installation_rules());
    assert_eq!(policy["metadata"]["namespace"], "conf");
    assert_eq!(rules(policy), RIGHTS.policy_rules("limits"));
}

#[test]
fn every_role_is_bound_to_the_one_account() {
    let mut seen = 0;
    for (rendering, objects) in every_rendering() {
        // What a hook runs has an account of its own.
        let hook = |object: &Value| object["metadata"]["annotations"]["helm.sh/hook"].clone();
        let accounts = of_kind(&objects, "ServiceAccount");
        let bindings = of_kind(&objects, "RoleBinding")
            .into_iter()
            .chain(of_kind(&objects, "ClusterRoleBinding"));
        for binding in bindings {
            let mut alike = accounts.iter().filter(|it| hook(it) == hook(binding));
            let (Some(account), None) = (alike.next(), alike.next()) else {
                panic!("{rendering}: {binding}")
            };
            let account = &account["metadata"];
            let subjects = json!([{"kind": "ServiceAccount", "name": account["name"], "namespace": account["namespace"]}]);
            assert_eq!(binding["subjects"], subjects, "{rendering}");
            seen += 1;
        }
    }
    assert!(seen > 10, "only {seen} bindings were looked at");
}

#[test]
fn pods_meet_the_restricted_level_and_have_bounds() {
    for (rendering, objects) in every_rendering() {
        let deployments = of_kind(&objects, "Deployment");
        for workload in deployments.iter().chain(&of_kind(&objects, "Job")) {
            let pod = &workload["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{rendering}");
            assert_eq!(
                pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault",
                "{rendering}"
            );
            for field in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod[field].is_null(), "{rendering}: {field}");
            }
            let containers = pod["containers"].as_array().unwrap();
            assert_eq!(containers.len(), 1, "{rendering}");
            expect_restricted(&containers[0], &rendering);
        }
        for deployment in deployments {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
                let get = &container[probe]["httpGet"];
                assert_eq!(
                    (get["path"].as_str(), get["port"].as_str()),
                    (Some(path), Some("metrics")),
                    "{rendering}"
                );
            }
        }
    }
}

fn expect_restricted(container: &Value, rendering: &str) {
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false, "{rendering}");
    assert_eq!(security["readOnlyRootFilesystem"], true, "{rendering}");
    assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{rendering}");
    assert!(container["resources"]["limits"]["memory"].is_string(), "{rendering}");
    assert!(container["resources"]["requests"]["cpu"].is_string(), "{rendering}");
}

/// What the kubelet makes of the arguments of the only container.
fn arguments(objects: &[Value]) -> Vec<String> {
    let container = &of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0];
    let arguments =
        container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    arguments.map(|argument| argument.replace("$(KUBERNETES_SERVICE_HOST)", "10.96.0.1")).collect()
}

fn parse(objects: &[Value]) -> diskimage_controller::Args {
    let arguments = arguments(objects);
    let line = std::iter::once(CONTROLLER.to_owned()).chain(arguments.clone());
    diskimage_controller::Args::try_parse_from(line)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

#[test]
fn the_controller_takes_every_argument_of_its_chart() {
    let args = parse(&objects(CONTROLLER, None, &[]));
    assert_eq!(args.kit.listen.port(), 8080);
    assert_eq!(args.kit.policy().to_string(), "sync-operator/sync-operator-policy");
    assert_eq!(args.settings.refused_addresses, ["10.96.0.1".parse::<std::net::IpAddr>().unwrap()]);
    args.kit.timing().unwrap();

    let full = parse(&objects(CONTROLLER, Some(&charts::full_values(CONTROLLER)), &[]));
    assert_eq!(full.kit.listen.port(), 9090);
    assert_eq!(full.kit.policy().to_string(), "sync-operator-policies/limits");
    assert_eq!(full.kit.log_level, "info,otctl_kit=debug");
    assert!(full.kit.debug_state_anywhere);
    assert!(full.settings.importer_image.starts_with("registry.example.com/disk-importer@sha256:"));
    assert_eq!(full.settings.importer_port, 9000);
    assert_eq!(full.settings.job_ttl_seconds, 600);
    assert_eq!(full.settings.refused_addresses.len(), 3);
    full.kit.timing().unwrap();
}

#[test]
fn a_controllers_defaults_are_those_of_its_chart() {
    let from_chart = parse(&objects(CONTROLLER, None, &[]));
    let from_code = diskimage_controller::Args::try_parse_from([CONTROLLER]).unwrap();
    assert_eq!(from_chart.settings.importer_image, from_code.settings.importer_image);
    assert_eq!(from_chart.settings.importer_memory, from_code.settings.importer_memory);
    assert_eq!(from_chart.settings.importer_port, from_code.settings.importer_port);
    assert_eq!(from_chart.settings.job_ttl_seconds, from_code.settings.job_ttl_seconds);
    assert_eq!(from_chart.kit.policy(), from_code.kit.policy());
    assert_eq!(from_chart.kit.lease_duration, from_code.kit.lease_duration);
    assert_eq!(from_chart.kit.log_level, from_code.kit.log_level);
}

fn refusal(set: &str) -> String {
    charts::render(&charts::helm().unwrap(), CONTROLLER, None, &[set]).unwrap_err().to_string()
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_its_path() {
    let refusal = refusal("replicaCount=three");
    assert!(refusal.contains("replicaCount") && refusal.contains("want integer"), "{refusal}");
}

#[test]
fn a_value_that_does_not_exist_is_refused() {
    let refusal = refusal("replicas=2");
    assert!(refusal.contains("replicas"), "{refusal}");
}

#[test]
fn several_replicas_need_the_lease() {
    let helm = charts::helm().unwrap();
    let two = ["replicaCount=2", "leaderElection.enabled=false"];
    let refusal = charts::render(&helm, CONTROLLER, None, &two).unwrap_err().to_string();
    assert!(refusal.contains("needs leaderElection.enabled"), "{refusal}");
    assert!(charts::render(&helm, CONTROLLER, None, &["replicaCount=2"]).is_ok());
}

#[test]
fn every_value_is_known_to_the_schema_and_set_by_the_full_values() {
    for chart in charts::CHARTS {
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
        let values: Value =
            serde_saphyr::from_str(&read(charts::folder(chart).join("values.yaml"))).unwrap();
        let full: Value = serde_saphyr::from_str(&read(charts::full_values(chart))).unwrap();
        let schema: Value =
            serde_json::from_str(&read(charts::folder(chart).join("values.schema.json"))).unwrap();
        for (name, value) in values.as_object().unwrap() {
            let known = &schema["properties"][name];
            assert!(known.is_object(), "{chart}: {name} is not in the schema");
            assert!(!full[name].is_null(), "{chart}: {name} is not in the full values");
            // Inside free-form values the keys are Kubernetes'.
            for inner in value.as_object().into_iter().flatten().map(|(inner, _)| inner) {
                if known["properties"].is_object() {
                    assert!(
                        known["properties"][inner].is_object(),
                        "{chart}: {name}.{inner} is not in the schema"
                    );
                    assert!(
                        !full[name][inner].is_null(),
                        "{chart}: {name}.{inner} is not in the full values"
                    );
                }
            }
        }
    }
}

#[test]
fn definitions_can_be_left_out_and_outlive_the_release_unless_told_otherwise() {
    let kept = objects("otctl-crds", None, &[]);
    assert_eq!(kept.len(), otctl_types::crds().len());
    for crd in &kept {
        assert_eq!(crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    for crd in objects("otctl-crds", None, &["crds.keep=false"]) {
        assert!(crd["metadata"]["annotations"].is_null());
    }
    assert!(objects("otctl-crds", None, &["crds.enabled=false"]).is_empty());
}
