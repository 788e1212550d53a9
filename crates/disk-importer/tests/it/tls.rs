//! https: a private authority from the Secret is trusted, and nothing else is.

use std::net::SocketAddr;
use std::sync::Arc;

use image_server::Content;
use image_server::fixtures;
use otctl_types::import::{ImportOutcome, ImportReason};
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::lab::{Lab, assert_failed, run_probe};

/// A TLS door in front of `server`; gives its address and the certificate it shows, as PEM.
pub(crate) async fn door_to(server: SocketAddr) -> (SocketAddr, String, AbortOnDropHandle<()>) {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let door = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust us ends the handshake, as it should.
            if let Ok(mut inside) = acceptor.accept(stream).await {
                let mut outside = TcpStream::connect(server).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
            }
        }
    });
    (address, certified.cert.pem(), AbortOnDropHandle::new(door))
}

#[tokio::test]
async fn a_private_authority_is_trusted_once_the_secret_names_it() {
    let lab = Lab::serving(Content::bytes(fixtures::PLAIN.bytes)).await;
    let (address, pem, _door) = door_to(lab.server.address()).await;
    let mut source = lab.source();
    source.url = format!("https://{address}/image").parse().unwrap();
    source.access.hosts = format!("https://{address}").parse().unwrap();
    let report = run_probe(&source).await;
    assert_failed(&report, ImportReason::ConnectionLost);
    assert!(report.message.contains("certificate"), "{}", report.message);
    assert_eq!(lab.counts().requests, 0);
    source.credentials.authority = Some(pem.into_bytes());
    let report = run_probe(&source).await;
    assert_eq!(report.outcome, ImportOutcome::Complete, "{report:?}");
    assert_eq!(lab.counts().requests, 1);
}

#[tokio::test]
async fn an_authority_that_is_no_certificate_is_said() {
    let lab = Lab::serving(Content::bytes(fixtures::PLAIN.bytes)).await;
    let mut source = lab.source();
    source.credentials.authority = Some(b"not a certificate".to_vec());
    assert_failed(&run_probe(&source).await, ImportReason::SecretKeyMissing);
}
