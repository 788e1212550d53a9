//! The life of one workspace, write by write, and what it leaves: the measure for lives with faults.

use std::time::{Duration, Instant};

use image_server::Content;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt as _};
use local_cluster::Options;
use local_cluster::kubevirt::KubeVirt;
use otctl_types::AdmissionQueue;
use otctl_types::names::{REVISION_ANNOTATION, WORKSPACE_LABEL, WORKSPACE_QUEUE};
use otctl_types::workspace::Phase;
use serde_json::{Value, json};
use testbed::check;
use testbed::mask::{EndState, difference, end_state};

use super::labs::{self, Labs};
use crate::end_state::at_rest;
use crate::faults::lives::{Write, told};
use crate::faults::proxied::{ALONE, Proxied};
use crate::stage::{PATIENCE, pod_phase, well_behaved};
use crate::timeline::Timeline;

/// More than a first look reads.
const SIZE: u64 = 80 << 10;
/// The image of every machine.
const IMAGE: &str = "disk";

/// What happens to a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// It is made and gets ready.
    Creation,
    /// Ready, one entry is changed, one taken away and one added, and a door is opened.
    Edit,
    /// Ready, it is suspended.
    Suspension,
    /// Suspended, it is resumed.
    Resume,
    /// Ready, it is deleted.
    Deletion,
}

/// A life without a death.
pub(super) struct Clean {
    pub(super) writes: Vec<Write>,
    pub(super) end: EndState,
}

/// A cluster on which lives are lived, their controller behind a proxy.
pub(super) struct Lives {
    // Before the labs: when a test fails, its log is told before the directory goes.
    pub(super) controller: Proxied,
    pub(super) labs: Labs,
    timeline: Timeline,
    /// Runs machines, if workspaces have one.
    kubevirt: Option<KubeVirt>,
    lived: usize,
}

impl Lives {
    /// With a controller that rests. Workspaces have machines, or containers alone, which is quicker.
    pub(super) async fn set(have_machines: bool) -> Self {
        let labs = Labs::set(&[("workspaceConcurrency", "1")], Options::default()).await;
        let mut timeline = Timeline::of_workspaces(&labs.stage.client).await;
        let kubevirt = if have_machines {
            let kubevirt = labs.stage.cluster().install_kubevirt().await.unwrap();
            timeline.watch_machines().await;
            let mut image = labs.stage.image(IMAGE, Content::generated(SIZE, 1), well_behaved());
            image.spec.secret_ref = None;
            labs.stage.create(&image).await;
            Some(kubevirt)
        } else {
            None
        };
        let mut launch = labs::launch(&labs.stage).await;
        launch.flags.retain(|flag| flag.starts_with("--namespaces"));
        let mut controller = Proxied::of(launch, &labs.stage, "faulty", ALONE).await;
        controller.start();
        let lives = Self { controller, labs, timeline, kubevirt, lived: 0 };
        lives.quiet().await;
        lives
    }

    /// Ends it, after a look at everything that ever was.
    pub(super) async fn finish(mut self) {
        let history = self.timeline.history().await;
        check::expect_none(&check::turns::intact(&history));
        check::expect_none(&check::parts::intact(&history));
        self.controller.stop().await;
        self.labs.finish_but(|_| false).await;
    }

    /// A life without a death.
    pub(super) async fn clean(&mut self, life: Life) -> Clean {
        let name = self.begin(life).await;
        let from = self.controller.asked();
        self.go(life, &name).await;
        self.is_over(life, &name).await;
        let end = at_rest(async || Some(self.end(&name).await)).await;
        let writes = told(&self.controller.writes(from), &name);
        assert!(!writes.is_empty(), "{life:?}: nothing was written that one could die at");
        self.remove(&name).await;
        Clean { writes, end }
    }

    /// What comes before the writes that are looked at, to its rest; the workspace's name.
    pub(super) async fn begin(&mut self, life: Life) -> String {
        self.lived += 1;
        let name = format!("life-{:03}", self.lived);
        if life == Life::Creation {
            return name;
        }
        self.go(Life::Creation, &name).await;
        self.labs.is(&name, Phase::Ready).await;
        if life == Life::Resume {
            self.go(Life::Suspension, &name).await;
            self.labs.is(&name, Phase::Suspended).await;
        }
        self.quiet().await;
        name
    }

    /// What a person does, after which it goes on by itself.
    pub(super) async fn go(&self, life: Life, name: &str) {
        let labs = &self.labs;
        match life {
            Life::Creation => labs.create(name, spec(self.kubevirt.is_some())).await,
            Life::Edit => labs.edit(name, edited()).await,
            Life::Suspension => labs.edit(name, json!({"suspended": true})).await,
            Life::Resume => labs.edit(name, json!({"suspended": false})).await,
            Life::Deletion => labs.delete(name).await,
        }
    }

    /// Waits until it has come to its end, and nothing is written any more.
    pub(super) async fn is_over(&self, life: Life, name: &str) {
        match life {
            Life::Creation | Life::Edit | Life::Resume => {
                drop(self.labs.is(name, Phase::Ready).await);
            }
            Life::Suspension => drop(self.labs.is(name, Phase::Suspended).await),
            Life::Deletion => self.labs.is_gone(name).await,
        }
        self.quiet().await;
    }

