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
//! A poller is recognised by a run of empty polls, or of messages that polls take. A program that polls only what it knows to be
//! there and spins on memory meanwhile never has one, so the service thread stays awake for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::RwLock;
use weft_os::poll::{Epoll, Interest, Waker, READY_MAX};
use weft_os::sched;

use crate::crowd::Crowd;
use crate::deferred::Deferred;
use crate::engine::{Endpoint, Engine};
use crate::error::Error;
use crate::polls::{self, Polls, Taken};
use crate::qp::left::{Left, WAITS};
use crate::qp::Qp;
use crate::soon::Soon;
use crate::stats::Total;
use crate::timers::Timers;
use crate::turns::{Memory, Mode, Place, Polled, Turns, Wake};
use crate::ud::{UdQp, UdSocket};

/// A poller that reads the connection which was active last sweeps the whole set on every so many looks.
const SWEEP_EVERY: u32 = 16;
/// Members that a sweep without waiting serves at most. Who polls has the first messages sooner, answers them while their
/// connections are still in the core's cache, and is back within a tick.
const IN_PASSING: usize = 8;
/// So many times in a row a sweep finds nothing but the stream that was active last before pollers read that directly.
const ALONE: u32 = 4;
/// The service thread asks for this scheduler slice, nanoseconds.
const SLICE_NS: u64 = 100_000;

/// How long a thread sleeps that polls in vain while others need its core. Work that the program hands it by memory
/// alone waits for so long.
const NAP: Duration = Duration::from_micros(50);

const WAKER: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Progress {
    epoll: Epoll,
    waker: Waker,
    turns: Turns,
    pub(crate) polls: Polls,
    pub(crate) crowd: Crowd,
    endpoints: RwLock<Endpoints>,
    /// What was active last.
    hot: RwLock<Option<Hot>>,
    /// Pollers sweep the set on every poll.
    sweep_always: AtomicBool,
    /// Sweeps in a row that found the stream that was active last and no other.
    alone: AtomicU32,
    /// What the set does not wait for, because a program's thread polls for it.
    pub(crate) left: Left,
    deferred: Deferred<Gathered>,
    pub(crate) soon: Soon,
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
    fn is_socket(&self, socket: &Arc<UdSocket>) -> bool {
        matches!(self, Hot::Datagrams(hot) if Arc::ptr_eq(hot, socket))
    }

    fn is_stream(&self, qp: &Arc<Qp>) -> bool {
        matches!(self, Hot::Stream(hot) if Arc::ptr_eq(hot, qp))
    }
}

/// A queue pair whose posts gather.
#[derive(Clone, Debug)]
pub(crate) enum Gathered {
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

impl Token {
    /// As a name among others.
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

thread_local! {
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
            turns: Turns::new(),
            polls: Polls::default(),
            crowd: Crowd::default(),
            endpoints: RwLock::new(Endpoints::default()),
            hot: RwLock::new(None),
            sweep_always: AtomicBool::new(false),
            alone: AtomicU32::new(0),
            left: Left::default(),
            deferred: Deferred::new(),
            soon: Soon::default(),
            timers: Timers::default(),
            service: OnceLock::new(),
            tick,
        })
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

    /// Changes what is waited for.
    pub(crate) fn change(
        &self,
        fd: impl std::os::fd::AsFd,
        token: Token,
        interest: Interest,
    ) -> Result<(), Error> {
        Ok(self.epoll.modify(fd, token.0, interest)?)
    }

    /// A member stands for something else from now on.
    pub(crate) fn hand_over(&self, token: Token, endpoint: Endpoint) {
        self.endpoints.write().replace(token, endpoint);
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
        let is_hot = |hot: &Option<Hot>| hot.as_ref().is_some_and(|h| h.is_socket(socket));
        if !is_hot(&self.hot.read()) {
            *self.hot.write() = Some(Hot::Datagrams(socket.clone()));
        }
    }

    /// Posts may gather: the program shows that it will poll, or the service thread's tick will
    /// see to it.
    pub(crate) fn may_defer(&self) -> bool {
        self.turns.mode() == Mode::Watched
    }

    /// Puts a queue pair on the list of those whose posts wait.
    pub(crate) fn defer(&self, qp: Gathered) {
        self.deferred.push(qp);
        self.turns.deferred(self);
    }

