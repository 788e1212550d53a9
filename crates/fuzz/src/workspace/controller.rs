//! One controller process: its views, its two loops, and passes that are made when they are asked for.

use std::sync::Arc;

use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use otctl_kit::cluster::Cluster;
use otctl_kit::store::{Key, Scoped};
use otctl_queue::PolicySource;
use otctl_types::names::{
    DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, WORKSPACE_LABEL, WORKSPACE_QUEUE,
};
use serde_json::{Value, json};
use testbed::check::Linted;
use testbed::clock::VirtualClock;
use testbed::world::Id;
use testbed::{Feed, World};
use workspace_controller::config::Site;
use workspace_controller::queue::{Queue, queue};
use workspace_controller::views::{Views, queue_key};
use workspace_controller::workspace::Reconciler;
use workspace_controller::{Args, slim};

use super::objects::{KUBEVIRT, LABS};
use crate::cluster::{Direct, make};

pub(super) struct Controller {
    world: World,
    clock: VirtualClock,
    direct: Arc<Direct>,
    feeds: Vec<Feed>,
    queue: Linted<Queue>,
    workspaces: Linted<Reconciler>,
}

impl Controller {
    /// Started just now: it has seen what is there.
    pub(super) fn new(world: &World, clock: &VirtualClock) -> Self {
        let direct = Arc::new(Direct::new(world));
        let cluster: Arc<dyn Cluster> = direct.clone();
        let flags = ["workspace-controller", "--default-namespace=labs"];
        let settings = Args::parse_from(flags).settings;
        let site = Arc::new(Site { settings, installation: DEFAULT_NAMESPACE.to_owned() });
        let views = Views::new(&site.settings.served_namespaces());
        let policy = PolicySource {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            name: DEFAULT_POLICY_NAME.to_owned(),
        };
        let through = (cluster.clone(), Arc::new(clock.clone()) as _);
        let queue = Linted(queue(views.clone(), site.clone(), policy, through));
        let mut feeds = feeds(&views);
        feeds.iter_mut().for_each(|feed| feed.relist(world));
        let workspaces = Linted(Reconciler::new(views, cluster, site));
        Self { world: world.clone(), clock: clock.clone(), direct, feeds, queue, workspaces }
    }

    /// Of the queue, or of one of the workspaces.
    pub(super) fn pass(&self, which: usize) {
        match which.checked_sub(1).and_then(|at| self.workspaces().into_iter().nth(at)) {
            Some(key) => make(&self.workspaces, &*self.direct, &key, &self.clock),
            None => make(&self.queue, &*self.direct, &queue_key(), &self.clock),
        }
    }

    pub(super) fn pass_all(&self) {
        (0..=self.workspaces().len()).for_each(|which| self.pass(which));
    }

    fn workspaces(&self) -> Vec<Key> {
        let name = |it: Value| it["metadata"]["name"].as_str().map(str::to_owned);
        let names = self.world.list("Workspace").into_iter().filter_map(name);
        names.map(|name| Key::new("", &name)).collect()
    }

    pub(super) fn hear_one(&mut self, which: usize) {
        self.feeds[which].deliver(&self.world);
    }

    pub(super) fn hear_all(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed.deliver_all(&self.world));
    }

    /// The request after so many others is lost, or its answer is.
    pub(super) fn be_in_trouble(&self, others: usize, is_carried_out: bool) {
        self.direct.be_in_trouble(others, is_carried_out);
    }

    /// Every request is answered again.
    pub(super) fn be_out_of_trouble(&self) {
        self.direct.be_out_of_trouble();
    }
}

/// Watches as the product has them.
fn feeds(views: &Views) -> Vec<Feed> {
    let pods = Feed::mapped("Pod", views.pods.of(LABS).expect("it is served"), |object| {
        serde_json::from_value(object).map(|mut pod: Pod| {
            slim::pod(&mut pod);
            pod
        })
    });
    let kubevirt = Id::new("CustomResourceDefinition", &Key::new("", KUBEVIRT));
    vec![
        Feed::new(&views.workspaces),
        Feed::new(&views.queues).only(|queue| queue["metadata"]["name"] == json!(WORKSPACE_QUEUE)),
        Feed::new(&views.policies),
        feed(&views.images),
        feed(&views.networks),
        feed(&views.services),
        feed(&views.deployments),
        pods.only(|pod| is_here(pod) && !pod["metadata"]["labels"][WORKSPACE_LABEL].is_null()),
        feed(&views.claims),
        feed(&views.machines).once_there(kubevirt),
    ]
}

fn feed<K>(stores: &Scoped<K>) -> Feed
where
    K: kube::Resource<DynamicType = ()>
        + serde::de::DeserializeOwned
        + Clone
        + Send
        + Sync
        + 'static,
{
    Feed::new(stores.of(LABS).expect("it is served")).only(is_here)
}

fn is_here(object: &Value) -> bool {
    object["metadata"]["namespace"] == json!(LABS)
}
