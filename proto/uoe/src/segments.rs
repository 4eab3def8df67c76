//! Datagrams out of a stream whose segments come in any order.
//!
//! A sender for such a carrier lets every segment begin with a frame, so its frames are given on when the segment is
//! there, whatever is missing before it. A box on the way may cut the stream anew: then a segment begins in the middle
//! of a frame, no header checks at its beginning, and it waits for its predecessor. Frames that reach from one segment
//! into the next wait for the rest. Control messages are given on in the order of the stream, since they speak of what
//! was sent before them.
//!
//! What is missing may be *forgiven*: nobody waits for it any more ([`Segments::forgive`]). A control message must not
//! be lost so. Each header's check says how many control messages are before it in the stream, so it is known whether
//! one is missing; while one is, nothing is forgiven. What comes too late all the same, because it was sent again, is
//! found by the time that its sender put before it, and dropped.
//!
//! Octets that wait are copied. In the common case none does. What waits is found by its place: a peer that leaves a
//! hole and sends as many small segments as there may be costs each of them no more than the first.

use core::time::Duration;

use crate::ages::Ages;
use crate::controls::Controls;
use crate::fault::Fault;
use crate::frame::{Head, Key, Part, CONTROL, HEADER_LEN, TIME_LEN};
use crate::islands::{Island, Islands};
use crate::ranges::Ranges;

/// A frame, and what follows its header.
pub type Frame<'a> = (Head, &'a [u8]);

/// What an island, or a control message that waits, counts beside its octets.
const OVERHEAD_OCTETS: usize = 64;
/// Control messages that may be missing before a frame that is given on. One that more are missing before waits.
const MISSING_CONTROLS_MAX: u64 = 16;

/// What is waited for no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forgiven {
    /// Everything before this place of the stream: frames that came begin there.
    pub before: u64,
    /// Octets of it that had not come.
    pub octets: u64,
}

