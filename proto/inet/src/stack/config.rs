//! What an interface is told.

use super::cidr::Cidr;
use super::frame::Mac;
use crate::tcp::{Limits, Secret};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::{IpAddr, Ipv6Addr};

/// Which neighbour leads to addresses beyond the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The network it leads to; `0.0.0.0/0` or `::/0` for all else.
    pub destination: Cidr,
    /// The neighbour.
    pub gateway: IpAddr,
}

/// An interface. Every bound on the memory of its stack is here or in a connection's [`crate::tcp::Config`].
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Hardware address.
    pub mac: Mac,
    /// Its addresses. With one of IPv6 among them there is also the link-local one that follows from the hardware
    /// address.
    pub addresses: Vec<Cidr>,
    /// Ways beyond the link. IPv6 also takes a router that advertises itself, where no route leads.
    pub routes: Vec<Route>,
    /// Solicitations, one second apart, that ask whether somebody else has an IPv6 address before it is used (RFC 4862
    /// section 5.1, DupAddrDetectTransmits); 0 uses it unasked.
    pub dad_transmits: u32,
    /// Octets of the largest IP packet.
    pub mtu: u32,
    /// What unguessable numbers come from.
    pub secret: Secret,
    /// Connections and the like.
    pub limits: Limits,
    /// Neighbours remembered.
    pub neighbors: usize,
    /// Octets of memory for datagrams that come together from fragments.
    pub reassembly: usize,
    /// Frames made by the stack itself that wait to be sent.
    pub queue: usize,
}

impl StackConfig {
    /// An interface with these addresses, no routes and usual bounds.
    pub fn new(mac: Mac, addresses: Vec<Cidr>, secret: Secret) -> StackConfig {
        StackConfig {
            mac,
            addresses,
            routes: Vec::new(),
            dad_transmits: 1,
            mtu: 1500,
            secret,
            limits: Limits::default(),
            neighbors: 1024,
            reassembly: 1 << 20,
            queue: 256,
        }
    }

    /// It has an address of IPv6.
    pub fn speaks_ipv6(&self) -> bool {
        self.addresses.iter().any(|own| own.address.is_ipv6())
    }

    /// The link-local address (RFC 4291 appendix A).
    pub fn link_local(&self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.mac;
        Ipv6Addr::from([
            0xfe,
            0x80,
            0,
            0,
            0,
            0,
            0,
            0,
            a ^ 2,
            b,
            c,
            0xff,
            0xfe,
            d,
            e,
            f,
        ])
    }

    /// The address to use towards another, `router` being one that advertised itself: the destination's own when it is
    /// ours, else the one whose network the next hop is in, else the first of the version (RFC 6724 rules 1, 2 and 5).
    pub fn source_for(&self, destination: IpAddr, router: Option<Ipv6Addr>) -> Option<IpAddr> {
        let of_version = |own: &&Cidr| own.address.is_ipv6() == destination.is_ipv6();
        if self.addresses.iter().any(|own| own.address == destination) {
            return Some(destination);
        }
        if is_link_local(destination) {
            return self.speaks_ipv6().then(|| IpAddr::V6(self.link_local()));
        }
        let hop = self.next_hop(destination, router)?;
        let near = self.addresses.iter().filter(|own| own.contains(hop));
        near.min_by_key(|own| Reverse(own.prefix))
            .or_else(|| self.addresses.iter().find(of_version))
            .map(|own| own.address)
    }

    /// The neighbour through which an address is reached, the longest prefix deciding; none where no route leads.
    pub fn next_hop(&self, destination: IpAddr, router: Option<Ipv6Addr>) -> Option<IpAddr> {
        if is_link_local(destination) {
            return self.speaks_ipv6().then_some(destination);
        }
        let near = self
            .addresses
            .iter()
            .filter(|own| own.contains(destination));
        let near = near.map(|own| (own.prefix, true, destination));
        let far = self.routes.iter();
        let far = far.filter(|route| route.destination.contains(destination));
        let far = far.map(|route| (route.destination.prefix, false, route.gateway));
        // Of two that are equally long the link itself is nearer.
        let best = near
            .chain(far)
            .min_by_key(|(prefix, near, _)| Reverse((*prefix, *near)));
        let advertised = || match destination {
            IpAddr::V6(_) if self.speaks_ipv6() => router.map(IpAddr::V6),
            _ => None,
        };
        best.map(|(.., hop)| hop).or_else(advertised)
    }
}

/// fe80::/10.
pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.segments()[0] & 0xffc0 == 0xfe80)
}

/// The group of all nodes whose addresses end alike (RFC 4291 section 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let octets = address.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&octets[13..]);
    Ipv6Addr::from(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn config() -> StackConfig {
        let addresses = ["10.0.0.1/24", "10.0.0.9/24", "192.168.7.1/16", "fd00::1/64"];
        let addresses = addresses.map(|text| text.parse().unwrap()).to_vec();
        let route = |destination: &str, gateway| Route {
            destination: destination.parse().unwrap(),
            gateway: ip(gateway),
        };
        StackConfig {
            routes: vec![
                route("0.0.0.0/0", "10.0.0.254"),
                route("172.16.0.0/12", "192.168.0.254"),
                route("172.16.5.0/24", "10.0.0.253"),
                route("10.0.0.0/24", "10.0.0.252"),
                route("fd01::/16", "fd00::fe"),
            ],
            ..StackConfig::new([2, 0, 0, 0, 0, 1], addresses, Secret([0; 16]))
        }
    }

    #[test]
    fn the_longest_prefix_leads_and_the_link_before_a_gateway() {
        let config = config();
        for (to, hop) in [
            ("10.0.0.77", "10.0.0.77"),
            ("8.8.8.8", "10.0.0.254"),
            ("172.16.1.1", "192.168.0.254"),
            ("172.16.5.1", "10.0.0.253"),
            ("192.168.200.1", "192.168.200.1"),
            ("fd00::2", "fd00::2"),
            ("fd01::2", "fd00::fe"),
            ("fe80::7", "fe80::7"),
        ] {
            assert_eq!(config.next_hop(ip(to), None), Some(ip(hop)), "{to}");
        }
        assert_eq!(config.next_hop(ip("2001::1"), None), None);
        let router = "fe80::99".parse().ok();
        assert_eq!(config.next_hop(ip("2001::1"), router), Some(ip("fe80::99")));
        let without_ipv6 = StackConfig {
            addresses: vec![Cidr::new([10, 0, 0, 1], 24)],
            ..config
        };
        assert_eq!(without_ipv6.next_hop(ip("fe80::7"), router), None);
        assert_eq!(without_ipv6.next_hop(ip("2001::1"), router), None);
    }

    #[test]
    fn the_source_is_of_the_next_hops_network() {
        let config = config();
        let link_local = config.link_local();
        let router = "fe80::99".parse().ok();
        for (to, source) in [
            ("10.0.0.77", "10.0.0.1"),
            ("10.0.0.9", "10.0.0.9"),
            ("8.8.8.8", "10.0.0.1"),
            ("172.16.1.1", "192.168.7.1"),
            ("fd00::2", "fd00::1"),
            ("2001::1", "fd00::1"),
        ] {
            assert_eq!(config.source_for(ip(to), router), Some(ip(source)), "{to}");
        }
        let towards = config.source_for(ip("fe80::7"), None);
        assert_eq!(towards, Some(IpAddr::V6(link_local)));
        assert_eq!(config.source_for(ip("2001::1"), None), None);
    }
}
