//! The numbers: exact, at once, and back to zero.

use image_server::{Behaviour, Counts, Fault, Outcome, RequestKind};

use crate::client::{Client, get, serving, within};

#[tokio::test]
async fn a_finished_download_is_counted_when_its_last_byte_arrives() {
    let (server, bytes) = serving(3 << 20).await;
    for round in 1..=10 {
        let mut client = Client::connect(&server).await;
        assert_eq!(client.get("/image", "").await.body.len(), bytes.len());
        // No waiting here: the promise is that it is counted already.
        let counts = server.counts("/image");
        assert_eq!(counts.bytes, round * bytes.len() as u64);
        assert_eq!((counts.downloads, counts.open_now), (round, 0));
    }
    assert_eq!(server.totals().most_open, 1);
}

#[tokio::test]
async fn a_client_that_leaves_costs_little_more_than_it_read() {
    let (server, _) = serving(64 << 20).await;
    let read = 1 << 20;
    // Linux doubles the receive buffer that was asked for, and the server's send
    // buffer is at most 128 KiB.
    let asked = 64 * 1024;
    let buffered = u64::from(2 * asked) + 128 * 1024;
    let mut client = Client::with_receive_buffer(&server, asked).await;
    client.begin("/image", read).await;
    assert_eq!(server.counts("/image").open_now, 1);
    drop(client);
    let mut watch = server.watch("/image");
    within(watch.wait_for(|counts| counts.open_now == 0)).await.unwrap();
    // The client's own reader takes up to 16 KiB at a time.
    let read = read as u64;
    let bytes = server.counts("/image").bytes;
    assert!((read..=read + 16 * 1024 + buffered).contains(&bytes), "{bytes} for {read} read");
    let [exchange] = server.exchanges().try_into().unwrap();
    assert_eq!((exchange.outcome, exchange.bytes), (Outcome::PeerClosed, bytes));
}

#[tokio::test]
async fn a_stalled_transfer_is_closed_when_its_client_leaves() {
    let (server, _) = serving(1 << 20).await;
    server.behave("/image", Behaviour::new().always(Fault::stall(1000))).unwrap();
    let mut client = Client::connect(&server).await;
    client.begin("/image", 1000).await;
    assert_eq!(server.counts("/image").open_now, 1);
    drop(client);
    within(server.watch("/image").wait_for(|counts| counts.open_now == 0)).await.unwrap();
    assert_eq!(server.counts("/image").bytes, 1000);
}

#[tokio::test]
async fn the_most_open_at_once_is_remembered() {
    let (server, _) = serving(1 << 20).await;
    server.behave("/image", Behaviour::new().always(Fault::stall(1000))).unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(&server).await;
        client.begin("/image", 1000).await;
        clients.push(client);
    }
    assert_eq!(server.totals().most_open_data, 3);
    clients.truncate(1);
    within(server.watch("/image").wait_for(|counts| counts.open_now == 1)).await.unwrap();
    Client::connect(&server).await.begin("/image", 1000).await;
    assert_eq!(server.totals().most_open_data, 3);
}

/// One after the other is never two at once, however late the server's own task
/// sees that a client has gone.
#[tokio::test]
async fn clients_that_leave_are_not_counted_with_those_that_follow() {
    let (server, _) = serving(1 << 20).await;
    server.behave("/image", Behaviour::new().always(Fault::stall(1000))).unwrap();
    for _ in 0..50 {
        Client::connect(&server).await.begin("/image", 1000).await;
    }
    let totals = server.totals();
    assert_eq!((totals.counts.downloads, totals.most_open), (50, 1));
}

#[tokio::test]
async fn first_looks_are_counted_apart() {
    let (server, _) = serving(1 << 20).await;
    server.behave("/image", Behaviour::new().always(Fault::stall(1000))).unwrap();
    let mut download = Client::connect(&server).await;
    download.begin("/image", 1000).await;
    // Not stalled, since it is no data request, but open at the same time.
    let look = get(&server, "Range: bytes=0-65535\r\n").await;
    assert_eq!(look.body.len(), 65_536);
    let totals = server.totals();
    assert_eq!((totals.most_open, totals.most_open_data), (2, 1));
    let expected = Counts {
        requests: 2,
        downloads: 1,
        probes: 1,
        bytes: 66_536,
        probe_bytes: 65_536,
        open_now: 1,
        open_data: 1,
    };
    assert_eq!(server.counts("/image"), expected);
    assert_eq!(totals.counts, expected);
}

#[tokio::test]
async fn a_resume_is_no_download() {
    let (server, bytes) = serving(1 << 20).await;
    server.behave("/image", Behaviour::new().then(Fault::cut(400_000))).unwrap();
    let first = get(&server, "").await;
    let rest = get(&server, &format!("Range: bytes={}-\r\n", first.body.len())).await;
    assert!([first.body, rest.body].concat() == bytes);
    let counts = server.counts("/image");
    assert_eq!((counts.requests, counts.downloads, counts.bytes), (2, 1, 1 << 20));
    let kinds: Vec<_> = server.exchanges().iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [RequestKind::Data, RequestKind::Data]);
}

#[tokio::test]
async fn progress_can_be_watched() {
    let (server, _) = serving(1 << 20).await;
    let mut watch = server.watch("/image");
    let mut client = Client::connect(&server).await;
    let (_, halfway) = tokio::join!(
        client.get("/image", ""),
        within(async { watch.wait_for(|counts| counts.bytes >= 1 << 19).await.map(|seen| *seen) })
    );
    assert!(halfway.unwrap().bytes >= 1 << 19);
    assert_eq!(server.watch_totals().borrow().counts.bytes, 1 << 20);
}
