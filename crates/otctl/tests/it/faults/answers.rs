//! Answers that are wrong, lost, cut off, absurd or never come.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use kube::api::ListParams;
use testbed::fault::{Answer, Point, What, at};
use testbed::proxy::{Entry, Outcome};
use testbed::setting;

use super::lives::{Clean, Life, Lives};
use crate::stage::{status, until};

/// So many lives go on together.
const AT_A_TIME: usize = 5;

/// The other answers to a write that was carried out.
fn wrong_answers() -> [What; 7] {
    let fails = |status| What::Answer(Answer::refusal(status, ""));
    let slowed = Answer { retry_after: Some(1), ..Answer::refusal(503, "ServiceUnavailable") };
    let answers =
        [fails(500), What::Lose, What::Answer(slowed), What::Cut(0), fails(504), What::Cut(40)];
    let [a, b, c, d, e, f] = answers;
    [a, b, c, d, e, f, fails(502)]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_carried_out_is_not_made_again_whatever_the_answer() {
    let all = setting("OTCTL_ANSWERS", String::new()) == "all";
    let scene = Lives::set("64", &[]).await;
    let clean = scene.clean(Life::Success).await;
    let (mut lives, mut shared) = (Vec::new(), BTreeMap::new());
    for (number, write) in clean.writes.iter().enumerate() {
        let wrong = wrong_answers().into_iter().cycle().skip(number);
        for what in wrong.take(if all { wrong_answers().len() } else { 1 }) {
            let namespace = scene.namespace().await;
            // Lives write the ledger in turn: each fault has one of those writes, whichever life it is for.
            let when = if write.is_shared() {
                let nth = shared.entry(&write.line).or_insert(0);
                *nth += 1;
                at(&write.line).nth(*nth)
            } else {
                write.of(&namespace)
            };
            let fault = when.point(Point::Commit).then(what);
            lives.push((namespace, fault.to_string()));
            scene.controller.proxy.add(fault);
        }
    }
    let lived = lives.iter().map(|(namespace, told)| live(&scene, &clean, namespace, told));
    stream::iter(lived).buffer_unordered(AT_A_TIME).collect::<Vec<_>>().await;
    assert_eq!(scene.controller.proxy.faults().unmet(), [] as [String; 0]);
    scene.quiet().await;
    expect_no_hidden_retry(&scene).await;
    println!("{} writes of a life, {} answers that were wrong", clean.writes.len(), lives.len());
    scene.finish().await;
}

/// Its source is served since the life without a fault.
async fn live(scene: &Lives, clean: &Clean, namespace: &str, told: &str) {
    Life::Success.go(&scene.stage, namespace).await;
    scene.expect_end(told, namespace, &clean.end).await;
}

/// What the controller counts as sent is what has left it: no client beneath it sends anything again.
async fn expect_no_hidden_retry(scene: &Lives) {
    let metrics = scene.controller.get("/metrics").await;
    for verb in ["create", "delete"] {
        let counted = sum(&metrics, &format!("verb=\"{verb}\""));
        let log = scene.controller.proxy.log();
        let sent = log.iter().filter(|entry| entry.call.verb.to_string() == verb).count();
        assert_eq!(counted, sent, "{verb}");
        assert!(sent > 0, "{verb}");
    }
}

/// The sum of all counts of requests with this label.
fn sum(metrics: &str, label: &str) -> usize {
    let lines = metrics.lines().filter(|line| line.starts_with("otctl_api_requests_total{"));
    let counts =
        lines.filter(|line| line.contains(label)).filter_map(|line| line.rsplit(' ').next());
    counts.map(|count| count.parse::<usize>().unwrap()).sum()
}

/// One image whose creates are answered with a wish for thirty years, one whose creates are not answered at all, and one
/// whose status is refused: others go on, the lease is kept, and in the end it is as if nothing had been.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_absurd_or_never_comes_holds_up_nobody_else() {
    let scene = Lives::set("64", &[]).await;
    let clean = scene.clean(Life::Success).await;
    slow_answers(&scene, &clean).await;
    scene.finish().await;
}

