//! The rule of `allowedSourceHosts`: where an import may connect to.
//!
//! | policy | public | private | loopback, link-local, metadata, multicast, unspecified, API server |
//! |---|---|---|---|
//! | `*` alone: any host, scheme and port | yes | yes | no |
//! | host listed by its full name | yes | yes | yes |
//! | host matched by a `*` in an entry | yes | no | no |
//! | host in no entry | no | no | no |
//!
//! Beside other entries `*` is an entry like them: without a scheme https, without a port the scheme's. What is shown
//! always has its scheme, so `*` is shown for the first meaning only and `https://*` for the second.
//!
//! A name may resolve to another address at any moment, so the importer asks at connect time with
//! the address it connects to, and again on every redirect. Resolving is not done here.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use crate::address::{AddressClass, classify};

/// The longest list, in bytes as it is displayed: the policy in effect is kept in a status, which
/// takes no longer text.
const LONGEST_LIST: usize = 4096;

/// What an import is about to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The URL's scheme.
    pub scheme: &'a str,
    /// The URL's host; an IPv6 address with or without its brackets.
    pub host: &'a str,
    /// The port, the scheme's where the URL has none.
    pub port: u16,
}

/// Why a connection is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The host is in no entry.
    #[error(
        "no entry of allowedSourceHosts has {entry}, which would permit it; an entry without a scheme means https"
    )]
    MatchHost {
        /// The entry that would permit it.
        entry: String,
    },
    /// The host may be reached, but not at this address.
    #[error(
        "{host} is at {address}, {class}, which no entry with a * permits: only {entry}, the full name, in allowedSourceHosts does"
    )]
    ReachAddress {
        /// The host asked for.
        host: String,
        /// The entry that would permit it.
        entry: String,
        /// What it resolved to.
        address: IpAddr,
        /// What kind of place that is.
        class: AddressClass,
    },
}

/// Where imports may connect to; displays as the text of the policy key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceHosts {
    /// Empty is `*` alone: any host, scheme and port.
    entries: Vec<Entry>,
}

/// `[scheme://]host-glob[:port]`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    scheme: Scheme,
    host: String,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Https,
}

/// How a host came to be allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    ByName,
    ByGlob,
    Any,
}

impl SourceHosts {
    /// Whether the host may be asked for at all; enough to refuse before its name is resolved.
    ///
    /// # Errors
    /// When it is in no entry.
    pub fn permits_host(&self, target: &Target<'_>) -> Result<(), Refusal> {
        self.listing(target).map(|_| ())
    }

    /// Whether a connection to `address` may be made for `target`.
    ///
    /// `api_servers` are the API server's addresses, those of its Service and of its endpoints.
    ///
    /// # Errors
    /// When the host is in no entry, or the address is of a kind that its entry does not open.
    pub fn permits(
        &self,
        target: &Target<'_>,
        address: IpAddr,
        api_servers: &[IpAddr],
    ) -> Result<(), Refusal> {
        let class = classify(address, api_servers);
        let is_permitted = match self.listing(target)? {
            Listing::ByName => true,
            Listing::ByGlob => class == AddressClass::Public,
            Listing::Any => !class.is_dangerous(),
        };
        let refusal = || Refusal::ReachAddress {
            host: target.host.to_owned(),
            entry: target.entry(),
            address,
            class,
        };
        is_permitted.then_some(()).ok_or_else(refusal)
    }

    fn listing(&self, target: &Target<'_>) -> Result<Listing, Refusal> {
        if self.entries.is_empty() {
            return Ok(Listing::Any);
        }
        let host = plain_host(target.host);
        let matching = |entry: &&Entry| entry.matches(target, &host);
        let listings = self.entries.iter().filter(matching).map(Entry::listing);
        // An entry with the full name opens more than a glob that matches too, wherever it stands.
        listings
            .min_by_key(|listing| *listing != Listing::ByName)
            .ok_or_else(|| Refusal::MatchHost { entry: target.entry() })
    }
}

impl Target<'_> {
    /// The entry that lists it by its full name, as a person writes it.
    fn entry(&self) -> String {
        let (scheme, host) = (self.scheme.to_ascii_lowercase(), plain_host(self.host));
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let usual = read_scheme(&scheme).map(Scheme::port);
        let port = Some(self.port).filter(|port| usual != Some(*port));
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{host}{port}")
    }
}

impl Entry {
    fn matches(&self, target: &Target<'_>, host: &str) -> bool {
        target.scheme.eq_ignore_ascii_case(self.scheme.as_str())
            && target.port == self.port
            && glob_matches(self.host.as_bytes(), host.as_bytes())
    }

