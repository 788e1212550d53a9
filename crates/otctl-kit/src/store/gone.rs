//! What went, and at which version: an event of its life that is told again, or late, must not bring it back.

use std::collections::{HashMap, VecDeque};

use super::{Key, Version};

/// So many are remembered: what is told again was told lately.
const REMEMBERED: usize = 1024;

/// The objects that went lately.
#[derive(Debug, Default)]
pub(super) struct Gone {
    versions: HashMap<Key, Version>,
    order: VecDeque<(Key, Version)>,
}

impl Gone {
    /// `key` went at `version`.
    pub(super) fn note(&mut self, key: &Key, version: Version) {
        if self.since(key, version) {
            return;
        }
        self.versions.insert(key.clone(), version);
        self.order.push_back((key.clone(), version));
        while self.order.len() > REMEMBERED {
            self.forget_first();
        }
    }

    /// Whether `key` is known to have gone at `version` or later.
    pub(super) fn since(&self, key: &Key, version: Version) -> bool {
        self.versions.get(key).is_some_and(|gone| *gone >= version)
    }

    /// One that went again since is remembered for its last time.
    fn forget_first(&mut self) {
        if let Some((key, version)) = self.order.pop_front()
            && self.versions.get(&key) == Some(&version)
        {
            self.versions.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(number: u32) -> Version {
        Version::read(&number.to_string())
    }

    #[test]
    fn memory_is_bounded_and_the_last_time_counts() {
        let (mut gone, first) = (Gone::default(), Key::new("lab", "first"));
        gone.note(&first, version(1));
        gone.note(&first, version(5));
        gone.note(&first, version(3));
        for number in 0..u32::try_from(REMEMBERED).unwrap() - 1 {
            gone.note(&Key::new("lab", &number.to_string()), version(9));
        }
        assert!(gone.since(&first, version(5)), "its first death was forgotten, its last was not");
        assert!(!gone.since(&first, version(6)), "its successor lives");
        gone.note(&Key::new("lab", "one more"), version(9));
        assert!(!gone.since(&first, version(5)));
        assert_eq!((gone.order.len(), gone.versions.len()), (REMEMBERED, REMEMBERED));
    }
}
