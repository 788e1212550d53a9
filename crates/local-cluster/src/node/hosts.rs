//! What stands in a pod's `/etc/hosts`, as kubelet writes it. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

const LOCAL: &str = "# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
";

/// The file of a pod with this address.
pub(super) fn file(pod: &Pod, address: IpAddr) -> String {
    let spec = pod.spec.as_ref();
    let hostname = spec.and_then(|spec| spec.hostname.clone()).unwrap_or_else(|| pod.name_any());
    let mut file = format!("{LOCAL}{address}\t{hostname}\n");
    let aliases = spec.and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
    if !aliases.is_empty() {
        file.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        file.push_str(&format!("{}\t{names}\n", alias.ip));
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_follow_the_pods_own_entry() {
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web"},
            "spec": {"containers": [], "hostAliases": [
                {"ip": "10.96.0.5", "hostnames": ["database", "db"]},
                {"ip": "10.96.0.6", "hostnames": ["cache"]},
            ]},
        }))
        .expect("a pod");
        let file = file(&pod, IpAddr::from([127, 20, 0, 1]));
        let own = file.strip_prefix(LOCAL).expect("it begins as any");
        let wanted = "127.20.0.1\tweb\n\n# Entries added by HostAliases.\n10.96.0.5\tdatabase\tdb\n10.96.0.6\tcache\n";
        assert_eq!(own, wanted);
    }
}
