//! With which rights a container runs: what the Pod Security level `baseline` leaves open, and nothing else.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const LOCALHOST_HAS_A_PROFILE: &str = "(self.type == 'Localhost') == has(self.localhostProfile)";

/// With which rights a container runs. What is absent is as the image and the namespace have it, but for two fields that
/// are set for every container: `allowPrivilegeEscalation` is false and `seccompProfile` is `RuntimeDefault`, unless said
/// otherwise here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.runAsNonRoot) || !self.runAsNonRoot || !has(self.runAsUser) || self.runAsUser != 0")
    .message("runAsUser 0 is root, which runAsNonRoot forbids: write another user, or remove runAsNonRoot"))]
pub struct SecurityContext {
    /// The user that it runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_user: Option<i64>,
    /// The group that it runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub run_as_group: Option<i64>,
    /// True: it does not start as root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<bool>,
    /// True: it cannot write to its root file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<bool>,
    /// False: no process of it gains more rights than its parent. Absent is false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<bool>,
    /// Capabilities that it has more or fewer than by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// The filter of its system calls. Absent is `RuntimeDefault`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<SeccompProfile>,
}

/// Capabilities that a container has more or fewer than by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Those that it has again, or in addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 13))]
    pub add: Vec<Capability>,
    /// Those that it does not have; `ALL` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 64),
        inner(length(min = 1, max = 64), regex(pattern = r"^[A-Z][A-Z0-9_]*$"))
    )]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[A-Z][A-Z0-9_]*$'))")
        .message("drop lists capabilities in capital letters without CAP_, such as NET_RAW, or ALL"))]
    pub drop: Vec<String>,
}

/// A capability that `baseline` lets a container have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Capability {
    /// Write to the kernel's audit log.
    AuditWrite,
    /// Change the owner of files.
    Chown,
    /// Read and write files whatever their permissions.
    DacOverride,
    /// Do to files what only their owner may.
    Fowner,
    /// Keep the set-user-ID bits of files that change.
    Fsetid,
    /// Signal any process.
    Kill,
    /// Make device files.
    Mknod,
    /// Serve ports below 1024.
    NetBindService,
    /// Give files capabilities.
    Setfcap,
    /// Change the group.
    Setgid,
    /// Pass capabilities on.
    Setpcap,
    /// Change the user.
    Setuid,
    /// Change the root directory.
    SysChroot,
}

/// The filter of system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(LOCALHOST_HAS_A_PROFILE)
    .message("localhostProfile goes with type: Localhost and only with it: add the profile's path, or remove it"))]
pub struct SeccompProfile {
    /// Which filter it is.
    #[serde(rename = "type")]
    pub kind: SeccompKind,
    /// Path of the profile, below the node's folder of seccomp profiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024), regex(pattern = r"^[^/.][^/]*(/[^/.][^/]*)*$"))]
    #[x_kube(validation = Rule::new("self.matches('^[^/.][^/]*(/[^/.][^/]*)*$')")
        .message("localhostProfile is a path below the node's folder of seccomp profiles, such as profiles/audit.json: no '/' at its ends, and no part of it begins with '.'"))]
    pub localhost_profile: Option<String>,
}

/// Which filter of system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum SeccompKind {
    /// That of the container runtime.
    #[default]
    RuntimeDefault,
    /// A profile on the node.
    Localhost,
}
