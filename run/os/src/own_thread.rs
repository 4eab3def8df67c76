//! A thread of Weft's own in the program's process, and whether it is gone.
//!
//! A program that confines itself (seccomp) may forbid every call that such a thread makes, from its very first on. So
//! whoever ends one has to know of a thread that has been started and has not begun yet, too.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::{descriptors, process, sched, stack};

/// How long a thread that has begun is waited for: the caller may hold what it needs, as in a signal handler.
const ENDS_WITHIN: Duration = Duration::from_millis(100);
/// How long one that has not begun is waited for: the machine's processors may be taken by others.
const BEGINS_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// In the place of a thread's number: none was started, or it could not be.
const NONE: i32 = 0;
/// One was started and has not begun.
const STARTING: i32 = -1;

/// The thread, if there is one: in a forked child there is none.
#[derive(Debug, Default)]
pub struct OwnThread {
    /// The process that it was started in.
    process: AtomicU32,
    /// Its number in the kernel, [`NONE`] or [`STARTING`].
    number: AtomicI32,
}

impl OwnThread {
    /// No thread yet.
    pub const fn new() -> OwnThread {
        OwnThread {
            process: AtomicU32::new(0),
            number: AtomicI32::new(NONE),
        }
    }

    /// Starts the thread with all signals blocked and a stack of so many octets beside what the C library takes of it;
    /// it sleeps as long as it says and runs in short slices. False where it cannot be had.
    pub fn start(
        &'static self,
        name: &str,
        stack_octets: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> bool {
        descriptors::prepare();
        self.number.store(STARTING, Ordering::Relaxed);
        self.process.store(process::id(), Ordering::Release);
        let started = sched::without_signals(|| {
            std::thread::Builder::new()
                .name(name.into())
                .stack_size(stack::octets_with(stack_octets))
                .spawn(move || {
                    self.number.store(sched::thread_number(), Ordering::Release);
                    sched::sharpen_timers();
                    sched::prefer_short_slices(100_000);
                    run();
                })
        });
        if started.is_err() {
            self.number.store(NONE, Ordering::Release);
        }
        started.is_ok()
    }

    /// Waits until the thread, which has been told to end, makes no call any more; `wake` is called between two looks.
    /// Not for ever: whoever waits may hold what the thread needs.
    pub fn await_end(&self, wake: impl Fn()) {
        let started = Instant::now();
        let mut begun = None;
        while !self.is_gone() {
            let (since, limit) = match self.number.load(Ordering::Acquire) {
                STARTING => (started, BEGINS_WITHIN),
                _ => (*begun.get_or_insert_with(Instant::now), ENDS_WITHIN),
            };
            if since.elapsed() >= limit {
                return;
            }
            wake();
            sched::pause(LOOK_EVERY);
        }
    }

    /// Whether this process has no such thread: none was started, or it has ended.
    fn is_gone(&self) -> bool {
        if self.process.load(Ordering::Acquire) != process::id() {
            return true;
        }
        match self.number.load(Ordering::Acquire) {
            NONE => true,
            STARTING => false,
            number => !sched::is_thread(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::tests::in_a_child;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn who_ends_it_waits_until_it_is_gone() {
        static THREAD: OwnThread = OwnThread::new();
        static IS_OVER: AtomicBool = AtomicBool::new(false);
        process::watch();
        THREAD.await_end(|| panic!("there is none"));
        let run = || {
            while !IS_OVER.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        assert!(THREAD.start("weft-test", 128 << 10, run));
        assert!(!THREAD.is_gone());
        assert_eq!(in_a_child(|| THREAD.is_gone()), 0, "a child has none");
        THREAD.await_end(|| IS_OVER.store(true, Ordering::Release));
        assert!(THREAD.is_gone());
    }

    #[test]
    fn one_that_has_not_begun_is_not_gone() {
        process::watch();
        let thread = OwnThread {
            process: AtomicU32::new(process::id()),
            number: AtomicI32::new(STARTING),
        };
        let looks = AtomicU32::new(0);
        let begun = Instant::now();
        thread.await_end(|| {
            looks.fetch_add(1, Ordering::Relaxed);
            // It begins later than a thread that has begun is waited for, and has ended: nobody has this number.
            if begun.elapsed() > 3 * ENDS_WITHIN / 2 {
                thread.number.store(i32::MAX, Ordering::Release);
            }
        });
        assert!(thread.is_gone() && looks.load(Ordering::Relaxed) > 1);
        assert!(begun.elapsed() > ENDS_WITHIN);
    }

    #[test]
    fn nobody_waits_for_ever() {
        process::watch();
        let own = sched::thread_number();
        for number in [STARTING, own] {
            let thread = OwnThread {
                process: AtomicU32::new(process::id()),
                number: AtomicI32::new(number),
            };
            thread.await_end(|| ());
            assert!(!thread.is_gone());
        }
    }
}
