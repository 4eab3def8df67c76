//! What was sent and not yet acknowledged: one record for each segment, and what the peer said of it (RFC 2018,
//! RFC 6675 section 3).
//!
//! Records stand in the order of the stream. Beside them is a log in the order of transmission, which is what RACK
//! walks (RFC 8985 section 6.2): an entry is stale, and dropped when met, when its record was sent again, acknowledged
//! or counted lost since. So an ACK costs the logarithm of the flight, however many holes it has.

use super::ranges::RangeSet;
pub use super::record::{Record, Status};
use super::seq::Position;
use alloc::collections::{BTreeSet, VecDeque};
use core::ops::Range;
use core::time::Duration;

/// The records of one connection.
#[derive(Clone, Debug, Default)]
pub struct Scoreboard {
    records: VecDeque<Record>,
    log: VecDeque<(Position, u64)>,
    sacked: RangeSet,
    lost: BTreeSet<Position>,
    in_flight: u64,
    transmissions: u64,
}

impl Scoreboard {
    /// Positions that are on their way, as far as one can know: sent, not acknowledged in any way, not lost. It is the
    /// `pipe` of RFC 6675.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Positions the peer has out of order.
    pub fn sacked(&self) -> u64 {
        self.sacked.octets()
    }

    /// Nothing is unacknowledged.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Records kept.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The first record.
    pub fn first(&self) -> Option<&Record> {
        self.records.front()
    }

    /// The last record.
    pub fn last(&self) -> Option<&Record> {
        self.records.back()
    }

    /// Something was counted lost and not sent again.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Enters new data that was just sent.
    pub fn sent(&mut self, range: Range<Position>, segment: u32, now: Duration) {
        debug_assert!(!range.is_empty());
        debug_assert!(self.last().is_none_or(|last| last.end == range.start));
        self.transmissions += 1;
        self.in_flight += range.end - range.start;
        self.log.push_back((range.start, self.transmissions));
        self.records.push_back(Record {
            start: range.start,
            end: range.end,
            sent: now,
            transmission: self.transmissions,
            segment,
            status: Status::InFlight,
            retransmitted: false,
        });
    }

    /// The first lost record, cut to one segment of at most `room` positions.
    pub fn next_lost(&mut self, room: u32) -> Option<Record> {
        let start = *self.lost.first()?;
        let at = self.find(start)?;
        let record = self.records[at];
        let piece = u64::from(record.segment.min(room).max(1));
        if record.len() > piece {
            self.split(at, start + piece);
        }
        Some(self.records[at])
    }

    /// The lost or last record that begins at `start` was just sent again.
    pub fn sent_again(&mut self, start: Position, now: Duration) {
        let Some(at) = self.find(start) else { return };
        self.transmissions += 1;
        let record = &mut self.records[at];
        if record.status == Status::Lost {
            self.lost.remove(&start);
            self.in_flight += record.len();
        }
        record.status = Status::InFlight;
        record.sent = now;
        record.transmission = self.transmissions;
        record.retransmitted = true;
        self.log.push_back((start, self.transmissions));
    }

    /// Cuts the first record, when it is in flight, to one segment of at most `room` positions, and returns that.
    pub fn head(&mut self, room: u32) -> Option<Record> {
        let first = *self.records.front()?;
        if first.status != Status::InFlight {
            return None;
        }
        let piece = u64::from(first.segment.min(room).max(1));
        if first.len() > piece {
            self.split(0, first.start + piece);
        }
        self.records.front().copied()
    }

    /// Cuts the last record so that its last piece has at most `room` positions, and returns that piece.
    pub fn tail(&mut self, room: u32) -> Option<Record> {
        let last = *self.records.back()?;
        let piece = u64::from(last.segment.min(room).max(1));
        if last.len() > piece {
            let whole = (last.len() - 1) / piece * piece;
            self.split(self.records.len() - 1, last.start + whole);
        }
        self.records.back().copied()
    }

    /// Everything before `ack` was acknowledged. `delivered` sees each record of it that was not known to be there.
    pub fn acknowledge(&mut self, ack: Position, mut delivered: impl FnMut(&Record)) {
        let all = self.last().is_none_or(|last| last.end <= ack);
        if all && self.sacked.is_empty() && self.lost.is_empty() {
            // All was in flight and has arrived: nothing to search, nothing of the log to keep.
            self.records.drain(..).for_each(|record| delivered(&record));
            self.in_flight = 0;
            self.log.clear();
            return;
        }
        while let Some(first) = self.records.front() {
            if first.start >= ack {
                break;
            }
            if first.end > ack {
                self.split(0, ack);
            }
            let record = self.records.pop_front().expect("it was there");
            self.forget(&record);
            if record.status != Status::Sacked {
                delivered(&record);
            }
        }
        self.sacked.remove_before(ack);
    }

