//! Headers of what leaves.

use super::addresses::AddressState;
use super::flow::Flow;
use super::frame::{Frame, Head, Mac, Payload, VnetHeader, ETHERNET_LEN};
use super::{protocol, Stack};
use crate::checksum::{self, Checksum};
use crate::tcp::connection::Transmit;
use crate::tcp::segment::MAX_HEADER_LEN;
use crate::tcp::{ConnectionId, Tuple};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use etherparse::{EtherType, Ethernet2Header, IpNumber, Ipv6FlowLabel, Ipv6Header};

/// Hop limit of what is sent (RFC 1700; the field's 64).
const HOPS: u8 = 64;
/// Octets of the IPv4 headers that are written.
pub(super) const IPV4_LEN: usize = 20;
pub(super) const IPV6_LEN: usize = 40;
/// Path MTU discovery (RFC 1191 section 3).
const DONT_FRAGMENT: u8 = 0x40;
const TCP_CHECKSUM: usize = 16;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;

impl Stack {
    /// The frame of a TCP segment, or of several.
    #[inline]
    pub(super) fn segment(
        &mut self,
        tuple: &Tuple,
        id: Option<ConnectionId>,
        transmit: &Transmit,
        now: Duration,
    ) -> Option<Frame> {
        let mut header = [0; MAX_HEADER_LEN];
        let header_len = transmit.header.encode(&mut header);
        let header = &mut header[..header_len];
        let data = (transmit.payload.end - transmit.payload.start) as usize;
        let len = header_len + data;
        let payload = match id {
            Some(connection) if data > 0 => Payload::Stream {
                connection,
                range: transmit.payload.clone(),
            },
            _ => Payload::Empty,
        };
        let flow = id.and_then(|id| self.flows.get(id, self.epoch(), now));
        if let Some(flow) = flow {
            let identification = self.identification.wrapping_add(1);
            let head = flow.head(len, identification)?;
            let (sum, looped) = (flow.pseudo(len), flow.looped);
            self.identification = identification;
            return Some(finish(head, header, sum, payload, transmit, looped));
        }
        let (source, destination) = (tuple.local.ip(), tuple.remote.ip());
        let head = self.ip_head(source, destination, protocol::TCP, len)?;
        let sum = Checksum::pseudo(source, destination, protocol::TCP, len);
        let frame = finish(head, header, sum, payload, transmit, false);
        let progress = id.and_then(|id| self.endpoint.get(id)?.progress());
        let frame = self.towards(source, destination, frame, progress, now)?;
        if let Some(id) = id {
            self.keep_flow(id, tuple, &frame, now);
        }
        Some(frame)
    }

    /// The next segments of the connection get the same headers without a search.
    fn keep_flow(&mut self, id: ConnectionId, tuple: &Tuple, frame: &Frame, now: Duration) {
        let (source, destination) = (tuple.local.ip(), tuple.remote.ip());
        let fresh_until = match (
            frame.looped,
            self.config.next_hop(destination, self.router(now)),
        ) {
            (true, _) => Duration::MAX,
            (false, Some(hop)) => self.neighbors.fresh_until(hop),
            (false, None) => return,
        };
        // A router that stops to be one takes its flows along.
        let fresh_until = match self.router {
            Some((_, until)) if until > now => fresh_until.min(until),
            _ => fresh_until,
        };
        if !self.addresses.settled() || fresh_until < now {
            return;
        }
        let headers = usize::from(frame.vnet.checksum_start);
        let head = Head::new(&frame.head[..headers]);
        let pseudo = Checksum::pseudo(source, destination, protocol::TCP, 0);
        let epoch = self.epoch();
        self.flows.put(Flow::new(
            id,
            head,
            pseudo,
            frame.looped,
            epoch,
            fresh_until,
        ));
    }

    /// Changes whenever a frame might have to go to another neighbour than before.
    #[inline]
    fn epoch(&self) -> u64 {
        self.neighbors.epoch() + self.routers_changed
    }

