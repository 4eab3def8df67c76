//! Frames that wait to leave on a carrier, one behind the other, so that one call sends them all.

use crate::frame::{Head, Key, Part, CHANNEL_MAX, CONTROL, HEADER_LEN, PART_HEADER_LEN, TIME_LEN};

/// Octets of the frame of a time.
pub const TIME_FRAME_LEN: usize = HEADER_LEN + TIME_LEN;

/// Octets that gather at most before they are to leave, and the memory that is worth giving.
pub const GATHERED_OCTETS: usize = 128 * 1024;

/// The outgoing octets of one carrier.
///
/// Headers say where in the stream they stand, so what is in here leaves as it is or the carrier ends: datagrams that
/// may still be dropped wait in a [`crate::queue::Queue`].
#[derive(Clone, Debug)]
pub struct Gather<M> {
    memory: M,
    key: Key,
    /// The key of the next frame: that of the carrier, or one that counts the control messages before it.
    next_key: Key,
    /// Control messages that were put in, where they are counted.
    controls: Option<u64>,
    start: usize,
    end: usize,
    /// Where in the memory a frame begins: that of `start` or one before it.
    frame: usize,
    /// The last octets of a datagram are before `frame`, and its first ones were taken and are overwritten.
    torn: bool,
    /// Where in the stream `end` is.
    offset: u64,
    frames: u64,
}

