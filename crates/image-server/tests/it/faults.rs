//! What a bad source does, each as a client sees it and as the server counts it.

use std::time::Duration;

use image_server::{Behaviour, CutKind, Fault, ImageServer, On, Outcome};

use crate::client::{Client, End, get, serving, within};

async fn behaving(size: usize, behaviour: Behaviour) -> (ImageServer, Vec<u8>) {
    let (server, bytes) = serving(size).await;
    server.behave("/image", behaviour).unwrap();
    (server, bytes)
}

fn outcomes(server: &ImageServer) -> Vec<(u64, Outcome)> {
    server.exchanges().iter().map(|one| (one.bytes, one.outcome)).collect()
}

#[tokio::test]
async fn a_graceful_cut_delivers_every_byte_before_it() {
    let cuts = Behaviour::new().times(2, Fault::cut(123_457));
    let (server, bytes) = behaving(1 << 20, cuts).await;
    for _ in 0..2 {
        let cut = get(&server, "").await;
        assert_eq!((cut.status, cut.end), (200, Some(End::Closed)));
        assert!(cut.body == bytes[..123_457]);
    }
    assert!(get(&server, "").await.body == bytes);
    let cut = (123_457, Outcome::Cut);
    assert_eq!(outcomes(&server), [cut, cut, (1 << 20, Outcome::Complete)]);
    assert_eq!(server.counts("/image").open_now, 0);
}

#[tokio::test]
async fn a_cut_counts_from_the_start_of_a_resumed_range() {
    let (server, bytes) = behaving(1 << 20, Behaviour::new().then(Fault::cut(1000))).await;
    let cut = get(&server, "Range: bytes=500000-\r\n").await;
    assert_eq!((cut.status, cut.end), (206, Some(End::Closed)));
    assert!(cut.body == bytes[500_000..501_000]);
}

#[tokio::test]
async fn an_abort_is_a_reset() {
    let (server, bytes) = behaving(1 << 20, Behaviour::new().then(Fault::abort(200_000))).await;
    let cut = get(&server, "").await;
    assert_eq!(cut.end, Some(End::Reset));
    assert!(bytes[..200_000].starts_with(&cut.body));
    assert_eq!(outcomes(&server), [(200_000, Outcome::Cut)]);
}

#[tokio::test]
async fn a_stall_holds_until_it_is_released() {
    let (server, bytes) = behaving(1 << 20, Behaviour::new().then(Fault::stall(5000))).await;
    let mut client = Client::connect(&server).await;
    assert!(client.begin("/image", 5000).await == bytes[..5000]);
    // Another exchange goes through meanwhile, and nothing more is written here.
    assert_eq!(get(&server, "Range: bytes=0-9\r\n").await.body.len(), 10);
    assert_eq!(outcomes(&server)[0], (5000, Outcome::Underway));
    server.release("/image").unwrap();
    assert!(client.bytes((1 << 20) - 5000).await.0 == bytes[5000..]);
}

#[tokio::test]
async fn a_stall_before_the_first_byte_opens_nothing() {
    let (server, _) = behaving(1000, Behaviour::new().then(Fault::stall(0))).await;
    let mut client = Client::connect(&server).await;
    client.begin("/image", 0).await;
    assert_eq!(server.counts("/image").open_now, 0);
    assert_eq!(outcomes(&server), [(0, Outcome::Underway)]);
}

#[tokio::test]
async fn a_drip_delivers_everything_in_the_end() {
    let drip = Fault::Drip { bytes: 700, every: Duration::from_millis(2) };
    let (server, bytes) = behaving(10_000, Behaviour::new().always(drip)).await;
    assert!(get(&server, "").await.body == bytes);
}

#[tokio::test]
async fn a_pace_above_one_slice_is_kept_too() {
    let pace = Fault::rate_limit(100 << 20);
    let (server, bytes) = behaving(8 << 20, Behaviour::new().always(pace)).await;
    assert!(get(&server, "").await.body == bytes);
}

