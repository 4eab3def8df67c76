//! An engine of flags: what it serves is counted, and what follows from that is the model's.

use std::cell::Cell;
use std::time::Duration;

use crate::deferred::Deferred;
use crate::error::Error;
use crate::sync::{AtomicBool, Mutex, Ordering, Watched};
use crate::wakeups::{Memory, Mode, Place, Polled, Wake, Wakeups};

/// What an engine does for the program when something happens.
type Then = Box<dyn Fn(&Engine, Happened) + Send + Sync>;

/// What happens in an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Happened {
    /// Octets came in.
    Arrival,
    /// A timer was due.
    Timer,
    /// A post that had waited was sent.
    Sent,
}

pub(crate) struct Engine {
    wakeups: Wakeups,
    bells: Bells,
    timers: Mutex<usize>,
    deferred: Deferred<()>,
    then: Then,
    over: AtomicBool,
}

/// The epoll set and the service thread's bed.
pub(crate) struct Bells {
    set: Watched<Ready>,
    parked: Watched<bool>,
}

#[derive(Default)]
struct Ready {
    waker: bool,
    arrivals: usize,
}

loom::thread_local! {
    static LEADING: Cell<bool> = Cell::new(false);
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    /// No model forks.
    pub(crate) fn is_foreign(&self) -> bool {
        false
    }

    pub(crate) fn new(then: impl Fn(&Engine, Happened) + Send + Sync + 'static) -> Engine {
        Engine {
            wakeups: Wakeups::new(),
            bells: Bells {
                set: Watched::new(Ready::default()),
                parked: Watched::new(false),
            },
            timers: Mutex::new(0),
            deferred: Deferred::new(),
            then: Box::new(then),
            over: AtomicBool::new(false),
        }
    }

    // --- what the channel asks of an engine

    pub(crate) fn lead(&self) -> Option<Lead<'_>> {
        self.wakeups.lead(&self.bells).then(|| {
            LEADING.with(|leading| leading.set(true));
            Lead { engine: self }
        })
    }

    /// No time passes here that anybody goes by.
    pub(crate) fn now(&self) -> Duration {
        Duration::ZERO
    }

    /// Nobody looks before it sleeps.
    pub(crate) fn busy_poll(&self) -> Duration {
        Duration::ZERO
    }

    pub(crate) fn is_lead(&self) -> bool {
        LEADING.with(Cell::get)
    }

    pub(crate) fn wake_lead(&self) {
        self.bells.set_waker();
    }

    pub(crate) fn flush_deferred(&self) -> bool {
        if self.deferred.is_empty() {
            return false;
        }
        self.deferred.drain(|()| (self.then)(self, Happened::Sent));
        true
    }

    // --- what the world and the program do

    /// Octets arrive on some stream.
    pub(crate) fn arrive(&self) {
        self.bells.set.change(|ready| ready.arrivals += 1);
    }

    pub(crate) fn add_timer(&self) {
        *self.timers.lock() += 1;
        self.wakeups.wake_service(&self.bells);
    }

    /// The program polls and finds nothing, often.
    pub(crate) fn note_polling(&self) {
        self.wakeups.note_polling(&self.bells);
    }

    /// The program polls and finds nothing, often, and sweeps the set.
    pub(crate) fn look(&self) {
        self.note_polling();
        let _ = self.sweep(Some(Duration::ZERO));
        self.wakeups.swept();
    }

    /// The program polls in vain while others need its core, and sleeps in the set for a moment.
    pub(crate) fn nap(&self) {
        self.note_polling();
        if self
            .sweep(Some(Duration::from_micros(50)))
            .is_ok_and(|woken| woken)
        {
            self.wakeups.napped(&self.bells);
        }
        self.wakeups.swept();
    }

    /// A post, which waits for others where it may.
    pub(crate) fn post(&self) {
        if self.wakeups.mode() == Mode::Watched {
            self.defer();
        } else {
            (self.then)(self, Happened::Sent);
        }
    }

    /// Something is to be sent with the program's next call.
    pub(crate) fn defer(&self) {
        self.deferred.push(());
        self.wakeups.deferred(&self.bells);
    }

    // --- the service thread

    pub(crate) fn service_loop(&self) {
        let mut memory = Memory::default();
        while !self.over.load(Ordering::Acquire) {
            self.wakeups.serve(self, &mut memory);
            self.flush_deferred();
            let due = std::mem::take(&mut *self.timers.lock());
            (0..due).for_each(|_| (self.then)(self, Happened::Timer));
        }
    }

    /// The model is over: its service thread ends, wherever it sleeps.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.bells.set_waker();
        self.bells.unpark();
    }
}

impl Wake for Bells {
    fn set_waker(&self) {
        self.set.change(|ready| ready.waker = true);
    }

    fn clear_waker(&self) {
        self.set.change(|ready| ready.waker = false);
    }

    fn unpark(&self) {
        self.parked.change(|token| *token = true);
    }
}

impl Place for Engine {
    type Error = Error;
    type Wake = Bells;

    fn wake(&self) -> &Bells {
        &self.bells
    }

    /// Level-triggered: a sleeper that runs when somebody else has cleared the waker sleeps on. Time is over at once.
    fn sweep(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        let (woken, arrivals) = self.bells.set.wait(|ready| {
            let any = ready.waker || ready.arrivals > 0 || timeout.is_some();
            any.then(|| (ready.waker, std::mem::take(&mut ready.arrivals)))
        });
        (0..arrivals).for_each(|_| (self.then)(self, Happened::Arrival));
        Ok(woken)
    }

    fn park(&self, timeout: Option<Duration>) {
        self.bells
            .parked
            .wait(|token| (std::mem::take(token) || timeout.is_some()).then_some(()));
    }

    fn until_timer(&self) -> Option<Duration> {
        (*self.timers.lock() > 0).then_some(Duration::ZERO)
    }

    fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    fn polled(&self) -> Polled {
        Polled::default()
    }

    fn begins(&self, _mode: Mode) {}

    fn tick(&self) -> Duration {
        Duration::from_micros(200)
    }
}

/// A thread that serves everything while it waits.
#[derive(Debug)]
pub(crate) struct Lead<'a> {
    engine: &'a Engine,
}

impl Lead<'_> {
    pub(crate) fn flush_deferred(&self) -> bool {
        self.engine.flush_deferred()
    }

    pub(crate) fn serve_once(&self, _looks_until: Option<Duration>) -> Result<(), Error> {
        self.engine.wakeups.lead_once(self.engine)
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        LEADING.with(|leading| leading.set(false));
        self.engine.wakeups.leave(&self.engine.bells);
    }
}
