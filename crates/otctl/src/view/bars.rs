//! Items on a terminal: one bar each, drawn over the last ones.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Item, Picture};
use crate::out;

/// A headline and a bar for each item.
pub(crate) struct Bars {
    screen: MultiProgress,
    headline: ProgressBar,
    warning: Option<String>,
    bars: Vec<ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stdout());
        let headline = screen.add(ProgressBar::new(1).with_style(style("{wide_msg}")));
        Self { screen, headline, warning: None, bars: Vec::new() }
    }

    pub(super) fn tell(&mut self, warning: Option<String>) {
        self.warning = warning;
    }

    pub(super) fn show(&mut self, picture: &Picture) {
        let headline = Some(picture.headline.clone()).filter(|text| !text.is_empty());
        let words: Vec<_> = headline.into_iter().chain(self.warning.clone()).collect();
        self.headline.set_message(words.join("; "));
        while self.bars.len() > picture.items.len() {
            self.bars.pop().iter().for_each(|bar| self.screen.remove(bar));
        }
        while self.bars.len() < picture.items.len() {
            let bar = ProgressBar::new(1)
                .with_style(style("{prefix} [{bar:24}] {wide_msg}").progress_chars("=> "));
            self.bars.push(self.screen.add(bar));
        }
        let width = picture.items.iter().map(|item| item.name.len()).max().unwrap_or(0);
        self.bars.iter().zip(&picture.items).for_each(|(bar, item)| draw(bar, item, width));
    }
}

impl Drop for Bars {
    /// What stands there stays there, and the next line begins below it.
    fn drop(&mut self) {
        self.bars.iter().chain([&self.headline]).for_each(ProgressBar::abandon);
        out::line("");
    }
}

fn draw(bar: &ProgressBar, item: &Item, width: usize) {
    let position = item.position.map(|position| position.to_string()).unwrap_or_default();
    bar.set_prefix(format!("{position:>3} {:width$} {:12}", item.name, item.phase));
    let total = item.progress.total.unwrap_or(0).max(1);
    bar.set_length(total);
    bar.set_position(item.progress.done.unwrap_or(0).min(total));
    bar.set_message(words(item));
}

/// How far it is and why, the sentence last: what a terminal has no room for is cut off.
fn words(item: &Item) -> String {
    let words = [item.progress.text.clone(), item.attempt(), item.reason.clone()];
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let told = [words.join(", "), item.message.clone()];
    told.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is a constant")
}
