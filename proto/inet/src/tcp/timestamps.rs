//! Timestamps of one connection: our clock, the peer's last value, and protection against wrapped numbers (RFC 7323).

use super::options::Timestamps;
use super::seq::Seq;
use core::time::Duration;

/// A peer's value older than this proves nothing (RFC 7323 section 5.5): its clock may have wrapped.
const OUTDATED: Duration = Duration::from_secs(24 * 24 * 3600);

/// The state of a connection that uses timestamps.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Added to our clock, so that it tells nothing about the machine (RFC 7323 section 5.4).
    offset: u32,
    recent: u32,
    recent_at: Duration,
}

impl Clock {
    /// The peer's SYN had the value `first`.
    pub fn new(offset: u32, first: u32, now: Duration) -> Clock {
        Clock {
            offset,
            recent: first,
            recent_at: now,
        }
    }

    /// Our clock at `at`: milliseconds (RFC 7323 section 5.4 allows 1 ms to 1 s).
    pub fn value(offset: u32, at: Duration) -> u32 {
        (at.as_millis() as u32).wrapping_add(offset)
    }

    /// Our clock at `at`.
    pub fn at(&self, at: Duration) -> u32 {
        Clock::value(self.offset, at)
    }

    /// The option of a segment that leaves now.
    pub fn option(&self, now: Duration) -> Timestamps {
        Timestamps {
            value: self.at(now),
            echo: self.recent,
        }
    }

    /// The last value of the peer.
    pub fn recent(&self) -> u32 {
        self.recent
    }

    /// A segment with this value is older than one that was received (PAWS, RFC 7323 section 5.2).
    pub fn is_old(&self, value: u32, now: Duration) -> bool {
        (value.wrapping_sub(self.recent) as i32) < 0
            && now.saturating_sub(self.recent_at) < OUTDATED
    }

    /// A segment that begins at `seq` was accepted: its value is kept when the segment reaches back to the last ACK
    /// (RFC 7323 section 4.3), so that the RTT of delayed ACKs includes the delay.
    pub fn update(&mut self, value: u32, seq: Seq, last_ack: Seq, now: Duration) {
        if seq.distance_from(last_ack) <= 0 && (value.wrapping_sub(self.recent) as i32) >= 0 {
            self.recent = value;
            self.recent_at = now;
        }
    }

    /// An echoed value was sent before `sent`: the ACK is for an earlier transmission.
    pub fn precedes(&self, echo: u32, sent: Duration) -> bool {
        (echo.wrapping_sub(self.at(sent)) as i32) < 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_values_are_refused_for_24_days() {
        let clock = Clock::new(0, 1000, Duration::ZERO);
        assert!(clock.is_old(999, Duration::from_secs(1)));
        assert!(!clock.is_old(1000, Duration::from_secs(1)));
        assert!(!clock.is_old(999, OUTDATED));
    }

    #[test]
    fn only_segments_up_to_the_last_ack_move_it() {
        let mut clock = Clock::new(0, 10, Duration::ZERO);
        clock.update(20, Seq(101), Seq(100), Duration::ZERO);
        assert_eq!(clock.recent(), 10);
        clock.update(20, Seq(100), Seq(100), Duration::ZERO);
        assert_eq!(clock.recent(), 20);
    }
}
