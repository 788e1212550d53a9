//! Which objects the words of a command line name.

use std::fmt;

use anyhow::Context as _;
use kube::api::ListParams;
use kube::core::DynamicObject;

use crate::cli::ScopeArgs;
use crate::client::{Cluster, lacks_kind};
use crate::kind::{self, Found, KINDS, Kind};

/// Objects that a list has at once: a page.
const PAGE: u32 = 500;

/// Words that name nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misnamed(String);

impl fmt::Display for Misnamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Misnamed {}

/// What a kind without a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unnamed {
    /// All of that kind.
    All,
    /// A mistake, unless labels select among them: too much would be changed or waited for.
    Selected,
}

/// A kind, and names of it; none means all.
struct Selection {
    kind: &'static dyn Kind,
    names: Vec<String>,
}

/// Objects as they are now, and why others that were named cannot be told.
#[derive(Default)]
pub(crate) struct Selected {
    /// Those that were found, in the order in which they were named.
    pub(crate) found: Vec<Found>,
    /// What went wrong, one for each name.
    pub(crate) missing: Vec<anyhow::Error>,
}

/// The objects that the words name, all of them: what changes something or waits does nothing by halves.
pub(crate) async fn find(
    cluster: &Cluster,
    words: &[String],
    scope: &ScopeArgs,
    unnamed: Unnamed,
) -> anyhow::Result<Vec<Found>> {
    let Selected { found, missing } = look_up(cluster, words, scope, unnamed).await?;
    missing.into_iter().next().map_or(Ok(found), Err)
}

/// The objects that the words name, as far as they are there.
pub(crate) async fn look_up(
    cluster: &Cluster,
    words: &[String],
    scope: &ScopeArgs,
    unnamed: Unnamed,
) -> anyhow::Result<Selected> {
    let selections = selections(words)?;
    expect_sense(&selections, scope, unnamed)?;
    let mut selected = Selected::default();
    for Selection { kind, names } in selections {
        if names.is_empty() {
            selected.found.extend(listed(cluster, kind, scope).await?);
        }
        for name in names {
            match named(cluster, kind, &name, scope).await {
                Ok(one) => selected.found.push(one),
                Err(error) => selected.missing.push(error),
            }
        }
    }
    Ok(selected)
}

/// What is said where labels or a kind select nothing.
pub(crate) fn nothing(words: &[String], scope: &ScopeArgs, default: &str) -> String {
    let kind = |word: &String| kind::named(word.split('/').next().unwrap_or_default());
    let kinds: Option<Vec<_>> = words.iter().map(kind).collect();
    let is_anywhere =
        |kinds: Vec<&dyn Kind>| !kinds.is_empty() && !kinds.iter().any(|kind| kind.is_namespaced());
    if scope.place.all_namespaces || kinds.is_some_and(is_anywhere) {
        return "nothing found".to_owned();
    }
    format!("nothing found in namespace '{}'", scope.place.namespace.as_deref().unwrap_or(default))
}

/// The objects of every kind that the cluster has.
pub(crate) async fn everything(cluster: &Cluster, scope: &ScopeArgs) -> anyhow::Result<Vec<Found>> {
    let (mut found, mut missing) = (Vec::new(), None);
    for kind in KINDS {
        match list(cluster, kind, scope).await {
            Ok(objects) => found.extend(objects),
            Err(error) if lacks_kind(&error) => missing = Some((kind, error)),
            Err(error) => return Err(unlisted(cluster, kind, error)),
        }
    }
    match missing {
        Some((kind, error)) if found.is_empty() => Err(unlisted(cluster, kind, error)),
        Some(_) | None => Ok(found),
    }
}

fn selections(words: &[String]) -> Result<Vec<Selection>, Misnamed> {
    let Some((first, names)) = words.split_first() else {
        return Ok(Vec::new());
    };
    if first.contains('/') {
        return words.iter().map(|word| pair(word)).collect();
    }
    if let Some(pair) = names.iter().find(|name| name.contains('/')) {
        return Err(Misnamed(format!(
            "write either KIND NAME… or KIND/NAME…: '{first}' is followed by '{pair}'"
        )));
    }
    Ok(vec![Selection { kind: known(first)?, names: names.to_vec() }])
}

fn pair(word: &str) -> Result<Selection, Misnamed> {
    match word.split_once('/') {
        Some((kind, name)) if !name.is_empty() && !name.contains('/') => {
            Ok(Selection { kind: known(kind)?, names: vec![name.to_owned()] })
        }
        Some(_) | None => Err(Misnamed(format!("'{word}' is not KIND/NAME"))),
    }
}

fn known(name: &str) -> Result<&'static dyn Kind, Misnamed> {
    kind::named(name).ok_or_else(|| {
        let kinds: Vec<_> = KINDS.iter().map(|kind| kind.names().join(", ")).collect();
        Misnamed(format!("'{name}' is no kind that is known here; there are: {}", kinds.join("; ")))
    })
}

