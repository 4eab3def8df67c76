//! The deadlines of a queue pair: one table, which the driver looks at after each of its calls.
//!
//! | timer | what it bounds | what follows |
//! | --- | --- | --- |
//! | RNR | how long a message waits for a receive (`rnr`) | the peer is refused, or the message is lost |
//! | acknowledgement | how long one waits for what the program posts next (`delayed`) | it leaves |
//! | probe | how long a peer may overlook the first FPDU (`first_fpdu_probe`) | an empty Write is sent |
//! | first FPDU | how long a peer that promised one first may keep silent | the driver resets the stream |
//! | linger | how long a stream that ends is waited for | the driver closes the stream |

use core::time::Duration;

use super::ending::Ending;
use super::Qp;
use crate::host::Host;

/// A stream that is ending is closed after this time, whatever the peer does.
pub const LINGER: Duration = Duration::from_secs(3);

/// What a deadline is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    Rnr,
    Acknowledgement,
    Probe,
    FirstFpdu,
    Linger,
}

const ALL: [Timer; 5] = [
    Timer::Rnr,
    Timer::Acknowledgement,
    Timer::Probe,
    Timer::FirstFpdu,
    Timer::Linger,
];

/// The deadlines, in the host's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    at: [Option<Duration>; ALL.len()],
    /// The earliest of them, which the driver asks for in every pass.
    next: Option<Duration>,
}

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Duration) {
        self.at[timer as usize] = Some(at);
        self.next = self.earliest();
    }

    pub(super) fn cancel(&mut self, timer: Timer) {
        self.at[timer as usize] = None;
        self.next = self.earliest();
    }

    fn earliest(&self) -> Option<Duration> {
        self.at.iter().flatten().copied().min()
    }

    #[inline]
    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.at[timer as usize].is_some()
    }

    /// Takes a deadline that has passed.
    fn take_due(&mut self, now: Duration) -> Option<Timer> {
        let is_due = |timer: &Timer| self.at[*timer as usize].is_some_and(|at| at <= now);
        let due = ALL.into_iter().find(is_due)?;
        self.cancel(due);
        Some(due)
    }
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

impl Qp {
    /// When [`Qp::handle_timeout`] has to be called at the latest, in the host's time. It may change with every call.
    #[inline]
    pub fn deadline(&self) -> Option<Duration> {
        self.timers.next
    }

    /// The deadline has passed, or may have. Then the driver sends what is due; where it gives a [`Close`], the driver
    /// closes the stream and calls [`Qp::stream_ended`].
    pub fn handle_timeout(&mut self, host: &mut impl Host) -> Option<Close> {
        let now = host.now();
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Rnr => self.give_up_holding(host),
                Timer::Acknowledgement => self.acknowledge_late(now),
                Timer::Probe => self.probe_if_silent(),
                Timer::FirstFpdu if !self.may_send() => return Some(Close::Abort),
                Timer::FirstFpdu => {}
                Timer::Linger => return Some(Close::Linger),
            }
        }
        self.follow_rnr(host);
        None
    }

    /// The stream is ending: it is not waited for without end.
    pub(super) fn linger(&mut self, host: &impl Host) {
        debug_assert_eq!(self.ending, Ending::Draining, "only a stream that ends");
        if !self.timers.is_set(Timer::Linger) {
            self.timers.set(Timer::Linger, host.now() + LINGER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_deadline_is_taken_once_and_the_next_one_is_told() {
        let mut timers = Timers::default();
        assert_eq!(timers.next, None);
        timers.set(Timer::Linger, 30 * MS);
        timers.set(Timer::Probe, 10 * MS);
        assert_eq!(timers.next, Some(10 * MS));
        assert_eq!(timers.take_due(9 * MS), None);
        assert_eq!(timers.take_due(10 * MS), Some(Timer::Probe));
        assert_eq!(timers.take_due(10 * MS), None);
        assert!(timers.is_set(Timer::Linger) && !timers.is_set(Timer::Probe));
        timers.cancel(Timer::Linger);
        assert_eq!(timers.next, None);
    }
}
