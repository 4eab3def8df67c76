//! How long a message that finds no receive waits for one.
//!
//! InfiniBand's receiver answers "not ready" and names a time; the sender tries again after it, as often as its RNR
//! retry count says. Here the message is at the receiver already and waits there. A peer that bounds its count tells it
//! (`acknowledged`), and the wait is count times this side's `min_rnr_timer`. Of a peer that tells none the wait is the
//! one that was set, or without end where the program's own count is 7: programs set the
//! same at both ends.

use core::time::Duration;

use super::timers::{Timer, Timers};

/// How long a message waits for a receive where it may be lost.
const WAIT_OF_UNRELIABLE: Duration = Duration::from_millis(100);
/// The RNR retry count that means "without end" (InfiniBand 9.7.5.2.8).
const RETRY_FOR_EVER: u8 = 7;
/// A wait without end.
const FOR_EVER: Duration = Duration::MAX;
/// Microseconds that a retry takes at least. The timer names the least time, and devices are slower than its smallest
/// values.
const RETRY_US_MIN: u32 = 1000;

/// The times that `min_rnr_timer` stands for, in units of 10 µs (InfiniBand table 45).
const RNR_TIMER_10_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How long messages wait, and which one does.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Rnr {
    /// The message that waits, and until when: what each pass looks at.
    message: Option<(u64, Duration)>,
    /// How often a message of the peer's may find no receive, where it told.
    retries_of_peer: Option<u8>,
    /// Microseconds that one retry of the peer's takes.
    retry_us: u32,
    /// Where nothing of the program's says otherwise; zero for not at all.
    wait: Duration,
    /// Where the peer tells nothing.
    limit: Duration,
}

impl Default for Rnr {
    /// Messages wait without end.
    fn default() -> Rnr {
        Rnr {
            wait: FOR_EVER,
            limit: FOR_EVER,
            retry_us: RETRY_US_MIN,
            message: None,
            retries_of_peer: None,
        }
    }
}

impl Rnr {
    /// Sets how long a message may wait; zero for not at all.
    pub(super) fn set_wait(&mut self, wait: Duration) {
        self.wait = wait;
        self.limit = wait;
    }

    /// Sets the program's RNR retry count; gives it where it bounds how often its Sends may find no receive.
    pub(super) fn set_retry(&mut self, count: u8) -> Option<u8> {
        let for_ever = count == RETRY_FOR_EVER;
        self.limit = match for_ever && !self.wait.is_zero() {
            true => FOR_EVER,
            false => self.wait,
        };
        (!for_ever).then_some(count)
    }

    /// Sets how long one retry of the peer's takes, as the code of `min_rnr_timer`; of it the lowest five bits count.
    pub(super) fn set_min_timer(&mut self, code: u8) {
        let time_us = 10 * RNR_TIMER_10_US[usize::from(code & 31)];
        self.retry_us = time_us.max(RETRY_US_MIN);
    }

    /// What waits may be lost: it waits for a short time.
    pub(super) fn shorten(&mut self) {
        self.limit = self.limit.min(WAIT_OF_UNRELIABLE);
    }

    /// The peer tells how often a message of its own may find no receive.
    pub(super) fn note_retries_of_peer(&mut self, count: u8) {
        self.retries_of_peer = Some(count);
    }

    #[inline]
    pub(super) fn retries_of_peer(&self) -> Option<u8> {
        self.retries_of_peer
    }

    /// What the peer told is over with its stream.
    pub(super) fn forget_peer(&mut self) {
        self.retries_of_peer = None;
    }

    /// Whether messages may wait at all.
    pub(super) fn waits(&self) -> bool {
        !self.limit.is_zero()
    }

    /// What was set, without the message that waits and without the peer.
    pub(super) fn reset(&self) -> Rnr {
        Rnr {
            message: None,
            retries_of_peer: None,
            ..*self
        }
    }

    /// Bounds the wait of the message that finds no receive, if one does. After whatever may have held a message, or
    /// let one go.
    #[inline]
    pub(super) fn follow(
        &mut self,
        holding: Option<u64>,
        peer_has_gone: bool,
        now: impl FnOnce() -> Duration,
        timers: &mut Timers,
    ) {
        match holding {
            Some(message) => self.bound_wait(message, peer_has_gone, now(), timers),
            None if self.message.is_some() => {
                self.message = None;
                timers.cancel(Timer::Rnr);
            }
            None => {}
        }
    }

