//! Who sleeps where, and who wakes whom: the part of decision 0002 that threads meet on.
//!
//! Three kinds of thread meet here. The *service thread* sleeps in the epoll set while the program does not serve
//! itself ([`Mode::Served`]), and outside of it, parked, while it does ([`Mode::Watched`]). A *lead* is a program
//! thread that sleeps in the set while it waits for an event. Others come by: they poll, post, add timers, and wake
//! whoever has to look up.
//!
//! Two sleepers in one set share one waker, and whoever is woken clears it. The rule that follows: **who clears the
//! waker sets it again if the other may sleep in the set too.** Each "if" below reads a flag that the other side writes
//! before it reads one of ours; all of these are sequentially consistent, so that at least one of the two sees the
//! other.
//!
//! The sockets, timers and queue pairs are behind [`Wake`] and [`Place`]. The tests in `tests/loom` put a model
//! checker's threads and atomics in place of the real ones and run this very file.

use std::time::Duration;

use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Ticks that messages buy at most.
const CREDIT_TICKS_MAX: u64 = 8;

/// Who watches the epoll set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Mode {
    /// The service thread.
    Served = 0,
    /// The program's threads; the service thread looks in every tick.
    Watched = 1,
}

/// What sleeping threads are woken by.
pub(crate) trait Wake {
    /// Sets the waker: whoever sleeps in the set, or comes to, looks up.
    fn set_waker(&self);
    /// Clears the waker.
    fn clear_waker(&self);
    /// Ends the service thread's sleep outside of the set, or its next one.
    fn unpark(&self);
}

/// What they sleep on, and what may keep them from it.
pub(crate) trait Place {
    /// Why a wait ended early.
    type Error;
    /// What wakes them.
    type Wake: Wake;

    /// What wakes them.
    fn wake(&self) -> &Self::Wake;
    /// Serves what is ready in the set, waiting at most `timeout` for it (`None`: for as long as
    /// it takes). Says whether the waker was set.
    fn sweep(&self, timeout: Option<Duration>) -> Result<bool, Self::Error>;
    /// The service thread sleeps outside of the set, until it is unparked or the time is over.
    fn park(&self, timeout: Option<Duration>);
    /// Time until the next timer is due.
    fn until_timer(&self) -> Option<Duration>;
    /// Whether posts wait to be sent.
    fn has_deferred(&self) -> bool;
    /// What the program's polls came to.
    fn polled(&self) -> Polled;
    /// Told by the service thread when a round begins.
    fn begins(&self, mode: Mode);
    /// How long the service thread lets a program that serves itself alone.
    fn tick(&self) -> Duration;
}

/// Counts of the program's polls of completion queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// They served the connections, and found nothing.
    pub(crate) empty: u64,
    /// Messages they took, of threads that do not wait to be woken for them.
    pub(crate) messages: u64,
}

/// Whose turn it is.
#[derive(Debug)]
pub(crate) struct Wakeups {
    mode: AtomicU32,
    /// A lead exists.
    led: AtomicBool,
    /// The service thread is in the set, or about to be.
    in_set: AtomicBool,
    /// The service thread sleeps without a tick, because a lead waits.
    standby: AtomicBool,
    /// Grows whenever the program shows that it serves itself.
    polling_hints: AtomicU64,
    /// Nobody has swept the set in this tick.
    due: AtomicBool,
}

/// What can be seen of a program that serves itself.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    polling_hints: u64,
    polled: Polled,
}

impl Seen {
    /// Whether the program showed in the meantime that it serves itself.
    fn is_alive_since(&self, before: &Seen) -> bool {
        (self.polling_hints, self.polled.empty) != (before.polling_hints, before.polled.empty)
    }
}

/// What the service thread remembers from tick to tick.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    seen: Seen,
    /// So many ticks without an empty poll the program still has.
    credit: u64,
}

impl Memory {
    /// The program works off the messages that it takes, and its queue may never be empty meanwhile: each two of them
    /// buy a tick. One alone buys none, as it may be followed by a wait that spins on memory.
    fn earn(&mut self, messages: u64) {
        self.credit = (self.credit + messages / 2).min(CREDIT_TICKS_MAX);
    }

    fn spend(&mut self) -> bool {
        let has = self.credit > 0;
        self.credit -= u64::from(has);
        has
    }
}

