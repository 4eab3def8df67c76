//! Who serves the connections (decision 0002).
//!
//! Everything that is served is a [`Member`]: progress does not know what it is. All sockets are in one epoll set. At
//! any time it is watched by at most one of:
//!
//! * the **service thread** ([`service`]), when nobody of the program does: it sleeps in epoll;
//! * a **lead** ([`lead`]): a program thread that blocks for an event serves everything while it waits;
//! * **pollers** ([`serving`]): program threads that spin on completion queues read the member that was active last
//!   directly and sweep the set now and then. The service thread then keeps out of the set and only looks in every
//!   tick; a second thread asleep in epoll on the same socket costs each message a wake-up.
//!
//! Which of them it is, and who wakes whom, is in [`watch`]. A poller is recognised by a run of empty polls, or of
//! messages that polls take ([`polling`]). A program that polls only what it knows to be there and spins on memory
//! meanwhile never has one, so the service thread stays awake for it.

mod busy_wait;
mod deferred;
mod driven;
mod lead;
mod lease;
mod looking;
mod member;
mod oversubscription;
pub(crate) mod polling;
mod ready;
mod service;
mod serving;
mod silent;
#[cfg(test)]
mod silent_tests;
mod timers;
mod wakeups;
#[cfg(test)]
mod wakeups_tests;

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use weft_os::fork::Generation;
use weft_os::poll::{Epoll, Interest, Waker};

use crate::clock::Clock;
use crate::error::Error;
use crate::stats::Stats;

use busy_wait::BusyWait;
use deferred::Deferred;
pub(crate) use driven::drive;
pub use driven::{Alarm, Drive};
pub(crate) use lead::Lead;
use lease::Lease;
use looking::Watched;
use member::Members;
pub use member::Quiet;
pub(crate) use member::{Flush, Hints, Looked, Member, Served, Token};
use oversubscription::Oversubscription;
use polling::Polls;
use ready::ReadyList;
pub use ready::{Readiness, Source};
pub(crate) use service::start_service;
use silent::Silent;
use timers::Timers;
use wakeups::{Mode, Wakeups};

/// The waker's number in the epoll set, which no member has.
const WAKER: u64 = u64::MAX;

/// The process's one epoll set, and the threads that watch it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The process that it serves.
    generation: Generation,
    clock: Clock,
    stats: Arc<Stats>,
    epoll: Epoll,
    waker: Arc<Waker>,
    /// Members without a descriptor that have said that they are ready.
    ready: Arc<ReadyList>,
    /// Members that whoever polls looks at.
    silent: Silent<Watched>,
    wakeups: Wakeups,
    pub(crate) polls: Polls,
    pub(crate) oversubscription: Oversubscription,
    members: RwLock<Members>,
    /// Parts of the network that are run, by descriptor.
    driven: Mutex<Vec<(RawFd, Token)>>,
    /// The member that was active last: pollers look at it first.
    hot: RwLock<Option<Arc<dyn Member>>>,
    /// Pollers sweep the set on every poll.
    sweep_always: AtomicBool,
    /// Sweeps in a row that found the member that was active last and no other.
    alone: AtomicU32,
    /// What the set does not wait for, because a program's thread polls for it.
    lease: Lease,
    deferred: Deferred<Arc<dyn Flush>>,
    pub(crate) busy_wait: BusyWait,
    timers: Timers,
    service: OnceLock<Thread>,
    tick: Duration,
    /// How long a lead looks for an event before it sleeps, where the ones before came that soon.
    busy_poll: Duration,
}

