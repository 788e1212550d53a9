//! What kind of place an IP address is, as far as an import must care.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What kind of place an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressClass {
    /// The machine itself.
    Loopback,
    /// The machine's own network segment, where clouds keep their metadata services.
    LinkLocal,
    /// A cloud's metadata service outside the link-local range.
    Metadata,
    /// Many machines at once: multicast and broadcast.
    Multicast,
    /// No machine, or this one: `0.0.0.0/8` and `::`.
    Unspecified,
    /// One of the API server's addresses.
    ApiServer,
    /// Not reachable from everywhere: private, shared (`100.64.0.0/10`), unique-local and reserved
    /// ranges.
    Private,
    /// Anything else.
    Public,
}

impl AddressClass {
    /// Whether an import may go there only when its host is listed by name.
    #[must_use]
    pub const fn is_dangerous(self) -> bool {
        match self {
            Self::Loopback
            | Self::LinkLocal
            | Self::Metadata
            | Self::Multicast
            | Self::Unspecified
            | Self::ApiServer => true,
            Self::Private | Self::Public => false,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::Multicast => "a multicast address",
            Self::Unspecified => "the unspecified address",
            Self::ApiServer => "the API server's address",
            Self::Private => "a private address",
            Self::Public => "a public address",
        }
    }
}

impl fmt::Display for AddressClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Clouds' metadata services that are not link-local; what they hold is the node's credentials, or
/// those of a pod.
const METADATA: [IpAddr; 7] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

/// Classifies an address; one IPv4 address inside an IPv6 one counts as itself.
pub(crate) fn classify(address: IpAddr, api_servers: &[IpAddr]) -> AddressClass {
    let address = unwrap_v4(address);
    if api_servers.iter().any(|server| unwrap_v4(*server) == address) {
        return AddressClass::ApiServer;
    }
    if METADATA.contains(&address) {
        return AddressClass::Metadata;
    }
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

/// The IPv4 address that packets to `address` arrive at, where there is one: mapped
/// (`::ffff:0:0/96`), translated (`::ffff:0:0:0/96`), compatible (`::/96`), NAT64 (`64:ff9b::/96`)
/// and 6to4 (`2002::/16`).
fn unwrap_v4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let embedded = match v6.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => (high, low),
        // `::` and `::1` are themselves.
        [0, 0, 0, 0, 0, 0, high, low] if (high, low) > (0, 1) => (high, low),
        _ => return address,
    };
    IpAddr::V4(Ipv4Addr::from_bits(u32::from(embedded.0) << 16 | u32::from(embedded.1)))
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [0, ..] => AddressClass::Unspecified,
        [127, ..] => AddressClass::Loopback,
        [169, 254, ..] => AddressClass::LinkLocal,
        [224..=239, ..] | [255, 255, 255, 255] => AddressClass::Multicast,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        // Shared by carriers and clouds, protocol assignments, benchmarks, reserved.
        [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18..=19, ..] | [240..=255, ..] => {
            AddressClass::Private
        }
        _ => AddressClass::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Unique-local and site-local.
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => AddressClass::Private,
        [0x64, 0xff9b, 1, ..] => classify_local_nat64(address),
        _ => AddressClass::Public,
    }
}

