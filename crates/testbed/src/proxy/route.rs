//! Which line a request is: from its method, path and query, and of a create from the name in its body.

use http::request::Parts;
use http::{HeaderMap, Method, header};
use serde_json::Value;

use crate::fault::{Call, Verb, key};

/// Kinds by their plurals, as far as controllers use them.
const KINDS: [(&str, &str); 22] = [
    ("admissionqueues", "AdmissionQueue"),
    ("configmaps", "ConfigMap"),
    ("deployments", "Deployment"),
    ("events", "Event"),
    ("jobs", "Job"),
    ("leases", "Lease"),
    ("namespaces", "Namespace"),
    ("networkpolicies", "NetworkPolicy"),
    ("nodes", "Node"),
    ("persistentvolumeclaims", "PersistentVolumeClaim"),
    ("persistentvolumes", "PersistentVolume"),
    ("pods", "Pod"),
    ("secrets", "Secret"),
    ("services", "Service"),
    ("storageclasses", "StorageClass"),
    ("subjectaccessreviews", "SubjectAccessReview"),
    ("virtualmachines", "VirtualMachine"),
    ("vmdiskimages", "VMDiskImage"),
    ("volumesnapshotclasses", "VolumeSnapshotClass"),
    ("volumesnapshotcontents", "VolumeSnapshotContent"),
    ("volumesnapshots", "VolumeSnapshot"),
    ("workspaces", "Workspace"),
];

/// The line of a request. What is no resource has its path for a name.
pub(super) fn call(head: &Parts, body: &[u8]) -> Call {
    let Some(resource) = Resource::read(head.uri.path()) else {
        let (part, kind) = (String::new(), String::new());
        return Call { verb: Verb::Get, part, kind, name: head.uri.path().to_owned() };
    };
    let verb = verb(head, &resource);
    let name = match verb {
        Verb::Create if resource.name.is_empty() => name_in(body),
        _ => resource.name.to_owned(),
    };
    let name = key(resource.namespace, &name);
    Call { verb, part: resource.subresource.to_owned(), kind: kind(resource.plural), name }
}

fn verb(head: &Parts, resource: &Resource<'_>) -> Verb {
    let asks = |name: &str| query(head).any(|(key, value)| key == name && !value.is_empty());
    match head.method {
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH if is_apply(&head.headers) => Verb::Apply,
        Method::PATCH => Verb::Patch,
        Method::DELETE => Verb::Delete,
        _ if asks("watch") => Verb::Watch,
        _ if asks("continue") => Verb::Continue,
        _ if resource.name.is_empty() => Verb::List,
        _ => Verb::Get,
    }
}

fn query(head: &Parts) -> impl Iterator<Item = (&str, &str)> {
    let query = head.uri.query().unwrap_or_default();
    query.split('&').filter_map(|pair| pair.split_once('='))
}

fn is_apply(headers: &HeaderMap) -> bool {
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content.is_some_and(|content| content.starts_with("application/apply-patch"))
}

fn name_in(body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Some(text("name")).filter(|name| !name.is_empty()).unwrap_or_else(|| text("generateName"))
}

fn kind(plural: &str) -> String {
    let known = KINDS.iter().find(|(known, _)| *known == plural);
    known.map_or(plural, |(_, kind)| kind).to_owned()
}

/// The parts of a path; empty where there are none.
struct Resource<'a> {
    namespace: &'a str,
    plural: &'a str,
    name: &'a str,
    subresource: &'a str,
}

impl<'a> Resource<'a> {
    fn read(path: &'a str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = parts.as_slice() else {
            return None;
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..]
                if rest.first().is_some_and(|part| !["status", "finalize"].contains(part)) =>
            {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let part = |at: usize| rest.get(at).copied().unwrap_or_default();
        let plural = rest.first()?;
        Some(Self { namespace, plural, name: part(1), subresource: part(2) })
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn line(method: &str, uri: &str, content: &str, body: &str) -> String {
        let request = Request::builder().method(method).uri(uri);
        let request = request.header("content-type", content).body(()).unwrap();
        call(&request.into_parts().0, body.as_bytes()).to_string()
    }

    #[test]
    fn every_request_of_a_controller_is_a_line() {
        let images = "/apis/pelotech.ot/v1alpha1/namespaces/labs/vmdiskimages";
        let jobs = "/apis/batch/v1/namespaces/labs/jobs";
        for (method, uri, wanted) in [
            ("GET", "/apis/batch/v1/jobs?limit=500", "list Job"),
            ("GET", "/apis/batch/v1/jobs?limit=500&continue=abc", "continue Job"),
            ("GET", "/apis/batch/v1/jobs?limit=500&continue=", "list Job"),
            ("GET", "/api/v1/pods?watch=true&timeoutSeconds=30", "watch Pod"),
            ("GET", "/api/v1/namespaces/labs/pods", "list Pod labs"),
            ("GET", "/api/v1/namespaces/labs/pods/a", "get Pod labs/a"),
            ("GET", "/api/v1/namespaces/labs", "get Namespace labs"),
            ("PUT", "/api/v1/namespaces/labs/finalize", "update finalize Namespace labs"),
            ("GET", "/api/v1/namespaces", "list Namespace"),
            ("DELETE", &format!("{jobs}/a?"), "delete Job labs/a"),
            (
                "PATCH",
                &format!("{images}/a/status?fieldManager=x"),
                "patch status VMDiskImage labs/a",
            ),
            (
                "PUT",
                "/apis/pelotech.ot/v1alpha1/admissionqueues/q/status",
                "update status AdmissionQueue q",
            ),
            ("GET", "/apis/example.com/v1/gadgets/x", "get gadgets x"),
            ("GET", "/version", "get /version"),
        ] {
            assert_eq!(line(method, uri, "application/merge-patch+json", ""), wanted);
        }
        let apply = line("PATCH", &format!("{jobs}/a"), "application/apply-patch+yaml", "");
        assert_eq!(apply, "apply Job labs/a");
        let body = |name: &str| format!(r#"{{"metadata": {{"{name}": "a"}}}}"#);
        for name in ["name", "generateName"] {
            assert_eq!(line("POST", jobs, "application/json", &body(name)), "create Job labs/a");
        }
    }
}
