//! Answers that come within microseconds.
//!
//! A thread that sleeps until an answer is there is woken later than one that keeps looking, by as much as a short
//! exchange on one machine takes as a whole. So who asked a peer on this machine, and would sleep, looks for a moment
//! first. Where that does not help, because the peer's core is busy or is this very one, it is left out for a while.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A peer on this machine answers a connection's Request within so many times what the TCP handshake took: its program
/// is woken, takes the request, makes a queue pair and accepts.
const BUSY_WAIT_HANDSHAKES: u32 = 5;
/// Nobody looks for longer.
const BUSY_WAIT_MAX: Duration = Duration::from_micros(500);
/// After an answer that did not come so soon, so many are waited for asleep.
const WAITS_SKIPPED: u32 = 16;

/// Whether to look for an answer instead of sleeping. Relaxed throughout: it is a matter of time alone.
#[derive(Debug, Default)]
pub(crate) struct BusyWait {
    /// Engine time, nanoseconds.
    until: AtomicU64,
    skip: AtomicU32,
}

impl BusyWait {
    /// A peer on this machine was asked; the TCP handshake with it took so long.
    pub(crate) fn asked(&self, now: Duration, handshake: Duration) {
        match self.skip.load(Ordering::Relaxed) {
            0 => {
                let until =
                    (now + (handshake * BUSY_WAIT_HANDSHAKES).min(BUSY_WAIT_MAX)).as_nanos() as u64;
                self.until.store(until, Ordering::Relaxed);
            }
            skip => self.skip.store(skip - 1, Ordering::Relaxed),
        }
    }

    /// It answered.
    pub(crate) fn answered(&self) {
        self.until.store(0, Ordering::Relaxed);
    }

    /// Whether to look for the answer now.
    pub(crate) fn is_expected(&self, now: Duration) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let yes = now.as_nanos() as u64 <= until;
        if !yes {
            self.skip.store(WAITS_SKIPPED, Ordering::Relaxed);
            self.until.store(0, Ordering::Relaxed);
        }
        yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);
    const HANDSHAKE: Duration = Duration::from_micros(40);

    #[test]
    fn an_answer_is_expected_until_it_comes() {
        let busy_wait = BusyWait::default();
        assert!(!busy_wait.is_expected(NOW));
        busy_wait.asked(NOW, HANDSHAKE);
        assert!(busy_wait.is_expected(NOW + HANDSHAKE * 4));
        busy_wait.answered();
        assert!(!busy_wait.is_expected(NOW + HANDSHAKE * 4));
        busy_wait.asked(NOW, HANDSHAKE * 100);
        assert!(
            busy_wait.is_expected(NOW + BUSY_WAIT_MAX),
            "the one before came in time"
        );
        assert!(!busy_wait.is_expected(NOW + BUSY_WAIT_MAX * 2));
    }

    #[test]
    fn after_one_that_came_late_others_are_slept_for() {
        let busy_wait = BusyWait::default();
        busy_wait.asked(NOW, HANDSHAKE);
        assert!(!busy_wait.is_expected(NOW + HANDSHAKE * 6));
        for _ in 0..WAITS_SKIPPED {
            busy_wait.asked(NOW, HANDSHAKE);
            assert!(!busy_wait.is_expected(NOW));
        }
        busy_wait.asked(NOW, HANDSHAKE);
        assert!(busy_wait.is_expected(NOW));
    }
}
