//! Every right of this controller. The chart's roles are generated from this list (`cargo xtask codegen`), integration
//! tests run under it, and there is no right on Secrets: import pods mount them, the controller never reads one.

use otctl_kit::rbac::{Rights, Rule};
use otctl_types::names::{DISKIMAGE_CONTROLLER, GROUP, IMAGE_QUEUE};

/// What the controller may do, and nothing else.
pub const RIGHTS: Rights = Rights {
    cluster: &[
        Rule {
            group: GROUP,
            resources: &["vmdiskimages"],
            names: &[],
            verbs: &["get", "list", "watch"],
            because: "images are what it works on; a slot is freed after a consistent read",
        },
        Rule {
            group: GROUP,
            resources: &["vmdiskimages/status"],
            names: &[],
            verbs: &["patch"],
            because: "tickets, attempts and conditions stand there",
        },
        Rule {
            group: GROUP,
            resources: &["vmdiskimages/finalizers"],
            names: &[],
            verbs: &["update"],
            because: "children block their owner's deletion, which OwnerReferencesPermissionEnforcement guards",
        },
        Rule {
            group: GROUP,
            resources: &["admissionqueues"],
            names: &[IMAGE_QUEUE],
            verbs: &["get", "list", "watch", "create", "patch"],
            because: "the ledger is read, and made by an apply of its name alone",
        },
        Rule {
            group: GROUP,
            resources: &["admissionqueues/status"],
            names: &[IMAGE_QUEUE],
            verbs: &["update"],
            because: "slots are taken and given back by compare-and-swap",
        },
        Rule {
            group: "batch",
            resources: &["jobs"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "probes and imports run as Jobs, created suspended and started by an apply",
        },
        Rule {
            group: "",
            resources: &["pods"],
            names: &[],
            verbs: &["list", "watch", "delete"],
            because: "how an attempt ended, and whether anything of it still runs, is told by its pod; one that has ended and \
                      that no Job owns is taken away, since it keeps claims from going",
        },
        Rule {
            group: "",
            resources: &["persistentvolumeclaims"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "the volume and the scratch space of an image; a finished volume is marked with its checksum",
        },
        Rule {
            group: "snapshot.storage.k8s.io",
            resources: &["volumesnapshots"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "delete"],
            because: "the result of an image; one that failed is replaced",
        },
        Rule {
            group: "snapshot.storage.k8s.io",
            resources: &["volumesnapshotcontents"],
            names: &[],
            verbs: &["get"],
            because: "a snapshot is Ready only when it and its content point at each other",
        },
        Rule {
            group: "snapshot.storage.k8s.io",
            resources: &["volumesnapshotclasses"],
            names: &[],
            verbs: &["list", "watch"],
            because: "a class that is missing, or of another driver than the volume, is said before the download",
        },
        Rule {
            group: "storage.k8s.io",
            resources: &["storageclasses"],
            names: &[],
            verbs: &["list", "watch"],
            because: "a class that is missing is said before the download",
        },
        Rule {
            group: "events.k8s.io",
            resources: &["events"],
            names: &[],
            verbs: &["create"],
            because: "users read what happened in `kubectl describe`",
        },
    ],
    served: &[],
    events: &[],
    installation: &[Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[DISKIMAGE_CONTROLLER],
        verbs: &["get", "create", "patch", "update"],
        because: "one process works at a time; the lease is made by an apply of its name alone and changed by PUT",
    }],
    policy: &["get", "list", "watch"],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> impl Iterator<Item = &'static Rule> {
        RIGHTS.cluster.iter().chain(RIGHTS.installation)
    }

    #[test]
    fn nothing_is_granted_wholesale() {
        for rule in rules() {
            let parts = rule.verbs.iter().chain(rule.resources).chain([&rule.group]);
            assert!(parts.clone().all(|part| !part.contains('*')), "{rule:?}");
            assert!(!rule.because.is_empty(), "{rule:?}");
        }
    }

    #[test]
    fn no_right_leads_to_credentials_or_more_rights() {
        let forbidden = [
            "secrets",
            "serviceaccounts/token",
            "pods/exec",
            "nodes/proxy",
            "roles",
            "clusterroles",
        ];
        for rule in rules() {
            assert!(
                rule.resources.iter().all(|resource| !forbidden.contains(resource)),
                "{rule:?}"
            );
            assert!(
                rule.verbs.iter().all(|verb| !["escalate", "bind", "impersonate"].contains(verb)),
                "{rule:?}"
            );
        }
    }

    #[test]
    fn the_lease_and_the_ledger_are_granted_by_name() {
        for rule in rules() {
            let is_singleton = rule
                .resources
                .iter()
                .any(|it| it.starts_with("admissionqueues") || *it == "leases");
            assert_eq!(is_singleton, !rule.names.is_empty(), "{rule:?}");
        }
    }
}
