//! What an object store says when it refuses: the code in its error document, if it is one of the
//! known words. Nothing else of what it sends is repeated.

use http::{HeaderMap, StatusCode};
use otctl_types::import::ImportReason;
use url::Url;

use crate::answer;
use crate::connection::shown;
use crate::failure::Failure;

/// The longest name of a region that is taken for one.
const LONGEST_REGION: usize = 32;

/// The codes that say more than their status, and what a person can do.
const CODES: [(&str, ImportReason, &str); 15] = [
    (
        "RequestTimeTooSkewed",
        ImportReason::Forbidden,
        "the clock of the importer's node differs from the store's; set it right",
    ),
    (
        "SignatureDoesNotMatch",
        ImportReason::Forbidden,
        "secretKey in the Secret is not the one that belongs to accessKeyId",
    ),
    ("InvalidAccessKeyId", ImportReason::Forbidden, "accessKeyId in the Secret is not known there"),
    ("ExpiredToken", ImportReason::Forbidden, "sessionToken in the Secret has expired"),
    ("InvalidToken", ImportReason::Forbidden, "sessionToken in the Secret is not valid"),
    ("InvalidObjectState", ImportReason::Forbidden, "the object is archived; restore it first"),
    ("NoSuchBucket", ImportReason::SourceNotFound, "there is no such bucket"),
    ("NoSuchKey", ImportReason::SourceNotFound, "there is no such object in the bucket"),
    ("NoSuchVersion", ImportReason::SourceNotFound, "there is no such version of the object"),
    ("SlowDown", ImportReason::Throttled, "the store asks for fewer requests"),
    ("ServiceUnavailable", ImportReason::Throttled, "the store asks for fewer requests"),
    ("TooManyRequests", ImportReason::Throttled, "the store asks for fewer requests"),
    ("RequestTimeout", ImportReason::ServerError, "the store did not see the request in time"),
    ("OperationAborted", ImportReason::ServerError, "the store is busy with the object"),
    ("InternalError", ImportReason::ServerError, "the store failed"),
];

/// The codes by which a store says that the bucket is in another region.
const ELSEWHERE: [&str; 5] = [
    "PermanentRedirect",
    "TemporaryRedirect",
    "Redirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
];

/// An answer that carries nothing of the object.
pub(super) struct Refusal<'a> {
    pub(super) url: &'a Url,
    pub(super) status: StatusCode,
    pub(super) headers: &'a HeaderMap,
    /// The first bytes of the body.
    pub(super) body: &'a [u8],
    pub(super) is_signed: bool,
}

impl Refusal<'_> {
    pub(super) fn into_failure(self) -> Failure {
        let code = element(self.body, "Code").unwrap_or_default();
        let region = self.named_region();
        if self.status.is_redirection() || (ELSEWHERE.contains(&code) && region.is_some()) {
            return self.elsewhere(region);
        }
        let plain = answer::refusal(self.url, self.status, self.headers);
        if let Some((code, reason, hint)) = CODES.into_iter().find(|(known, ..)| *known == code) {
            let message = format!("{} {code}: {hint}", plain.message);
            return Failure { reason, message, ..plain };
        }
        if plain.reason == ImportReason::Forbidden {
            let hint = if self.is_signed {
                "the keys of the Secret may not read the object, or it does not exist"
            } else {
                "it was asked without keys; name a Secret in secretRef unless anybody may read it"
            };
            return Failure { message: format!("{}: {hint}", plain.message), ..plain };
        }
        plain
    }

    fn elsewhere(&self, region: Option<&str>) -> Failure {
        let asked = format!("{} answered {}", shown(self.url), self.status);
        let message = match region {
            Some(region) => format!(
                "{asked}: the bucket is in region {region}; set region in the Secret to it, \
                 or use the address of that region's endpoint as url"
            ),
            None => format!(
                "{asked}: the bucket is in another region; \
                 use the address of that region's endpoint as url"
            ),
        };
        Failure::new(ImportReason::WrongRegion, message)
    }

    fn named_region(&self) -> Option<&str> {
        let header = self.headers.get("x-amz-bucket-region").and_then(|value| value.to_str().ok());
        header.or_else(|| element(self.body, "Region")).filter(|name| {
            let is_plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            !name.is_empty() && name.len() <= LONGEST_REGION && name.bytes().all(is_plain)
        })
    }
}

