//! The environment of a container, and `$(NAME)` in values, commands and arguments.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVar, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use super::NodeContext;
use super::mounts::NotYet;
use super::sources::Source;

/// Variables by name.
pub(super) type Environment = BTreeMap<String, String>;

/// Values as the container sees them: mount paths are not rewritten yet.
pub(super) async fn resolve(
    context: &NodeContext,
    pod: &Pod,
    container: &Container,
    pod_ip: IpAddr,
) -> Result<Environment, NotYet> {
    let mut environment = Environment::new();
    for source in container.env_from.iter().flatten() {
        environment.extend(values_of(context, pod, source).await?);
    }
    for variable in container.env.iter().flatten() {
        if let Some(value) = value_of(context, pod, variable, pod_ip).await? {
            environment.insert(variable.name.clone(), expand(&value, &environment));
        }
    }
    Ok(environment)
}

/// All variables of one source.
async fn values_of(
    context: &NodeContext,
    pod: &Pod,
    source: &EnvFromSource,
) -> Result<Environment, NotYet> {
    let map = source.config_map_ref.as_ref().map(Source::from);
    let Some(object) = map.or_else(|| source.secret_ref.as_ref().map(Source::from)) else {
        return Err(NotYet::config("a source of envFrom is not supported by process nodes"));
    };
    let prefix = source.prefix.as_deref().unwrap_or_default();
    let values = object.values(context, pod).await?;
    Ok(values.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)).collect())
}

/// A variable's value; none for one whose optional source is absent.
async fn value_of(
    context: &NodeContext,
    pod: &Pod,
    variable: &EnvVar,
    pod_ip: IpAddr,
) -> Result<Option<String>, NotYet> {
    let Some(source) = &variable.value_from else {
        return Ok(Some(variable.value.clone().unwrap_or_default()));
    };
    if let Some(field) = &source.field_ref {
        return field_value(context, pod, field, pod_ip).map(Some);
    }
    if let Some(key) = &source.secret_key_ref {
        return Source::from(key).value(context, pod, &key.key).await;
    }
    if let Some(key) = &source.config_map_key_ref {
        return Source::from(key).value(context, pod, &key.key).await;
    }
    Err(NotYet::config(format!(
        "the source of variable {} is not supported by process nodes",
        variable.name
    )))
}

fn field_value(
    context: &NodeContext,
    pod: &Pod,
    field: &ObjectFieldSelector,
    pod_ip: IpAddr,
) -> Result<String, NotYet> {
    let spec = pod.spec.as_ref();
    match field.field_path.as_str() {
        "metadata.name" => Ok(pod.name_any()),
        "metadata.namespace" => Ok(pod.namespace().unwrap_or_default()),
        "metadata.uid" => Ok(pod.uid().unwrap_or_default()),
        "spec.nodeName" => Ok(context.name.clone()),
        "spec.serviceAccountName" => {
            Ok(spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default())
        }
        "status.hostIP" | "status.hostIPs" => Ok("127.0.0.1".to_owned()),
        "status.podIP" | "status.podIPs" => Ok(pod_ip.to_string()),
        path => keyed_field(pod, path).ok_or_else(|| {
            NotYet::config(format!("field {path} is not supported by process nodes"))
        }),
    }
}

/// `metadata.labels['key']` and `metadata.annotations['key']`; an absent key is an empty value.
fn keyed_field(pod: &Pod, path: &str) -> Option<String> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    let map = match map {
        "metadata.labels" => pod.labels(),
        "metadata.annotations" => pod.annotations(),
        _ => return None,
    };
    Some(map.get(key).cloned().unwrap_or_default())
}

/// Replaces `$(NAME)` where NAME is known; `$$` stands for `$`; all else stays as it is.
pub(super) fn expand(text: &str, environment: &Environment) -> String {
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        expanded.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            expanded.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')'))
            && let Some(value) = environment.get(name)
        {
            expanded.push_str(value);
            rest = after;
        } else {
            expanded.push('$');
        }
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_are_replaced_and_all_else_stays() {
        let environment = Environment::from([("IP".to_owned(), "127.1.2.3".to_owned())]);
        let cases = [
            ("--progress-address=$(IP):8080", "--progress-address=127.1.2.3:8080"),
            ("$(UNKNOWN) $(IP)", "$(UNKNOWN) 127.1.2.3"),
            ("$$(IP)", "$(IP)"),
            ("cost $5 $(IP", "cost $5 $(IP"),
            ("$", "$"),
        ];
        for (text, wanted) in cases {
            assert_eq!(expand(text, &environment), wanted, "{text}");
        }
    }
}
