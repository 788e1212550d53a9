//! How pods find the other entries by name: lines of `/etc/hosts` with the addresses of their Services.
//!
//! Those lines are part of the template, so a change of them replaces every pod. An entry that is added or removed is no
//! reason to restart its neighbours: what is there stays as it is until something else replaces the pods, a restart by hand
//! among it, or until an address in it leads elsewhere. Until then the name of a new entry does not resolve in older pods.
//! An annotation of the Deployment says which lines those are, so that one that somebody takes away is told from one that is
//! new.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{HostAlias, PodSpec};
use otctl_kit::cluster::erase;
use otctl_types::names::{HOSTS_ANNOTATION, RESTART_ANNOTATION, REVISION_ANNOTATION};

use crate::owned;

/// What `kubectl rollout restart` puts into a template.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// A line for each entry with an address, in the order of their names.
pub fn host_aliases(addresses: &BTreeMap<String, String>) -> Vec<HostAlias> {
    addresses.iter().map(|(entry, address)| line(entry, address)).collect()
}

/// The Deployment to hold `observed` to: `desired`, with the lines that its pods have if they can stay. Entries that are
/// `nameless` have no address any more; theirs may be anybody's by now.
pub fn settled(
    mut desired: Deployment,
    observed: &Deployment,
    nameless: &BTreeSet<&str>,
) -> Deployment {
    let given = noted(observed).unwrap_or_else(|| lines(observed).to_vec());
    let (restarted, known) = (restarted_at(observed), note(observed, RESTART_ANNOTATION));
    if let Some(at) = restarted {
        let annotations = desired.metadata.annotations.get_or_insert_default();
        annotations.insert(RESTART_ANNOTATION.to_owned(), at.to_owned());
    }
    if restarted != known || leads_elsewhere(lines(&desired), &given, nameless) {
        return desired;
    }
    let kept = with(desired.clone(), given);
    if replaces_pods(&kept, observed) { desired } else { kept }
}

/// The address at which the pods of a Deployment find an entry.
pub fn address<'a>(deployment: &'a Deployment, entry: &str) -> Option<&'a str> {
    pairs(lines(deployment)).find(|(name, _)| *name == entry).map(|(_, address)| address)
}

/// Puts lines into the template of a Deployment, and notes which.
pub(super) fn with(mut deployment: Deployment, lines: Vec<HostAlias>) -> Deployment {
    let note: Vec<_> = pairs(&lines).map(|(name, address)| format!("{name}={address}")).collect();
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.insert(HOSTS_ANNOTATION.to_owned(), note.join(","));
    if let Some(pods) = deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
        pods.host_aliases = Some(lines).filter(|lines| !lines.is_empty());
    }
    deployment
}

/// The lines that a Deployment was given; none when that cannot be read.
fn noted(deployment: &Deployment) -> Option<Vec<HostAlias>> {
    let pairs = note(deployment, HOSTS_ANNOTATION)?
        .split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('='));
    let pairs: Option<Vec<_>> = pairs.collect();
    Some(pairs?.into_iter().map(|(name, address)| line(name, address)).collect())
}

fn line(name: &str, address: &str) -> HostAlias {
    HostAlias { ip: address.to_owned(), hostnames: Some(vec![name.to_owned()]) }
}

fn lines(deployment: &Deployment) -> &[HostAlias] {
    let pods: Option<&PodSpec> =
        deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pods.and_then(|pods| pods.host_aliases.as_deref()).unwrap_or_default()
}

fn note<'a>(deployment: &'a Deployment, key: &str) -> Option<&'a str> {
    deployment.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// When somebody last asked for other pods: `kubectl rollout restart`.
fn restarted_at(deployment: &Deployment) -> Option<&str> {
    let template = deployment.spec.as_ref()?.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get(RESTARTED_AT).map(String::as_str)
}

/// Whether a name that still is an entry's has another address now, or none.
fn leads_elsewhere(now: &[HostAlias], then: &[HostAlias], nameless: &BTreeSet<&str>) -> bool {
    let now: BTreeMap<_, _> = pairs(now).collect();
    pairs(then).any(|(name, address)| {
        nameless.contains(name) || now.get(name).is_some_and(|it| *it != address)
    })
}

fn pairs(lines: &[HostAlias]) -> impl Iterator<Item = (&str, &str)> {
    lines.iter().flat_map(|line| {
        let names = line.hostnames.iter().flatten();
        names.map(|name| (name.as_str(), line.ip.as_str()))
    })
}

/// Whether the pods of `observed` are replaced once `desired` is applied: by a field that differs, or by one that is not
/// asked for any more, which only the noted revision tells.
fn replaces_pods(desired: &Deployment, observed: &Deployment) -> bool {
    let difference = owned::differs(&erase(desired), &erase(observed));
    note(desired, REVISION_ANNOTATION) != note(observed, REVISION_ANNOTATION)
        || difference.is_some_and(|path| path.starts_with("spec.template"))
}

#[cfg(test)]
mod tests;
