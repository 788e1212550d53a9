//! The KubeVirt machine of an entry. Its pods carry the label of the workspace from birth: it stands in the template.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use otctl_types::workspace::{Instance, RunStrategy, VirtualMachine as Entry};

use super::{Facts, note_revision};
use crate::machines::{
    ClaimSource, CloudInit, Cpu, Devices, Disk, DiskTarget, Domain, InstanceSpec, Interface,
    MachineNetwork, MachineTemplate, MachineVolume, Matcher, Memory, Nothing, SecretReference,
    VirtualMachine, VirtualMachineSpec,
};
use crate::names::Component;

/// Name of the disk and its volume.
const DISK: &str = "disk";
/// Name of the disk with the data of cloud-init, and its volume.
const CLOUD_INIT: &str = "cloudinit";
/// Name of the one interface and its network, as KubeVirt calls them.
const NETWORK: &str = "default";

/// Whether a machine may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// As its `runStrategy` says.
    AsAsked,
    /// It does not, since the workspace is suspended.
    Off,
}

/// The machine that runs from the claim of that name.
pub fn machine(
    facts: &Facts<'_>,
    (entry, instance): (&Entry, &Instance),
    claim: &str,
    power: Power,
) -> VirtualMachine {
    let strategy = match power {
        Power::AsAsked => instance.run_strategy,
        Power::Off => RunStrategy::Halted,
    };
    let spec = VirtualMachineSpec {
        run_strategy: None,
        instancetype: matcher("VirtualMachineClusterInstancetype", instance.instancetype.as_ref()),
        preference: matcher("VirtualMachineClusterPreference", instance.preference.as_ref()),
        template: MachineTemplate {
            metadata: Some(facts.pod_meta(Component::Machine, &entry.name)),
            spec: hardware(instance, claim),
        },
    };
    let mut metadata =
        facts.meta(facts.child_name(&entry.name), Component::Machine, Some(&entry.name));
    note_revision(&mut metadata, &spec);
    let spec = VirtualMachineSpec { run_strategy: Some(strategy.as_str().to_owned()), ..spec };
    VirtualMachine { metadata, spec, status: None }
}

fn matcher(kind: &str, name: Option<&String>) -> Option<Matcher> {
    Some(Matcher { kind: Some(kind.to_owned()), name: name?.clone() })
}

fn hardware(instance: &Instance, claim: &str) -> InstanceSpec {
    let names =
        || [DISK].into_iter().chain(instance.cloud_init_secret_ref.as_ref().map(|_| CLOUD_INIT));
    let disks = names().map(|name| disk(instance, name)).collect();
    InstanceSpec {
        domain: Domain {
            cpu: cores(instance).map(|cores| Cpu { cores: Some(cores) }),
            memory: instance.memory.clone().map(|memory| Memory { guest: Some(Quantity(memory)) }),
            devices: Devices { disks: Some(disks), interfaces: Some(vec![interface()]) },
        },
        networks: Some(vec![MachineNetwork {
            name: NETWORK.to_owned(),
            pod: Some(Nothing {}),
            multus: None,
        }]),
        volumes: Some(volumes(instance, claim)),
    }
}

/// An instance type brings its own.
fn cores(instance: &Instance) -> Option<i32> {
    let is_said_elsewhere = instance.instancetype.is_some();
    (!is_said_elsewhere).then(|| instance.cores.unwrap_or(1))
}

/// The bus is the preference's to choose where there is one: not every guest knows virtio.
fn disk(instance: &Instance, name: &str) -> Disk {
    let bus = instance.preference.is_none().then(|| "virtio".to_owned());
    Disk { name: name.to_owned(), disk: Some(DiskTarget { bus }) }
}

/// Behind the address of its pod, to which network policies apply.
fn interface() -> Interface {
    Interface { name: NETWORK.to_owned(), masquerade: Some(Nothing {}) }
}

fn volumes(instance: &Instance, claim: &str) -> Vec<MachineVolume> {
    let disk = MachineVolume {
        name: DISK.to_owned(),
        persistent_volume_claim: Some(ClaimSource { claim_name: claim.to_owned() }),
        cloud_init_no_cloud: None,
    };
    let cloud_init = instance.cloud_init_secret_ref.clone().map(|name| MachineVolume {
        name: CLOUD_INIT.to_owned(),
        persistent_volume_claim: None,
        cloud_init_no_cloud: Some(CloudInit { secret_ref: Some(SecretReference { name }) }),
    });
    [disk].into_iter().chain(cloud_init).collect()
}
