//! Request and terms to an answer: status, headers and which bytes follow.
//! Pure, so that what HTTP says about ranges is tested without a socket.

use std::fmt::Write as _;

use crate::{
    content::Content,
    request::{Asked, Request, RequestKind},
    terms::{Instead, Terms},
};

/// What a page for people looks like that comes instead of an image.
const PAGE: &[u8] = b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head>\n\
    <body><h1>Sign in to continue</h1><p>Your session has ended.</p></body></html>\n";

/// An answer before any of it is written.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Body>,
}

/// The part of some content that is announced as this answer's body.
#[derive(Debug, Clone)]
pub(crate) struct Body {
    pub(crate) content: Content,
    pub(crate) first: u64,
    /// As announced, in bytes; the content may end before.
    pub(crate) length: u64,
}

impl Answer {
    /// The answer to `request` under `terms`, but for those that are no answer
    /// at all.
    pub(crate) fn to(request: &Request, terms: &Terms) -> Self {
        if request.kind == RequestKind::Other {
            return Self::empty(405).header("allow", "GET, HEAD");
        }
        if terms.authorization.is_some() && terms.authorization != request.authorization {
            return Self::empty(401).header("www-authenticate", "Basic realm=\"images\"");
        }
        let answer = match &terms.instead {
            Some(Instead::Status { code, retry_after }) => status(*code, *retry_after),
            Some(Instead::Redirect(to)) => Self::empty(302).header("location", to),
            Some(Instead::HtmlPage) => page(),
            Some(Instead::HangUp(_) | Instead::Mute) | None => content(request, terms),
        };
        if request.kind == RequestKind::Head { answer.without_body() } else { answer }
    }

    /// A status with nothing to say.
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, headers: vec![], body: None }.header("content-length", "0")
    }

    /// The head as it goes on the wire.
    pub(crate) fn head(&self) -> String {
        // The reason phrase may be empty, and no client reads it.
        let mut head = format!("HTTP/1.1 {} \r\n", self.status);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").expect("a String takes everything");
        }
        head + "\r\n"
    }

    /// This answer with one more header.
    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn without_body(mut self) -> Self {
        self.body = None;
        self
    }

    fn with_body(mut self, body: Body) -> Self {
        self.body = Some(body);
        self
    }
}

fn status(code: u16, retry_after: Option<u64>) -> Answer {
    let answer = Answer::empty(code);
    match retry_after {
        Some(seconds) => answer.header("retry-after", seconds.to_string()),
        None => answer,
    }
}

fn page() -> Answer {
    let content = Content::bytes(PAGE);
    let length = content.size();
    Answer { status: 200, headers: vec![], body: Some(Body { content, first: 0, length }) }
        .header("content-type", "text/html; charset=utf-8")
        .header("content-length", length.to_string())
}

fn content(request: &Request, terms: &Terms) -> Answer {
    if !may_match(request, terms) {
        return Answer::empty(412);
    }
    let answer = match span(request, terms) {
        Span::Whole => whole(terms),
        Span::Part { first, length } => part(terms, first, length),
        Span::Unsatisfiable => {
            return Answer::empty(416).header("content-range", format!("bytes */{}", terms.size));
        }
    };
    let ranges = if terms.serves_ranges { "bytes" } else { "none" };
    let answer =
        answer.header("content-type", "application/octet-stream").header("accept-ranges", ranges);
    match &terms.etag {
        Some(etag) => answer.header("etag", etag),
        None => answer,
    }
}

fn may_match(request: &Request, terms: &Terms) -> bool {
    request.if_match.as_ref().is_none_or(|tag| tag == "*" || is_current(tag, terms))
}

/// The strong comparison: a weak tag equals nothing, not even itself.
fn is_current(tag: &str, terms: &Terms) -> bool {
    !tag.starts_with("W/") && terms.etag.as_deref() == Some(tag)
}

enum Span {
    Whole,
    Part { first: u64, length: u64 },
    Unsatisfiable,
}

fn span(request: &Request, terms: &Terms) -> Span {
    let stale = request.if_range.as_ref().is_some_and(|tag| !is_current(tag, terms));
    if request.kind == RequestKind::Head
        || !terms.serves_ranges
        || (stale && terms.honours_if_range)
    {
        return Span::Whole;
    }
    let (first, end) = match request.asked {
        Asked::Whole => return Span::Whole,
        Asked::From(first) => (first, terms.size),
        Asked::Span(first, last) => (first, terms.size.min(last.saturating_add(1))),
        Asked::Last(count) => (terms.size.saturating_sub(count), terms.size),
    };
    let first = first.saturating_add(terms.shift);
    if first < end { Span::Part { first, length: end - first } } else { Span::Unsatisfiable }
}

