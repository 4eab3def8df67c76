//! One UDP socket, as far as its datagrams may come and go over carriers.
//!
//! It stands in the record of the socket, which stays for ever; a socket that takes the record over begins a new *life*
//! in it, and what the thread still has of the former one is known by its number.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use weft_os::descriptors::Watched;
use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::process;

use crate::inlet::Inlet;
use crate::paths::Paths;

/// Nothing of it goes over carriers.
const OFF: u32 = 1;
/// It can be asked for, or has been tried to.
const SERVED: u32 = 2;
/// The thread waits for the program to take datagrams.
const WAITED_FOR: u32 = 4;

/// A send was refused for want of room, and the program has not been told of any since.
const REFUSED: u32 = 8;

/// The program's receives are looked at before they are handed out: Weft's own datagrams are among them.
const LOOKED_AT: u32 = 1 << 31;

/// Where a datagram waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the kernel's queue.
    Kernel,
    /// In the one of what came over carriers.
    Inlet,
}

/// One socket.
#[derive(Debug)]
pub struct Port {
    life: AtomicU32,
    flags: AtomicU32,
    /// The process that `SERVED` is of.
    served_in: AtomicU32,
    /// Plain receives under way, and [`LOOKED_AT`].
    receives: AtomicU32,
    /// A descriptor of the thread's own.
    fd: Lock<Option<Guarded<Watched>>>,
    paths: Lock<Paths>,
    inlet: Lock<Inlet>,
    /// Held by whoever looks at the head of the kernel's queue and may take it.
    head: Lock<()>,
    /// When the program took something last, in nanoseconds.
    pub(crate) taken_at: AtomicU64,
    /// An error of the socket that a look at its queue met, for the program's next call.
    pending: AtomicI32,
    /// Where the datagram lies that the program has looked at: the next receive gives that one.
    looked_at_in: AtomicU32,
    /// Receives, of which every so many looks at the kernel's queue first.
    pub(crate) turns: AtomicU32,
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
            flags: AtomicU32::new(OFF),
            served_in: AtomicU32::new(0),
            receives: AtomicU32::new(0),
            fd: Lock::new(None),
            paths: Lock::new(Paths::new()),
            inlet: Lock::new(Inlet::new()),
            head: Lock::new(()),
            taken_at: AtomicU64::new(0),
            pending: AtomicI32::new(0),
            looked_at_in: AtomicU32::new(0),
            turns: AtomicU32::new(0),
        }
    }

    /// From here on it is that of a new socket. `is_shared`: another process may have it too.
    pub fn begin(&self, is_shared: bool) {
        self.end();
        self.receives.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.note_look(None);
        self.taken_at.store(0, Ordering::Relaxed);
        let flags = if is_shared { OFF } else { 0 };
        self.flags.store(flags, Ordering::Release);
    }

    /// The socket is closed: what waits is thrown away, and the kernel's socket is the program's alone.
    pub fn end(&self) {
        self.life.fetch_add(1, Ordering::AcqRel);
        self.flags.store(OFF, Ordering::Release);
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
        self.begin(false);
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

    /// Nothing of it goes over carriers any more: another process has the socket too, or the program knows better.
    pub fn switch_off(&self) {
        self.flags.fetch_or(OFF, Ordering::AcqRel);
    }

    /// Whether nothing of it goes over carriers.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.flags.load(Ordering::Acquire) & OFF != 0
    }

    /// Notes that it is served by this process; whether it was not.
    #[inline]
    pub(crate) fn begin_served(&self) -> bool {
        let own = process::id();
        let is_known = self.flags.load(Ordering::Relaxed) & SERVED != 0
            && self.served_in.load(Ordering::Relaxed) == own;
        if is_known {
            return false;
        }
        self.served_in.store(own, Ordering::Relaxed);
        self.flags.fetch_or(SERVED, Ordering::AcqRel);
        true
    }

    /// It could not be served: the next receive tries again.
    pub(crate) fn end_served(&self) {
        self.flags.fetch_and(!SERVED, Ordering::AcqRel);
    }

    /// Whether it is served by this process.
    pub(crate) fn is_served(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & SERVED != 0
            && self.served_in.load(Ordering::Relaxed) == process::id()
    }

    /// The thread waits for the program to take something.
    pub(crate) fn wait_for(&self) {
        self.flags.fetch_or(WAITED_FOR, Ordering::AcqRel);
    }

    /// Whether it does; it does no longer.
    #[inline]
    pub(crate) fn take_waited_for(&self) -> bool {
        self.is_waited_for()
            && self.flags.fetch_and(!WAITED_FOR, Ordering::AcqRel) & WAITED_FOR != 0
    }

    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.flags.load(Ordering::Acquire) & WAITED_FOR != 0
    }

    /// A send is refused for want of room; whether none was before.
    pub(crate) fn refuse(&self) -> bool {
        self.flags.fetch_or(REFUSED, Ordering::AcqRel) & REFUSED == 0
    }

    /// There is room again.
    pub(crate) fn end_refusal(&self) {
        self.flags.fetch_and(!REFUSED, Ordering::AcqRel);
    }

    /// Whether the program can send: the kernel's socket has room all the time.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.flags.load(Ordering::Acquire) & (REFUSED | OFF) != REFUSED
    }

    /// Begins a receive that is the kernel's alone; false where receives are looked at.
    #[inline]
    pub fn begin_plain(&self) -> bool {
        if self.is_looked_at() {
            return false;
        }
        if self.receives.fetch_add(1, Ordering::AcqRel) & LOOKED_AT == 0 {
            return true;
        }
        self.end_plain();
        false
    }

    /// Ends it.
    #[inline]
    pub fn end_plain(&self) {
        self.receives.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether receives are looked at.
    #[inline]
    pub fn is_looked_at(&self) -> bool {
        self.receives.load(Ordering::Acquire) & LOOKED_AT != 0
    }

    /// Has receives looked at from now on. Whether none is under way any more that began before: it would hand Weft's
    /// own datagrams to the program. Who waits in one is out of it with the next datagram.
    pub(crate) fn look_at(&self) -> bool {
        self.receives.fetch_or(LOOKED_AT, Ordering::AcqRel) & !LOOKED_AT == 0
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

    /// The program has looked at the datagram that is next there, or has taken it.
    #[inline]
    pub(crate) fn note_look(&self, place: Option<Place>) {
        let word = match place {
            None => 0,
            Some(Place::Kernel) => 1,
            Some(Place::Inlet) => 2,
        };
        self.looked_at_in.store(word, Ordering::Relaxed);
    }

    /// Where the datagram lies that it has looked at.
    #[inline]
    pub(crate) fn looked_at_in(&self) -> Option<Place> {
        match self.looked_at_in.load(Ordering::Relaxed) {
            1 => Some(Place::Kernel),
            2 => Some(Place::Inlet),
            _ => None,
        }
    }

    /// An error was met that is the program's to hear of.
    pub(crate) fn set_pending(&self, errno: i32) {
        self.pending.store(errno, Ordering::Release);
    }

    /// The error that the program's next call is to give.
    #[inline]
    pub fn take_pending(&self) -> Option<i32> {
        if self.pending.load(Ordering::Relaxed) == 0 {
            return None;
        }
        Some(self.pending.swap(0, Ordering::AcqRel)).filter(|errno| *errno != 0)
    }

    /// The right to take the head of the kernel's queue.
    pub(crate) fn head(&self) -> Option<Guard<'_, ()>> {
        match self.head.lock() {
            Locked::Held(head) | Locked::Orphaned(head) => Some(head),
            Locked::Again => None,
        }
    }
}

#[cfg(test)]
mod tests;