/// NAT64 of the local network (RFC 8215): the most dangerous place that it may lead to, else
/// private. How long the network's own prefix is, and so where the IPv4 address is in it (RFC
/// 6052), only the network knows.
fn classify_local_nat64(address: Ipv6Addr) -> AddressClass {
    let bytes = address.octets();
    // Behind 48, 56 and 64 bits, without the eight bits in the middle, which are zero; behind 96.
    let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
    let mut classes = places.into_iter().map(|place| {
        let v4 = Ipv4Addr::from_octets(place.map(|at: usize| bytes[at]));
        // Padding around an address that is somewhere else reads as this.
        if v4.octets()[0] == 0 { AddressClass::Private } else { classify(v4.into(), &[]) }
    });
    classes.find(|class| class.is_dangerous()).unwrap_or(AddressClass::Private)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::AddressClass::{
        ApiServer, LinkLocal, Loopback, Metadata, Multicast, Private, Public, Unspecified,
    };
    use super::*;

    fn check(class: AddressClass, addresses: &[&str]) {
        for address in addresses {
            assert_eq!(classify(address.parse().unwrap(), &[]), class, "{address}");
        }
    }

    #[test]
    fn classes_of_ipv4() {
        check(Loopback, &["127.0.0.1", "127.255.255.254"]);
        check(LinkLocal, &["169.254.169.254", "169.254.0.1"]);
        check(Metadata, &["100.100.100.200", "168.63.129.16", "192.0.0.192"]);
        check(Multicast, &["224.0.0.1", "239.255.255.255", "255.255.255.255"]);
        check(Unspecified, &["0.0.0.0", "0.1.2.3"]);
        check(Private, &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"]);
        check(
            Private,
            &[
                "100.64.0.1",
                "100.127.255.255",
                "192.0.0.8",
                "198.18.0.1",
                "198.19.0.1",
                "240.0.0.1",
            ],
        );
        check(
            Public,
            &[
                "1.1.1.1",
                "100.63.255.255",
                "100.128.0.0",
                "172.15.0.1",
                "172.32.0.1",
                "169.253.0.1",
            ],
        );
        check(
            Public,
            &[
                "126.0.0.1",
                "128.0.0.1",
                "192.167.0.1",
                "198.17.0.1",
                "198.20.0.1",
                "223.255.255.255",
            ],
        );
    }

    #[test]
    fn classes_of_ipv6() {
        check(Loopback, &["::1"]);
        check(Unspecified, &["::"]);
        check(LinkLocal, &["fe80::1", "febf::1"]);
        check(Multicast, &["ff02::1", "ffff::1"]);
        check(Metadata, &["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"]);
        check(Private, &["fc00::1", "fdff::1", "fec0::1", "64:ff9b:1::1"]);
        check(Public, &["2606:4700::1111", "fbff::1", "2001:db8::1"]);
    }

    #[test]
    fn an_ipv4_address_inside_an_ipv6_one_is_itself() {
        check(Loopback, &["::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"]);
        check(LinkLocal, &["::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"]);
        check(Metadata, &["::ffff:100.100.100.200"]);
        check(Unspecified, &["::ffff:0.0.0.0", "64:ff9b::"]);
        check(Private, &["::ffff:10.0.0.1", "2002:a00:1::1"]);
        check(Public, &["::ffff:1.1.1.1", "64:ff9b::101:101"]);
        check(LinkLocal, &["::ffff:0:169.254.169.254"]);
        check(Unspecified, &["::2", "::0.0.255.255"]);
    }

    #[test]
    fn nat64_of_the_local_network_may_lead_to_an_address_in_several_places() {
        let metadata = ["64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:a9:fe:a9fe::"];
        check(LinkLocal, &metadata);
        check(LinkLocal, &["64:ff9b:1:0:a9:fea9:fe00:0", "64:ff9b:1::a9fe:a9fe"]);
        check(Metadata, &["64:ff9b:1::6464:64c8"]);
        check(Private, &["64:ff9b:1::a00:1", "64:ff9b:1::101:101"]);
    }

    #[test]
    fn the_api_server_is_known_in_either_form() {
        let mapped: IpAddr = "::ffff:10.96.0.1".parse().unwrap();
        let plain: IpAddr = "10.96.0.1".parse().unwrap();
        assert_eq!(classify(mapped, &[plain]), ApiServer);
        assert_eq!(classify(plain, &[mapped]), ApiServer);
        assert_eq!(classify("10.96.0.2".parse().unwrap(), &[plain]), Private);
    }

    proptest! {
        #[test]
        fn mapping_an_address_does_not_change_its_class(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(classify(v4.to_ipv6_mapped().into(), &[]), classify(v4.into(), &[]));
        }

        /// The standard library agrees wherever it has a stable opinion.
        #[test]
        fn as_the_standard_library_says(bits in any::<u32>()) {
            let (v4, class) = (Ipv4Addr::from_bits(bits), classify(Ipv4Addr::from_bits(bits).into(), &[]));
            prop_assert_eq!(v4.is_loopback(), class == Loopback);
            prop_assert_eq!(v4.is_link_local(), class == LinkLocal);
            prop_assert_eq!(v4.is_multicast() || v4.is_broadcast(), class == Multicast);
            prop_assert!(!v4.is_private() || class == Private);
        }
    }
}
