//! One controller process: its views, its two loops, and passes that are made when they are asked for.

use std::sync::Arc;

use clap::Parser as _;
use k8s_openapi::api::core::v1::Pod;
use otctl_kit::clock::Clock;
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

use super::objects::{self, KUBEVIRT, LABS};
use super::people;
use super::promises::Promises;
use crate::choices::Choices;
use crate::cluster::Direct;
use crate::controller::{Controller, Process};
use crate::people::{let_act, let_time_pass};

pub(super) struct Workspaces {
    process: Process,
    queue: Linted<Queue>,
    workspace: Linted<Reconciler>,
}

impl Controller for Workspaces {
    const STEPS: usize = 40;
    type Promises = Promises;

    fn populate(world: &World, choices: &mut Choices<'_>) {
        objects::populate(world, choices);
    }

    fn new(world: &World, clock: &VirtualClock) -> Self {
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
        let through = (cluster, Arc::new(clock.clone()) as Arc<dyn Clock>);
        let queue = queue(views.clone(), site.clone(), policy, through.clone());
        let process = Process::new(clock, direct, feeds(&views));
        let workspace = Reconciler::new(views, site, through);
        Self { process, queue: Linted(queue), workspace: Linted(workspace) }
    }

    fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn pass_all(&self) {
        (0..=self.workspaces().len()).for_each(|which| self.pass(which));
    }

    fn go_on(&mut self, what: u8, choices: &mut Choices<'_>) {
        match what % 12 {
            0..=2 => self.pass(choices.below(4)),
            3 => self.process.hear_one(choices.below(10)),
            4..=5 => {
                self.process.hear_all();
                self.pass_all();
            }
            6..=8 => {
                (0..choices.below(8)).for_each(|_| let_act(&self.process.world, choices));
            }
            9 => let_time_pass(&self.process.world, choices),
            _ => people::act(&self.process.world, choices),
        }
    }
}

impl Workspaces {
    /// Of the queue, or of one of the workspaces.
    fn pass(&self, which: usize) {
        match which.checked_sub(1).and_then(|at| self.workspaces().into_iter().nth(at)) {
            Some(key) => self.process.pass(&self.workspace, &key),
            None => self.process.pass(&self.queue, &queue_key()),
        }
    }

    fn workspaces(&self) -> Vec<Key> {
        self.process.keys("Workspace")
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
