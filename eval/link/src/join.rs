//! What a receiving network card would have done: segments of one stream that follow each other handed up as one large
//! frame (GRO, LRO).
//!
//! Every segment had its own fate on the link before. What is left is that those which leave at one moment are one
//! piece of work for the receiver and not forty, as they are behind a card.

use crate::packet::{finish_ipv4_header, put_u16, u32_at, Layout, Version, IPV6_LEN, TCP};
use weft_inet::tcp::segment::Flags;

/// Octets of an IP packet at most.
const PACKET_MAX: usize = 65_535;
/// Segments of a large frame at most: a kernel makes no more.
const SEGMENTS_MAX: usize = 44;
/// Octets of the longest head that is looked at: Ethernet with two tags, IP and TCP with all their options.
const HEAD_MAX: usize = 22 + 60 + 60;

/// Kinds of segmentation (OASIS virtio 1.2, section 5.1.6).
const NEEDS_CHECKSUM: u8 = 1;
const TCPV4: u8 = 1;
const TCPV6: u8 = 4;

/// Where fields stand in the headers.
const SEQUENCE: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;

/// Frames that leave as one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// How many of those that were given.
    pub frames: usize,
    /// A virtio-net header, numbers in the machine's byte order.
    pub offload: [u8; 10],
    /// The headers of the large frame. Behind them comes what each of the frames has behind as many octets.
    pub head: Vec<u8>,
}

/// The longest run of frames, from the first on, that one large frame stands for; none where that is the first alone.
///
/// They have to be segments of one TCP stream, each beginning where the one before ended, with nothing else that
/// differs, all of one length but the last, and with right checksums: what a sender did wrong is not put right here.
pub fn join(frames: &[impl AsRef<[u8]>]) -> Option<Joined> {
    let (first, others) = frames.split_first()?;
    let first_frame = first.as_ref();
    // Most often a second one is missing, or another stream's: that costs no sum.
    let second = others.first()?;
    let first = Segment::parse(first_frame)?;
    let alike = first.like(first_frame);
    if !first.is_followed_by(&Segment::parse(second.as_ref())?, &alike, second.as_ref())
        || !first.is_sound(first_frame)
    {
        return None;
    }
    let mut last = first;
    let mut count = 1;
    let mut octets = first.len;
    for frame in others.iter().take(SEGMENTS_MAX - 1) {
        let frame = frame.as_ref();
        let Some(segment) = Segment::parse(frame) else {
            break;
        };
        let room = PACKET_MAX - (first.head_len - first.layout.network) - octets;
        let ended = last.len < first.len || last.pushed;
        if ended
            || segment.len > room.min(first.len)
            || !last.is_followed_by(&segment, &alike, frame)
            || !segment.is_sound(frame)
        {
            break;
        }
        octets += segment.len;
        last = segment;
        count += 1;
    }
    (count > 1).then(|| first.as_head_of(first_frame, count, octets, last.pushed))
}

/// A segment with data and without anything that has to be seen by itself.
#[derive(Clone, Copy, Debug)]
struct Segment {
    layout: Layout,
    /// Octets before the data.
    head_len: usize,
    /// Octets of data.
    len: usize,
    sequence: u32,
    pushed: bool,
}

impl Segment {
    fn parse(frame: &[u8]) -> Option<Segment> {
        let layout = Layout::parse(frame)?;
        let at = layout.transport;
        if layout.protocol != TCP || layout.is_fragment || layout.end != frame.len() {
            return None;
        }
        let header_len = usize::from(*frame.get(at + DATA_OFFSET)? >> 4) * 4;
        let head_len = at + header_len;
        let flags = *frame.get(at + FLAGS)?;
        let plain = flags & !Flags::PSH.bits() == Flags::ACK.bits();
        let fits = header_len >= 20 && head_len < layout.end && head_len <= HEAD_MAX;
        (plain && fits).then_some(Segment {
            layout,
            head_len,
            len: layout.end - head_len,
            sequence: u32_at(frame, at + SEQUENCE)?,
            pushed: flags & Flags::PSH.bits() != 0,
        })
    }

