//! The receiving half of a connection: where the octets of a segment belong, what is missing, what window to offer.
//!
//! Octets are not kept here. Each arriving segment is answered with placements, "these octets of the payload belong at
//! that offset of the stream", every octet of the stream once, in whatever order segments come. Who places them
//! straight into their target needs no reassembly copy; who wants them in order puts them into a
//! [`super::receive_buffer::ReceiveBuffer`].

use super::options::SackBlocks;
use super::ranges::RangeSet;
use super::seq::{Position, Seq, FIRST_OCTET};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// Where octets of a received payload belong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Offset in the stream, from its first octet of data.
    pub offset: u64,
    /// Which octets of the payload.
    pub octets: Range<usize>,
}

/// What a segment with data changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Arrival {
    /// Something new was in it.
    pub news: bool,
    /// RCV.NXT moved.
    pub advanced: bool,
    /// It lies behind a hole, or filled one or part of one (RFC 5681 section 4.2).
    pub out_of_order: bool,
    /// The number of holes changed.
    pub holes_changed: bool,
    /// Some of it was there before.
    pub duplicate: bool,
}

/// The receiving half of a connection.
#[derive(Clone, Debug)]
pub struct Receiver {
    initial: Seq,
    next: Position,
    out_of_order: RangeSet,
    fin: Option<Position>,
    capacity: u64,
    consumed: Position,
    edge: Position,
    max_ranges: usize,
    /// A position of each range that changed lately, the latest first (RFC 2018 section 4).
    recent: VecDeque<Position>,
    duplicate: Option<Range<Position>>,
    /// Behind the last octet that the peer called urgent.
    urgent: Option<Position>,
}

impl Receiver {
    /// The peer's SYN had the number `initial`. `capacity` octets may arrive before the program takes any; at most
    /// `max_ranges` ranges are kept behind holes.
    pub fn new(initial: Seq, capacity: u64, max_ranges: usize) -> Receiver {
        Receiver {
            initial,
            next: FIRST_OCTET,
            out_of_order: RangeSet::default(),
            fin: None,
            capacity,
            consumed: FIRST_OCTET,
            // Nothing beyond 64 KB was offered before the shift was known (RFC 7323 section 2.2).
            edge: FIRST_OCTET + capacity.min(65_535),
            max_ranges,
            recent: VecDeque::new(),
            duplicate: None,
            urgent: None,
        }
    }

    /// RCV.NXT as a position.
    pub fn next(&self) -> Position {
        self.next
    }

    /// RCV.NXT as it goes into a header.
    pub fn next_seq(&self) -> Seq {
        self.initial.advanced(self.next)
    }

    /// Position of a number from a header.
    pub fn position(&self, seq: Seq) -> Option<Position> {
        seq.position(self.initial, self.next)
    }

    /// Octets received in order, from the first one on.
    pub fn delivered(&self) -> u64 {
        let fin = u64::from(self.finished());
        self.next - FIRST_OCTET - fin
    }

    /// The FIN was reached: nothing more will come.
    pub fn finished(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Ranges kept behind holes.
    pub fn holes(&self) -> usize {
        self.out_of_order.len()
    }

    /// Octets behind holes.
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order.octets()
    }

    /// The offsets in the stream of the octets behind holes.
    pub fn behind_holes(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let ranges = self.out_of_order.iter();
        ranges.map(|range| range.start - FIRST_OCTET..range.end - FIRST_OCTET)
    }

    /// The window last offered, as far as it is not used up.
    pub fn window(&self) -> u64 {
        self.edge.saturating_sub(self.next)
    }

    /// A segment that begins at `start` and takes `len` numbers may be looked at (RFC 9293 section 3.4, table 6). A
    /// segment without data just behind the window is an ACK of a sender that has used the window up.
    pub fn is_acceptable(&self, start: Position, len: u64) -> bool {
        if len == 0 {
            return self.next <= start && start <= self.edge;
        }
        start < self.edge && start + len > self.next
    }

