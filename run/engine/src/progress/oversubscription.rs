//! Whether the threads that poll in vain keep each other from the cores.
//!
//! A program may have more polling threads than it has cores: workers with a completion queue each, of which one has
//! something to do. The others spin for whole slices of the scheduler, milliseconds, while that one, or who serves the
//! other end, waits for a core. So a thread that polls in vain sleeps for a moment now and then (`Progress::nap`), if
//! it lost its core more than once lately and other threads of its process poll in vain as well. A thread that polls
//! alone does not sleep: who wants its core then is another program, to which it gives way as long as that gives it
//! back soon ([`giving_way`]).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weft_os::busy_poll::giving_way;
use weft_os::sched;

use super::polling;

/// Polls in vain in a row between two looks whether to sleep: several times what a message takes on one machine.
const EVERY: u32 = 16;
/// Looks between two questions whether the thread lost its core.
const ASK_EVERY: u32 = 16;
/// A second loss within this time shows that cores are short. A thread that shares its core with other spinners loses
/// it every few milliseconds; one that has a core of its own loses it now and then, to work of the kernel.
const LOSSES_APART_MAX: Duration = Duration::from_millis(40);
/// So many questions without a loss show that cores are no longer short: about a tenth of a second.
const CALM_ASKS_MIN: u32 = 64;

/// The threads of the process that poll in vain.
#[derive(Debug, Default)]
pub(crate) struct Oversubscription {
    /// The last one that looked.
    last: AtomicU32,
}

/// What one thread knows.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    /// Its number; 0 until it was asked for.
    number: u32,
    looks: u32,
    /// Another thread looked since the last question.
    others: bool,
    losses: Losses,
}

/// How a thread's losses of its core came.
#[derive(Clone, Copy, Debug, Default)]
struct Losses {
    /// All that there ever were.
    count: u64,
    last: Option<Instant>,
    /// Questions without a loss until cores are not short.
    left: u32,
}

thread_local! {
    static OWN: Cell<Own> = const {
        Cell::new(Own { number: 0, looks: 0, others: false, losses: Losses { count: 0, last: None, left: 0 } })
    };
}

impl Oversubscription {
    /// The calling thread polled in vain; whether it should sleep for a moment.
    #[inline]
    pub(crate) fn is_in_the_way(&self) -> bool {
        polling::empty_in_a_row().is_multiple_of(EVERY) && self.look_or_give_way()
    }

    fn look_or_give_way(&self) -> bool {
        let sleeps = self.look();
        if !sleeps {
            giving_way::look();
        }
        sleeps
    }

    fn look(&self) -> bool {
        let mut own = OWN.get();
        let sleeps = own.look(&self.last, sched::losses_of_core, Instant::now);
        OWN.set(own);
        sleeps
    }
}

impl Own {
    fn look(
        &mut self,
        last: &AtomicU32,
        losses: impl FnOnce() -> u64,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        if self.number == 0 {
            self.number = sched::thread_number() as u32;
        }
        // Two threads that write at once miss each other, and meet in one of the next looks.
        if last.load(Ordering::Relaxed) != self.number {
            self.others = true;
            last.store(self.number, Ordering::Relaxed);
        }
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(ASK_EVERY) {
            match std::mem::take(&mut self.others) {
                true => self.losses.note(losses(), now()),
                false => self.losses.note_none(),
            }
        }
        self.losses.left > 0
    }
}

impl Losses {
    /// There were `count` up to now.
    fn note(&mut self, count: u64, now: Instant) {
        if count == std::mem::replace(&mut self.count, count) {
            return self.note_none();
        }
        let last = self.last.replace(now);
        if self.left > 0 || last.is_some_and(|last| now - last < LOSSES_APART_MAX) {
            self.left = CALM_ASKS_MIN;
        }
    }

    fn note_none(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One thread of several, on a clock of the test's.
    struct Thread {
        own: Own,
        losses: u64,
        now: Instant,
    }

    impl Thread {
        fn new(number: u32) -> Thread {
            let own = Own {
                number,
                ..Own::default()
            };
            Thread {
                own,
                losses: 0,
                now: Instant::now(),
            }
        }

        /// As many looks as there are to a question; whether it sleeps then.
        fn asks(&mut self, last: &AtomicU32) -> bool {
            self.now += Duration::from_millis(1);
            let (losses, now) = (self.losses, self.now);
            (0..ASK_EVERY).fold(false, |_, _| self.own.look(last, || losses, || now))
        }

        fn loses_its_core_and_asks(&mut self, last: &AtomicU32) -> bool {
            self.losses += 1;
            self.asks(last)
        }
    }

    #[test]
    fn threads_that_keep_losing_their_cores_to_each_other_sleep() {
        let last = AtomicU32::new(0);
        let (mut one, mut other) = (Thread::new(1), Thread::new(2));
        assert!(!one.asks(&last) && !other.asks(&last));
        assert!(!one.loses_its_core_and_asks(&last), "once is no pattern");
        assert!(!other.asks(&last));
        assert!(one.loses_its_core_and_asks(&last));
        assert!(!other.asks(&last), "which lost nothing");
    }

    #[test]
    fn a_thread_that_polls_alone_never_sleeps() {
        let last = AtomicU32::new(0);
        let mut one = Thread::new(1);
        one.asks(&last);
        assert!((0..100).all(|_| !one.loses_its_core_and_asks(&last)));
    }

    #[test]
    fn losses_far_from_each_other_are_the_kernels_own_work() {
        let last = AtomicU32::new(0);
        let (mut one, mut other) = (Thread::new(1), Thread::new(2));
        for _ in 0..100 {
            other.asks(&last);
            assert!(!one.loses_its_core_and_asks(&last));
            one.now += LOSSES_APART_MAX;
        }
    }

    #[test]
    fn who_slept_spins_again_when_the_others_have_gone_or_nothing_is_lost_any_more() {
        for goes in [true, false] {
            let last = AtomicU32::new(0);
            let (mut one, mut other) = (Thread::new(1), Thread::new(2));
            for _ in 0..3 {
                one.loses_its_core_and_asks(&last);
                other.asks(&last);
            }
            let asked = (1..=2 * CALM_ASKS_MIN).find(|_| {
                if !goes {
                    other.asks(&last);
                }
                !one.asks(&last)
            });
            assert_eq!(asked, Some(CALM_ASKS_MIN));
        }
    }
}