    /// The head without what differs between segments of one large frame.
    fn like(&self, frame: &[u8]) -> [u8; HEAD_MAX] {
        let mut head = [0; HEAD_MAX];
        head[..self.head_len].copy_from_slice(&frame[..self.head_len]);
        let (network, transport) = (self.layout.network, self.layout.transport);
        match self.layout.version {
            // Length, identification; checksum.
            Version::V4 => {
                head[network + 2..network + 6].fill(0);
                head[network + 10..network + 12].fill(0);
            }
            Version::V6 => head[network + 4..network + 6].fill(0),
        }
        head[transport + SEQUENCE..transport + SEQUENCE + 4].fill(0);
        head[transport + FLAGS] = 0;
        head[transport + TCP_CHECKSUM..transport + TCP_CHECKSUM + 2].fill(0);
        head
    }

    /// Whether `next` continues the stream and differs in nothing else; `alike` is what the heads have in common.
    fn is_followed_by(&self, next: &Segment, alike: &[u8; HEAD_MAX], frame: &[u8]) -> bool {
        next.sequence == self.sequence.wrapping_add(self.len as u32)
            && next.head_len == self.head_len
            && next.layout.transport == self.layout.transport
            && next.like(frame) == *alike
    }

    /// Its checksum is right.
    fn is_sound(&self, frame: &[u8]) -> bool {
        let transport = &frame[self.layout.transport..self.layout.end];
        let mut sum = self.layout.pseudo_sum(frame, transport.len());
        sum.add(transport);
        sum.is_valid()
    }