    /// The peer has `range` out of order. `delivered` sees each record that was not known to be there. Returns whether
    /// there was one.
    pub fn sack(&mut self, range: Range<Position>, mut delivered: impl FnMut(&Record)) -> bool {
        let mut news = false;
        let mut from = range.start;
        while let Some(gap) = self.sacked.first_gap(from..range.end) {
            news |= self.sack_gap(gap.clone(), &mut delivered);
            from = gap.end;
        }
        news
    }

    /// Marks the segments that lie wholly within a range of which nothing was acknowledged so far. A large frame is cut
    /// where its segments end and nowhere else, so that no peer can make many records of few segments.
    fn sack_gap(&mut self, gap: Range<Position>, delivered: &mut impl FnMut(&Record)) -> bool {
        let mut at = self
            .records
            .partition_point(|record| record.end <= gap.start);
        let mut news = false;
        while let Some(record) = self.records.get(at).copied() {
            if record.start >= gap.end {
                break;
            }
            let (left, right) = covered(&record, &gap);
            if left >= right {
                at += 1;
                continue;
            }
            if left > record.start {
                self.split(at, left);
                at += 1;
            }
            if right < record.end {
                self.split(at, right);
            }
            let record = self.records[at];
            self.forget(&record);
            self.records[at].status = Status::Sacked;
            self.sacked.insert(record.start..record.end);
            delivered(&record);
            news = true;
            at += 1;
        }
        news
    }

    /// Takes a record out of the sums.
    fn forget(&mut self, record: &Record) {
        match record.status {
            Status::InFlight => self.in_flight -= record.len(),
            Status::Lost => {
                self.lost.remove(&record.start);
            }
            Status::Sacked => {}
        }
    }

    /// Counts as lost, in the order they were sent, all records in flight for which `verdict` says so, until it says no
    /// for the first time. Returns the octets lost, and what `verdict` gave instead of a yes.
    pub fn lose_oldest<T>(
        &mut self,
        mut verdict: impl FnMut(&Record) -> Result<(), T>,
    ) -> (u64, Option<T>) {
        let mut octets = 0;
        while let Some((start, transmission)) = self.log.front().copied() {
            let at = self.find(start).filter(|at| {
                let record = &self.records[*at];
                record.transmission == transmission && record.status == Status::InFlight
            });
            if let Some(at) = at {
                if let Err(other) = verdict(&self.records[at]) {
                    return (octets, Some(other));
                }
                octets += self.lose(at);
            }
            self.log.pop_front();
        }
        (octets, None)
    }

    /// Counts the first segment as lost, if it is in flight. Returns its octets.
    pub fn lose_first(&mut self) -> u64 {
        let Some(first) = self.first().copied() else {
            return 0;
        };
        if first.status != Status::InFlight {
            return 0;
        }
        let piece = u64::from(first.segment.max(1));
        if first.len() > piece {
            self.split(0, first.start + piece);
        }
        self.lose(0)
    }

    /// The record that ends at `end`, if it counts as lost.
    pub fn lost_before(&self, end: Position) -> Option<Record> {
        let at = self.records.partition_point(|record| record.end < end);
        let record = self.records.get(at)?;
        (record.end == end && record.status == Status::Lost).then_some(*record)
    }

    /// Counts everything in flight as lost. With `distrust` what the peer had acknowledged selectively counts as lost
    /// too: it may have dropped it again (RFC 2018 section 8).
    pub fn lose_all(&mut self, distrust: bool) {
        if distrust {
            self.sacked.clear();
        }
        for at in 0..self.records.len() {
            let record = &mut self.records[at];
            if distrust && record.status == Status::Sacked {
                record.status = Status::InFlight;
                self.in_flight += self.records[at].len();
            }
            if self.records[at].status == Status::InFlight {
                self.lose(at);
            }
        }
        self.log.clear();
    }

    fn lose(&mut self, at: usize) -> u64 {
        let record = &mut self.records[at];
        record.status = Status::Lost;
        self.in_flight -= record.len();
        self.lost.insert(record.start);
        record.len()
    }

    /// The first record is known to be at the peer although the peer did not acknowledge it: it reneged.
    pub fn peer_reneged(&self) -> bool {
        self.first()
            .is_some_and(|record| record.status == Status::Sacked)
    }

    fn find(&self, start: Position) -> Option<usize> {
        // Most entries of the log that are stale are so because they were acknowledged.
        if self.first().is_none_or(|first| start <= first.start) {
            return self
                .first()
                .and_then(|first| (start == first.start).then_some(0));
        }
        self.records
            .binary_search_by_key(&start, |record| record.start)
            .ok()
    }

