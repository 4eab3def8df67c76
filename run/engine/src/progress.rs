//! Who serves the connections (decision 0002).
//!
//! All sockets are in one epoll set. At any time it is watched by at most one of:
//!
//! * the **service thread**, when nobody of the program does: it sleeps in epoll;
//! * a **lead**: a program thread that blocks for an event serves everything while it waits;
//! * **pollers**: program threads that spin on completion queues read the connection that was
//!   active last directly and sweep the set now and then. The service thread then keeps out of
//!   the set and only looks in every tick; a second thread asleep in epoll on the same socket
//!   costs each message a wake-up.
//!
//! A poller is recognised by a run of empty polls. A program that polls only what it knows to be
//! there and spins on memory meanwhile never has one, so the service thread stays awake for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use weft_os::poll::{Epoll, Interest, Ready, Waker};
use weft_os::sched;

use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::qp::Qp;
use crate::stats::Total;
use crate::timers::Timers;
use crate::ud::{UdQp, UdSocket};

/// Empty polls in a row, within [`SPIN_WINDOW`], that make a poller.
const SPIN_POLLS: u32 = 32;
/// The same where the peer is to answer for Writes: many times what an answer takes.
const PATIENT_POLLS: u32 = 1024;
const SPIN_WINDOW: Duration = Duration::from_millis(2);
/// A poller sweeps the whole set on every so many polls; between them it reads the connection
/// that was active last.
const SWEEP_EVERY: u32 = 16;
/// The service thread asks for this scheduler slice, nanoseconds.
const SLICE_NS: u64 = 100_000;

const WAKER: u64 = u64::MAX;

/// Who watches the epoll set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum Mode {
    /// The service thread.
    Served = 0,
    /// The program's threads; the service thread looks in every tick.
    Watched = 1,
}

#[derive(Debug)]
pub(crate) struct Progress {
    epoll: Epoll,
    waker: Waker,
    mode: AtomicU32,
    /// A lead exists.
    led: AtomicBool,
    /// The service thread is in the epoll set, or about to be.
    in_set: AtomicBool,
    /// Grows whenever the program shows that it serves itself.
    signs: AtomicU64,
    /// Polls of completion queues that found nothing.
    empty_polls: AtomicU64,
    /// Polls of completion queues that found something.
    full_polls: AtomicU64,
    endpoints: RwLock<Endpoints>,
    /// What was active last.
    hot: RwLock<Option<Hot>>,
    sweep_always: AtomicBool,
    deferred: Mutex<Vec<Deferred>>,
    deferred_count: AtomicUsize,
    pub(crate) timers: Timers,
    service: OnceLock<Thread>,
    tick: Duration,
}

/// What pollers look at first.
#[derive(Clone, Debug)]
enum Hot {
    Stream(Arc<Qp>),
    Datagrams(Arc<UdSocket>),
}

impl Hot {
    fn is_stream(&self, qp: &Arc<Qp>) -> bool {
        matches!(self, Hot::Stream(hot) if Arc::ptr_eq(hot, qp))
    }
}

/// A queue pair whose posts gather.
#[derive(Clone, Debug)]
pub(crate) enum Deferred {
    /// A connected one.
    Stream(Arc<Qp>),
    /// One that sends datagrams.
    Datagrams(Arc<UdQp>),
}

#[derive(Debug, Default)]
struct Endpoints {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    endpoint: Option<Endpoint>,
}

/// A member's number in the epoll set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Token(u64);

thread_local! {
    static POLLS: Cell<(u32, Option<Instant>)> = const { Cell::new((0, None)) };
    static SWEEP: Cell<u32> = const { Cell::new(0) };
    /// This thread is the lead.
    static LEADING: Cell<bool> = const { Cell::new(false) };
}

