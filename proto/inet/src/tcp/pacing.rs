//! Pacing: when the next segment may leave at a given rate.

use core::time::Duration;

/// The pacer of one connection.
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    next: Duration,
    /// Nanoseconds' fractions that were rounded away, in octets times 10^9.
    rest: u64,
}

/// A pacer that was idle, or whose driver came late, makes up for no more than this.
const MAX_CATCH_UP: Duration = Duration::from_millis(1);

impl Pacer {
    /// When the next segment may leave.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// `octets` leave at `now`, at `rate` octets per second.
    pub fn sent(&mut self, octets: u64, rate: u64, now: Duration) {
        let rate = rate.max(1);
        let cost = octets * 1_000_000_000 + self.rest;
        self.rest = cost % rate;
        let start = self.next.max(now.saturating_sub(MAX_CATCH_UP));
        self.next = start + Duration::from_nanos(cost / rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_met_exactly_over_time() {
        let mut pacer = Pacer::default();
        let mut now = Duration::ZERO;
        for _ in 0..1000 {
            now = now.max(pacer.next());
            pacer.sent(1500, 1_250_000_007, now);
        }
        let ideal = 1500.0 * 1000.0 / 1_250_000_007.0;
        assert!((pacer.next().as_secs_f64() - ideal).abs() < 2e-9);
    }

    #[test]
    fn idleness_is_not_saved_up() {
        let mut pacer = Pacer::default();
        pacer.sent(1000, 1_000_000, Duration::from_secs(5));
        assert_eq!(pacer.next(), Duration::from_secs(5));
        pacer.sent(1000, 1_000_000, Duration::from_secs(5));
        assert_eq!(pacer.next(), Duration::from_millis(5001));
    }
}
