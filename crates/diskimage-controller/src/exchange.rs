//! Asks every running import once a second how far it is, and tells it what it may use of the bandwidth. Done by the
//! leader alone. What an answer means is decided elsewhere.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use otctl_kit::runtime::Signs;
use otctl_kit::tenure::Tenure;
use otctl_types::import::Standing;
use policy::Policy;
use policy::bandwidth::gate::VALIDITY;
use policy::bandwidth::lender::Offer;
use reqwest::StatusCode;

use crate::bandwidth::{Bandwidth, share};
use crate::imports::{Import, on_record};
use crate::metrics::traffic::Traffic;
use crate::progress::{Answer, ProgressBook};
use crate::views::{Views, effective_policy};

/// Between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// For one answer, the connection included.
const DEADLINE: Duration = Duration::from_secs(1);
// What is lent is renewed before it ends: a share counts from the round before, and a round can last two answers.
const _: () = assert!(INTERVAL.as_millis() + 2 * DEADLINE.as_millis() < VALIDITY.as_millis());
/// For the connection: much shorter, so that one who takes it and says nothing is told apart from one out of reach.
const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
/// The longest answer that is read, in bytes; progress is a tenth of it. An import pod has read foreign bytes: what it
/// says must not fill our memory.
const LONGEST_ANSWER: usize = 4096;

/// Both sides of the talk with imports.
#[derive(Clone, Debug, Default)]
pub struct Correspondence {
    /// What they told.
    pub book: ProgressBook,
    /// What they were told.
    pub bandwidth: Bandwidth,
    /// What they have received, for the metrics.
    pub traffic: Traffic,
}

/// Asks and tells, once a second, for ever; tells nobody anything once `tenure` has ended.
pub async fn correspond(
    views: Views,
    correspondence: Correspondence,
    tenure: Tenure,
    signs: Signs,
) {
    let round = Round { views, correspondence, tenure, client: client() };
    round.correspondence.bandwidth.take_over(round.tenure.term());
    round.correspondence.traffic.take_over();
    let mut rounds = tokio::time::interval(INTERVAL);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        signs.beat();
        round.make().await;
    }
}

/// A connection per question: that one is taken shows that the process is there. An import pod that answers with another
/// address is not followed: from here more can be reached than from there.
fn client() -> reqwest::Client {
    let builder = reqwest::Client::builder().timeout(DEADLINE).connect_timeout(CONNECT_DEADLINE);
    let builder = builder.no_proxy().pool_max_idle_per_host(0);
    let builder = builder.redirect(reqwest::redirect::Policy::none());
    builder.build().expect("the settings are constants")
}

/// What came of one offer.
enum Reply {
    Taken(Standing),
    /// A later one was taken before.
    Refused(Standing),
    Missing(Answer),
}

struct Round {
    views: Views,
    correspondence: Correspondence,
    tenure: Tenure,
    client: reqwest::Client,
}

impl Round {
    async fn make(&self) {
        let queue = self.views.queue();
        let policy = effective_policy(queue.as_ref().and_then(|queue| queue.status.as_ref()));
        self.talk_to(&on_record(&self.views), &policy).await;
    }

    /// Whoever is to use less hears it before anybody hears of more.
    async fn talk_to(&self, imports: &[Import], policy: &Policy) {
        let Correspondence { book, bandwidth, .. } = &self.correspondence;
        book.keep(&imports.iter().map(|import| import.job_uid.as_str()).collect());
        bandwidth.observe(imports);
        let reachable: HashMap<&str, &Import> = imports
            .iter()
            .filter(|import| import.address.is_some())
            .map(|import| (import.job_uid.as_str(), import))
            .collect();
        let is_reachable = |offer: &Offer| reachable.contains_key(offer.id.as_str());
        let lower = bandwidth.offers(policy, |offer, lowers| lowers && is_reachable(offer));
        self.exchange(&lower, &reachable).await;
        let is_told: HashSet<&str> = lower.iter().map(|offer| offer.id.as_str()).collect();
        let rest = bandwidth
            .offers(policy, |offer, _| is_reachable(offer) && !is_told.contains(offer.id.as_str()));
        self.exchange(&rest, &reachable).await;
    }

    async fn exchange(&self, offers: &[Offer], imports: &HashMap<&str, &Import>) {
        let reachable = offers.iter().filter_map(|offer| {
            let import = imports.get(offer.id.as_str())?;
            Some((offer, *import, import.address?))
        });
        join_all(reachable.map(|(offer, import, address)| self.tell(offer, import, address))).await;
    }

    async fn tell(&self, offer: &Offer, import: &Import, address: SocketAddr) {
        let Correspondence { book, bandwidth, traffic } = &self.correspondence;
        // Asked last, with the offer made: what a process that is stopped here sends when it wakes has ended by then.
        if !self.tenure.is_on() {
            return bandwidth.unheard(offer);
        }
        let answer = match self.ask(offer, import, address).await {
            Reply::Taken(standing) => {
                bandwidth.heard(offer, &standing);
                Answer::Told(standing.progress)
            }
            Reply::Refused(standing) if self.tenure.is_on() => {
                bandwidth.refused(offer, &standing);
                Answer::Told(standing.progress)
            }
            Reply::Refused(_) => return bandwidth.unheard(offer),
            Reply::Missing(answer) => {
                bandwidth.unheard(offer);
                answer
            }
        };
        if let Answer::Told(progress) = &answer {
            traffic.heard(&import.job_uid, progress.received);
        }
        book.note(&import.job_uid, answer);
    }

    async fn ask(&self, offer: &Offer, import: &Import, address: SocketAddr) -> Reply {
        let url = format!("http://{address}/progress");
        let request = self.client.post(url).bearer_auth(&import.key).json(&share(offer));
        let read = async {
            let answer = request.send().await?;
            let is_refused = answer.status() == StatusCode::CONFLICT;
            let answer = if is_refused { answer } else { answer.error_for_status()? };
            let Some(standing) = standing(answer).await? else {
                return Ok(Reply::Missing(Answer::Unusable));
            };
            Ok(if is_refused { Reply::Refused(standing) } else { Reply::Taken(standing) })
        };
        read.await.unwrap_or_else(|error| Reply::Missing(failed(&error, import)))
    }
}

/// What an answer tells; nothing when it is longer than progress ever is, or something else.
async fn standing(mut answer: reqwest::Response) -> reqwest::Result<Option<Standing>> {
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > LONGEST_ANSWER {
            return Ok(None);
        }
    }
    Ok(serde_json::from_slice(&body).ok())
}

fn failed(error: &reqwest::Error, import: &Import) -> Answer {
    tracing::debug!(%error, job = import.job_uid, "an import did not tell its progress");
    match error {
        _ if error.is_connect() => Answer::Unreachable,
        _ if error.is_timeout() => Answer::Mute,
        _ if error.is_status() || error.is_decode() => Answer::Unusable,
        _ => Answer::Unreachable,
    }
}

#[cfg(test)]
mod tests;
