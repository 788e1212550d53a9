//! Which metrics an expression asks for, and within which functions. Whether it is an expression at all is promtool's to
//! say; `promql-parser` would tell both, but stands on a crate that nobody maintains (RUSTSEC-2025-0141).

/// A metric in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector {
    /// Its name.
    pub(super) name: String,
    /// The functions and aggregations around it, outermost first.
    pub(super) within: Vec<String>,
}

/// After these come names of labels, if anything in parentheses.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that name nothing.
const KEYWORDS: [&str; 8] = ["and", "or", "unless", "bool", "offset", "atan2", "inf", "nan"];

/// Every metric that `expression` asks for.
#[must_use]
pub(super) fn selectors(expression: &str) -> Vec<Selector> {
    let mut scan = Scan { rest: expression, word: None, around: Vec::new(), found: Vec::new() };
    while let Some(next) = scan.rest.chars().next() {
        scan.take(next);
    }
    scan.close_word();
    scan.found
}

struct Scan<'a> {
    rest: &'a str,
    /// A word of which it is not known yet whether it is a function.
    word: Option<&'a str>,
    around: Vec<Option<&'a str>>,
    found: Vec<Selector>,
}

impl<'a> Scan<'a> {
    fn take(&mut self, next: char) {
        match next {
            _ if next.is_whitespace() => self.skip(next.len_utf8()),
            '(' => {
                self.around.push(self.word.take());
                self.skip(1);
            }
            ')' => {
                self.close_word();
                self.around.pop();
                self.skip(1);
            }
            '{' => {
                self.close_word();
                self.skip_through('}');
            }
            '[' => self.skip_through(']'),
            '"' | '\'' | '`' => self.skip_text(next),
            _ if next.is_ascii_digit() => {
                self.read(|it| it.is_ascii_alphanumeric() || it == '.');
            }
            _ if is_of_word(next) => self.take_word(),
            _ => {
                self.close_word();
                self.skip(next.len_utf8());
            }
        }
    }

    fn take_word(&mut self) {
        let word = self.read(is_of_word);
        if GROUPINGS.contains(&word) {
            self.rest = self.rest.trim_start();
            if self.rest.starts_with('(') {
                self.skip_through(')');
            }
            return;
        }
        self.close_word();
        if !KEYWORDS.contains(&word.to_lowercase().as_str()) {
            self.word = Some(word);
        }
    }

    /// What was read last is not followed by a parenthesis, so it is a metric.
    fn close_word(&mut self) {
        if let Some(name) = self.word.take() {
            let within = self.around.iter().flatten().map(|&it| it.to_owned()).collect();
            self.found.push(Selector { name: name.to_owned(), within });
        }
    }

    fn read(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|it| !is_part(it)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    /// To the end of what was opened; texts inside may hold anything.
    fn skip_through(&mut self, end: char) {
        self.skip(1);
        while let Some(next) = self.rest.chars().next() {
            match next {
                '"' | '\'' | '`' => self.skip_text(next),
                _ => self.skip(next.len_utf8()),
            }
            if next == end {
                return;
            }
        }
    }

    fn skip_text(&mut self, quote: char) {
        self.skip(1);
        while let Some(next) = self.rest.chars().next() {
            self.skip(next.len_utf8());
            if next == quote {
                return;
            }
            if next == '\\' && quote != '`' {
                let escaped = self.rest.chars().next().map_or(0, char::len_utf8);
                self.skip(escaped);
            }
        }
    }
}

fn is_of_word(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '_' | ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expected: &[&str]) {
        let found = selectors(expression);
        let told = found.iter().map(|it| {
            let around: String = it.within.iter().map(|it| format!("{it} > ")).collect();
            format!("{around}{}", it.name)
        });
        assert_eq!(told.collect::<Vec<_>>(), expected, "{expression}");
    }

    #[test]
    fn metrics_are_told_from_functions_labels_and_keywords() {
        check("up", &["up"]);
        check("max(a) > 0 and on () b == 1.5e3", &["max > a", "b"]);
        check("sum by (le, job) (rate(a_total{b=\"c\"}[5m]))", &["sum > rate > a_total"]);
        check("sum(increase(a[1h] offset 5m)) by (x)", &["sum > increase > a"]);
        check("a * on (job) group_left (program) b{c!~'d(e'}", &["a", "b"]);
        check("a / ignoring(x) group_left() (b + c) or vector(0)", &["a", "b", "c"]);
        check(
            "histogram_quantile(0.9, sum by (le) (rate(a_bucket[5m])))",
            &["histogram_quantile > sum > rate > a_bucket"],
        );
    }

    #[test]
    fn texts_may_hold_anything() {
        check(r#"a{b="}\" c"} + d"#, &["a", "d"]);
        check("label_replace(a, \"x\", \"b(c)\", \"y\", `\\`)", &["label_replace > a"]);
        check("", &[]);
        check("a{", &["a"]);
    }
}
