//! A fixed rate, for links that are the program's own. What is lost is sent again within the rate; nothing slows down.

use super::{Acknowledged, Control};
use core::time::Duration;

/// Beyond two round trips, so much more may be in flight: enough for the most thinned of ACKs.
const SLACK: Duration = Duration::from_millis(250);

/// The rate, and what it means in flight.
#[derive(Clone, Debug)]
pub struct FixedRate {
    rate: u64,
    window: u64,
}

impl FixedRate {
    /// At `rate` octets of IP packets per second.
    pub fn new(rate: u64) -> FixedRate {
        let window = window(rate, Duration::from_secs(1));
        FixedRate { rate, window }
    }
}

/// A bound that a connection never meets while its peer is alive: it is there for when the peer is not.
fn window(rate: u64, rtt: Duration) -> u64 {
    let nanos = (rtt * 2 + SLACK).as_nanos();
    (u128::from(rate) * nanos / 1_000_000_000) as u64 + 65_536
}

impl Control for FixedRate {
    fn name(&self) -> &'static str {
        "fixed-rate"
    }

    fn window(&self) -> u64 {
        self.window
    }

    fn threshold(&self) -> u64 {
        self.window
    }

    fn rate(&self) -> Option<u64> {
        Some(self.rate)
    }

    fn reduces(&self) -> bool {
        false
    }

    fn acknowledged(&mut self, news: &Acknowledged) {
        self.window = window(self.rate, news.srtt);
    }

    fn congestion(&mut self, _flight: u64, _now: Duration) {}

    fn recovered(&mut self, _now: Duration) {}

    fn timeout(&mut self, _flight: u64, _first: bool, _now: Duration) {}

    fn set_mss(&mut self, _mss: u64) {}
}
