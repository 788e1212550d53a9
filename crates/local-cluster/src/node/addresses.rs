//! Pod addresses.
//!
//! A pod that runs as a process gets an address of 127/8 that it can really listen on. Endpoints in
//! 127/8 are refused by the API server, so pods that are only reported Running get one of the blocks
//! set aside for documentation.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};

/// A UDP port that is bound on each address in use, so that clusters that run side by side on this
/// machine never share an address.
const CLAIM_PORT: u16 = 48_151;
/// 127.16.0.0 up to 127.239.255.255: clear of 127.0.0.1, resolvers and a host's own use.
const LOOPBACK: std::ops::Range<u32> = 0x7f10_0000..0x7ff0_0000;
const DOCUMENTATION: [[u8; 3]; 3] = [[192, 0, 2], [198, 51, 100], [203, 0, 113]];

/// Gives addresses to pods and takes them back. Clones share one pool.
#[derive(Clone, Default)]
pub struct AddressPool {
    service: Arc<Mutex<BTreeSet<Ipv4Addr>>>,
}

/// An address in use; dropping it gives it back.
pub(super) enum PodAddress {
    Loopback(Ipv4Addr, #[expect(dead_code, reason = "held bound, never used")] UdpSocket),
    Service(Ipv4Addr, AddressPool),
}

impl PodAddress {
    pub(super) fn ip(&self) -> IpAddr {
        match self {
            Self::Loopback(ip, _) | Self::Service(ip, _) => IpAddr::V4(*ip),
        }
    }
}

impl Drop for PodAddress {
    fn drop(&mut self) {
        if let Self::Service(ip, pool) = self {
            pool.in_use(|taken| taken.remove(ip));
        }
    }
}

impl AddressPool {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// An address of 127/8 that no other pod on this machine has.
    pub(super) fn loopback(&self) -> Option<PodAddress> {
        (0..4096).find_map(|_| {
            let ip = Ipv4Addr::from(rand::random_range(LOOPBACK));
            let claim = UdpSocket::bind((ip, CLAIM_PORT)).ok()?;
            Some(PodAddress::Loopback(ip, claim))
        })
    }

    /// An address that endpoints may carry and nothing listens on.
    pub(super) fn service(&self) -> Option<PodAddress> {
        let candidates = DOCUMENTATION
            .into_iter()
            .flat_map(|[a, b, c]| (1..255).map(move |d| Ipv4Addr::new(a, b, c, d)));
        let free =
            |taken: &mut BTreeSet<Ipv4Addr>| candidates.into_iter().find(|ip| taken.insert(*ip));
        self.in_use(free).map(|ip| PodAddress::Service(ip, self.clone()))
    }

    fn in_use<T>(&self, change: impl FnOnce(&mut BTreeSet<Ipv4Addr>) -> T) -> T {
        change(&mut self.service.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pools_never_give_the_same_loopback_address() {
        let (one, two) = (AddressPool::new(), AddressPool::new());
        let held: Vec<_> =
            (0..50).filter_map(|_| Some([one.loopback()?, two.loopback()?])).collect();
        let distinct: BTreeSet<_> = held.iter().flatten().map(PodAddress::ip).collect();
        assert_eq!(distinct.len(), 100);
        assert!(distinct.iter().all(IpAddr::is_loopback));
    }

    #[test]
    fn a_service_address_is_given_again_after_it_came_back() {
        let pool = AddressPool::new();
        let held: Vec<_> = std::iter::from_fn(|| pool.service()).collect();
        assert_eq!(held.len(), 3 * 254);
        drop(held);
        assert_eq!(
            pool.service().map(|address| address.ip().to_string()).as_deref(),
            Some("192.0.2.1")
        );
    }
}
