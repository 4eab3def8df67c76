//! A TCP segment as a box on the way sees it: headers to copy, and the octets of the stream.

use crate::packet::{put_u16, set_packet_len, u32_at, Layout, Version, IPV4_LEN, IPV6_LEN, TCP};
use weft_inet::tcp::segment::Flags;

/// Octets of a TCP header without options.
const TCP_LEN: usize = 20;
/// Kinds of options whose segments may be split and joined: end, no operation, SACK, timestamps. Others may speak of
/// just these octets, as signatures do (RFC 2385, RFC 5925) and Multipath TCP (RFC 8684).
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
const HARMLESS: [u8; 2] = [5, 8];

/// Which stream a segment belongs to: addresses and ports as they stand in the headers.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct FlowId(Vec<u8>);

impl FlowId {
    /// The stream of a frame with a whole TCP segment.
    pub(crate) fn of(frame: &[u8], layout: &Layout) -> Option<FlowId> {
        let ports = frame.get(layout.transport..layout.transport + 4)?;
        let whole = layout.protocol == TCP && !layout.is_fragment;
        let (source, destination) = layout.addresses(frame);
        whole.then(|| FlowId([source, destination, ports].concat()))
    }
}

/// A segment with octets of the stream and nothing that binds it to its size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    version: Version,
    network: usize,
    transport: usize,
    /// All headers, of the first segment where several were joined.
    head: Vec<u8>,
    /// Sequence number of the first octet.
    pub(crate) sequence: u32,
    /// PSH is set.
    pub(crate) pushes: bool,
    /// What it carries.
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    /// Reads a segment; none where it has to stay as it is: without payload, with a flag beside ACK and PSH, with an
    /// option that is not known to be harmless, with IP options, or with a wrong checksum, which must stay wrong.
    pub(crate) fn parse(frame: &[u8], layout: &Layout) -> Option<Segment> {
        let ip_len = match layout.version {
            Version::V4 => IPV4_LEN,
            Version::V6 => IPV6_LEN,
        };
        let header = frame.get(layout.transport..layout.end)?;
        let plain = layout.transport - layout.network == ip_len && !layout.is_fragment;
        if layout.protocol != TCP || !plain || header.len() < TCP_LEN {
            return None;
        }
        let header_len = usize::from(header[12] >> 4) * 4;
        let options = header.get(TCP_LEN..header_len)?;
        let flags = Flags::from_bits_retain(header[13] & !Flags::PSH.bits());
        let reserved = header[12] & 15;
        let ordinary = flags == Flags::ACK && reserved == 0 && are_harmless(options);
        if !ordinary || header.len() == header_len || !is_sum_right(frame, layout) {
            return None;
        }
        let (head, payload) = frame[..layout.end].split_at(layout.transport + header_len);
        Some(Segment {
            version: layout.version,
            network: layout.network,
            transport: layout.transport,
            sequence: u32_at(header, 4)?,
            pushes: Flags::from_bits_retain(header[13]).contains(Flags::PSH),
            head: head.to_vec(),
            payload: payload.to_vec(),
        })
    }

    /// Octets of payload that fit into a packet of `mtu` octets, one at least.
    pub(crate) fn room(&self, mtu: usize) -> usize {
        mtu.saturating_sub(self.head.len() - self.network).max(1)
    }

    /// Whether `next` continues this one with the same headers: all but lengths, sums, identification and PSH.
    pub(crate) fn can_join(&self, next: &Segment) -> bool {
        let end = self.sequence.wrapping_add(self.payload.len() as u32);
        !self.pushes && next.sequence == end && self.signature() == next.signature()
    }

    /// What two segments that are joined have in common.
    fn signature(&self) -> Vec<u8> {
        let mut head = self.head.clone();
        match self.version {
            Version::V4 => {
                head[self.network + 2..self.network + 6].fill(0);
                put_u16(&mut head, self.network + 10, 0);
            }
            Version::V6 => put_u16(&mut head, self.network + 4, 0),
        }
        head[self.transport + 4..self.transport + 8].fill(0);
        head[self.transport + 13] &= !Flags::PSH.bits();
        put_u16(&mut head, self.transport + 16, 0);
        head
    }

    /// Takes the first `len` octets off as a segment of its own. PSH stays with the last octet.
    pub(crate) fn split_off_head(&mut self, len: usize) -> Segment {
        let rest = self.payload.split_off(len);
        let head = Segment {
            pushes: false,
            payload: std::mem::replace(&mut self.payload, rest),
            ..self.clone_headers()
        };
        self.sequence = self.sequence.wrapping_add(len as u32);
        head
    }

    fn clone_headers(&self) -> Segment {
        Segment {
            head: self.head.clone(),
            payload: Vec::new(),
            ..*self
        }
    }

    /// The frame, with lengths and checksums that fit it. `identification` is that of IPv4, where it is to change.
    pub(crate) fn encode(&self, identification: Option<u16>) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.head.len() + self.payload.len());
        frame.extend_from_slice(&self.head);
        frame.extend_from_slice(&self.payload);
        if let (Version::V4, Some(identification)) = (self.version, identification) {
            put_u16(&mut frame, self.network + 4, identification);
        }
        set_packet_len(&mut frame, self.version, self.network);
        let at = self.transport;
        frame[at + 4..at + 8].copy_from_slice(&self.sequence.to_be_bytes());
        frame[at + 13] &= !Flags::PSH.bits();
        frame[at + 13] |= if self.pushes { Flags::PSH.bits() } else { 0 };
        put_u16(&mut frame, at + 16, 0);
        let layout = Layout {
            version: self.version,
            network: self.network,
            transport: at,
            protocol: TCP,
            end: frame.len(),
            is_fragment: false,
        };
        let mut sum = layout.pseudo_sum(&frame, frame.len() - at);
        sum.add(&frame[at..]);
        put_u16(&mut frame, at + 16, sum.finish());
        frame
    }
}

