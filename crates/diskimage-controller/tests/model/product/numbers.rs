//! Equal things by number.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash};
use std::rc::Rc;

use testbed::explore::Folding;

/// Gives equal things equal numbers.
pub(super) struct Numbers<T> {
    numbers: HashMap<Rc<T>, u32, BuildHasherDefault<Folding>>,
    things: Vec<Rc<T>>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), things: Vec::new() }
    }
}

impl<T: Hash + Eq> Numbers<T> {
    pub(super) fn of(&mut self, thing: T) -> u32 {
        if let Some(number) = self.numbers.get(&thing) {
            return *number;
        }
        let number = u32::try_from(self.things.len()).expect("fewer than 2^32 things");
        let thing = Rc::new(thing);
        self.numbers.insert(thing.clone(), number);
        self.things.push(thing);
        number
    }

    pub(super) fn get(&self, number: u32) -> Rc<T> {
        self.things[number as usize].clone()
    }
}