impl Progress {
    pub(crate) fn new(tick: Duration) -> Result<Progress, Error> {
        let epoll = Epoll::new()?;
        let waker = Waker::new()?;
        epoll.add(&waker, WAKER, Interest::Read)?;
        Ok(Progress {
            epoll,
            waker,
            mode: AtomicU32::new(Mode::Served as u32),
            led: AtomicBool::new(false),
            in_set: AtomicBool::new(false),
            signs: AtomicU64::new(0),
            empty_polls: AtomicU64::new(0),
            full_polls: AtomicU64::new(0),
            endpoints: RwLock::new(Endpoints::default()),
            hot: RwLock::new(None),
            sweep_always: AtomicBool::new(false),
            deferred: Mutex::new(Vec::new()),
            deferred_count: AtomicUsize::new(0),
            timers: Timers::default(),
            service: OnceLock::new(),
            tick,
        })
    }

    fn mode(&self) -> Mode {
        match self.mode.load(Ordering::SeqCst) {
            0 => Mode::Served,
            _ => Mode::Watched,
        }
    }

    /// Adds a socket to the set.
    pub(crate) fn add(
        &self,
        fd: impl std::os::fd::AsFd,
        endpoint: Endpoint,
        interest: Interest,
    ) -> Result<Token, Error> {
        let token = self.endpoints.write().insert(endpoint);
        if let Err(error) = self.epoll.add(fd, token.0, interest) {
            self.endpoints.write().remove(token);
            return Err(error.into());
        }
        Ok(token)
    }

    /// A token for timers alone.
    pub(crate) fn reserve(&self, endpoint: Endpoint) -> Token {
        self.endpoints.write().insert(endpoint)
    }

    /// Ends a token that has no member in the set.
    pub(crate) fn release(&self, token: Token) {
        self.endpoints.write().remove(token);
    }

    /// Changes what a member stands for and what is waited for.
    pub(crate) fn change(
        &self,
        fd: impl std::os::fd::AsFd,
        token: Token,
        endpoint: Option<Endpoint>,
        interest: Interest,
    ) -> Result<(), Error> {
        if let Some(endpoint) = endpoint {
            self.endpoints.write().replace(token, endpoint);
        }
        Ok(self.epoll.modify(fd, token.0, interest)?)
    }

    /// Removes a member; call before its descriptor is closed.
    pub(crate) fn remove(&self, fd: impl std::os::fd::AsFd, token: Token) {
        self.epoll.remove(fd);
        self.endpoints.write().remove(token);
    }

    /// Forgets a stream that has ended.
    pub(crate) fn forget_stream(&self, qp: &Arc<Qp>) {
        let mut hot = self.hot.write();
        if hot.as_ref().is_some_and(|h| h.is_stream(qp)) {
            *hot = None;
        }
    }

    /// Makes a stream the one that pollers look at first.
    pub(crate) fn note_active(&self, qp: &Arc<Qp>) {
        let is_hot = |hot: &Option<Hot>| hot.as_ref().is_some_and(|h| h.is_stream(qp));
        if !is_hot(&self.hot.read()) {
            *self.hot.write() = Some(Hot::Stream(qp.clone()));
        }
    }

    /// The same for a socket of datagrams.
    pub(crate) fn note_datagrams(&self, socket: &Arc<UdSocket>) {
        let is_hot =
            |hot: &Option<Hot>| matches!(hot, Some(Hot::Datagrams(h)) if Arc::ptr_eq(h, socket));
        if !is_hot(&self.hot.read()) {
            *self.hot.write() = Some(Hot::Datagrams(socket.clone()));
        }
    }

    /// Posts may gather: the program shows that it will poll, or the service thread's tick will
    /// see to it.
    pub(crate) fn may_defer(&self) -> bool {
        self.mode() == Mode::Watched
    }

    /// Puts a queue pair on the list of those whose posts wait.
    pub(crate) fn defer(&self, qp: Deferred) {
        self.deferred.lock().push(qp);
        self.deferred_count.fetch_add(1, Ordering::SeqCst);
        // The service thread looks at the count after it goes to standby or back to the set:
        // either it sees this one, or it is seen here and woken.
        if STANDBY.load(Ordering::SeqCst) || self.mode.load(Ordering::SeqCst) == 0 {
            self.wake_service();
        }
    }

