//! It starts, answers, does what a cluster does, and writes down what it was asked.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{conditions::is_deleted, wait::await_condition},
};
use local_cluster::audit::{AuditEntry, service_account_user};
use serde_json::json;

use crate::support::{SOON, shared, wait_until};

#[tokio::test]
async fn it_is_the_pinned_version_and_the_kubeconfig_file_leads_to_it() {
    let cluster = shared().await;
    let version = cluster.admin().apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "34"));

    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.kubeconfig_path()).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let client = kube::Client::try_from(config.unwrap()).unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces.get("kube-system").await.unwrap();
}

#[tokio::test]
async fn two_tests_may_use_the_shared_cluster_from_runtimes_of_their_own() {
    let address = shared().await.apiserver_url().to_owned();
    let other = std::thread::spawn(|| {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let cluster = shared().await;
            cluster.admin().apiserver_version().await.unwrap();
            cluster.apiserver_url().to_owned()
        })
    });
    assert_eq!(other.join().unwrap(), address);
    shared().await.admin().apiserver_version().await.unwrap();
}

#[tokio::test]
async fn garbage_collection_follows_owners() {
    let cluster = shared().await;
    let namespace = cluster.namespace("owners").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let owner = maps.create(&PostParams::default(), &config_map(json!({}))).await.unwrap();
    let owner = owner.metadata;
    let reference = json!({ "ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name, "uid": owner.uid,
    }]});
    let owned = maps.create(&PostParams::default(), &config_map(reference)).await.unwrap();
    let (name, uid) = (owned.metadata.name.unwrap(), owned.metadata.uid.unwrap());
    maps.delete(&owner.name.unwrap(), &DeleteParams::default()).await.unwrap();
    let gone = await_condition(maps, &name, is_deleted(&uid));
    tokio::time::timeout(SOON, gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_pod_without_a_node_is_found_unschedulable() {
    let cluster = shared().await;
    let namespace = cluster.namespace("pods").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.admin(), &namespace);
    let pod = serde_json::from_value(json!({
        "metadata": { "name": "lonely" },
        "spec": { "containers": [{ "name": "main", "image": "none" }] },
    }));
    pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    let refused = await_condition(pods, "lonely", |pod: Option<&Pod>| {
        let conditions = pod.and_then(|pod| pod.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.reason.as_deref() == Some("Unschedulable")
        })
    });
    tokio::time::timeout(SOON, refused).await.unwrap().unwrap();
}

#[tokio::test]
async fn the_audit_log_holds_a_write_with_its_object_once_it_was_answered() {
    let cluster = shared().await;
    let namespace = cluster.namespace("audit").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.admin(), &namespace);
    let created = maps.create(&PostParams::default(), &config_map(json!({}))).await.unwrap();
    let name = created.metadata.name.unwrap();
    for round in 0..20 {
        let mark = cluster.audit().mark().unwrap();
        let patch = Patch::Merge(json!({ "data": { "round": round.to_string() } }));
        maps.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        let entries = cluster.audit().since(mark).unwrap();
        let ours: Vec<_> = entries.iter().filter(|entry| entry.name == name).collect();
        let [entry] = ours[..] else { panic!("{} entries for one write: {ours:?}", ours.len()) };
        assert_eq!((entry.verb.as_str(), entry.target().as_str()), ("patch", "configmaps"));
        assert_eq!((entry.user.as_str(), entry.code), ("admin", 200));
        assert_eq!(entry.request_object.as_ref().unwrap()["data"]["round"], round.to_string());
        let answer = entry.response_object.as_ref().unwrap();
        assert_eq!(answer["metadata"]["name"], *name);
        assert!(answer["metadata"]["managedFields"].is_null());
        assert!(entry.received_at <= entry.answered_at);
    }
}

