//! What a user probably meant by a key that does not exist.

/// Changes, in letters, up to which two words are taken for each other.
const NEAR: usize = 2;

/// The candidate closest to `word`, if one is close; case, `-` and `_` do not count.
pub(crate) fn closest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = letters(word);
    candidates
        .filter_map(|candidate| Some((distance(&word, &letters(candidate))?, candidate)))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn letters(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// The Levenshtein distance, or `None` beyond `NEAR`.
fn distance(a: &[char], b: &[char]) -> Option<usize> {
    if a.len().abs_diff(b.len()) > NEAR {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    Some(row[b.len()]).filter(|distance| *distance <= NEAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_key_that_was_meant() {
        let check = |word: &str, meant: Option<&str>| {
            let candidates = ["concurrency", "retryLimit", "concurrencyPerHost"];
            assert_eq!(closest(word, candidates.into_iter()), meant, "{word}");
        };
        check("concurency", Some("concurrency"));
        check("Concurrency", Some("concurrency"));
        check("retry-limit", Some("retryLimit"));
        check("RETRY_LIMIT", Some("retryLimit"));
        check("retryLimits", Some("retryLimit"));
        check("concurrencyPerHst", Some("concurrencyPerHost"));
        check("color", None);
        check("", None);
    }
}
