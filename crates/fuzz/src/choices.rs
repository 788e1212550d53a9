//! The input as choices: bytes become numbers, and numbers pick from what people and programs write, or come close to.

use arbitrary::Unstructured;
use otctl_types::names::LAST_ATTEMPT;
use serde_json::{Value, json};

/// A field's name, and how its value is chosen.
type Field<'b, 'a> = (&'b str, &'b dyn Fn(&mut Choices<'a>) -> Value);

/// What is left of the input.
pub(crate) struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    pub(crate) fn new(input: &'a [u8]) -> Self {
        Self(Unstructured::new(input))
    }

    pub(crate) fn are_over(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `end`; the first when nothing is left.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end.max(1)
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 1
    }

    pub(crate) fn of<'b, T: ?Sized>(&mut self, all: &[&'b T]) -> &'b T {
        all[self.below(all.len())]
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// One of these, or now and then something else.
    pub(crate) fn text(&mut self, usual: &[&str]) -> Value {
        if !self.one_in(16) {
            return json!(self.of(usual));
        }
        match self.below(6) {
            0 => json!(""),
            1 => json!("x".repeat(64)),
            2 => json!("é".repeat(253)),
            3 => json!("z".repeat(5000)),
            4 => json!("a\u{0}\n\"'${b}"),
            _ => json!(String::from_utf8_lossy(self.0.bytes(4).unwrap_or(b"?"))),
        }
    }

    pub(crate) fn number(&mut self) -> Value {
        let odd = [i64::MAX, i64::MIN, -1, i64::from(i32::MAX), 1 << 40, 1_000_000_000];
        match self.below(12) {
            small @ 0..=5 => json!(small),
            at => json!(odd[at - 6]),
        }
    }

    /// Of an attempt: what its schema allows, up to the last.
    pub(crate) fn attempt(&mut self) -> Value {
        json!([1, 2, 3, 5, 10, 11, LAST_ATTEMPT - 1, LAST_ATTEMPT][self.below(8)])
    }

    /// Of what is counted in unsigned numbers.
    pub(crate) fn bytes(&mut self) -> Value {
        json!(
            [0, 1, 4096, 3 << 20, 5 << 30, i64::MAX as u64, u64::MAX, u64::MAX - 4096]
                [self.below(8)]
        )
    }

    /// Around noon of the first day of 2026, when the world begins.
    pub(crate) fn time(&mut self) -> Value {
        let times = [
            "2026-01-01T12:00:00Z",
            "2026-01-01T11:59:00Z",
            "2026-01-01T11:00:00Z",
            "2025-12-30T12:00:00Z",
            "2026-01-01T12:05:00Z",
            "2026-02-01T12:00:00Z",
            "1970-01-01T00:00:00Z",
            "9999-12-30T22:00:00Z",
            "0001-01-01T00:00:00Z",
        ];
        json!(self.of(&times))
    }

    pub(crate) fn truth(&mut self) -> Value {
        json!(self.one_in(2))
    }

    /// An object of fields, each of which is there or not.
    pub(crate) fn some(&mut self, fields: &[Field<'_, 'a>]) -> Value {
        let mut object = serde_json::Map::new();
        for (name, make) in fields {
            if self.below(3) > 0 {
                object.insert((*name).to_owned(), make(self));
            }
        }
        Value::Object(object)
    }

    /// Each of these, or not.
    pub(crate) fn some_of<T: Copy>(
        &mut self,
        all: &[T],
        mut make: impl FnMut(&mut Self, T) -> Value,
    ) -> Value {
        let mut chosen = Vec::new();
        for one in all {
            if self.one_in(2) {
                chosen.push(make(self, *one));
            }
        }
        Value::Array(chosen)
    }

    /// Up to so many.
    pub(crate) fn list(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> Value) -> Value {
        let count = self.below(most + 1);
        Value::Array((0..count).map(|_| make(self)).collect())
    }
}
