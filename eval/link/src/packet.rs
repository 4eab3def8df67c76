//! Where the headers of an Ethernet frame stand, and the sums in them.

use weft_inet::checksum::{self, Checksum};

/// EtherTypes.
pub(crate) const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const OUTER_VLAN: u16 = 0x88a8;
/// Where the EtherType stands.
const ETHER_TYPE: usize = 12;
/// Octets of an Ethernet header without a tag.
pub(crate) const ETHERNET_LEN: usize = 14;
/// Octets of an IPv6 header.
pub(crate) const IPV6_LEN: usize = 40;
/// Octets of an IPv4 header without options.
pub(crate) const IPV4_LEN: usize = 20;

/// Protocol numbers.
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;

/// A version of IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    V4,
    V6,
}

/// Where the headers of a frame with an IP packet stand. Every offset is from the beginning of the frame, and lies in
/// it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) version: Version,
    /// The IP header.
    pub(crate) network: usize,
    /// What follows the IP header and, in IPv6, its extensions.
    pub(crate) transport: usize,
    /// What that is.
    pub(crate) protocol: u8,
    /// The end of the IP packet; behind it there is only padding.
    pub(crate) end: usize,
    /// It is a part of a packet.
    pub(crate) is_fragment: bool,
}

impl Layout {
    /// Reads the headers; none where there is no IP packet, or a malformed one.
    pub(crate) fn parse(frame: &[u8]) -> Option<Layout> {
        let mut network = ETHERNET_LEN;
        let mut ether_type = u16_at(frame, ETHER_TYPE)?;
        while matches!(ether_type, VLAN | OUTER_VLAN) {
            ether_type = u16_at(frame, network + 2)?;
            network += 4;
        }
        match ether_type {
            IPV4 => Layout::parse_v4(frame, network),
            IPV6 => Layout::parse_v6(frame, network),
            _ => None,
        }
    }

    fn parse_v4(frame: &[u8], network: usize) -> Option<Layout> {
        let first = *frame.get(network)?;
        let header_len = usize::from(first & 15) * 4;
        let end = network + usize::from(u16_at(frame, network + 2)?);
        let transport = network + header_len;
        let well_formed = first >> 4 == 4 && header_len >= IPV4_LEN && transport <= end;
        (well_formed && end <= frame.len()).then_some(Layout {
            version: Version::V4,
            network,
            transport,
            protocol: *frame.get(network + 9)?,
            end,
            is_fragment: u16_at(frame, network + 6)? & 0x3fff != 0,
        })
    }

    fn parse_v6(frame: &[u8], network: usize) -> Option<Layout> {
        let end = network + IPV6_LEN + usize::from(u16_at(frame, network + 4)?);
        let mut protocol = *frame.get(network + 6)?;
        let mut transport = network + IPV6_LEN;
        let mut is_fragment = false;
        if frame[network] >> 4 != 6 || end > frame.len() {
            return None;
        }
        while matches!(
            protocol,
            HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS
        ) {
            let units = match protocol {
                FRAGMENT => 0,
                _ => usize::from(*frame.get(transport + 1)?),
            };
            is_fragment |= protocol == FRAGMENT;
            protocol = *frame.get(transport)?;
            transport += 8 + units * 8;
        }
        (transport <= end).then_some(Layout {
            version: Version::V6,
            network,
            transport,
            protocol,
            end,
            is_fragment,
        })
    }

    /// Octets of the IP packet.
    pub(crate) fn packet_len(&self) -> usize {
        self.end - self.network
    }

    /// The two addresses of the packet, source and destination.
    pub(crate) fn addresses<'a>(&self, frame: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let (at, len) = match self.version {
            Version::V4 => (self.network + 12, 4),
            Version::V6 => (self.network + 8, 16),
        };
        (&frame[at..at + len], &frame[at + len..at + 2 * len])
    }

    /// The sum of the pseudo header for `len` octets of transport (RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub(crate) fn pseudo_sum(&self, frame: &[u8], len: usize) -> Checksum {
        let (source, destination) = self.addresses(frame);
        let mut sum = Checksum::default();
        sum.add(source);
        sum.add(destination);
        sum.add(&(len as u32).to_be_bytes());
        sum.add(&[0, self.protocol]);
        sum
    }
}

/// The number at an offset, if the frame is so long.
pub(crate) fn u16_at(frame: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// The number at an offset, if the frame is so long.
pub(crate) fn u32_at(frame: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*frame.get(at..)?.first_chunk()?))
}