#[tokio::test]
async fn an_entity_tag_changes_after_some_requests_and_stays_changed() {
    let (server, _) = behaving(1000, Behaviour::new().pass(2).then(Fault::ChangeEtag)).await;
    let mut tags = Vec::new();
    for _ in 0..4 {
        tags.push(get(&server, "Range: bytes=5-\r\n").await.etag());
    }
    assert!(tags[0] == tags[1] && tags[1] != tags[2] && tags[2] == tags[3], "{tags:?}");
    server.change_etag("/image").unwrap();
    let resumed = get(&server, &format!("Range: bytes=5-\r\nIf-Range: {}\r\n", tags[3])).await;
    assert_eq!((resumed.status, resumed.body.len()), (200, 1000));
    assert!(!tags.contains(&resumed.etag()));
}

#[tokio::test]
async fn entity_tags_may_be_weak_or_missing() {
    let script = Behaviour::new().then(Fault::WeakEtag).then(Fault::NoEtag);
    let (server, _) = behaving(1000, script).await;
    assert!(get(&server, "").await.etag().starts_with("W/\""));
    assert_eq!(get(&server, "").await.header("etag"), None);
}

#[tokio::test]
async fn without_ranges_everything_comes_again() {
    let (server, bytes) = behaving(1000, Behaviour::new().always(Fault::NoRanges)).await;
    let whole = get(&server, "Range: bytes=500-\r\n").await;
    assert_eq!((whole.status, whole.header("accept-ranges")), (200, Some("none")));
    assert!(whole.body == bytes);
}

#[tokio::test]
async fn broken_ranges_are_answered_wrongly() {
    let script = Behaviour::new().then(Fault::IgnoreIfRange).then(Fault::ShiftRange { by: 3 });
    let (server, bytes) = behaving(1000, script).await;
    let ignored = get(&server, "Range: bytes=500-\r\nIf-Range: \"old\"\r\n").await;
    assert_eq!(ignored.status, 206);
    let shifted = get(&server, "Range: bytes=500-\r\n").await;
    assert_eq!(shifted.header("content-range"), Some("bytes 503-999/1000"));
    assert!(shifted.body == bytes[503..]);
}

#[tokio::test]
async fn statuses_have_no_body_and_open_nothing() {
    let script = Behaviour::new()
        .then(Fault::status(403))
        .then(Fault::status(404))
        .then(Fault::throttled(7))
        .then(Fault::status(503));
    let (server, bytes) = behaving(1000, script).await;
    let mut client = Client::connect(&server).await;
    for (status, retry_after) in [(403, None), (404, None), (429, Some("7")), (503, None)] {
        let refused = client.get("/image", "").await;
        assert_eq!((refused.status, refused.header("retry-after")), (status, retry_after));
        assert!(refused.body.is_empty());
    }
    assert_eq!(server.counts("/image").bytes, 0);
    assert_eq!(server.totals().most_open, 0);
    assert!(client.get("/image", "").await.body == bytes);
}

#[tokio::test]
async fn a_fault_may_concern_first_looks_only() {
    let script = Behaviour::new().always(Fault::status(503).on(On::Probe));
    let (server, _) = behaving(100_000, script).await;
    assert_eq!(get(&server, "Range: bytes=0-65535\r\n").await.status, 503);
    assert_eq!(get(&server, "").await.status, 200);
}

#[tokio::test]
async fn a_page_for_people_comes_with_200() {
    let (server, _) = behaving(1000, Behaviour::new().then(Fault::HtmlPage)).await;
    let page = get(&server, "Range: bytes=0-65535\r\n").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.body.starts_with(b"<!DOCTYPE html>") && page.end.is_none());
}