    /// Octets at `start` arrived. What is new is appended to `placements`; what lies outside of the window is not
    /// taken.
    pub fn data(
        &mut self,
        start: Position,
        len: usize,
        placements: &mut Vec<Placement>,
    ) -> Arrival {
        let limit = self.fin.unwrap_or(Position::MAX).min(self.edge);
        let end = (start + len as u64).min(limit);
        let mut arrival = Arrival::default();
        let from = start.max(self.next);
        if start < self.next.min(end) {
            arrival.duplicate = true;
            self.duplicate = Some(start..end.min(self.next));
        }
        if from >= end {
            return arrival;
        }
        if from == self.next && self.out_of_order.is_empty() {
            self.in_order(start, from..end, placements, &mut arrival);
            return arrival;
        }
        let holes = self.holes();
        if from > self.next
            && holes >= self.max_ranges
            && self.out_of_order.containing(from).is_none()
        {
            return arrival;
        }
        self.place(start, from..end, placements, &mut arrival);
        arrival.out_of_order |= holes > 0 || from > self.next;
        self.out_of_order.insert(from..end);
        self.advance(&mut arrival);
        if !arrival.advanced {
            self.remember(from);
        }
        arrival.holes_changed = holes != self.holes();
        arrival
    }

    /// The next octets, and nothing stands behind a hole: most segments.
    fn in_order(
        &mut self,
        start: Position,
        range: Range<Position>,
        placements: &mut Vec<Placement>,
        arrival: &mut Arrival,
    ) {
        placements.push(Placement {
            offset: range.start - FIRST_OCTET,
            octets: (range.start - start) as usize..(range.end - start) as usize,
        });
        self.next = range.end;
        arrival.news = true;
        arrival.advanced = true;
    }

    fn place(
        &mut self,
        start: Position,
        range: Range<Position>,
        placements: &mut Vec<Placement>,
        arrival: &mut Arrival,
    ) {
        let mut from = range.start;
        while let Some(gap) = self.out_of_order.first_gap(from..range.end) {
            arrival.news = true;
            placements.push(Placement {
                offset: gap.start - FIRST_OCTET,
                octets: (gap.start - start) as usize..(gap.end - start) as usize,
            });
            if gap.start > from {
                self.had_already(from..gap.start, arrival);
            }
            from = gap.end;
        }
        if from < range.end {
            self.had_already(from..range.end, arrival);
        }
    }

    fn had_already(&mut self, range: Range<Position>, arrival: &mut Arrival) {
        arrival.duplicate = true;
        self.duplicate.get_or_insert(range);
    }

    fn advance(&mut self, arrival: &mut Arrival) {
        if let Some(head) = self.out_of_order.containing(self.next) {
            self.next = head.end;
            self.out_of_order.remove_before(head.end);
            arrival.advanced = true;
        }
    }

    /// What is missing before `until` is waited for no more, as far as octets behind it are there: RCV.NXT moves behind
    /// those. Gives how many octets were missing. What the peer still sends of them counts as a duplicate.
    pub fn forgive(&mut self, until: Position) -> u64 {
        let Some(last) = self.out_of_order.last_by(until) else {
            return 0;
        };
        let before = self.out_of_order.octets();
        self.out_of_order.remove_before(last.end);
        let had = before - self.out_of_order.octets();
        let missing = last.end - self.next - had;
        self.next = last.end;
        missing
    }

    fn remember(&mut self, at: Position) {
        let Some(range) = self.out_of_order.containing(at) else {
            return;
        };
        self.recent.retain(|other| !range.contains(other));
        self.recent.push_front(range.start);
        self.recent.truncate(SackBlocks::MAX);
    }

    /// A FIN stands at `at`. Returns whether that is where the data received so far ends, so that the FIN counts now. A
    /// FIN before octets that were received, or at another place than an earlier one, is not believed.
    pub fn fin(&mut self, at: Position) -> bool {
        let contradicted = self.fin.is_some_and(|fin| fin != at)
            || at < self.next
            || self.out_of_order.end().is_some_and(|end| end > at);
        if !contradicted && at <= self.edge {
            self.fin = Some(at);
        }
        self.take_fin()
    }

    /// Steps over the FIN once all before it is there.
    pub fn take_fin(&mut self) -> bool {
        if self.fin != Some(self.next) {
            return false;
        }
        self.next += 1;
        true
    }

    /// The program has taken `octets` more: the window may move.
    pub fn consume(&mut self, octets: u64) {
        self.consumed = (self.consumed + octets).min(self.next);
    }

    /// Another capacity, and as many ranges behind holes. What was offered stays offered.
    pub fn set_capacity(&mut self, capacity: u64, max_ranges: usize) {
        self.capacity = capacity;
        self.max_ranges = max_ranges;
    }