impl Wakeups {
    pub(crate) fn new() -> Wakeups {
        Wakeups {
            mode: AtomicU32::new(Mode::Served as u32),
            led: AtomicBool::new(false),
            in_set: AtomicBool::new(false),
            standby: AtomicBool::new(false),
            polling_hints: AtomicU64::new(0),
            due: AtomicBool::new(false),
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        match self.mode.load(Ordering::SeqCst) {
            0 => Mode::Served,
            _ => Mode::Watched,
        }
    }

    fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u32, Ordering::SeqCst);
    }

    // --- whoever comes by

    /// The program shows that it serves itself: the service thread leaves the set and looks in
    /// every tick.
    pub(crate) fn note_polling(&self, wake: &impl Wake) {
        self.polling_hints.fetch_add(1, Ordering::Relaxed);
        if self.mode() == Mode::Served {
            self.set_mode(Mode::Watched);
            wake.set_waker();
        }
    }

    /// Makes the service thread look at its timers again, wherever it sleeps.
    pub(crate) fn wake_service(&self, wake: &impl Wake) {
        match self.mode() {
            Mode::Served => wake.set_waker(),
            Mode::Watched => wake.unpark(),
        }
    }

    /// Posts wait to be sent, and were counted: a service thread that would sleep over them is
    /// woken. It looks at the count after it goes to standby or back to the set: either it sees
    /// these, or it is seen here.
    pub(crate) fn deferred(&self, wake: &impl Wake) {
        if self.standby.load(Ordering::SeqCst) || self.mode() == Mode::Served {
            self.wake_service(wake);
        }
    }

    /// A poller swept the set.
    pub(crate) fn swept(&self) {
        if self.is_due() {
            self.due.store(false, Ordering::Relaxed);
        }
    }

    /// A poller slept in the set for a moment and was woken. The waker would be set for its next sleep, too, where
    /// nobody else is there who clears it.
    pub(crate) fn napped(&self, wake: &impl Wake) {
        wake.clear_waker();
        if self.in_set.load(Ordering::SeqCst) || self.led.load(Ordering::SeqCst) {
            wake.set_waker();
        }
    }

    /// Whether a poller that is behind with its messages should sweep the set nevertheless: other connections may have
    /// something that cannot wait. If it does not, the service thread does at the end of the tick.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(Ordering::Relaxed)
    }

    // --- the lead

    /// Makes the calling thread the lead, if there is none.
    pub(crate) fn lead(&self, wake: &impl Wake) -> bool {
        let won = self
            .led
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed);
        if won.is_ok() {
            self.note_polling(wake);
        }
        won.is_ok()
    }

    /// The lead waits for something to serve, and serves it.
    pub(crate) fn lead_once<P: Place>(&self, place: &P) -> Result<(), P::Error> {
        if place.sweep(None)? {
            place.wake().clear_waker();
            // It may have been meant for the service thread, which sleeps in the set until it is
            // woken, and would not see to timers that are added meanwhile.
            if self.in_set.load(Ordering::SeqCst) {
                place.wake().set_waker();
                crate::sync::yield_now();
            }
        }
        self.polling_hints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The lead leaves: if the service thread relied on it, that has to take over.
    pub(crate) fn leave(&self, wake: &impl Wake) {
        self.polling_hints.fetch_add(1, Ordering::Relaxed);
        self.led.store(false, Ordering::SeqCst);
        if self.standby.load(Ordering::SeqCst) {
            self.wake_service(wake);
        }
    }

    // --- the service thread

    /// One round: asleep in the set, or one look at a program that serves itself. The caller then
    /// sends what was deferred and runs the timers that are due.
    pub(crate) fn serve(&self, place: &impl Place, memory: &mut Memory) {
        // Before the mode is looked at: a lead that takes a wake-up after it changed the mode sees
        // this thread here, or this thread sees the mode.
        self.in_set.store(true, Ordering::SeqCst);
        let mode = self.mode();
        place.begins(mode);
        match mode {
            Mode::Served => {
                // Timers are looked at from in here: who adds one later wakes the set, and who
                // takes that wake-up sees this thread.
                let woken = place.sweep(place.until_timer()).unwrap_or(false);
                self.in_set.store(false, Ordering::SeqCst);
                if woken {
                    place.wake().clear_waker();
                    // A lead that came meanwhile may sleep in the set, and what was just taken
                    // may have been meant for it. One that has not changed the mode yet is going
                    // to set the waker itself.
                    if self.led.load(Ordering::SeqCst) && self.mode() == Mode::Watched {
                        place.wake().set_waker();
                    }
                }
            }
            Mode::Watched => {
                self.in_set.store(false, Ordering::SeqCst);
                self.look_for_work(place, memory);
            }
        }
    }

    fn look(&self, place: &impl Place) -> Seen {
        Seen {
            polling_hints: self.polling_hints.load(Ordering::Relaxed),
            polled: place.polled(),
        }
    }

    /// One tick of looking in.
    fn look_for_work(&self, place: &impl Place, memory: &mut Memory) {
        let before = self.look(place);
        let leisurely = self.led.load(Ordering::SeqCst) && !before.is_alive_since(&memory.seen);
        memory.seen = before;
        if leisurely {
            self.stand_by(place);
            return;
        }
        self.due.store(true, Ordering::Relaxed);
        let tick = place.tick();
        place.park(Some(place.until_timer().map_or(tick, |t| t.min(tick))));
        if self.led.load(Ordering::SeqCst) {
            return;
        }
        let now = self.look(place);
        memory.earn(now.polled.messages - before.polled.messages);
        if !now.is_alive_since(&before) && !memory.spend() {
            self.go_back_to_the_set();
        } else if self.is_due() {
            // It polls, or is about to, but has not looked at every connection.
            let _ = place.sweep(Some(Duration::ZERO));
        }
    }

    /// The lead waits in the set and serves everything; it wakes this thread when it leaves.
    fn stand_by(&self, place: &impl Place) {
        self.standby.store(true, Ordering::SeqCst);
        if self.led.load(Ordering::SeqCst) && !place.has_deferred() {
            place.park(place.until_timer());
        }
        self.standby.store(false, Ordering::SeqCst);
    }

    fn go_back_to_the_set(&self) {
        self.set_mode(Mode::Served);
        // A lead that came since then thinks that this thread has left the set.
        if self.led.load(Ordering::SeqCst) {
            self.set_mode(Mode::Watched);
        }
    }
}
