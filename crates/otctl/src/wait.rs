//! Objects until each is decided, or the time is up. What is told of them, watches bring; what it means, `kind` says.

use std::time::Duration;

use anyhow::Context as _;
use futures::stream::{self, BoxStream, SelectAll, StreamExt as _};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::cli::Goal;
use crate::kind::{Found, Standing, Verdict};
use crate::out;
use crate::view::{Item, Picture, View};

#[cfg(test)]
mod tests;

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    /// It is as wanted.
    Reached,
    /// That was not decided in time.
    TimedOut,
    /// It is held up, until a person lets it go on.
    Suspended,
    /// A person must act.
    Failed,
    /// It is gone.
    Deleted,
}

/// One that is waited for.
pub(crate) struct Awaited {
    /// As it was last seen.
    pub(crate) found: Found,
    /// Where it stood then.
    pub(crate) standing: Standing,
    /// How it ended, once it has.
    pub(crate) outcome: Option<Outcome>,
    /// Why what is known of it may be old.
    broken: Option<String>,
    /// Whether its watch has ever told anything.
    is_heard: bool,
}

/// What a watch of one object brings: the object, or that there is none.
type News = Result<Option<DynamicObject>, watcher::Error>;

/// Waits until every one of them is as wanted or has failed, but not longer than `timeout`; shows them meanwhile.
pub(crate) async fn wait(
    client: &Client,
    found: Vec<Found>,
    (goal, timeout): (Goal, Duration),
    mut view: Option<View>,
) -> anyhow::Result<Vec<Awaited>> {
    let mut all: Vec<Awaited> = found.into_iter().map(|one| Awaited::new(one, goal)).collect();
    let mut watches: SelectAll<BoxStream<'static, (usize, News)>> =
        all.iter().enumerate().map(|(index, one)| watch(client, index, one)).collect();
    // A time too far to be counted is no limit.
    let deadline = Instant::now().checked_add(timeout);
    loop {
        if let Some(view) = &mut view {
            view.tell(all.iter().find_map(Awaited::warning));
            view.show(&picture(&all));
        }
        if all.iter().all(|one| one.outcome.is_some()) {
            return Ok(all);
        }
        let news = match deadline {
            Some(deadline) => timeout_at(deadline, watches.next()).await,
            None => Ok(watches.next().await),
        };
        let Ok(news) = news else {
            all.iter_mut().for_each(Awaited::give_up);
            return Ok(all);
        };
        let (index, news) = news.context("the watches have ended")?;
        all[index].expect_allowed(&news)?;
        all[index].take(news, goal);
    }
}

/// One object, not its whole namespace: a pipeline may be allowed to see nothing else.
fn watch(client: &Client, index: usize, one: &Awaited) -> BoxStream<'static, (usize, News)> {
    if one.outcome.is_some() {
        return stream::empty().boxed();
    }
    let name = one.found.object.metadata.name.clone().unwrap_or_default();
    let news = watcher::watch_object(one.found.api(client), &name).default_backoff();
    news.map(move |news| (index, news)).boxed()
}

impl Awaited {
    fn new(found: Found, goal: Goal) -> Self {
        let standing = found.judge(goal);
        let outcome = outcome(standing.verdict);
        Self { found, standing, outcome, broken: None, is_heard: false }
    }

    /// A watch that is forbidden from its beginning would be tried until the time is up. Later it may be an API server
    /// that has just come back and does not know its roles yet.
    fn expect_allowed(&self, news: &News) -> anyhow::Result<()> {
        match news {
            Err(watcher::Error::InitialListFailed(kube::Error::Api(answer)))
                if answer.code == 403 && !self.is_heard =>
            {
                let name = self.found.reference();
                anyhow::bail!("{name} cannot be watched: {}", answer.message)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// What a watch brought. What is decided stays so.
    fn take(&mut self, news: News, goal: Goal) {
        if self.outcome.is_some() {
            return;
        }
        match news {
            Err(error) => self.broken = Some(out::causes(&anyhow::Error::new(error))),
            Ok(Some(object)) if object.metadata.uid == self.found.object.metadata.uid => {
                *self = Self::new(Found { object, ..self.found }, goal);
                self.is_heard = true;
            }
            Ok(Some(_)) => self.is_gone("it was deleted, and there is another of its name"),
            Ok(None) => self.is_gone("it was deleted"),
        }
    }

    fn is_gone(&mut self, message: &str) {
        self.outcome = Some(Outcome::Deleted);
        self.standing.reason = "Deleted".to_owned();
        self.standing.message = message.to_owned();
        self.broken = None;
    }

    fn give_up(&mut self) {
        self.outcome.get_or_insert(Outcome::TimedOut);
    }

    fn warning(&self) -> Option<String> {
        let why = self.broken.as_ref()?;
        Some(format!("not up to date, the API server cannot be asked: {why}"))
    }
}

fn outcome(verdict: Verdict) -> Option<Outcome> {
    match verdict {
        Verdict::Reached => Some(Outcome::Reached),
        Verdict::Failed => Some(Outcome::Failed),
        Verdict::Suspended => Some(Outcome::Suspended),
        Verdict::Going => None,
    }
}

fn picture(all: &[Awaited]) -> Picture {
    let decided = all.iter().filter(|one| one.outcome.is_some()).count();
    let headline = format!("{decided} of {} decided", all.len());
    Picture { headline, items: all.iter().map(item).collect() }
}

fn item(one: &Awaited) -> Item {
    let Standing { phase, reason, message, progress, .. } = one.standing.clone();
    Item {
        name: one.found.place(),
        position: None,
        reason: Some(reason).filter(|reason| *reason != phase).unwrap_or_default(),
        phase,
        message: out::one_line(&message),
        progress,
    }
}
