//! What a device would have done: large frames cut into segments, checksums finished.
//!
//! A sender's kernel leaves both to the network device (TSO, UDP GSO, checksum offload) and says in a virtio-net header
//! what is left to do. A wire carries only what a device has finished.

use crate::fragment::fragments;
use crate::packet::{put_u16, set_packet_len, u16_at, u32_at, Layout, Version, TCP, UDP};
use weft_inet::checksum::Checksum;
use weft_inet::stack::VnetHeader;
use weft_inet::tcp::segment::Flags;

/// Kinds of segmentation (OASIS virtio 1.2, section 5.1.6): VIRTIO_NET_HDR_GSO_*.
const NONE: u8 = 0;
const TCPV4: u8 = 1;
const UDP_FRAGMENTS: u8 = 3;
const TCPV6: u8 = 4;
const UDP_SEGMENTS: u8 = 5;
/// The first segment alone has CWR. It does here for every kind.
const WITH_ECN: u8 = 0x80;
/// VIRTIO_NET_HDR_F_NEEDS_CSUM.
const NEEDS_CHECKSUM: u8 = 1;

/// Where fields stand in the header of TCP.
const SEQUENCE: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
/// Where fields stand in the header of UDP.
const UDP_LEN: usize = 4;
const UDP_CHECKSUM: usize = 6;
const UDP_HEADER_LEN: usize = 8;

/// What is left to do cannot be done: the frame is malformed, or of a kind that is not cut here (tunnels, SCTP).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CannotFinish;

/// Reads a virtio-net header as packet sockets give it, in the machine's byte order.
pub fn parse_vnet_header(octets: [u8; 10]) -> VnetHeader {
    let number = |at: usize| u16::from_ne_bytes([octets[at], octets[at + 1]]);
    VnetHeader {
        needs_checksum: octets[0] & NEEDS_CHECKSUM != 0,
        gso_type: octets[1],
        header_len: number(2),
        gso_size: number(4),
        checksum_start: number(6),
        checksum_offset: number(8),
    }
}

/// Puts a VLAN tag, which a receiving kernel takes out of a frame, in again.
pub fn insert_vlan_tag(frame: &mut Vec<u8>, vnet: &mut VnetHeader, protocol: u16, control: u16) {
    const ADDRESSES_LEN: usize = 12;
    let [a, b] = protocol.to_be_bytes();
    let [c, d] = control.to_be_bytes();
    let at = ADDRESSES_LEN.min(frame.len());
    frame.splice(at..at, [a, b, c, d]);
    vnet.checksum_start = vnet.checksum_start.saturating_add(4);
}

/// Does what `vnet` says is left to do, and gives the frames that are ready for a wire.
///
/// # Errors
/// The frame is not what `vnet` says.
pub(crate) fn finish(frame: &[u8], vnet: &VnetHeader) -> Result<Vec<Vec<u8>>, CannotFinish> {
    match vnet.gso_type & !WITH_ECN {
        NONE => Ok(vec![finish_checksum(frame.to_vec(), vnet)?]),
        TCPV4 | TCPV6 => cut(frame, vnet, TCP),
        UDP_SEGMENTS => cut(frame, vnet, UDP),
        UDP_FRAGMENTS => {
            let whole = finish_checksum(frame.to_vec(), vnet)?;
            let layout = Layout::parse(&whole).ok_or(CannotFinish)?;
            let mtu = layout.transport - layout.network + usize::from(vnet.gso_size);
            fragments(&whole, &layout, mtu).ok_or(CannotFinish)
        }
        _ => Err(CannotFinish),
    }
}

/// Adds the sum of what is checksummed to that of the pseudo header, which the sender left in the field.
fn finish_checksum(mut frame: Vec<u8>, vnet: &VnetHeader) -> Result<Vec<u8>, CannotFinish> {
    if !vnet.needs_checksum {
        return Ok(frame);
    }
    let start = usize::from(vnet.checksum_start);
    let at = start + usize::from(vnet.checksum_offset);
    let octets = frame.get(start..).ok_or(CannotFinish)?;
    if at + 2 > frame.len() {
        return Err(CannotFinish);
    }
    let mut sum = Checksum::default();
    sum.add(octets);
    put_u16(&mut frame, at, in_field(&sum));
    Ok(frame)
}