    /// The program shows that it serves itself: the service thread leaves the set and looks in
    /// every tick.
    pub(crate) fn show_sign(&self) {
        self.turns.show_sign(self);
    }

    /// Calls what the member stands for back at `at` (engine time), or somewhat later.
    pub(crate) fn add_timer(&self, at: Duration, token: Token) {
        if self.timers.add(at, token) {
            self.turns.wake_service(self);
        }
    }

    /// Decides whether pollers look at the set or at one stream first. Where the set shows others
    /// than the one that was active last it is the quicker way to the next one; where it shows
    /// that one alone for a while, reading it directly is.
    fn note_swept(&self, always: bool, swept: &Swept) {
        if swept.streams == 0 {
            return;
        }
        let alone = match swept.others {
            true => 0,
            false => self.alone.load(Ordering::Relaxed) + 1,
        };
        self.alone.store(alone, Ordering::Relaxed);
        let wanted = swept.others || (always && alone < ALONE);
        if wanted != always {
            self.sweep_always.store(wanted, Ordering::Relaxed);
        }
    }
}

impl Wake for Progress {
    fn set_waker(&self) {
        self.waker.wake();
    }

    fn clear_waker(&self) {
        self.waker.clear();
    }

    fn unpark(&self) {
        if let Some(thread) = self.service.get() {
            thread.unpark();
        }
    }
}

impl Place for Engine {
    type Error = Error;
    type Wake = Progress;

    fn wake(&self) -> &Progress {
        &self.progress
    }

    fn sweep(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        Ok(self.serve_ready(timeout)?.woken)
    }

    fn park(&self, timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => std::thread::park_timeout(timeout),
            None => std::thread::park(),
        }
    }

    fn until_timer(&self) -> Option<Duration> {
        let next = self.progress.timers.next();
        next.map(|at| at.saturating_sub(self.now()))
    }

    fn has_deferred(&self) -> bool {
        !self.progress.deferred.is_empty()
    }

    fn polled(&self) -> Polled {
        self.progress.polls.polled()
    }

    fn begins(&self, mode: Mode) {
        self.stats.set(Total::Polled, mode as u64);
        self.stats
            .set(Total::EmptyPolls, self.progress.polls.empty());
        if mode == Mode::Served {
            self.stats.add(Total::ServicePasses, 1);
        }
    }

    fn tick(&self) -> Duration {
        self.progress.tick
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
    /// Among them one that was not the one active before.
    others: bool,
    /// A stream, a listener or a start-up was ready.
    any: bool,
    /// The waker was ready.
    woken: bool,
}

impl Engine {
    /// Serves whatever is ready, waiting at most `timeout` for it.
    fn serve_ready(&self, timeout: Option<Duration>) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        let mut active = None;
        let hot = self.progress.hot.read().clone();
        let most = match timeout {
            Some(Duration::ZERO) => IN_PASSING,
            _ => READY_MAX,
        };
        self.progress.epoll.wait(timeout, most, |member| {
            if member.token == WAKER {
                swept.woken = true;
                return;
            }
            swept.any = true;
            let endpoint = self.progress.endpoints.read().get(member.token);
            match endpoint {
                Some(Endpoint::Stream(qp)) => {
                    swept.streams += 1;
                    swept.others |= !hot.as_ref().is_some_and(|h| h.is_stream(&qp));
                    if qp.serve_in_turn(self, member.writable) {
                        active = Some(qp);
                    }
                }
                Some(Endpoint::Datagrams(socket)) => {
                    swept.streams += 1;
                    swept.others |= !hot.as_ref().is_some_and(|h| h.is_socket(&socket));
                    socket.serve_in_turn(self, member.writable);
                }
                Some(Endpoint::Connecting(id)) => id.serve(self),
                None => {}
            }
        })?;
        if let Some(qp) = active {
            self.progress.note_active(&qp);
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
        let hot = match always {
            true => None,
            false => self.progress.hot.read().clone(),
        };
        self.take_back_what_is_not(hot.as_ref());
        match hot {
            Some(Hot::Stream(qp)) => {
                qp.serve_if_free(self);
                unanswered = qp.is_unanswered();
                if qp.waits_for_one() && self.is_poll_of_one_who_waits() {
                    qp.leave_to_poller(self);
                }
            }
            Some(Hot::Datagrams(socket)) => socket.serve_if_free(self),
            None => {}
        }
        if always || turn.is_multiple_of(SWEEP_EVERY) {
            self.sweep_as_poller(always);
        }
        unanswered
    }