async fn slow_answers(scene: &Lives, clean: &Clean) {
    let namespaces = join_all((0..4).map(|_| scene.namespace())).await;
    let [throttled, held, refused, other] = namespaces.try_into().unwrap();
    let from = scene.controller.asked();
    let absurd =
        || What::Answer(Answer { retry_after: Some(1_000_000_000), ..Answer::refusal(429, "") });
    let invalid = What::Answer(Answer::refusal(422, "Invalid"));
    let status = format!("patch status VMDiskImage {refused}/*");
    for fault in [
        at(&create(&throttled)).always().then(absurd()),
        at(&create(&held)).always().then(What::Blackhole),
        at(&status).times(3).then(invalid),
        at("update Lease").then(absurd()),
        at("watch Pod").then(absurd()),
    ] {
        scene.controller.proxy.add(fault);
    }
    let heals = async {
        for namespace in [&throttled, &held, &refused] {
            until("it was struck", async || struck(scene, from, namespace)).await;
        }
        live(scene, clean, &other, "another image").await;
        let requests =
            [&throttled, &held].map(|namespace| requests(scene, from, &create(namespace)));
        let is_done = |entry: &&Entry| entry.outcome == Outcome::Answered(201);
        assert!(requests.iter().flatten().find(is_done).is_none(), "it did not go on meanwhile");
        until("the lease and the watch were struck", async || {
            scene.controller.proxy.faults().unmet().is_empty().then_some(())
        })
        .await;
        scene.controller.proxy.faults().clear();
    };
    tokio::join!(
        live(scene, clean, &throttled, "429"),
        live(scene, clean, &held, "no answer"),
        refused_and_healed(scene, &refused),
        heals
    );

    let gaps = |namespace: &str| {
        let times = requests(scene, from, &create(namespace));
        let gaps = times.windows(2).map(|pair| pair[1].arrived - pair[0].arrived);
        gaps.max().expect("it was sent again")
    };
    println!(
        "a create was sent again after {:.1?} when told to wait 30 years, after {:.1?} when there was no answer",
        gaps(&throttled),
        gaps(&held)
    );
    let refusals = requests(scene, from, &status);
    let again = refusals[2].arrived - refusals[1].arrived;
    assert!(again >= Duration::from_secs(1), "it was asked again without a pause: {again:?}");
    assert!(!scene.controller.log().contains("stopped leading"), "the lease was lost");
}

fn create(namespace: &str) -> String {
    format!("create Job {namespace}/*")
}

/// The attempt whose status was refused ends with a reason and is not charged; the next one is made later.
async fn refused_and_healed(scene: &Lives, namespace: &str) {
    Life::Success.go(&scene.stage, namespace).await;
    let image = scene.stage.images_in(namespace).list(&ListParams::default()).await.unwrap().items;
    let status = status(&image[0]);
    let attempts: Vec<_> = status.attempts.iter().map(|attempt| attempt.charged).collect();
    assert_eq!(attempts, [false, true]);
    assert_eq!(status.attempts[0].reason.as_deref(), Some("Rejected"));
    assert_eq!(status.budget.map(|budget| budget.charged), Some(1));
}

/// Whether a fault has struck a request about a namespace.
fn struck(scene: &Lives, from: usize, namespace: &str) -> Option<()> {
    let log = scene.controller.proxy.log();
    let is_struck = |entry: &Entry| entry.call.name.starts_with(namespace) && entry.fault.is_some();
    log[from..].iter().any(is_struck).then_some(())
}

/// The requests that are like this line, whose last word may end in a star.
fn requests(scene: &Lives, from: usize, line: &str) -> Vec<Entry> {
    let start = line.trim_end_matches('*');
    let mut log = scene.controller.proxy.log_since(from);
    log.retain(|entry| entry.call.to_string().starts_with(start));
    log
}
