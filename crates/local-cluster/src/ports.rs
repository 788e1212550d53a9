//! Free ports on loopback that stay ours.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use socket2::{Domain, Socket, Type};

/// A port that nobody else is given while this lives.
///
/// Asking the kernel for a free port and closing it again leaves a moment in which another cluster may be given the
/// same one. This socket stays bound and never listens; the program that is to listen there binds it a second time
/// with SO_REUSEPORT, which the kernel allows to the same user only.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    _bound: Socket,
    address: SocketAddr,
}

impl ReservedPort {
    /// Reserves a free port of 127.0.0.1. The listener must set SO_REUSEPORT.
    pub(crate) fn on_loopback() -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let address = socket.local_addr()?.as_socket();
        Ok(Self { address: address.expect("an IPv4 socket has an IPv4 address"), _bound: socket })
    }

    /// The address with its port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_reserved_port_is_not_given_twice() {
        let reserved: Vec<_> = (0..200).map(|_| ReservedPort::on_loopback().unwrap()).collect();
        let distinct: BTreeSet<_> = reserved.iter().map(ReservedPort::address).collect();
        assert_eq!(distinct.len(), reserved.len());
    }

    #[test]
    fn a_reserved_port_is_refused_to_a_plain_listener() {
        let reserved = ReservedPort::on_loopback().unwrap();
        let error = std::net::TcpListener::bind(reserved.address()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_listener_that_shares_the_port_gets_the_connections() {
        let reserved = ReservedPort::on_loopback().unwrap();
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.set_reuse_port(true).unwrap();
        listener.bind(&reserved.address().into()).unwrap();
        listener.listen(64).unwrap();
        for _ in 0..20 {
            std::net::TcpStream::connect(reserved.address()).unwrap();
        }
    }
}
