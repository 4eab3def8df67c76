//! No congestion control: whatever the peer's window takes. For links that are the program's own.

use super::{Acknowledged, Control};
use core::time::Duration;

/// No limit.
#[derive(Clone, Debug)]
pub struct Unlimited;

impl Control for Unlimited {
    fn name(&self) -> &'static str {
        "none"
    }

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn threshold(&self) -> u64 {
        u64::MAX
    }

    fn reduces(&self) -> bool {
        false
    }

    fn acknowledged(&mut self, _news: &Acknowledged) {}

    fn congestion(&mut self, _flight: u64, _now: Duration) {}

    fn recovered(&mut self, _now: Duration) {}

    fn timeout(&mut self, _flight: u64, _first: bool, _now: Duration) {}

    fn set_mss(&mut self, _mss: u64) {}
}
