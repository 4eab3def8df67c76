//! ICMP for both versions of IP: echo, errors that concern our connections, errors we owe (RFC 792, RFC 4443).

use super::ndp::{NEIGHBOR_ADVERTISEMENT, NEIGHBOR_SOLICITATION, ROUTER_ADVERTISEMENT};
use super::{protocol, Sink, Stack};
use crate::checksum::{self, Checksum};
use crate::tcp::{Seq, Tuple};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;

const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;
const FRAGMENTATION_NEEDED: u8 = 4;
const UNREACHABLE_V6: u8 = 1;
const PACKET_TOO_BIG_V6: u8 = 2;
const ECHO_V6: u8 = 128;
const ECHO_REPLY_V6: u8 = 129;
/// Octets before what a message quotes.
const HEADER_LEN: usize = 8;

/// Errors sent in one second at most (RFC 4443 section 2.4 (f), RFC 1812 section 4.3.2.8).
const ERRORS_PER_SECOND: u32 = 50;

/// How many errors were sent lately.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorLimit {
    second: u64,
    sent: u32,
}

impl ErrorLimit {
    fn allow(&mut self, now: Duration) -> bool {
        if self.second != now.as_secs() {
            *self = ErrorLimit {
                second: now.as_secs(),
                sent: 0,
            };
        }
        self.sent += 1;
        self.sent <= ERRORS_PER_SECOND
    }
}

/// What an error message says.
enum Complaint {
    TooBig(u32),
    Unreachable { hard: bool },
}

impl Stack {
    pub(super) fn icmpv4(
        &mut self,
        source: Ipv4Addr,
        own: Ipv4Addr,
        octets: &[u8],
        sink: &mut impl Sink,
        now: Duration,
    ) {
        let mut sum = Checksum::default();
        sum.add(octets);
        if octets.len() < HEADER_LEN {
            self.counters.malformed += 1;
            return;
        }
        if !sum.is_valid() {
            self.counters.bad_checksum += 1;
            return;
        }
        match (octets[0], octets[1]) {
            (ECHO, 0) => {
                let mut reply = octets.to_vec();
                reply[0] = ECHO_REPLY;
                reply[2..4].fill(0);
                let checksum = checksum::of(&reply);
                reply[2..4].copy_from_slice(&checksum.to_be_bytes());
                self.send_packet(
                    IpAddr::V4(own),
                    IpAddr::V4(source),
                    protocol::ICMP,
                    reply,
                    now,
                );
            }
            (UNREACHABLE, FRAGMENTATION_NEEDED) => {
                let mtu = u16::from_be_bytes([octets[6], octets[7]]);
                let complaint = Complaint::TooBig(mtu.into());
                self.quoted_v4(&octets[HEADER_LEN..], &complaint, sink, now);
            }
            // Protocol and port unreachable are hard errors (RFC 1122 section 4.2.3.9).
            (UNREACHABLE, code) => {
                let complaint = Complaint::Unreachable {
                    hard: matches!(code, 2 | 3),
                };
                self.quoted_v4(&octets[HEADER_LEN..], &complaint, sink, now);
            }
            _ => self.counters.ignored += 1,
        }
    }

    /// An error quotes the packet it is about: the header and at least eight octets behind it (RFC 792).
    fn quoted_v4(
        &mut self,
        quoted: &[u8],
        complaint: &Complaint,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        let Some(&[first, ..]) = quoted.first_chunk::<20>() else {
            return;
        };
        let header_len = usize::from(first & 15) * 4;
        let (Some(header), Some(behind)) = (
            quoted.get(..header_len.max(20)),
            quoted.get(header_len.max(20)..),
        ) else {
            return;
        };
        let address =
            |at: usize| IpAddr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        self.quoted(
            header[9],
            [address(12), address(16)],
            behind,
            complaint,
            sink,
            now,
        );
    }

