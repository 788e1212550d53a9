//! Rounds with importers of this process: what each hears, in which order, and what its silence is taken for.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use otctl_types::import::{Fence, ImportPhase, Progress, Share};
use policy::bandwidth::gate::{self, Gate, Told};

use super::*;
use crate::progress::Talk;

/// How an importer answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Tells,
    /// Knows of no fence, and tells no clock.
    TellsAsEver,
    SaysNothing,
    Refuses,
    /// A body without end.
    GoesOn,
    /// To another address.
    SendsTo(SocketAddr),
}

type Heard = Arc<Mutex<Vec<(String, Share)>>>;

/// An importer at a free port; what it is told ends up in `heard`.
async fn importer(job: &'static str, manner: Manner, heard: &Heard) -> Import {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = heard.clone();
    tokio::spawn(async move {
        let (mut held, mut gate) = (Vec::new(), Gate::default());
        while let Ok((mut connection, _)) = listener.accept().await {
            let request = read(&mut connection).await;
            if manner == Manner::SaysNothing {
                held.push(connection);
                continue;
            }
            let is_key = request.to_lowercase().contains("authorization: bearer key");
            let body = request.split("\r\n\r\n").nth(1).unwrap_or_default();
            if manner == Manner::GoesOn {
                let _ = connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                while connection.write_all(&[b' '; 4096]).await.is_ok() {}
                continue;
            }
            if let Manner::SendsTo(address) = manner {
                let head = "HTTP/1.1 307 Temporary Redirect\r\nconnection: close";
                let answer = format!("{head}\r\nlocation: http://{address}/progress\r\n\r\n");
                connection.write_all(answer.as_bytes()).await.unwrap();
                continue;
            }
            let share: Share = serde_json::from_str(body).unwrap();
            heard.lock().unwrap().push((job.to_owned(), share));
            let (status, told) = match manner {
                _ if !is_key => (401, String::new()),
                Manner::Tells => standing(&mut gate, &share),
                Manner::TellsAsEver => (200, serde_json::to_string(&progress()).unwrap()),
                _ => (401, String::new()),
            };
            let answer = format!(
                "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{told}",
                told.len()
            );
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    Import {
        job_uid: job.to_owned(),
        fallback: Some(300),
        is_started: true,
        address: Some(address),
        key: "key".to_owned(),
    }
}

fn progress() -> Progress {
    Progress { phase: ImportPhase::Fetching, bytes: 7, total_bytes: None, received: 7, percent: 1 }
}

/// What an import's clock shows when it is asked.
const CLOCK: Duration = Duration::from_secs(1_000_000);

/// Status and body of an importer behind its gate.
fn standing(gate: &mut Gate, share: &Share) -> (u16, String) {
    let fence = share.fence.map(|Fence { term, serial }| gate::Fence { term, serial });
    let is_taken = gate.take(&Told { fence, ..Told::default() }, CLOCK).is_ok();
    let fence = gate.taken().map(|gate::Fence { term, serial }| Fence { term, serial });
    let clock_ms = CLOCK.as_millis().try_into().ok();
    let told = serde_json::to_string(&Standing { progress: progress(), clock_ms, fence });
    (if is_taken { 200 } else { 409 }, told.unwrap())
}

async fn read(connection: &mut tokio::net::TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = connection.read(&mut buffer).await.unwrap();
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if read == 0 || text.split("\r\n\r\n").nth(1).is_some_and(|body| body.ends_with('}')) {
            return text;
        }
    }
}

fn policy() -> policy::Policy {
    policy::Policy { bandwidth_limit: Some(1200), concurrency: 4, ..policy::Policy::default() }
}

fn round() -> Round {
    // An error says that a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Round {
        views: Views::default(),
        correspondence: Correspondence::default(),
        tenure: Tenure::without_end(),
        client: client(),
    }
}

impl Round {
    async fn with(&self, imports: &[&Import]) {
        let imports: Vec<Import> = imports.iter().map(|import| (*import).clone()).collect();
        self.talk_to(&imports, &policy()).await;
    }

    fn talk(&self, job: &str) -> Talk {
        self.correspondence.book.talk(job).unwrap()
    }
}

/// What each heard last, in bytes per second.
fn shares(heard: &Heard) -> Vec<(String, u64)> {
    let told = heard.lock().unwrap().drain(..).collect::<Vec<_>>();
    told.into_iter().map(|(job, share)| (job, share.bytes_per_second.unwrap())).collect()
}

fn ordered(mut shares: Vec<(String, u64)>) -> Vec<(String, u64)> {
    shares.sort();
    shares
}

fn pairs(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
    pairs.iter().map(|(job, share)| ((*job).to_owned(), *share)).collect()
}

#[tokio::test]
async fn a_newcomer_hears_of_more_when_the_others_have_heard_of_less() {
    let (round, heard) = (round(), Heard::default());
    let (a, b) =
        (importer("a", Manner::Tells, &heard).await, importer("b", Manner::Tells, &heard).await);
    round.with(&[&b]).await;
    assert_eq!(
        shares(&heard),
        pairs(&[("b", 300)]),
        "it may have borrowed everything from another"
    );
    round.with(&[&b]).await;
    assert_eq!(shares(&heard), pairs(&[("b", 1200)]));
    let begun = Import { is_started: false, ..a.clone() };
    round.correspondence.bandwidth.reserve(&begun, &policy());
    round.with(&[&a, &b]).await;
    assert_eq!(ordered(shares(&heard)), pairs(&[("a", 300), ("b", 600)]), "one gives first");
    round.with(&[&a, &b]).await;
    assert_eq!(ordered(shares(&heard)), pairs(&[("a", 600), ("b", 600)]));
}

#[tokio::test]
async fn an_answer_is_progress_and_silence_is_told_apart_from_distance() {
    let (round, heard) = (round(), Heard::default());
    let tells = importer("tells", Manner::Tells, &heard).await;
    let mute = importer("mute", Manner::SaysNothing, &heard).await;
    let refuses = importer("refuses", Manner::Refuses, &heard).await;
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let absent = Import { job_uid: "absent".to_owned(), address: Some(free), ..tells.clone() };
    round.with(&[&tells, &mute, &refuses, &absent]).await;
    assert_eq!(round.talk("tells").progress.unwrap().bytes, 7);
    assert!(round.talk("tells").unknown_for.is_none());
    assert!(round.talk("mute").mute_for.is_some());
    for job in ["refuses", "absent"] {
        let talk = round.talk(job);
        assert!(talk.mute_for.is_none() && talk.unknown_for.is_some(), "{job}");
    }
}

/// The importer without end writes until it is not read any more: had it been read on, this would not come to an end
/// before the deadline, and it would be mute.
#[tokio::test]
async fn an_answer_without_end_is_read_no_further_and_one_that_leads_elsewhere_is_not_followed() {
    let (round, heard) = (round(), Heard::default());
    let elsewhere = importer("elsewhere", Manner::Tells, &heard).await;
    let goes_on = importer("goes on", Manner::GoesOn, &heard).await;
    let address = elsewhere.address.unwrap();
    let leads = importer("leads", Manner::SendsTo(address), &heard).await;
    round.with(&[&goes_on, &leads]).await;
    for job in ["goes on", "leads"] {
        let talk = round.talk(job);
        assert!(talk.progress.is_none() && talk.mute_for.is_none(), "{job}: {talk:?}");
    }
    let asked: Vec<String> = shares(&heard).into_iter().map(|(job, _)| job).collect();
    assert!(!asked.contains(&"elsewhere".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn one_without_an_address_is_not_asked_and_its_part_is_kept() {
    let (round, heard) = (round(), Heard::default());
    let a = importer("a", Manner::Tells, &heard).await;
    let pending = Import { job_uid: "b".to_owned(), address: None, is_started: false, ..a.clone() };
    for _ in 0..3 {
        round.with(&[&a, &pending]).await;
    }
    assert_eq!(shares(&heard).last(), Some(&("a".to_owned(), 600)));
    assert!(round.correspondence.book.talk("b").is_none());
}

#[tokio::test]
async fn what_imports_have_received_is_counted_from_when_they_are_known() {
    let (round, heard) = (round(), Heard::default());
    let (known, older) = (
        importer("known", Manner::Tells, &heard).await,
        importer("older", Manner::Tells, &heard).await,
    );
    let traffic = &round.correspondence.traffic;
    traffic.opened("known");
    for _ in 0..2 {
        round.with(&[&known, &older]).await;
        assert_eq!(traffic.counter().get(), 7, "each byte once, and of the older one what comes");
    }
    traffic.closed("older", Some(10));
    assert_eq!(traffic.counter().get(), 7 + 3);
}

#[tokio::test]
async fn what_is_lent_ends_by_the_clock_of_the_import() {
    let (round, heard) = (round(), Heard::default());
    let a = importer("a", Manner::Tells, &heard).await;
    round.with(&[&a]).await;
    round.with(&[&a]).await;
    let untils: Vec<_> = heard.lock().unwrap().iter().map(|(_, share)| share.until_ms).collect();
    let end = (CLOCK + VALIDITY).as_millis().try_into().unwrap();
    assert_eq!(untils, [None, Some(end)], "nobody knows its clock at first");
}

#[tokio::test]
async fn one_that_tells_no_clock_is_lent_nothing() {
    let (round, heard) = (round(), Heard::default());
    let a = importer("a", Manner::TellsAsEver, &heard).await;
    for _ in 0..3 {
        round.with(&[&a]).await;
    }
    assert_eq!(shares(&heard), pairs(&[("a", 300), ("a", 300), ("a", 300)]));
    assert_eq!(round.talk("a").progress.unwrap().bytes, 7);
}

#[tokio::test]
async fn who_leads_no_more_tells_nobody() {
    let (round, heard) = (round(), Heard::default());
    let a = importer("a", Manner::Tells, &heard).await;
    round.with(&[&a]).await;
    round.tenure.set_end(None);
    round.with(&[&a]).await;
    assert_eq!(shares(&heard), pairs(&[("a", 300)]));
}

#[tokio::test]
async fn a_leader_of_a_lower_term_is_refused_and_goes_above_it() {
    let ((one, other), heard) = ((round(), round()), Heard::default());
    let a = importer("a", Manner::Tells, &heard).await;
    one.correspondence.bandwidth.take_over(7);
    other.correspondence.bandwidth.take_over(3);
    one.with(&[&a]).await;
    for _ in 0..3 {
        other.with(&[&a]).await;
    }
    let told = heard.lock().unwrap().clone();
    let terms: Vec<u64> = told.iter().map(|(_, share)| share.fence.unwrap().term).collect();
    assert_eq!(terms, [7, 3, 8, 8]);
    let lent: Vec<_> = told.iter().map(|(_, share)| share.bytes_per_second.unwrap()).collect();
    assert_eq!(lent, [300, 300, 300, 1200], "to one that refuses nothing is lent");
}