#[tokio::test]
async fn a_length_that_is_too_long_ends_in_a_close() {
    let longer = Fault::WrongLength { announced: 1500 };
    let (server, bytes) = behaving(1000, Behaviour::new().then(longer)).await;
    let lie = get(&server, "").await;
    assert_eq!((lie.header("content-length"), lie.end), (Some("1500"), Some(End::Closed)));
    assert!(lie.body == bytes);
    assert_eq!(outcomes(&server), [(1000, Outcome::Cut)]);
}

#[tokio::test]
async fn a_length_that_is_too_short_hides_the_rest() {
    let shorter = Fault::WrongLength { announced: 600 };
    let (server, bytes) = behaving(1000, Behaviour::new().always(shorter)).await;
    let mut client = Client::connect(&server).await;
    assert!(client.get("/image", "").await.body == bytes[..600]);
    let look = client.get("/image", "Range: bytes=0-65535\r\n").await;
    assert_eq!(look.header("content-range"), Some("bytes 0-599/600"));
}

#[tokio::test]
async fn without_a_length_the_end_of_the_connection_is_the_end() {
    let (server, bytes) = behaving(100_000, Behaviour::new().then(Fault::NoLength)).await;
    let endless = get(&server, "").await;
    assert_eq!((endless.header("content-length"), endless.end), (None, Some(End::Closed)));
    assert!(endless.body == bytes);
    assert_eq!(outcomes(&server), [(100_000, Outcome::Complete)]);
}

#[tokio::test]
async fn a_redirect_names_the_other_address() {
    let to = "http://169.254.169.254/latest/".to_owned();
    let (server, _) = behaving(1000, Behaviour::new().then(Fault::Redirect { to })).await;
    let redirect = get(&server, "").await;
    assert_eq!(redirect.status, 302);
    assert_eq!(redirect.header("location"), Some("http://169.254.169.254/latest/"));
}

#[tokio::test]
async fn only_the_right_authorization_opens() {
    let value = "Basic dXNlcjpwYXNz".to_owned();
    let locked = Behaviour::new().always(Fault::RequireAuthorization { value });
    let (server, bytes) = behaving(1000, locked).await;
    assert_eq!(get(&server, "").await.status, 401);
    assert_eq!(get(&server, "Authorization: Basic d3Jvbmc=\r\n").await.status, 401);
    assert!(get(&server, "Authorization: Basic dXNlcjpwYXNz\r\n").await.body == bytes);
}

#[tokio::test]
async fn hanging_up_is_no_answer_at_all() {
    let hang_up = |kind| Fault::HangUp { kind };
    let script = Behaviour::new().then(hang_up(CutKind::Graceful)).then(hang_up(CutKind::Abort));
    let (server, _) = behaving(1000, script).await;
    for expected in [End::Closed, End::Reset] {
        let mut client = Client::connect(&server).await;
        client.send("GET /image HTTP/1.1\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap_err(), expected);
    }
    assert_eq!(server.counts("/image").downloads, 2);
    assert_eq!(server.exchanges()[0].status, None);
}

#[tokio::test]
async fn a_mute_source_waits_for_its_client_to_leave() {
    let (server, _) = behaving(1000, Behaviour::new().times(2, Fault::Mute)).await;
    let mut released = Client::connect(&server).await;
    released.send("GET /image HTTP/1.1\r\n\r\n").await;
    within(server.watch("/image").wait_for(|counts| counts.requests == 1)).await.unwrap();
    server.release("/image").unwrap();
    assert_eq!(released.ended().await, End::Closed);

    let mut leaving = Client::connect(&server).await;
    leaving.send("GET /image HTTP/1.1\r\n\r\n").await;
    within(server.watch("/image").wait_for(|counts| counts.requests == 2)).await.unwrap();
    drop(leaving);
    within(async {
        while outcomes(&server)[1].1 == Outcome::Underway {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(outcomes(&server), [(0, Outcome::Cut), (0, Outcome::PeerClosed)]);
}
