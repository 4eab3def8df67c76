//! The thread that lets nothing wait: while something does it sends that once a tick, and when nothing has for a while
//! it sleeps, or ends.
//!
//! A thread, because nobody else may ever come: a timer that raises signals would interrupt calls of a program that
//! asked for none, and the kernel has no send that waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_os::own_thread::OwnThread;
use weft_os::{lock, process};

use crate::kind::Sockets;

/// Ticks without anything to send after which the thread sleeps, or ends.
const IDLE_TICKS: u32 = 256;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

/// The sockets that the thread looks after.
pub trait Gathering: Sockets + Sync {
    /// Whether nothing will gather in them any more.
    fn is_over(&self) -> bool;

    /// Whether the thread ends where it would sleep, and is started anew when it is needed. Where a program has one
    /// thread alone the kernel finds the files of its calls without counting who uses them.
    fn ends_when_idle(&self) -> bool {
        false
    }

    /// How long one tick is now, where that is shorter than usual: somebody waits for what comes any moment.
    fn haste(&self) -> Option<Duration> {
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
                None => std::thread::sleep(sockets.haste().unwrap_or(self.tick)),
                Some(_) => self.doze(sockets),
            }
            if sockets.anything_waits() {
                sockets.flush_all();
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
        if !sockets.anything_waits() {
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
        while !sockets.anything_waits()
            && !sockets.is_over()
            && self.state.load(Ordering::SeqCst) == ASLEEP
        {
            lock::futex_wait(&self.state, ASLEEP, None);
        }
        self.state.store(AWAKE, Ordering::SeqCst);
    }
}
