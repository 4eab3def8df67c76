//! UDP (RFC 768).

use super::egress::IPV4_LEN;
use super::ingress::Addresses;
use super::{protocol, AddressState, Sink, Stack};
use crate::checksum::Checksum;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

const HEADER_LEN: usize = 8;

/// Octets of the longest datagram (RFC 768: its length counts the header, too), where IP has no options.
pub const PAYLOAD_OCTETS_MAX: usize = 65_535 - IPV4_LEN - HEADER_LEN;

/// Why a datagram was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// It is longer than [`PAYLOAD_OCTETS_MAX`].
    TooLong,
    /// No address of ours can reach it.
    NoRoute,
    /// It is to come from an address that is not the interface's.
    NotOurs,
    /// The queue of frames has no room for all of it.
    Full,
}

/// Whether a packet would leave at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// It would.
    Now,
    /// The hardware address that it goes to is asked for, since then; `room` more frames find a place to wait for it.
    Asking {
        /// When it was first asked for.
        since: Duration,
        /// Frames.
        room: usize,
    },
    /// Nothing leads there.
    Nowhere,
}

impl Stack {
    /// Datagrams to this port are taken. False when they are already.
    pub fn bind_udp(&mut self, port: u16) -> bool {
        self.udp_ports.insert(port)
    }

    /// Datagrams to this port are refused again.
    pub fn unbind_udp(&mut self, port: u16) {
        self.udp_ports.remove(&port);
    }

    /// Whether a datagram from one address to another would leave at once. If the neighbour's hardware address is what
    /// is missing, it is asked for.
    pub fn reach(&mut self, source: IpAddr, destination: IpAddr, now: Duration) -> Reach {
        if self.addresses.state(source) == Some(AddressState::Tentative) {
            // How long that takes its state tells; what waits then is kept, but for all destinations together.
            return Reach::Asking {
                since: now,
                room: 1,
            };
        }
        let is_group = matches!(destination, IpAddr::V6(group) if group.is_multicast());
        if is_group || self.addresses.is_usable(destination) {
            return Reach::Now;
        }
        let Some(hop) = self.config.next_hop(destination, self.router(now)) else {
            return Reach::Nowhere;
        };
        match self.neighbors.ask(hop, now) {
            None => Reach::Now,
            Some((since, room)) => Reach::Asking { since, room },
        }
    }

    /// Frames that a datagram from an address takes, with so many octets of payload.
    pub fn frames_of_datagram(&self, source: IpAddr, payload: usize) -> usize {
        self.frames_of(source, HEADER_LEN + payload)
    }

    /// Sends a datagram, in fragments where the link does not take it whole. From the unspecified address is from the
    /// one that suits the destination.
    ///
    /// # Errors
    /// See [`SendError`]; nothing was sent.
    pub fn send_udp(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), SendError> {
        let source = match local.ip() {
            ip if ip.is_unspecified() => self
                .config
                .source_for(remote.ip(), self.router(now))
                .ok_or(SendError::NoRoute)?,
            ip if self.addresses.state(ip).is_some() && ip.is_ipv6() == remote.is_ipv6() => ip,
            _ => return Err(SendError::NotOurs),
        };
        if payload.len() > PAYLOAD_OCTETS_MAX {
            return Err(SendError::TooLong);
        }
        let len = HEADER_LEN + payload.len();
        if self.queue.len() + self.frames_of(source, len) > self.config.queue {
            return Err(SendError::Full);
        }
        let mut octets = Vec::with_capacity(len);
        for field in [local.port(), remote.port(), len as u16, 0] {
            octets.extend_from_slice(&field.to_be_bytes());
        }
        octets.extend_from_slice(payload);
        let mut sum = Checksum::pseudo(source, remote.ip(), protocol::UDP, len);
        sum.add(&octets);
        let checksum = match sum.finish() {
            0 => 0xffff,
            checksum => checksum,
        };
        octets[6..8].copy_from_slice(&checksum.to_be_bytes());
        let sent = self.send_packet(source, remote.ip(), protocol::UDP, octets, now);
        if sent {
            Ok(())
        } else {
            Err(SendError::NoRoute)
        }
    }

    pub(super) fn udp(
        &mut self,
        addresses: &Addresses<'_>,
        octets: &[u8],
        checksum_good: bool,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        let Some(&[a, b, c, d, l0, l1, s0, s1]) = octets.first_chunk::<HEADER_LEN>() else {
            self.counters.malformed += 1;
            return;
        };
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        let Some(octets) = octets
            .get(..len)
            .filter(|octets| octets.len() >= HEADER_LEN)
        else {
            self.counters.malformed += 1;
            return;
        };
        // IPv4 allows to do without (RFC 768), IPv6 does not (RFC 8200 section 8.1).
        let without = [s0, s1] == [0, 0] && addresses.source.is_ipv4();
        if !without && !checksum_good && !addresses.checksum_is_valid(protocol::UDP, octets) {
            self.counters.bad_checksum += 1;
            return;
        }
        let port = u16::from_be_bytes([c, d]);
        if self.udp_ports.contains(&port) {
            let local = SocketAddr::new(addresses.own, port);
            let remote = SocketAddr::new(addresses.source, u16::from_be_bytes([a, b]));
            sink.datagram(local, remote, &octets[HEADER_LEN..]);
        } else if !addresses.group {
            self.port_unreachable(addresses.source, addresses.own, addresses.packet, now);
        }
    }
}
