//! Objects that tests begin with, as sentences: `image("lab/a").disk_size("1Gi").import_fails(ServerError).create(&world)`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use otctl_kit::store::Key;
use otctl_types::import::ImportReason;
use otctl_types::names::{DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME, RETRY_ANNOTATION};
use otctl_types::{VMDiskImage, VMDiskImageSpec, VMDiskImageStatus};
use serde_json::{Value, json};

use crate::json::uid;
use crate::script::{Ending, Role};
use crate::world::World;

/// A key from `namespace/name`, or from the name of something cluster-scoped.
#[must_use]
pub fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    Key::new(namespace, name)
}

/// An image of a plain http source, with the name `namespace/name`.
#[must_use]
pub fn image(name: &str) -> ImageBuilder {
    let key = key(name);
    let spec = VMDiskImageSpec {
        url: format!("http://images.example/{}.qcow2", key.name),
        access_modes: vec![otctl_types::diskimage::AccessMode::ReadWriteOnce],
        ..VMDiskImageSpec::default()
    };
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        ..ObjectMeta::default()
    };
    ImageBuilder {
        image: VMDiskImage { metadata, spec, status: None },
        key,
        endings: Vec::new(),
        always: Vec::new(),
    }
}

/// An image to be, and how its pods will end.
#[derive(Clone, Debug)]
pub struct ImageBuilder {
    image: VMDiskImage,
    key: Key,
    endings: Vec<(Role, Ending)>,
    always: Vec<(Role, Ending)>,
}

impl ImageBuilder {
    /// Changes its spec.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut VMDiskImageSpec)) -> Self {
        change(&mut self.image.spec);
        self
    }

    /// `spec.diskSize`.
    #[must_use]
    pub fn disk_size(self, size: &str) -> Self {
        self.with(|spec| spec.disk_size = Some(size.to_owned()))
    }

    /// `spec.snapshotClass`.
    #[must_use]
    pub fn snapshot_class(self, class: &str) -> Self {
        self.with(|spec| spec.snapshot_class = Some(class.to_owned()))
    }

    /// `spec.storageClass`.
    #[must_use]
    pub fn storage_class(self, class: &str) -> Self {
        self.with(|spec| spec.storage_class = Some(class.to_owned()))
    }

    /// `spec.suspend`.
    #[must_use]
    pub fn suspended(self) -> Self {
        self.with(|spec| spec.suspend = true)
    }

    /// The retry annotation.
    #[must_use]
    pub fn retry(mut self, value: &str) -> Self {
        let annotations = self.image.metadata.annotations.get_or_insert_default();
        annotations.insert(RETRY_ANNOTATION.to_owned(), value.to_owned());
        self
    }

    /// A status to begin with.
    #[must_use]
    pub fn status(mut self, change: impl FnOnce(&mut VMDiskImageStatus)) -> Self {
        change(self.image.status.get_or_insert_default());
        self
    }

    /// Its next probe fails.
    #[must_use]
    pub fn probe_fails(self, reason: ImportReason) -> Self {
        self.probe(Ending::failed(Role::Probe, reason))
    }

    /// Its next import fails after it asked for data.
    #[must_use]
    pub fn import_fails(self, reason: ImportReason) -> Self {
        self.import(Ending::failed(Role::Import, reason))
    }

    /// Each of its imports fails after it asked for data.
    #[must_use]
    pub fn every_import_fails(mut self, reason: ImportReason) -> Self {
        self.always.push((Role::Import, Ending::failed(Role::Import, reason)));
        self
    }

    /// Its imports run until they are deleted.
    #[must_use]
    pub fn imports_without_end(mut self) -> Self {
        self.always.push((Role::Import, Ending::Never));
        self
    }

    /// Its next probe ends like this.
    #[must_use]
    pub fn probe(mut self, ending: Ending) -> Self {
        self.endings.push((Role::Probe, ending));
        self
    }

    /// Its next import ends like this.
    #[must_use]
    pub fn import(mut self, ending: Ending) -> Self {
        self.endings.push((Role::Import, ending));
        self
    }

    /// The object alone.
    #[must_use]
    pub fn build(self) -> VMDiskImage {
        self.image
    }

    /// A user creates it, and the source will behave as said. Returns its key.
    ///
    /// # Panics
    /// When it exists.
    pub fn create(self, world: &World) -> Key {
        for (role, ending) in self.endings {
            world.script(&self.key, role, ending);
        }
        for (role, ending) in self.always {
            world.script_always(&self.key, role, ending);
        }
        world.create(&self.image);
        self.key
    }
}

