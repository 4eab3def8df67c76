//! RACK: loss is inferred from time (RFC 8985 section 6).

use super::scoreboard::{Record, Scoreboard};
use super::seq::Position;
use core::time::Duration;

/// The most that the reordering window is stretched; above it, it is as wide as SRTT anyway.
const MAX_MULTIPLIER: u32 = 1000;
/// Recoveries without a DSACK after which the window is narrowed again (RFC 8985 section 6.2 step 4).
const PERSISTENCE: u32 = 16;
/// Segments acknowledged selectively that prove a loss where no reordering was ever seen (RFC 8985 section 6.2 step 4).
const DUP_THRESH: u64 = 3;

/// RACK's state for one connection.
#[derive(Clone, Debug)]
pub struct Rack {
    /// Of all segments delivered, the one sent last: when, and its end.
    latest: Option<(Duration, Position)>,
    /// RTT of the segment delivered last.
    rtt: Duration,
    /// The highest end delivered.
    highest: Position,
    reordering_seen: bool,
    multiplier: u32,
    persistence: u32,
    /// Until this position is acknowledged, DSACKs do not widen the window again: once a round trip.
    dsack_round: Option<Position>,
}

/// What a reordering window depends on besides RACK's own state.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Least RTT.
    pub min_rtt: Duration,
    /// SRTT.
    pub srtt: Duration,
    /// A recovery is going on.
    pub recovering: bool,
    /// Octets of a full segment.
    pub mss: u64,
}

impl Rack {
    /// Nothing was delivered yet.
    pub fn new() -> Rack {
        Rack {
            latest: None,
            rtt: Duration::ZERO,
            highest: 0,
            reordering_seen: false,
            multiplier: 1,
            persistence: 0,
            dsack_round: None,
        }
    }

    /// Whether a record that was sent once, and is delivered now, comes after one that was sent later.
    pub fn was_overtaken(&self, record: &Record) -> bool {
        record.end < self.highest && !record.retransmitted
    }

    /// A record was delivered (steps 2 and 3). `spurious` says that the timestamp echoed is older than the last
    /// transmission, so the ACK is for an earlier one and tells nothing about the time it took.
    pub fn delivered(&mut self, record: &Record, now: Duration, min_rtt: Duration, spurious: bool) {
        if record.end >= self.highest {
            self.highest = record.end;
        } else if self.was_overtaken(record) {
            self.reordering_seen = true;
        }
        let rtt = now.saturating_sub(record.sent);
        if record.retransmitted && (spurious || rtt < min_rtt) {
            return;
        }
        self.rtt = rtt;
        let sent = (record.sent, record.end);
        if self.latest.is_none_or(|latest| sent > latest) {
            self.latest = Some(sent);
        }
    }

    /// The peer said that it got something twice (step 4: the window was too narrow). `highest` is SND.NXT.
    pub fn duplicate(&mut self, una: Position, highest: Position) {
        if self.dsack_round.is_none_or(|round| una >= round) {
            self.dsack_round = Some(highest);
            self.multiplier = (self.multiplier + 1).min(MAX_MULTIPLIER);
            self.persistence = PERSISTENCE;
        }
    }

    /// A recovery ended: after some without a DSACK the window goes back to its first width.
    pub fn recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.multiplier = 1;
        }
    }

    /// The reordering window (step 4).
    pub fn window(&self, conditions: &Conditions, sacked: u64) -> Duration {
        if !self.reordering_seen && (conditions.recovering || sacked >= DUP_THRESH * conditions.mss)
        {
            return Duration::ZERO;
        }
        (conditions.min_rtt / 4 * self.multiplier).min(conditions.srtt)
    }

    /// Counts as lost what was sent long enough before something that was delivered (step 5). Returns the octets lost,
    /// and when to look again.
    pub fn detect(
        &self,
        board: &mut Scoreboard,
        conditions: &Conditions,
        now: Duration,
    ) -> (u64, Option<Duration>) {
        let Some(latest) = self.latest else {
            return (0, None);
        };
        let timeout = self.rtt + self.window(conditions, board.sacked());
        let (lost, again) = board.lose_oldest(|record| {
            if (record.sent, record.end) >= latest {
                return Err(None);
            }
            let until = record.sent + timeout;
            if until <= now {
                Ok(())
            } else {
                Err(Some(until))
            }
        });
        (lost, again.flatten())
    }

    /// The retransmission timer expired: what was sent within the last RTT may well be on its way still, but the first
    /// record is lost in any case (section 6.3). Returns the octets lost.
    pub fn timeout(&self, board: &mut Scoreboard, conditions: &Conditions, now: Duration) -> u64 {
        let timeout = self.rtt + self.window(conditions, board.sacked());
        let first = board.first().map(|record| record.start);
        let (lost, _) = board.lose_oldest(|record| {
            let old = record.sent + timeout <= now || Some(record.start) == first;
            if old {
                Ok(())
            } else {
                Err(())
            }
        });
        lost
    }

    /// Reordering was seen on this path.
    pub fn reordering_seen(&self) -> bool {
        self.reordering_seen
    }
}

