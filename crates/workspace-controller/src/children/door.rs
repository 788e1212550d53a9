//! Both sides of a door in a network policy. What cannot be read is no door: nothing is opened by mistake.

use std::net::Ipv6Addr;

use ipnet::{IpNet, Ipv6Net};
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use otctl_types::workspace::network::{
    DoorPort, Operator, Peer, Requirement, Selector, metadata_addresses,
};

/// Who is at the other side.
pub(super) fn peer(peer: &Peer) -> Option<NetworkPolicyPeer> {
    if let Some(cidr) = &peer.cidr {
        return cidr.parse().ok().and_then(addresses);
    }
    let peer = NetworkPolicyPeer {
        namespace_selector: peer.namespace_selector.as_ref().map(selector),
        pod_selector: peer.pod_selector.as_ref().map(selector),
        ip_block: None,
    };
    (peer != NetworkPolicyPeer::default()).then_some(peer)
}

/// IPv4 in the clothes of IPv6: a network policy takes such addresses for the IPv4 ones, and `/96` of them for all.
const MAPPED: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96);

/// Addresses, but for those at which clouds hand out the credentials of their machines. Some of those alone are no door:
/// what is excepted must be a part of the rest, and there is no rest.
fn addresses(cidr: IpNet) -> Option<NetworkPolicyPeer> {
    let cidr = cidr.trunc();
    let metadata = metadata_addresses();
    let metadata: Vec<IpNet> = metadata.iter().filter_map(|it| it.parse().ok()).collect();
    if metadata.iter().chain([&MAPPED.into()]).any(|it| it.contains(&cidr)) {
        return None;
    }
    let inside = metadata.iter().filter(|it| cidr.contains(*it));
    let mut except: Vec<_> = inside.map(ToString::to_string).collect();
    except.sort();
    Some(block(cidr, Some(except).filter(|except| !except.is_empty())))
}

/// Addresses as they are.
pub(super) fn block(cidr: IpNet, except: Option<Vec<String>>) -> NetworkPolicyPeer {
    let ip_block = IPBlock { cidr: cidr.trunc().to_string(), except };
    NetworkPolicyPeer { ip_block: Some(ip_block), ..NetworkPolicyPeer::default() }
}

fn selector(selector: &Selector) -> LabelSelector {
    let mut requirements: Vec<_> = selector.match_expressions.iter().map(requirement).collect();
    requirements.sort_by_key(|it| (it.key.clone(), it.operator.clone(), it.values.clone()));
    requirements.dedup();
    LabelSelector {
        match_labels: Some(selector.match_labels.clone()).filter(|labels| !labels.is_empty()),
        match_expressions: Some(requirements).filter(|all| !all.is_empty()),
    }
}

fn requirement(requirement: &Requirement) -> LabelSelectorRequirement {
    let operator = match requirement.operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
    };
    let mut values = requirement.values.clone();
    values.sort();
    values.dedup();
    LabelSelectorRequirement {
        key: requirement.key.clone(),
        operator: operator.to_owned(),
        values: Some(values).filter(|values| !values.is_empty()),
    }
}

