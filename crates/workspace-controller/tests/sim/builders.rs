//! Workspaces and images as tests write them.

use otctl_types::diskimage::VMDiskImageSpec;
use otctl_types::workspace::{
    Container, ContainerPort, ImageRetention, Instance, VirtualMachine, VirtualMachineSpec,
};
use otctl_types::{Workspace, WorkspaceSpec};
use serde_json::{Value, json};
use testbed::{World, builders};

use crate::controller::at;

/// A workspace of that name without entries.
pub(crate) fn workspace(name: &str) -> Builder {
    Builder(Workspace::new(name, WorkspaceSpec::default()))
}

/// A workspace to be.
#[derive(Clone)]
pub(crate) struct Builder(Workspace);

impl Builder {
    /// A container of that name with a port.
    pub(crate) fn container(mut self, name: &str) -> Self {
        self.0.spec.containers.push(container(name));
        self
    }

    /// A virtual machine that is not run, and its image.
    pub(crate) fn image(mut self, name: &str, image: &str) -> Self {
        self.0.spec.virtual_machines.push(machine(name, image, None));
        self
    }

    /// As [`image`](Self::image), and the image is made if there is none.
    pub(crate) fn made_image(mut self, name: &str, image: &str) -> Self {
        let mut entry = machine(name, image, None);
        entry.spec.image = Some(spec_of_image(image));
        self.0.spec.virtual_machines.push(entry);
        self
    }

    /// A virtual machine, and its image.
    pub(crate) fn machine(mut self, name: &str, image: &str) -> Self {
        self.0.spec.virtual_machines.push(machine(name, image, Some(instance())));
        self
    }

    /// Its images go with it.
    pub(crate) fn takes_images_along(self) -> Self {
        self.with(|spec| spec.image_retention = ImageRetention::Delete)
    }

    /// Anything else.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut WorkspaceSpec)) -> Self {
        change(&mut self.0.spec);
        self
    }

    /// A user creates it.
    pub(crate) fn create(self, world: &World) {
        world.create(&self.0);
    }
}

/// A container entry with a port.
pub(crate) fn container(name: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: format!("registry.example/{name}:1"),
        ports: vec![ContainerPort { container_port: 8080, ..ContainerPort::default() }],
        ..Container::default()
    }
}

/// An entry of `virtualMachines`.
pub(crate) fn machine(name: &str, image: &str, instance: Option<Instance>) -> VirtualMachine {
    let spec = VirtualMachineSpec {
        vm_disk_image_name: image.to_owned(),
        instance,
        ..VirtualMachineSpec::default()
    };
    VirtualMachine { name: name.to_owned(), spec }
}

/// A machine of 1Gi.
pub(crate) fn instance() -> Instance {
    Instance { memory: Some("1Gi".to_owned()), ..Instance::default() }
}

/// What images of that name are made from.
pub(crate) fn spec_of_image(name: &str) -> VMDiskImageSpec {
    builders::image(&format!("labs/{name}")).build().spec
}

/// An image of that name, which is being synced.
pub(crate) fn image(world: &World, name: &str) {
    builders::image(&format!("labs/{name}")).create(world);
    set_image(world, name, |status| {
        status["phase"] = json!("Syncing");
        status["message"] = json!("the data is being fetched");
    });
}

/// The image has failed.
pub(crate) fn fail(world: &World, name: &str) {
    set_image(world, name, |status| {
        status["phase"] = json!("Failed");
        status["message"] = json!("the checksum is another");
    });
}

/// The image is usable from now on, at this revision.
pub(crate) fn sync(world: &World, name: &str, revision: &str) {
    set_image(world, name, |status| {
        status["phase"] = json!("Succeeded");
        status["message"] = json!("");
        status["current"] = json!({"revision": revision, "volume": format!("{name}-{revision}"), "minimumSize": 1 << 20});
        status["conditions"] = json!([{
            "type": "Available", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    });
}

/// An image of that name, usable at revision `r1`.
pub(crate) fn synced_image(world: &World, name: &str) {
    image(world, name);
    sync(world, name, "r1");
}

/// Changes the status of an image, as its controller would.
pub(crate) fn set_image(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    world.edit("VMDiskImage", &at(name), |image| change(&mut image["status"]));
}