impl Default for Rack {
    fn default() -> Rack {
        Rack::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: Duration = Duration::from_millis(1);
    const CONDITIONS: Conditions = Conditions {
        min_rtt: Duration::from_millis(40),
        srtt: Duration::from_millis(40),
        recovering: false,
        mss: 100,
    };

    fn five() -> Scoreboard {
        let mut board = Scoreboard::default();
        for i in 0..5u32 {
            let at = 1 + u64::from(i) * 100;
            board.sent(at..at + 100, 100, i * MS);
        }
        board
    }

    fn deliver(rack: &mut Rack, board: &mut Scoreboard, from: u64, now: Duration) {
        let mut records = Vec::new();
        board.sack(from..from + 100, |record| records.push(*record));
        for record in records {
            rack.delivered(&record, now, 40 * MS, false);
        }
    }

    #[test]
    fn a_quarter_of_the_rtt_is_waited_for_a_late_segment() {
        let (mut rack, mut board) = (Rack::new(), five());
        deliver(&mut rack, &mut board, 101, 41 * MS);
        assert_eq!(
            rack.detect(&mut board, &CONDITIONS, 41 * MS),
            (0, Some(50 * MS))
        );
        assert_eq!(rack.detect(&mut board, &CONDITIONS, 50 * MS), (100, None));
        assert_eq!(board.next_lost(100).unwrap().start, 1);
    }

    #[test]
    fn three_segments_behind_the_hole_are_enough_where_nothing_was_ever_reordered() {
        let (mut rack, mut board) = (Rack::new(), five());
        for from in [101, 201, 301] {
            deliver(&mut rack, &mut board, from, 43 * MS);
        }
        assert_eq!(rack.detect(&mut board, &CONDITIONS, 43 * MS).0, 100);
    }

    #[test]
    fn seen_reordering_keeps_the_window_open_and_dsack_widens_it() {
        let (mut rack, mut board) = (Rack::new(), five());
        deliver(&mut rack, &mut board, 301, 43 * MS);
        deliver(&mut rack, &mut board, 101, 43 * MS);
        assert!(rack.reordering_seen());
        assert_eq!(rack.window(&CONDITIONS, 400), 10 * MS);
        rack.duplicate(1, 501);
        rack.duplicate(1, 501);
        assert_eq!(rack.window(&CONDITIONS, 400), 20 * MS, "once a round trip");
        for _ in 0..PERSISTENCE {
            rack.recovered();
        }
        assert_eq!(rack.window(&CONDITIONS, 400), 10 * MS);
    }

    #[test]
    fn a_lost_retransmission_is_found_too() {
        let (mut rack, mut board) = (Rack::new(), five());
        for from in [101, 201, 301] {
            deliver(&mut rack, &mut board, from, 43 * MS);
        }
        rack.detect(&mut board, &CONDITIONS, 43 * MS);
        board.sent_again(1, 44 * MS);
        board.sent(501..601, 100, 45 * MS);
        deliver(&mut rack, &mut board, 501, 90 * MS);
        let recovering = Conditions {
            recovering: true,
            ..CONDITIONS
        };
        // 401..501 was sent before everything that is delivered now, the retransmission before 501..601.
        assert_eq!(rack.detect(&mut board, &recovering, 90 * MS).0, 200);
    }
}
