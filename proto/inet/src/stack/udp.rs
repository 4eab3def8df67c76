//! UDP (RFC 768): what the adapter answers itself.

use super::ingress::Addresses;
use super::{protocol, Sink, Stack};
use crate::checksum::Checksum;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

const HEADER_LEN: usize = 8;

/// Why a datagram was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// It is larger than a packet may be; fragments are not made.
    TooLong,
    /// No address of ours can reach it.
    NoRoute,
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

    /// Sends a datagram.
    pub fn send_udp(
        &mut self,
        port: u16,
        remote: SocketAddr,
        payload: &[u8],
        now: Duration,
    ) -> Result<(), SendError> {
        let source = self
            .config
            .source_for(remote.ip(), self.router(now))
            .ok_or(SendError::NoRoute)?;
        let header = if remote.is_ipv6() { 40 } else { 20 };
        let len = HEADER_LEN + payload.len();
        if header + len > self.config.mtu as usize {
            return Err(SendError::TooLong);
        }
        let mut octets = Vec::with_capacity(len);
        for field in [port, remote.port(), len as u16, 0] {
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
