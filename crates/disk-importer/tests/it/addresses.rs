//! The address rule, at the moment of connecting and on every redirect.

use disk_importer::credentials::Keys;
use image_server::fixtures;
use image_server::{Behaviour, Content, Fault, ImageServer};
use otctl_types::import::{ImportOutcome, ImportReason};

use crate::lab::{Lab, PATH, assert_failed, run_probe};

fn image() -> Content {
    Content::bytes(fixtures::PLAIN.bytes)
}

fn redirect(to: impl Into<String>) -> Behaviour {
    Behaviour::new().always(Fault::Redirect { to: to.into() })
}

async fn other_server() -> ImageServer {
    let server = ImageServer::start().await.unwrap();
    server.add(PATH, image());
    server
}

#[tokio::test]
async fn loopback_is_refused_unless_it_is_listed() {
    let lab = Lab::serving(image()).await;
    for (rule, is_permitted) in [
        ("*".to_owned(), false),
        ("http://*".to_owned(), false),
        (format!("http://127.*:{}", lab.server.address().port()), false),
        (format!("https://{}", lab.server.address()), false),
        (lab.hosts(), true),
    ] {
        let mut source = lab.source();
        source.access.hosts = rule.parse().unwrap();
        let report = run_probe(&source).await;
        if is_permitted {
            assert_eq!(report.outcome, ImportOutcome::Complete, "{rule}: {report:?}");
        } else {
            assert_failed(&report, ImportReason::AddressRefused);
            assert!(report.message.contains(&lab.hosts()), "what to add: {}", report.message);
            assert_eq!(lab.counts().requests, 0, "{rule}");
        }
    }
}

/// The rule is applied to what a name resolves to.
#[tokio::test]
async fn a_name_that_leads_to_loopback_is_refused() {
    let lab = Lab::serving(image()).await;
    let mut source = lab.source();
    source.access.hosts = "*".parse().unwrap();
    source.url.set_host(Some("localhost")).unwrap();
    assert_failed(&run_probe(&source).await, ImportReason::AddressRefused);
    assert_eq!(lab.counts().requests, 0);
    let port = lab.server.address().port();
    source.access.hosts = format!("http://localhost:{port}").parse().unwrap();
    assert_eq!(run_probe(&source).await.outcome, ImportOutcome::Complete);
}

#[tokio::test]
async fn a_redirect_to_a_listed_server_is_followed() {
    let other = other_server().await;
    let lab = Lab::misbehaving(image(), redirect(other.url(PATH))).await;
    let mut source = lab.source();
    let rule = format!("{},http://{}", lab.hosts(), other.address());
    source.access.hosts = rule.parse().unwrap();
    assert_eq!(run_probe(&source).await.outcome, ImportOutcome::Complete);
    assert_eq!(other.counts(PATH).requests, 1);
}

#[tokio::test]
async fn a_redirect_to_a_server_that_is_not_listed_is_refused_unasked() {
    let other = other_server().await;
    let lab = Lab::misbehaving(image(), redirect(other.url(PATH))).await;
    let report = run_probe(&lab.source()).await;
    assert_failed(&report, ImportReason::AddressRefused);
    assert!(report.message.contains("allowedSourceHosts"), "{}", report.message);
    assert_eq!(other.counts(PATH).requests, 0);
}

#[tokio::test]
async fn redirects_to_what_is_no_plain_url_are_refused() {
    for to in ["ftp://127.0.0.1/i", "file:///etc/passwd", "http://u:p@127.0.0.1/i", "http://"] {
        let lab = Lab::misbehaving(image(), redirect(to)).await;
        let report = run_probe(&lab.source()).await;
        assert_failed(&report, ImportReason::AddressRefused);
        assert!(!report.message.contains("u:p"), "{}", report.message);
    }
}

#[tokio::test]
async fn three_redirects_are_followed_and_the_fourth_is_not() {
    let lab = Lab::serving(image()).await;
    let hop = || Fault::Redirect { to: PATH.to_owned() };
    lab.server.behave(PATH, Behaviour::new().times(3, hop())).unwrap();
    assert_eq!(run_probe(&lab.source()).await.outcome, ImportOutcome::Complete);
    lab.server.behave(PATH, Behaviour::new().times(4, hop())).unwrap();
    assert_failed(&run_probe(&lab.source()).await, ImportReason::TooManyRedirects);
}

#[tokio::test]
async fn another_server_does_not_learn_the_password() {
    let authorization = "Basic bGFiOnNlc2FtZQ==";
    let other = other_server().await;
    let asks = Fault::RequireAuthorization { value: authorization.to_owned() };
    other.behave(PATH, Behaviour::new().always(asks)).unwrap();
    let lab = Lab::misbehaving(image(), redirect(other.url(PATH))).await;
    let mut source = lab.source();
    let rule = format!("{},http://{}", lab.hosts(), other.address());
    source.access.hosts = rule.parse().unwrap();
    source.credentials.keys = Some(Keys::new("lab", "sesame"));
    assert_failed(&run_probe(&source).await, ImportReason::Forbidden);
}
