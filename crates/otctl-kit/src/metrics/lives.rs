//! What has become of objects from one version that a watch has shown to the next. A pass that is repeated makes no second
//! version, and an answer that was lost hides none, so that whatever is counted from here is counted once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use kube::Resource;

use crate::store::Key;
use crate::tenure::Tenure;

/// Whether this process leads now.
pub type Leads = Arc<dyn Fn() -> bool + Send + Sync>;

/// Whether this process leads, as its tenure says.
#[must_use]
pub fn leads(tenure: &Tenure) -> Leads {
    let tenure = tenure.clone();
    Arc::new(move || tenure.is_on())
}

/// An object as it was seen last, and how far what was told of it goes.
pub trait Life: Sized {
    /// What lives.
    type Object;
    /// Something that happens to it.
    type Milestone;

    /// One that is seen for the first time: whatever it tells is not news.
    fn first(object: Arc<Self::Object>) -> Self;

    /// UID of the object.
    fn uid(&self) -> Option<&str>;

    /// What has happened until this version was seen, in the order in which it happens.
    fn next(&mut self, object: Arc<Self::Object>) -> Vec<Self::Milestone>;

    /// What has happened with its end: it is gone, or another object has its name.
    fn end(self) -> Vec<Self::Milestone>;
}

/// Every object of a kind that was seen.
#[derive(Debug)]
pub struct Lives<L>(Mutex<HashMap<Key, L>>);

impl<L> Default for Lives<L> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<L: Life> Lives<L>
where
    L::Object: Resource,
{
    /// The object of that key as it is seen now, none when it is gone: what has happened.
    pub fn note(&self, key: &Key, object: Option<Arc<L::Object>>) -> Vec<L::Milestone> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = object.as_ref().and_then(|object| object.meta().uid.as_deref());
        let is_other = seen.get(key).is_some_and(|held| held.uid() != uid);
        let ended = if is_other { seen.remove(key) } else { None };
        let mut milestones = ended.map(L::end).unwrap_or_default();
        match (seen.get_mut(key), object) {
            (_, None) => {}
            (Some(held), Some(object)) => milestones.extend(held.next(object)),
            (None, Some(object)) => {
                seen.insert(key.clone(), L::first(object));
            }
        }
        milestones
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    /// Tells the name that stands in each version.
    struct Told(Arc<ConfigMap>);

    fn word(map: &ConfigMap) -> String {
        map.metadata.generate_name.clone().unwrap_or_default()
    }

    impl Life for Told {
        type Object = ConfigMap;
        type Milestone = String;

        fn first(object: Arc<ConfigMap>) -> Self {
            Self(object)
        }

        fn uid(&self) -> Option<&str> {
            self.0.metadata.uid.as_deref()
        }

        fn next(&mut self, object: Arc<ConfigMap>) -> Vec<String> {
            self.0 = object;
            vec![word(&self.0)]
        }

        fn end(self) -> Vec<String> {
            vec![format!("end of {}", word(&self.0))]
        }
    }

    /// What is met when the object of one key is seen like this, by UID and word.
    fn check(versions: &[Option<(&str, &str)>], expected: &[&str]) {
        let lives = Lives::<Told>::default();
        let seen = |version: &Option<(&str, &str)>| {
            let map = version.map(|(uid, word)| {
                let mut map = ConfigMap::default();
                map.metadata.uid = Some(uid.to_owned());
                map.metadata.generate_name = Some(word.to_owned());
                Arc::new(map)
            });
            lives.note(&Key::new("lab", "a"), map)
        };
        assert_eq!(versions.iter().flat_map(seen).collect::<Vec<_>>(), expected, "{versions:?}");
    }

    #[test]
    fn what_is_seen_for_the_first_time_is_no_news() {
        check(&[Some(("u", "one"))], &[]);
        check(&[Some(("u", "one")), Some(("u", "two"))], &["two"]);
        check(&[None], &[]);
    }

    #[test]
    fn one_that_goes_has_an_end_and_another_of_its_name_is_another() {
        check(&[Some(("u", "one")), None, None], &["end of one"]);
        let back = [Some(("u", "one")), None, Some(("u", "two")), Some(("u", "three"))];
        check(&back, &["end of one", "three"]);
        check(
            &[Some(("u", "one")), Some(("v", "two")), Some(("v", "three"))],
            &["end of one", "three"],
        );
    }
}
