//! Datagrams out of a stream whose segments come in any order.
//!
//! A sender for such a carrier lets every segment begin with a frame, so its frames are given on when the segment is
//! there, whatever is missing before it. A box on the way may cut the stream anew: then a segment begins in the middle
//! of a frame, no header checks at its beginning, and it waits for its predecessor. Frames that reach from one segment
//! into the next wait for the rest. Control messages are given on in the order of the stream, since they speak of what
//! was sent before them.
//!
//! Octets that wait are copied. In the common case none does. What waits is found by its place: a peer that leaves a
//! hole and sends as many small segments as there may be costs each of them no more than the first.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::fault::Fault;
use crate::frame::{Head, Key, CONTROL, HEADER_LEN};
use crate::ranges::Ranges;

/// A frame, and what follows its header.
pub type Frame<'a> = (Head, &'a [u8]);

/// What an island, or a control message that waits, counts beside its octets.
const OVERHEAD_OCTETS: usize = 64;

/// Octets that wait for others.
#[derive(Clone, Debug)]
struct Island {
    octets: Vec<u8>,
    /// A frame begins at its start, which reaches beyond its end.
    begins_with_frame: bool,
}

/// Finds the frames of a stream, in any order.
#[derive(Clone, Debug)]
pub struct Segments {
    key: Key,
    /// Where the first frame begins.
    first: u64,
    /// What was given on, or waits as a control message: whole frames.
    parsed: Ranges,
    /// What waits, by where it begins. No two touch.
    islands: BTreeMap<u64, Island>,
    /// Control messages that wait for the stream before them, by where each begins.
    controls: BTreeMap<u64, Vec<u8>>,
    held: usize,
    held_octets_max: usize,
}

impl Segments {
    /// The first frame begins at `first` of the stream. What is kept counts `held_octets_max` octets at most, 64 for
    /// each piece of it included: the window of the carrier lets no more come in pieces of a usual size.
    pub fn new(key: Key, first: u64, held_octets_max: usize) -> Segments {
        Segments {
            key,
            first,
            parsed: Ranges::default(),
            islands: BTreeMap::new(),
            controls: BTreeMap::new(),
            held: 0,
            held_octets_max,
        }
    }

    /// Octets that wait for others.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Where the first octet that is missing stands, or the frame that it is missing in.
    pub fn frontier(&self) -> u64 {
        self.parsed.end_from(self.first)
    }

    /// Octets of the stream came, from `offset` on. Each octet comes once. Frames that are whole now are given to
    /// `sink`.
    ///
    /// # Errors
    /// The stream has something that is no frame, more waits than the window allows, or `sink` says so. The carrier is
    /// to be closed.
    pub fn handle_segment(
        &mut self,
        offset: u64,
        octets: &[u8],
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if octets.is_empty() {
            return Ok(());
        }
        let known = offset == self.first || self.parsed.has_end(offset);
        // What has to be the rest of a frame is no other one, whatever its octets look like.
        let before = self
            .island_before(offset)
            .and_then(|at| self.islands.get(&at));
        let is_rest = before.is_some_and(|island| island.begins_with_frame);
        if known || !is_rest && self.has_header(offset, octets) {
            self.parse(offset, octets, sink)?;
        } else {
            self.append(offset, octets, sink)?;
        }
        self.give_controls(sink)
    }

    fn has_header(&self, offset: u64, octets: &[u8]) -> bool {
        let header = octets.first_chunk::<HEADER_LEN>();
        header.is_some_and(|header| Head::parse(header, self.key, offset).is_some())
    }