impl Progress {
    /// For the calling process. `tick` is how long the service thread leaves a program alone that serves itself,
    /// `busy_poll` how long a lead looks for an event before it sleeps.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn new(
        tick: Duration,
        busy_poll: Duration,
        clock: Clock,
        stats: Arc<Stats>,
    ) -> Result<Progress, Error> {
        let epoll = Epoll::new()?;
        let waker = Arc::new(Waker::new()?);
        epoll.add(&*waker, WAKER, Interest::Read)?;
        Ok(Progress {
            generation: Generation::now(),
            clock,
            stats,
            epoll,
            ready: Arc::new(ReadyList::new(waker.clone())),
            waker,
            silent: Silent::new(),
            wakeups: Wakeups::new(),
            polls: Polls::default(),
            oversubscription: Oversubscription::default(),
            members: RwLock::new(Members::default()),
            driven: Mutex::default(),
            hot: RwLock::new(None),
            sweep_always: AtomicBool::new(false),
            alone: AtomicU32::new(0),
            lease: Lease::default(),
            deferred: Deferred::new(),
            busy_wait: BusyWait::default(),
            timers: Timers::default(),
            service: OnceLock::new(),
            tick,
            busy_poll,
        })
    }

    /// It is of a process that this one was forked from. To be asked before any lock is taken: one that a thread held
    /// as the process forked is held for good.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        self.generation.is_over()
    }

    /// Engine time.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// How long a lead looks for an event before it sleeps.
    pub(crate) fn busy_poll(&self) -> Duration {
        self.busy_poll
    }

    // --- members

    /// Adds a member to the set, where it waits for `interest` on its descriptor.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(crate) fn add(
        &self,
        fd: impl AsFd,
        member: Arc<dyn Member>,
        interest: Interest,
    ) -> Result<Token, Error> {
        let token = self.reserve(member);
        if let Err(error) = self.epoll.add(fd, token.number(), interest) {
            self.release(token);
            return Err(error.into());
        }
        Ok(token)
    }

    /// The same for a source, which may have no descriptor.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub(crate) fn add_source(
        &self,
        source: &(impl Source + ?Sized),
        member: Arc<dyn Member>,
        interest: Interest,
    ) -> Result<Token, Error> {
        let token = match source.descriptor() {
            Some(fd) => self.add(fd, member, interest)?,
            None => self.reserve(member),
        };
        source.wait_for(interest, &self.readiness(token));
        Ok(token)
    }

    /// Changes what is waited for of a source.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub(crate) fn change_source(
        &self,
        source: &(impl Source + ?Sized),
        token: Token,
        interest: Interest,
    ) -> Result<(), Error> {
        source.wait_for(interest, &self.readiness(token));
        match source.descriptor() {
            Some(fd) => self.change(fd, token, interest),
            None => Ok(()),
        }
    }

    /// Removes a source; call before it is dropped.
    pub(crate) fn remove_source(&self, source: &(impl Source + ?Sized), token: Token) {
        match source.descriptor() {
            Some(fd) => self.remove(fd, token),
            None => self.release(token),
        }
    }

    fn readiness(&self, token: Token) -> Readiness {
        Readiness {
            list: self.ready.clone(),
            token,
        }
    }

    /// How many members there are: connections, listeners and whatever else is served.
    pub(crate) fn members(&self) -> usize {
        self.members.read().count()
    }

    /// A token for timers alone.
    pub(crate) fn reserve(&self, member: Arc<dyn Member>) -> Token {
        self.members.write().insert(member)
    }

    /// Ends a token that has no descriptor in the set.
    pub(crate) fn release(&self, token: Token) {
        self.members.write().remove(token);
    }

    /// Changes what is waited for.
    ///
    /// # Errors
    /// The descriptor is not in the set.
    pub(crate) fn change(
        &self,
        fd: impl AsFd,
        token: Token,
        interest: Interest,
    ) -> Result<(), Error> {
        Ok(self.epoll.modify(fd, token.number(), interest)?)
    }

    /// Another member has the token, and what it waits for, from now on.
    pub(crate) fn hand_over(&self, token: Token, member: Arc<dyn Member>) {
        self.members.write().replace(token, member);
    }

    /// Removes a member; call before its descriptor is closed.
    pub(crate) fn remove(&self, fd: impl AsFd, token: Token) {
        self.epoll.remove(fd);
        self.release(token);
    }

    /// The set waits for what a source receives whose network runs it, or does not while a thread reads it. What the
    /// network has for others meanwhile that thread makes ready, too.
    pub(crate) fn watch_network_of(&self, source: &(impl Source + ?Sized), watched: bool) {
        let Some(fd) = source.run_by() else {
            return;
        };
        let driven = self.driven.lock();
        let known = driven.iter().find(|(own, _)| *own == fd.as_raw_fd());
        if let Some((_, token)) = known {
            // One that is gone is not in the set any more.
            let _ = self.change(fd, *token, Interest::of(watched, false));
        }
    }

    /// Pollers look at this member first from now on.
    pub(crate) fn note_active(&self, member: &Arc<dyn Member>) {
        let is_hot =
            |hot: &Option<Arc<dyn Member>>| hot.as_ref().is_some_and(|h| Arc::ptr_eq(h, member));
        if !is_hot(&self.hot.read()) {
            *self.hot.write() = Some(member.clone());
        }
    }

    /// Pollers do not look at this member first any more: it has nothing to read.
    pub(crate) fn forget(&self, member: &dyn Member) {
        let mut hot = self.hot.write();
        if hot
            .as_ref()
            .is_some_and(|h| std::ptr::addr_eq(Arc::as_ptr(h), member))
        {
            *hot = None;
        }
    }

    // --- what waits

    /// Whether posts may wait to be sent together: the program shows that it will poll, or the service thread's tick
    /// will see to it.
    pub(crate) fn may_defer(&self) -> bool {
        self.wakeups.mode() == Mode::Watched
    }

    /// Puts a queue pair on the list of those whose posts wait.
    pub(crate) fn defer(&self, what: Arc<dyn Flush>) {
        self.deferred.push(what);
        self.wakeups.deferred(self);
    }

    /// Sends what posts have gathered; whether there was anything.
    #[inline]
    pub(crate) fn flush_deferred(&self) -> bool {
        // What gathered when the process forked its parent sends.
        if self.deferred.is_empty() || self.is_foreign() {
            return false;
        }
        self.deferred.drain(|what| what.flush());
        true
    }

    /// Calls the member of that token at `at` (engine time), or somewhat later.
    pub(crate) fn add_timer(&self, at: Duration, token: Token) {
        if self.timers.add(at, token) {
            self.wakeups.wake_service(self);
        }
    }

    /// The program shows that it serves itself: the service thread leaves the set and looks in every tick.
    pub(crate) fn note_polling(&self) {
        self.wakeups.note_polling(self);
    }

    /// Whether pollers lease this member, and the service thread sleeps in the set: one that looks by itself is woken
    /// by nothing.
    pub(crate) fn leases(&self, member: &dyn Member) -> bool {
        self.lease.any() && self.wakeups.mode() == Mode::Served && self.lease.is_at(member)
    }

    /// Ends the lease that a poller has of a member, if there is one: its thread waits for something else now.
    #[inline]
    pub(crate) fn end_lease(&self) {
        if self.lease.any() {
            self.lease.end();
        }
    }
}
