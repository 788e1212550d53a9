//! A pass that makes something has asked for its namespace before it decided, in any order.

use std::mem::take;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use otctl_kit::cluster::{Answer, ApiError, Cluster, Request};
use otctl_kit::expectations::Expectation;
use otctl_kit::plan::Plan;
use otctl_kit::reconciler::{Told, Undone};
use otctl_kit::store::Key;
use otctl_types::workspace::WorkspaceStatus;
use testbed::sim::{Connection, Order};
use testbed::{Instance as Process, Sim, VirtualClock};
use workspace_controller::workspace::Reconciler;
use workspace_controller::workspace::observe::Observed;
use workspace_controller::workspace::works::is_new;

use crate::controller::{furnish, instance_within, limit, views};
use crate::orders::{five, meanwhile, orders};

/// The API server, which counts how often a namespace is asked for.
struct Counted {
    cluster: Arc<dyn Cluster>,
    asked: Arc<AtomicUsize>,
}

impl Cluster for Counted {
    fn call(
        &self,
        request: Request,
    ) -> Pin<Box<dyn Future<Output = Result<Answer, ApiError>> + Send + '_>> {
        if matches!(&request, Request::Get(target) if target.resource.kind == "Namespace") {
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
        self.cluster.call(request)
    }
}

/// What passes made that had asked, and what others made.
#[derive(Default)]
struct Made {
    asked: Vec<String>,
    unasked: Vec<String>,
}

/// The reconciler, of which every pass is noted. It notes and does not fail: the driver catches what panics.
struct Noted {
    reconciler: Reconciler,
    clock: VirtualClock,
    asked: Arc<AtomicUsize>,
    made: Arc<Mutex<Made>>,
}

impl otctl_kit::reconciler::Reconciler for Noted {
    type Observed = Observed;
    type Status = WorkspaceStatus;
    const NAME: &'static str = Reconciler::NAME;
    const CONTROLLER: &'static str = Reconciler::CONTROLLER;

    async fn observe(&self, key: &Key) -> Result<Observed, ApiError> {
        let before = self.asked.load(Ordering::SeqCst);
        let observed = self.reconciler.observe(key).await?;
        let has_asked = self.asked.load(Ordering::SeqCst) > before;
        let plan = Reconciler::decide(&observed, self.clock.now());
        let new = plan.before_status().filter(|write| is_new(write));
        let new = new.map(|write| format!("{key} {}: {write}", plan.verdict));
        let mut made = self.made.lock().unwrap();
        if has_asked {
            made.asked.extend(new)
        } else {
            made.unasked.extend(new)
        }
        Ok(observed)
    }

    fn has_seen(&self, expectation: &Expectation) -> bool {
        self.reconciler.has_seen(expectation)
    }

    fn decide(observed: &Observed, now: Timestamp) -> Plan<WorkspaceStatus> {
        Reconciler::decide(observed, now)
    }

    fn refused(
        observed: &Observed,
        undone: &Undone<'_>,
        now: Timestamp,
    ) -> Option<Told<WorkspaceStatus>> {
        Reconciler::refused(observed, undone, now)
    }
}

/// A controller process that notes what it makes.
fn noting(connection: &Connection, made: &Arc<Mutex<Made>>) -> Process {
    let (asked, made) = (Arc::<AtomicUsize>::default(), made.clone());
    let cluster = Counted { cluster: connection.cluster.clone(), asked: asked.clone() };
    let connection = Connection { cluster: Arc::new(cluster), ..connection.clone() };
    let clock = connection.clock.clone();
    instance_within(&views(), &connection, |reconciler| Noted { reconciler, clock, asked, made })
}

/// What was made in a whole life.
fn life(order: Order) -> Made {
    let made = Arc::<Mutex<Made>>::default();
    let noted = made.clone();
    let mut sim =
        Sim::new(order).with_process("controller", move |connection| noting(connection, &noted));
    furnish(&sim.world);
    limit(&sim.world, "2");
    five(&sim);
    meanwhile(&mut sim);
    take(&mut *made.lock().unwrap())
}

#[test]
fn whoever_makes_something_has_asked_for_its_namespace() {
    for order in orders().chain([Order::Fixed]) {
        let made = life(order);
        assert!(made.unasked.is_empty(), "{order:?}: {:#?}", made.unasked);
        for kind in ["NetworkPolicy", "Service", "Deployment", "VirtualMachine", "VMDiskImage"] {
            let is_of = |line: &String| line.contains(kind);
            assert!(made.asked.iter().any(is_of), "{order:?}: no {kind} in {:#?}", made.asked);
        }
    }
}
