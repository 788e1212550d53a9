//! The command line of each program, and nothing else. All of them run in the state directory.

use std::time::Duration;

use super::Settings;
use crate::state_dir::StateDir;

/// The store's socket, seen from the state directory: no port to find, nobody else's to reach, and short enough for a
/// socket's name wherever the state directory is.
const STORE: &str = "unix://etcd.sock";
/// Never contacted, since the store has one member; but it must have the form of an address.
const NO_PEER: &str = "http://127.0.0.1:2380";
/// Where Services get addresses from.
const SERVICE_RANGE: &str = "10.96.0.0/16";
/// In megabytes; a rotated log would lose entries for its readers.
const AUDIT_LOG_MAXIMUM: &str = "--audit-log-maxsize=100000";

pub(super) fn etcd() -> Vec<String> {
    vec![
        "--name=local".into(),
        "--data-dir=etcd".into(),
        format!("--listen-client-urls={STORE}"),
        "--advertise-client-urls=http://127.0.0.1:2379".into(),
        "--listen-peer-urls=unix://etcd-peer.sock".into(),
        format!("--initial-advertise-peer-urls={NO_PEER}"),
        format!("--initial-cluster=local={NO_PEER}"),
        "--log-level=warn".into(),
        // The state ends with the process, so there is nothing to keep over a power cut.
        "--unsafe-no-fsync".into(),
    ]
}

pub(super) fn kube_apiserver(state: &StateDir, settings: &Settings) -> Vec<String> {
    let key_file = |name| state.key_file(name).display().to_string();
    let eviction_delay = settings.node_times.eviction_delay.as_secs();
    vec![
        format!("--etcd-servers={STORE}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", settings.address.port()),
        "--permit-port-sharing".into(),
        // Endpoints in 127/8 are refused, so the API server does not publish its own.
        "--advertise-address=127.0.0.1".into(),
        "--endpoint-reconciler-type=none".into(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        format!("--client-ca-file={}", key_file("ca.crt")),
        format!("--tls-cert-file={}", key_file("server.crt")),
        format!("--tls-private-key-file={}", key_file("server.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", key_file("tokens.pub")),
        format!("--service-account-signing-key-file={}", key_file("tokens.key")),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into(),
        "--allow-privileged".into(),
        format!("--default-not-ready-toleration-seconds={eviction_delay}"),
        format!("--default-unreachable-toleration-seconds={eviction_delay}"),
        format!("--audit-policy-file={}", state.audit_policy().display()),
        format!("--audit-log-path={}", state.audit_log().display()),
        AUDIT_LOG_MAXIMUM.into(),
        "--profiling=false".into(),
    ]
}

pub(super) fn kube_controller_manager(state: &StateDir, settings: &Settings) -> Vec<String> {
    let times = settings.node_times;
    let monitor_period = (times.monitor_grace / 5).min(Duration::from_secs(5));
    let mut flags = client_flags(state, "kube-controller-manager");
    flags.extend([
        // A controller has its own rights, as in a real cluster.
        "--use-service-account-credentials".into(),
        format!("--root-ca-file={}", state.key_file("ca.crt").display()),
        format!("--service-account-private-key-file={}", state.key_file("tokens.key").display()),
        format!("--node-monitor-period={}ms", monitor_period.as_millis()),
        format!("--node-monitor-grace-period={}ms", times.monitor_grace.as_millis()),
        // By default a second node that is lost waits ten seconds for its turn.
        "--node-eviction-rate=10".into(),
        "--profiling=false".into(),
    ]);
    flags
}

pub(super) fn kube_scheduler(state: &StateDir) -> Vec<String> {
    let mut flags = client_flags(state, "kube-scheduler");
    // A pod whose turn it misses, which happens on a busy machine, would wait for five minutes.
    flags.push("--pod-max-in-unschedulable-pods-duration=20s".into());
    flags
}

/// What all clients of the API server are told: no port of their own, no lease, no artificial slowness.
fn client_flags(state: &StateDir, program: &str) -> Vec<String> {
    vec![
        format!("--kubeconfig={}", state.kubeconfig(program).display()),
        "--secure-port=0".into(),
        "--leader-elect=false".into(),
        "--kube-api-qps=500".into(),
        "--kube-api-burst=1000".into(),
    ]
}
