//! A request's head as this server understands it. What it does not understand
//! it ignores, as HTTP asks of servers; what cannot be parsed ends the connection.

/// A GET for at most this many bytes is a first look, not a download.
pub const PROBE_LIMIT: u64 = 64 * 1024;

/// The bytes of the content a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// No range, or one that is not understood.
    Whole,
    /// From this offset to the end.
    From(u64),
    /// From the first to the last offset, both included.
    Span(u64, u64),
    /// The last so many bytes.
    Last(u64),
}

impl Asked {
    /// Whether it asks for the first byte.
    #[must_use]
    pub fn starts_at_zero(self) -> bool {
        matches!(self, Self::Whole | Self::From(0) | Self::Span(0, _))
    }

    fn is_first_look(self) -> bool {
        match self {
            Self::Whole | Self::From(_) => false,
            Self::Span(first, last) => last - first < PROBE_LIMIT,
            Self::Last(count) => count <= PROBE_LIMIT,
        }
    }
}

/// What a request is for, judged by what was asked and not by what was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// No body wanted.
    Head,
    /// GET of a bounded range of at most [`PROBE_LIMIT`] bytes.
    Probe,
    /// Any other GET.
    Data,
    /// A method this server refuses.
    Other,
}

/// A parsed head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: RequestKind,
    /// Without the query, which a presigned address has and this server ignores.
    pub(crate) path: String,
    pub(crate) asked: Asked,
    pub(crate) if_range: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) keep_alive: bool,
}

/// The head at the front of `bytes` and its length; nothing if it is not yet whole.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(bytes)? else { return Ok(None) };
    let asked = header(&head, "range").map_or(Asked::Whole, |range| asked(&range));
    let path = head.path.unwrap_or_default();
    let request = Request {
        kind: kind(head.method.unwrap_or_default(), asked),
        path: path.split_once('?').map_or(path, |(path, _query)| path).to_owned(),
        asked,
        if_range: header(&head, "if-range"),
        if_match: header(&head, "if-match"),
        authorization: header(&head, "authorization"),
        keep_alive: keep_alive(&head),
    };
    Ok(Some((request, length)))
}

fn kind(method: &str, asked: Asked) -> RequestKind {
    match method {
        "HEAD" => RequestKind::Head,
        "GET" if asked.is_first_look() => RequestKind::Probe,
        "GET" => RequestKind::Data,
        _ => RequestKind::Other,
    }
}

fn header(head: &httparse::Request<'_, '_>, name: &str) -> Option<String> {
    let found = head.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
    Some(String::from_utf8_lossy(found.value).trim().to_owned())
}

fn keep_alive(head: &httparse::Request<'_, '_>) -> bool {
    let connection = header(head, "connection").unwrap_or_default().to_ascii_lowercase();
    match head.version {
        Some(1) => connection != "close",
        _ => connection == "keep-alive",
    }
}

/// A single byte range; several at once are answered with everything, as allowed.
fn asked(range: &str) -> Asked {
    let parsed = || {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        match (first, last) {
            ("", count) => Some(Asked::Last(count.parse().ok()?)),
            (first, "") => Some(Asked::From(first.parse().ok()?)),
            (first, last) => {
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                (first <= last).then_some(Asked::Span(first, last))
            }
        }
    };
    parsed().unwrap_or(Asked::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(head: &str) -> Request {
        let head = format!("{head}\r\n\r\n");
        let (request, length) = parse(head.as_bytes()).unwrap().unwrap();
        assert_eq!(length, head.len());
        request
    }

    #[test]
    fn ranges_are_read_or_ignored() {
        assert_eq!(asked("bytes=0-"), Asked::From(0));
        assert_eq!(asked("bytes=5-9"), Asked::Span(5, 9));
        assert_eq!(asked("bytes=-7"), Asked::Last(7));
        for ignored in ["bytes=9-5", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", ""] {
            assert_eq!(asked(ignored), Asked::Whole, "{ignored:?}");
        }
    }

    #[test]
    fn kinds_and_downloads() {
        let check = |range: &str, kind, download| {
            let request = parsed(&format!("GET /a HTTP/1.1\r\nrange: {range}"));
            let starts_at_zero = request.asked.starts_at_zero();
            assert_eq!(request.kind, kind, "{range:?}");
            assert_eq!(kind == RequestKind::Data && starts_at_zero, download, "{range:?}");
        };
        check("", RequestKind::Data, true);
        check("bytes=0-", RequestKind::Data, true);
        check("bytes=0-65536", RequestKind::Data, true);
        check("bytes=0-65535", RequestKind::Probe, false);
        check("bytes=-100", RequestKind::Probe, false);
        check("bytes=7-", RequestKind::Data, false);
        check("bytes=0-18446744073709551615", RequestKind::Data, true);
    }

    #[test]
    fn the_rest_of_the_head() {
        let request = parsed("HEAD /a/b.qcow2?X-Signature=1 HTTP/1.1\r\nIf-Range:  \"x\" ");
        assert_eq!(request.kind, RequestKind::Head);
        assert_eq!(request.path, "/a/b.qcow2");
        assert_eq!(request.if_range.as_deref(), Some("\"x\""));
        assert!(request.keep_alive);
        assert!(!parsed("GET / HTTP/1.1\r\nConnection: Close").keep_alive);
        assert!(!parsed("GET / HTTP/1.0").keep_alive);
        assert_eq!(parsed("PUT / HTTP/1.1").kind, RequestKind::Other);
    }

    #[test]
    fn half_a_head_waits_and_garbage_fails() {
        assert_eq!(parse(b"GET / HTTP/1.1\r\nhost: a\r\n").unwrap(), None);
        parse(b"\x16\x03\x01\x00 not http\r\n\r\n").unwrap_err();
    }
}
