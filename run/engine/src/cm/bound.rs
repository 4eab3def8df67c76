//! A local address that an id holds before it listens or connects.

use std::io;
use std::net::SocketAddr;

use super::Service;
use crate::carrier::{self, DatagramSocket, Network, SocketOptions};

/// A socket that is bound, of the kind that the id's service takes.
#[derive(Debug)]
pub(super) enum Bound {
    Stream(Box<dyn carrier::Bound>),
    Datagrams(Box<dyn DatagramSocket>, SocketAddr),
}

impl Bound {
    /// Binds to `addr`; port 0 takes an ephemeral port.
    pub(super) fn bind(
        service: Service,
        network: &dyn Network,
        addr: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Bound> {
        match service {
            Service::Stream => Ok(Bound::Stream(network.bind(addr, options)?)),
            Service::Datagrams => {
                let socket = network.datagrams(addr, options, None)?;
                let local = socket.local_addr()?;
                Ok(Bound::Datagrams(socket, local))
            }
        }
    }

    /// The address it holds.
    pub(super) fn local_addr(&self) -> SocketAddr {
        match self {
            Bound::Stream(socket) => socket.local_addr(),
            Bound::Datagrams(_, local) => *local,
        }
    }
}
