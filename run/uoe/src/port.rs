//! One UDP socket, as far as its datagrams may come and go over carriers.
//!
//! It stands in the record of the socket, which stays for ever; a socket that takes the record over begins a new *life*
//! in it, and what the thread still has of the former one is known by its number.

mod looks;
mod receives;

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use weft_os::descriptors::Watched;
use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Lock, Locked};

use crate::heads::{Head, Heads};
use crate::marked::Marked;
use crate::owned::Owning;

use crate::inlet::Inlet;
use crate::paths::Paths;
pub(crate) use looks::Place;

/// Nothing of it goes over carriers.
const OFF: u32 = 1;
/// It can be asked for, or has been tried to.
const SERVED: u32 = 2;
/// The thread waits for the program to take datagrams.
const WAITED_FOR: u32 = 4;
/// A send was refused for want of room, and the program has not been told of any since.
const REFUSED: u32 = 8;
/// Another process may have the socket too.
const SHARED: u32 = 16;
/// The program receives from it, or waits for what it could receive.
const RECEIVED: u32 = 32;
/// What a child's socket has of its parent's.
const INHERITED: u32 = OFF | SHARED;

/// The program's receives are looked at before they are handed out: Weft's own datagrams are among them. A child's,
/// too: some may be in the queue that it shares.
const LOOKED_AT: u32 = 1 << 31;

/// One socket.
#[derive(Debug)]
pub struct Port {
    life: AtomicU32,
    flags: Marked,
    /// Plain receives under way, and [`LOOKED_AT`].
    receives: Marked,
    /// Receives that wait in the kernel and take what comes.
    takes: Marked,
    /// A descriptor of the thread's own.
    fd: Lock<Option<Guarded<Watched>>>,
    paths: Lock<Paths>,
    inlet: Lock<Inlet>,
    heads: Heads,
    /// What is known of other processes that have the socket.
    pub(crate) owning: Owning,
    /// When the program took something last, in nanoseconds: to a tick of the kernel's.
    pub(crate) taken_at: AtomicU64,
    /// An error of the socket that a look at its queue met, for the program's next call.
    pending: AtomicI32,
    /// Where the datagram lies that the program has looked at: the next receive gives that one.
    looked_at_in: AtomicU32,
    /// Receives, of which every so many looks at the kernel's queue first.
    pub(crate) turns: AtomicU32,
    /// Every how many.
    kernel_turn: AtomicU32,
    /// The rate that the program has set, in bits a second; 0: none.
    pub(crate) rate: AtomicU64,
}

/// A socket that the thread knows, in one of its lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) port: &'static Port,
    life: u32,
}

/// Sockets that the program has left to the thread, of a process at a time. What waits in one more is dropped.
pub(crate) const LEFT_MAX: usize = 32;

/// A socket that the program has left to the thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) port: Held,
    pub(crate) until: Duration,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        std::ptr::eq(self.port, other.port) && self.life == other.life
    }
}

impl Held {
    /// Whether the record is still that socket's.
    pub(crate) fn is_alive(&self) -> bool {
        self.port.life.load(Ordering::Acquire) == self.life
    }

    /// Does something with the socket's descriptor, which nobody closes meanwhile; nothing where the record is another
    /// socket's.
    ///
    /// A life ends before its descriptor, queue and paths are let go of, each under its lock: what is alive while one
    /// of these locks is held is still there when the lock is given back.
    pub(crate) fn with_fd<T>(&self, work: impl FnOnce(RawFd) -> T) -> Option<T> {
        let work = |fd| self.is_alive().then(|| work(fd));
        self.port.with_fd(work).flatten()
    }

    /// What waits for the program at the socket, likewise.
    #[inline]
    pub(crate) fn inlet(&self) -> Option<Guard<'static, Inlet>> {
        self.port.inlet().filter(|_| self.is_alive())
    }

    /// Where the socket's datagrams go, likewise.
    pub(crate) fn paths(&self) -> Option<Guard<'static, Paths>> {
        self.port.paths().filter(|_| self.is_alive())
    }
}

impl Default for Port {
    fn default() -> Port {
        Port::new()
    }
}

impl Port {
    /// Of no socket yet.
    pub const fn new() -> Port {
        Port {
            life: AtomicU32::new(0),
            flags: Marked::new(OFF),
            receives: Marked::new(0),
            takes: Marked::new(0),
            fd: Lock::new(None),
            paths: Lock::new(Paths::new()),
            inlet: Lock::new(Inlet::new()),
            heads: Heads::new(),
            owning: Owning::new(),
            taken_at: AtomicU64::new(0),
            pending: AtomicI32::new(0),
            looked_at_in: AtomicU32::new(0),
            turns: AtomicU32::new(0),
            kernel_turn: AtomicU32::new(1),
            rate: AtomicU64::new(0),
        }
    }

    /// From here on it is that of a new socket. `is_shared`: another process may have it too. `among`: a word of memory
    /// that those have which are forked from this one.
    pub fn begin(&self, is_shared: bool, among: Option<&'static AtomicU32>) {
        self.end();
        self.heads.begin(among);
        self.owning.begin();
        // What is Weft's own and was sent to who had the socket before may be in its queue.
        self.receives.set(if is_shared { LOOKED_AT } else { 0 });
        self.takes.set(0);
        self.pending.store(0, Ordering::Relaxed);
        self.note_look(None);
        self.taken_at.store(0, Ordering::Relaxed);
        self.kernel_turn.store(1, Ordering::Relaxed);
        self.set_rate(0);
        self.flags.set(if is_shared { SHARED } else { 0 });
    }

