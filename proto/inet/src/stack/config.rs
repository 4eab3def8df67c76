//! What an interface is told.

use super::frame::Mac;
use crate::tcp::{Limits, Secret};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Config {
    /// The address.
    pub address: Ipv4Addr,
    /// Bits of the network.
    pub prefix: u8,
    /// Where all else goes.
    pub gateway: Option<Ipv4Addr>,
}

/// An IPv6 address of an interface, besides the link-local one that follows from the hardware address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Config {
    /// The address.
    pub address: Ipv6Addr,
    /// Bits of the network.
    pub prefix: u8,
    /// Where all else goes. Without it a router that advertises itself is taken.
    pub gateway: Option<Ipv6Addr>,
}

/// An interface. Every bound on the memory of its stack is here or in a connection's [`crate::tcp::Config`].
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Hardware address.
    pub mac: Mac,
    /// IPv4, if it is to be spoken.
    pub ipv4: Option<Ipv4Config>,
    /// IPv6, if it is to be spoken.
    pub ipv6: Option<Ipv6Config>,
    /// Octets of the largest IP packet.
    pub mtu: u32,
    /// What unguessable numbers come from.
    pub secret: Secret,
    /// Connections and the like.
    pub limits: Limits,
    /// Neighbours remembered.
    pub neighbors: usize,
    /// Octets of datagrams coming together from fragments.
    pub reassembly: usize,
    /// Frames made by the stack itself that wait to be sent.
    pub queue: usize,
}

impl StackConfig {
    /// An interface with these addresses and usual bounds.
    pub fn new(
        mac: Mac,
        ipv4: Option<Ipv4Config>,
        ipv6: Option<Ipv6Config>,
        secret: Secret,
    ) -> StackConfig {
        StackConfig {
            mac,
            ipv4,
            ipv6,
            mtu: 1500,
            secret,
            limits: Limits::default(),
            neighbors: 1024,
            reassembly: 1 << 20,
            queue: 256,
        }
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

    /// The interface's own addresses include this one.
    pub fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.ipv4.is_some_and(|own| own.address == address),
            IpAddr::V6(address) => self
                .ipv6
                .is_some_and(|own| own.address == address || self.link_local() == address),
        }
    }

    /// The address to use towards another.
    pub fn source_for(&self, destination: IpAddr) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(_) => self.ipv4.map(|own| IpAddr::V4(own.address)),
            IpAddr::V6(to) if is_link_local(to) => self.ipv6.map(|_| IpAddr::V6(self.link_local())),
            IpAddr::V6(_) => self.ipv6.map(|own| IpAddr::V6(own.address)),
        }
    }

    /// The neighbour through which an address is reached; `router` is one that advertised itself.
    pub fn next_hop(&self, destination: IpAddr, router: Option<Ipv6Addr>) -> Option<IpAddr> {
        match destination {
            IpAddr::V4(to) => {
                let own = self.ipv4?;
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(own.prefix.min(32)))
                    .unwrap_or(0);
                let near = (u32::from(to) ^ u32::from(own.address)) & mask == 0;
                if near {
                    Some(destination)
                } else {
                    own.gateway.map(IpAddr::V4)
                }
            }
            IpAddr::V6(to) => {
                let own = self.ipv6?;
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(own.prefix.min(128)))
                    .unwrap_or(0);
                let near = (u128::from(to) ^ u128::from(own.address)) & mask == 0;
                if near || is_link_local(to) {
                    return Some(destination);
                }
                own.gateway.or(router).map(IpAddr::V6)
            }
        }
    }
}

/// fe80::/10.
pub(super) fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

/// The group of all nodes whose addresses end alike (RFC 4291 section 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let octets = address.octets();
    let mut group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0).octets();
    group[13..].copy_from_slice(&octets[13..]);
    Ipv6Addr::from(group)
}
