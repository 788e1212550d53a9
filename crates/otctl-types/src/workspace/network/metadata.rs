//! Addresses at which clouds hand out the credentials of a machine or of a pod, by every way that leads to them.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Of IPv4.
const OF_IPV4: [Ipv4Addr; 8] = [
    // Nearly every cloud; and AWS for its containers.
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 170, 2),
    Ipv4Addr::new(169, 254, 170, 23),
    // Scaleway, Tencent, Azure, Alibaba, Oracle.
    Ipv4Addr::new(169, 254, 42, 42),
    Ipv4Addr::new(169, 254, 0, 23),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];

/// Of IPv6.
const OF_IPV6: [Ipv6Addr; 8] = [
    // AWS, and for its pods; Scaleway, Google, OpenStack, Oracle, Alibaba, Akamai.
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
    Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200),
    Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1),
];

/// What an IPv4 address is put behind to be reached from IPv6: NAT64 by its well-known prefix and by the one for local use
/// (RFC 6052, RFC 8215), addresses compatible with IPv4 (RFC 4291), and SIIT (RFC 2765).
const PREFIXES: [Ipv6Addr; 4] = [
    Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0),
    Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0),
    Ipv6Addr::UNSPECIFIED,
    Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0),
];

/// All of them as networks, in the one way in which addresses are written (RFC 5952).
///
/// A site's own prefix of NAT64 cannot be known here. Addresses mapped to IPv4 (`::ffff:0:0/96`) are none at all to a
/// network policy, which takes them for the IPv4 ones: they are refused as such.
#[must_use]
pub fn metadata_addresses() -> Vec<String> {
    let of_ipv4 = OF_IPV4.iter().map(|address| format!("{address}/32"));
    let of_ipv6 = OF_IPV6.iter().map(|address| format!("{address}/128"));
    of_ipv4.chain(of_ipv6).chain(OF_IPV4.into_iter().flat_map(translated)).collect()
}

/// The addresses of IPv6 that lead to one of IPv4.
fn translated(address: Ipv4Addr) -> impl Iterator<Item = String> {
    let bits = u128::from(address.to_bits());
    let behind = PREFIXES.map(|prefix| Ipv6Addr::from_bits(prefix.to_bits() | bits));
    // 6to4 (RFC 3056) has a network behind each address.
    let six_to_four = Ipv6Addr::from_bits((0x2002 << 112) | (bits << 80));
    let behind = behind.into_iter().map(|address| format!("{address}/128"));
    behind.chain([format!("{six_to_four}/48")])
}
