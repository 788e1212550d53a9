//! Compares a text with a file under version control. `UPDATE_GOLDEN=1` rewrites the file; then read the diff.

use std::path::Path;

use similar::TextDiff;

/// Compares `text` with the file at `path`, or rewrites that when `UPDATE_GOLDEN=1` is set. [`golden!`](crate::golden!)
/// makes the path.
///
/// # Panics
/// When they differ, with a line diff; when the file cannot be read or written.
pub fn compare(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        let folder = path.parent().expect("a golden has a folder");
        let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(path, text));
        written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    } else if let Err(why) = find_difference(path, text) {
        panic!("{why}");
    }
}

fn find_difference(path: &Path, text: &str) -> Result<(), String> {
    let (name, again) =
        (path.display(), "UPDATE_GOLDEN=1 rewrites it; read the diff before you commit it");
    match std::fs::read_to_string(path) {
        Err(error) => Err(format!("{name}: {error}; {again}\n{text}")),
        Ok(wanted) if wanted == text => Ok(()),
        Ok(wanted) => {
            Err(format!("the story differs from {name}; {again}\n{}", difference(&wanted, text)))
        }
    }
}

/// The path of a golden of the crate that calls it: `golden!("one_image")` is `tests/goldens/one_image.golden`.
#[macro_export]
macro_rules! golden {
    ($name:literal) => {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(concat!(
            "tests/goldens/",
            $name,
            ".golden"
        ))
    };
}

/// A line diff with three lines around every change: `-` is only in `old`, `+` only in `new`. Empty when they are equal.
#[must_use]
pub fn difference(old: &str, new: &str) -> String {
    TextDiff::from_lines(old, new).unified_diff().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_was_and_what_is() {
        let told = "@@ -1,3 +1,4 @@\n a\n-b\n+x\n c\n+d\n";
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\nd\n"), told);
        assert_eq!(difference("same\n", "same\n"), "");
    }

    #[test]
    fn another_text_than_the_file_is_refused() {
        let file = golden!("two_images_one_slot");
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(find_difference(&file, &text), Ok(()));
        let why = find_difference(&file, &text.replacen("toy ", "joy ", 1)).unwrap_err();
        assert!(why.contains("\n- 1 toy ") && why.contains("\n+ 1 joy "), "{why}");
    }

    #[test]
    fn a_missing_file_is_refused() {
        let why = find_difference(&golden!("there_is_none"), "text\n").unwrap_err();
        assert!(why.contains("UPDATE_GOLDEN=1") && why.ends_with("text\n"), "{why}");
    }
}
