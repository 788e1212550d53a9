//! A refusal of the API server as an [`ApiError`]: by the machine-readable reason and causes where there are any, by the
//! code where there are none.

use http::{HeaderMap, StatusCode, header};
use kube::core::Status;
use kube::core::response::reason;

use super::answer::HttpAnswer;
use crate::cluster::ApiError;

/// The cause that the API server gives when a namespace goes.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";
/// What the API server says of an admission webhook that it could not ask. It has no reason or cause for that.
const WEBHOOK_FAILED: &str = "failed calling webhook";

/// What an answer that is no success means.
pub(crate) fn of(answer: &HttpAnswer) -> ApiError {
    let status = status(answer);
    let detail = detail(answer, &status);
    match answer.status {
        StatusCode::CONFLICT if status.reason == reason::ALREADY_EXISTS => ApiError::AlreadyExists,
        StatusCode::CONFLICT => ApiError::Conflict { detail },
        StatusCode::NOT_FOUND if status.reason == reason::NOT_FOUND => {
            ApiError::NotFound { detail }
        }
        // A path that nothing serves, in plain text: the kind is missing, and that tells nothing of its objects.
        StatusCode::NOT_FOUND => ApiError::Unknown { detail },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ApiError::Forbidden {
            quota: is_quota(&detail),
            namespace_terminating: causes(&status).any(|cause| cause == NAMESPACE_TERMINATING),
            detail,
        },
        StatusCode::TOO_MANY_REQUESTS => {
            let told = answer.retry_after_seconds.or_else(|| retry_after_of(&status));
            ApiError::Throttled { retry_after_seconds: told }
        }
        // An expired continuation: the list begins again.
        StatusCode::GONE | StatusCode::REQUEST_TIMEOUT => ApiError::Unknown { detail },
        code if code.is_client_error() => ApiError::Invalid { detail },
        StatusCode::INTERNAL_SERVER_ERROR if detail.contains(WEBHOOK_FAILED) => {
            ApiError::WebhookFailed { detail }
        }
        _ => ApiError::Unknown { detail },
    }
}

/// `Retry-After` in seconds. The API server never sends it as a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

/// Priority and fairness, proxies and webhooks answer in plain text: then there is nothing but the code.
fn status(answer: &HttpAnswer) -> Status {
    serde_json::from_slice(&answer.body).unwrap_or_default()
}

fn detail(answer: &HttpAnswer, status: &Status) -> String {
    if status.message.is_empty() {
        let text = String::from_utf8_lossy(&answer.body);
        return format!("{}: {}", answer.status, text.chars().take(200).collect::<String>().trim());
    }
    status.message.clone()
}

fn causes(status: &Status) -> impl Iterator<Item = &str> {
    status.details.iter().flat_map(|details| &details.causes).map(|cause| cause.reason.as_str())
}

fn retry_after_of(status: &Status) -> Option<u64> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then_some(u64::from(seconds))
}

/// The quota plugin gives no cause to tell it by: its message has begun so since Kubernetes 1.0.
fn is_quota(detail: &str) -> bool {
    detail.contains("exceeded quota:")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(code: u16, body: &Value) -> ApiError {
        told(code, None, body.to_string().as_bytes())
    }

    fn told(code: u16, retry_after_seconds: Option<u64>, body: &[u8]) -> ApiError {
        let status = StatusCode::from_u16(code).unwrap();
        of(&HttpAnswer { status, retry_after_seconds, body: body.to_vec() })
    }

    #[test]
    fn a_taken_name_is_not_a_lost_race() {
        assert!(matches!(
            refused(409, &json!({"reason": "AlreadyExists"})),
            ApiError::AlreadyExists
        ));
        assert!(matches!(refused(409, &json!({"reason": "Conflict"})), ApiError::Conflict { .. }));
    }

    #[test]
    fn a_terminating_namespace_and_a_full_quota_are_told_from_missing_rights() {
        let flags = |error| match error {
            ApiError::Forbidden { quota, namespace_terminating, .. } => {
                (quota, namespace_terminating)
            }
            other => panic!("{other:?}"),
        };
        let terminating = json!({
            "reason": "Forbidden",
            "message": "unable to create new content in namespace lab because it is being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "namespace lab is being terminated"}]}
        });
        assert_eq!(flags(refused(403, &terminating)), (false, true));
        let quota = json!({"reason": "Forbidden", "message": "jobs.batch \"a\" is forbidden: exceeded quota: small, requested: count/jobs.batch=1"});
        assert_eq!(flags(refused(403, &quota)), (true, false));
        assert_eq!(
            flags(refused(403, &json!({"reason": "Forbidden", "message": "no"}))),
            (false, false)
        );
    }

    #[test]
    fn the_time_to_wait_comes_from_the_header_or_the_body() {
        let seconds = |error| match error {
            ApiError::Throttled { retry_after_seconds } => retry_after_seconds,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            seconds(told(429, Some(7), b"Too many requests, please try again later.")),
            Some(7)
        );
        assert_eq!(seconds(refused(429, &json!({"details": {"retryAfterSeconds": 3}}))), Some(3));
        assert_eq!(seconds(told(429, None, b"")), None);
    }

    #[test]
    fn a_kind_that_is_not_served_is_no_absence_of_its_objects() {
        assert!(matches!(refused(404, &json!({"reason": "NotFound"})), ApiError::NotFound { .. }));
        assert!(told(404, None, b"404 page not found").is_unknown());
    }

    #[test]
    fn a_failing_server_leaves_the_outcome_open_and_a_refusal_does_not() {
        for code in [408, 410, 500, 502, 503, 504] {
            assert!(told(code, None, b"").is_unknown(), "{code}");
        }
        for code in [400, 405, 413, 415, 422] {
            assert!(matches!(told(code, None, b"no"), ApiError::Invalid { .. }), "{code}");
        }
    }

    #[test]
    fn a_webhook_that_could_not_be_asked_has_refused() {
        let message = "Internal error occurred: failed calling webhook \"vm.example.com\": failed to call webhook: \
                       Post \"https://vm.default.svc:443/?timeout=10s\": connection refused";
        let answer = json!({"reason": "InternalError", "message": message});
        let error = refused(500, &answer);
        assert!(
            matches!(&error, ApiError::WebhookFailed { detail } if detail == message),
            "{error}"
        );
        assert!(!error.is_unknown());
        let other = json!({"reason": "InternalError", "message": "etcdserver: request timed out"});
        assert!(refused(500, &other).is_unknown());
    }

    #[test]
    fn a_refusal_in_plain_text_is_quoted_and_cut() {
        let ApiError::Invalid { detail } = told(413, None, "x".repeat(5000).as_bytes()) else {
            panic!()
        };
        assert!(detail.starts_with("413 Payload Too Large: xxx"), "{detail}");
        assert!(detail.len() < 300);
    }
}
