//! Object stores: signatures that a real store verifies, every style of url, and what a refusal
//! says.

use std::net::SocketAddr;

use disk_importer::connection::Resolver;
use disk_importer::credentials::Keys;
use disk_importer::settings::{Source, SourceType};
use image_server::{Content, fixtures};
use otctl_types::import::{ImportOutcome, ImportReason, ImportReport};

use crate::canned::Canned;
use crate::lab::{Lab, MIB, assert_complete, assert_failed, run_import, run_probe};
use crate::store::{BUCKET, Demands, KEY_ID, SECRET, Store};
use crate::tls::door_to;

/// A store with one object, and an importer that has its keys.
struct Bench {
    store: Store,
    lab: Lab,
}

impl Bench {
    async fn with(demands: Demands) -> Self {
        let store = Store::start(demands).await;
        store.put("image.qcow2", fixtures::PLAIN.bytes);
        Self { store, lab: Lab::serving(Content::bytes(*b"")).await }
    }

    fn source(&self) -> Source {
        self.source_at(&format!("http://{}/{BUCKET}/image.qcow2", self.store.address))
    }

    /// Whatever name is in `url` leads to the store.
    fn source_at(&self, url: &str) -> Source {
        let mut source = self.lab.source();
        source.source_type = SourceType::S3;
        source.url = url.parse().unwrap();
        source.access.hosts = source.url.origin().ascii_serialization().parse().unwrap();
        let address = self.store.address.ip();
        source.access.resolver = Resolver::new(move |_, port| {
            Box::pin(async move { Ok(vec![SocketAddr::new(address, port)]) })
        });
        source.credentials.keys = Some(Keys::new(KEY_ID, SECRET));
        source
    }
}

#[track_caller]
fn assert_seen(report: &ImportReport) {
    assert_eq!(report.outcome, ImportOutcome::Complete, "{report:?}");
    let size = report.source.as_ref().unwrap().virtual_size;
    assert_eq!(size, Some(fixtures::PLAIN.virtual_size));
}

#[tokio::test]
async fn a_signed_request_brings_the_object() {
    let bench = Bench::with(Demands::default()).await;
    let report = run_import(&bench.source(), bench.lab.target(MIB)).await;
    assert_complete(&report, &fixtures::DISK.sha256_at(MIB));
    assert!(report.source.unwrap().accepts_ranges);
    let requests = bench.store.requests();
    assert_eq!(requests.len(), 1);
    let authorization = requests[0]["authorization"].to_str().unwrap();
    assert!(authorization.contains("/us-east-1/s3/aws4_request"), "{authorization}");
    assert!(!requests[0].contains_key("x-amz-security-token"));
}

#[tokio::test]
async fn wrong_keys_are_forbidden_and_the_message_says_which() {
    let bench = Bench::with(Demands::default()).await;
    for (id, secret, hint) in
        [(KEY_ID, "another secret", "secretKey"), ("AKIDOTHER", SECRET, "keys of the Secret")]
    {
        let mut source = bench.source();
        source.credentials.keys = Some(Keys::new(id, secret));
        let report = run_probe(&source).await;
        assert_failed(&report, ImportReason::Forbidden);
        assert!(report.message.contains("403"), "{}", report.message);
        assert!(report.message.contains(hint), "{}", report.message);
        assert!(!report.message.contains(secret) && !report.message.contains(id));
    }
}

#[tokio::test]
async fn without_a_secret_nothing_is_signed() {
    let private = Bench::with(Demands::default()).await;
    let public = Bench::with(Demands { is_public: true, ..Demands::default() }).await;
    for bench in [&private, &public] {
        let mut source = bench.source();
        source.credentials.keys = None;
        let report = run_probe(&source).await;
        let requests = bench.store.requests();
        assert!(!requests[0].contains_key("authorization"), "{requests:?}");
        if std::ptr::eq(bench, &raw const private) {
            assert_failed(&report, ImportReason::Forbidden);
            assert!(report.message.contains("secretRef"), "{}", report.message);
        } else {
            assert_seen(&report);
        }
    }
}

