//! Writes that the peer answers by Writes: their completion comes with the answer, or a moment later without one.
//!
//! On iWARP a Write is complete as soon as the transport has it. A program that writes, takes the completion and then
//! spins on memory for what its peer writes back (`ib_write_lat`) makes no call meanwhile: the service thread has to be
//! woken for each answer, on a core that spins. A device completes a Write after a microsecond or two, and by then the
//! answer may be here. So where answers have come soon many times, the completion of such a Write is withheld
//! until the peer's next octets, for as long as a thread that waits looks for an event ([`Progress::busy_poll`]): the
//! program polls for it, and who polls serves the stream. As where a peer acknowledges Writes, the poller has the
//! stream to itself meanwhile (see `lease`).
//!
//! A program that posts again before there was an answer does not wait for one, and nothing is withheld from it.
//!
//! [`Progress::busy_poll`]: crate::progress::Progress::busy_poll

use std::time::Duration;

use parking_lot::MutexGuard;

use super::{Inner, Qp};
use crate::cq::Withholds;
use crate::engine::Engine;
use crate::host::EngineHost;
use crate::progress::polling;

/// So many answers have to come soon before a completion is withheld; each one that comes late takes half of them away.
/// Twice as many after each time that one was withheld and the program then posted again without an answer; one less
/// with each answer that came.
const SOON_MIN: u32 = 8;
const SOON_MAX: u32 = 4096;
/// Answers that count at most, beyond those that have to come: a few that are late, one after the other, as where
/// threads have to wait for a core, do not end it.
const SOON_MORE_MAX: u32 = 64;
/// After so many nothing is withheld until as many answers again have come soon: a program that does not wait for them
/// shows it then.
const WITHHELD_MAX: u32 = 4096;

/// The last Write that the program posted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    /// It was answered, or there is none.
    Answered,
    /// Nothing has come since. The Write before had no answer either, so nobody looked at the clock.
    Posted,
    /// Nothing has come since then.
    PostedAt(Duration),
}

/// What became of the Writes that the program posted one at a time.
#[derive(Debug)]
pub(super) struct Answers {
    last: Last,
    /// The one before was answered.
    answered: bool,
    /// Its completion is, or was, withheld.
    withheld: bool,
    /// Until when it is.
    until: Option<Duration>,
    /// Answers that came soon.
    soon: u32,
    /// How many have to.
    needed: u32,
    /// Answers that a completion was withheld for.
    kept: u32,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            last: Last::Answered,
            answered: false,
            withheld: false,
            until: None,
            soon: 0,
            needed: SOON_MIN,
            kept: 0,
        }
    }
}

impl Answers {
    /// Whether the Writes before had no answer, and nothing has come since: another one says nothing new.
    #[inline]
    fn is_one_way(&self) -> bool {
        self.last == Last::Posted
    }

    /// Whether an answer may come.
    #[inline]
    pub(super) fn are_awaited(&self) -> bool {
        self.last != Last::Answered
    }

    /// An answer may come, and it shows whether it comes soon.
    #[inline]
    fn are_timed(&self) -> bool {
        matches!(self.last, Last::PostedAt(_))
    }

    /// A Write is posted, and `most` is how long its completion may be withheld. Whether it is to be.
    fn begin(&mut self, now: impl FnOnce() -> Duration, most: Duration) -> bool {
        if !self.answered {
            self.last = Last::Posted;
            return false;
        }
        let now = now();
        self.last = Last::PostedAt(now);
        self.withheld = self.soon >= self.needed;
        self.until = self.withheld.then_some(now + most);
        self.withheld
    }

