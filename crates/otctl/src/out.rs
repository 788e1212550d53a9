//! How anything is printed. A reader that has gone (`otctl queue | head`) is no reason to panic or to complain, so a line
//! that cannot be written is dropped; a full disk is, once everything is done.

use std::io::{self, ErrorKind, IsTerminal, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

use comfy_table::presets::NOTHING;
use jiff::{SignedDuration, Timestamp};

/// Why the first of what was to be printed was not.
static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

/// One line to standard output.
pub(crate) fn line(text: &str) {
    note(writeln!(io::stdout(), "{text}"));
}

/// Text that brings its own line ends.
pub(crate) fn text(text: &str) {
    note(io::stdout().write_all(text.as_bytes()));
}

/// Whether everything was printed for which there was a reader.
///
/// # Errors
/// Why something was not.
pub(crate) fn finish() -> io::Result<()> {
    note(io::stdout().flush());
    lost().take().map_or(Ok(()), Err)
}

fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        lost().get_or_insert(error);
    }
}

fn lost() -> MutexGuard<'static, Option<io::Error>> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error and its causes to standard error.
pub(crate) fn error(error: &anyhow::Error) {
    complaint(&causes(error));
}

/// What went wrong with each of several, and what a program exits with then.
pub(crate) fn errors(errors: &[anyhow::Error]) -> ExitCode {
    errors.iter().for_each(error);
    if errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What went wrong, to standard error.
pub(crate) fn complaint(text: &str) {
    drop(writeln!(io::stderr(), "error: {text}"));
}

/// A remark that is no part of what was asked for, to standard error.
pub(crate) fn remark(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// An error and its causes in one line. What an API server answered is told in its own words and no others, and what
/// an error has told of its cause already is not told again.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut words = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(answer)) = cause.downcast_ref() {
            words.push(answer.message.clone());
            break;
        }
        let told = cause.to_string();
        if !words.last().is_some_and(|before: &String| before.contains(&told)) {
            words.push(told);
        }
    }
    words.join(": ")
}

/// Text in one line, whatever it was told in.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether standard output is a terminal, so that lines may be drawn over.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Bytes for people: `8.0 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let step = (bytes.ilog2() / 10).min(4);
    // In tenths, so that no float is needed; half a tenth is rounded up.
    let tenths = (u128::from(bytes) * 20 + (1 << (10 * step))) >> (10 * step + 1);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[step as usize - 1])
}

/// As kubectl prints tables: no lines, columns of capitals.
pub(crate) fn table<R, C>(header: &[&str], rows: R) -> String
where
    R: IntoIterator<Item = C>,
    C: IntoIterator<Item = String>,
{
    let mut columns = comfy_table::Table::new();
    columns.load_style(NOTHING);
    columns.set_header(header);
    for row in rows {
        columns.add_row(row);
    }
    columns.trim_fmt()
}

/// A stretch of time for people, in its two largest units: `4m12s`.
pub(crate) fn span(length: SignedDuration) -> String {
    let seconds = length.as_secs().unsigned_abs();
    let parts = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let first = parts.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(3);
    let mut text = String::new();
    let mut rest = seconds;
    for (index, (unit, name)) in parts.iter().enumerate().skip(first).take(2) {
        if index == first || rest >= *unit {
            text.push_str(&format!("{}{name}", rest / unit));
        }
        rest %= unit;
    }
    text
}

/// A time, and how far it is from now: `2026-05-01T12:09:31Z (in 4m12s)`.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    let distance = at.duration_since(now);
    if distance.as_secs() > 0 {
        format!("{at:.0} (in {})", span(distance))
    } else {
        format!("{at:.0} ({} ago)", span(distance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_api_server_is_told_in_its_own_words() {
        let answer =
            kube::core::Status::failure("images are forbidden", "Forbidden").with_code(403);
        let error = anyhow::Error::from(kube::Error::Api(answer.boxed()))
            .context("VMDiskImages cannot be listed");
        assert_eq!(causes(&error), "VMDiskImages cannot be listed: images are forbidden");
    }

    #[test]
    fn other_causes_are_told_one_after_the_other() {
        let error = anyhow::anyhow!("no such file")
            .context("the kubeconfig cannot be read")
            .context("no cluster");
        assert_eq!(causes(&error), "no cluster: the kubeconfig cannot be read: no such file");
    }

    #[test]
    fn a_cause_that_was_told_is_not_told_again() {
        let error = anyhow::anyhow!("no such file")
            .context("'config' cannot be read: no such file")
            .context("no cluster");
        assert_eq!(causes(&error), "no cluster: 'config' cannot be read: no such file");
    }

    #[test]
    fn what_is_told_in_several_lines_becomes_one() {
        assert_eq!(
            one_line("exit code 3:\n  no\tconfiguration\n"),
            "exit code 3: no configuration"
        );
        assert_eq!(one_line(""), "");
    }

    #[test]
    fn sizes_have_one_digit_after_the_point() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_142_947_840, "1.1 GiB"),
            (24 << 20, "24.0 MiB"),
        ];
        for (bytes, expected) in
            cases.into_iter().chain([(5 << 30, "5.0 GiB"), (u64::MAX, "16777216.0 TiB")])
        {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let cases = [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (252, "4m12s"),
            (3600, "1h"),
            (3605, "1h"),
            (3900, "1h5m"),
            (90_000, "1d1h"),
            (-61, "1m1s"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(span(SignedDuration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_time_is_told_with_its_distance() {
        let now: Timestamp = "2026-05-01T12:00:00Z".parse().unwrap();
        let after = |seconds| now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        assert_eq!(when(after(90), now), "2026-05-01T12:01:30Z (in 1m30s)");
        assert_eq!(when(after(-5), now), "2026-05-01T11:59:55Z (5s ago)");
        assert_eq!(when(now, now), "2026-05-01T12:00:00Z (0s ago)");
    }
}
