//! Holes in TCP streams, as the frames that arrive show them: when one is filled, and what waited behind it.
//!
//! Who measures a receiver wants to know from when on it could have gone on. Neither a program nor the kernel's TCP
//! tells that, and who passes the frames on sees it.

use crate::packet::{u16_at, u32_at, Layout, TCP};
use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;
use weft_inet::tcp::segment::Flags;

/// Streams that are followed. What else there is costs memory for nothing.
const STREAMS_MAX: usize = 64;
/// Ranges behind holes that are kept of a stream. One with more is not followed any further.
const RANGES_MAX: usize = 1 << 16;

/// Where fields stand in the header of TCP.
const SEQUENCE: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;

/// One direction of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// Who sends.
    pub from: SocketAddr,
    /// Who receives.
    pub to: SocketAddr,
}

/// A segment that filled a hole with something behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Filled {
    /// Where.
    pub stream: Stream,
    /// Octets of the stream that were there without a hole before it came.
    pub before: u64,
    /// And since.
    pub after: u64,
    /// New ones that it brought itself; the others had waited.
    pub brought: u64,
}

/// The streams that began since it looks.
#[derive(Clone, Debug, Default)]
pub struct Holes {
    streams: Vec<(Stream, Arrived)>,
}

/// What has arrived of a stream, by offsets from its beginning.
#[derive(Clone, Debug, Default)]
struct Arrived {
    /// Sequence number of offset 0.
    origin: u32,
    /// Up to here without a hole.
    next: u64,
    /// Behind holes: beginnings and ends.
    behind: BTreeMap<u64, u64>,
    /// It is too torn to be followed.
    given_up: bool,
}

impl Holes {
    /// Takes note of a frame that arrived.
    pub fn handle_frame(&mut self, frame: &[u8]) -> Option<Filled> {
        let layout = Layout::parse(frame)?;
        if layout.protocol != TCP || layout.is_fragment {
            return None;
        }
        let at = layout.transport;
        let sequence = u32_at(frame, at + SEQUENCE)?;
        let header_len = usize::from(*frame.get(at + DATA_OFFSET)? >> 4) * 4;
        let flags = *frame.get(at + FLAGS)?;
        let len = layout.end.checked_sub(at + header_len)? as u64;
        let stream = stream(frame, &layout)?;
        if flags & Flags::SYN.bits() != 0 {
            self.begin(stream, sequence.wrapping_add(1));
            return None;
        }
        let (_, arrived) = self.streams.iter_mut().find(|(one, _)| *one == stream)?;
        arrived
            .handle(sequence, len)
            .map(|(before, brought)| Filled {
                stream,
                before,
                after: arrived.next,
                brought,
            })
    }

    /// How many octets of each stream have arrived without a hole, of those that could be followed to now.
    pub fn ends(&self) -> impl Iterator<Item = (Stream, u64)> + '_ {
        let whole = self.streams.iter().filter(|(_, of)| !of.given_up);
        whole.map(|(stream, of)| (*stream, of.next))
    }

    /// A SYN that is sent again begins nothing; one with another number does.
    fn begin(&mut self, stream: Stream, origin: u32) {
        let fresh = Arrived {
            origin,
            ..Arrived::default()
        };
        let known = self.streams.iter().position(|(one, _)| *one == stream);
        match known {
            Some(at) if self.streams[at].1.origin == origin => {}
            Some(at) => self.streams[at].1 = fresh,
            None if self.streams.len() < STREAMS_MAX => self.streams.push((stream, fresh)),
            None => {}
        }
    }
}

impl Arrived {
    /// Up to where the stream was whole before, and what the segment brought, if it filled a hole with octets behind.
    fn handle(&mut self, sequence: u32, len: u64) -> Option<(u64, u64)> {
        let expected = self.origin.wrapping_add(self.next as u32);
        let distance = i64::from(sequence.wrapping_sub(expected) as i32);
        let end = self.next.checked_add_signed(distance)? + len;
        if len == 0 || self.given_up || end <= self.next {
            return None;
        }
        if distance > 0 {
            self.keep(end - len, end);
            return None;
        }
        let before = self.next;
        self.next = end;
        let mut waited = false;
        while let Some(first) = self.behind.first_entry() {
            if *first.key() > self.next {
                break;
            }
            let reaches = first.remove();
            waited |= reaches > self.next;
            self.next = self.next.max(reaches);
        }
        waited.then_some((before, end - before))
    }