#[tokio::test]
async fn the_audit_log_holds_a_read_without_objects_and_no_secret() {
    let cluster = shared().await;
    let namespace = cluster.namespace("reads").await.unwrap();
    let mark = cluster.audit().mark().unwrap();
    let secrets: Api<Secret> = Api::namespaced(cluster.admin(), &namespace);
    let secret = json!({ "metadata": { "name": "key" }, "stringData": { "password": "hunter2" } });
    let secret = serde_json::from_value(secret).unwrap();
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    secrets.get("key").await.unwrap();

    let mut entries = cluster.audit().since(mark).unwrap();
    entries.retain(|entry| entry.namespace == namespace && entry.resource == "secrets");
    let verbs: Vec<_> = entries.iter().map(|entry| entry.verb.as_str()).collect();
    assert_eq!(verbs, ["create", "get"]);
    assert!(entries.iter().all(|entry| entry.request_object.is_none()));
    assert!(entries.iter().all(|entry| entry.response_object.is_none()));
}

#[tokio::test]
async fn the_audit_log_names_service_accounts() {
    let cluster = shared().await;
    let namespace = cluster.namespace("who").await.unwrap();
    let client = cluster.service_account_client(&namespace, "default").await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    maps.get("any").await.unwrap_err();
    let user = service_account_user(&namespace, "default");
    let [entry] = cluster.audit().of_user(&user).unwrap().try_into().unwrap();
    assert_eq!((entry.verb.as_str(), entry.name.as_str()), ("get", "any"));
    assert!(entry.is_forbidden());
}

#[tokio::test]
async fn waiting_for_an_audit_entry_ends_when_it_comes() {
    let cluster = shared().await;
    let audit = cluster.audit();
    let mark = audit.mark().unwrap();
    let namespace = cluster.namespace("wait").await.unwrap();
    let is_wanted = |entry: &AuditEntry| {
        entry.is_write() && entry.target() == "serviceaccounts" && entry.namespace == namespace
    };
    let entry = audit.wait_for(mark, SOON, is_wanted).await.unwrap();
    assert_eq!(entry.user, service_account_user("kube-system", "service-account-controller"));
}

#[tokio::test]
async fn nobody_else_may_look_into_the_state_directory() {
    use std::os::unix::fs::PermissionsExt as _;
    let cluster = shared().await;
    let mode = std::fs::metadata(cluster.state_dir()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let mode = std::fs::metadata(cluster.kubeconfig_path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn the_api_server_listens_on_loopback_only() {
    let cluster = shared().await;
    let processes: Vec<_> = cluster.process_ids().map(|(_, id)| id).collect();
    let listening = listening_addresses(&processes);
    let port = cluster.apiserver_url().rsplit(':').next().unwrap().parse().unwrap();
    assert_eq!(listening, [std::net::SocketAddr::from(([127, 0, 0, 1], port))]);
    wait_until("the API server answers", || std::net::TcpStream::connect(listening[0]).is_ok())
        .await;
}

/// The IPv4 addresses these processes listen on; panics when one listens on IPv6.
fn listening_addresses(processes: &[i32]) -> Vec<std::net::SocketAddr> {
    let inodes: Vec<String> = processes.iter().flat_map(|id| socket_inodes(*id)).collect();
    let listeners = |table: &str| -> Vec<String> {
        let text = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        let rows = text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        // Column 3 is the state, where 0A is LISTEN; column 9 the inode; column 1 the address.
        let ours = rows.filter(|row| row[3] == "0A" && inodes.iter().any(|inode| inode == row[9]));
        ours.map(|row| row[1].to_owned()).collect()
    };
    assert_eq!(listeners("tcp6"), Vec::<String>::new());
    listeners("tcp").iter().map(|address| parse_address(address)).collect()
}

fn socket_inodes(process: i32) -> Vec<String> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let names = links.map(|link| link.display().to_string());
    names
        .filter_map(|name| Some(name.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect()
}

/// `0100007F:1F90` is 127.0.0.1:8080: the address is in the machine's byte order.
fn parse_address(text: &str) -> std::net::SocketAddr {
    let (address, port) = text.split_once(':').unwrap();
    let address = u32::from_str_radix(address, 16).unwrap().to_ne_bytes();
    (address, u16::from_str_radix(port, 16).unwrap()).into()
}

fn config_map(metadata: serde_json::Value) -> ConfigMap {
    let mut metadata = metadata;
    metadata["generateName"] = json!("map-");
    serde_json::from_value(json!({ "metadata": metadata })).unwrap()
}
