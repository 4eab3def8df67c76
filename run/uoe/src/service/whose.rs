//! Whose datagrams a carrier is for: which process is at its other end, at which host, and which sockets.

use std::net::{IpAddr, SocketAddr};

use weft_os::net::source_apart;
use weft_uoe::greeting::Instance;
use weft_uoe::End;

use super::side::Side;

impl Side {
    /// Whether addresses on it are those of the connection, unproven; as far as this end has a say in it before the
    /// other one's greeting is there.
    pub(crate) fn is_without_udp(&self) -> bool {
        let peer = self.carrier.peer();
        self.own.without_udp && peer.map_or(!self.is_accepted, |peer| peer.without_udp)
    }

    /// What it is for, as the end said that connected it.
    pub(crate) fn policy(&self) -> Option<u64> {
        match self.is_accepted {
            false => Some(self.own.policy),
            true => self.carrier.peer().map(|peer| peer.policy),
        }
    }

    /// Whether it is for sockets whose datagrams come from this address, or, for none, from the kernel's choice.
    pub(crate) fn is_from(&self, bound: Option<IpAddr>) -> bool {
        match bound {
            // The adapter has addresses of its own, whatever sockets are bound to.
            _ if self.wire.is_adapters() => true,
            None => self.bound.is_none(),
            Some(bound) if self.is_accepted => self.here.ip().to_canonical() == bound,
            bound => self.bound == bound,
        }
    }

    /// Which process the other end is, as far as that is known.
    pub(crate) fn peer(&self) -> Option<Instance> {
        let peer = self.carrier.peer().map(|peer| peer.instance);
        peer.or(self.connects_to)
    }

    /// Whether a socket at this end is the other process's: a channel goes to it, or one comes from it. The connection
    /// has to be with that host: what a carrier's other end says of itself is no proof, and a source may be forged.
    pub(crate) fn leads_to(&self, to: End) -> bool {
        let mut own = self.own_channels.values();
        let goes_there = own.any(|channel| channel.is_open && End::from(channel.wanted.to) == to);
        let mut peers = self.peer_channels.values();
        let mut comes_from =
            || peers.any(|channel| channel.source.is_some_and(|(from, _)| from == to));
        let host = if self.wire.is_adapters() {
            self.host
        } else {
            Some(self.there)
        };
        host == Some(to.address()) && (goes_there || comes_from())
    }

    /// The address that sockets here have for others which are bound to none. The adapter has none for UDP.
    pub(crate) fn here_towards(&self, to: SocketAddr) -> SocketAddr {
        let kernels = match self.wire.is_adapters() {
            true => source_apart(to).ok(),
            false => None,
        };
        kernels.map_or(self.here, |address| SocketAddr::new(address, 0))
    }
}