    /// The peer's octets are here.
    fn end(&mut self, now: impl FnOnce() -> Duration, most: Duration) {
        self.answered = true;
        let Last::PostedAt(posted) = std::mem::replace(&mut self.last, Last::Answered) else {
            return;
        };
        let in_time = self.until.take().is_some();
        let is_soon = match self.withheld {
            true => in_time,
            // The service thread was woken for it, and so may the peer's have been.
            false => now().saturating_sub(posted) <= 2 * most,
        };
        if !is_soon {
            self.soon /= 2;
            return;
        }
        self.soon = (self.soon + 1).min(self.needed + SOON_MORE_MAX);
        if self.withheld {
            self.needed = (self.needed - 1).max(SOON_MIN);
            self.kept += 1;
        }
        if self.kept >= WITHHELD_MAX {
            self.start_over();
        }
    }

    /// The program goes on without an answer.
    fn end_in_vain(&mut self) {
        self.last = Last::Answered;
        self.answered = false;
        self.until = None;
        self.start_over();
        if std::mem::take(&mut self.withheld) {
            self.needed = (self.needed * 2).min(SOON_MAX);
        }
    }

    /// Nothing is withheld before enough answers have come soon again.
    fn start_over(&mut self) {
        self.soon = 0;
        self.kept = 0;
    }

    /// Whether a completion is withheld until some time.
    pub(super) fn are_bounded(&self) -> bool {
        self.until.is_some()
    }

    /// Whether a completion has been withheld for long enough.
    pub(super) fn are_late(&self, now: impl FnOnce() -> Duration) -> bool {
        self.until.is_some_and(|until| until <= now())
    }
}

impl Qp {
    /// The program has posted: what is due leaves, and the pass ends. `writes` says that it may be one Write.
    #[inline]
    pub(super) fn post_locked(
        &self,
        mut guard: MutexGuard<'_, Inner>,
        writes: bool,
        engine: &Engine,
    ) {
        let inner = &mut *guard;
        if (writes && !inner.answers.is_one_way()) || inner.answers.are_timed() {
            self.await_answer(inner, engine);
        }
        self.transmit_locked(guard, engine);
    }

    #[inline(never)]
    fn await_answer(&self, inner: &mut Inner, engine: &Engine) {
        if inner.answers.are_awaited() {
            inner.answers.end_in_vain();
            self.release(inner, engine);
        }
        let most = engine.progress.busy_poll();
        if most.is_zero() || !inner.machine.may_withhold() || self.is_told_of_completions() {
            return;
        }
        let Some(stream) = &inner.stream else {
            return;
        };
        if inner.answers.begin(|| engine.now(), most) {
            inner.machine.withhold();
            self.send_cq.note_withheld();
            inner.leased.look_later(engine, stream.token);
        }
    }

    /// Whether the program has asked for an event, by this thread or for this queue: it waits for that, and not by
    /// polling.
    fn is_told_of_completions(&self) -> bool {
        polling::is_armed() || self.send_cq.is_armed()
    }

    /// A completion that is withheld is the program's now.
    pub(super) fn release(&self, inner: &mut Inner, engine: &Engine) {
        if inner.machine.withholds() {
            let mut host = EngineHost::begin(engine, &mut inner.results, self.srq.as_ref());
            inner.machine.release_withheld(&mut host);
        }
    }

    /// Whether a completion has been withheld for long enough.
    #[inline]
    pub(super) fn is_answer_late(&self, inner: &Inner) -> bool {
        inner.answers.are_bounded() && inner.answers.are_late(|| self.pd.engine().now())
    }

    /// Locks the queue pair. A completion that was withheld for long enough is the program's before that.
    pub(super) fn lock_behind_answer(&self, now: Duration) -> MutexGuard<'_, Inner> {
        let guard = self.inner.lock();
        if !guard.answers.are_late(|| now) {
            return guard;
        }
        self.serve_locked(guard, false);
        self.inner.lock()
    }

    /// After octets were looked for: where some have come, or did not in time, the completion is the program's.
    #[inline]
    pub(super) fn follow_answer(&self, inner: &mut Inner, received: bool, engine: &Engine) {
        if inner.answers.are_awaited() {
            self.follow_awaited(inner, received, engine);
        }
    }

    #[inline(never)]
    fn follow_awaited(&self, inner: &mut Inner, received: bool, engine: &Engine) {
        if received {
            let most = engine.progress.busy_poll();
            inner.answers.end(|| engine.now(), most);
        } else if inner.answers.are_late(|| engine.now()) {
            inner.answers.until = None;
        } else {
            return;
        }
        self.release(inner, engine);
    }
}

