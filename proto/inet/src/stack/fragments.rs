//! Packets of the stack's own that are longer than a link takes leave in fragments (RFC 791 section 3.2, RFC 8200
//! section 4.5). TCP needs none: its segments fit.

use super::egress::{IPV4_LEN, IPV6_LEN};
use super::frame::{Frame, Head, Payload, VnetHeader};
use super::{protocol, Stack};
use crate::checksum;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;

/// What every path of IPv6 takes (RFC 8200 section 5): of the path beyond the link nothing is known here.
const IPV6_MTU_MIN: usize = 1280;
/// The header that says which part of an IPv6 packet this is.
const FRAGMENT_LEN: usize = 8;
/// Offsets count in so many octets; all fragments but the last hold a multiple of them.
const UNIT: usize = 8;
/// More fragments follow, in the field of IPv4.
const MORE: u16 = 0x2000;
/// The greatest length of a packet (RFC 791 section 3.1, RFC 8200 section 3).
const PACKET_OCTETS_MAX: usize = 65_535;

/// Which part of a packet a fragment is.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    more: bool,
    identification: u32,
}

impl Stack {
    /// Sends a packet in as many fragments as it takes: all of them, or, where they find no room in the queue, none.
    /// Says whether they leave.
    pub(super) fn send_in_fragments(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        octets: &[u8],
        now: Duration,
    ) -> bool {
        let each = self.fragment_octets(source);
        let count = octets.len().div_ceil(each.max(1));
        // The length of an IPv4 packet counts its header, that of an IPv6 packet does not.
        let header = if source.is_ipv4() { IPV4_LEN } else { 0 };
        let fits = each > 0 && header + octets.len() <= PACKET_OCTETS_MAX;
        if !fits || self.queue.len() + count > self.config.queue {
            self.counters.not_sent += 1;
            return false;
        }
        let identification = self.fragment_identification(source, destination);
        for (number, payload) in octets.chunks(each).enumerate() {
            let part = Part {
                offset: number * each,
                more: number + 1 < count,
                identification,
            };
            let head = self.fragment_head(source, destination, protocol, payload.len(), part);
            let Some(head) = head else {
                self.counters.not_sent += 1;
                return false;
            };
            let frame = Frame {
                head,
                payload: Payload::Octets(Vec::from(payload)),
                vnet: VnetHeader::default(),
                looped: false,
            };
            let frame = self.towards(source, destination, frame, None, now);
            frame.into_iter().for_each(|frame| self.enqueue(frame));
        }
        true
    }

    /// Octets behind the headers of a fragment from this address.
    fn fragment_octets(&self, source: IpAddr) -> usize {
        let mtu = self.config.mtu as usize;
        let (headers, mtu) = match source {
            IpAddr::V4(_) => (IPV4_LEN, mtu),
            IpAddr::V6(_) => (IPV6_LEN + FRAGMENT_LEN, mtu.min(IPV6_MTU_MIN)),
        };
        mtu.saturating_sub(headers) / UNIT * UNIT
    }

    /// Frames that a packet of the stack's own takes, with so many octets behind the IP header.
    pub(super) fn frames_of(&self, source: IpAddr, octets: usize) -> usize {
        let header = match source {
            IpAddr::V4(_) => IPV4_LEN,
            IpAddr::V6(_) => IPV6_LEN,
        };
        match header + octets <= self.config.mtu as usize {
            true => 1,
            false => octets.div_ceil(self.fragment_octets(source).max(1)),
        }
    }

    /// What tells the fragments of one packet from those of others; strangers cannot know it (RFC 7739).
    fn fragment_identification(&mut self, source: IpAddr, destination: IpAddr) -> u32 {
        self.fragmented = self.fragmented.wrapping_add(1);
        let secret = self.config.secret;
        secret.fragment_identification(source, destination, self.fragmented)
    }

    /// Ethernet and IP header of a fragment with `len` octets behind them.
    fn fragment_head(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        len: usize,
        part: Part,
    ) -> Option<Head> {
        let offset = u16::try_from(part.offset).ok()?;
        if source.is_ipv4() {
            let mut head = self.ip_head(source, destination, protocol, len)?;
            let start = head.len() - IPV4_LEN;
            let ip = &mut head[start..];
            let more = if part.more { MORE } else { 0 };
            let field = (offset / UNIT as u16) | more;
            ip[4..6].copy_from_slice(&(part.identification as u16).to_be_bytes());
            ip[6..8].copy_from_slice(&field.to_be_bytes());
            ip[10..12].fill(0);
            let checksum = checksum::of(ip);
            ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            return Some(head);
        }
        let mut head = self.ip_head(source, destination, protocol::FRAGMENT, FRAGMENT_LEN + len)?;
        head.push(&[protocol, 0]);
        head.push(&(offset | u16::from(part.more)).to_be_bytes());
        head.push(&part.identification.to_be_bytes());
        Some(head)
    }
}
