//! Whose datagrams a carrier is for: which process is at its other end, at which host, and which sockets.

use std::net::{IpAddr, SocketAddr};

use weft_os::net::source_apart;
use weft_uoe::greeting::Instance;
use weft_uoe::End;

use super::rates::rated;
use super::side::Side;
use crate::port::Held;

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

    /// Whether it is the carrier of this socket, or for all that have none of their own.
    pub(crate) fn is_for(&self, port: Held) -> bool {
        self.rated == rated(port)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::channels::PeerChannel;
    use crate::service::greeting::{greeting, Use};
    use crate::service::wire::Wire;
    use crate::Port;
    use std::time::Duration;
    use weft_adapter::{cable, Driver, Inline, Interface};
    use weft_engine::carrier::{Network, SocketOptions};

    const VICTIM: [u8; 4] = [192, 0, 2, 7];

    /// A carrier from somebody's adapter, with a channel that comes from the victim, says a proof, which may be forged.
    fn carrier() -> Side {
        weft_os::process::watch();
        let (link, _other) = cable::pair().unwrap();
        let interface = Interface {
            name: "cable".to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            addresses: vec!["10.8.0.1/24".parse().unwrap()],
            routes: Vec::new(),
            dad_transmits: 0,
            rules: weft_settings::TransportRules::default(),
        };
        let driver = Driver::new(interface, Box::new(link)).unwrap();
        let network = Inline::new(vec![driver], Vec::new());
        let to = SocketAddr::from(([10, 8, 0, 2], 22342));
        let connection = network.connect(to, &SocketOptions::default()).unwrap();
        let use_of = Use {
            over_adapter: true,
            ..Use::default()
        };
        let own = greeting(Instance(1), None, use_of);
        let wire = Wire::Adapter(connection);
        let mut side = Side::accepted(wire, own, Duration::ZERO).unwrap();
        let port: &'static Port = Box::leak(Box::default());
        port.begin(false, None);
        let from = End::new(VICTIM.into(), 4000);
        let channel = PeerChannel {
            port: port.held(),
            target: from,
            nonce: [0; 16],
            source: Some((from, 0)),
            age: None,
            behind: std::collections::VecDeque::new(),
            behind_since: Duration::ZERO,
            barrier: None,
        };
        side.add_peer_channel(1, channel);
        side
    }

    #[test]
    fn an_adapter_leads_to_a_host_that_has_vouched_for_it_alone() {
        let mut side = carrier();
        let victim = End::new(VICTIM.into(), 4000);
        assert!(!side.leads_to(victim), "a source may be forged");
        side.host = Some([192, 0, 2, 8].into());
        assert!(!side.leads_to(victim), "somebody else has");
        side.host = Some(VICTIM.into());
        assert!(side.leads_to(victim));
        assert!(!side.leads_to(End::new(VICTIM.into(), 4001)));
    }
}
