//! What arrives: Ethernet, then IP, then whom it is for.

use super::frame::ETHERNET_LEN;
use super::reassembly::FragmentKey;
use super::{protocol, FrameInfo, Sink, Stack};
use crate::checksum::Checksum;
use crate::tcp::{Header, Tuple};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use etherparse::{
    EtherType, Ethernet2HeaderSlice, Ipv4HeaderSlice, Ipv6FragmentHeaderSlice, Ipv6HeaderSlice,
};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION_OPTIONS: u8 = 60;
/// Extension headers looked through before a packet is dropped.
const MAX_EXTENSIONS: usize = 8;

/// Where a packet came from, and which of our addresses it was for.
pub(super) struct Addresses<'a> {
    pub source: IpAddr,
    pub own: IpAddr,
    /// It was for a group.
    pub group: bool,
    pub hop_limit: u8,
    /// The packet, to be quoted.
    pub packet: &'a [u8],
}

impl Addresses<'_> {
    pub fn checksum_is_valid(&self, protocol: u8, octets: &[u8]) -> bool {
        let mut sum = Checksum::pseudo(self.source, self.own, protocol, octets.len());
        sum.add(octets);
        sum.is_valid()
    }
}

impl Stack {
    /// A frame arrived. Octets for someone are shown to `sink` before this returns.
    pub fn handle_frame(
        &mut self,
        frame: &[u8],
        info: FrameInfo,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        self.counters.received += 1;
        let Ok(ethernet) = Ethernet2HeaderSlice::from_slice(frame) else {
            self.counters.malformed += 1;
            return;
        };
        let to = ethernet.destination();
        // What bears our own hardware address as its sender and was not looped here is an echo of the link.
        let echo = ethernet.source() == self.config.mac && !info.looped;
        if echo || (to != self.config.mac && to[0] & 1 == 0) {
            self.counters.ignored += 1;
            return;
        }
        let packet = &frame[ETHERNET_LEN..];
        match ethernet.ether_type() {
            EtherType::IPV4 => self.ipv4(packet, info, sink, now),
            EtherType::IPV6 => self.ipv6(packet, info, sink, now),
            EtherType::ARP => self.arp(packet, now),
            _ => self.counters.ignored += 1,
        }
    }

    fn ipv4(&mut self, packet: &[u8], info: FrameInfo, sink: &mut impl Sink, now: Duration) {
        let Ok(header) = Ipv4HeaderSlice::from_slice(packet) else {
            self.counters.malformed += 1;
            return;
        };
        let header_len = header.slice().len();
        // Ethernet pads short packets: the length in the header counts.
        let Some(payload) = packet.get(header_len..usize::from(header.total_len())) else {
            self.counters.malformed += 1;
            return;
        };
        let mut sum = Checksum::default();
        sum.add(header.slice());
        if !sum.is_valid() {
            self.counters.bad_checksum += 1;
            return;
        }
        let (source, own) = (header.source_addr(), header.destination_addr());
        // A source that is no single host's cannot be answered (RFC 1122 section 3.2.1.3).
        let odd = source.is_multicast() || source.is_broadcast() || source.is_unspecified();
        if odd
            || !self.addresses.is_usable(IpAddr::V4(own))
            || self.is_forged(IpAddr::V4(source), info)
        {
            self.counters.ignored += 1;
            return;
        }
        let addresses = Addresses {
            source: IpAddr::V4(source),
            own: IpAddr::V4(own),
            group: false,
            hop_limit: header.ttl(),
            packet,
        };
        let protocol = header.protocol().0;
        if !header.is_fragmenting_payload() {
            return self.packet(&addresses, protocol, payload, info, sink, now);
        }
        let key = FragmentKey {
            source: addresses.source,
            destination: addresses.own,
            identification: header.identification().into(),
            protocol,
        };
        let offset = usize::from(header.fragments_offset().value()) * 8;
        let whole = self
            .reassembly
            .fragment(key, offset, header.more_fragments(), payload, now);
        if let Some(octets) = whole {
            self.packet(
                &addresses,
                protocol,
                &octets,
                FrameInfo::default(),
                sink,
                now,
            );
        }
    }