    /// The socket is closed: what waits is thrown away, and the kernel's socket is the program's alone.
    pub fn end(&self) {
        self.life.fetch_add(1, Ordering::AcqRel);
        self.flags.set(OFF);
        self.let_go();
        if let Some(mut inlet) = self.inlet() {
            inlet.clear();
        }
        if let Some(mut paths) = self.paths() {
            paths.end();
        }
    }

    /// What waits in its queues for channels, or for room on them.
    pub(crate) fn queued(&self) -> u64 {
        self.paths().map_or(0, |paths| paths.queued())
    }

    /// From here on it has the descriptor and the queues of `from`, whose life is over.
    pub(crate) fn inherit(&self, from: &Port) {
        self.begin(from.is_shared(), from.heads.among());
        self.set_rate(from.rate());
        // Nobody receives from it any more.
        self.look_at();
        from.life.fetch_add(1, Ordering::AcqRel);
        let kept = match from.fd.lock() {
            Locked::Held(mut kept) | Locked::Orphaned(mut kept) => kept.take(),
            Locked::Again => None,
        };
        if let Locked::Held(mut own) | Locked::Orphaned(mut own) = self.fd.lock() {
            *own = kept;
        }
        if let (Some(mut own), Some(mut others)) = (self.paths(), from.paths()) {
            // A call neither allocates memory nor frees any.
            std::mem::swap(&mut *own, &mut *others);
        }
    }

    /// Nothing of it goes over carriers any more: the program knows better, or has given it away.
    pub fn switch_off(&self) {
        self.change(OFF, 0);
    }

    /// Whether nothing of it goes over carriers.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.has(OFF)
    }

    /// Another process may have the socket, too, from now on.
    pub fn share(&self) {
        self.change(SHARED, 0);
    }

    /// Whether another process may have it.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.has(SHARED)
    }

    /// The program receives from it, or waits for what it could receive.
    #[inline]
    pub(crate) fn note_received(&self) {
        if !self.has(RECEIVED) {
            self.change(RECEIVED, 0);
        }
    }

    /// Whether it has, in this process.
    pub(crate) fn was_received(&self) -> bool {
        self.has(RECEIVED)
    }

    /// Notes that it is served by this process; whether it was not.
    #[inline]
    pub(crate) fn begin_served(&self) -> bool {
        !self.is_served() && self.change(SERVED, 0) & SERVED == 0
    }

    /// It could not be served, or is not to be: the next receive tries again.
    pub(crate) fn end_served(&self) {
        self.change(0, SERVED);
    }

    /// Whether it is served by this process.
    #[inline]
    pub(crate) fn is_served(&self) -> bool {
        self.has(SERVED)
    }

    /// The thread waits for the program to take something.
    pub(crate) fn wait_for(&self) {
        self.change(WAITED_FOR, 0);
    }

    /// Whether it does; it does no longer.
    #[inline]
    pub(crate) fn take_waited_for(&self) -> bool {
        self.is_waited_for() && self.change(0, WAITED_FOR) & WAITED_FOR != 0
    }

    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.has(WAITED_FOR)
    }

    /// A send is refused for want of room; whether none was before.
    pub(crate) fn refuse(&self) -> bool {
        self.change(REFUSED, 0) & REFUSED == 0
    }

    /// There is room again.
    pub(crate) fn end_refusal(&self) {
        self.change(0, REFUSED);
    }

    /// Whether the program can send: the kernel's socket has room all the time.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.flags.get(INHERITED) & (REFUSED | OFF) != REFUSED
    }

    #[inline]
    fn has(&self, flag: u32) -> bool {
        self.flags.get(INHERITED) & flag != 0
    }

    /// Sets and clears flags; gives those of before.
    fn change(&self, set: u32, clear: u32) -> u32 {
        self.flags
            .update(INHERITED, |before| (before | set) & !clear)
    }

    /// The thread's name for it.
    pub(crate) fn held(&'static self) -> Held {
        Held {
            port: self,
            life: self.life.load(Ordering::Acquire),
        }
    }

    /// Keeps a descriptor of the socket, if there is none.
    pub(crate) fn keep(&self, fd: RawFd) -> bool {
        let (Locked::Held(mut kept) | Locked::Orphaned(mut kept)) = self.fd.lock() else {
            return false;
        };
        if kept.as_mut().is_some_and(|kept| kept.get().is_some()) {
            return true;
        }
        *kept = Watched::apart(fd).ok().map(Guarded::new);
        kept.is_some()
    }

    fn let_go(&self) {
        if let Locked::Held(mut kept) | Locked::Orphaned(mut kept) = self.fd.lock() {
            *kept = None;
        }
    }

    /// Does something with the descriptor, which nobody closes meanwhile.
    pub(crate) fn with_fd<T>(&self, work: impl FnOnce(RawFd) -> T) -> Option<T> {
        let Locked::Held(mut kept) = self.fd.lock() else {
            return None;
        };
        let kept = kept.as_mut()?;
        kept.get()?;
        Some(work(kept.number()))
    }

    /// Where its datagrams go; nothing where the calling thread looks already.
    #[inline]
    pub(crate) fn paths(&self) -> Option<Guard<'_, Paths>> {
        let (Locked::Held(mut paths) | Locked::Orphaned(mut paths)) = self.paths.lock() else {
            return None;
        };
        paths.enter_process();
        Some(paths)
    }

    /// What waits for the program, likewise.
    #[inline]
    pub(crate) fn inlet(&self) -> Option<Guard<'_, Inlet>> {
        match self.inlet.lock() {
            Locked::Held(inlet) | Locked::Orphaned(inlet) => Some(inlet),
            Locked::Again => None,
        }
    }

    /// The right to take the head of the kernel's queue; nothing where the calling thread has it already.
    pub(crate) fn head(&self) -> Option<Head<'_>> {
        self.heads.take(self.is_shared())
    }
}

#[cfg(test)]
mod tests;