    /// Keeps a range behind a hole, as one with those that it touches.
    fn keep(&mut self, mut start: u64, mut end: u64) {
        if let Some((&earlier, &reaches)) = self.behind.range(..=start).next_back() {
            if reaches >= start {
                self.behind.remove(&earlier);
                (start, end) = (earlier, end.max(reaches));
            }
        }
        while let Some((&later, &reaches)) = self.behind.range(start..=end).next() {
            self.behind.remove(&later);
            end = end.max(reaches);
        }
        self.behind.insert(start, end);
        if self.behind.len() > RANGES_MAX {
            self.given_up = true;
            self.behind = BTreeMap::new();
        }
    }
}

fn stream(frame: &[u8], layout: &Layout) -> Option<Stream> {
    let (source, destination) = layout.addresses(frame);
    let address = |octets: &[u8]| match octets.len() {
        4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
        _ => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
    };
    let end = |octets: &[u8], at: usize| {
        let port = u16_at(frame, layout.transport + at)?;
        Some(SocketAddr::new(address(octets)?, port))
    };
    Some(Stream {
        from: end(source, 0)?,
        to: end(destination, 2)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::samples::{finished, ipv4, tcp};

    /// Just before the numbers wrap.
    const ORIGIN: u32 = u32::MAX - 100;

    fn syn(holes: &mut Holes) {
        let segment = tcp(ORIGIN.wrapping_sub(1), Flags::SYN.bits(), &[], &[]);
        assert_eq!(
            holes.handle_frame(&finished(ipv4(TCP, true, &segment))),
            None
        );
    }

    /// What a segment at an offset fills: where it was whole before and is since, and what it brought.
    fn data(holes: &mut Holes, offset: u32, len: usize) -> Option<(u64, u64, u64)> {
        let sequence = ORIGIN.wrapping_add(offset);
        let segment = tcp(sequence, Flags::ACK.bits(), &[], &vec![7; len]);
        let filled = holes.handle_frame(&finished(ipv4(TCP, true, &segment)));
        filled.map(|filled| (filled.before, filled.after, filled.brought))
    }

    #[test]
    fn a_hole_is_filled_by_what_lets_something_behind_it_go_on() {
        let mut holes = Holes::default();
        syn(&mut holes);
        assert_eq!(data(&mut holes, 0, 100), None);
        assert_eq!(data(&mut holes, 200, 100), None);
        assert_eq!(data(&mut holes, 400, 100), None);
        assert_eq!(data(&mut holes, 300, 100), None);
        assert_eq!(data(&mut holes, 100, 100), Some((100, 500, 100)));
        assert_eq!(data(&mut holes, 100, 100), None, "it came again");
        assert_eq!(data(&mut holes, 500, 10), None);
        assert_eq!(holes.ends().map(|(_, end)| end).collect::<Vec<_>>(), [510]);
    }

    #[test]
    fn two_holes_are_filled_one_after_the_other() {
        let mut holes = Holes::default();
        syn(&mut holes);
        for offset in [100, 300] {
            assert_eq!(data(&mut holes, offset, 100), None);
        }
        assert_eq!(data(&mut holes, 0, 150), Some((0, 200, 150)));
        assert_eq!(data(&mut holes, 150, 150), Some((200, 400, 100)));
    }

    #[test]
    fn a_stream_that_began_before_is_not_followed_and_a_new_one_begins_anew() {
        let mut holes = Holes::default();
        data(&mut holes, 100, 100);
        assert_eq!(data(&mut holes, 0, 100), None);
        syn(&mut holes);
        data(&mut holes, 100, 100);
        syn(&mut holes);
        assert_eq!(data(&mut holes, 0, 100), Some((0, 200, 100)));
        let again = tcp(9, Flags::SYN.bits(), &[], &[]);
        holes.handle_frame(&finished(ipv4(TCP, true, &again)));
        assert_eq!(holes.ends().map(|(_, end)| end).collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn a_stream_of_too_many_pieces_is_given_up() {
        let mut holes = Holes::default();
        syn(&mut holes);
        for piece in 0..=RANGES_MAX as u32 {
            data(&mut holes, 10 + piece * 2, 1);
        }
        assert_eq!(data(&mut holes, 0, 10), None);
        assert_eq!(holes.ends().count(), 0);
    }
}
