//! A tree of words. What stands in it is said elsewhere.

/// Something, what there is to say of it, and its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    title: String,
    notes: Vec<String>,
    parts: Vec<Node>,
}

impl Node {
    /// Something with nothing more to say of it.
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), ..Self::default() }
    }

    /// With a sentence below it; an empty one is none.
    #[must_use]
    pub(crate) fn note(self, text: impl Into<String>) -> Self {
        self.notes([text.into()])
    }

    /// With sentences below it, those that are not empty.
    #[must_use]
    pub(crate) fn notes(mut self, texts: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(texts.into_iter().filter(|text| !text.is_empty()));
        self
    }

    /// With parts.
    #[must_use]
    pub(crate) fn parts(mut self, parts: impl IntoIterator<Item = Self>) -> Self {
        self.parts.extend(parts);
        self
    }

    /// As text, which ends with a line end.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.title);
        self.below("", &mut text);
        text
    }

    /// Notes and parts, behind `margin`.
    fn below(&self, margin: &str, text: &mut String) {
        let line = if self.parts.is_empty() { "   " } else { "│  " };
        for note in self.notes.iter().flat_map(|note| note.lines()) {
            text.push_str(&format!("{margin}{line}{note}\n"));
        }
        for (index, part) in self.parts.iter().enumerate() {
            let is_last = index + 1 == self.parts.len();
            let (branch, inner) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            text.push_str(&format!("{margin}{branch}{}\n", part.title));
            part.below(&format!("{margin}{inner}"), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_show_what_belongs_to_what() {
        let leaf = Node::new("pod: Running").note("since a while\nand still");
        let job = Node::new("job: active").note("attempt 1").parts([leaf]);
        let tree = Node::new("image")
            .note("why")
            .note("")
            .parts([job, Node::new("claim: Bound").note("1 GiB")]);
        let expected = "\
image
│  why
├─ job: active
│  │  attempt 1
│  └─ pod: Running
│        since a while
│        and still
└─ claim: Bound
      1 GiB
";
        assert_eq!(tree.text(), expected);
    }
}