fn whole(terms: &Terms) -> Answer {
    body(200, terms, Body { content: terms.content.clone(), first: 0, length: terms.size })
}

fn part(terms: &Terms, first: u64, length: u64) -> Answer {
    let complete = if terms.gives_length { terms.size.to_string() } else { "*".to_owned() };
    let range = format!("bytes {first}-{}/{complete}", first + length - 1);
    body(206, terms, Body { content: terms.content.clone(), first, length })
        .header("content-range", range)
}

fn body(status: u16, terms: &Terms, body: Body) -> Answer {
    let length = body.length;
    let answer = Answer { status, headers: vec![], body: None }.with_body(body);
    if terms.gives_length { answer.header("content-length", length.to_string()) } else { answer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{behaviour::Fault, request};

    /// The answer for 100 bytes, as one line a table can hold.
    fn answer(faults: &[Fault], head: &str) -> String {
        let honest = Terms::honest(Content::generated(100, 1), 0);
        let terms = faults.iter().cloned().fold(honest, Terms::with);
        let head = format!("{head}\r\n\r\n");
        let (request, _) = request::parse(head.as_bytes()).unwrap().unwrap();
        let answer = Answer::to(&request, &terms);
        let header = |name| {
            let found = answer.headers.iter().find(|(known, _)| *known == name);
            found.map_or("-", |(_, value)| value.as_str())
        };
        let body = answer
            .body
            .as_ref()
            .map_or("none".to_owned(), |body| format!("{}+{}", body.first, body.length));
        let (length, range) = (header("content-length"), header("content-range"));
        format!("{} length {length} range {range} body {body}", answer.status)
    }

    fn get(faults: &[Fault], headers: &str) -> String {
        answer(faults, &format!("GET /a HTTP/1.1{headers}"))
    }

    const CURRENT: &str = "\"generated-64-1-0\"";

    #[test]
    fn ranges_are_answered_as_http_says() {
        let check = |range: &str, expected: &str| {
            assert_eq!(get(&[], &format!("\r\nRange: {range}")), expected, "{range:?}");
        };
        check("bytes=0-9", "206 length 10 range bytes 0-9/100 body 0+10");
        check("bytes=90-", "206 length 10 range bytes 90-99/100 body 90+10");
        check("bytes=90-500", "206 length 10 range bytes 90-99/100 body 90+10");
        check("bytes=-30", "206 length 30 range bytes 70-99/100 body 70+30");
        check("bytes=-500", "206 length 100 range bytes 0-99/100 body 0+100");
        check("bytes=100-", "416 length 0 range bytes */100 body none");
        check("bytes=5-2", "200 length 100 range - body 0+100");
    }

    #[test]
    fn head_has_the_headers_of_the_whole_and_no_body() {
        let head = "HEAD /a HTTP/1.1\r\nRange: bytes=0-9";
        assert_eq!(answer(&[], head), "200 length 100 range - body none");
    }

    #[test]
    fn conditions_compare_the_strong_entity_tag() {
        let if_range = |tag: &str| format!("\r\nRange: bytes=10-\r\nIf-Range: {tag}");
        let part = "206 length 90 range bytes 10-99/100 body 10+90";
        let whole = "200 length 100 range - body 0+100";
        assert_eq!(get(&[], &if_range(CURRENT)), part);
        assert_eq!(get(&[], &if_range("\"other\"")), whole);
        assert_eq!(get(&[Fault::WeakEtag], &if_range(&format!("W/{CURRENT}"))), whole);
        assert_eq!(get(&[Fault::IgnoreIfRange], &if_range("\"other\"")), part);
        assert_eq!(get(&[], "\r\nIf-Match: \"other\""), "412 length 0 range - body none");
        assert_eq!(get(&[], &format!("\r\nIf-Match: {CURRENT}")), whole);
    }

    #[test]
    fn lies_are_told_consistently() {
        let longer = [Fault::WrongLength { announced: 150 }];
        assert_eq!(get(&longer, ""), "200 length 150 range - body 0+150");
        assert_eq!(
            get(&longer, "\r\nRange: bytes=120-"),
            "206 length 30 range bytes 120-149/150 body 120+30"
        );
        assert_eq!(get(&[Fault::NoLength], ""), "200 length - range - body 0+100");
        assert_eq!(
            get(&[Fault::ShiftRange { by: 3 }], "\r\nRange: bytes=10-19"),
            "206 length 7 range bytes 13-19/100 body 13+7"
        );
        let no_ranges = [Fault::NoRanges];
        assert_eq!(get(&no_ranges, "\r\nRange: bytes=5-"), "200 length 100 range - body 0+100");
    }

    #[test]
    fn other_methods_are_refused() {
        assert_eq!(answer(&[], "PUT /a HTTP/1.1"), "405 length 0 range - body none");
    }
}
