//! A workspace with every field that a child is made from.

use otctl_types::diskimage::{Current, VMDiskImageStatus};
use otctl_types::workspace::{Container, Instance, VirtualMachine};
use otctl_types::{VMDiskImage, Workspace};
use policy::Policy;

use super::Facts;
use crate::config::{self, Settings};

const UID: &str = "0b1d2c3e-0000-4000-8000-000000000001";

/// A workspace and what is around it.
pub(crate) struct Fixture {
    pub(crate) workspace: Workspace,
    pub(crate) settings: Settings,
    pub(crate) policy: Policy,
}

/// The one that tests against an API server use as well.
pub(crate) fn full() -> Fixture {
    let text = include_str!("../../tests/full.yaml");
    let mut workspace: Workspace = serde_saphyr::from_str(text).expect("it is in the repository");
    workspace.metadata.uid = Some(UID.to_owned());
    Fixture { workspace, settings: config::fixture(), policy: Policy::default() }
}

/// What an image has to offer once it is synced.
pub(crate) fn current() -> Current {
    Current {
        revision: "0123456789abcdef".to_owned(),
        snapshot: Some("attacker-1.0.0-012345".to_owned()),
        ..Current::default()
    }
}

impl Fixture {
    pub(crate) fn facts(&self) -> Facts<'_> {
        let (workspace, settings, policy) = (&self.workspace, &self.settings, &self.policy);
        Facts { workspace, namespace: "labs", settings, policy }
    }

    /// The same, changed.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn container(&self, name: &str) -> &Container {
        let mut all = self.workspace.spec.containers.iter();
        all.find(|entry| entry.name == name).expect("it is in the file")
    }

    pub(crate) fn machine(&self, name: &str) -> &VirtualMachine {
        let mut all = self.workspace.spec.virtual_machines.iter();
        all.find(|entry| entry.name == name).expect("it is in the file")
    }

    pub(crate) fn instance(&self, name: &str) -> (&VirtualMachine, &Instance) {
        let entry = self.machine(name);
        (entry, entry.spec.instance.as_ref().expect("it has one"))
    }

    /// The image of an entry as it is once it is synced.
    pub(crate) fn image(&self, name: &str, current: Current) -> VMDiskImage {
        let entry = self.machine(name);
        let spec = entry.spec.image.clone().unwrap_or_default();
        let mut image = VMDiskImage::new(&entry.spec.vm_disk_image_name, spec);
        let disk_size = image.spec.disk_size.clone();
        image.status = Some(VMDiskImageStatus {
            disk_size,
            current: Some(current),
            ..VMDiskImageStatus::default()
        });
        image
    }
}