    /// Ethernet and IP header for `len` octets behind them; the hardware address of the destination is still missing.
    pub(super) fn ip_head(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        len: usize,
    ) -> Option<Head> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut head = Head::new(&ethernet([0; 6], self.config.mac, EtherType::IPV4));
                self.identification = self.identification.wrapping_add(1);
                let ip = ipv4_header(source, destination, protocol, self.identification, len)?;
                head.push(&ip);
                Some(head)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut head = Head::new(&ethernet([0; 6], self.config.mac, EtherType::IPV6));
                let ip = Ipv6Header {
                    traffic_class: 0,
                    flow_label: Ipv6FlowLabel::ZERO,
                    payload_length: u16::try_from(len).ok()?,
                    next_header: IpNumber(protocol),
                    // Neighbour discovery believes nothing that passed a router (RFC 4861 section 7.1).
                    hop_limit: if protocol == protocol::ICMPV6 {
                        255
                    } else {
                        HOPS
                    },
                    source: source.octets(),
                    destination: destination.octets(),
                };
                head.push(&ip.to_bytes());
                Some(head)
            }
            _ => None,
        }
    }

    /// Finds the neighbour a frame goes to; `progress` is when its connection last heard that something arrived there.
    /// None when the frame has to wait for an address, or nothing leads there.
    #[inline]
    pub(super) fn towards(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        mut frame: Frame,
        progress: Option<Duration>,
        now: Duration,
    ) -> Option<Frame> {
        if !self.addresses.settled() && !source.is_unspecified() {
            match self.addresses.state(source) {
                Some(AddressState::Preferred) => {}
                Some(AddressState::Tentative) => {
                    self.addresses.wait(source, destination, frame);
                    return None;
                }
                _ => {
                    self.counters.not_sent += 1;
                    return None;
                }
            }
        }
        if let IpAddr::V6(group) = destination {
            if group.is_multicast() {
                frame.head[..6].copy_from_slice(&multicast_mac(group.octets()));
                return Some(frame);
            }
        }
        if self.addresses.is_usable(destination) {
            frame.head[..6].copy_from_slice(&self.config.mac);
            frame.looped = true;
            return Some(frame);
        }
        let Some(hop) = self.config.next_hop(destination, self.router(now)) else {
            self.counters.not_sent += 1;
            return None;
        };
        let Some(mac) = self.neighbors.find(hop, progress, now) else {
            self.neighbors.wait(hop, frame, now);
            return None;
        };
        frame.head[..6].copy_from_slice(&mac);
        Some(frame)
    }

    /// The router that advertised itself, as long as it said.
    pub(super) fn router(&self, now: Duration) -> Option<Ipv6Addr> {
        let current = self.router.filter(|(_, until)| *until > now);
        current.map(|(router, _)| router)
    }

    /// Sends a packet of the stack's own: ICMP or UDP, in fragments where the link does not take it whole. False, and
    /// counted, where no route leads there or the queue has no room.
    pub(super) fn send_packet(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: u8,
        octets: Vec<u8>,
        now: Duration,
    ) -> bool {
        let ip_len = match source {
            IpAddr::V4(_) => IPV4_LEN,
            IpAddr::V6(_) => IPV6_LEN,
        };
        // A device refuses a longer frame, and whatever was to leave in one call behind it.
        if ip_len + octets.len() > self.config.mtu as usize {
            return self.send_in_fragments(source, destination, protocol, &octets, now);
        }
        let Some(head) = self.ip_head(source, destination, protocol, octets.len()) else {
            self.counters.not_sent += 1;
            return false;
        };
        let frame = Frame {
            head,
            payload: Payload::Octets(octets),
            vnet: VnetHeader::default(),
            looped: false,
        };
        if let Some(frame) = self.towards(source, destination, frame, None, now) {
            self.enqueue(frame);
        }
        true
    }
}

/// Puts a TCP header behind Ethernet and IP; `sum` is that of the pseudo header, with the length.
#[inline]
fn finish(
    mut head: Head,
    header: &mut [u8],
    sum: Checksum,
    payload: Payload,
    transmit: &Transmit,
    looped: bool,
) -> Frame {
    header[TCP_CHECKSUM..TCP_CHECKSUM + 2].copy_from_slice(&sum.partial().to_be_bytes());
    let checksum_start = head.len() as u16;
    let ipv4 = head.len() == ETHERNET_LEN + IPV4_LEN;
    head.push(header);
    let vnet = VnetHeader {
        needs_checksum: true,
        gso_type: match (transmit.segment_size, ipv4) {
            (None, _) => 0,
            (Some(_), true) => GSO_TCPV4,
            (Some(_), false) => GSO_TCPV6,
        },
        header_len: head.len() as u16,
        gso_size: transmit.segment_size.unwrap_or(0),
        checksum_start,
        checksum_offset: TCP_CHECKSUM as u16,
    };
    Frame {
        head,
        payload,
        vnet,
        looped,
    }
}

/// An IPv4 header without options (RFC 791 section 3.1) for `len` octets behind it. One stands before every segment,
/// and a table of its fields is three times as dear.
fn ipv4_header(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    identification: u16,
    len: usize,
) -> Option<[u8; IPV4_LEN]> {
    let mut ip = [0; IPV4_LEN];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&u16::try_from(IPV4_LEN + len).ok()?.to_be_bytes());
    // What is not fragmented needs no identification (RFC 6864); some count on one.
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[6] = DONT_FRAGMENT;
    ip[8] = HOPS;
    ip[9] = protocol;
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&destination.octets());
    let checksum = checksum::of(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    Some(ip)
}

/// An Ethernet header.
pub(super) fn ethernet(destination: Mac, source: Mac, ether_type: EtherType) -> [u8; ETHERNET_LEN] {
    Ethernet2Header {
        source,
        destination,
        ether_type,
    }
    .to_bytes()
}

/// RFC 2464 section 7.
fn multicast_mac(group: [u8; 16]) -> Mac {
    [0x33, 0x33, group[12], group[13], group[14], group[15]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::Ipv4Header;

    #[test]
    fn the_ipv4_header_is_the_one_of_the_crate_for_headers() {
        let (source, destination) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 168, 3, 4));
        let ours = ipv4_header(source, destination, protocol::TCP, 0xabcd, 1234).unwrap();
        let (source, destination) = (source.octets(), destination.octets());
        let mut theirs =
            Ipv4Header::new(1234, HOPS, IpNumber(protocol::TCP), source, destination).unwrap();
        theirs.dont_fragment = true;
        theirs.identification = 0xabcd;
        theirs.header_checksum = theirs.calc_header_checksum();
        assert_eq!(ours, *theirs.to_bytes());
    }

    #[test]
    fn what_fits_into_no_packet_gets_no_header() {
        let own = Ipv4Addr::LOCALHOST;
        assert!(ipv4_header(own, own, protocol::TCP, 0, 65_515).is_some());
        assert!(ipv4_header(own, own, protocol::TCP, 0, 65_516).is_none());
    }
}
