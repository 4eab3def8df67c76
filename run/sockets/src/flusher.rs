//! The thread that lets nothing wait: while something does it sends that once a tick, and when nothing has for a while
//! it sleeps, or ends.
//!
//! A thread, because nobody else may ever come: a timer that raises signals would interrupt calls of a program that
//! asked for none, and the kernel has no send that waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_os::own_thread::OwnThread;
use weft_os::{lock, process};

/// Ticks without anything to send after which the thread sleeps, or ends.
const IDLE_TICKS: u32 = 256;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
/// It sleeps one tick out.
const TICKING: u32 = 2;

/// The sockets that the thread looks after.
pub trait Gathering: Sync {
    /// Whether anything waits.
    fn waits(&self) -> bool;

    /// Sends what waits, as far as it goes at once, and may leave what can wait for the next tick.
    fn send_waiting(&self);

    /// Whether nothing will gather in them any more.
    fn is_over(&self) -> bool;

    /// Whether the thread ends where it would sleep, and is started anew when it is needed. Where a program has one
    /// thread alone the kernel finds the files of its calls without counting who uses them.
    fn ends_when_idle(&self) -> bool {
        false
    }

    /// How long the next tick is, where it is not as long as usual: shorter, as somebody waits for what comes any
    /// moment, or longer, as what waits leaves by itself. Who has the thread know of haste amid a tick calls
    /// [`Flusher::hasten`].
    fn next_tick(&self) -> Option<Duration> {
        None
    }

    /// How long nobody has to look again, where something waits; nothing for one tick.
    fn pause(&self) -> Option<Duration> {
        None
    }
}

/// The thread's side that others see.
#[derive(Debug)]
pub struct Flusher {
    tick: Duration,
    /// The process in which the thread runs, or was tried to be started; 0 for none.
    process: AtomicU32,
    /// The process in which it does run.
    running: AtomicU32,
    state: AtomicU32,
    thread: OwnThread,
}

impl Flusher {
    /// A thread that is not there yet.
    pub fn new(tick: Duration) -> Flusher {
        Flusher {
            tick,
            process: AtomicU32::new(0),
            running: AtomicU32::new(0),
            state: AtomicU32::new(AWAKE),
            thread: OwnThread::new(),
        }
    }

    /// How long a tick is.
    pub fn tick(&self) -> Duration {
        self.tick
    }

