//! What a good source does.

use image_server::{Content, Error, ImageServer, Outcome, fixtures};

use crate::client::{Client, End, get, serving, within};

#[tokio::test]
async fn serves_everything_with_a_strong_entity_tag() {
    let (server, bytes) = serving(300_000).await;
    let whole = get(&server, "").await;
    assert_eq!((whole.status, whole.end), (200, None));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert!(whole.etag().starts_with('"'), "{}", whole.etag());
    assert!(whole.body == bytes);
}

#[tokio::test]
async fn resumes_where_it_is_asked_to() {
    let (server, bytes) = serving(300_000).await;
    let etag = get(&server, "Range: bytes=0-9\r\n").await.etag();
    let rest = get(&server, &format!("Range: bytes=100000-\r\nIf-Range: {etag}\r\n")).await;
    assert_eq!(rest.status, 206);
    assert_eq!(rest.header("content-range"), Some("bytes 100000-299999/300000"));
    assert!(rest.body == bytes[100_000..]);
    let beyond = get(&server, "Range: bytes=300000-\r\n").await;
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */300000")));
}

#[tokio::test]
async fn new_content_has_another_entity_tag() {
    let (server, _) = serving(1000).await;
    let etag = get(&server, "").await.etag();
    server.add("/image", Content::bytes(*b"something else"));
    let changed = get(&server, &format!("Range: bytes=5-\r\nIf-Range: {etag}\r\n")).await;
    assert_eq!((changed.status, changed.body.as_slice()), (200, &b"something else"[..]));
    assert_ne!(changed.etag(), etag);
}

#[tokio::test]
async fn head_has_no_body_and_the_connection_goes_on() {
    let (server, bytes) = serving(1000).await;
    let mut client = Client::connect(&server).await;
    client.send("HEAD /image HTTP/1.1\r\n\r\n").await;
    assert!(client.head().await.unwrap().contains("content-length: 1000\r\n"));
    assert!(client.get("/image", "").await.body == bytes);
    let connections: Vec<_> = server.exchanges().iter().map(|one| one.connection).collect();
    assert_eq!(connections, [0, 0]);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (server, bytes) = serving(200_000).await;
    let mut client = Client::connect(&server).await;
    let second = "GET /image HTTP/1.1\r\nRange: bytes=7-8\r\n\r\n";
    client.send(&format!("GET /image?signature=1 HTTP/1.1\r\n\r\n{second}")).await;
    assert!(client.response().await.body == bytes);
    assert!(client.response().await.body == bytes[7..9]);
}

#[tokio::test]
async fn closes_when_it_is_asked_to() {
    let (server, bytes) = serving(1000).await;
    for request in
        ["GET /image HTTP/1.1\r\nConnection: close\r\n\r\n", "GET /image HTTP/1.0\r\n\r\n"]
    {
        let mut client = Client::connect(&server).await;
        client.send(request).await;
        let response = client.response().await;
        assert_eq!(response.header("connection"), Some("close"));
        assert!(response.body == bytes);
        assert_eq!(client.ended().await, End::Closed);
    }
}

#[tokio::test]
async fn what_is_no_request_is_refused() {
    let (server, _) = serving(1000).await;
    let mut client = Client::connect(&server).await;
    client.send("\x16\x03\x01 a TLS hello\r\n\r\n").await;
    assert!(client.head().await.unwrap().starts_with("HTTP/1.1 400 "));
    assert_eq!(server.totals().counts.requests, 0);
}

#[tokio::test]
async fn unknown_paths_are_not_found() {
    let (server, _) = serving(1000).await;
    let response = Client::connect(&server).await.get("/other", "").await;
    assert_eq!((response.status, response.body.len()), (404, 0));
    assert_eq!(server.counts("/other").requests, 1);
    assert!(matches!(server.release("/other"), Err(Error::FindPath(path)) if path == "/other"));
}

#[tokio::test]
async fn files_and_fixtures_arrive_as_they_are() {
    let (server, bytes) = serving(300_000).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    server.add("file", Content::file(file.path()).unwrap());
    server.add("plain.qcow2", Content::bytes(fixtures::PLAIN.bytes));
    let mut client = Client::connect(&server).await;
    assert!(client.get("/file", "").await.body == bytes);
    assert!(client.get("/plain.qcow2", "").await.body == fixtures::PLAIN.bytes);
    assert_eq!(server.url("file"), format!("http://{}/file", server.address()));
}

#[tokio::test]
async fn a_shutdown_ends_every_connection_and_frees_the_port() {
    let (server, _) = serving(100 << 20).await;
    let address = server.address();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = Client::connect(&server).await;
        client.begin("/image", 1).await;
        clients.push(client);
    }
    assert_eq!(server.totals().counts.open_now, 3);
    let totals = within(server.shutdown()).await;
    assert_eq!((totals.counts.open_now, totals.most_open), (0, 3));
    for mut client in clients {
        assert!(client.bytes(usize::MAX).await.1.is_some());
    }
    let again = ImageServer::start_at(address).await.unwrap();
    assert_eq!(again.address(), address);
}

#[tokio::test]
async fn a_dropped_server_ends_its_connections() {
    let (server, _) = serving(100 << 20).await;
    let mut client = Client::connect(&server).await;
    client.begin("/image", 1).await;
    drop(server);
    assert!(client.bytes(usize::MAX).await.1.is_some());
}

#[tokio::test]
async fn stays_on_this_machine() {
    let refused = ImageServer::start_at(([0, 0, 0, 0], 0).into()).await;
    assert!(matches!(refused, Err(Error::ListenBeyondLoopback(_))));
}

#[tokio::test]
async fn content_that_becomes_shorter_is_abandoned() {
    let (server, bytes) = serving(300_000).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    server.add("/file", Content::file(file.path()).unwrap());
    file.as_file().set_len(1000).unwrap();
    let response = Client::connect(&server).await.get("/file", "").await;
    assert!(response.end.is_some() && response.body.is_empty());
    assert_eq!(server.exchanges()[0].outcome, Outcome::Abandoned);
}
