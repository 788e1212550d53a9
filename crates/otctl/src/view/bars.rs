//! Rows on a terminal: one bar each, drawn over the last ones.

use std::iter;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{amount, attempt, headline, phase, reason};
use crate::out;
use crate::queue::{Row, Table};

/// A headline and a bar for each row.
pub(crate) struct Bars {
    screen: MultiProgress,
    headline: ProgressBar,
    warning: Option<String>,
    rows: Vec<ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let headline = screen.add(ProgressBar::new(1).with_style(style("{wide_msg}")));
        Self { screen, headline, warning: None, rows: Vec::new() }
    }

    pub(super) fn tell(&mut self, warning: Option<String>) {
        self.warning = warning;
    }

    pub(super) fn show(&mut self, table: &Table) {
        let warning = self.warning.iter().map(|warning| format!("; {warning}"));
        self.headline.set_message(iter::once(headline(table)).chain(warning).collect::<String>());
        while self.rows.len() > table.images.len() {
            self.rows.pop().iter().for_each(|bar| self.screen.remove(bar));
        }
        while self.rows.len() < table.images.len() {
            let bar = ProgressBar::new(1)
                .with_style(style("{prefix} [{bar:24}] {wide_msg}").progress_chars("=> "));
            self.rows.push(self.screen.add(bar));
        }
        let width = table.images.iter().map(|row| name(row).len()).max().unwrap_or(0);
        self.rows.iter().zip(&table.images).for_each(|(bar, row)| draw(bar, row, width));
    }
}

impl Drop for Bars {
    /// What stands there stays there, and the next line begins below it.
    fn drop(&mut self) {
        self.rows.iter().chain([&self.headline]).for_each(ProgressBar::abandon);
        out::line("");
    }
}

fn draw(bar: &ProgressBar, row: &Row, width: usize) {
    let position = row.position.map(|position| position.to_string()).unwrap_or_default();
    bar.set_prefix(format!("{position:>3} {:width$} {:12}", name(row), phase(row.phase)));
    let total = row.total_bytes.unwrap_or(0).max(1);
    bar.set_length(total);
    bar.set_position(row.bytes.unwrap_or(0).min(total));
    let words = [amount(row), attempt(row), reason(row).to_owned()];
    bar.set_message(
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", "),
    );
}

fn name(row: &Row) -> String {
    format!("{}/{}", row.namespace, row.name)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant")
}