    /// A frame begins here: gives on those that are whole. What is left waits for the rest of its frame.
    fn parse(
        &mut self,
        start: u64,
        octets: &[u8],
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // Where nothing is missing before them, control messages speak of the frames behind them, too.
        let is_in_order = start == self.frontier();
        let mut at = 0;
        while let Some(header) = octets[at..].first_chunk::<HEADER_LEN>() {
            let offset = start + at as u64;
            let head = Head::parse(header, self.key, offset).ok_or(Fault::Check(offset))?;
            let end = at + head.verify()?.frame_len();
            if self
                .parsed
                .next_start(offset)
                .is_some_and(|next| next < start + end as u64)
            {
                return Err(Fault::Overlap(offset));
            }
            let Some(payload) = octets.get(at + HEADER_LEN..end) else {
                break;
            };
            if head.channel == CONTROL && !is_in_order {
                self.controls.insert(offset, payload.to_vec());
                self.hold(payload.len())?;
            } else {
                sink((head, payload))?;
            }
            at = end;
        }
        let end = start + at as u64;
        if !self.parsed.insert(start..end) {
            return Err(Fault::Overlap(start));
        }
        // What waits behind these begins with a frame, as is known now.
        if at == octets.len() {
            let next = self.islands.remove(&end);
            return next.map_or(Ok(()), |island| self.parse_island(end, island, sink));
        }
        let island = Island {
            octets: octets[at..].to_vec(),
            begins_with_frame: true,
        };
        match self.islands.remove(&(end + island.octets.len() as u64)) {
            None => {
                let left = island.octets.len();
                self.islands.insert(end, island);
                self.hold(left)
            }
            Some(next) => {
                self.held += island.octets.len();
                self.parse_island(end, joined(island, next), sink)
            }
        }
    }

    /// A frame begins where this island does, which is out already.
    fn parse_island(
        &mut self,
        start: u64,
        island: Island,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.held -= island.octets.len();
        self.parse(start, &island.octets, sink)
    }

    /// Nothing says that a frame begins here: the octets follow those that wait before them, or wait themselves.
    fn append(
        &mut self,
        offset: u64,
        octets: &[u8],
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = self.island_before(offset).unwrap_or(offset);
        let before = self.islands.remove(&start);
        let was_looked_at = before
            .as_ref()
            .is_some_and(|island| island.octets.len() >= HEADER_LEN);
        let come = Island {
            octets: octets.to_vec(),
            begins_with_frame: false,
        };
        let mut island = match before {
            Some(before) => joined(before, come),
            None => come,
        };
        if let Some(next) = self.islands.remove(&(offset + octets.len() as u64)) {
            island = joined(island, next);
        }
        // A frame that comes octet by octet is not to be copied as often.
        let is_short = was_looked_at && self.is_short(start, &island);
        if island.begins_with_frame && !is_short {
            self.held += octets.len();
            return self.parse_island(start, island, sink);
        }
        self.islands.insert(start, island);
        self.hold(octets.len())
    }

    /// Where the island begins that ends at `offset`.
    fn island_before(&self, offset: u64) -> Option<u64> {
        let (start, island) = self.islands.range(..offset).next_back()?;
        (start + island.octets.len() as u64 == offset).then_some(*start)
    }

    /// More has to come of the frame that the island begins with, whose header was found right before.
    fn is_short(&self, start: u64, island: &Island) -> bool {
        let header = island.octets.first_chunk::<HEADER_LEN>();
        let head = header.and_then(|header| Head::parse(header, self.key, start));
        head.is_some_and(|head| island.octets.len() < head.frame_len())
    }

    /// So many octets more wait, which are in already.
    fn hold(&mut self, len: usize) -> Result<(), Fault> {
        self.held += len;
        let pieces = self.islands.len() + self.controls.len();
        match self.held + pieces * OVERHEAD_OCTETS <= self.held_octets_max {
            true => Ok(()),
            false => Err(Fault::Held(self.held_octets_max)),
        }
    }

    /// Gives on the control messages that nothing is missing before.
    fn give_controls(
        &mut self,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let frontier = self.frontier();
        while let Some(first) = self.controls.first_entry() {
            if *first.key() >= frontier {
                break;
            }
            let payload = first.remove();
            self.held -= payload.len();
            sink((Head::whole(CONTROL, payload.len() as u16), &payload))?;
        }
        Ok(())
    }
}

