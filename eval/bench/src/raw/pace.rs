//! When a client begins its round trips that is to begin so many a second, as others do at the same server.

use std::cell::Cell;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{ensure, Result};

use super::programs::PingPong;

/// What part of its pace a client has to come to: what its server took is told of that.
const LEAST: f64 = 0.9;

/// The times of a client's round trips; those of a client without a pace follow one another.
pub(super) struct Pace {
    per_second: Option<u32>,
    /// When the first was answered. A server serves none of its clients before all are there, so it is the same moment
    /// for all of them.
    begun: Cell<Instant>,
    /// Which part of the time between two of its own round trips this client is later than that moment, so that not
    /// all clients ask at once.
    phase: f64,
}

impl Pace {
    pub(super) fn of(program: &PingPong) -> Pace {
        Pace {
            per_second: program.pace,
            begun: Cell::new(Instant::now()),
            phase: phase(std::process::id()),
        }
    }

    /// Sleeps until the round trip of this number is due.
    pub(super) fn wait(&self, number: u64) {
        let Some(rate) = self.per_second.filter(|_| number > 0) else {
            return;
        };
        let due = Duration::from_secs_f64((number as f64 + self.phase) / f64::from(rate));
        thread::sleep(due.saturating_sub(self.begun.get().elapsed()));
    }

    /// The round trip of this number is over.
    pub(super) fn answered(&self, number: u64) {
        if number == 0 {
            self.begun.set(Instant::now());
        }
    }

    /// Whether so many round trips were at the pace.
    ///
    /// # Errors
    /// They were slower.
    pub(super) fn check(&self, count: u64) -> Result<()> {
        let Some(wanted) = self.per_second else {
            return Ok(());
        };
        let rate = count as f64 / self.begun.get().elapsed().as_secs_f64();
        ensure!(
            rate >= f64::from(wanted) * LEAST,
            "{rate:.0} requests a second were answered instead of {wanted}"
        );
        Ok(())
    }
}

/// How long a sender sleeps at least that is ahead of its pace: what is due then goes in one burst, so that a core that
/// has nothing to do is idle.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// A sender that sends so many a second, in bursts.
pub(super) struct Rate {
    per_second: u32,
    begun: Instant,
}

impl Rate {
    pub(super) fn of(per_second: u32) -> Rate {
        Rate {
            per_second,
            begun: Instant::now(),
        }
    }

    /// Sleeps where more was sent than is due.
    pub(super) fn wait(&self, sent: u64) {
        let due = Duration::from_secs_f64(sent as f64 / f64::from(self.per_second));
        let ahead = due.saturating_sub(self.begun.elapsed());
        if !ahead.is_zero() {
            thread::sleep(ahead.max(SLEEP_MIN));
        }
    }

    /// Whether the receiver's rate came near enough.
    ///
    /// # Errors
    /// It was slower.
    pub(super) fn check(&self, came: f64) -> Result<()> {
        let wanted = self.per_second;
        ensure!(
            came >= f64::from(wanted) * LEAST,
            "{came:.0} a second came instead of {wanted}"
        );
        Ok(())
    }
}

/// Neighbours among processes are far from each other: by the golden ratio.
fn phase(process: u32) -> f64 {
    (f64::from(process) * 0.618_033_988_75).fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_over_the_time_between_two_requests() {
        let mut phases: Vec<f64> = (5000..5064).map(phase).collect();
        phases.sort_by(f64::total_cmp);
        let widest = phases.windows(2).map(|two| two[1] - two[0]);
        assert!(widest.fold(0.0, f64::max) < 3.0 / 64.0);
    }

    #[test]
    fn a_sender_in_bursts_keeps_its_rate_and_says_where_it_did_not() {
        let rate = Rate::of(10_000);
        let mut sent = 0;
        while rate.begun.elapsed() < Duration::from_millis(200) {
            sent += 1;
            rate.wait(sent);
        }
        let reached = sent as f64 / rate.begun.elapsed().as_secs_f64();
        assert!(reached < 11_000.0, "{reached}");
        rate.check(9_000.0).unwrap();
        let error = rate.check(8_999.0).unwrap_err().to_string();
        assert!(error.ends_with("instead of 10000"), "{error}");
    }

    #[test]
    fn who_is_slower_than_its_pace_says_so() {
        let pace = |per_second| Pace {
            per_second,
            begun: Cell::new(Instant::now()),
            phase: 0.0,
        };
        pace(None).check(1).unwrap();
        let slow = pace(Some(1_000_000));
        thread::sleep(Duration::from_millis(10));
        let error = slow.check(5).unwrap_err().to_string();
        assert!(error.ends_with("instead of 1000000"), "{error}");
    }
}