    /// An error is about a packet of this protocol, between these addresses.
    fn quoted(
        &mut self,
        protocol: u8,
        [source, destination]: [IpAddr; 2],
        octets: &[u8],
        complaint: &Complaint,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        let Some(&[a, b, c, d, s0, s1, s2, s3]) = octets.first_chunk::<8>() else {
            return;
        };
        let tuple = Tuple {
            local: SocketAddr::new(source, u16::from_be_bytes([a, b])),
            remote: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
        };
        match (protocol, complaint) {
            (protocol::TCP, _) => {}
            (protocol::UDP, Complaint::Unreachable { hard: true }) => {
                return sink.refused(tuple.local, tuple.remote);
            }
            _ => return,
        }
        let seq = Seq(u32::from_be_bytes([s0, s1, s2, s3]));
        match *complaint {
            Complaint::TooBig(mtu) => self.endpoint.handle_packet_too_big(&tuple, seq, mtu, now),
            Complaint::Unreachable { hard } => self.endpoint.handle_unreachable(&tuple, seq, hard),
        }
    }

    pub(super) fn icmpv6(
        &mut self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        hop_limit: u8,
        octets: &[u8],
        sink: &mut impl Sink,
        now: Duration,
    ) {
        if octets.len() < HEADER_LEN {
            self.counters.malformed += 1;
            return;
        }
        let (from, to) = (IpAddr::V6(source), IpAddr::V6(destination));
        let mut sum = Checksum::pseudo(from, to, protocol::ICMPV6, octets.len());
        sum.add(octets);
        if !sum.is_valid() {
            self.counters.bad_checksum += 1;
            return;
        }
        match octets[0] {
            ECHO_V6 if !source.is_unspecified() => {
                let mut reply = octets.to_vec();
                reply[0] = ECHO_REPLY_V6;
                reply[2..4].fill(0);
                let own = match destination.is_multicast() {
                    false => Some(to),
                    true => self.config.source_for(from, self.router(now)),
                };
                if let Some(IpAddr::V6(own)) = own {
                    self.send_icmpv6(own, source, reply, now);
                }
            }
            PACKET_TOO_BIG_V6 => {
                let mtu = u32::from_be_bytes([octets[4], octets[5], octets[6], octets[7]]);
                self.quoted_v6(&octets[HEADER_LEN..], &Complaint::TooBig(mtu), sink, now);
            }
            UNREACHABLE_V6 => {
                let complaint = Complaint::Unreachable {
                    hard: octets[1] == 4,
                };
                self.quoted_v6(&octets[HEADER_LEN..], &complaint, sink, now);
            }
            ROUTER_ADVERTISEMENT | NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT
                if hop_limit == 255 =>
            {
                self.ndp(source, octets, now);
            }
            _ => self.counters.ignored += 1,
        }
    }

    fn quoted_v6(
        &mut self,
        quoted: &[u8],
        complaint: &Complaint,
        sink: &mut impl Sink,
        now: Duration,
    ) {
        let Some((header, behind)) = quoted.split_first_chunk::<40>() else {
            return;
        };
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
            Some(IpAddr::from(octets))
        };
        if let (Some(source), Some(destination)) = (address(8), address(24)) {
            self.quoted(
                header[6],
                [source, destination],
                behind,
                complaint,
                sink,
                now,
            );
        }
    }

    /// Nobody has this UDP port (RFC 1122 section 4.1.3.1). `packet` is the IP packet, of which a part is quoted.
    pub(super) fn port_unreachable(
        &mut self,
        source: IpAddr,
        own: IpAddr,
        packet: &[u8],
        now: Duration,
    ) {
        if !self.errors.allow(now) {
            return;
        }
        match (source, own) {
            (IpAddr::V4(_), IpAddr::V4(_)) => {
                let mut message = error(UNREACHABLE, 3, &packet[..packet.len().min(548)]);
                let checksum = checksum::of(&message);
                message[2..4].copy_from_slice(&checksum.to_be_bytes());
                self.send_packet(own, source, protocol::ICMP, message, now);
            }
            (IpAddr::V6(source), IpAddr::V6(own)) => {
                let message = error(UNREACHABLE_V6, 4, &packet[..packet.len().min(1232)]);
                self.send_icmpv6(own, source, message, now);
            }
            _ => {}
        }
    }
}

fn error(kind: u8, code: u8, quoted: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_LEN + quoted.len());
    message.extend_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
    message.extend_from_slice(quoted);
    message
}

/// RFC 4443 section 2.3.
pub(super) fn icmpv6_checksum(source: IpAddr, destination: IpAddr, message: &[u8]) -> u16 {
    let mut sum = Checksum::pseudo(source, destination, protocol::ICMPV6, message.len());
    sum.add(message);
    sum.finish()
}