    /// Whether the thread runs in this process.
    #[inline]
    pub fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) == process::id()
    }

    /// Starts the thread if this process has none. Where it cannot be had, nothing may wait for it.
    pub fn ensure(&'static self, sockets: &'static impl Gathering) {
        let own = process::id();
        // What waits was made to before this is looked at: a thread that ends looks in the other order.
        let tried = self.process.load(Ordering::SeqCst);
        if tried == own {
            return;
        }
        let claim = self
            .process
            .compare_exchange(tried, own, Ordering::AcqRel, Ordering::Relaxed);
        if claim.is_err() {
            return;
        }
        // One that has ended may not be gone yet, and a program that confines itself is to know of both.
        self.thread.await_end(|| ());
        self.state.store(AWAKE, Ordering::Relaxed);
        let run = move || self.run(sockets);
        if self.thread.start("weft-flush", 128 * 1024, run) {
            self.running.store(own, Ordering::Release);
        }
    }

    /// Something waits.
    #[inline]
    pub fn wake(&self) {
        if self.state.load(Ordering::SeqCst) == ASLEEP {
            self.state.store(AWAKE, Ordering::SeqCst);
            lock::futex_wake(&self.state, 1);
        }
    }

    /// Something waits that is not to wait for a tick: [`Gathering::next_tick`] is asked anew.
    pub fn hasten(&self) {
        if self.state.swap(AWAKE, Ordering::SeqCst) != AWAKE {
            lock::futex_wake(&self.state, 1);
        }
    }

    /// Waits until the thread, which has been told to, is gone: a program that confines itself may not let it go
    /// afterwards. Not for ever: in a signal handler the program may hold what the thread waits for.
    pub fn end(&self) {
        self.thread.await_end(|| {
            self.state.store(AWAKE, Ordering::SeqCst);
            lock::futex_wake(&self.state, 1);
        });
        self.running.store(0, Ordering::Release);
    }

    fn run(&self, sockets: &impl Gathering) {
        let mut idle = 0;
        loop {
            if sockets.is_over() {
                return;
            }
            match sockets.pause().filter(|pause| *pause > self.tick) {
                None => self.sleep_a_tick(sockets),
                Some(_) => self.doze(sockets),
            }
            if sockets.waits() {
                sockets.send_waiting();
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < IDLE_TICKS {
                continue;
            }
            idle = 0;
            match sockets.ends_when_idle() {
                true if self.retire(sockets) => return,
                true => {}
                false => self.sleep(sockets),
            }
        }
    }

    /// The thread is about to end, as nothing waits; false where something does by now, and it is to go on.
    fn retire(&self, sockets: &impl Gathering) -> bool {
        let own = process::id();
        self.running.store(0, Ordering::Release);
        self.process.store(0, Ordering::SeqCst);
        if !sockets.waits() {
            return true;
        }
        // Who made something wait before it saw that the thread ends has left it to this one.
        let goes_on = self
            .process
            .compare_exchange(0, own, Ordering::SeqCst, Ordering::Relaxed)
            .is_ok();
        if goes_on {
            self.running.store(own, Ordering::Release);
        }
        !goes_on
    }

    /// Sleeps for one tick.
    fn sleep_a_tick(&self, sockets: &impl Gathering) {
        self.state.store(TICKING, Ordering::SeqCst);
        // Who hastened before it saw the state did not wake anybody.
        let tick = sockets.next_tick().unwrap_or(self.tick);
        lock::futex_wait(&self.state, TICKING, Some(tick.as_nanos() as u64));
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    /// Sleeps for longer than a tick, unless somebody wakes it.
    fn doze(&self, sockets: &impl Gathering) {
        self.state.store(ASLEEP, Ordering::SeqCst);
        // Who made something wait before it saw the state did not wake anybody.
        if let Some(pause) = sockets.pause().filter(|pause| *pause > self.tick) {
            lock::futex_wait(&self.state, ASLEEP, Some(pause.as_nanos() as u64));
        }
        self.state.store(AWAKE, Ordering::SeqCst);
    }

    fn sleep(&self, sockets: &impl Gathering) {
        self.state.store(ASLEEP, Ordering::SeqCst);
        // Who made something wait before it saw the state did not wake anybody.
        while !sockets.waits() && !sockets.is_over() && self.state.load(Ordering::SeqCst) == ASLEEP
        {
            lock::futex_wait(&self.state, ASLEEP, None);
        }
        self.state.store(AWAKE, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    const SOON: Duration = Duration::from_secs(30);

    /// Of one socket, in which something may wait.
    #[derive(Default)]
    struct One {
        waits: AtomicBool,
        is_hasty: AtomicBool,
        is_over: AtomicBool,
        looks: AtomicU32,
    }

    impl Gathering for One {
        fn waits(&self) -> bool {
            self.looks.fetch_add(1, Ordering::SeqCst);
            self.waits.load(Ordering::SeqCst)
        }

        fn send_waiting(&self) {
            self.waits.store(false, Ordering::SeqCst);
        }

        fn is_over(&self) -> bool {
            self.is_over.load(Ordering::SeqCst)
        }

        fn next_tick(&self) -> Option<Duration> {
            let is_hasty = self.is_hasty.load(Ordering::SeqCst);
            is_hasty.then_some(Duration::from_micros(100))
        }
    }

    fn running(tick: Duration) -> (&'static Flusher, &'static One) {
        assert!(process::watch());
        let flusher: &Flusher = Box::leak(Box::new(Flusher::new(tick)));
        let one: &One = Box::leak(Box::default());
        flusher.ensure(one);
        (flusher, one)
    }

    fn comes(condition: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        while !condition() && begun.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(1));
        }
        condition()
    }

    #[test]
    fn what_is_not_to_wait_for_a_tick_does_not() {
        let (flusher, one) = running(SOON * 10);
        assert!(comes(|| flusher.state.load(Ordering::SeqCst) == TICKING));
        one.waits.store(true, Ordering::SeqCst);
        one.is_hasty.store(true, Ordering::SeqCst);
        flusher.hasten();
        assert!(comes(|| !one.waits.load(Ordering::SeqCst)));
        let looks = one.looks.load(Ordering::SeqCst);
        assert!(
            comes(|| one.looks.load(Ordering::SeqCst) > looks + 10),
            "nor does it while there is haste"
        );
        one.is_over.store(true, Ordering::SeqCst);
        flusher.end();
    }

    #[test]
    fn what_comes_while_the_thread_sleeps_wakes_it() {
        let (flusher, one) = running(Duration::from_micros(100));
        for _ in 0..3 {
            assert!(comes(|| flusher.state.load(Ordering::SeqCst) == ASLEEP));
            one.waits.store(true, Ordering::SeqCst);
            flusher.wake();
            assert!(comes(|| !one.waits.load(Ordering::SeqCst)));
        }
        one.is_over.store(true, Ordering::SeqCst);
        flusher.end();
    }
}
