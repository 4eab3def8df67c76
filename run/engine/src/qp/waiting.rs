//! How long a message that finds no receive waits for one.
//!
//! InfiniBand's receiver answers "not ready" and names a time; the sender tries again after it, as often as its RNR
//! retry count says. Here the message is at the receiver already and waits there. A peer that bounds its count tells it
//! (`proto/verbs`, `acknowledged`), and the wait is count times this side's `min_rnr_timer`. Of a peer that tells none
//! the wait is the setting, or without end where the program's own count is 7: programs set the same at both ends.

use std::sync::Weak;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::stream::Stream;
use super::{Inner, Qp};
use crate::engine::Engine;
use crate::pass::Pass;
use crate::srq::AwaitsReceives;

/// How long a message waits for a receive where it may be lost.
const LOST_AFTER: Duration = Duration::from_millis(100);
/// The RNR retry count that means "without end" (InfiniBand 9.7.5.2.8).
const RNR_RETRY_FOR_EVER: u8 = 7;
/// A wait without end.
const FOR_EVER: Duration = Duration::MAX;
/// A retry takes at least this long. The timer names the least time, and devices are slower than its smallest values.
const LEAST_RETRY: Duration = Duration::from_millis(1);

/// The times that `min_rnr_timer` stands for, in units of 10 µs (InfiniBand table 45).
const RNR_TIMER: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// What is waited for, and how long.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Where the peer tells nothing.
    limit: Duration,
    /// What one retry of the peer's takes.
    retry: Duration,
    /// The message that waits, and until when (engine time).
    message: Option<(u64, Duration)>,
}

impl Waiting {
    pub(super) fn new(limit: Duration) -> Waiting {
        Waiting {
            limit,
            retry: LEAST_RETRY,
            message: None,
        }
    }

    pub(super) fn waits(&self) -> bool {
        self.message.is_some()
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.message.is_some_and(|(_, until)| until <= now)
    }

    /// What waits may be lost.
    pub(super) fn lose_soon(&mut self) {
        self.limit = self.limit.min(LOST_AFTER);
    }

    /// `message` waits at `now`, of a peer that bounds its retries or not, and no longer than `most`; gives a time
    /// that is new.
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
        (until != FOR_EVER).then_some(until)
    }
}

impl Qp {
    /// Sets how long a message may wait for a receive; zero ends the connection at once.
    pub fn set_receive_wait(&self, wait: Duration) {
        let mut inner = self.inner.lock();
        inner.waiting.limit = wait;
        inner.machine.set_hold(!wait.is_zero());
    }

    /// Sets the program's RNR retry count: how often its Sends may find no receive at the peer, 7 for without end.
    pub fn set_rnr_retry(&self, count: u8) {
        let setting = self.pd.engine().settings.receive_wait;
        let for_ever = count == RNR_RETRY_FOR_EVER;
        let mut inner = self.inner.lock();
        inner.machine.set_rnr_retries((!for_ever).then_some(count));
        inner.waiting.limit = match for_ever && !setting.is_zero() {
            true => FOR_EVER,
            false => setting,
        };
    }

    /// Sets how long one retry of the peer's takes, as the code of `min_rnr_timer`; of it the lowest five bits count.
    pub fn set_min_rnr_timer(&self, code: u8) {
        let time = Duration::from_micros(10) * RNR_TIMER[usize::from(code & 31)];
        self.inner.lock().waiting.retry = time.max(LEAST_RETRY);
    }

    /// Bounds the wait of a message that found no receive.
    pub(super) fn follow_waiting(&self, inner: &mut Inner, engine: &Engine) {
        let Some(holding) = inner.machine.holding() else {
            inner.waiting.message = None;
            return;
        };
        let Some(stream) = &inner.stream else {
            return;
        };
        let retries = inner.machine.rnr_retries_of_peer();
        // Nobody is there any more who could want it to wait without end.
        let most = match stream.over {
            Some(_) => engine.settings.receive_wait,
            None => FOR_EVER,
        };
        let waiting = &mut inner.waiting;
        if let Some(until) = waiting.follow(holding, retries, most, engine.now()) {
            engine.progress.add_timer(until, stream.token);
        }
        let srq = self.srq.as_ref();
        let me: Weak<dyn AwaitsReceives> = self.me.clone();
        if srq.is_some_and(|srq| srq.remember_waiting(me)) {
            // Receives may have been posted before it was remembered.
            let mut pass = Pass::begin(engine, &mut inner.results, srq);
            inner.machine.let_go(&mut pass);
        }
    }

    /// What was held may have gone on, and may have to be answered. The socket is looked at only if it was left
    /// alone until now: a receiver that is behind posts for each message, and must not pay a system call each time.
    pub(super) fn after_holding(&self, guard: MutexGuard<'_, Inner>, engine: &Engine) {
        let waits = |s: &Stream| !s.interest.reads() && s.over.is_none();
        let left_alone = guard.stream.as_ref().is_some_and(waits);
        if left_alone && !guard.machine.is_full() {
            self.serve_locked(guard, true);
        } else if guard.machine.wants_to_send() {
            self.transmit_locked(guard, engine);
        } else {
            self.finish(guard, None, engine);
        }
    }
}

impl AwaitsReceives for Qp {
    fn on_receives(&self) {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        let mut pass = Pass::begin(engine, &mut inner.results, self.srq.as_ref());
        inner.machine.let_go(&mut pass);
        drop(pass);
        self.after_holding(guard, engine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_peer_that_tells_its_count_shortens_the_wait_and_never_lengthens_it() {
        let mut waiting = Waiting::new(100 * MS);
        waiting.retry = 10 * MS;
        assert_eq!(waiting.follow(1, None, FOR_EVER, 5 * MS), Some(105 * MS));
        assert_eq!(waiting.follow(1, None, FOR_EVER, 6 * MS), None, "known");
        assert_eq!(waiting.follow(1, Some(3), FOR_EVER, 7 * MS), Some(37 * MS));
        assert_eq!(waiting.follow(1, Some(3), FOR_EVER, 8 * MS), None, "known");
        assert!(!waiting.is_over(36 * MS) && waiting.is_over(37 * MS));
        assert_eq!(waiting.follow(2, Some(0), FOR_EVER, 40 * MS), Some(40 * MS));
        assert_eq!(
            waiting.follow(3, Some(255), FOR_EVER, 50 * MS),
            Some(150 * MS)
        );
    }

    #[test]
    fn a_wait_without_end_has_no_timer() {
        let mut waiting = Waiting::new(FOR_EVER);
        assert_eq!(waiting.follow(1, None, FOR_EVER, MS), None);
        assert!(waiting.waits() && !waiting.is_over(1_000_000 * MS));
        assert_eq!(waiting.follow(1, None, 9 * MS, MS), Some(10 * MS));
        assert_eq!(waiting.follow(1, Some(2), FOR_EVER, MS), Some(3 * MS));
    }
}
