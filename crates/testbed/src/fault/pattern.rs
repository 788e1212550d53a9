//! Which lines are meant.

use std::fmt;
use std::str::FromStr;

use super::{Call, Verb};

/// A line with parts left open: `create Job labs/*`, `write`, `event any VMDiskImage`.
///
/// Words in order: the verb, or one of `read`, `write` and `any` for several; the subresource or the type of an event,
/// in lower case, `any` for every one and none; the kind, `*` for every one; the name, in which `*` stands for anything.
/// What is left out at the end is open. A kind without a subresource before it is the object itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    verbs: Verbs,
    /// None for any, and for none at all.
    part: Option<String>,
    kind: Option<String>,
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verbs {
    One(Verb),
    Reads,
    Writes,
    /// Every request.
    Any,
}

/// What is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no pattern: {why}")]
pub struct PatternError {
    text: String,
    why: &'static str,
}

impl Pattern {
    /// Whether this one is meant.
    #[must_use]
    pub fn matches(&self, call: &Call) -> bool {
        self.verbs.contain(call.verb)
            && self.part.as_ref().is_none_or(|part| *part == call.part)
            && self.kind.as_ref().is_none_or(|kind| *kind == call.kind)
            && self.name.as_ref().is_none_or(|name| is_like(&call.name, name))
    }

    pub(super) fn is_event(&self) -> bool {
        self.verbs == Verbs::One(Verb::Event)
    }

    /// Whether only such a request is meant.
    pub(super) fn asks_for(&self, verb: Verb) -> bool {
        self.verbs == Verbs::One(verb)
    }
}

impl Verbs {
    fn contain(self, verb: Verb) -> bool {
        match self {
            Self::One(one) => one == verb,
            Self::Reads => matches!(verb, Verb::Get | Verb::List | Verb::Continue | Verb::Watch),
            Self::Writes => verb.is_write(),
            Self::Any => verb != Verb::Event,
        }
    }

    fn of(word: &str) -> Option<Self> {
        match word {
            "read" => Some(Self::Reads),
            "write" => Some(Self::Writes),
            "any" => Some(Self::Any),
            word => Verb::ALL.into_iter().find(|verb| verb.to_string() == word).map(Self::One),
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let wrong = |why| PatternError { text: text.to_owned(), why };
        let mut words = text.split_whitespace().peekable();
        let verb = words.next().ok_or_else(|| wrong("it is empty"))?;
        let verbs = Verbs::of(verb).ok_or_else(|| wrong("its first word is no verb"))?;
        let part = words.next_if(|word| word.starts_with(|c: char| c.is_ascii_lowercase()));
        let kind = words.next();
        let name = words.next();
        if words.next().is_some() {
            return Err(wrong("it goes on after the name"));
        }
        if part.is_some() && kind.is_none() && verbs != Verbs::One(Verb::Event) {
            return Err(wrong("a kind begins with a capital, and a subresource stands before one"));
        }
        let is_open = kind.is_none() || verbs == Verbs::One(Verb::Event);
        let part = match part {
            Some("any") => None,
            Some(part) => Some(part.to_owned()),
            None => (!is_open).then(String::new),
        };
        let kind = kind.filter(|kind| *kind != "*").map(str::to_owned);
        Ok(Self { text: text.to_owned(), verbs, part, kind, name: name.map(str::to_owned) })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Whether `text` is like `glob`, in which `*` stands for anything.
fn is_like(text: &str, glob: &str) -> bool {
    let Some((start, rest)) = glob.split_once('*') else { return text == glob };
    let Some(text) = text.strip_prefix(start) else { return false };
    text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| is_like(&text[at..], rest))
}
