//! SPDX licence expressions, as far as crates write them: `OR`, `AND`, `WITH`, parentheses, and the old `/` for `OR`.

use std::collections::BTreeSet;

/// Whether the allowed licences are enough. An expression that cannot be read is not satisfied.
pub(super) fn is_satisfied(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut reader = Reader { words: spaced.split_whitespace().collect(), next: 0, allowed };
    reader.either() == Some(true) && reader.next == reader.words.len()
}

struct Reader<'a> {
    words: Vec<&'a str>,
    next: usize,
    allowed: &'a BTreeSet<String>,
}

impl Reader<'_> {
    fn skip(&mut self, word: &str) -> bool {
        let is_next = self.words.get(self.next) == Some(&word);
        self.next += usize::from(is_next);
        is_next
    }

    fn either(&mut self) -> Option<bool> {
        let mut is_satisfied = self.both()?;
        while self.skip("OR") {
            is_satisfied |= self.both()?;
        }
        Some(is_satisfied)
    }

    fn both(&mut self) -> Option<bool> {
        let mut is_satisfied = self.one()?;
        while self.skip("AND") {
            is_satisfied &= self.one()?;
        }
        Some(is_satisfied)
    }

    fn one(&mut self) -> Option<bool> {
        if self.skip("(") {
            let inner = self.either()?;
            return self.skip(")").then_some(inner);
        }
        let mut name = (*self.words.get(self.next)?).to_owned();
        self.next += 1;
        if self.skip("WITH") {
            name = format!("{name} WITH {}", self.words.get(self.next)?);
            self.next += 1;
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(expression: &str) -> bool {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        is_satisfied(expression, &BTreeSet::from(allowed))
    }

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        for expression in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "MIT AND ISC",
            "(GPL-3.0 OR MIT) AND ISC",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
            "GPL-3.0 AND Zlib OR MIT",
        ] {
            assert!(is_allowed(expression), "{expression}");
        }
        for expression in
            ["GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0", "(MIT", "MIT)", "", "MIT OR", "MIT ISC"]
        {
            assert!(!is_allowed(expression), "{expression}");
        }
    }
}