    fn bound_wait(
        &mut self,
        message: u64,
        peer_has_gone: bool,
        now: Duration,
        timers: &mut Timers,
    ) {
        // Nobody is there any more who could want it to wait without end.
        let most = if peer_has_gone { self.wait } else { FOR_EVER };
        let told = self
            .retries_of_peer
            .map(|count| Duration::from_micros(u64::from(self.retry_us) * u64::from(count)));
        let limit = self.limit.min(most);
        let until = now.saturating_add(told.map_or(limit, |told| told.min(limit)));
        let known = self.message.filter(|(same, _)| *same == message);
        if known.is_some_and(|(_, before)| before <= until) {
            return;
        }
        self.message = Some((message, until));
        match until {
            FOR_EVER => timers.cancel(Timer::Rnr),
            _ => timers.set(Timer::Rnr, until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The deadline once `message` has been waiting at `now`.
    fn until(
        rnr: &mut Rnr,
        timers: &mut Timers,
        message: u64,
        retries: Option<u8>,
        now: Duration,
    ) -> Option<Duration> {
        rnr.forget_peer();
        if let Some(count) = retries {
            rnr.note_retries_of_peer(count);
        }
        rnr.follow(Some(message), false, || now, timers);
        timers.next()
    }

    #[test]
    fn a_peer_that_tells_its_count_shortens_the_wait_and_never_lengthens_it() {
        let (mut rnr, mut timers) = (Rnr::default(), Timers::default());
        rnr.set_wait(100 * MS);
        rnr.set_min_timer(20);
        assert_eq!(rnr.retry_us, 10_240);
        rnr.retry_us = 10_000;
        let mut until = |message, retries, now| until(&mut rnr, &mut timers, message, retries, now);
        assert_eq!(until(1, None, 5 * MS), Some(105 * MS));
        assert_eq!(until(1, None, 6 * MS), Some(105 * MS), "known");
        assert_eq!(until(1, Some(3), 7 * MS), Some(37 * MS));
        assert_eq!(until(1, Some(3), 8 * MS), Some(37 * MS), "known");
        assert_eq!(until(2, Some(0), 40 * MS), Some(40 * MS));
        assert_eq!(until(3, Some(255), 50 * MS), Some(150 * MS));
    }

    #[test]
    fn a_wait_without_end_is_bounded_once_the_peer_has_gone_or_tells_its_count() {
        let (mut rnr, mut timers) = (Rnr::default(), Timers::default());
        rnr.set_wait(9 * MS);
        assert_eq!(rnr.set_retry(RETRY_FOR_EVER), None);
        assert_eq!(until(&mut rnr, &mut timers, 1, None, MS), None);
        assert_eq!(until(&mut rnr, &mut timers, 1, None, 2 * MS), None);
        rnr.follow(Some(1), true, || MS, &mut timers);
        assert_eq!(timers.next(), Some(10 * MS));
        assert_eq!(until(&mut rnr, &mut timers, 1, Some(2), MS), Some(3 * MS));
    }

    #[test]
    fn once_nothing_waits_there_is_no_deadline() {
        let (mut rnr, mut timers) = (Rnr::default(), Timers::default());
        rnr.set_wait(9 * MS);
        rnr.follow(Some(1), false, || MS, &mut timers);
        assert!(timers.is_set(Timer::Rnr));
        rnr.follow(
            None,
            false,
            || unreachable!("no clock is read"),
            &mut timers,
        );
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_count_bounds_the_wait_and_none_at_all_stays_none() {
        let mut rnr = Rnr::default();
        rnr.set_wait(Duration::ZERO);
        assert_eq!(rnr.set_retry(RETRY_FOR_EVER), None);
        assert!(!rnr.waits());
        rnr.set_wait(9 * MS);
        assert_eq!(rnr.set_retry(6), Some(6));
        assert_eq!(rnr.limit, 9 * MS);
        rnr.set_wait(FOR_EVER);
        rnr.shorten();
        assert_eq!(rnr.limit, WAIT_OF_UNRELIABLE);
    }

    #[test]
    fn a_new_stream_knows_nothing_of_the_peer_before() {
        let (mut rnr, mut timers) = (Rnr::default(), Timers::default());
        rnr.set_wait(9 * MS);
        rnr.note_retries_of_peer(3);
        rnr.follow(Some(1), false, || MS, &mut timers);
        let again = rnr.reset();
        assert_eq!((again.retries_of_peer(), again.message), (None, None));
        assert_eq!(again.limit, 9 * MS);
    }
}
