//! How long a message that finds no receive waits for one.
//!
//! InfiniBand's receiver answers "not ready" and names a time; the sender tries again after it, as often as its RNR
//! retry count says. Here the message is at the receiver already and waits there. A peer that bounds its count tells it
//! (`acknowledged`), and the wait is count times this side's `min_rnr_timer`. Of a peer that tells none the wait is the
//! one that was set ([`Qp::set_receive_wait`]), or without end where the program's own count is 7: programs set the
//! same at both ends.

use core::time::Duration;

use super::ending::Ending;
use super::timers::Timer;
use super::Qp;
use crate::host::Host;

/// How long a message waits for a receive where it may be lost.
const WAIT_OF_UNRELIABLE: Duration = Duration::from_millis(100);
/// The RNR retry count that means "without end" (InfiniBand 9.7.5.2.8).
const RETRY_FOR_EVER: u8 = 7;
/// A wait without end.
const FOR_EVER: Duration = Duration::MAX;
/// A retry takes at least this long. The timer names the least time, and devices are slower than its smallest values.
const RETRY_MIN: Duration = Duration::from_millis(1);

/// The times that `min_rnr_timer` stands for, in units of 10 µs (InfiniBand table 45).
const RNR_TIMER_10_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long messages wait, and which one does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rnr {
    /// Where nothing of the program's says otherwise; zero for not at all.
    wait: Duration,
    /// Where the peer tells nothing.
    limit: Duration,
    /// What one retry of the peer's takes.
    retry: Duration,
    /// The message that waits, and until when.
    message: Option<(u64, Duration)>,
}

impl Default for Rnr {
    /// Messages wait without end.
    fn default() -> Rnr {
        Rnr {
            wait: FOR_EVER,
            limit: FOR_EVER,
            retry: RETRY_MIN,
            message: None,
        }
    }
}

impl Rnr {
    /// Whether messages may wait at all.
    pub(super) fn waits(&self) -> bool {
        !self.limit.is_zero()
    }

    /// What was set, without the message that waits.
    pub(super) fn reset(&self) -> Rnr {
        Rnr {
            message: None,
            ..*self
        }
    }

    /// `message` waits at `now`, of a peer that bounds its retries or not, and no longer than `most`; gives a time that
    /// is new.
    fn follow(
        &mut self,
        message: u64,
        retries: Option<u8>,
        most: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let told = retries.map(|count| self.retry * u32::from(count));
        let limit = self.limit.min(most);
        let until = now.saturating_add(told.map_or(limit, |told| told.min(limit)));
        let known = self.message.filter(|(same, _)| *same == message);
        if known.is_some_and(|(_, before)| before <= until) {
            return None;
        }
        self.message = Some((message, until));
        Some(until)
    }
}

impl Qp {
    /// Sets how long a message may wait for a receive; zero ends the connection at once.
    pub fn set_receive_wait(&mut self, wait: Duration) {
        self.rnr.wait = wait;
        self.rnr.limit = wait;
    }

    /// Sets the program's RNR retry count: how often its Sends may find no receive at the peer, 7 for without end.
    pub fn set_rnr_retry(&mut self, count: u8) {
        let for_ever = count == RETRY_FOR_EVER;
        self.set_rnr_retries((!for_ever).then_some(count));
        self.rnr.limit = match for_ever && !self.rnr.wait.is_zero() {
            true => FOR_EVER,
            false => self.rnr.wait,
        };
    }

    /// Sets how long one retry of the peer's takes, as the code of `min_rnr_timer`; of it the lowest five bits count.
    pub fn set_min_rnr_timer(&mut self, code: u8) {
        let time = Duration::from_micros(10) * RNR_TIMER_10_US[usize::from(code & 31)];
        self.rnr.retry = time.max(RETRY_MIN);
    }

    /// What waits may be lost: it waits for a short time.
    pub(super) fn shorten_receive_wait(&mut self) {
        self.rnr.limit = self.rnr.limit.min(WAIT_OF_UNRELIABLE);
    }

    /// Bounds the wait of the message that finds no receive, if one does. After whatever may have held a message, or
    /// let one go.
    #[inline]
    pub(super) fn follow_rnr(&mut self, host: &impl Host) {
        match self.holding() {
            Some(message) => self.bound_wait(message, host),
            None if self.rnr.message.is_some() => {
                self.rnr.message = None;
                self.timers.cancel(Timer::Rnr);
            }
            None => {}
        }
    }

    fn bound_wait(&mut self, message: u64, host: &impl Host) {
        // Nobody is there any more who could want it to wait without end.
        let most = match self.ending {
            Ending::HalfClosed => self.rnr.wait,
            _ => FOR_EVER,
        };
        let retries = self.rnr_retries_of_peer();
        match self.rnr.follow(message, retries, most, host.now()) {
            Some(FOR_EVER) => self.timers.cancel(Timer::Rnr),
            Some(until) => self.timers.set(Timer::Rnr, until),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_peer_that_tells_its_count_shortens_the_wait_and_never_lengthens_it() {
        let mut rnr = Rnr {
            limit: 100 * MS,
            retry: 10 * MS,
            ..Rnr::default()
        };
        assert_eq!(rnr.follow(1, None, FOR_EVER, 5 * MS), Some(105 * MS));
        assert_eq!(rnr.follow(1, None, FOR_EVER, 6 * MS), None, "known");
        assert_eq!(rnr.follow(1, Some(3), FOR_EVER, 7 * MS), Some(37 * MS));
        assert_eq!(rnr.follow(1, Some(3), FOR_EVER, 8 * MS), None, "known");
        assert_eq!(rnr.follow(2, Some(0), FOR_EVER, 40 * MS), Some(40 * MS));
        assert_eq!(rnr.follow(3, Some(255), FOR_EVER, 50 * MS), Some(150 * MS));
    }

    #[test]
    fn a_wait_without_end_is_bounded_once_the_peer_has_gone_or_tells_its_count() {
        let mut rnr = Rnr::default();
        assert_eq!(rnr.follow(1, None, FOR_EVER, MS), Some(FOR_EVER));
        assert_eq!(rnr.follow(1, None, FOR_EVER, 2 * MS), None);
        assert_eq!(rnr.follow(1, None, 9 * MS, MS), Some(10 * MS));
        assert_eq!(rnr.follow(1, Some(2), FOR_EVER, MS), Some(3 * MS));
    }
}
