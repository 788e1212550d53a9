//! The rule for where an import may connect to. The input is a rule, an address and a url, a line each; what is left
//! over are the bytes of one more address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ::policy::SourceHosts;
use ::policy::source_hosts::Target;
use url::{Host, Url};

/// What packets to `address` may arrive at: the IPv4 addresses inside it, by every way of writing one into an IPv6
/// address that a host or a translator on its way undoes.
fn inside(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bits = address.to_bits();
    let low = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    let starts = |prefix: &str, length: u32| {
        let prefix: Ipv6Addr = prefix.parse().expect("a constant address parses");
        (bits ^ prefix.to_bits()) >> (128 - length) == 0
    };
    let mut found = Vec::new();
    // Mapped, compatible, translated (RFC 6145), NAT64 with the well-known prefix.
    let is_plain = starts("::", 96) && bits > 1;
    if is_plain || starts("::ffff:0:0", 96) || starts("::ffff:0:0:0", 96) || starts("64:ff9b::", 96)
    {
        found.push(low(0));
    }
    if starts("2002::", 16) {
        found.push(low(80));
    }
    // NAT64 of the local network (RFC 8215) has the address where RFC 6052 puts it for the length of its prefix; the
    // eight bits in the middle are skipped.
    if starts("64:ff9b:1::", 48) {
        let around = |length: u32| {
            let before = 64 - length;
            let (upper, lower) = ((bits >> 64) as u64, (bits << 72 >> 72) as u64);
            let upper = if before == 0 { 0 } else { upper << length >> length };
            Ipv4Addr::from_bits(
                (upper << (32 - before)) as u32 | (lower >> (56 - (32 - before))) as u32,
            )
        };
        // Padding reads as 0.0.0.0/8.
        let all = [around(48), around(56), around(64), low(0)];
        found.extend(all.into_iter().filter(|address| address.octets()[0] != 0));
    }
    found
}

/// Where no import goes unless its host is listed by its full name, whatever the rule.
fn is_dangerous_v4(address: Ipv4Addr) -> bool {
    let clouds = [[100, 100, 100, 200], [168, 63, 129, 16], [192, 0, 0, 192]];
    address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.octets()[0] == 0
        || clouds.contains(&address.octets())
}

fn is_dangerous(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_dangerous_v4(address),
        IpAddr::V6(address) => {
            let metadata = ["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"];
            let is_cloud = metadata.iter().any(|known| known.parse() == Ok(address));
            let is_odd =
                address.is_loopback() || address.is_multicast() || address.is_unspecified();
            let is_itself = is_odd || address.is_unicast_link_local() || is_cloud;
            is_itself || inside(address).into_iter().any(is_dangerous_v4)
        }
    }
}

/// Nothing dangerous is permitted under any spelling, but to a host that the rule has by its full name; through a glob
/// nothing private is either; a rule that is written is read back.
///
/// # Panics
/// When it is not so.
pub fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.splitn(4, '\n');
    let [rule, address, url] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let Ok(hosts) = rule.parse::<SourceHosts>() else { return };
    assert_eq!(hosts.to_string().parse(), Ok(hosts.clone()), "{rule:?} is written and read");
    let mut addresses: Vec<IpAddr> = address.parse().into_iter().collect();
    addresses.extend(input.last_chunk::<16>().map(|bytes| IpAddr::from(*bytes)));
    addresses.extend(input.last_chunk::<4>().map(|bytes| IpAddr::from(*bytes)));
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.or_else(|| Url::parse("https://images.example/").ok()) else { return };
    // A host that is an address is connected at that address, however it was written.
    match url.host() {
        Some(Host::Ipv4(address)) => addresses = vec![address.into()],
        Some(Host::Ipv6(address)) => addresses = vec![address.into()],
        Some(Host::Domain(_)) | None => {}
    }
    for address in addresses {
        check_address(&hosts, rule, &url, address);
    }
}

fn check_address(hosts: &SourceHosts, rule: &str, url: &Url, address: IpAddr) {
    let target = Target {
        scheme: url.scheme(),
        host: url.host_str().unwrap_or_default(),
        port: url.port_or_known_default().unwrap_or_default(),
    };
    let permits = |address: IpAddr| hosts.permits(&target, address, &[]).is_ok();
    let is_listed = is_listed(rule, &target);
    if permits(address) {
        assert!(
            hosts.permits_host(&target).is_ok(),
            "{rule:?} refuses {url} and permits {address}"
        );
        assert!(is_listed || !is_dangerous(address), "{rule:?} permits {url} at {address}");
        let is_any = rule == "*";
        assert!(is_any || is_listed || !is_private(address), "{rule:?} permits {url} at {address}");
        let refused = hosts.permits(&target, address, &[address]);
        assert!(
            is_listed || refused.is_err(),
            "{rule:?} permits {url} at the API server's {address}"
        );
    }
    if let IpAddr::V4(v4) = address {
        for spelling in spellings(v4) {
            let differs = permits(spelling) && !permits(address);
            assert!(!differs, "{rule:?} permits {url} at {spelling}, and not at {address}");
        }
    }
}

/// Ways to write an IPv4 address as an IPv6 one.
fn spellings(address: Ipv4Addr) -> [IpAddr; 4] {
    let low = u128::from(address.to_bits());
    let prefixed = |prefix: u128| IpAddr::from(Ipv6Addr::from_bits(prefix | low));
    [
        prefixed(0xffff << 32),
        prefixed(0xffff << 48),
        prefixed(0x64_ff9b << 96),
        IpAddr::from(Ipv6Addr::from_bits(0x2002 << 112 | low << 80)),
    ]
}

/// Whether the rule has the target's host by its full name, with its scheme and port.
fn is_listed(rule: &str, target: &Target<'_>) -> bool {
    let is_it = |entry: &str| {
        let entry =
            if entry.contains("://") { entry.to_owned() } else { format!("https://{entry}") };
        Url::parse(&entry).is_ok_and(|entry| {
            let plain = |host: &str| host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
            entry.scheme() == target.scheme
                && entry.host_str().map(plain) == Some(plain(target.host))
                && entry.port_or_known_default() == Some(target.port)
        })
    };
    rule.split(',').map(str::trim).filter(|entry| !entry.contains('*')).any(is_it)
}

/// Not of the public Internet, as far as the standard library says so.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_private() || address.octets()[0] >= 240,
        IpAddr::V6(address) => {
            let inner = inside(address).into_iter().any(|inner| is_private(inner.into()));
            address.is_unique_local() || inner
        }
    }
}
