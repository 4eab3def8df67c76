//! Reno (RFC 5681), counting octets (RFC 3465).

use super::{initial_window, Acknowledged, Control};
use core::time::Duration;

/// Reno's state.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    window: u64,
    threshold: u64,
    /// Octets acknowledged in congestion avoidance and not yet turned into window.
    saved: u64,
}

impl Reno {
    /// Before the first segment.
    pub fn new(mss: u64) -> Reno {
        Reno {
            mss,
            window: initial_window(mss),
            threshold: u64::MAX,
            saved: 0,
        }
    }
}

impl Control for Reno {
    fn name(&self) -> &'static str {
        "reno"
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn threshold(&self) -> u64 {
        self.threshold
    }

    fn acknowledged(&mut self, news: &Acknowledged) {
        if !news.limited {
            return;
        }
        let mut octets = news.octets;
        if self.window < self.threshold {
            // Slow start (RFC 5681 section 3.1 equation 2, RFC 3465 section 2.1).
            let growth = octets.min(self.threshold - self.window);
            self.window += growth;
            octets -= growth;
        }
        // Congestion avoidance: a segment for each window acknowledged.
        self.saved += octets;
        while self.saved >= self.window {
            self.saved -= self.window;
            self.window += self.mss;
        }
    }

    fn congestion(&mut self, flight: u64, _now: Duration) {
        // RFC 5681 section 3.1 equation 4.
        self.threshold = (flight / 2).max(2 * self.mss);
        self.window = self.threshold;
        self.saved = 0;
    }

    fn recovered(&mut self, _now: Duration) {
        self.window = self.threshold;
    }

    fn timeout(&mut self, flight: u64, first: bool, _now: Duration) {
        if first {
            self.threshold = (flight / 2).max(2 * self.mss);
        }
        self.window = self.mss;
        self.saved = 0;
    }

    fn idle(&mut self) {
        self.window = self.window.min(initial_window(self.mss));
        self.saved = 0;
    }

    fn set_mss(&mut self, mss: u64) {
        self.mss = mss;
        self.window = self.window.max(mss);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(octets: u64, limited: bool) -> Acknowledged {
        Acknowledged {
            octets,
            srtt: Duration::from_millis(10),
            min_rtt: Duration::from_millis(10),
            rtt: None,
            una: 0,
            nxt: 0,
            limited,
            now: Duration::ZERO,
        }
    }

    #[test]
    fn doubles_in_slow_start_and_adds_one_segment_after() {
        let mut reno = Reno::new(1000);
        assert_eq!(reno.window(), 10_000);
        reno.acknowledged(&news(10_000, true));
        assert_eq!(reno.window(), 20_000);
        reno.congestion(20_000, Duration::ZERO);
        assert_eq!(reno.window(), 10_000);
        for _ in 0..10 {
            reno.acknowledged(&news(1000, true));
        }
        assert_eq!(reno.window(), 11_000);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let mut reno = Reno::new(1000);
        reno.acknowledged(&news(5_000, false));
        assert_eq!(reno.window(), 10_000);
    }

    #[test]
    fn only_the_first_timeout_sets_the_threshold() {
        let mut reno = Reno::new(1000);
        reno.timeout(40_000, true, Duration::ZERO);
        reno.timeout(1_000, false, Duration::ZERO);
        assert_eq!((reno.window(), reno.threshold()), (1_000, 20_000));
    }
}