/// The text of the first element of this name. An error document is flat, so this is all the XML
/// there is to read; what comes out is compared with known words and never shown.
fn element<'a>(document: &'a [u8], name: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(document).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(value, _)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, body: &str, headers: &[(&'static str, &str)]) -> Failure {
        let url = Url::parse("https://s3.example/bucket/key?X=canary").unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect();
        let status = StatusCode::from_u16(status).unwrap();
        let body = body.as_bytes();
        Refusal { url: &url, status, headers: &headers, body, is_signed: true }.into_failure()
    }

    fn document(code: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>canary</Message>\
             <Region>eu-west-1</Region></Error>"
        )
    }

    #[test]
    fn codes_say_more_than_the_status() {
        let table = [
            (403, "RequestTimeTooSkewed", ImportReason::Forbidden, "clock"),
            (403, "SignatureDoesNotMatch", ImportReason::Forbidden, "secretKey"),
            (403, "InvalidAccessKeyId", ImportReason::Forbidden, "accessKeyId"),
            (400, "ExpiredToken", ImportReason::Forbidden, "expired"),
            (403, "InvalidObjectState", ImportReason::Forbidden, "archived"),
            (403, "AccessDenied", ImportReason::Forbidden, "may not read"),
            (404, "NoSuchKey", ImportReason::SourceNotFound, "no such object"),
            (404, "NoSuchBucket", ImportReason::SourceNotFound, "no such bucket"),
            (503, "SlowDown", ImportReason::Throttled, "fewer requests"),
            (503, "ServiceUnavailable", ImportReason::Throttled, "fewer requests"),
            (500, "InternalError", ImportReason::ServerError, "failed"),
            (502, "Canary", ImportReason::ServerError, "502"),
            (301, "PermanentRedirect", ImportReason::WrongRegion, "region eu-west-1;"),
            (307, "TemporaryRedirect", ImportReason::WrongRegion, "region eu-west-1;"),
            (400, "AuthorizationHeaderMalformed", ImportReason::WrongRegion, "region eu-west-1;"),
        ];
        for (status, code, reason, hint) in table {
            let failure = refused(status, &document(code), &[]);
            assert_eq!(failure.reason, reason, "{code}: {failure}");
            assert!(failure.message.contains(hint), "{code}: {failure}");
            assert!(!failure.message.to_lowercase().contains("canary"), "{code}: {failure}");
        }
    }

    #[test]
    fn a_region_is_named_by_the_header_first_and_only_if_it_can_be_one() {
        let region =
            |header: &str| refused(301, &document(""), &[("x-amz-bucket-region", header)]).message;
        assert!(region("us-gov-west-1").contains("region us-gov-west-1;"));
        for odd in ["<b>", "Region 1", &"a".repeat(33)] {
            assert!(region(odd).contains("another region"), "{}", region(odd));
        }
        assert!(refused(301, "", &[]).message.contains("another region"));
    }

    #[test]
    fn a_body_that_is_no_error_document_changes_nothing() {
        for body in ["", "<Code>", "<Code>NoSuchKey", "</Code><Code>", "\u{0}"] {
            assert_eq!(refused(403, body, &[]).reason, ImportReason::Forbidden, "{body}");
        }
        let throttled = refused(503, "", &[("retry-after", "7")]);
        assert_eq!(throttled.reason, ImportReason::Throttled);
        assert_eq!(throttled.retry_after.unwrap().as_secs(), 7);
    }
}