    /// Sleeps in the set for a moment, and serves what is ready: a thread that polls in vain while others need its core.
    pub(crate) fn nap(&self) {
        self.take_back_what_was_left();
        // What fails here the next look finds.
        let _ = self.serve_ready(Some(NAP));
        self.progress.turns.swept();
    }

    fn sweep_as_poller(&self, always: bool) {
        let swept = self.serve_ready(Some(Duration::ZERO)).unwrap_or_default();
        self.progress.turns.swept();
        self.progress.note_swept(always, &swept);
    }

    /// Whether the calling thread polls again and again, beside a service thread that sleeps in the set.
    fn is_poll_of_one_who_waits(&self) -> bool {
        polls::empty_in_a_row() >= WAITS && self.progress.turns.mode() == Mode::Served
    }

    /// What pollers do not read first is not left to them.
    #[inline]
    fn take_back_what_is_not(&self, hot: Option<&Hot>) {
        let left = &self.progress.left;
        if left.any() && !matches!(hot, Some(Hot::Stream(qp)) if left.is(qp)) {
            self.take_back_what_was_left();
        }
    }

    /// A poll took what was there.
    #[inline]
    pub(crate) fn note_take(&self, taken: Taken) {
        if self.progress.polls.note_take(taken) {
            self.progress.show_sign();
        }
        if taken.left && self.progress.turns.is_due() {
            self.sweep_as_poller(self.progress.sweep_always.load(Ordering::Relaxed));
        }
    }

    /// A poll found nothing at first, looked, and took what that brought.
    #[inline]
    pub(crate) fn note_look(&self, taken: Taken, unanswered: bool) {
        if self.progress.polls.note_look(taken, unanswered) {
            self.progress.show_sign();
        }
    }

    /// Sends what posts have gathered; whether there was anything.
    #[inline]
    pub(crate) fn flush_deferred(&self) -> bool {
        // What gathered when the process forked its parent sends.
        if self.progress.deferred.is_empty() || self.is_foreign() {
            return false;
        }
        self.progress.deferred.drain(|qp| match qp {
            Gathered::Stream(qp) => qp.flush(self),
            Gathered::Datagrams(qp) => qp.flush(self),
        });
        true
    }

    /// Waits for an expected answer without going to sleep, and serves what comes. Gives whether anything came; what
    /// the waker is set for is left to a wait that clears it.
    fn look_out(&self) -> Result<bool, Error> {
        while self.progress.soon.is_expected(self.now()) {
            let swept = self.serve_ready(Some(Duration::ZERO))?;
            if swept.woken || swept.any {
                return Ok(!swept.woken);
            }
        }
        Ok(false)
    }

    /// Makes the calling thread the lead, if there is none.
    pub(crate) fn lead(&self) -> Option<Lead<'_>> {
        self.take_back_what_was_left();
        if !self.progress.turns.lead(&self.progress) {
            return None;
        }
        LEADING.set(true);
        polls::note_lead();
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
    /// Sends what posts have gathered; whether there was anything.
    pub(crate) fn flush_deferred(&self) -> bool {
        self.engine.flush_deferred()
    }

    /// Waits for something to serve, and serves it.
    pub(crate) fn serve_once(&self) -> Result<(), Error> {
        if self.engine.look_out()? {
            return Ok(());
        }
        match self.engine.progress.turns.lead_once(self.engine) {
            // A handler of a signal that forks returns here in the child too.
            Err(Error::Interrupted) if self.engine.is_foreign() => Err(Error::forked()),
            outcome => outcome,
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        LEADING.set(false);
        let progress = &self.engine.progress;
        progress.turns.leave(progress);
    }
}

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
        .map_err(|_| {
            Error::NoMemory("threads of this user (ulimit -u), or memory for one's stack")
        })?;
    let _ = engine.progress.service.set(handle.thread().clone());
    Ok(())
}

fn service_loop(engine: &Engine) {
    let mut memory = Memory::default();
    loop {
        engine.progress.turns.serve(engine, &mut memory);
        engine.flush_deferred();
        engine.run_timers();
    }
}