    /// Makes two records of one; both keep its history.
    fn split(&mut self, at: usize, middle: Position) {
        let first = &mut self.records[at];
        debug_assert!(first.start < middle && middle < first.end);
        let second = Record {
            start: middle,
            ..*first
        };
        first.end = middle;
        self.records.insert(at + 1, second);
        match second.status {
            Status::Lost => {
                self.lost.insert(middle);
            }
            Status::InFlight => {
                let behind = self
                    .log
                    .partition_point(|(_, number)| *number <= second.transmission);
                self.log.insert(behind, (middle, second.transmission));
            }
            Status::Sacked => {}
        }
    }

    #[cfg(test)]
    fn check(&self) {
        let octets = |status| -> u64 {
            let of_status = self.records.iter().filter(|record| record.status == status);
            of_status.map(Record::len).sum()
        };
        assert_eq!(self.in_flight, octets(Status::InFlight));
        assert_eq!(self.sacked.octets(), octets(Status::Sacked));
        let lost = self
            .records
            .iter()
            .filter(|record| record.status == Status::Lost);
        assert!(lost
            .map(|record| record.start)
            .eq(self.lost.iter().copied()));
        let together = self.records.iter().zip(self.records.iter().skip(1));
        assert!(together.clone().all(|(one, next)| one.end == next.start));
        for record in self.records.iter().filter(|r| r.status == Status::InFlight) {
            assert!(self.log.contains(&(record.start, record.transmission)));
        }
    }
}

/// The whole segments of a record that lie within `gap`.
fn covered(record: &Record, gap: &Range<Position>) -> (Position, Position) {
    let segment = u64::from(record.segment.max(1));
    let before = gap.start.saturating_sub(record.start).div_ceil(segment) * segment;
    let right = if gap.end >= record.end {
        record.end
    } else {
        record.start + (gap.end - record.start) / segment * segment
    };
    (record.start + before, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const NOW: Duration = Duration::ZERO;

    fn ten() -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..10u64 {
            let at = 1 + i * 100;
            board.sent(at..at + 100, 100, Duration::from_millis(i));
        }
        board
    }

    #[test]
    fn a_growing_block_is_news_only_where_it_grows() {
        let mut board = ten();
        let mut seen = Vec::new();
        for end in [301, 401, 401, 501] {
            board.sack(201..end, |record| seen.push(record.start));
        }
        assert_eq!(seen, [201, 301, 401]);
        assert_eq!((board.in_flight(), board.sacked()), (700, 300));
        board.check();
    }

    #[test]
    fn what_was_sacked_is_not_delivered_again() {
        let mut board = ten();
        board.sack(101..201, |_| {});
        let mut seen = Vec::new();
        board.acknowledge(301, |record| seen.push(record.start));
        assert_eq!(seen, [1, 201]);
        board.check();
    }

    #[test]
    fn lost_ones_come_in_order_and_cut() {
        let mut board = ten();
        let (lost, rest) = board.lose_oldest(|record| {
            if record.start < 201 {
                Ok(())
            } else {
                Err(record.start)
            }
        });
        assert_eq!((lost, rest), (200, Some(201)));
        let first = board.next_lost(60).unwrap();
        assert_eq!((first.start, first.end), (1, 61));
        board.sent_again(1, NOW);
        assert_eq!(board.next_lost(60).unwrap().start, 61);
        board.check();
    }

    #[test]
    fn a_reneging_peer_is_no_longer_trusted() {
        let mut board = ten();
        board.sack(1..201, |_| {});
        assert!(board.peer_reneged());
        board.lose_all(true);
        assert_eq!((board.in_flight(), board.sacked()), (0, 0));
        board.check();
    }

    proptest! {
        #[test]
        fn sums_hold_whatever_happens(
            operations in proptest::collection::vec((0u8..7, 0u64..1200, 1u64..300), 0..60)
        ) {
            let mut board = Scoreboard::default();
            let mut end = 1;
            let mut una = 1;
            for (i, (operation, at, len)) in operations.into_iter().enumerate() {
                let now = Duration::from_millis(i as u64);
                match operation {
                    0 | 1 => {
                        board.sent(end..end + len, 64, now);
                        end += len;
                    }
                    2 => {
                        una = una.max(at.min(end));
                        board.acknowledge(una, |_| {});
                    }
                    3 => {
                        let left = at.clamp(una, end);
                        board.sack(left..(left + len).min(end), |_| {});
                    }
                    4 => {
                        board.lose_oldest(|record| if record.start < at { Ok(()) } else { Err(()) });
                    }
                    5 => {
                        if let Some(record) = board.next_lost(len as u32) {
                            board.sent_again(record.start, now);
                        }
                    }
                    _ => board.lose_all(at % 2 == 0),
                }
                board.check();
            }
        }
    }
}