    /// The program shows that it serves itself: the service thread leaves the set and looks in
    /// every tick.
    pub(crate) fn show_sign(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
        if self.mode() == Mode::Served {
            self.mode.store(Mode::Watched as u32, Ordering::SeqCst);
            self.waker.wake();
        }
    }

    /// Calls what the member stands for back at `at` (engine time), or somewhat later.
    pub(crate) fn add_timer(&self, at: Duration, token: Token) {
        if self.timers.add(at, token) {
            self.wake_service();
        }
    }

    /// Names the interval between two polls.
    pub(crate) fn interval(&self) -> u64 {
        self.full_polls.load(Ordering::Relaxed) + self.empty_polls.load(Ordering::Relaxed)
    }

    fn wake_service(&self) {
        match self.mode() {
            Mode::Served => self.waker.wake(),
            Mode::Watched => {
                if let Some(thread) = self.service.get() {
                    thread.unpark();
                }
            }
        }
    }
}

impl Endpoints {
    fn insert(&mut self, endpoint: Endpoint) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                endpoint: None,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.endpoint = Some(endpoint);
        Token(u64::from(slot.generation) << 32 | u64::from(index))
    }

    fn slot(&mut self, token: Token) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(token.0 as u32 as usize)?;
        (u64::from(slot.generation) == token.0 >> 32).then_some(slot)
    }

    fn replace(&mut self, token: Token, endpoint: Endpoint) {
        if let Some(slot) = self.slot(token) {
            slot.endpoint = Some(endpoint);
        }
    }

    fn remove(&mut self, token: Token) {
        if let Some(slot) = self.slot(token) {
            slot.endpoint = None;
            slot.generation = slot.generation.wrapping_add(1) & 0x7FFF_FFFF;
            self.free.push(token.0 as u32);
        }
    }

    fn get(&self, token: u64) -> Option<Endpoint> {
        let slot = self.slots.get(token as u32 as usize)?;
        (u64::from(slot.generation) == token >> 32)
            .then(|| slot.endpoint.clone())
            .flatten()
    }
}

/// What a look at the epoll set came to.
#[derive(Clone, Copy, Debug, Default)]
struct Swept {
    /// Streams that were ready.
    streams: usize,
    /// The waker was ready.
    woken: bool,
}

impl Engine {
    /// Serves whatever is ready, waiting at most `timeout` for it.
    fn sweep(&self, timeout: Option<Duration>) -> Result<Swept, Error> {
        let mut ready: [Option<Ready>; weft_os::poll::READY_MAX] = [None; weft_os::poll::READY_MAX];
        let mut count = 0;
        self.progress.epoll.wait(timeout, |member| {
            ready[count] = Some(member);
            count += 1;
        })?;
        let mut swept = Swept::default();
        for member in ready.iter().take(count).flatten() {
            if member.token == WAKER {
                swept.woken = true;
                continue;
            }
            let endpoint = self.progress.endpoints.read().get(member.token);
            match endpoint {
                Some(Endpoint::Stream(qp)) => {
                    swept.streams += 1;
                    qp.serve_in_turn(self, member.writable);
                }
                Some(Endpoint::Datagrams(socket)) => {
                    swept.streams += 1;
                    socket.serve_in_turn(self, member.writable);
                }
                Some(Endpoint::Connecting(id)) => id.serve(self),
                None => {}
            }
        }
        Ok(swept)
    }

    /// What a poll of an empty completion queue does before it looks again. Gives whether the peer is to answer for
    /// Writes of the connection it looked at.
    pub(crate) fn poll_streams(&self) -> bool {
        let mut unanswered = false;
        let turn = SWEEP.with(|sweep| {
            let turn = sweep.get().wrapping_add(1);
            sweep.set(turn);
            turn
        });
        let always = self.progress.sweep_always.load(Ordering::Relaxed);
        if !always {
            let hot = self.progress.hot.read().clone();
            match hot {
                Some(Hot::Stream(qp)) => {
                    qp.serve_if_free(self);
                    unanswered = qp.is_unanswered();
                }
                Some(Hot::Datagrams(socket)) => socket.serve_if_free(self),
                None => {}
            }
        }
        if always || turn.is_multiple_of(SWEEP_EVERY) {
            let swept = self.sweep(Some(Duration::ZERO)).unwrap_or_default();
            // With several streams active at once the set is the quicker way to the next one.
            let several = swept.streams > 1 || (always && swept.streams > 0);
            if several != always {
                self.progress.sweep_always.store(several, Ordering::Relaxed);
            }
        }
        unanswered
    }

