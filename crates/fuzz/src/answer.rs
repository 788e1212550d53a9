//! What a source answers: a status, headers and the beginning of a body. The input is an answer as it comes over a
//! connection: `403`, then headers, an empty line, the body.

use disk_importer::answer::{Answer, answer, is_page, short_text};
use disk_importer::credentials::{Credentials, Keys};
use disk_importer::s3::Store;
use http::StatusCode;
use http::header::{ETAG, HeaderMap, HeaderName, HeaderValue};
use otctl_types::import::ImportReason;
use url::Url;

/// Stands in the url's query, in the keys, and wherever the input wants it: it must not come out, but as the name of a
/// region that a store gives to who has no keys.
const CANARY: &str = "canary";
const LONGEST_MESSAGE: usize = 1024;

/// What is told of an answer holds nothing secret and nothing of the body but words that are known, and is short.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let Some((status, headers, body)) = read(input) else { return };
    let url = Url::parse(&format!("https://s3.example/bucket/key?X-Amz-Signature={CANARY}"))
        .expect("a constant url");
    let found = answer(&url, status, &headers);
    let is_told = matches!(status.as_u16(), 200 | 206 | 416);
    assert!(is_told || found.is_err(), "{status} carries bytes");
    match found {
        Ok(Answer::Part { .. }) => assert_eq!(status, StatusCode::PARTIAL_CONTENT),
        Ok(Answer::Whole { .. } | Answer::BeyondEnd { .. }) => {}
        Err(failure) => check_words(&failure.message),
    }
    if let Some(etag) = short_text(&headers, &ETAG) {
        assert!((1..=512).contains(&etag.len()), "{etag:?}");
    }
    let _ = is_page(&headers);
    if is_told {
        return;
    }
    for keys in [None, Some(keys())] {
        let credentials = Credentials { keys, ..Credentials::default() };
        let failure = Store::new(&url, &credentials).refusal(status, &headers, body);
        // As the client does with whatever it tells.
        let message = credentials.redact(failure.message);
        let is_named = failure.reason == ImportReason::WrongRegion && credentials.keys.is_none();
        check_words(&if is_named { without_region(&message) } else { message });
    }
}

fn keys() -> Keys {
    Keys { id: CANARY.into(), secret: CANARY.into(), session_token: Some(CANARY.into()) }
}

/// The message without the name that the store gave.
fn without_region(message: &str) -> String {
    let named = message.split_once("is in region ").and_then(|(before, rest)| {
        let (_, after) = rest.split_once(';')?;
        Some(format!("{before}{after}"))
    });
    named.unwrap_or_else(|| message.to_owned())
}

fn check_words(message: &str) {
    assert!(!message.contains(CANARY), "{message:?}");
    assert!(message.len() <= LONGEST_MESSAGE, "{} bytes: {message}", message.len());
    assert!(!message.contains(char::is_control), "{message:?}");
}

fn read(input: &[u8]) -> Option<(StatusCode, HeaderMap, &[u8])> {
    let end = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
    let (head, body) = input.split_at(end);
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = StatusCode::from_bytes(lines.next()?).ok()?;
    let header = |line: &[u8]| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let name = HeaderName::from_bytes(&line[..colon]).ok()?;
        Some((name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?))
    };
    let headers = lines.filter_map(header).take(64).collect();
    Some((status, headers, body.get(2..).unwrap_or_default()))
}