/// The length of the frame that begins at `at`, and whether a datagram ends with it.
fn frame_at(memory: &[u8], at: usize) -> (usize, bool) {
    let mut header = [0; HEADER_LEN];
    header.copy_from_slice(&memory[at..at + HEADER_LEN]);
    let head = Head::unchecked(&header);
    let payload = &memory[at + HEADER_LEN..at + head.frame_len()];
    let ends_datagram = head.channel != CONTROL
        && (!head.is_part || Part::split(payload).is_ok_and(|(part, octets)| part.is_last(octets)));
    (head.frame_len(), ends_datagram)
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Gather<M> {
    /// Nothing yet; the next frame begins at `offset` of the stream.
    pub fn new(memory: M, key: Key, offset: u64) -> Gather<M> {
        Gather {
            memory,
            key,
            next_key: key,
            controls: None,
            start: 0,
            end: 0,
            frame: 0,
            torn: false,
            offset,
            frames: 0,
        }
    }

    /// The same for a carrier whose segments may come in any order: its frames say how many control messages are before
    /// them.
    pub fn counting(self) -> Gather<M> {
        Gather {
            controls: Some(0),
            ..self
        }
    }

    /// The octets that are to leave, in order.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        &self.memory.as_ref()[self.start..self.end]
    }

    /// Whether nothing is to leave.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Frames put in so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The carrier took the first `taken` octets.
    #[inline]
    pub fn handle_taken(&mut self, taken: usize) {
        self.start += taken;
        assert!(self.start <= self.end, "taken that was not there");
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
            (self.frame, self.torn) = (0, false);
        }
    }

    /// Datagrams that the carrier has not taken, or not all of.
    pub fn datagrams(&self) -> u64 {
        let (mut at, memory) = (self.frame, self.memory.as_ref());
        let mut datagrams = u64::from(self.torn && self.start < self.frame);
        while at < self.end {
            let (len, ends_datagram) = frame_at(memory, at);
            at += len;
            datagrams += u64::from(ends_datagram && at > self.start);
        }
        datagrams
    }

    /// Finds the first frame whose octets are all there.
    fn find_frame(&mut self) {
        self.torn &= self.start < self.frame;
        while self.frame < self.start {
            let (len, ends_datagram) = frame_at(self.memory.as_ref(), self.frame);
            self.frame += len;
            self.torn = ends_datagram && self.frame > self.start;
        }
    }

    /// Makes room for so many octets of frames; says whether there is.
    #[inline]
    pub fn make_room(&mut self, needed: usize) -> bool {
        let len = self.memory.as_ref().len();
        if needed <= len - self.end {
            return true;
        }
        if needed > len - (self.end - self.start) {
            return false;
        }
        self.find_frame();
        self.frame -= self.start;
        self.memory.as_mut().copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        true
    }

    /// Puts in a datagram of `len` octets, or a control message on channel 0, which `fill` writes. Says whether there
    /// was room.
    ///
    /// # Errors
    /// What `fill` says. Nothing was put in then.
    #[inline]
    pub fn push<E>(
        &mut self,
        channel: u16,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        debug_assert!(channel <= CHANNEL_MAX);
        let Ok(short) = u16::try_from(len) else {
            return Ok(false);
        };
        if !self.make_room(HEADER_LEN + len) {
            return Ok(false);
        }
        let frame = &mut self.memory.as_mut()[self.end..self.end + HEADER_LEN + len];
        let (header, octets) = frame.split_at_mut(HEADER_LEN);
        fill(octets)?;
        header.copy_from_slice(&Head::whole(channel, short).to_octets(self.next_key, self.offset));
        self.put(HEADER_LEN + len);
        if channel == CONTROL {
            if let Some(controls) = &mut self.controls {
                *controls += 1;
                self.next_key = self.key.behind(*controls);
            }
        }
        Ok(true)
    }

    /// Puts in when the frames behind it were put in: `time` in microseconds. Says whether there was room.
    #[inline]
    pub fn push_time(&mut self, time: u32) -> bool {
        if !self.make_room(TIME_FRAME_LEN) {
            return false;
        }
        let frame = &mut self.memory.as_mut()[self.end..self.end + TIME_FRAME_LEN];
        let (header, octets) = frame.split_at_mut(HEADER_LEN);
        header.copy_from_slice(&Head::time().to_octets(self.next_key, self.offset));
        octets.copy_from_slice(&time.to_be_bytes());
        self.put(TIME_FRAME_LEN);
        true
    }

    fn put(&mut self, frame_len: usize) {
        self.end += frame_len;
        self.offset += frame_len as u64;
        self.frames += 1;
    }

    /// Puts in a part of a datagram, which there is room for. Gives the length of its frame.
    fn push_part(&mut self, channel: u16, part: Part, octets: &[u8]) -> usize {
        let head = Head {
            len: (PART_HEADER_LEN + octets.len()) as u16,
            channel,
            is_part: true,
        };
        let (len, header) = (head.frame_len(), head.to_octets(self.next_key, self.offset));
        let frame = &mut self.memory.as_mut()[self.end..self.end + len];
        frame[..HEADER_LEN].copy_from_slice(&header);
        frame[HEADER_LEN..HEADER_LEN + PART_HEADER_LEN].copy_from_slice(&part.to_octets());
        frame[HEADER_LEN + PART_HEADER_LEN..].copy_from_slice(octets);
        self.put(len);
        len
    }

    /// Puts in a datagram for a carrier whose segments hold `segment` octets: as parts where it does not fit into one.
    /// `cut` is told the length of each frame, behind which a segment may end, or of each with the `time` before it.
    /// Says whether there was room for all.
    pub fn push_cut(
        &mut self,
        channel: u16,
        message: u32,
        octets: &[u8],
        segment: usize,
        time: Option<u32>,
        mut cut: impl FnMut(usize),
    ) -> bool {
        let time_len = if time.is_some() { TIME_FRAME_LEN } else { 0 };
        // A segment that holds next to nothing would be all headers.
        let segment = segment.max(time_len + HEADER_LEN + PART_HEADER_LEN + 64) - time_len;
        if HEADER_LEN + octets.len() <= segment {
            if !self.make_room(time_len + HEADER_LEN + octets.len()) {
                return false;
            }
            if let Some(time) = time {
                self.push_time(time);
            }
            let put = self.push(channel, octets.len(), |room| {
                room.copy_from_slice(octets);
                Ok::<(), core::convert::Infallible>(())
            });
            let put = put.unwrap_or_else(|never| match never {});
            if put {
                cut(time_len + HEADER_LEN + octets.len());
            }
            return put;
        }
        let Ok(total) = u16::try_from(octets.len()) else {
            return false;
        };
        let most = segment - HEADER_LEN - PART_HEADER_LEN;
        let parts = octets.len().div_ceil(most);
        // All of one length, but for the last few octets: a device that is handed many segments at once wants them so.
        let room = octets.len().div_ceil(parts);
        let headers = parts * (time_len + HEADER_LEN + PART_HEADER_LEN);
        if !self.make_room(headers + octets.len()) {
            return false;
        }
        for (number, piece) in octets.chunks(room).enumerate() {
            if let Some(time) = time {
                self.push_time(time);
            }
            let part = Part {
                message,
                offset: (number * room) as u16,
                total,
            };
            let len = self.push_part(channel, part, piece);
            cut(time_len + len);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deframer::{Deframer, Next};
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec;
    use std::vec::Vec;

    fn key() -> Key {
        Key::new(&[3; 16], &[4; 16])
    }

    fn push(gather: &mut Gather<Vec<u8>>, channel: u16, octets: &[u8]) -> bool {
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(octets);
            Ok::<(), ()>(())
        };
        gather.push(channel, octets.len(), fill).unwrap()
    }

    #[test]
    fn what_cannot_be_filled_takes_nothing() {
        let mut gather = Gather::new(vec![0; 100], key(), 0);
        assert_eq!(gather.push(1, 10, |_| Err(14)), Err(14));
        assert!(gather.is_empty());
        assert_eq!(gather.push(1, 70_000, |_| Err(14)), Ok(false));
    }

    #[test]
    fn all_of_the_memory_is_used_again() {
        let mut gather = Gather::new(vec![0; 100], key(), 0);
        assert!(push(&mut gather, 1, &[1; 42]) && push(&mut gather, 1, &[2; 42]));
        assert!(!push(&mut gather, 1, &[]));
        gather.handle_taken(50);
        assert!(push(&mut gather, 1, &[3; 42]));
        assert_eq!(gather.octets()[8..50], [2; 42]);
        assert_eq!((gather.octets().len(), gather.frames()), (100, 3));
        gather.handle_taken(100);
        assert!(gather.is_empty());
    }

    #[test]
    fn a_segment_begins_with_a_frame() {
        let mut gather = Gather::new(vec![0; 200_000], key(), 0);
        let mut cuts = Vec::new();
        for len in [0, 1440, 1441, 65_507] {
            assert!(gather.push_cut(1, 0, &vec![7; len], 1448, None, |cut| cuts.push(cut)));
        }
        assert_eq!(cuts[..4], [8, 1448, 8 + 8 + 721, 8 + 8 + 720]);
        assert_eq!(cuts[4..].iter().collect::<BTreeSet<_>>().len(), 2);
        assert!(cuts.iter().all(|cut| *cut <= 1448));
        assert_eq!(cuts.iter().sum::<usize>(), gather.octets().len());
        let before = gather.octets().len();
        let mut small = Gather::new(vec![0; 3000], key(), 0);
        assert!(!small.push_cut(1, 0, &[7; 2990], 1448, None, |_| panic!(
            "not all of it fits"
        )));
        assert!(small.is_empty() && before > 65_507);
    }

    #[test]
    fn datagrams_that_wait_are_counted_and_nothing_else() {
        let mut gather = Gather::new(vec![0; 4000], key(), 0);
        assert!(push(&mut gather, 0, &[9; 20]) && gather.push_time(7));
        assert!(gather.push_cut(1, 0, &[7; 2500], 1448, None, |_| ()));
        assert_eq!(gather.datagrams(), 1, "one in two parts");
        gather.handle_taken(28 + 12 + 8 + 8 + 1250);
        assert_eq!(gather.datagrams(), 1, "its first part left");
        let rest = gather.octets().len();
        gather.handle_taken(rest);
        assert_eq!(gather.datagrams(), 0);
    }

    proptest! {
        /// However the carrier takes octets, the other end finds the frames that were put in, and no others.
        #[test]
        fn frames_come_out_as_they_were_put_in(
            steps in prop::collection::vec((1u16..9, 0usize..700, 0usize..900), 0..100)
        ) {
            let mut gather = Gather::new(vec![0; 1000], key(), 64);
            let (mut sent, mut stream) = (Vec::new(), Vec::new());
            // Where in the stream each frame ends.
            let (mut ends, mut put) = (Vec::new(), 0);
            for (channel, len, taken) in steps {
                let octets = vec![sent.len() as u8; len];
                if push(&mut gather, channel, &octets) {
                    sent.push((channel, octets));
                    put += HEADER_LEN + len;
                    ends.push(put);
                }
                let taken = taken.min(gather.octets().len());
                stream.extend_from_slice(&gather.octets()[..taken]);
                gather.handle_taken(taken);
                let waiting = ends.iter().filter(|end| **end > stream.len()).count();
                prop_assert_eq!(gather.datagrams(), waiting as u64);
            }
            stream.extend_from_slice(gather.octets());
            let (mut deframer, mut at, mut seen) = (Deframer::new(key(), 64), 0, Vec::new());
            while let Next::Frame(head, range) = deframer.next(&stream[at..]).unwrap() {
                seen.push((head.channel, stream[at..][range].to_vec()));
                at += head.frame_len();
            }
            prop_assert_eq!(at, stream.len());
            prop_assert_eq!(seen, sent);
        }
    }
}
