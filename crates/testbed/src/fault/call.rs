//! A request or an event as one line. What is sent, and to whom, is in it; what is in the body is not.

use std::fmt;

use otctl_kit::cluster::{Request, Target};

/// A request to the API server, or an event of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// What is asked.
    pub verb: Verb,
    /// The subresource, or the type of an event in lower case; empty without one.
    pub part: String,
    /// The kind; of one that is not known, its plural.
    pub kind: String,
    /// `namespace/name`, the name alone where there is no namespace, the namespace alone of a list.
    pub name: String,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// One object.
    Get,
    /// All, or the first page.
    List,
    /// The next page of a list.
    Continue,
    /// A watch.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH by server-side apply.
    Apply,
    /// PATCH of another type.
    Patch,
    /// DELETE.
    Delete,
    /// Nothing was asked: a watch tells something.
    Event,
}

impl Verb {
    /// All of them.
    pub(super) const ALL: [Self; 10] = [
        Self::Get,
        Self::List,
        Self::Continue,
        Self::Watch,
        Self::Create,
        Self::Update,
        Self::Apply,
        Self::Patch,
        Self::Delete,
        Self::Event,
    ];

    /// Whether it changes something.
    #[must_use]
    pub fn is_write(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Apply | Self::Patch | Self::Delete)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Continue => "continue",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Apply => "apply",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Event => "event",
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.verb)?;
        for word in [&self.part, &self.kind, &self.name] {
            if !word.is_empty() {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

/// As the kit sends it.
impl From<&Request> for Call {
    fn from(request: &Request) -> Self {
        match request {
            Request::Get(target) => of(Verb::Get, "", target),
            Request::List { resource, namespace, .. } => Self {
                verb: Verb::List,
                part: String::new(),
                kind: resource.kind.clone(),
                name: namespace.clone().unwrap_or_default(),
            },
            Request::Create(object) => of(Verb::Create, "", &Target::of(object)),
            Request::Apply(object) => of(Verb::Apply, "", &Target::of(object)),
            Request::Replace(object) => of(Verb::Update, "", &Target::of(object)),
            Request::ReplaceStatus(object) => of(Verb::Update, "status", &Target::of(object)),
            Request::Patch { target, .. } | Request::Strip { target, .. } => {
                of(Verb::Patch, "", target)
            }
            Request::PatchStatus { target, .. } => of(Verb::Patch, "status", target),
            Request::Delete { target, .. } => of(Verb::Delete, "", target),
        }
    }
}

fn of(verb: Verb, part: &str, target: &Target) -> Call {
    let name = key(target.namespace.as_deref().unwrap_or_default(), &target.name);
    Call { verb, part: part.to_owned(), kind: target.resource.kind.clone(), name }
}

/// `namespace/name`, or what there is of it.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    match (namespace, name) {
        ("", name) => name.to_owned(),
        (namespace, "") => namespace.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
