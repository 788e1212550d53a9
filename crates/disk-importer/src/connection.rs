//! One connection to a source: name resolution, the address rule, the socket and TLS. What is
//! said over it is `client`'s matter.
//!
//! The rule is applied to the very addresses that are then connected, so a name that resolves
//! differently a moment later gains nothing. Proxies from the environment are not used: a proxy
//! would resolve the name itself.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use otctl_types::import::ImportReason;
use policy::source_hosts;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::failure::Failure;
use crate::settings::{Access, Timing};

/// What the kernel is asked to buffer for us. It accounts twice this, 256 KiB. Set before the
/// connection is made, since the window offered at the start counts too: with the default, a
/// server has written 8 to 10 MiB more than was ever read when the reader died.
const RECEIVE_BUFFER_BYTES: u32 = 128 * 1024;

/// A connected byte stream, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens connections that the address rule permits.
pub struct Connector {
    access: Access,
    timing: Timing,
    tls: TlsConnector,
}

impl Connector {
    /// A connector that trusts the system's certificate authorities and those in `authority`,
    /// PEM text.
    ///
    /// # Errors
    /// `Internal` when `authority` holds no certificate.
    pub fn new(access: Access, timing: Timing, authority: Option<&[u8]>) -> Result<Self, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(pem) = authority {
            trust_also(&mut roots, pem)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the ring provider has both protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self { access, timing, tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Connects to the host of `url`: the first of its permitted addresses that answers.
    ///
    /// # Errors
    /// `AddressRefused` when no address is permitted, else `ConnectionLost`.
    pub async fn connect(&self, url: &Url) -> Result<Box<dyn Stream>, Failure> {
        let mut failure = lost(url, "its name has no address");
        for address in self.permitted_addresses(url).await? {
            match self.connect_address(url, address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    async fn permitted_addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, Failure> {
        let target = rule_target(url);
        let Access { hosts, api_addresses } = &self.access;
        hosts.permits_host(&target).map_err(|refusal| refused(&refusal))?;
        let mut permitted = Vec::new();
        let mut refusals = Vec::new();
        for address in resolve(url).await? {
            match hosts.permits(&target, address.ip(), api_addresses) {
                Ok(()) => permitted.push(address),
                Err(refusal) => refusals.push(refusal),
            }
        }
        match refusals.first() {
            Some(refusal) if permitted.is_empty() => Err(refused(refusal)),
            _ => Ok(permitted),
        }
    }

    async fn connect_address(
        &self,
        url: &Url,
        address: SocketAddr,
    ) -> Result<Box<dyn Stream>, Failure> {
        let connected = async {
            let stream = open_socket(address).await?;
            if url.scheme() == "https" {
                let stream = self.tls.connect(server_name(url)?, stream).await?;
                return Ok::<Box<dyn Stream>, io::Error>(Box::new(stream));
            }
            Ok(Box::new(stream))
        };
        match timeout(self.timing.connect, connected).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(lost(url, &error.to_string())),
            Err(_) => Err(lost(url, "no answer in time")),
        }
    }
}

/// `scheme://host[:port]/path` of a source: what may be shown of it. Query strings carry
/// signatures.
#[must_use]
pub fn shown(url: &Url) -> String {
    const LONGEST: usize = 256;
    let mut text = format!("{}{}", url.origin().ascii_serialization(), url.path());
    if text.len() > LONGEST {
        text.truncate(text.floor_char_boundary(LONGEST));
        text.push('…');
    }
    text
}

fn trust_also(roots: &mut rustls::RootCertStore, pem: &[u8]) -> Result<(), Failure> {
    let certificates: Vec<CertificateDer<'_>> =
        CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        let message = "ca.crt of the Secret holds no certificate in PEM form";
        return Err(Failure::new(ImportReason::SecretKeyMissing, message));
    }
    Ok(())
}

async fn resolve(url: &Url) -> Result<Vec<SocketAddr>, Failure> {
    let port = url.port_or_known_default().unwrap_or_default();
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(vec![SocketAddr::new(address.into(), port)]),
        Some(Host::Ipv6(address)) => Ok(vec![SocketAddr::new(address.into(), port)]),
        Some(Host::Domain(name)) => match lookup_host((name, port)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(lost(url, &format!("its name cannot be resolved: {error}"))),
        },
        None => Err(Failure::new(ImportReason::AddressRefused, "the url names no host")),
    }
}

async fn open_socket(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    socket.connect(address).await
}

fn server_name(url: &Url) -> io::Result<ServerName<'static>> {
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(ServerName::from(IpAddr::from(address))),
        Some(Host::Ipv6(address)) => Ok(ServerName::from(IpAddr::from(address))),
        Some(Host::Domain(name)) => ServerName::try_from(name.to_owned()).map_err(io::Error::other),
        None => Err(io::Error::other("the url names no host")),
    }
}

fn rule_target(url: &Url) -> source_hosts::Target<'_> {
    source_hosts::Target {
        scheme: url.scheme(),
        host: url.host_str().unwrap_or_default(),
        port: url.port_or_known_default().unwrap_or_default(),
    }
}

fn refused(refusal: &source_hosts::Refusal) -> Failure {
    Failure::new(ImportReason::AddressRefused, refusal.to_string())
}

fn lost(url: &Url, why: &str) -> Failure {
    let message = format!("cannot connect to {}: {why}", url.origin().ascii_serialization());
    Failure::new(ImportReason::ConnectionLost, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_receive_buffer_is_small_before_the_connection_stands() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = open_socket(listener.local_addr().unwrap()).await.unwrap();
        let bytes = socket2::SockRef::from(&stream).recv_buffer_size().unwrap();
        assert!(bytes <= 256 * 1024, "{bytes}");
    }

    #[test]
    fn what_is_shown_has_no_query_and_no_user() {
        let url = Url::parse("https://u:p@h.example/a/b.qcow2?X-Amz-Signature=s#f").unwrap();
        assert_eq!(shown(&url), "https://h.example/a/b.qcow2");
        let long = Url::parse(&format!("https://h.example/{}", "é".repeat(400))).unwrap();
        assert!(shown(&long).len() <= 260);
    }
}