    /// The large frame that begins with this one.
    fn as_head_of(&self, frame: &[u8], frames: usize, octets: usize, pushed: bool) -> Joined {
        let mut head = frame[..self.head_len].to_vec();
        let (network, transport) = (self.layout.network, self.layout.transport);
        let len = self.head_len - network + octets;
        let gso_type = match self.layout.version {
            Version::V4 => {
                put_u16(&mut head, network + 2, len as u16);
                finish_ipv4_header(&mut head, network);
                TCPV4
            }
            Version::V6 => {
                put_u16(&mut head, network + 4, (len - IPV6_LEN) as u16);
                TCPV6
            }
        };
        if pushed {
            head[transport + FLAGS] |= Flags::PSH.bits();
        }
        let in_field = self
            .layout
            .pseudo_sum(frame, self.head_len - transport + octets)
            .partial();
        put_u16(&mut head, transport + TCP_CHECKSUM, in_field);
        let mut offload = [NEEDS_CHECKSUM, gso_type, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, value) in [
            (2, self.head_len),
            (4, self.len),
            (6, transport),
            (8, TCP_CHECKSUM),
        ] {
            offload[at..at + 2].copy_from_slice(&(value as u16).to_ne_bytes());
        }
        Joined {
            frames,
            offload,
            head,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offload::{finish, parse_vnet_header};
    use crate::packet::samples::{finished, ipv4, ipv6, tcp};
    use crate::packet::u16_at;

    const ACK: u8 = Flags::ACK.bits();
    const PUSH: u8 = ACK | Flags::PSH.bits();
    const SIZE: usize = 1000;

    /// The segment at so many sizes from the beginning.
    fn segment(at: u32, flags: u8, len: usize) -> Vec<u8> {
        let options = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 9];
        let sequence = u32::MAX.wrapping_sub(1500).wrapping_add(at * SIZE as u32);
        tcp(sequence, flags, &options, &vec![at as u8; len])
    }

    fn v4(at: u32, flags: u8, len: usize) -> Vec<u8> {
        let mut frame = ipv4(TCP, true, &segment(at, flags, len));
        // As a sender that cut a large one counts them.
        let identification = u16_at(&frame, 18).unwrap().wrapping_add(at as u16);
        put_u16(&mut frame, 18, identification);
        finish_ipv4_header(&mut frame, 14);
        finished(frame)
    }

    /// What is joined comes to the same frames when a device cuts it again.
    fn assert_cut_again(frames: &[Vec<u8>], joined: &Joined) {
        let mut large = joined.head.clone();
        for frame in &frames[..joined.frames] {
            large.extend_from_slice(&frame[joined.head.len()..]);
        }
        let cut = finish(&large, &parse_vnet_header(joined.offload)).unwrap();
        assert_eq!(cut, frames[..joined.frames]);
    }

    #[test]
    fn a_burst_is_joined_to_its_end_and_cut_to_what_it_was() {
        let frames: Vec<_> = [(0, ACK, SIZE), (1, ACK, SIZE), (2, PUSH, 300)]
            .map(|(at, flags, len)| v4(at, flags, len))
            .to_vec();
        let joined = join(&frames).unwrap();
        assert_eq!(joined.frames, 3);
        assert_cut_again(&frames, &joined);
    }

    #[test]
    fn ipv6_is_joined_too() {
        let frames: Vec<_> = (0..4)
            .map(|at| finished(ipv6(TCP, &segment(at, ACK, SIZE))))
            .collect();
        let joined = join(&frames).unwrap();
        assert_eq!(joined.frames, 4);
        assert_cut_again(&frames, &joined);
    }

    #[test]
    fn a_run_ends_where_something_else_begins() {
        let count = |frames: &[Vec<u8>]| join(frames).map_or(1, |joined| joined.frames);
        let of = |third| count(&[v4(0, ACK, SIZE), v4(1, ACK, SIZE), third, v4(3, ACK, SIZE)]);
        assert_eq!(of(v4(2, ACK, SIZE)), 4);
        assert_eq!(of(v4(2, ACK, SIZE - 1)), 3, "a shorter one is the last");
        assert_eq!(of(v4(2, PUSH, SIZE)), 3, "and so is one that is pushed");
        assert_eq!(of(v4(3, ACK, SIZE)), 2, "a hole");
        assert_eq!(of(v4(2, ACK, SIZE + 1)), 2, "longer than the first");
        assert_eq!(of(v4(2, ACK | Flags::FIN.bits(), SIZE)), 2);
        assert_eq!(of(v4(2, ACK, 0)), 2, "without data");
        assert_eq!(of(finished(ipv6(TCP, &segment(2, ACK, SIZE)))), 2);
        let mut marked = ipv4(TCP, true, &segment(2, ACK, SIZE));
        marked[15] = 3;
        finish_ipv4_header(&mut marked, 14);
        assert_eq!(of(finished(marked)), 2, "congestion was experienced");
        assert_eq!(count(&[v4(0, ACK, SIZE)]), 1);
        assert_eq!(count(&[v4(0, PUSH, SIZE), v4(1, ACK, SIZE)]), 1);
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        for damaged in 0..3 {
            let mut frames: Vec<_> = (0..4).map(|at| v4(at, ACK, SIZE)).collect();
            frames[damaged][100] ^= 4;
            let joined = join(&frames).map_or(0, |joined| joined.frames);
            assert!(joined <= damaged, "{joined} {damaged}");
        }
    }

    #[test]
    fn no_more_than_a_packet_holds() {
        let frames: Vec<_> = (0..60).map(|at| v4(at, ACK, SIZE)).collect();
        assert_eq!(join(&frames).unwrap().frames, SEGMENTS_MAX);
        let large: Vec<_> = (0..20)
            .map(|at| {
                let segment = tcp(at * 8000, ACK, &[], &[1; 8000]);
                finished(ipv4(TCP, true, &segment))
            })
            .collect();
        assert_eq!(join(&large).unwrap().frames, 8);
    }
}
