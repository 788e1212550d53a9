//! Labels as an administrator writes them. A wrong one would make the API server refuse every policy, so it is refused at
//! the start.

use std::collections::BTreeMap;
use std::str::FromStr;

/// Longest value of a label, and longest name in its key.
const LABEL_LIMIT: usize = 63;
/// Longest prefix of a key.
const PREFIX_LIMIT: usize = 253;

/// Labels that an object must have: `app=nginx,tier=front`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(pub BTreeMap<String, String>);

/// Why a text names no labels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    /// There is none.
    #[error("no label is given; write KEY=VALUE, and more of them after commas")]
    FindLabel,
    /// A part is no label.
    #[error("{found:?} is no label; write KEY=VALUE, such as app=nginx")]
    ReadLabel {
        /// What was found.
        found: String,
    },
}

impl FromStr for Labels {
    type Err = LabelsError;

    fn from_str(text: &str) -> Result<Self, LabelsError> {
        if text.is_empty() {
            return Err(LabelsError::FindLabel);
        }
        text.split(',').map(label).collect::<Result<_, _>>().map(Self)
    }
}

fn label(text: &str) -> Result<(String, String), LabelsError> {
    let pair = text.trim().split_once('=').filter(|(key, value)| is_key(key) && is_value(value));
    let (key, value) = pair.ok_or_else(|| LabelsError::ReadLabel { found: text.to_owned() })?;
    Ok((key.to_owned(), value.to_owned()))
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_prefix(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_prefix(prefix: &str) -> bool {
    let of_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = |part: &str| is_bounded_by_alphanumerics(part) && part.chars().all(of_label);
    prefix.len() <= PREFIX_LIMIT && prefix.split('.').all(is_label)
}

fn is_name(name: &str) -> bool {
    let of_name = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    name.len() <= LABEL_LIMIT && is_bounded_by_alphanumerics(name) && name.chars().all(of_name)
}

fn is_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

fn is_bounded_by_alphanumerics(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// Pods by the labels of their namespaces, and optionally by their own: `team=web/app=nginx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSelection {
    /// Labels of their namespaces.
    pub namespaces: Labels,
    /// Labels of the pods; all of those namespaces without.
    pub pods: Option<Labels>,
}

impl FromStr for PodSelection {
    type Err = LabelsError;

    fn from_str(text: &str) -> Result<Self, LabelsError> {
        let Some(middle) = separator(text) else {
            return Ok(Self { namespaces: text.parse()?, pods: None });
        };
        let (namespaces, pods) = (&text[..middle], &text[middle + 1..]);
        Ok(Self { namespaces: namespaces.parse()?, pods: Some(pods.parse()?) })
    }
}

/// Where the labels of the namespaces end. A key may hold a slash too, a value never does.
fn separator(text: &str) -> Option<usize> {
    let mut is_value = false;
    text.char_indices().find_map(|(index, c)| {
        match c {
            '=' => is_value = true,
            ',' => is_value = false,
            '/' if is_value => return Some(index),
            _ => {}
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Result<Vec<(String, String)>, LabelsError> {
        text.parse().map(|labels: Labels| labels.0.into_iter().collect())
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn labels_are_read_as_kubectl_reads_them() {
        assert_eq!(labels("app=nginx"), Ok(vec![pair("app", "nginx")]));
        let two = vec![pair("app.kubernetes.io/name", "nginx"), pair("tier", "")];
        assert_eq!(labels("tier=, app.kubernetes.io/name=nginx"), Ok(two));
        assert_eq!(labels(""), Err(LabelsError::FindLabel));
        let long = format!("a={}", "b".repeat(64));
        for wrong in ["app", "=a", "a==b", "a=b c", "a=-b", "A.B/c=d", "a/b/c=d", "a=b,", &long] {
            assert!(matches!(labels(wrong), Err(LabelsError::ReadLabel { .. })), "{wrong}");
        }
    }

    #[test]
    fn a_slash_in_a_key_parts_nothing() {
        let selection = |text: &str| text.parse::<PodSelection>();
        let whole = selection("kubernetes.io/metadata.name=web").unwrap();
        assert_eq!((whole.namespaces.0.len(), whole.pods), (1, None));
        let both = selection("kubernetes.io/metadata.name=web,a/b=c/app.kubernetes.io/name=nginx");
        let both = both.unwrap();
        assert_eq!((both.namespaces.0.len(), both.pods.unwrap().0.len()), (2, 1));
        for wrong in ["a=b/", "/a=b", "a=b/c", ""] {
            assert!(selection(wrong).is_err(), "{wrong}");
        }
    }
}
