//! The Deployment of a container. It mounts no claim, so old and new pods may run beside each other.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Container as PodContainer, HostAlias, LocalObjectReference, PodSpec, PodTemplateSpec,
    SeccompProfile, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use otctl_types::workspace::Container;

use super::{Facts, note_revision};
use crate::names::{self, Component};

/// A container without a readiness probe is ready as soon as its process runs, also when that ends at once, again and again:
/// it must live this long to count, in seconds.
const MIN_READY_SECONDS: i32 = 2;

/// The Deployment of a container with that many pods, none while the workspace is suspended. Its pods find the other
/// entries by `aliases`; where a Deployment is there already see [`host_aliases`](super::host_aliases).
pub fn deployment(
    facts: &Facts<'_>,
    entry: &Container,
    replicas: i32,
    aliases: Vec<HostAlias>,
) -> Deployment {
    let template = template(facts, entry);
    let mut metadata =
        facts.meta(facts.child_name(&entry.name), Component::Container, Some(&entry.name));
    note_revision(&mut metadata, &template);
    let selector = names::entry_selector(&facts.uid(), &entry.name);
    let deployment = Deployment {
        metadata,
        spec: Some(DeploymentSpec {
            replicas: Some(replicas),
            min_ready_seconds: Some(MIN_READY_SECONDS),
            revision_history_limit: Some(1),
            selector: LabelSelector { match_labels: Some(selector), match_expressions: None },
            strategy: Some(DeploymentStrategy {
                type_: Some("RollingUpdate".to_owned()),
                rolling_update: None,
            }),
            template,
            ..DeploymentSpec::default()
        }),
        status: None,
    };
    super::host_aliases::with(deployment, aliases)
}

fn template(facts: &Facts<'_>, entry: &Container) -> PodTemplateSpec {
    let mut secrets: Vec<_> =
        entry.image_pull_secrets.iter().map(|secret| secret.name.clone()).collect();
    secrets.sort();
    secrets.dedup();
    let secrets: Vec<_> = secrets.into_iter().map(|name| LocalObjectReference { name }).collect();
    PodTemplateSpec {
        metadata: Some(facts.pod_meta(Component::Container, &entry.name)),
        spec: Some(PodSpec {
            containers: vec![container(entry)],
            image_pull_secrets: Some(secrets).filter(|secrets| !secrets.is_empty()),
            restart_policy: Some("Always".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            // Said although it is the default: a pod in the network of its node is under no policy, and whoever edits a
            // Deployment by hand would put it there.
            host_network: Some(false),
            host_pid: Some(false),
            host_ipc: Some(false),
            ..PodSpec::default()
        }),
    }
}

/// The fields of an entry are named as Kubernetes names them, so it is read as a container. What is not one of its fields
/// is not of the container.
fn container(entry: &Container) -> PodContainer {
    let value = serde_json::to_value(entry).expect("an entry serialises");
    let mut container: PodContainer =
        serde_json::from_value(value).expect("its fields have the types of Kubernetes");
    if let Some(ports) = &mut container.ports {
        ports.sort_by_key(|port| (port.container_port, port.protocol.clone()));
    }
    container.security_context = Some(within_baseline(container.security_context));
    container
}

/// What costs an image nothing that `baseline` lets it do, unless the entry says otherwise. It may be root: most images
/// are.
fn within_baseline(asked: Option<SecurityContext>) -> SecurityContext {
    let mut context = asked.unwrap_or_default();
    context.allow_privilege_escalation.get_or_insert(false);
    context.seccomp_profile.get_or_insert_with(|| SeccompProfile {
        type_: "RuntimeDefault".to_owned(),
        localhost_profile: None,
    });
    if let Some(capabilities) = &mut context.capabilities {
        for list in [&mut capabilities.add, &mut capabilities.drop].into_iter().flatten() {
            list.sort();
            list.dedup();
        }
    }
    context
}