    fn ipv6(&mut self, packet: &[u8], info: FrameInfo, sink: &mut impl Sink, now: Duration) {
        let Ok(header) = Ipv6HeaderSlice::from_slice(packet) else {
            self.counters.malformed += 1;
            return;
        };
        let header_len = header.slice().len();
        let end = header_len + usize::from(header.payload_length());
        let Some(payload) = packet.get(header_len..end) else {
            self.counters.malformed += 1;
            return;
        };
        let (source, to) = (header.source_addr(), header.destination_addr());
        let group = to.is_multicast();
        let ours = if group {
            self.is_in(to)
        } else {
            self.addresses.is_usable(IpAddr::V6(to))
        };
        if source.is_multicast() || !ours || self.is_forged(IpAddr::V6(source), info) {
            self.counters.ignored += 1;
            return;
        }
        let addresses = Addresses {
            source: IpAddr::V6(source),
            own: IpAddr::V6(to),
            group,
            hop_limit: header.hop_limit(),
            packet,
        };
        self.extensions(&addresses, header.next_header().0, payload, info, sink, now);
    }

    /// It says that it comes from us, and does not.
    fn is_forged(&self, source: IpAddr, info: FrameInfo) -> bool {
        !info.looped && self.addresses.is_usable(source)
    }

    /// All nodes, and the groups of our addresses.
    fn is_in(&self, group: Ipv6Addr) -> bool {
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        (group == all_nodes && self.config.speaks_ipv6()) || self.addresses.is_solicited_at(group)
    }

    /// Looks through extension headers (RFC 8200 section 4).
    fn extensions(
        &mut self,
        addresses: &Addresses<'_>,
        mut next: u8,
        mut octets: &[u8],
        info: FrameInfo,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        for _ in 0..MAX_EXTENSIONS {
            match next {
                HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {
                    let Some((after, rest)) = skip(next, octets) else {
                        break;
                    };
                    (next, octets) = (after, rest);
                }
                protocol::FRAGMENT => {
                    let Ok(header) = Ipv6FragmentHeaderSlice::from_slice(octets) else {
                        break;
                    };
                    let key = FragmentKey {
                        source: addresses.source,
                        destination: addresses.own,
                        identification: header.identification(),
                        protocol: 0,
                    };
                    let offset = usize::from(header.fragment_offset().value()) * 8;
                    let (more, payload) = (header.more_fragments(), &octets[8..]);
                    next = header.next_header().0;
                    if offset == 0 && !more {
                        // An atomic fragment is a packet of its own (RFC 6946).
                        octets = payload;
                        continue;
                    }
                    let whole = self.reassembly.fragment(key, offset, more, payload, now);
                    if let Some(whole) = whole {
                        self.packet(addresses, next, &whole, FrameInfo::default(), sink, now);
                    }
                    return;
                }
                _ => return self.packet(addresses, next, octets, info, sink, now),
            }
        }
        self.counters.malformed += 1;
    }

    fn packet(
        &mut self,
        addresses: &Addresses<'_>,
        protocol: u8,
        octets: &[u8],
        info: FrameInfo,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        match (protocol, addresses.source, addresses.own) {
            (protocol::TCP, ..) if !addresses.group => {
                self.tcp_segment(addresses, octets, info, sink, now)
            }
            (protocol::UDP, ..) => self.udp(addresses, octets, info.checksum_good, sink, now),
            (protocol::ICMP, IpAddr::V4(source), IpAddr::V4(own)) => {
                self.icmpv4(source, own, octets, sink, now)
            }
            (protocol::ICMPV6, IpAddr::V6(source), IpAddr::V6(to)) => {
                self.icmpv6(source, to, addresses.hop_limit, octets, sink, now);
            }
            _ => self.counters.ignored += 1,
        }
    }

    fn tcp_segment(
        &mut self,
        addresses: &Addresses<'_>,
        octets: &[u8],
        info: FrameInfo,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        let Ok((header, header_len)) = Header::parse(octets) else {
            self.counters.malformed += 1;
            return;
        };
        if !info.checksum_good && !addresses.checksum_is_valid(protocol::TCP, octets) {
            self.counters.bad_checksum += 1;
            return;
        }
        let tuple = Tuple {
            local: SocketAddr::new(addresses.own, header.destination),
            remote: SocketAddr::new(addresses.source, header.source),
        };
        let payload = &octets[header_len..];
        if let Some(id) = self
            .endpoint
            .handle_segment(&tuple, &header, payload.len(), now)
        {
            for placement in self.endpoint.placements(id) {
                sink.place(id, &placement, payload);
            }
        }
    }
}

/// The next header and what follows an extension of the common form.
fn skip(kind: u8, octets: &[u8]) -> Option<(u8, &[u8])> {
    let [next, len, _, segments_left, ..] = octets else {
        return None;
    };
    // We are no router: a routing header that wants to go on is refused (RFC 8200 section 4.4, RFC 5095).
    if kind == ROUTING && *segments_left != 0 {
        return None;
    }
    let len = (usize::from(*len) + 1) * 8;
    octets.get(len..).map(|rest| (*next, rest))
}