/// The policy ConfigMap, empty: every key has its default.
#[must_use]
pub fn policy() -> PolicyBuilder {
    PolicyBuilder { entries: BTreeMap::new() }
}

/// A policy to be.
#[derive(Clone, Debug)]
pub struct PolicyBuilder {
    entries: BTreeMap<String, String>,
}

impl PolicyBuilder {
    /// One key.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.entries.insert(key.to_owned(), value.to_string());
        self
    }

    /// How many at once.
    #[must_use]
    pub fn concurrency(self, limit: u32) -> Self {
        self.set("concurrency", &limit.to_string())
    }

    /// A user creates it, or replaces its whole content.
    pub fn apply(self, world: &World) {
        let key = Key::new(DEFAULT_NAMESPACE, DEFAULT_POLICY_NAME);
        if world.get("ConfigMap", &key).is_some() {
            world.edit("ConfigMap", &key, |policy| policy["data"] = json!(self.entries));
            return;
        }
        let metadata = ObjectMeta {
            name: Some(key.name),
            namespace: Some(key.namespace),
            ..ObjectMeta::default()
        };
        world.create(&ConfigMap { metadata, data: Some(self.entries), ..ConfigMap::default() });
    }
}

/// Name of the driver of the classes made here.
pub const DRIVER: &str = "storage.testbed";

/// A default storage class `standard` and a snapshot class `snapshots` of the same driver.
///
/// # Panics
/// When one exists.
pub fn storage(world: &World) {
    storage_class(world, "standard", true);
    snapshot_class(world, "snapshots");
}

fn storage_class(world: &World, name: &str, is_default: bool) {
    world.create_value(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": DRIVER,
        "volumeBindingMode": "Immediate", "reclaimPolicy": "Delete",
        "metadata": {
            "name": name,
            "annotations": {"storageclass.kubernetes.io/is-default-class": is_default.to_string()},
        },
    }));
}

/// One more storage class, not the default.
///
/// # Panics
/// When it exists.
pub fn another_storage_class(world: &World, name: &str) {
    storage_class(world, name, false);
}

/// A snapshot class.
///
/// # Panics
/// When it exists.
pub fn snapshot_class(world: &World, name: &str) {
    world.create_value(json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "driver": DRIVER,
        "deletionPolicy": "Delete", "metadata": {"name": name},
    }));
}

/// A claim of 1 GiB in no class.
#[must_use]
pub fn claim(name: &str) -> ChildBuilder {
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    ChildBuilder::new("v1", "PersistentVolumeClaim", name, &spec)
}

/// A Job of one pod, started.
#[must_use]
pub fn job(name: &str) -> ChildBuilder {
    let template = json!({"metadata": {}, "spec": {"containers": [{"name": "importer", "image": "importer"}]}});
    ChildBuilder::new("batch/v1", "Job", name, &json!({"backoffLimit": 0, "template": template}))
}

/// A snapshot of a claim in the same namespace.
#[must_use]
pub fn snapshot(name: &str, claim: &str) -> ChildBuilder {
    let spec = json!({"volumeSnapshotClassName": "snapshots", "source": {"persistentVolumeClaimName": claim}});
    ChildBuilder::new("snapshot.storage.k8s.io/v1", "VolumeSnapshot", name, &spec)
}

/// An object that a controller might have made, or a stranger of the same name.
#[derive(Clone, Debug)]
pub struct ChildBuilder {
    object: Value,
}

impl ChildBuilder {
    fn new(api_version: &str, kind: &str, name: &str, spec: &Value) -> Self {
        let key = key(name);
        let metadata = json!({"namespace": key.namespace, "name": key.name});
        Self {
            object: json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}),
        }
    }

    /// With `owner` as its controller.
    #[must_use]
    pub fn owned_by(mut self, owner: &Value) -> Self {
        self.object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": uid(owner), "controller": true, "blockOwnerDeletion": true,
        }]);
        self
    }

    /// Changes it.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.object);
        self
    }

    /// The object alone.
    #[must_use]
    pub fn build(self) -> Value {
        self.object
    }

    /// A user creates it; returns it as it then is.
    ///
    /// # Panics
    /// When it exists.
    pub fn create(self, world: &World) -> Value {
        world.create_value(self.object)
    }
}