/// Finds the frames of a stream, in any order.
#[derive(Clone, Debug)]
pub struct Segments {
    key: Key,
    /// Where the first frame begins.
    first: u64,
    /// What was given on, or waits as a control message: whole frames. What was forgiven counts as such.
    parsed: Ranges,
    islands: Islands,
    controls: Controls,
    /// Nothing before it is taken any more.
    floor: u64,
    /// How old datagrams may be.
    ages: Option<Ages>,
    /// Datagrams that were too old.
    late: u64,
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
            islands: Islands::default(),
            controls: Controls::default(),
            floor: first,
            ages: None,
            late: 0,
            held: 0,
            held_octets_max,
        }
    }

    /// A datagram that came by so much later than the fastest ones is dropped, where its sender says the time.
    pub fn set_age(&mut self, age: Option<Duration>, now: Duration) {
        match (age, &mut self.ages) {
            (Some(age), Some(ages)) => ages.set_age(age),
            (age, ages) => *ages = age.map(|age| Ages::new(age, now)),
        }
    }

    /// How old datagrams may be.
    pub fn age(&self) -> Option<Duration> {
        self.ages.as_ref().map(Ages::age)
    }

    /// Datagrams that were dropped as too old. Of one in parts the first counts.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Octets that wait for others.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Where the first octet that is missing stands, or the frame that it is missing in.
    pub fn frontier(&self) -> u64 {
        self.parsed.end_from(self.first)
    }

    /// Nothing before this place is taken any more: whoever counts octets leaves those out.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Behind the last octet that came.
    pub fn end(&self) -> u64 {
        let parsed = self.parsed.end().unwrap_or(self.first);
        self.islands.end().unwrap_or(parsed).max(parsed)
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
        now: Duration,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        // It was under way to this end's memory when it was forgiven.
        if octets.is_empty() || offset < self.floor {
            return Ok(());
        }
        let known = offset == self.first || self.parsed.has_end(offset);
        // What has to be the rest of a frame is no other one, whatever its octets look like.
        let is_rest = self.islands.has_frame_before(offset);
        if known || !is_rest && self.head_at(offset, octets).is_some() {
            self.parse(offset, octets, now, sink)?;
        } else {
            self.append(offset, octets, now, sink)?;
        }
        self.give_controls(sink)
    }

    /// What is missing before `until` is waited for no more, as far as frames behind it came; unless a control message
    /// is missing. What waits for it is given up with it. Gives what that was: it is the driver's to have it
    /// acknowledged.
    ///
    /// # Errors
    /// `sink` says so, which control messages are given to that waited for it.
    pub fn forgive(
        &mut self,
        until: u64,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<Option<Forgiven>, Fault> {
        let last = self.parsed.last_by(until);
        let Some(before) = last
            .map(|last| last.start)
            .filter(|at| *at > self.frontier())
        else {
            return Ok(None);
        };
        if self.controls.is_one_missing() {
            return Ok(None);
        }
        let from_first = match self.frontier() == self.first {
            true => self.parsed.first_start().unwrap_or(before) - self.first,
            false => 0,
        };
        let mut octets = from_first + self.parsed.missing_before(before);
        self.parsed.fill(self.first, before);
        let given_up = self.islands.give_up(before);
        self.held -= given_up;
        octets -= given_up as u64;
        self.floor = before;
        self.give_controls(sink)?;
        Ok(Some(Forgiven { before, octets }))
    }

    /// The header that begins here, and how many control messages are before it: the fewest that there may be, or a few
    /// more that are missing.
    fn head_at(&self, offset: u64, octets: &[u8]) -> Option<(Head, u64)> {
        let fewest = self.controls.before(offset);
        Head::find(octets, self.key, offset, fewest, MISSING_CONTROLS_MAX)
    }

    /// A frame begins here: gives on those that are whole. What is left waits for the rest of its frame.
    fn parse(
        &mut self,
        start: u64,
        octets: &[u8],
        now: Duration,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let at = self.parse_frames(start, octets, now, sink)?;
        let end = start + at as u64;
        if !self.parsed.insert(start..end) {
            return Err(Fault::Overlap(start));
        }
        // What waits behind these begins with a frame, as is known now.
        if at == octets.len() {
            let next = self.islands.take(end);
            return next.map_or(Ok(()), |island| self.parse_island(end, island, now, sink));
        }
        let island = Island {
            octets: octets[at..].to_vec(),
            begins_with_frame: true,
        };
        match self.islands.take(end + island.octets.len() as u64) {
            None => {
                let left = island.octets.len();
                self.islands.put(end, island);
                self.hold(left)
            }
            Some(next) => {
                self.held += island.octets.len();
                self.parse_island(end, island.joined(next), now, sink)
            }
        }
    }

    /// Gives on the frames that are whole, the first of which begins here; gives how many octets these are.
    fn parse_frames(
        &mut self,
        start: u64,
        octets: &[u8],
        now: Duration,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<usize, Fault> {
        // Where nothing is missing before them, control messages speak of the frames behind them, too.
        let is_in_order = start == self.frontier();
        let mut controls = self.controls.before(start);
        let mut missing_max = if is_in_order { 0 } else { MISSING_CONTROLS_MAX };
        // When the frames that follow were sent, and whether that is too long ago.
        let mut is_late = false;
        let mut at = 0;
        while octets.len() - at >= HEADER_LEN {
            let offset = start + at as u64;
            let found = Head::find(&octets[at..], self.key, offset, controls, missing_max);
            let (head, before) = found.ok_or(Fault::Check(offset))?;
            (controls, missing_max) = (before, 0);
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
            at = end;
            self.controls.note_sent(controls);
            if head.is_time() {
                is_late = self.is_late(payload, now);
                continue;
            }
            if head.channel == CONTROL {
                controls += 1;
                self.controls.note_sent(controls);
            }
            match is_in_order {
                false if head.channel == CONTROL => {
                    self.controls.keep(offset, before, payload);
                    self.hold(payload.len())?;
                }
                _ => self.give((head, payload), is_late, sink)?,
            }
        }
        Ok(at)
    }

    /// Gives on a frame, unless it is a datagram that is too old.
    fn give(
        &mut self,
        (head, payload): Frame<'_>,
        is_late: bool,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if head.channel == CONTROL {
            self.controls.note_given();
        } else if is_late {
            let part = head.is_part.then(|| Part::split(payload)).transpose()?;
            self.late += u64::from(part.is_none_or(|(part, _)| part.offset == 0));
            return Ok(());
        }
        sink((head, payload))
    }

    /// Whether what was sent at this time is too old.
    fn is_late(&mut self, time: &[u8], now: Duration) -> bool {
        let time = time.first_chunk::<TIME_LEN>().copied();
        match (&mut self.ages, time.map(u32::from_be_bytes)) {
            (Some(ages), Some(time)) => ages.is_late(time, now),
            _ => false,
        }
    }

    /// A frame begins where this island does, which is out already.
    fn parse_island(
        &mut self,
        start: u64,
        island: Island,
        now: Duration,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.held -= island.octets.len();
        self.parse(start, &island.octets, now, sink)
    }

    /// Nothing says that a frame begins here: the octets follow those that wait before them, or wait themselves.
    fn append(
        &mut self,
        offset: u64,
        octets: &[u8],
        now: Duration,
        sink: &mut impl FnMut(Frame<'_>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let start = self.islands.before(offset).unwrap_or(offset);
        let before = self.islands.take(start);
        let was_looked_at = before
            .as_ref()
            .is_some_and(|island| island.octets.len() >= HEADER_LEN);
        let come = Island {
            octets: octets.to_vec(),
            begins_with_frame: false,
        };
        let mut island = match before {
            Some(before) => before.joined(come),
            None => come,
        };
        if let Some(next) = self.islands.take(offset + octets.len() as u64) {
            island = island.joined(next);
        }
        // A frame that comes octet by octet is not to be copied as often.
        let is_short = was_looked_at && self.is_short(start, &island);
        if island.begins_with_frame && !is_short {
            self.held += octets.len();
            return self.parse_island(start, island, now, sink);
        }
        self.islands.put(start, island);
        self.hold(octets.len())
    }

    /// More has to come of the frame that the island begins with, whose header was found right before.
    fn is_short(&self, start: u64, island: &Island) -> bool {
        let head = self.head_at(start, &island.octets);
        head.is_some_and(|(head, _)| island.octets.len() < head.frame_len())
    }

    /// So many octets more wait, which are in already.
    fn hold(&mut self, len: usize) -> Result<(), Fault> {
        self.held += len;
        let pieces = self.islands.len() + self.controls.waiting();
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
        while let Some(payload) = self.controls.next(frontier) {
            self.held -= payload.len();
            sink((Head::whole(CONTROL, payload.len() as u16), &payload))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::Gather;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    const FIRST: u64 = 64;
    const NOW: Duration = Duration::ZERO;

    fn key() -> Key {
        Key::new(&[1; 16], &[2; 16])
    }

    fn segments() -> Segments {
        Segments::new(key(), FIRST, 1 << 20)
    }

    /// A stream of these datagrams, and where each frame of it ends.
    fn stream(datagrams: &[(u16, Vec<u8>)]) -> (Vec<u8>, Vec<usize>) {
        let (mut gather, mut ends) = (
            Gather::new(vec![0; 1 << 20], key(), FIRST).counting(),
            vec![],
        );
        for (channel, octets) in datagrams {
            let cut = |len| ends.push(ends.last().unwrap_or(&0) + len);
            assert!(gather.push_cut(*channel, 0, octets, 70_000, None, cut));
        }
        (gather.octets().to_vec(), ends)
    }

    fn handle(
        segments: &mut Segments,
        offset: u64,
        octets: &[u8],
    ) -> Result<Vec<(u16, Vec<u8>)>, Fault> {
        let mut seen = vec![];
        segments.handle_segment(offset, octets, NOW, &mut |(head, octets)| {
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

    fn forgive(segments: &mut Segments, until: u64) -> (Option<Forgiven>, Vec<Vec<u8>>) {
        let mut controls = vec![];
        let forgiven = segments.forgive(until, &mut |(head, octets)| {
            assert_eq!(head.channel, CONTROL);
            controls.push(octets.to_vec());
            Ok(())
        });
        (forgiven.unwrap(), controls)
    }

    #[test]
    fn what_is_missing_is_forgiven_where_frames_behind_it_came() {
        let datagrams = [
            (1, vec![1; 20]),
            (1, vec![2; 30]),
            (1, vec![3; 40]),
            (1, vec![4; 50]),
            (1, vec![5; 60]),
        ];
        let (octets, mut ends) = stream(&datagrams);
        ends.insert(0, 0);
        let mut segments = segments();
        for (from, to) in [(0, 1), (2, 3)] {
            let piece = &octets[ends[from]..ends[to]];
            assert_eq!(
                handle(&mut segments, at(ends[from]), piece).unwrap().len(),
                1
            );
        }
        // A box cut the next one, and its end is missing.
        let piece = &octets[ends[3]..ends[3] + 10];
        assert_eq!(handle(&mut segments, at(ends[3]), piece), Ok(vec![]));
        assert_eq!(segments.end(), at(ends[3] + 10));
        assert_eq!(forgive(&mut segments, at(ends[2]) - 1).0, None);
        let first = Forgiven {
            before: at(ends[2]),
            octets: 38,
        };
        assert_eq!(forgive(&mut segments, at(ends[2])).0, Some(first));
        assert_eq!(
            (segments.frontier(), segments.floor()),
            (at(ends[3]), at(ends[2]))
        );
        // It had arrived, and was on its way here.
        let late = &octets[ends[1]..ends[2]];
        assert_eq!(handle(&mut segments, at(ends[1]), late), Ok(vec![]));
        assert_eq!(
            forgive(&mut segments, u64::MAX).0,
            None,
            "nothing whole is behind it"
        );
        let last = &octets[ends[4]..];
        assert_eq!(handle(&mut segments, at(ends[4]), last).unwrap().len(), 1);
        let second = Forgiven {
            before: at(ends[4]),
            octets: 48,
        };
        assert_eq!(forgive(&mut segments, u64::MAX).0, Some(second));
        assert_eq!(
            (segments.held(), segments.frontier()),
            (0, at(octets.len()))
        );
    }

    #[test]
    fn a_control_message_is_not_forgiven() {
        let datagrams = [
            (1, vec![1; 20]),
            (0, vec![2; 6]),
            (1, vec![3; 40]),
            (0, vec![4; 7]),
            (1, vec![5; 60]),
        ];
        let (octets, mut ends) = stream(&datagrams);
        ends.insert(0, 0);
        let mut segments = segments();
        let frame = |segments: &mut Segments, index: usize| {
            let (from, to) = (ends[index], ends[index + 1]);
            handle(segments, at(from), &octets[from..to]).unwrap()
        };
        // What is behind a control message that is missing does not wait for it.
        assert_eq!(frame(&mut segments, 2), [datagrams[2].clone()]);
        assert_eq!(frame(&mut segments, 4), [datagrams[4].clone()]);
        assert_eq!(forgive(&mut segments, u64::MAX), (None, vec![]));
        assert_eq!(frame(&mut segments, 3), []);
        assert_eq!(forgive(&mut segments, u64::MAX), (None, vec![]));
        // The other one is sent again, and now only a datagram is missing.
        assert_eq!(frame(&mut segments, 1), []);
        let (forgiven, controls) = forgive(&mut segments, u64::MAX);
        assert_eq!(forgiven.map(|forgiven| forgiven.octets), Some(28));
        assert_eq!(controls, [datagrams[1].1.clone(), datagrams[3].1.clone()]);
        assert_eq!(
            (segments.held(), segments.frontier()),
            (0, at(octets.len()))
        );
    }

    #[test]
    fn what_comes_too_late_is_dropped_by_its_time() {
        let ms = Duration::from_millis;
        let mut gather = Gather::new(vec![0; 1000], key(), FIRST).counting();
        let mut ends = vec![0];
        for (time, len) in [(7, 20), (8, 30), (9, 40)] {
            let end = *ends.last().unwrap();
            let cut = |len: usize| ends.push(end + len);
            assert!(gather.push_cut(
                1,
                0,
                &vec![time; len],
                500,
                Some(1000 * u32::from(time)),
                cut
            ));
        }
        let octets = gather.octets().to_vec();
        let mut segments = segments();
        segments.set_age(Some(ms(20)), ms(100));
        let mut handle = |index: usize, now| {
            let (from, to) = (ends[index], ends[index + 1]);
            let mut seen = 0;
            let sink = &mut |_: Frame<'_>| {
                seen += 1;
                Ok(())
            };
            segments
                .handle_segment(at(from), &octets[from..to], ms(now), sink)
                .unwrap();
            (seen, segments.late())
        };
        assert_eq!(handle(1, 100), (1, 0));
        assert_eq!(handle(0, 119), (1, 0), "as late as it may be");
        assert_eq!(handle(2, 122), (0, 1));
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
        let mut gather = Gather::new(vec![0; 4 << 20], key(), FIRST).counting();
        let mut ends = vec![0];
        for _ in 0..60_000 {
            let cut = |len| ends.push(ends[ends.len() - 1] + len);
            assert!(gather.push_cut(CONTROL, 0, &[7; 4], 70_000, None, cut));
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

        /// Whatever is lost, and whenever what is missing is forgiven: control messages come in order, each once, and
        /// datagrams once or not at all. In the end nobody waits for anything.
        #[test]
        fn no_control_message_is_forgiven(
            frames in prop::collection::vec(
                (0u16..4, 1usize..100, any::<u32>(), prop::bool::weighted(0.3)), 1..40
            ),
            forgives in prop::collection::vec(prop::option::of(any::<prop::sample::Index>()), 40),
        ) {
            let datagrams: Vec<_> = frames.iter().enumerate().map(|(number, (channel, len, ..))| {
                (*channel, vec![number as u8; *len])
            }).collect();
            let (octets, ends) = stream(&datagrams);
            let start = |number: usize| number.checked_sub(1).map_or(0, |before| ends[before]);
            let (mut segments, mut seen) = (segments(), vec![]);
            let mut order: Vec<_> = (0..frames.len()).collect();
            order.sort_by_key(|number| frames[*number].2);
            let (lost, come): (Vec<_>, Vec<_>) = order.into_iter().partition(|number| frames[*number].3);
            let again = lost.into_iter().filter(|number| datagrams[*number].0 == CONTROL);
            for (number, until) in come.into_iter().chain(again).zip(forgives.into_iter().cycle()) {
                let (from, to) = (start(number), ends[number]);
                seen.extend(handle(&mut segments, at(from), &octets[from..to]).unwrap());
                if let Some(until) = until {
                    let controls = forgive(&mut segments, at(until.index(octets.len()))).1;
                    seen.extend(controls.into_iter().map(|octets| (CONTROL, octets)));
                }
            }
            let controls = forgive(&mut segments, u64::MAX).1;
            seen.extend(controls.into_iter().map(|octets| (CONTROL, octets)));
            let all_controls = |all: &[(u16, Vec<u8>)]| -> Vec<_> {
                all.iter().filter(|(channel, _)| *channel == CONTROL).cloned().collect()
            };
            prop_assert_eq!(all_controls(&seen), all_controls(&datagrams));
            prop_assert_eq!((segments.held(), segments.frontier()), (0, segments.end()));
            seen.sort();
            let count = seen.len();
            seen.dedup();
            prop_assert_eq!(seen.len(), count, "each at most once");
            prop_assert!(seen.iter().all(|one| datagrams.contains(one)));
        }
    }
}