/// The checksum as it stands in a header: UDP's 0 would say that there is none (RFC 768), and its other form is as
/// good for TCP.
fn in_field(sum: &Checksum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Cuts a large frame into segments of `gso_size` octets of payload, the last one shorter.
fn cut(frame: &[u8], vnet: &VnetHeader, protocol: u8) -> Result<Vec<Vec<u8>>, CannotFinish> {
    let layout = Layout::parse(frame).ok_or(CannotFinish)?;
    let (header_len, checksum_at) = match protocol {
        TCP => {
            let offset = *frame
                .get(layout.transport + DATA_OFFSET)
                .ok_or(CannotFinish)?;
            (usize::from(offset >> 4) * 4, TCP_CHECKSUM)
        }
        _ => (UDP_HEADER_LEN, UDP_CHECKSUM),
    };
    let head_len = layout.transport + header_len;
    let fits = header_len > checksum_at && head_len < layout.end;
    // Within a tunnel the innermost transport is cut, which stands elsewhere.
    if layout.protocol != protocol || layout.is_fragment || !fits || vnet.gso_size == 0 {
        return Err(CannotFinish);
    }
    let (head, payload) = (&frame[..head_len], &frame[head_len..layout.end]);
    let pseudo = pseudo_without_len(frame, &layout, vnet, checksum_at);
    let size = usize::from(vnet.gso_size);
    let count = payload.len().div_ceil(size);
    let pieces = payload.chunks(size).enumerate();
    Ok(pieces
        .map(|(index, piece)| {
            let mut segment = Vec::with_capacity(head_len + piece.len());
            segment.extend_from_slice(head);
            segment.extend_from_slice(piece);
            adapt_network(&mut segment, &layout, index as u16);
            match protocol {
                TCP => adapt_tcp(&mut segment, layout.transport, index, count, size),
                _ => {
                    let len = segment.len() - layout.transport;
                    put_u16(&mut segment, layout.transport + UDP_LEN, len as u16);
                }
            }
            put_u16(&mut segment, layout.transport + checksum_at, 0);
            let mut sum = pseudo;
            sum.add(&((segment.len() - layout.transport) as u16).to_be_bytes());
            sum.add(&segment[layout.transport..]);
            put_u16(&mut segment, layout.transport + checksum_at, in_field(&sum));
            segment
        })
        .collect())
}

/// The sum of the pseudo header but for the length. Where the sender left a sum in the field that one is taken, less
/// its length: with a routing header the destination of the sum is not that of the IP header.
fn pseudo_without_len(frame: &[u8], layout: &Layout, vnet: &VnetHeader, at: usize) -> Checksum {
    if !vnet.needs_checksum {
        return layout.pseudo_sum(frame, 0);
    }
    let len = (layout.end - layout.transport) as u16;
    let left = u16_at(frame, layout.transport + at).unwrap_or_default();
    let mut sum = Checksum::default();
    sum.add(&left.to_be_bytes());
    // Subtraction in one's complement.
    sum.add(&(!len).to_be_bytes());
    sum
}

fn adapt_network(segment: &mut [u8], layout: &Layout, index: u16) {
    if layout.version == Version::V4 {
        // As the kernel does, which has reserved these.
        let at = layout.network + 4;
        let identification = u16_at(segment, at).unwrap_or_default();
        put_u16(segment, at, identification.wrapping_add(index));
    }
    set_packet_len(segment, layout.version, layout.network);
}

fn adapt_tcp(segment: &mut [u8], transport: usize, index: usize, count: usize, size: usize) {
    let at = transport + SEQUENCE;
    let first = u32_at(segment, at).unwrap_or_default();
    let sequence = first.wrapping_add((index * size) as u32);
    segment[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
    if index + 1 < count {
        segment[transport + FLAGS] &= !(Flags::FIN | Flags::PSH).bits();
    }
    if index > 0 {
        segment[transport + FLAGS] &= !Flags::CWR.bits();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples;

    /// A large frame and its header, as a kernel hands them to a device.
    fn large(frame: Vec<u8>, gso_type: u8, gso_size: u16) -> (Vec<u8>, VnetHeader) {
        let mut frame = frame;
        let layout = Layout::parse(&frame).unwrap();
        let offset = if layout.protocol == TCP { 16 } else { 6 };
        let sum = layout.pseudo_sum(&frame, layout.end - layout.transport);
        put_u16(&mut frame, layout.transport + offset, sum.partial());
        let vnet = VnetHeader {
            needs_checksum: true,
            gso_type,
            header_len: 0,
            gso_size,
            checksum_start: layout.transport as u16,
            checksum_offset: offset as u16,
        };
        (frame, vnet)
    }

    fn payload(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + at / 256) as u8).collect()
    }

    fn tcp_stream(segments: &[Vec<u8>]) -> Vec<(u32, u8, Vec<u8>)> {
        let read = |frame: &Vec<u8>| {
            let layout = Layout::parse(frame).unwrap();
            let head = layout.transport + usize::from(frame[layout.transport + 12] >> 4) * 4;
            let seq = u32_at(frame, layout.transport + 4).unwrap();
            let octets = frame[head..layout.end].to_vec();
            (seq, frame[layout.transport + 13], octets)
        };
        segments.iter().map(read).collect()
    }

    #[test]
    fn a_large_tcp_frame_becomes_segments_of_the_same_stream() {
        let flags = (Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR).bits();
        let segment = samples::tcp(0xffff_fff0, flags, &[1, 1, 1, 1], &payload(3000));
        for (frame, kind) in [
            (samples::ipv4(TCP, true, &segment), TCPV4 | WITH_ECN),
            (samples::ipv6(TCP, &segment), TCPV6),
        ] {
            let (frame, vnet) = large(frame, kind, 1400);
            let segments = finish(&frame, &vnet).unwrap();
            assert!(segments.iter().all(|segment| samples::is_sound(segment)));
            let parts = tcp_stream(&segments);
            let flags: Vec<u8> = parts.iter().map(|part| part.1).collect();
            assert_eq!(
                flags,
                [
                    (Flags::ACK | Flags::CWR).bits(),
                    Flags::ACK.bits(),
                    (Flags::ACK | Flags::PSH | Flags::FIN).bits()
                ]
            );
            let numbers: Vec<u32> = parts.iter().map(|part| part.0).collect();
            assert_eq!(numbers, [0xffff_fff0, 1384, 2784]);
            let octets: Vec<u8> = parts.into_iter().flat_map(|part| part.2).collect();
            assert_eq!(octets, payload(3000));
        }
    }

    #[test]
    fn identifications_count_on() {
        let segment = samples::tcp(0, Flags::ACK.bits(), &[], &payload(30));
        let (frame, vnet) = large(samples::ipv4(TCP, true, &segment), TCPV4, 10);
        let cut = finish(&frame, &vnet).unwrap();
        let ids: Vec<_> = cut.iter().map(|frame| u16_at(frame, 18)).collect();
        assert_eq!(ids, [Some(0x1234), Some(0x1235), Some(0x1236)]);
    }

    #[test]
    fn datagrams_that_left_together_part() {
        for frame in [
            samples::ipv4(UDP, true, &samples::udp(&payload(2500))),
            samples::ipv6(UDP, &samples::udp(&payload(2500))),
        ] {
            let (frame, vnet) = large(frame, UDP_SEGMENTS, 1000);
            let cut = finish(&frame, &vnet).unwrap();
            assert!(cut.iter().all(|datagram| samples::is_sound(datagram)));
            let mut octets = Vec::new();
            for datagram in &cut {
                let layout = Layout::parse(datagram).unwrap();
                let len = u16_at(datagram, layout.transport + 4).unwrap();
                assert_eq!(usize::from(len), layout.end - layout.transport);
                octets.extend_from_slice(&datagram[layout.transport + 8..]);
            }
            assert_eq!((cut.len(), octets), (3, payload(2500)));
        }
    }

    #[test]
    fn a_checksum_that_was_left_is_finished() {
        let (frame, vnet) = large(samples::ipv6(UDP, &samples::udp(b"odd")), NONE, 0);
        assert!(!samples::is_sound(&frame));
        let done = finish(&frame, &vnet).unwrap();
        assert!(samples::is_sound(&done[0]));
        let plain = VnetHeader::default();
        assert_eq!(finish(&frame, &plain).unwrap(), [frame]);
    }

    #[test]
    fn a_tag_comes_back_and_the_checksum_moves_with_it() {
        let (mut frame, mut vnet) = large(samples::ipv4(UDP, true, &samples::udp(b"abc")), NONE, 0);
        insert_vlan_tag(&mut frame, &mut vnet, 0x8100, 7);
        let done = finish(&frame, &vnet).unwrap();
        assert_eq!(done[0][12..18], [0x81, 0, 0, 7, 8, 0]);
        assert!(samples::is_sound(&done[0]));
    }

    #[test]
    fn what_a_frame_is_not_is_refused() {
        let segment = samples::tcp(0, Flags::ACK.bits(), &[], &payload(100));
        let (tcp, vnet) = large(samples::ipv4(TCP, true, &segment), TCPV4, 10);
        let as_udp = VnetHeader {
            gso_type: UDP_SEGMENTS,
            ..vnet
        };
        let unknown = VnetHeader {
            gso_type: 77,
            ..vnet
        };
        let beyond = VnetHeader {
            gso_type: NONE,
            checksum_start: 5000,
            ..vnet
        };
        for wrong in [as_udp, unknown, beyond] {
            assert_eq!(finish(&tcp, &wrong), Err(CannotFinish), "{wrong:?}");
        }
        assert_eq!(finish(&tcp[..40], &vnet), Err(CannotFinish));
    }

    #[test]
    fn a_virtio_header_is_in_the_machines_byte_order() {
        let mut octets = [1, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        octets[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        octets[6..8].copy_from_slice(&34u16.to_ne_bytes());
        let vnet = parse_vnet_header(octets);
        assert!(vnet.needs_checksum);
        assert_eq!(
            (vnet.gso_type, vnet.gso_size, vnet.checksum_start),
            (4, 1448, 34)
        );
    }
}