/// The ports of a door; none are all.
pub(super) fn ports(ports: &[DoorPort]) -> Option<Vec<NetworkPolicyPort>> {
    let mut sorted: Vec<_> = ports.iter().collect();
    sorted.sort_by_key(|port| (port.port, port.protocol, port.end_port));
    sorted.dedup();
    let ports: Vec<_> = sorted
        .into_iter()
        .map(|port| NetworkPolicyPort {
            port: Some(IntOrString::Int(port.port)),
            end_port: port.end_port,
            protocol: Some(port.protocol.as_str().to_owned()),
        })
        .collect();
    Some(ports).filter(|ports| !ports.is_empty())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn check(cidr: &str, except: Option<&[&str]>) {
        let door = Peer { cidr: Some(cidr.to_owned()), ..Peer::default() };
        let cut = peer(&door).and_then(|peer| peer.ip_block).map(|block| block.except);
        let expected =
            except.map(|except| Some(except.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()));
        let expected = expected.map(|except| except.filter(|except| !except.is_empty()));
        assert_eq!(cut, expected, "{cidr}");
    }

    #[test]
    fn metadata_addresses_are_cut_out_of_every_door_that_holds_them() {
        let mut all = metadata_addresses();
        all.sort_unstable();
        let all = all.iter().map(String::as_str);
        let (v4, v6): (Vec<_>, Vec<_>) = all.partition(|it| it.contains('.'));
        check("0.0.0.0/0", Some(&v4));
        check("::/0", Some(&v6));
        check("10.0.0.0/8", Some(&[]));
        check("169.254.169.0/24", Some(&["169.254.169.254/32"]));
        check("169.254.169.254/31", Some(&["169.254.169.254/32"]));
        check(
            "169.254.168.0/22",
            Some(&["169.254.169.254/32", "169.254.170.2/32", "169.254.170.23/32"]),
        );
        check("fd00:ec2::/32", Some(&["fd00:ec2::23/128", "fd00:ec2::254/128"]));
        check("2001:db8::/32", Some(&[]));
        check(
            "64:ff9b::a9fe:0/112",
            Some(&[
                "64:ff9b::a9fe:17/128",
                "64:ff9b::a9fe:2a2a/128",
                "64:ff9b::a9fe:a9fe/128",
                "64:ff9b::a9fe:aa02/128",
                "64:ff9b::a9fe:aa17/128",
            ]),
        );
        check("2002:a9fe:a9fe::/47", Some(&["2002:a9fe:a9fe::/48"]));
    }

    #[test]
    fn a_door_that_is_a_metadata_address_is_none_however_it_is_written() {
        metadata_addresses().iter().for_each(|address| check(address, None));
        for within in ["fd00:0ec2:0:0::0254/128", "2002:a9fe:a9fe:1::/64", "2002:a9fe:a9fe::1/128"]
        {
            check(within, None);
        }
        for mapped in ["::ffff:a9fe:a9fe/128", "::ffff:169.254.169.254/128", "::ffff:0:0/96"] {
            check(mapped, None);
        }
    }

    /// By which addresses an IPv4 one is reached, but for prefixes that only a site knows.
    fn ways_to(address: IpAddr) -> Vec<IpAddr> {
        let IpAddr::V4(v4) = address else { return vec![address] };
        let number = u128::from(u32::from(v4));
        // Not by mapped ones: what is sent there is IPv4, to which no door of IPv6 leads.
        let all = [0x64_ff9b << 96, 0x64_ff9b_0001 << 80, 0, 0xffff << 48];
        let all = all.map(|prefix| IpAddr::from(Ipv6Addr::from(prefix | number)));
        let six_to_four = [0, 1, u128::from(u64::MAX), (1 << 80) - 1];
        let six_to_four =
            six_to_four.map(|host| Ipv6Addr::from(0x2002 << 112 | number << 80 | host).into());
        [address].into_iter().chain(all).chain(six_to_four).collect()
    }

    /// Every door of every length around every address.
    #[test]
    fn no_door_leads_to_a_metadata_address_by_any_way_and_every_other_address_is_left() {
        let metadata = metadata_addresses();
        let natives = metadata.iter().map(|it| it.parse::<IpNet>().unwrap().addr());
        for way in natives.flat_map(ways_to) {
            let most = IpNet::from(way).max_prefix_len();
            for length in 0..=most {
                let door = IpNet::new(way, length).unwrap().trunc();
                let block = addresses(door).map(|peer| peer.ip_block.unwrap());
                let Some(block) = block else { continue };
                let except = block.except.unwrap_or_default();
                let except: Vec<IpNet> = except.iter().map(|it| it.parse().unwrap()).collect();
                assert!(except.iter().any(|it| it.contains(&way)), "{door} leads to {way}");
                for cut in &except {
                    assert!(door.contains(cut) && door != *cut, "{door} without {cut}");
                    assert!(metadata.contains(&cut.to_string()), "{cut}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_read_opens_nothing() {
        for cidr in ["10.0.0.0", "10.0.0.0/33", "", "any"] {
            check(cidr, None);
        }
        assert_eq!(peer(&Peer::default()), None);
    }

    #[test]
    fn addresses_are_written_in_one_way() {
        let door = Peer { cidr: Some("2001:DB8:0::1/32".to_owned()), ..Peer::default() };
        assert_eq!(peer(&door).unwrap().ip_block.unwrap().cidr, "2001:db8::/32");
    }
}