/// Writes a number at an offset, which has to lie in the frame.
pub(crate) fn put_u16(frame: &mut [u8], at: usize, value: u16) {
    frame[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Tells the IP header how long its packet is: to the end of `frame`.
pub(crate) fn set_packet_len(frame: &mut [u8], version: Version, network: usize) {
    let len = frame.len() - network;
    match version {
        Version::V4 => {
            put_u16(frame, network + 2, len as u16);
            finish_ipv4_header(frame, network);
        }
        Version::V6 => put_u16(frame, network + 4, (len - IPV6_LEN) as u16),
    }
}

/// Puts the checksum of an IPv4 header in.
pub(crate) fn finish_ipv4_header(frame: &mut [u8], network: usize) {
    let header_len = usize::from(frame[network] & 15) * 4;
    put_u16(frame, network + 10, 0);
    let sum = checksum::of(&frame[network..network + header_len]);
    put_u16(frame, network + 10, sum);
}

/// Frames for tests.
#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    pub(crate) const ETHERNET: [u8; 12] = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];

    /// A frame with an IPv4 packet from 10.0.0.1 to 10.0.0.2.
    pub(crate) fn ipv4(protocol: u8, dont_fragment: bool, transport: &[u8]) -> Vec<u8> {
        let mut frame = ETHERNET.to_vec();
        frame.extend(IPV4.to_be_bytes());
        frame.extend([0x45, 0, 0, 0, 0x12, 0x34]);
        frame.extend([if dont_fragment { 0x40 } else { 0 }, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(transport);
        set_packet_len(&mut frame, Version::V4, ETHERNET_LEN);
        frame
    }

    /// A frame with an IPv6 packet from fd00::1 to fd00::2.
    pub(crate) fn ipv6(protocol: u8, transport: &[u8]) -> Vec<u8> {
        let mut frame = ETHERNET.to_vec();
        frame.extend(IPV6.to_be_bytes());
        frame.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
        for last in [1, 2] {
            frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        frame.extend(transport);
        set_packet_len(&mut frame, Version::V6, ETHERNET_LEN);
        frame
    }

    /// A TCP segment; its checksum is still missing.
    pub(crate) fn tcp(seq: u32, flags: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut segment = vec![0x30, 0x39, 0, 80];
        segment.extend(seq.to_be_bytes());
        segment.extend([0, 0, 0, 9]);
        segment.extend([
            ((20 + options.len()) as u8 / 4) << 4,
            flags,
            1,
            0,
            0,
            0,
            0,
            0,
        ]);
        segment.extend(options);
        segment.extend(payload);
        segment
    }

    /// A UDP datagram; its checksum is still missing.
    pub(crate) fn udp(payload: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0x30, 0x39, 0, 53];
        datagram.extend((8 + payload.len() as u16).to_be_bytes());
        datagram.extend([0, 0]);
        datagram.extend(payload);
        datagram
    }

    /// Puts the checksum of TCP or UDP in.
    pub(crate) fn finished(mut frame: Vec<u8>) -> Vec<u8> {
        let layout = Layout::parse(&frame).unwrap();
        let at = layout.transport + if layout.protocol == TCP { 16 } else { 6 };
        let mut sum = layout.pseudo_sum(&frame, layout.end - layout.transport);
        sum.add(&frame[layout.transport..layout.end]);
        put_u16(&mut frame, at, sum.finish());
        frame
    }

    /// The checksums of the IPv4 header and of TCP or UDP are right.
    pub(crate) fn is_sound(frame: &[u8]) -> bool {
        let layout = Layout::parse(frame).unwrap();
        let mut sum = layout.pseudo_sum(frame, layout.end - layout.transport);
        sum.add(&frame[layout.transport..layout.end]);
        let header = &frame[layout.network..layout.transport];
        sum.is_valid() && (layout.version == Version::V6 || checksum::of(header) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_padding_and_extensions_are_stepped_over() {
        let mut frame = samples::ipv4(UDP, true, &samples::udp(b"abc"));
        let plain = Layout::parse(&frame).unwrap();
        assert_eq!((plain.network, plain.transport, plain.end), (14, 34, 45));
        frame.extend([0; 15]);
        assert_eq!(Layout::parse(&frame), Some(plain));
        frame.splice(12..12, [0x81, 0, 0, 7]);
        let tagged = Layout::parse(&frame).unwrap();
        assert_eq!((tagged.network, tagged.end), (18, 49));

        let mut extended = vec![UDP, 0, 1, 4, 0, 0, 0, 0];
        extended.extend(samples::udp(b"abc"));
        let layout = Layout::parse(&samples::ipv6(DESTINATION_OPTIONS, &extended)).unwrap();
        assert_eq!((layout.protocol, layout.transport), (UDP, 14 + 40 + 8));
        assert!(!layout.is_fragment);
    }

    proptest! {
        #[test]
        fn any_octets_are_parsed_or_refused(mut frame in proptest::collection::vec(any::<u8>(), 0..120), six: bool) {
            if let Some(place) = frame.get_mut(12..14) {
                place.copy_from_slice(&if six { IPV6 } else { IPV4 }.to_be_bytes());
            }
            if let Some(layout) = Layout::parse(&frame) {
                prop_assert!(layout.network < layout.transport);
                prop_assert!(layout.transport <= layout.end && layout.end <= frame.len());
                layout.addresses(&frame);
            }
        }
    }
}
