//! Every right of this controller, and of the program that runs before it is removed ([`crate::release`]). The chart's
//! roles are generated from these lists (`cargo xtask codegen`), integration tests run under them. What it makes it makes in the namespaces that the chart lists, and its rights on it hold there
//! alone; there is no right on Secrets: pods name them, the controller never reads one.

use otctl_kit::rbac::{Rights, Rule};
use otctl_types::names::{GROUP, WORKSPACE_CONTROLLER, WORKSPACE_QUEUE};

/// What the controller may do, and nothing else.
pub const RIGHTS: Rights = Rights {
    cluster: &[
        Rule {
            group: GROUP,
            resources: &["workspaces"],
            names: &[],
            verbs: &["get", "list", "watch", "patch"],
            because: "workspaces are what it works on; a finalizer keeps one until its pods are gone, and a slot is freed after \
                      a consistent read",
        },
        Rule {
            group: GROUP,
            resources: &["workspaces/status"],
            names: &[],
            verbs: &["patch"],
            because: "tickets, turns and conditions stand there",
        },
        Rule {
            group: GROUP,
            resources: &["workspaces/finalizers"],
            names: &[],
            verbs: &["update"],
            because: "children block their owner's deletion, which OwnerReferencesPermissionEnforcement guards",
        },
        Rule {
            group: GROUP,
            resources: &["admissionqueues"],
            names: &[WORKSPACE_QUEUE],
            verbs: &["list", "watch", "create", "patch"],
            because: "the ledger is watched, and made by an apply of its name alone",
        },
        Rule {
            group: GROUP,
            resources: &["admissionqueues/status"],
            names: &[WORKSPACE_QUEUE],
            verbs: &["update"],
            because: "slots are taken and given back by compare-and-swap",
        },
    ],
    served: &[
        Rule {
            group: "",
            resources: &["namespaces"],
            names: &[],
            verbs: &["get"],
            because: "nothing is made in a namespace that is being deleted",
        },
        Rule {
            group: GROUP,
            resources: &["vmdiskimages"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "an entry is made from an image; it brings one along, has a share in it, and takes it with it",
        },
        Rule {
            group: "networking.k8s.io",
            resources: &["networkpolicies"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "a workspace is isolated by one, and another's may widen it",
        },
        Rule {
            group: "",
            resources: &["services"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "each entry is reached by one",
        },
        Rule {
            group: "apps",
            resources: &["deployments"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "each container runs as one",
        },
        Rule {
            group: "",
            resources: &["persistentvolumeclaims"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "each machine has a disk of its own, cloned from its image",
        },
        Rule {
            group: "kubevirt.io",
            resources: &["virtualmachines"],
            names: &[],
            verbs: &["get", "list", "watch", "create", "patch", "delete"],
            because: "each machine runs as one",
        },
        Rule {
            group: "",
            resources: &["pods"],
            names: &[],
            verbs: &["list", "watch"],
            because: "why a container does not run, and whether anything still does, is told by its pods",
        },
    ],
    events: &[Rule {
        group: "events.k8s.io",
        resources: &["events"],
        names: &[],
        verbs: &["create"],
        because: "users read what happened in `kubectl describe`; Events about what has no namespace are in `default`, and those about the policy beside it",
    }],
    installation: &[Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[WORKSPACE_CONTROLLER],
        verbs: &["get", "create", "patch", "update"],
        because: "one process works at a time; the lease is made by an apply of its name alone and changed by PUT",
    }],
    policy: &["get", "list", "watch"],
};

/// What the program may do that ends an installation; besides, in the namespace of the installation, delete the
/// controller's Deployment, whose name is a value of the chart.
pub const RELEASE: &[Rule] = &[Rule {
    group: GROUP,
    resources: &["workspaces"],
    names: &[],
    verbs: &["list", "patch"],
    because: "what the controller would have to let go is let go in its place",
}];
