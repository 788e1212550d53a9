//! One connection to a source: name resolution, the address rule, the socket and TLS. What is
//! said over it is `client`'s matter.
//!
//! The rule is applied to the very addresses that are then connected, so a name that resolves
//! differently a moment later gains nothing. Proxies from the environment are not used: a proxy
//! would resolve the name itself.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use otctl_types::import::ImportReason;
use policy::source_hosts::{self, Refusal};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use crate::bandwidth::Bandwidth;
use crate::failure::Failure;
use crate::settings::{Access, Source, Timing};

/// What the kernel is asked to buffer for us. It accounts twice this, 256 KiB. Set before the
/// connection is made, since the window offered at the start counts too: with the default, a
/// server has written 8 to 10 MiB more than was ever read when the reader died.
const RECEIVE_BUFFER_BYTES: u32 = 128 * 1024;

/// A connected byte stream, encrypted or not.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Who knows the addresses of a name. It is asked once per connection, and what it says is judged
/// and connected; nobody asks again in between.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Fn(String, u16) -> Lookup + Send + Sync>);

/// The addresses of one name, when they are known.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

impl Resolver {
    /// Asks `lookup` with a name and a port.
    pub fn new(lookup: impl Fn(String, u16) -> Lookup + Send + Sync + 'static) -> Self {
        Self(Arc::new(lookup))
    }
}

impl Default for Resolver {
    /// The system's.
    fn default() -> Self {
        Self::new(|name, port| {
            Box::pin(async move { Ok(lookup_host((name, port)).await?.collect()) })
        })
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Opens connections that the address rule permits.
pub struct Connector {
    access: Access,
    timing: Timing,
    bandwidth: Bandwidth,
    tls: TlsConnector,
}

impl Connector {
    /// A connector for `source` that trusts the system's certificate authorities and those of
    /// its Secret.
    ///
    /// # Errors
    /// `SecretKeyMissing` when `ca.crt` holds no certificate.
    pub fn new(source: &Source) -> Result<Self, Failure> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(pem) = &source.credentials.authority {
            trust_also(&mut roots, pem)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the ring provider has both protocol versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            access: source.access.clone(),
            timing: source.timing,
            bandwidth: source.bandwidth.clone(),
            tls: TlsConnector::from(Arc::new(config)),
        })
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
        let Access { hosts, api_addresses, resolver } = &self.access;
        hosts.permits_host(&target).map_err(|refusal| refused(&refusal))?;
        let mut permitted = Vec::new();
        let mut refusals = Vec::new();
        for address in resolve(url, resolver).await? {
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
            let stream = self.bandwidth.pace(open_socket(address).await?);
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
        let message = "its key ca.crt holds no certificate in PEM form";
        return Err(Failure::new(ImportReason::SecretKeyMissing, message));
    }
    Ok(())
}

async fn resolve(url: &Url, resolver: &Resolver) -> Result<Vec<SocketAddr>, Failure> {
    let port = url.port_or_known_default().unwrap_or_default();
    match url.host() {
        Some(Host::Ipv4(address)) => Ok(vec![SocketAddr::new(address.into(), port)]),
        Some(Host::Ipv6(address)) => Ok(vec![SocketAddr::new(address.into(), port)]),
        Some(Host::Domain(name)) => {
            let lookup = (resolver.0)(name.to_owned(), port).await;
            lookup.map_err(|error| lost(url, &format!("its name cannot be resolved: {error}")))
        }
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

/// Which host, and of what kind its address is; not the address, which may be one that only the
/// cluster's name service knows.
fn refused(refusal: &Refusal) -> Failure {
    let message = match refusal {
        Refusal::MatchHost { .. } => refusal.to_string(),
        Refusal::ReachAddress { host, class, entry, .. } => format!(
            "{host} leads to {class}, which no entry with a * permits: only {entry}, the full name, in allowedSourceHosts does"
        ),
    };
    Failure::new(ImportReason::AddressRefused, message)
}

fn lost(url: &Url, why: &str) -> Failure {
    let message = format!("cannot connect to {}: {why}", url.origin().ascii_serialization());
    Failure::new(ImportReason::ConnectionLost, message)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use super::*;
    use crate::credentials::Credentials;
    use crate::settings::{Limits, SourceType};

    #[tokio::test]
    async fn the_receive_buffer_is_small_before_the_connection_stands() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = open_socket(listener.local_addr().unwrap()).await.unwrap();
        let bytes = socket2::SockRef::from(&stream).recv_buffer_size().unwrap();
        assert!(bytes <= 256 * 1024, "{bytes}");
    }

    fn source(rule: &str, resolver: Resolver) -> Source {
        Source {
            url: Url::parse("http://image.example/i").unwrap(),
            source_type: SourceType::Http,
            credentials: Credentials::default(),
            access: Access { hosts: rule.parse().unwrap(), api_addresses: Vec::new(), resolver },
            limits: Limits::default(),
            timing: Timing::default(),
            bandwidth: Bandwidth::default(),
        }
    }

    /// A name that leads to a public address when it is judged and to the metadata service later.
    #[tokio::test]
    async fn what_was_judged_is_what_is_connected_and_the_next_answer_is_judged_again() {
        for rule in ["*", "http://*.example"] {
            let asked = AtomicU16::new(0);
            let resolver = Resolver::new(move |_, port| {
                let addresses: [&str; 2] = ["203.0.113.7", "169.254.169.254"];
                let nth = usize::from(asked.fetch_add(1, Ordering::Relaxed));
                let address = SocketAddr::new(addresses[nth].parse().unwrap(), port);
                Box::pin(async move { Ok(vec![address]) })
            });
            let source = source(rule, resolver);
            let connector = Connector::new(&source).unwrap();
            let first = connector.permitted_addresses(&source.url).await;
            let second = connector.permitted_addresses(&source.url).await;
            assert_eq!(first.unwrap(), ["203.0.113.7:80".parse().unwrap()], "{rule}");
            let refusal = second.unwrap_err();
            assert_eq!(refusal.reason, ImportReason::AddressRefused, "{rule}");
            assert!(!refusal.message.contains("169.254"), "{refusal}");
        }
    }

    #[tokio::test]
    async fn of_several_addresses_only_the_permitted_ones_are_left() {
        let resolver = Resolver::new(|_, port| {
            let addresses = ["169.254.169.254", "::ffff:127.0.0.1", "203.0.113.7", "fe80::1"];
            let all = addresses.map(|text| SocketAddr::new(text.parse().unwrap(), port));
            Box::pin(async move { Ok(all.to_vec()) })
        });
        let source = source("*", resolver);
        let connector = Connector::new(&source).unwrap();
        let permitted = connector.permitted_addresses(&source.url).await.unwrap();
        assert_eq!(permitted, ["203.0.113.7:80".parse().unwrap()]);
    }

    #[test]
    fn what_is_shown_has_no_query_and_no_user() {
        let url = Url::parse("https://u:p@h.example/a/b.qcow2?X-Amz-Signature=s#f").unwrap();
        assert_eq!(shown(&url), "https://h.example/a/b.qcow2");
        let long = Url::parse(&format!("https://h.example/{}", "é".repeat(400))).unwrap();
        assert!(shown(&long).len() <= 260);
    }
}
