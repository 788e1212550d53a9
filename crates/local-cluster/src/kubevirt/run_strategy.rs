//! What a run strategy asks for. Pure.

use jiff::Timestamp;

use super::objects::{StateChangeRequest, VirtualMachine, VirtualMachineInstance};

/// The request that KubeVirt notes for itself when an instance is to be made again.
pub(super) const START: &str = "Start";

/// What is to be done with the instance of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Start,
    /// Nothing before this time.
    Wait(Timestamp),
    Stop,
    /// Stop it, and note that another one is to be started.
    Replace,
}

/// The run strategy of a machine.
pub(super) fn of(machine: &VirtualMachine) -> &str {
    match (&machine.spec.run_strategy, machine.spec.running) {
        (Some(strategy), _) => strategy,
        (None, Some(true)) => "Always",
        (None, _) => "Halted",
    }
}

/// What the strategy asks for now.
pub(super) fn act(
    machine: &VirtualMachine,
    instance: Option<&VirtualMachineInstance>,
    now: Timestamp,
) -> Act {
    match (of(machine), instance) {
        (_, Some(instance)) if instance.metadata.deletion_timestamp.is_some() => Act::Nothing,
        ("Always", Some(instance)) if instance.is_final() => Act::Stop,
        ("RerunOnFailure", Some(instance)) => match instance.phase() {
            "Failed" => Act::Replace,
            "Succeeded" => Act::Stop,
            _ => Act::Nothing,
        },
        ("Halted", Some(_)) => Act::Stop,
        ("Always", None) => start(machine, now),
        ("RerunOnFailure", None) if is_to_start_again(machine) => start(machine, now),
        ("Once", None) => Act::Start,
        _ => Act::Nothing,
    }
}

/// True of a machine that has a request to start, or was run by another strategy so far.
fn is_to_start_again(machine: &VirtualMachine) -> bool {
    let status = machine.status.as_ref();
    let before = status.and_then(|status| status.run_strategy.as_deref());
    before != Some(of(machine)) || is_start_requested(machine)
}

pub(super) fn is_start_requested(machine: &VirtualMachine) -> bool {
    let requests = machine.status.iter().flat_map(|status| &status.state_change_requests);
    requests.map(|StateChangeRequest { action }| action).next().is_some_and(|it| it == START)
}

fn start(machine: &VirtualMachine, now: Timestamp) -> Act {
    let failure = machine.status.as_ref().and_then(|status| status.start_failure.as_ref());
    let after = failure.and_then(|failure| failure.retry_after_timestamp.as_ref());
    match after {
        Some(after) if after.0 > now => Act::Wait(after.0),
        _ => Act::Start,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::super::objects::{
        InstanceSpec, InstanceStatus, MachineStatus, StartFailure, VirtualMachineSpec,
    };
    use super::*;

    fn machine(strategy: &str) -> VirtualMachine {
        let run_strategy = Some(strategy.to_owned());
        VirtualMachine::new("m", VirtualMachineSpec { run_strategy, ..Default::default() })
    }

    fn instance(phase: &str) -> VirtualMachineInstance {
        let mut instance = VirtualMachineInstance::new("m", InstanceSpec::default());
        instance.status = Some(InstanceStatus { phase: phase.to_owned(), ..Default::default() });
        instance
    }

    fn check(strategy: &str, phase: Option<&str>, wanted: Act) {
        let instance = phase.map(instance);
        let act = act(&machine(strategy), instance.as_ref(), Timestamp::UNIX_EPOCH);
        assert_eq!(act, wanted, "{strategy} {phase:?}");
    }

    #[test]
    fn each_strategy_starts_stops_and_starts_again_what_it_should() {
        check("Always", None, Act::Start);
        check("Always", Some("Running"), Act::Nothing);
        check("Always", Some("Succeeded"), Act::Stop);
        check("Always", Some("Failed"), Act::Stop);
        check("RerunOnFailure", None, Act::Start);
        check("RerunOnFailure", Some("Running"), Act::Nothing);
        check("RerunOnFailure", Some("Succeeded"), Act::Stop);
        check("RerunOnFailure", Some("Failed"), Act::Replace);
        check("Once", None, Act::Start);
        check("Once", Some("Succeeded"), Act::Nothing);
        check("Once", Some("Failed"), Act::Nothing);
        check("Halted", None, Act::Nothing);
        check("Halted", Some("Running"), Act::Stop);
        check("Manual", None, Act::Nothing);
    }

    #[test]
    fn the_older_form_is_read() {
        let mut machine = machine("");
        machine.spec.run_strategy = None;
        for (running, wanted) in [(None, "Halted"), (Some(false), "Halted"), (Some(true), "Always")]
        {
            machine.spec.running = running;
            assert_eq!(of(&machine), wanted);
        }
    }

    #[test]
    fn a_machine_that_ended_well_is_started_again_only_on_request() {
        let mut machine = machine("RerunOnFailure");
        let mut status =
            MachineStatus { run_strategy: Some("RerunOnFailure".into()), ..Default::default() };
        machine.status = Some(status.clone());
        assert_eq!(act(&machine, None, Timestamp::UNIX_EPOCH), Act::Nothing);
        status.state_change_requests = vec![StateChangeRequest { action: START.to_owned() }];
        machine.status = Some(status);
        assert_eq!(act(&machine, None, Timestamp::UNIX_EPOCH), Act::Start);
    }

    #[test]
    fn a_machine_whose_instances_fail_waits() {
        let mut machine = machine("Always");
        let until = Timestamp::from_second(10).unwrap();
        let failure =
            StartFailure { retry_after_timestamp: Some(Time(until)), ..Default::default() };
        machine.status = Some(MachineStatus { start_failure: Some(failure), ..Default::default() });
        assert_eq!(act(&machine, None, Timestamp::UNIX_EPOCH), Act::Wait(until));
        assert_eq!(act(&machine, None, until), Act::Start);
    }
}
