//! The timers of one connection: a table of deadlines.

use core::time::Duration;

/// What a connection waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// Tail loss probe (RFC 8985 section 7). Stands first: when it is due together with the next, the probe goes.
    Probe,
    /// Retransmission, of the SYN too (RFC 6298).
    Retransmit,
    /// A segment sent before one that was delivered counts as lost now (RFC 8985 section 6.2).
    Reorder,
    /// Probe of a closed window (RFC 9293 section 3.8.6.1).
    Persist,
    /// Delayed acknowledgement (RFC 9293 section 3.8.6.3).
    Acknowledge,
    /// Keep-alive (RFC 9293 section 3.8.4).
    KeepAlive,
    /// The peer did not acknowledge for as long as the program allows (RFC 9293 section 3.8.3).
    User,
    /// FIN-WAIT-2 without a FIN from the peer, when nobody will read any more.
    Linger,
    /// Probe of a larger path MTU (RFC 4821).
    PathMtu,
}

impl Timer {
    const ALL: [Timer; 9] = [
        Timer::Probe,
        Timer::Retransmit,
        Timer::Reorder,
        Timer::Persist,
        Timer::Acknowledge,
        Timer::KeepAlive,
        Timer::User,
        Timer::Linger,
        Timer::PathMtu,
    ];
}

/// When each timer expires.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    deadlines: [Option<Duration>; Timer::ALL.len()],
}

impl Timers {
    /// Starts a timer, or moves it.
    pub fn set(&mut self, timer: Timer, at: Duration) {
        self.deadlines[timer as usize] = Some(at);
    }

    /// Stops a timer.
    pub fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = None;
    }

    /// Stops all.
    pub fn stop_all(&mut self) {
        *self = Timers::default();
    }

    /// The timer runs.
    pub fn runs(&self, timer: Timer) -> bool {
        self.deadlines[timer as usize].is_some()
    }

    /// When the next one expires.
    pub fn next(&self) -> Option<Duration> {
        self.deadlines.iter().flatten().min().copied()
    }

    /// Takes one timer that has expired by `now`, and stops it.
    pub fn expired(&mut self, now: Duration) -> Option<Timer> {
        let timer = Timer::ALL
            .into_iter()
            .find(|timer| self.deadlines[*timer as usize].is_some_and(|at| at <= now))?;
        self.stop(timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timer_has_its_own_row() {
        let mut timers = Timers::default();
        for (at, timer) in Timer::ALL.into_iter().enumerate() {
            assert_eq!(timer as usize, at);
            timers.set(timer, Duration::from_secs(at as u64 + 1));
        }
        assert_eq!(timers.next(), Some(Duration::from_secs(1)));
        assert_eq!(timers.expired(Duration::ZERO), None);
        assert_eq!(timers.expired(Duration::from_secs(1)), Some(Timer::Probe));
        assert!(!timers.runs(Timer::Probe));
        timers.stop_all();
        assert_eq!(timers.next(), None);
    }
}
