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

/// A row that does not run.
const NEVER: u64 = u64::MAX;

/// When each timer expires. Rows are nanoseconds: the earliest of them is asked for with every segment.
#[derive(Clone, Debug)]
pub struct Timers {
    deadlines: [u64; Timer::ALL.len()],
}

impl Default for Timers {
    fn default() -> Timers {
        Timers {
            deadlines: [NEVER; Timer::ALL.len()],
        }
    }
}

impl Timers {
    /// Starts a timer, or moves it.
    #[inline]
    pub fn set(&mut self, timer: Timer, at: Duration) {
        self.deadlines[timer as usize] = nanos(at);
    }

    /// Stops a timer.
    #[inline]
    pub fn stop(&mut self, timer: Timer) {
        self.deadlines[timer as usize] = NEVER;
    }

    /// Stops all.
    pub fn stop_all(&mut self) {
        *self = Timers::default();
    }

    /// The timer runs.
    #[inline]
    pub fn runs(&self, timer: Timer) -> bool {
        self.deadlines[timer as usize] != NEVER
    }

    /// When the next one expires.
    #[inline]
    pub fn next(&self) -> Option<Duration> {
        let next = self.deadlines.iter().fold(NEVER, |next, at| next.min(*at));
        (next != NEVER).then(|| Duration::from_nanos(next))
    }

    /// Takes one timer that has expired by `now`, and stops it.
    pub fn expired(&mut self, now: Duration) -> Option<Timer> {
        let now = nanos(now);
        let timer = Timer::ALL
            .into_iter()
            .find(|timer| self.deadlines[*timer as usize] <= now)?;
        self.stop(timer);
        Some(timer)
    }
}

/// Nanoseconds since the epoch of the clock: 584 years of them fit, and the last is no time.
#[inline]
fn nanos(at: Duration) -> u64 {
    let whole = at.as_secs().saturating_mul(1_000_000_000);
    whole
        .saturating_add(at.subsec_nanos().into())
        .min(NEVER - 1)
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