    /// The peer calls the octets before `end` urgent. Returns whether that is news: a pointer that moved ahead.
    pub fn set_urgent(&mut self, end: Position) -> bool {
        let news = end > self.consumed && self.urgent.is_none_or(|urgent| end > urgent);
        if news {
            self.urgent = Some(end);
        }
        news
    }

    /// Offset in the stream behind the last urgent octet, until the program has taken that.
    pub fn urgent(&self) -> Option<u64> {
        let urgent = self.urgent.filter(|urgent| *urgent > self.consumed)?;
        Some(urgent - FIRST_OCTET)
    }

    /// The window may be moved so far that a segment saying so is worth it (RFC 9293 section 3.8.6.2.2).
    pub fn window_grew(&self, mss: u64) -> bool {
        let possible = self.consumed + self.capacity;
        possible.saturating_sub(self.edge) >= (self.capacity / 2).min(2 * mss).max(1)
            && self.window() < self.capacity / 2
    }

    /// The window field of a segment about to be sent, for this shift. The right edge never moves back (RFC 9293
    /// section 3.8.6) and moves in steps worth a segment (section 3.8.6.2.2).
    pub fn offer(&mut self, mss: u64, shift: u8) -> u16 {
        let possible = self.consumed + self.capacity;
        if possible >= self.edge + (self.capacity / 2).min(mss) {
            self.edge = possible;
        }
        let field = (self.window() >> shift).min(65_535);
        // What the field cannot say was not offered.
        self.edge = self.edge.min(self.next + (field << shift)).max(self.next);
        field as u16
    }

    /// There is a block to report.
    pub fn has_sack(&self) -> bool {
        self.duplicate.is_some() || !self.out_of_order.is_empty()
    }

