//! Thousands of images with their children, as a run would have left them.

use std::ops::Range;
use std::time::Instant;

use anyhow::Context as _;
use diskimage_controller::names::{JobRole, attempt_number, job_name};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use otctl_types::VMDiskImage;
use serde_json::{Value, json};

use crate::bed::NAMESPACE;
use crate::cache::template::{Child, Template};
use crate::out;

/// Writers at a time.
const WRITERS: usize = 16;
/// One in so many has failed.
const FAILED: usize = 5;
/// One in so many ended within the last hour: its Jobs and pods are there.
const FRESH: usize = 10;
/// What a server gives, so that nobody else may.
const GIVEN: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "generateName"];
/// Labels that the Job controller gives, by the Job's UID.
const JOB_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Makes the images of these numbers; how many objects that were.
pub(super) async fn fill(
    client: &Client,
    templates: &[Template],
    numbers: Range<usize>,
) -> anyhow::Result<usize> {
    let (began, count) = (Instant::now(), numbers.len());
    out::doing(&format!("{count} images"));
    let [done, failed] = templates else { anyhow::bail!("two templates") };
    let made = stream::iter(numbers).map(|number| {
        let template = if number % FAILED == 0 { failed } else { done };
        let copy = Copy { client, template, name: format!("image-{number:05}") };
        async move { copy.make(number % FRESH < 2).await }
    });
    let made: Vec<usize> = made.buffer_unordered(WRITERS).try_collect().await?;
    out::doing(&format!("{count} images took {:.0?}", began.elapsed()));
    Ok(made.iter().sum())
}

/// One more image like the template.
struct Copy<'a> {
    client: &'a Client,
    template: &'a Template,
    name: String,
}

/// What stands in the template, and what stands in the copy instead.
type Changes = Vec<(String, String)>;

impl Copy<'_> {
    async fn make(&self, is_fresh: bool) -> anyhow::Result<usize> {
        let kind = ApiResource::erase::<VMDiskImage>(&());
        let names = vec![(self.template.name.clone(), self.name.clone())];
        let uid = self.put(&kind, &changed(&self.template.image, &names)?).await?;
        let mut changes = vec![(self.template.uid.clone(), uid.clone())];
        let mut made = 1;
        if is_fresh {
            for child in &self.template.passing {
                made += 1;
                self.put_child(child, &mut changes, &uid).await?;
            }
        }
        for child in &self.template.lasting {
            made += 1;
            self.put_child(child, &mut changes, &uid).await?;
        }
        Ok(made)
    }

    /// A Job's name and UID are learned on the way: its pods repeat them.
    async fn put_child(
        &self,
        child: &Child,
        changes: &mut Changes,
        owner: &str,
    ) -> anyhow::Result<()> {
        let metadata = &child.object["metadata"];
        let before = metadata["name"].as_str().unwrap_or_default();
        if child.kind.kind == "Job" {
            let role = [JobRole::Probe, JobRole::Import];
            let role = role.into_iter().find_map(|it| Some((it, attempt_number(before, it)?)));
            let (role, number) = role.context("a Job without a number")?;
            let after = job_name(&self.name, owner, &self.template.revision, role, number);
            changes.push((before.to_owned(), after));
        }
        // The image's name last: it is a part of the others.
        let names = [(self.template.name.clone(), self.name.clone())];
        let all: Changes = changes.iter().cloned().chain(names).collect();
        let uid = self.put(&child.kind, &changed(&child.object, &all)?).await?;
        changes.push((metadata["uid"].as_str().unwrap_or_default().to_owned(), uid));
        Ok(())
    }

    /// Creates it, then gives it its status; its UID.
    async fn put(&self, kind: &ApiResource, object: &Value) -> anyhow::Result<String> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), NAMESPACE, kind);
        let new = serde_json::from_value(as_new(object))?;
        let told = || format!("{} '{}'", kind.kind, object["metadata"]["name"]);
        let created = api.create(&PostParams::default(), &new).await.with_context(told)?;
        let name = created.metadata.name.unwrap_or_default();
        if let Some(status) = object.get("status") {
            let patch = Patch::Merge(json!({"status": status}));
            api.patch_status(&name, &PatchParams::default(), &patch).await.with_context(told)?;
        }
        Ok(created.metadata.uid.unwrap_or_default())
    }
}

fn changed(object: &Value, changes: &[(String, String)]) -> anyhow::Result<Value> {
    let mut text = object.to_string();
    for (before, after) in changes.iter().filter(|(before, _)| !before.is_empty()) {
        text = text.replace(before, after);
    }
    Ok(serde_json::from_str(&text)?)
}

/// Without what a server gives, and bound to a node that nobody plays.
fn as_new(object: &Value) -> Value {
    let mut new = object.clone();
    remove(&mut new["metadata"], &GIVEN);
    if new["kind"] == "Job" {
        remove(&mut new["metadata"]["labels"], &JOB_LABELS);
        remove(&mut new["spec"], &["selector"]);
        remove(&mut new["spec"]["template"]["metadata"]["labels"], &JOB_LABELS);
    }
    if new["kind"] == "Pod" {
        new["spec"]["nodeName"] = json!("elsewhere");
    }
    new
}

fn remove(object: &mut Value, fields: &[&str]) {
    if let Some(object) = object.as_object_mut() {
        fields.iter().for_each(|field| drop(object.remove(*field)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_tells_of_itself_only() {
        let object = json!({"metadata": {"name": "one-12ab-a1"}, "of": "one"});
        let changes = [("one-12ab-a1", "two-77ff-a1"), ("one", "two"), ("", "nothing")];
        let changes = changes.map(|(before, after)| (before.to_owned(), after.to_owned()));
        let expected = json!({"metadata": {"name": "two-77ff-a1"}, "of": "two"});
        assert_eq!(changed(&object, &changes).unwrap(), expected);
    }

    #[test]
    fn what_the_server_gives_is_left_to_it() {
        let labels = || json!({"controller-uid": "u", "kept": "yes"});
        let job = json!({"kind": "Job", "metadata": {"name": "a", "uid": "u", "labels": labels()},
            "spec": {"selector": {}, "template": {"metadata": {"labels": labels()}}}});
        let kept = json!({"kept": "yes"});
        let expected = json!({"kind": "Job", "metadata": {"name": "a", "labels": kept},
            "spec": {"template": {"metadata": {"labels": kept}}}});
        assert_eq!(as_new(&job), expected);
    }
}