fn are_harmless(mut options: &[u8]) -> bool {
    while let Some((&kind, rest)) = options.split_first() {
        options = match kind {
            END_OF_OPTIONS => return true,
            NO_OPERATION => rest,
            kind if HARMLESS.contains(&kind) => {
                let len = rest.first().map_or(0, |len| usize::from(*len));
                match options.get(len.max(2)..) {
                    Some(behind) => behind,
                    None => return false,
                }
            }
            _ => return false,
        };
    }
    true
}

fn is_sum_right(frame: &[u8], layout: &Layout) -> bool {
    let mut sum = layout.pseudo_sum(frame, layout.end - layout.transport);
    sum.add(&frame[layout.transport..layout.end]);
    sum.is_valid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples::{finished, ipv4, ipv6, is_sound, tcp};

    const ACK: u8 = Flags::ACK.bits();
    const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];

    fn parse(frame: &[u8]) -> Option<Segment> {
        Segment::parse(frame, &Layout::parse(frame).unwrap())
    }

    fn segment(sequence: u32, flags: u8, payload: &[u8]) -> Segment {
        let frame = ipv4(TCP, true, &tcp(sequence, flags, &TIMESTAMPS, payload));
        parse(&finished(frame)).unwrap()
    }

    #[test]
    fn a_segment_round_trips() {
        for frame in [
            ipv4(
                TCP,
                true,
                &tcp(7, ACK | Flags::PSH.bits(), &TIMESTAMPS, b"abcdef"),
            ),
            ipv6(TCP, &tcp(7, ACK, &[], b"abcde")),
        ] {
            let frame = finished(frame);
            let segment = parse(&frame).unwrap();
            assert_eq!(segment.encode(None), frame);
            let other = segment.encode(Some(77));
            assert!(is_sound(&other));
        }
    }

    #[test]
    fn padding_is_no_payload() {
        let mut frame = finished(ipv4(TCP, true, &tcp(7, ACK, &[], b"a")));
        frame.extend([0; 5]);
        assert_eq!(parse(&frame).unwrap().payload, b"a");
    }

    #[test]
    fn some_segments_stay_as_they_are() {
        let signed = [19, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1];
        let cut_short = [1, 1, 1, 8];
        for (what, segment) in [
            ("no payload", tcp(1, ACK, &[], b"")),
            ("FIN", tcp(1, ACK | Flags::FIN.bits(), &[], b"abc")),
            ("SYN", tcp(1, Flags::SYN.bits(), &[], b"abc")),
            ("URG", tcp(1, ACK | Flags::URG.bits(), &[], b"abc")),
            ("CWR", tcp(1, ACK | Flags::CWR.bits(), &[], b"abc")),
            ("a signature", tcp(1, ACK, &signed, b"abc")),
            ("a broken option", tcp(1, ACK, &cut_short, b"abc")),
        ] {
            assert_eq!(parse(&finished(ipv4(TCP, true, &segment))), None, "{what}");
        }
        let mut damaged = finished(ipv4(TCP, true, &tcp(1, ACK, &[], b"abc")));
        damaged[54] ^= 1;
        assert_eq!(parse(&damaged), None, "a wrong checksum");
    }

    #[test]
    fn only_neighbours_with_equal_headers_are_joined() {
        let first = segment(u32::MAX - 2, ACK, b"abc");
        assert!(first.can_join(&segment(0, ACK, b"def")));
        assert!(first.can_join(&segment(0, ACK | Flags::PSH.bits(), b"def")));
        assert!(!first.can_join(&segment(1, ACK, b"def")), "a gap");
        let pushed = segment(u32::MAX - 2, ACK | Flags::PSH.bits(), b"abc");
        assert!(!pushed.can_join(&segment(0, ACK, b"def")), "PSH");
        let mut later = tcp(0, ACK, &TIMESTAMPS, b"def");
        later[27] = 9;
        let later = parse(&finished(ipv4(TCP, true, &later))).unwrap();
        assert!(!first.can_join(&later), "another time stamp");
        let mut acknowledging = tcp(0, ACK, &TIMESTAMPS, b"def");
        acknowledging[11] = 10;
        let acknowledging = parse(&finished(ipv4(TCP, true, &acknowledging))).unwrap();
        assert!(
            !first.can_join(&acknowledging),
            "another acknowledgement number"
        );
    }

    #[test]
    fn a_split_keeps_the_push_with_the_last_octet() {
        let mut rest = segment(u32::MAX, ACK | Flags::PSH.bits(), b"abcdef");
        let head = rest.split_off_head(2);
        assert_eq!(
            (head.sequence, head.pushes, &head.payload[..]),
            (u32::MAX, false, &b"ab"[..])
        );
        assert_eq!(
            (rest.sequence, rest.pushes, &rest.payload[..]),
            (1, true, &b"cdef"[..])
        );
        assert!(head.can_join(&rest));
    }
}
