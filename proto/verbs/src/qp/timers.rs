//! The deadlines of a queue pair: one table, which the driver looks at after each of its calls.
//!
//! | timer | what it bounds | what follows |
//! | --- | --- | --- |
//! | RNR | how long a message waits for a receive (`rnr`) | the peer is refused, or the message is lost |
//! | pause | how long nothing is received while messages wait for receives (`pause`) | the driver receives again |
//! | acknowledgement | how long one waits for what the program posts next (`delayed`) | it leaves |
//! | probe | how long a peer may overlook the first FPDU (`first_fpdu_probe`) | an empty Write is sent |
//! | first FPDU | how long a peer that promised one first may keep silent | the driver resets the stream |
//! | linger | how long a stream that ends is waited for | the driver closes the stream |

use core::time::Duration;

/// A stream that is ending is closed after this time, whatever the peer does.
pub const LINGER: Duration = Duration::from_secs(3);

/// What a deadline is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    Rnr,
    Pause,
    Acknowledgement,
    Probe,
    FirstFpdu,
    Linger,
}

const ALL: [Timer; 6] = [
    Timer::Rnr,
    Timer::Pause,
    Timer::Acknowledgement,
    Timer::Probe,
    Timer::FirstFpdu,
    Timer::Linger,
];

/// No deadline.
const NEVER: u64 = u64::MAX;

/// The deadlines, in the host's time, nanoseconds: every queue pair has a table, and most have no deadline.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Timers {
    at: [u64; ALL.len()],
    /// The earliest of them, which the driver asks for in every pass.
    next: u64,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            at: [NEVER; ALL.len()],
            next: NEVER,
        }
    }
}

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Duration) {
        self.at[timer as usize] = nanoseconds(at);
        self.follow();
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        self.at[timer as usize] = NEVER;
        self.follow();
    }

    fn follow(&mut self) {
        self.next = self.at.into_iter().min().unwrap_or(NEVER);
    }

    #[inline]
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.at[timer as usize] != NEVER
    }

    /// The earliest deadline.
    #[inline]
    pub(super) fn next(&self) -> Option<Duration> {
        (self.next != NEVER).then(|| Duration::from_nanos(self.next))
    }

    /// A stream ends at `now`: it is not waited for without end. One that is ending already keeps its time.
    pub(super) fn linger(&mut self, now: Duration) {
        if !self.is_set(Timer::Linger) {
            self.set(Timer::Linger, now + LINGER);
        }
    }

    /// Takes a deadline that has passed.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<Timer> {
        let now = nanoseconds(now);
        let is_due = |timer: &Timer| self.at[*timer as usize] <= now;
        let due = ALL.into_iter().find(is_due)?;
        self.cancel(due);
        Some(due)
    }
}

/// The time as a number that is not [`NEVER`].
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(NEVER - 1, |time| time.min(NEVER - 1))
}

/// How the driver closes a stream whose time is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Close {
    /// The peer sent no ready-to-receive message in time: the stream is reset.
    Abort,
    /// The peer did not end its side in time. What the transport has is complete for the program, and goes on: a reset
    /// would take it back.
    Linger,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_deadline_is_taken_once_and_the_next_one_is_told() {
        let mut timers = Timers::default();
        assert_eq!(timers.next(), None);
        timers.set(Timer::Linger, 30 * MS);
        timers.set(Timer::Probe, 10 * MS);
        assert_eq!(timers.next(), Some(10 * MS));
        assert_eq!(timers.take_due(9 * MS), None);
        assert_eq!(timers.take_due(10 * MS), Some(Timer::Probe));
        assert_eq!(timers.take_due(10 * MS), None);
        assert!(timers.is_set(Timer::Linger) && !timers.is_set(Timer::Probe));
        timers.cancel(Timer::Linger);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn each_timer_has_its_own_place() {
        let mut timers = Timers::default();
        for (place, timer) in ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, place);
            timers.set(timer, MS);
        }
        let taken = core::iter::from_fn(|| timers.take_due(MS));
        assert!(taken.eq(ALL));
    }

    #[test]
    fn a_stream_that_is_ending_keeps_its_time() {
        let mut timers = Timers::default();
        timers.linger(5 * MS);
        timers.linger(9 * MS);
        assert_eq!(timers.next(), Some(5 * MS + LINGER));
    }
}