    /// A poll found nothing: a run of them makes a poller. Where the peer is to answer for Writes it has to be a long run: a
    /// program that waits for what a device does by itself may go on to spin on memory.
    pub(crate) fn note_empty_poll(&self, unanswered: bool) {
        let most = match unanswered {
            false => SPIN_POLLS,
            true => PATIENT_POLLS,
        };
        self.progress.empty_polls.fetch_add(1, Ordering::Relaxed);
        POLLS.with(|polls| {
            let (run, since) = polls.get();
            let run = run + 1;
            if run % most != 1 {
                polls.set((run, since));
                if run % most == 0 && since.is_some_and(|t| t.elapsed() < SPIN_WINDOW) {
                    self.progress.show_sign();
                    self.stats.add(Total::EmptyPolls, u64::from(most));
                }
            } else {
                polls.set((run, Some(Instant::now())));
            }
        });
    }

    /// A poll found something.
    pub(crate) fn note_full_poll(&self) {
        self.progress.full_polls.fetch_add(1, Ordering::Relaxed);
        POLLS.with(|polls| polls.set((0, None)));
    }

    /// Sends what posts have gathered.
    #[inline]
    pub(crate) fn flush_deferred(&self) {
        if self.progress.deferred_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiting = {
            let mut deferred = self.progress.deferred.lock();
            self.progress.deferred_count.store(0, Ordering::Release);
            std::mem::take(&mut *deferred)
        };
        for qp in waiting.drain(..) {
            match qp {
                Deferred::Stream(qp) => qp.flush(self),
                Deferred::Datagrams(qp) => qp.flush(self),
            }
        }
        // The space is for the next burst: the fast path allocates nothing.
        let mut deferred = self.progress.deferred.lock();
        if deferred.capacity() == 0 {
            *deferred = waiting;
        }
    }

    /// Makes the calling thread the lead, if there is none.
    pub(crate) fn lead(&self) -> Option<Lead<'_>> {
        let led = &self.progress.led;
        led.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
            .ok()?;
        LEADING.set(true);
        self.progress.show_sign();
        Some(Lead { engine: self })
    }

    /// Whether the calling thread is the lead.
    pub(crate) fn is_lead(&self) -> bool {
        LEADING.get()
    }

    /// Makes a sleeping lead look at its channel.
    pub(crate) fn wake_lead(&self) {
        self.progress.waker.wake();
    }

    fn run_timers(&self) {
        while let Some(token) = self.progress.timers.take_due(self.now()) {
            let endpoint = self.progress.endpoints.read().get(token.0);
            match endpoint {
                Some(Endpoint::Stream(qp)) => qp.on_timer(self),
                Some(Endpoint::Connecting(id)) => id.on_timer(self),
                Some(Endpoint::Datagrams(socket)) => socket.on_timer(self),
                None => {}
            }
        }
    }
}

/// A program thread that serves everything while it waits for an event.
#[derive(Debug)]
pub(crate) struct Lead<'a> {
    engine: &'a Engine,
}

impl Lead<'_> {
    /// Waits for something to serve, and serves it.
    pub(crate) fn serve_once(&self) -> Result<(), Error> {
        let progress = &self.engine.progress;
        let swept = self.engine.sweep(None)?;
        if swept.woken {
            progress.waker.clear();
            // It may have been meant for the service thread, which sleeps in the set until it is woken, and would not
            // see to timers that are added meanwhile.
            if progress.in_set.load(Ordering::SeqCst) {
                progress.waker.wake();
                std::thread::yield_now();
            }
        }
        self.engine.progress.signs.fetch_add(1, Ordering::Relaxed);
        self.engine.flush_deferred();
        Ok(())
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        LEADING.set(false);
        let progress = &self.engine.progress;
        progress.signs.fetch_add(1, Ordering::Relaxed);
        // Sequentially consistent on both sides: either this thread sees the service thread in
        // standby, or that sees that nobody leads.
        progress.led.store(false, Ordering::SeqCst);
        if STANDBY.load(Ordering::SeqCst) {
            progress.wake_service();
        }
    }
}

