//! What has been missing for too long.

use alloc::collections::VecDeque;
use core::time::Duration;

/// What is missing is looked at so often while its time runs.
const LOOKS: u32 = 16;
/// But no oftener than this.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(1);

/// Knows since when a stream has come how far, while something is missing before that.
#[derive(Clone, Debug, Default)]
pub struct Overdue {
    marks: VecDeque<(Duration, u64)>,
    before: u64,
    look_at: Duration,
}

impl Overdue {
    /// When something is missing, it is to be looked at no earlier than this.
    pub fn look_at(&self) -> Duration {
        self.look_at
    }

    /// Everything is there up to `frontier`, and octets up to `end`. Gives the place before which what is missing has
    /// been so for at least `wait`, seen by what came behind it.
    pub fn look(&mut self, frontier: u64, end: u64, wait: Duration, now: Duration) -> u64 {
        self.look_at = now + (wait / LOOKS).max(LOOK_EVERY_MIN);
        if frontier == end {
            self.marks.clear();
        } else if self.marks.back().is_none_or(|(_, to)| *to != end) {
            self.marks.push_back((now, end));
        }
        while let Some((_, to)) = self.marks.front().filter(|(at, _)| *at + wait <= now) {
            self.before = *to;
            self.marks.pop_front();
        }
        self.before
    }
}

/// How long what is missing is waited for where datagrams may only be so old. What would be sent again comes a round
/// trip later: if that is too late it is of no use, and the other end is told before it sends it. It waits for a
/// quarter of the round trip, as segments may overtake each other (RFC 8985 section 6.2).
pub fn wait(age: Duration, round_trip: Option<Duration>) -> Duration {
    match round_trip {
        Some(round_trip) if round_trip > age => age.min(round_trip / 8),
        _ => age,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn what_is_missing_is_overdue_once_it_has_been_so_for_long() {
        let mut overdue = Overdue::default();
        assert_eq!(overdue.look(100, 200, ms(20), ms(1000)), 0);
        assert_eq!(overdue.look(100, 300, ms(20), ms(1010)), 0);
        assert_eq!(overdue.look(100, 300, ms(20), ms(1019)), 0);
        assert_eq!(overdue.look(100, 300, ms(20), ms(1020)), 200);
        assert_eq!(overdue.look(200, 300, ms(20), ms(1029)), 200);
        assert_eq!(overdue.look(200, 300, ms(20), ms(1030)), 300);
        // Nothing is missing any more, and what is so next has its own time.
        assert_eq!(overdue.look(300, 300, ms(20), ms(1040)), 300);
        assert_eq!(overdue.look(300, 500, ms(20), ms(1100)), 300);
        assert_eq!(overdue.look(300, 500, ms(20), ms(1119)), 300);
        assert_eq!(overdue.look(300, 500, ms(20), ms(1120)), 500);
    }

    #[test]
    fn what_would_come_too_late_is_not_waited_for() {
        assert_eq!(wait(ms(20), None), ms(20));
        assert_eq!(wait(ms(20), Some(ms(20))), ms(20));
        assert_eq!(wait(ms(20), Some(ms(80))), ms(10));
        assert_eq!(wait(ms(5), Some(ms(80))), ms(5));
    }
}