/// Both, the second of which begins where the first ends.
fn joined(mut one: Island, other: Island) -> Island {
    one.octets.extend(other.octets);
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Gather;
    use proptest::prelude::*;
    use std::vec;

    const FIRST: u64 = 64;

    fn key() -> Key {
        Key::new(&[1; 16], &[2; 16])
    }

    fn segments() -> Segments {
        Segments::new(key(), FIRST, 1 << 20)
    }

    /// A stream of these datagrams, and where each frame of it ends.
    fn stream(datagrams: &[(u16, Vec<u8>)]) -> (Vec<u8>, Vec<usize>) {
        let (mut gather, mut ends) = (Gather::new(vec![0; 1 << 20], key(), FIRST), vec![]);
        for (channel, octets) in datagrams {
            let cut = |len| ends.push(ends.last().unwrap_or(&0) + len);
            assert!(gather.push_cut(*channel, 0, octets, 70_000, cut));
        }
        (gather.octets().to_vec(), ends)
    }

    fn handle(
        segments: &mut Segments,
        offset: u64,
        octets: &[u8],
    ) -> Result<Vec<(u16, Vec<u8>)>, Fault> {
        let mut seen = vec![];
        segments.handle_segment(offset, octets, &mut |(head, octets)| {
            seen.push((head.channel, octets.to_vec()));
            Ok(())
        })?;
        Ok(seen)
    }

    fn at(index: usize) -> u64 {
        FIRST + index as u64
    }

    #[test]
    fn a_segment_that_begins_with_a_frame_waits_for_nothing() {
        let datagrams = [(1, vec![1; 20]), (2, vec![2; 30]), (3, vec![3; 40])];
        let (octets, ends) = stream(&datagrams);
        let mut segments = segments();
        let seen = handle(&mut segments, at(ends[1]), &octets[ends[1]..]);
        assert_eq!(seen, Ok(vec![datagrams[2].clone()]));
        assert_eq!((segments.held(), segments.frontier()), (0, FIRST));
        let seen = handle(&mut segments, at(0), &octets[..ends[1]]);
        assert_eq!(seen, Ok(datagrams[..2].to_vec()));
        assert_eq!(segments.frontier(), at(octets.len()));
    }

    #[test]
    fn a_segment_that_a_box_cut_anew_waits_for_those_before_it() {
        let datagrams = [(1, vec![1; 20]), (2, vec![2; 30]), (3, vec![3; 40])];
        let (octets, _) = stream(&datagrams);
        let mut segments = segments();
        for (from, to) in [(40, 70), (70, 100)] {
            assert_eq!(
                handle(&mut segments, at(from), &octets[from..to]),
                Ok(vec![])
            );
        }
        assert_eq!(segments.held(), 60);
        let seen = handle(&mut segments, at(0), &octets[..40]);
        assert_eq!(seen, Ok(datagrams[..2].to_vec()));
        let seen = handle(&mut segments, at(100), &octets[100..]);
        assert_eq!(seen, Ok(datagrams[2..].to_vec()));
        assert_eq!(segments.held(), 0);
    }

    #[test]
    fn control_messages_come_in_the_order_of_the_stream() {
        let datagrams = [
            (0, vec![1; 5]),
            (1, vec![2; 30]),
            (0, vec![3; 6]),
            (2, vec![4; 9]),
        ];
        let (octets, ends) = stream(&datagrams);
        let mut segments = segments();
        let seen = handle(&mut segments, at(ends[1]), &octets[ends[1]..]);
        assert_eq!(seen, Ok(vec![datagrams[3].clone()]));
        let seen = handle(&mut segments, at(ends[0]), &octets[ends[0]..ends[1]]);
        assert_eq!(seen, Ok(vec![datagrams[1].clone()]));
        let seen = handle(&mut segments, at(0), &octets[..ends[0]]);
        assert_eq!(seen, Ok(vec![datagrams[0].clone(), datagrams[2].clone()]));
    }

    #[test]
    fn a_control_message_comes_before_what_follows_it_in_its_segment() {
        let datagrams = [
            (1, vec![1; 20]),
            (0, vec![2; 6]),
            (1, vec![3; 9]),
            (0, vec![4; 6]),
            (1, vec![5; 9]),
        ];
        let (octets, ends) = stream(&datagrams);
        let seen = handle(&mut segments(), at(0), &octets);
        assert_eq!(seen, Ok(datagrams.to_vec()));
        // A header that waited for its rest is no obstacle.
        let mut segments = segments();
        let seen = handle(&mut segments, at(0), &octets[..ends[0] + 3]);
        assert_eq!(seen, Ok(datagrams[..1].to_vec()));
        let seen = handle(&mut segments, at(ends[0] + 3), &octets[ends[0] + 3..]);
        assert_eq!(seen, Ok(datagrams[1..].to_vec()));
    }

    #[test]
    fn what_is_wrong_at_a_known_place_ends_it() {
        let (mut octets, _) = stream(&[(1, vec![1; 20]), (2, vec![2; 30])]);
        octets[30] ^= 1;
        assert_eq!(
            handle(&mut segments(), at(0), &octets),
            Err(Fault::Check(at(28)))
        );
    }

    #[test]
    fn what_waits_is_bounded_with_what_each_piece_takes() {
        let most = 10 * (1 + OVERHEAD_OCTETS);
        let mut segments = Segments::new(key(), FIRST, most);
        for piece in 0..10 {
            assert_eq!(handle(&mut segments, at(500 + 2 * piece), &[0]), Ok(vec![]));
        }
        assert_eq!(
            handle(&mut segments, at(700), &[0; 1]),
            Err(Fault::Held(most))
        );
    }

    #[test]
    fn many_control_messages_wait_for_the_stream_before_them() {
        let mut gather = Gather::new(vec![0; 4 << 20], key(), FIRST);
        let mut ends = vec![0];
        for _ in 0..60_000 {
            let cut = |len| ends.push(ends[ends.len() - 1] + len);
            assert!(gather.push_cut(CONTROL, 0, &[7; 4], 70_000, cut));
        }
        let octets = gather.octets().to_vec();
        let mut segments = Segments::new(key(), FIRST, 16 << 20);
        for piece in ends.windows(2).skip(1) {
            let seen = handle(&mut segments, at(piece[0]), &octets[piece[0]..piece[1]]);
            assert_eq!(seen, Ok(vec![]));
        }
        let seen = handle(&mut segments, at(0), &octets[..ends[1]]).unwrap();
        assert_eq!((seen.len(), segments.held()), (60_000, 0));
    }

    #[test]
    fn a_frame_that_comes_octet_by_octet_is_given_on_whole() {
        let datagram = vec![(1, vec![5; 3000])];
        let (octets, _) = stream(&datagram);
        let mut segments = segments();
        let mut seen = vec![];
        for (number, octet) in octets.iter().enumerate() {
            seen.extend(handle(&mut segments, at(number), &[*octet]).unwrap());
        }
        assert_eq!((seen, segments.held()), (datagram, 0));
    }

    #[test]
    fn a_frame_that_reaches_into_another_ends_it() {
        let mut segments = segments();
        // At the place of the second a frame checks, and the first claims its octets.
        let later = Head::whole(1, 0).to_octets(key(), at(24));
        assert_eq!(
            handle(&mut segments, at(24), &later).map(|seen| seen.len()),
            Ok(1)
        );
        let outer = Head::whole(2, 100).to_octets(key(), at(0));
        assert_eq!(
            handle(&mut segments, at(0), &outer),
            Err(Fault::Overlap(at(0)))
        );
    }

    proptest! {
        /// However a stream is cut and in whatever order its segments come: each datagram comes once, as it was, and
        /// nothing is held in the end.
        #[test]
        fn each_datagram_comes_once(
            lens in prop::collection::vec((0u16..5, prop_oneof![1usize..60, 1usize..120, 1000usize..3000]), 1..20),
            pieces in prop::collection::vec((1usize..400, any::<u32>(), any::<bool>()), 1..60),
        ) {
            let datagrams: Vec<_> = lens.into_iter().enumerate().map(|(number, (channel, len))| {
                let len = if channel == 0 { len.min(100) } else { len };
                (channel, vec![number as u8; len])
            }).collect();
            let (octets, ends) = stream(&datagrams);
            let (mut cuts, mut from) = (vec![], 0);
            for (len, order, aligned) in pieces.into_iter().cycle() {
                let to = octets.len().min(from + len);
                // The sender's cuts mostly, a box's sometimes.
                let to = if aligned { *ends.iter().find(|end| **end >= to).unwrap() } else { to };
                cuts.push((order, from, to));
                from = to;
                if from == octets.len() { break; }
            }
            cuts.sort();
            let (mut segments, mut seen) = (segments(), vec![]);
            for (_, from, to) in cuts {
                seen.extend(handle(&mut segments, at(from), &octets[from..to]).unwrap());
            }
            prop_assert_eq!((segments.held(), segments.frontier()), (0, at(octets.len())));
            let controls = |all: &[(u16, Vec<u8>)]| -> Vec<_> {
                all.iter().filter(|(channel, _)| *channel == 0).cloned().collect()
            };
            prop_assert_eq!(controls(&seen), controls(&datagrams));
            let mut wanted = datagrams;
            seen.sort();
            wanted.sort();
            prop_assert_eq!(seen, wanted);
        }
    }
}