    fn listing(&self) -> Listing {
        if self.host.contains('*') { Listing::ByGlob } else { Listing::ByName }
    }
}

impl Scheme {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// One spelling per host: lower case, without brackets or the dot of the root, IPv6 shortened.
fn plain_host(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match host.parse::<Ipv6Addr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

/// Whether `*` in `glob`, standing for any characters, dots included, makes it `text`.
///
/// Goes back to the last star only, so that no glob takes more than glob × text steps.
fn glob_matches(glob: &[u8], text: &[u8]) -> bool {
    let (mut g, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if glob.get(g) == Some(&b'*') {
            retry = Some((g + 1, t));
            g += 1;
        } else if glob.get(g) == Some(&text[t]) {
            (g, t) = (g + 1, t + 1);
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            (g, t) = (after_star, from + 1);
        } else {
            return false;
        }
    }
    glob[g..].iter().all(|byte| *byte == b'*')
}

/// Why a text is no list of source hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceHostsError {
    /// The list is longer than what can be kept of a policy.
    #[error(
        "the list is longer than {LONGEST_LIST} characters; a * in an entry stands for many hosts"
    )]
    FitList,
    /// An entry is empty.
    #[error("an entry is empty")]
    FillEntry,
    /// The scheme is another.
    #[error("{entry:?} has a scheme other than http and https")]
    KnowScheme {
        /// The entry as written.
        entry: String,
    },
    /// The host is not one.
    #[error(
        "{entry:?} has no valid host; it is made of letters, digits, '-', '_', '.' and '*', or is an IPv6 address in brackets"
    )]
    ReadHost {
        /// The entry as written.
        entry: String,
    },
    /// It goes on behind the host and the port.
    #[error("{entry:?} has a path; an entry ends with its host or its port")]
    EndWithHost {
        /// The entry as written.
        entry: String,
    },
    /// The port is not one.
    #[error("{entry:?} has a port that is not a number from 1 to 65535")]
    ReadPort {
        /// The entry as written.
        entry: String,
    },
}

impl FromStr for SourceHosts {
    type Err = SourceHostsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::default());
        }
        let entries =
            text.split(',').map(|entry| entry.trim().parse()).collect::<Result<_, _>>()?;
        let hosts = Self { entries };
        match hosts.to_string().len() {
            0..=LONGEST_LIST => Ok(hosts),
            _ => Err(SourceHostsError::FitList),
        }
    }
}

impl FromStr for Entry {
    type Err = SourceHostsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Err(SourceHostsError::FillEntry);
        }
        let entry = || excerpt(text);
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::Https, text),
            Some((scheme, rest)) => (
                read_scheme(scheme)
                    .ok_or_else(|| SourceHostsError::KnowScheme { entry: entry() })?,
                rest,
            ),
        };
        if rest.contains(['/', '?', '#']) {
            return Err(SourceHostsError::EndWithHost { entry: entry() });
        }
        let (host, port) = split_port(rest);
        let host = read_host(host).ok_or_else(|| SourceHostsError::ReadHost { entry: entry() })?;
        let port = port.map_or(Some(scheme.port()), read_port);
        let port = port.ok_or_else(|| SourceHostsError::ReadPort { entry: entry() })?;
        Ok(Self { scheme, host, port })
    }
}

fn excerpt(text: &str) -> String {
    text.chars().take(80).collect()
}

fn read_scheme(text: &str) -> Option<Scheme> {
    [Scheme::Http, Scheme::Https]
        .into_iter()
        .find(|scheme| text.eq_ignore_ascii_case(scheme.as_str()))
}

/// The colons inside an IPv6 address's brackets are no port's.
fn split_port(text: &str) -> (&str, Option<&str>) {
    let host_end = text.rfind(']').map_or(0, |bracket| bracket + 1);
    match text[host_end..].split_once(':') {
        None => (text, None),
        Some((between, port)) => (&text[..host_end + between.len()], Some(port)),
    }
}

fn read_host(text: &str) -> Option<String> {
    if text.starts_with('[') {
        let address = text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?;
        return Some(address.to_string());
    }
    let host = plain_host(text);
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_*".contains(&byte);
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(is_host_byte);
    (host.len() <= 253 && host.split('.').all(is_label)).then_some(host)
}

fn read_port(text: &str) -> Option<u16> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten().filter(|port| *port > 0)
}

impl fmt::Display for SourceHosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            return f.write_str("*");
        }
        let entries: Vec<String> = self.entries.iter().map(Entry::to_string).collect();
        f.write_str(&entries.join(","))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        let is_address = self.host.contains(':');
        if is_address {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        if self.port == self.scheme.port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

#[cfg(test)]
mod tests;
