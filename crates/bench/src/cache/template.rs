//! Images as a run of the product left them, to be made again many times: every field is as it really is, and nobody had
//! to download ten thousand disks.

use std::time::Duration;

use diskimage_controller::snapshots::VolumeSnapshot;
use image_server::{Content, ImageServer};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::{Api, Client, Resource};
use otctl::installation::ControllerProcess;
use otctl_types::VMDiskImage;
use otctl_types::diskimage::Phase;
use serde_json::Value;

use crate::bed::{Bed, NAMESPACE, snapshotted};
use crate::out;
use crate::waiting::until;

const ENDED_WITHIN: Duration = Duration::from_secs(180);
/// The controller has written nothing for so long: it has nothing more to do.
const QUIET: Duration = Duration::from_secs(3);
/// More than a first look reads.
const SIZE: u64 = 80 << 10;

/// One image with everything that a run left of it.
pub(crate) struct Template {
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Hash of the spec, which the names of children are made of.
    pub(crate) revision: String,
    pub(crate) image: Value,
    /// Jobs and their pods, which go after an hour.
    pub(crate) passing: Vec<Child>,
    /// Claims and snapshots.
    pub(crate) lasting: Vec<Child>,
}

/// Something that was made for an image.
pub(crate) struct Child {
    pub(crate) kind: ApiResource,
    pub(crate) object: Value,
}

impl Template {
    /// One that succeeded and one that failed for good, by the product on a cluster of their own.
    pub(crate) async fn grown() -> anyhow::Result<Vec<Self>> {
        out::doing("images to copy");
        let server = ImageServer::start().await?;
        server.add("disk", Content::generated(SIZE, 1));
        let hosts = format!("http://{}", server.address());
        let bed = Bed::whole(&[("allowedSourceHosts", &hosts)]).await?;
        let controller = ControllerProcess::start(&bed.launch)?;
        let urls = [("template-done", "disk"), ("template-failed", "nowhere")];
        let mut templates = Vec::new();
        for (name, path) in urls {
            templates.push(Self::of_one(&bed, name, &server.url(path)).await?);
        }
        controller.stop().await?;
        bed.end().await;
        Ok(templates)
    }

    async fn of_one(bed: &Bed, name: &str, url: &str) -> anyhow::Result<Self> {
        let client = &bed.client;
        let images: Api<VMDiskImage> = Api::namespaced(client.clone(), NAMESPACE);
        let mut kept = snapshotted(name, url);
        kept.spec.keep_volume = Some(true);
        images.create(&PostParams::default(), &kept).await?;
        until("an image to copy has ended", ENDED_WITHIN, async || {
            let phase = images.get(name).await?.status.and_then(|status| status.phase);
            Ok(matches!(phase, Some(Phase::Succeeded | Phase::Failed)).then_some(()))
        })
        .await?;
        // Its clean-up follows its status.
        bed.await_quiet(QUIET).await?;
        let image = images.get(name).await?;
        let uid = image.metadata.uid.clone().unwrap_or_default();
        let revision = diskimage_controller::names::revision(&image.spec);
        let passing = children::<Job>(client, &uid).await?.into_iter();
        let passing = passing.chain(children::<Pod>(client, &uid).await?).collect();
        let lasting = children::<PersistentVolumeClaim>(client, &uid).await?.into_iter();
        let lasting = lasting.chain(children::<VolumeSnapshot>(client, &uid).await?).collect();
        let image = serde_json::to_value(&image)?;
        Ok(Self { name: name.to_owned(), uid, revision, image, passing, lasting })
    }
}

/// Of a kind, what has the image's UID as an owner or, for pods, on a label.
async fn children<K: Resource<DynamicType = ()>>(
    client: &Client,
    uid: &str,
) -> anyhow::Result<Vec<Child>> {
    let kind = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind);
    let mut children = Vec::new();
    for object in api.list(&ListParams::default()).await? {
        let mut object = serde_json::to_value(&object)?;
        // Items of a list do not say what they are.
        object["apiVersion"] = kind.api_version.clone().into();
        object["kind"] = kind.kind.clone().into();
        let going = &object["metadata"]["deletionTimestamp"];
        if going.is_null() && object["metadata"].to_string().contains(uid) {
            children.push(Child { kind: kind.clone(), object });
        }
    }
    Ok(children)
}
