//! The stores of a kind that is watched in some namespaces only, one for each: a right in a namespace allows no watch of
//! all.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;

use super::{Key, Store};
use crate::expectations::Expectation;

/// One store per namespace. Clones share them.
pub struct Scoped<K> {
    stores: Arc<BTreeMap<String, Store<K>>>,
}

impl<K> Clone for Scoped<K> {
    fn clone(&self) -> Self {
        Self { stores: self.stores.clone() }
    }
}

impl<K: Resource<DynamicType = ()> + Send + Sync + 'static> Scoped<K> {
    /// Empty stores of these namespaces.
    pub fn new(namespaces: impl IntoIterator<Item = String>) -> Self {
        let stores = namespaces.into_iter().map(|namespace| (namespace, Store::default()));
        Self { stores: Arc::new(stores.collect()) }
    }

    /// Each namespace and its store.
    pub fn each(&self) -> impl Iterator<Item = (&str, &Store<K>)> {
        self.stores.iter().map(|(namespace, store)| (namespace.as_str(), store))
    }

    /// The store of a namespace; none when it is not watched.
    #[must_use]
    pub fn of(&self, namespace: &str) -> Option<&Store<K>> {
        self.stores.get(namespace)
    }

    /// The object of that key as last seen.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.of(&key.namespace)?.get(key)
    }

    /// Everything in a namespace, in no order.
    #[must_use]
    pub fn all_in(&self, namespace: &str) -> Vec<Arc<K>> {
        self.of(namespace).map(Store::all).unwrap_or_default()
    }

    /// Everything in a namespace whose controller owner has that UID, ordered by key.
    #[must_use]
    pub fn owned_by(&self, namespace: &str, uid: &str) -> Vec<Arc<K>> {
        self.of(namespace).map(|store| store.owned_by(uid)).unwrap_or_default()
    }

    /// Whether the store that the expectation is about shows it. What is not watched tells nothing.
    #[must_use]
    pub fn has_seen(&self, expectation: &Expectation) -> bool {
        let store =
            expectation.target.namespace.as_deref().and_then(|namespace| self.of(namespace));
        store.is_none_or(|store| store.has_seen(expectation))
    }

    /// Calls `wake` for every object that changes from now on, in whichever namespace.
    pub fn subscribe(&self, wake: impl Fn(&K) + Clone + Send + Sync + 'static) {
        self.stores.values().for_each(|store| store.subscribe(wake.clone()));
    }

    /// Calls `wake` whenever the first complete list of one of the namespaces was seen, or the kind was taken away.
    pub fn when_installed(&self, wake: impl Fn() + Clone + Send + Sync + 'static) {
        self.stores.values().for_each(|store| store.when_installed(wake.clone()));
    }

    /// Whether a complete list of the namespace was seen, and the kind has not been taken away since.
    #[must_use]
    pub fn is_synced(&self, namespace: &str) -> bool {
        self.of(namespace).is_some_and(Store::is_synced)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::cluster::Target;
    use crate::expectations::Fact;
    use crate::store::{Change, Version};

    fn map(namespace: &str, version: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.namespace = Some(namespace.to_owned());
        map.metadata.name = Some("one".to_owned());
        map.metadata.resource_version = Some(version.to_owned());
        map
    }

    fn expectation(namespace: &str) -> Expectation {
        let target = Target::new::<ConfigMap>(Some(namespace), "one");
        Expectation { target, fact: Fact::Reached(Version::read("7")) }
    }

    #[test]
    fn a_list_of_one_namespace_takes_nothing_out_of_another() {
        let scoped = Scoped::new(["a".to_owned(), "b".to_owned()]);
        scoped.of("a").unwrap().apply(Change::Present(map("a", "5")));
        scoped.of("b").unwrap().apply(Change::All(Vec::new()));
        assert!(scoped.get(&Key::new("a", "one")).is_some());
        assert!(scoped.is_synced("b") && !scoped.is_synced("a") && !scoped.is_synced("c"));
        assert_eq!((scoped.all_in("a").len(), scoped.all_in("b").len()), (1, 0));
    }

    #[test]
    fn an_expectation_is_asked_of_the_store_of_its_namespace() {
        let scoped = Scoped::new(["a".to_owned(), "b".to_owned()]);
        scoped.of("a").unwrap().apply(Change::Present(map("a", "7")));
        assert!(scoped.has_seen(&expectation("a")));
        assert!(!scoped.has_seen(&expectation("b")));
        assert!(scoped.has_seen(&expectation("elsewhere")), "nothing is told of it, ever");
    }
}