fn expect_sense(
    selections: &[Selection],
    scope: &ScopeArgs,
    unnamed: Unnamed,
) -> Result<(), Misnamed> {
    let is_named = selections.iter().any(|selection| !selection.names.is_empty());
    let wrong = match (is_named, &scope.selector) {
        (true, Some(_)) => "name objects or select them with -l, not both",
        (true, None) if scope.place.all_namespaces => {
            "a name is looked for in one namespace: leave -A out"
        }
        (false, None) if unnamed == Unnamed::Selected => {
            "name an object, as KIND/NAME, or select some with -l"
        }
        (true | false, _) => return Ok(()),
    };
    Err(Misnamed(wrong.to_owned()))
}

async fn named(
    cluster: &Cluster,
    kind: &'static dyn Kind,
    name: &str,
    scope: &ScopeArgs,
) -> anyhow::Result<Found> {
    let namespace = scope.place.namespace.as_ref().unwrap_or(&cluster.namespace);
    let read = kind.api(&cluster.client, Some(namespace)).get(name).await;
    let object = read.map_err(|error| cluster.explained(error)).with_context(|| {
        let place = if kind.is_namespaced() {
            format!(" in namespace '{namespace}'")
        } else {
            String::new()
        };
        format!("{}{place} cannot be read", kind::reference(&kind.resource(), name))
    })?;
    Ok(Found { kind, object })
}

async fn listed(
    cluster: &Cluster,
    kind: &'static dyn Kind,
    scope: &ScopeArgs,
) -> anyhow::Result<Vec<Found>> {
    list(cluster, kind, scope).await.map_err(|error| unlisted(cluster, kind, error))
}

fn unlisted(cluster: &Cluster, kind: &'static dyn Kind, error: kube::Error) -> anyhow::Error {
    cluster.explained(error).context(format!("{}s cannot be listed", kind.resource().kind))
}

async fn list(
    cluster: &Cluster,
    kind: &'static dyn Kind,
    scope: &ScopeArgs,
) -> Result<Vec<Found>, kube::Error> {
    let namespace = scope.place.namespace.as_ref().unwrap_or(&cluster.namespace);
    let api = kind.api(
        &cluster.client,
        Some(namespace).filter(|_| !scope.place.all_namespaces).map(String::as_str),
    );
    let mut page = ListParams::default().limit(PAGE);
    page.label_selector.clone_from(&scope.selector);
    let mut objects = Vec::new();
    loop {
        let list = api.list(&page).await?;
        objects.extend(list.items.into_iter().map(|object| found(kind, object)));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

/// Members of a list do not say what they are; the list does.
fn found(kind: &'static dyn Kind, mut object: DynamicObject) -> Found {
    let resource = kind.resource();
    object.types =
        Some(kube::core::TypeMeta { api_version: resource.api_version, kind: resource.kind });
    Found { kind, object }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::WhereArgs;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// What the words name, as `kind: names`, or what is wrong with them.
    fn read(line: &str) -> String {
        match selections(&words(line)) {
            Err(Misnamed(why)) => why,
            Ok(selections) => selections
                .iter()
                .map(|selection| {
                    format!("{}: {}", selection.kind.names()[0], selection.names.join(" "))
                })
                .collect::<Vec<_>>()
                .join("; "),
        }
    }

    #[test]
    fn objects_are_named_as_for_kubectl() {
        let cases = [
            ("", ""),
            ("vmdi", "vmdiskimage: "),
            ("image a b", "vmdiskimage: a b"),
            ("vmdi/a vmdiskimage.pelotech.ot/b", "vmdiskimage: a; vmdiskimage: b"),
            ("vmdi a/b", "write either KIND NAME… or KIND/NAME…: 'vmdi' is followed by 'a/b'"),
            ("vmdi/a b", "'b' is not KIND/NAME"),
            ("vmdi/", "'vmdi/' is not KIND/NAME"),
            ("vmdi/a/b", "'vmdi/a/b' is not KIND/NAME"),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
        assert!(read("pod/a").starts_with("'pod' is no kind that is known here"));
    }

    #[test]
    fn what_is_in_no_namespace_is_missed_in_none() {
        let told = |line: &str| nothing(&words(line), &ScopeArgs::default(), "labs");
        assert_eq!(told("ws"), "nothing found");
        for line in ["vmdi", "ws vmdi", ""] {
            assert_eq!(told(line), "nothing found in namespace 'labs'", "{line}");
        }
    }

    #[test]
    fn a_name_is_in_one_namespace_and_nothing_is_changed_unnamed() {
        let wrong = |line: &str, all: bool, selector: Option<&str>, unnamed| {
            let scope = ScopeArgs {
                place: WhereArgs { all_namespaces: all, ..WhereArgs::default() },
                selector: selector.map(str::to_owned),
            };
            expect_sense(&selections(&words(line)).unwrap(), &scope, unnamed).err().map(|it| it.0)
        };
        assert_eq!(wrong("vmdi a", false, None, Unnamed::Selected), None);
        assert_eq!(wrong("vmdi", true, None, Unnamed::All), None);
        assert_eq!(wrong("vmdi", true, Some("a=b"), Unnamed::Selected), None);
        assert!(wrong("vmdi", false, None, Unnamed::Selected).unwrap().contains("-l"));
        assert!(wrong("vmdi a", true, None, Unnamed::All).unwrap().contains("-A"));
        assert!(wrong("vmdi a", false, Some("a=b"), Unnamed::All).unwrap().contains("not both"));
    }
}