    async fn quiet(&self) {
        let asked = self.controller.asked();
        at_rest(async || Some(self.controller.writes(asked).len())).await;
    }

    /// Waits until what is left is what should be.
    pub(super) async fn expect_end(&self, told: &str, name: &str, wanted: &EndState) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let differs = difference(wanted, &self.end(name).await);
            if differs.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{told}: it ends otherwise:\n{differs}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Takes it away, for the next one.
    pub(super) async fn remove(&self, name: &str) {
        if self.labs.workspaces().get_opt(name).await.unwrap().is_some() {
            self.labs.delete(name).await;
        }
        self.labs.is_gone(name).await;
    }

    /// The workspace, everything that was made for it, and the slots that are held, without its name.
    async fn end(&self, name: &str) -> EndState {
        let mut objects = Vec::new();
        if let Some(workspace) = self.labs.workspaces().get_opt(name).await.unwrap() {
            objects.push(serde_json::to_value(workspace).unwrap());
        }
        let children = self.labs.all_children().await.into_iter();
        let own = children.filter(|(child, _)| child.contains(&format!("/{name}--")));
        objects.extend(own.map(|(child, object)| without_chance(&child, &object)));
        objects.extend(self.pods(name).await);
        let queues: Api<AdmissionQueue> = Api::all(self.labs.stage.client.clone());
        let ledger = queues.get_opt(WORKSPACE_QUEUE).await.unwrap();
        let active = ledger.and_then(|queue| queue.status).unwrap_or_default().active;
        objects
            .push(json!({"kind": "AdmissionQueue", "metadata": {}, "status": {"active": active}}));
        end_state(nameless(&objects, name))
    }

    async fn pods(&self, name: &str) -> Vec<Value> {
        let pods: Api<Pod> = Api::all(self.labs.stage.client.clone());
        let ours = ListParams::default().labels(WORKSPACE_LABEL);
        let pods = pods.list(&ours).await.unwrap().items;
        let own = pods.iter().filter(|pod| pod.name_any().contains(&format!("{name}--")));
        own.map(told_of_pod).collect()
    }
}

impl Life {
    pub(super) const ALL: [Self; 5] =
        [Self::Creation, Self::Edit, Self::Suspension, Self::Resume, Self::Deletion];
}

fn spec(has_machine: bool) -> Value {
    let mut spec = json!({"containers": [
        {"name": "web", "image": "example.com/web:1", "ports": [{"containerPort": 8080}]},
    ]});
    if has_machine {
        let machine = json!({"VMDiskImageName": IMAGE, "instance": {"memory": "64Mi"}});
        spec["virtualMachines"] = json!([{"name": "db", "spec": machine}]);
        let worker = json!({"name": "worker", "image": "example.com/web:1"});
        spec["containers"].as_array_mut().unwrap().push(worker);
    }
    spec
}

fn edited() -> Value {
    json!({
        "containers": [
            {"name": "web", "image": "example.com/web:2", "ports": [{"containerPort": 8081}]},
            {"name": "more", "image": "example.com/web:1"},
        ],
        "network": {"ingress": [{"from": {"cidr": "10.1.0.0/16"}}]},
    })
}

/// A child without what is by chance: the sum over what was applied, in which UIDs and addresses are, what rollouts and
/// clones tell of their way, and on which node a claim is.
fn without_chance(child: &str, object: &DynamicObject) -> Value {
    let mut object = object.clone();
    for annotation in [REVISION_ANNOTATION, "volume.kubernetes.io/selected-node"] {
        object.annotations_mut().remove(annotation);
    }
    let mut told = serde_json::to_value(object).unwrap();
    let kind = child.split('/').next().unwrap();
    told["kind"] = json!(kind);
    let status = &told["status"];
    match kind {
        "Deployment" => told["status"] = json!({"ready": status["readyReplicas"]}),
        "VirtualMachine" => told["status"] = json!({"printableStatus": status["printableStatus"]}),
        _ => {}
    }
    told
}

/// What it runs, and how far it is.
fn told_of_pod(pod: &Pod) -> Value {
    let image = pod.spec.as_ref().unwrap().containers[0].image.as_deref();
    json!({"kind": "Pod", "metadata": {"name": image}, "status": {"phase": pod_phase(pod)}})
}

/// The objects without the name of their life and without the addresses that it was given.
fn nameless(objects: &[Value], name: &str) -> Vec<Value> {
    let addresses = objects.iter().filter_map(|object| object["spec"]["clusterIP"].as_str());
    let mut addresses: Vec<&str> = addresses.filter(|address| *address != "None").collect();
    // One may be how another begins.
    addresses.sort_by_key(|address| std::cmp::Reverse(address.len()));
    let without = |object: &Value| {
        let text = object.to_string().replace(name, "<life>");
        addresses.iter().fold(text, |text, address| text.replace(address, "<address>"))
    };
    let texts = objects.iter().map(without);
    texts.map(|text| serde_json::from_str(&text).expect("a string is replaced by one")).collect()
}