impl Withholds for Qp {
    fn end_withholding(&self) {
        let engine = self.pd.engine();
        let mut guard = self.inner.lock();
        let inner = &mut *guard;
        if inner.machine.withholds() {
            inner.answers.until = None;
            self.release(inner, engine);
            self.finish(guard, None, engine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);
    const SOON: Duration = Duration::from_micros(40);
    const LATE: Duration = Duration::from_millis(1);

    /// One Write that is answered after so long; whether its completion was withheld.
    fn answer(answers: &mut Answers, took: Duration) -> bool {
        let now = Duration::from_secs(1);
        let withheld = answers.begin(|| now, MOST);
        assert_eq!(answers.are_late(|| now + MOST), withheld);
        if answers.are_late(|| now + took) {
            answers.until = None;
        }
        answers.end(|| now + took, MOST);
        assert!(!answers.are_awaited());
        withheld
    }

    /// Answers that come soon, until one is withheld for; how many there were.
    fn learn(answers: &mut Answers) -> u32 {
        (0..)
            .take_while(|_| !answer(answers, SOON))
            .count()
            .try_into()
            .expect("some")
    }

    #[test]
    fn what_is_answered_soon_many_times_is_withheld() {
        let mut answers = Answers::default();
        assert_eq!(learn(&mut answers), SOON_MIN + 1, "the first is not timed");
        assert!((0..100).all(|_| answer(&mut answers, SOON)));
        assert!(answer(&mut answers, LATE), "one is late by itself");
        assert!(answer(&mut answers, SOON));
        let late = (0..100).take_while(|_| answer(&mut answers, LATE)).count();
        assert_eq!(late, 3, "of 37 that counted 18, 9 and 4 are left");
    }

    #[test]
    fn answers_that_come_late_are_not_waited_for() {
        let mut answers = Answers::default();
        assert!((0..1000).all(|_| !answer(&mut answers, LATE)));
        for _ in 0..100 {
            assert!((1..SOON_MIN / 2).all(|_| !answer(&mut answers, SOON)));
            assert!(!answer(&mut answers, LATE));
        }
    }

    #[test]
    fn a_program_that_goes_on_without_an_answer_is_not_made_to_wait_for_one() {
        let mut answers = Answers::default();
        for _ in 0..1000 {
            assert!(!answers.begin(|| unreachable!("nobody looks at the clock"), MOST));
            assert!(answers.is_one_way());
        }
        let mut needed = SOON_MIN;
        for _ in 0..20 {
            answers.end(|| SOON, MOST);
            assert_eq!(learn(&mut answers), needed);
            // With the answer that ended it one less is needed.
            needed = (needed - 1).max(SOON_MIN);
            assert!(answers.begin(|| LATE, MOST));
            answers.end_in_vain();
            assert!(!answers.are_late(|| Duration::MAX));
            needed = (2 * needed).min(SOON_MAX);
        }
        assert!(needed > 100 * SOON_MIN);
    }

    #[test]
    fn where_answers_come_it_needs_fewer_again_and_asks_now_and_then() {
        let mut answers = Answers {
            needed: SOON_MAX,
            ..Answers::default()
        };
        learn(&mut answers);
        let in_a_row = (0..).take_while(|_| answer(&mut answers, SOON)).count();
        assert_eq!(in_a_row as u32 + 1, WITHHELD_MAX);
        assert_eq!(answers.needed, SOON_MIN);
        assert_eq!(learn(&mut answers) + 1, SOON_MIN, "it asks, and goes on");
    }
}