/// The store takes the bucket from the host, verifies the signature over that host, and the scope
/// of the signature has the region that the host names.
#[tokio::test]
async fn every_style_of_url_is_signed_as_it_is() {
    let table = [
        ("s3.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("s3-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("s3.dualstack.eu-west-1.amazonaws.com", "eu-west-1"),
        ("s3-fips.dualstack.us-east-2.amazonaws.com", "us-east-2"),
        ("s3-eu-central-1.amazonaws.com", "eu-central-1"),
        ("s3.amazonaws.com", "us-east-1"),
        ("minio.example", "us-east-1"),
    ];
    let domains = table.iter().map(|(domain, _)| *domain).collect();
    let bench = Bench::with(Demands { domains, ..Demands::default() }).await;
    let port = bench.store.address.port();
    for (domain, region) in table {
        for url in [
            format!("http://{domain}:{port}/{BUCKET}/image.qcow2"),
            format!("http://{BUCKET}.{domain}:{port}/image.qcow2"),
        ] {
            assert_seen(&run_probe(&bench.source_at(&url)).await);
            let requests = bench.store.requests();
            let authorization = requests.last().unwrap()["authorization"].to_str().unwrap();
            assert!(authorization.contains(&format!("/{region}/s3/")), "{url}: {authorization}");
        }
    }
    let mut source = bench.source();
    source.credentials.region = Some("garage".to_owned());
    assert_seen(&run_probe(&source).await);
    let authorization = bench.store.requests().last().unwrap()["authorization"].clone();
    assert!(authorization.to_str().unwrap().contains("/garage/s3/"));
}

#[tokio::test]
async fn keys_of_any_characters_are_found() {
    let bench = Bench::with(Demands::default()).await;
    let table = [
        ("labs/1.0.0/a b.qcow2", "labs/1.0.0/a%20b.qcow2"),
        ("a b", "a b"),
        ("plus+plus", "plus+plus"),
        ("plus+plus", "plus%2Bplus"),
        ("\u{e9}t\u{e9}/\u{1f4bf}", "\u{e9}t\u{e9}/\u{1f4bf}"),
        ("\u{e9}t\u{e9}/\u{1f4bf}", "%C3%A9t%C3%A9/%f0%9f%92%bf"),
        ("one/two", "one%2Ftwo"),
        ("percent%2Ftwo", "percent%252Ftwo"),
        ("~!$&'()*,;=:@-_.", "~!$&'()*,;=:@-_."),
        ("[brackets]{braces}", "%5Bbrackets%5D%7Bbraces%7D"),
    ];
    for (key, written) in table {
        bench.store.put(key, fixtures::PLAIN.bytes);
        let url = format!("http://{}/{BUCKET}/{written}", bench.store.address);
        let report = run_probe(&bench.source_at(&url)).await;
        assert_eq!(report.outcome, ImportOutcome::Complete, "{key} as {written}: {report:?}");
    }
}

#[tokio::test]
async fn a_session_token_goes_with_the_keys_it_was_issued_with() {
    let demands = Demands { session_token: Some("token-canary"), ..Demands::default() };
    let bench = Bench::with(demands).await;
    let report = run_probe(&bench.source()).await;
    assert_failed(&report, ImportReason::Forbidden);
    assert!(report.message.contains("sessionToken"), "{}", report.message);
    assert!(!report.message.contains("canary"), "{}", report.message);
    let mut source = bench.source();
    let keys = source.credentials.keys.as_mut().unwrap();
    keys.session_token = Some("token-canary".into());
    assert_seen(&run_probe(&source).await);
    let authorization = bench.store.requests().last().unwrap()["authorization"].clone();
    assert!(authorization.to_str().unwrap().contains("x-amz-security-token"), "unsigned token");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let bench = Bench::with(Demands::default()).await;
    for (path, hint) in [(format!("{BUCKET}/other"), "object"), ("other/image".to_owned(), "")] {
        let url = format!("http://{}/{path}", bench.store.address);
        let report = run_probe(&bench.source_at(&url)).await;
        assert_failed(&report, ImportReason::SourceNotFound);
        assert!(report.message.contains(hint), "{}", report.message);
    }
}

#[tokio::test]
async fn a_cut_download_goes_on_with_a_new_signature() {
    let bench = Bench::with(Demands::default()).await;
    let content = Content::generated(4 * MIB, 11);
    let mut bytes = vec![0; usize::try_from(4 * MIB).unwrap()];
    content.read_at(0, &mut bytes).unwrap();
    bench.store.put("image.qcow2", &bytes);
    bench.store.cut_after(&[1_500_000, 1_000_000]);
    let report = run_import(&bench.source(), bench.lab.target(4 * MIB)).await;
    assert_complete(&report, &content.disk_hash(4 * MIB).unwrap().hex());
    // What a cut tears off was never received, so each byte came once.
    assert_eq!(report.bytes, 4 * MIB);
    let requests = bench.store.requests();
    let ranges: Vec<_> = requests.iter().map(|head| head["range"].to_str().unwrap()).collect();
    assert_eq!(ranges.len(), 3, "{ranges:?}");
    assert_eq!(ranges[0], "bytes=0-");
    assert!(requests.iter().all(|head| head.contains_key("authorization")));
}

#[tokio::test]
async fn a_replaced_object_ends_the_run() {
    let bench = Bench::with(Demands::default()).await;
    let bytes = vec![7; usize::try_from(2 * MIB).unwrap()];
    bench.store.put("image.qcow2", &bytes);
    bench.store.cut_after(&[1_000_000, 0]);
    let first = run_import(&bench.source(), bench.lab.target(2 * MIB)).await;
    assert_failed(&first, ImportReason::ConnectionLost);
    assert!(bench.lab.kept() > 0);
    bench.store.put("image.qcow2", &vec![8; bytes.len()]);
    let second = run_import(&bench.source(), bench.lab.target(2 * MIB)).await;
    assert_failed(&second, ImportReason::SourceChanged);
    let third = run_import(&bench.source(), bench.lab.target(2 * MIB)).await;
    assert_eq!(third.outcome, ImportOutcome::Complete, "{third:?}");
}

#[tokio::test]
async fn a_private_authority_and_a_signature_go_together() {
    let bench = Bench::with(Demands::default()).await;
    let (address, pem, _door) = door_to(bench.store.address).await;
    let mut source = bench.source_at(&format!("https://{address}/{BUCKET}/image.qcow2"));
    let report = run_probe(&source).await;
    assert_failed(&report, ImportReason::ConnectionLost);
    assert!(report.message.contains("certificate"), "{}", report.message);
    source.credentials.authority = Some(pem.into_bytes());
    assert_seen(&run_probe(&source).await);
}

/// What stores say and no server here does: as Amazon writes it.
fn refused(status: &str, headers: &str, code: &str) -> String {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code>\
         <Message>body-canary</Message><Endpoint>canary.amazonaws.com</Endpoint></Error>"
    );
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

#[tokio::test]
async fn refusals_are_told_by_their_code_and_never_repeated() {
    let region = "x-amz-bucket-region: eu-west-1\r\nlocation: http://canary.example/\r\n";
    let table = [
        (
            "301 Moved Permanently",
            region,
            "PermanentRedirect",
            ImportReason::WrongRegion,
            "eu-west-1",
        ),
        (
            "307 Temporary Redirect",
            region,
            "TemporaryRedirect",
            ImportReason::WrongRegion,
            "eu-west-1",
        ),
        (
            "400 Bad Request",
            region,
            "AuthorizationHeaderMalformed",
            ImportReason::WrongRegion,
            "eu-west-1",
        ),
        ("403 Forbidden", "", "RequestTimeTooSkewed", ImportReason::Forbidden, "clock"),
        ("403 Forbidden", "", "InvalidAccessKeyId", ImportReason::Forbidden, "accessKeyId"),
        ("404 Not Found", "", "NoSuchKey", ImportReason::SourceNotFound, "no such object"),
        ("503 Slow Down", "", "SlowDown", ImportReason::Throttled, "fewer requests"),
        ("500 Internal Server Error", "", "InternalError", ImportReason::ServerError, "failed"),
    ];
    let bench = Bench::with(Demands::default()).await;
    for (status, headers, code, reason, hint) in table {
        let canned = Canned::once(refused(status, headers, code)).await;
        let report = run_probe(&bench.source_at(&canned.url())).await;
        assert_failed(&report, reason);
        assert!(report.message.contains(hint), "{code}: {}", report.message);
        assert!(!report.message.contains("canary"), "{code}: {}", report.message);
        assert_eq!(canned.requests().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_refusal_without_end_is_a_refusal() {
    let bench = Bench::with(Demands::default()).await;
    let head = "HTTP/1.1 403 Forbidden\r\ntransfer-encoding: chunked\r\n\r\n";
    let canned =
        Canned::saying(vec![crate::canned::Saying::endlessly(head, "4\r\naaaa\r\n".repeat(1000))]);
    let canned = canned.await;
    let report = run_probe(&bench.source_at(&canned.url())).await;
    assert_failed(&report, ImportReason::Forbidden);
}
