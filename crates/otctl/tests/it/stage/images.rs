//! Images of a stage: made, changed, waited for.

use std::time::Instant;

use image_server::{Behaviour, Content};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use local_cluster::storage::{IMMEDIATE_CLASS, SNAPSHOT_CLASS};
use otctl_types::condition::{READY, find};
use otctl_types::diskimage::{AccessMode, Phase, SourceType, VMDiskImageStatus};
use otctl_types::{VMDiskImage, VMDiskImageSpec};
use serde_json::{Value, json};

use super::{CREDENTIALS, LOOK_RARELY, NAMESPACE, PATIENCE, Stage, until_found};

impl Stage {
    /// Serves `content` as it behaves at `/<name>` and gives the image that asks for it: a raw disk of 1 MiB with a
    /// snapshot.
    pub(crate) fn image(&self, name: &str, content: Content, behaviour: Behaviour) -> VMDiskImage {
        self.server.add(name, content);
        self.server.behave(name, behaviour).unwrap();
        self.image_of(name, &self.server.url(name))
    }

    /// The image that asks for whatever is at `url`, with the credentials of every stage.
    pub(crate) fn image_of(&self, name: &str, url: &str) -> VMDiskImage {
        let spec = VMDiskImageSpec {
            url: url.to_owned(),
            source_type: SourceType::Http,
            access_modes: vec![AccessMode::ReadWriteOnce],
            disk_size: Some("1Mi".to_owned()),
            storage_class: Some(IMMEDIATE_CLASS.to_owned()),
            snapshot_class: Some(SNAPSHOT_CLASS.to_owned()),
            secret_ref: Some(CREDENTIALS.to_owned()),
            ..VMDiskImageSpec::default()
        };
        let mut image = VMDiskImage::new(name, spec);
        image.metadata.namespace = Some(NAMESPACE.to_owned());
        image
    }

    /// Ends whatever the server does wrong with an image, also to a transfer that stalls now.
    pub(crate) fn let_go(&self, name: &str) {
        self.server.behave(name, well_behaved()).unwrap();
        self.server.release(name).unwrap();
    }

    /// Creates an image.
    pub(crate) async fn create(&self, image: &VMDiskImage) -> VMDiskImage {
        self.images().create(&PostParams::default(), image).await.unwrap()
    }

    /// Creates, one after the other, so that their order is known.
    pub(crate) async fn create_all(&self, images: &[VMDiskImage]) {
        for image in images {
            self.create(image).await;
        }
    }

    /// Images of the namespace.
    pub(crate) fn images(&self) -> Api<VMDiskImage> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The image as it is now.
    pub(crate) async fn read(&self, name: &str) -> VMDiskImage {
        self.images().get(name).await.unwrap()
    }

    /// Changes an image by a merge patch.
    pub(crate) async fn patch(&self, name: &str, patch: &Value) {
        self.images().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until an image is as wanted, and gives it.
    pub(crate) async fn await_image(
        &self,
        name: &str,
        is_wanted: impl Fn(&VMDiskImageStatus) -> bool,
    ) -> VMDiskImage {
        let images = self.images();
        until_found(&format!("'{name}' is as wanted"), async || {
            let image = images.get(name).await.unwrap();
            let is_so = image.status.as_ref().is_some_and(&is_wanted);
            if is_so { Ok(image) } else { Err(pretty(&image.status)) }
        })
        .await
    }

    /// Waits until an image has this phase, and gives it.
    pub(crate) async fn await_phase(&self, name: &str, phase: Phase) -> VMDiskImage {
        self.await_image(name, |status| status.phase == Some(phase)).await
    }

    /// Waits until an image says this reason on Ready, and gives it.
    pub(crate) async fn await_reason(&self, name: &str, reason: &str) -> VMDiskImage {
        self.await_image(name, |status| ready_reason(status) == reason).await
    }

    /// Waits until every image has succeeded or failed, for as long as one more does within [`PATIENCE`]; all images.
    pub(crate) async fn await_all_ended(&self) -> Vec<VMDiskImage> {
        let (mut ended_before, mut deadline) = (0, Instant::now() + PATIENCE);
        loop {
            let images = self.images().list(&ListParams::default()).await.unwrap().items;
            let ended = images.iter().filter(|image| has_ended(image)).count();
            if ended == images.len() {
                return images;
            }
            if ended > ended_before {
                (ended_before, deadline) = (ended, Instant::now() + PATIENCE);
            }
            let open = images.iter().find(|image| !has_ended(image));
            assert!(
                Instant::now() < deadline,
                "{ended} of {} ended; one that did not: {}",
                images.len(),
                pretty(&open.map(|image| &image.status))
            );
            tokio::time::sleep(LOOK_RARELY).await;
        }
    }
}

/// A server that does nothing wrong.
pub(crate) fn well_behaved() -> Behaviour {
    Behaviour::new()
}

/// Why an image is Ready or is not.
pub(crate) fn ready_reason(status: &VMDiskImageStatus) -> &str {
    find(&status.conditions, READY).map_or("", |ready| ready.reason.as_str())
}

/// Whether an image has succeeded or failed.
pub(crate) fn has_ended(image: &VMDiskImage) -> bool {
    matches!(phase(image), Some(Phase::Succeeded | Phase::Failed))
}

/// The phase of an image.
pub(crate) fn phase(image: &VMDiskImage) -> Option<Phase> {
    image.status.as_ref().and_then(|status| status.phase)
}

/// The status of an image; empty before the first write.
pub(crate) fn status(image: &VMDiskImage) -> VMDiskImageStatus {
    image.status.clone().unwrap_or_default()
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(&json!(value)).unwrap()
}
