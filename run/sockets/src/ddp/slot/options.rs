//! What the program has set of the kernel's options that the connection uses itself.

use std::sync::atomic::Ordering;

use super::Slot;

/// The program has not set `TCP_NODELAY`, or to zero.
const DELAYS: u32 = 1;
/// It has.
const NO_DELAY: u32 = 2;

impl Slot {
    /// Octets of the stream that make the socket readable (`SO_RCVLOWAT`).
    pub fn low_water(&self) -> usize {
        self.low_water.load(Ordering::Relaxed).max(1) as usize
    }

    /// Whether it is known what the program had set.
    pub(in crate::ddp) fn knows_low_water(&self) -> bool {
        self.low_water.load(Ordering::Relaxed) != 0
    }

    pub(in crate::ddp) fn set_low_water(&self, octets: u32) {
        self.low_water.store(octets, Ordering::Relaxed);
    }

    /// Whether the program has set `TCP_NODELAY`.
    pub fn no_delay(&self) -> bool {
        self.no_delay.load(Ordering::Relaxed) == NO_DELAY
    }

    /// It does so now, or no longer. Every FPDU leaves at once all the same.
    pub fn set_no_delay(&self, no_delay: bool) {
        let word = if no_delay { NO_DELAY } else { DELAYS };
        self.no_delay.store(word, Ordering::Relaxed);
    }

    /// Whether it is known what the program had set.
    pub(in crate::ddp) fn knows_no_delay(&self) -> bool {
        self.no_delay.load(Ordering::Relaxed) != 0
    }
}