/// The service thread sleeps without a tick, because a lead waits.
static STANDBY: AtomicBool = AtomicBool::new(false);

/// Starts the service thread.
pub(crate) fn start_service(engine: &Arc<Engine>) -> Result<(), Error> {
    let served = engine.clone();
    let handle = std::thread::Builder::new()
        .name("weft-service".to_owned())
        .stack_size(512 * 1024)
        .spawn(move || {
            sched::block_all_signals();
            sched::prefer_short_slices(SLICE_NS);
            service_loop(&served);
        })
        .map_err(Error::from)?;
    let _ = engine.progress.service.set(handle.thread().clone());
    Ok(())
}

fn service_loop(engine: &Engine) {
    let progress = &engine.progress;
    let mut seen = Seen::default();
    loop {
        let until_timer = progress
            .timers
            .next()
            .map(|at| at.saturating_sub(engine.now()));
        // Before the mode is looked at: a lead that takes a wake-up after it changed the mode sees this thread here, or this
        // thread sees the mode.
        progress.in_set.store(true, Ordering::SeqCst);
        let mode = progress.mode();
        if mode == Mode::Watched {
            progress.in_set.store(false, Ordering::SeqCst);
        }
        match mode {
            Mode::Served => {
                engine.stats.set(Total::Polled, 0);
                let swept = engine.sweep(until_timer).unwrap_or_default();
                progress.in_set.store(false, Ordering::SeqCst);
                if swept.woken {
                    progress.waker.clear();
                    // A lead that came meanwhile may sleep in the set, and what was just taken
                    // may have been meant for it.
                    if progress.led.load(Ordering::SeqCst) {
                        progress.waker.wake();
                    }
                }
                engine.stats.add(Total::ServicePasses, 1);
            }
            Mode::Watched => {
                engine.stats.set(Total::Polled, 1);
                watch(engine, &mut seen, until_timer);
            }
        }
        engine.flush_deferred();
        engine.run_timers();
    }
}

/// What the service thread remembers from tick to tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    signs: u64,
    empty_polls: u64,
}

/// One tick of looking in.
fn watch(engine: &Engine, seen: &mut Seen, until_timer: Option<Duration>) {
    let progress = &engine.progress;
    let look = || Seen {
        signs: progress.signs.load(Ordering::Relaxed),
        empty_polls: progress.empty_polls.load(Ordering::Relaxed),
    };
    let before = look();
    let leisurely = progress.led.load(Ordering::Acquire) && before == *seen;
    *seen = before;
    if leisurely {
        // The lead waits in epoll and serves everything; it wakes this thread when it leaves.
        STANDBY.store(true, Ordering::SeqCst);
        let gathered = progress.deferred_count.load(Ordering::SeqCst) > 0;
        if progress.led.load(Ordering::SeqCst) && !gathered {
            match until_timer {
                Some(timeout) => std::thread::park_timeout(timeout),
                None => std::thread::park(),
            }
        }
        STANDBY.store(false, Ordering::SeqCst);
        return;
    }
    let tick = until_timer.map_or(progress.tick, |t| t.min(progress.tick));
    std::thread::park_timeout(tick);
    if progress.led.load(Ordering::Acquire) {
        return;
    }
    let now = look();
    if now == before {
        progress.mode.store(Mode::Served as u32, Ordering::SeqCst);
    } else if now.empty_polls - before.empty_polls < u64::from(SWEEP_EVERY) {
        // Too few polls to have swept the set.
        let _ = engine.sweep(Some(Duration::ZERO));
    }
}