    /// The blocks for the next ACK: a duplicate first (RFC 2883 section 4), then the ranges that changed last (RFC 2018
    /// section 4).
    pub fn take_sack(&mut self, room: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let seq = |at: Position| self.initial.advanced(at);
        let mut left = room;
        if let Some(duplicate) = self.duplicate.take() {
            blocks.push(seq(duplicate.start), seq(duplicate.end));
            left -= 1;
        }
        let ranges = self
            .recent
            .iter()
            .filter_map(|at| self.out_of_order.containing(*at));
        for range in ranges.take(left) {
            blocks.push(seq(range.start), seq(range.end));
        }
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn receiver() -> Receiver {
        Receiver::new(Seq(1000), 10_000, 100)
    }

    fn arrive(receiver: &mut Receiver, start: u64, len: usize) -> (Arrival, Vec<Placement>) {
        let mut placements = Vec::new();
        let arrival = receiver.data(start, len, &mut placements);
        (arrival, placements)
    }

    #[test]
    fn out_of_order_octets_are_placed_at_once_and_once() {
        let mut receiver = receiver();
        let (arrival, placed) = arrive(&mut receiver, 101, 100);
        assert!(arrival.out_of_order && arrival.holes_changed && !arrival.advanced);
        assert_eq!(
            placed,
            [Placement {
                offset: 100,
                octets: 0..100
            }]
        );
        // A segment over both the hole and what is there fills only the hole.
        let (arrival, placed) = arrive(&mut receiver, 1, 250);
        assert!(arrival.advanced && arrival.duplicate);
        assert_eq!(
            placed,
            [
                Placement {
                    offset: 0,
                    octets: 0..100
                },
                Placement {
                    offset: 200,
                    octets: 200..250
                }
            ]
        );
        assert_eq!(receiver.delivered(), 250);
    }

    #[test]
    fn blocks_name_the_latest_first_and_duplicates_before_all() {
        let mut receiver = receiver();
        for start in [101, 301, 501, 351] {
            arrive(&mut receiver, start, 50);
        }
        let seq = |at: u32| Seq(1000 + at);
        assert_eq!(
            receiver.take_sack(3).as_slice(),
            [
                (seq(301), seq(401)),
                (seq(501), seq(551)),
                (seq(101), seq(151))
            ]
        );
        arrive(&mut receiver, 101, 50);
        let blocks = receiver.take_sack(4);
        assert_eq!(blocks.as_slice()[0], (seq(101), seq(151)));
        assert_eq!(blocks.as_slice().len(), 4);
    }

    #[test]
    fn the_window_never_moves_back_and_moves_in_steps() {
        let mut receiver = receiver();
        assert_eq!(receiver.offer(1000, 0), 10_000);
        arrive(&mut receiver, 1, 9_500);
        assert_eq!(receiver.offer(1000, 0), 500);
        receiver.consume(400);
        assert_eq!(receiver.offer(1000, 0), 500, "not for a trifle");
        assert!(!receiver.window_grew(1000));
        receiver.consume(5_000);
        assert!(receiver.window_grew(1000));
        assert_eq!(receiver.offer(1000, 0), 5_900);
    }

    #[test]
    fn a_shift_rounds_down_and_so_does_the_edge() {
        let mut receiver = Receiver::new(Seq(0), 1_000_003, 100);
        let field = receiver.offer(1000, 4);
        assert_eq!(u64::from(field) << 4, receiver.window());
    }

    #[test]
    fn data_outside_of_the_window_is_cut() {
        let mut receiver = receiver();
        let (_, placed) = arrive(&mut receiver, 9_901, 500);
        assert_eq!(
            placed,
            [Placement {
                offset: 9_900,
                octets: 0..100
            }]
        );
        assert!(!receiver.is_acceptable(10_001, 5));
        assert!(receiver.is_acceptable(10_001, 0));
    }

    #[test]
    fn a_fin_counts_when_all_before_it_is_there() {
        let mut receiver = receiver();
        assert!(!receiver.fin(101));
        let (_, placed) = arrive(&mut receiver, 51, 100);
        assert_eq!(placed[0].octets, 0..50, "nothing behind the FIN");
        arrive(&mut receiver, 1, 50);
        assert!(receiver.take_fin());
        assert!(receiver.finished());
        assert_eq!(receiver.delivered(), 100);
    }

    #[test]
    fn holes_are_bounded() {
        let mut receiver = Receiver::new(Seq(0), 10_000, 3);
        let placed: usize = (0..10)
            .map(|i| arrive(&mut receiver, 3 + 2 * i, 1).1.len())
            .sum();
        assert_eq!((placed, receiver.holes()), (3, 3));
        assert!(
            arrive(&mut receiver, 1, 2).0.advanced,
            "in order there is always room"
        );
    }

    #[test]
    fn what_is_forgiven_is_acknowledged_and_never_placed() {
        let mut receiver = receiver();
        for start in [101, 301, 501] {
            arrive(&mut receiver, start, 100);
        }
        assert_eq!(receiver.forgive(100), 0, "nothing is there before it");
        assert_eq!(receiver.forgive(350), 200, "two holes of a hundred");
        assert_eq!((receiver.delivered(), receiver.holes()), (400, 1));
        let (arrival, placed) = arrive(&mut receiver, 201, 100);
        assert!(arrival.duplicate && !arrival.news && placed.is_empty());
        assert_eq!(receiver.forgive(u64::MAX), 100);
        assert_eq!((receiver.delivered(), receiver.out_of_order()), (600, 0));
        assert_eq!(receiver.forgive(u64::MAX), 0);
        assert_eq!(arrive(&mut receiver, 601, 50).1.len(), 1);
        receiver.consume(650);
        assert_eq!(receiver.offer(500, 0), 10_000, "the window moves on");
    }

    #[test]
    fn a_fin_behind_what_is_forgiven_counts() {
        let mut receiver = receiver();
        arrive(&mut receiver, 101, 100);
        assert!(!receiver.fin(201));
        assert_eq!(receiver.forgive(150), 100);
        assert!(receiver.take_fin() && receiver.finished());
    }

    proptest! {
        #[test]
        fn every_octet_once(segments in proptest::collection::vec((1u64..300, 1usize..80), 1..60)) {
            let mut receiver = receiver();
            let mut seen = vec![0u8; 400];
            for (start, len) in segments {
                let (_, placed) = arrive(&mut receiver, start, len);
                for placement in placed {
                    prop_assert!(placement.octets.end <= len);
                    prop_assert_eq!(placement.offset, start - 1 + placement.octets.start as u64);
                    for octet in placement.octets {
                        seen[start as usize - 1 + octet] += 1;
                    }
                }
                prop_assert!(seen.iter().all(|times| *times <= 1));
                let in_order = seen.iter().take_while(|times| **times == 1).count();
                prop_assert_eq!(receiver.delivered(), in_order as u64);
            }
        }
    }
}
