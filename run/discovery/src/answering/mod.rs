//! The server: the listeners and UDP sockets that may be asked for, and the thread that answers for them.
//!
//! The thread exists while there is a listener, sleeps until somebody asks, and holds the discovery port together with
//! those of the user's other processes. Whoever of them gets a question looks for the connection, asks every process
//! that owns a listener for the wanted port, its own among them, and answers yes if one will take the connection and
//! none objects.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `listeners` | the listeners of this process that may be asked for |
//! | `ports` | the sockets that the thread holds for them |
//! | `claims` | which process of a family holds the name of a port |
//! | `colleagues` | what processes of one user ask each other |
//! | `serving` | what the thread does: sockets, and sleep |
//! | `judging` | what it does with questions |
//! | `counts` | what has become of questions |

mod claims;
mod colleagues;
mod counts;
mod judging;
mod listeners;
mod ports;
mod serving;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use weft_discovery_proto::{About, Connection, TakesCarriers};
use weft_os::guarded::Guarded;
use weft_os::lock::{Guard, Lock, Locked};
use weft_os::own_thread::OwnThread;
use weft_os::poll::Waker;
use weft_os::{process, sched};
use weft_settings::DiscoveryPort;

use crate::now;
use claims::Claims;
pub use counts::Counted;
use counts::Counts;
use listeners::Listeners;
pub use listeners::LISTENERS_MAX;

/// How long after a socket could not be had the next call may try again.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Ports that the program has taken for itself, of those that were ours.
const GIVEN_WAY_MAX: usize = 16;
/// How long a call waits at most until the thread has done what it was told.
const HEEDED_WITHIN: Duration = Duration::from_millis(100);

/// Who looks after the connections of the listeners.
pub trait Owner: Sync {
    /// A yes is about to be said for this connection, of a listener that may be asked for; false where none may be.
    /// Called by the thread. Asked twice for the same connection it says the same.
    fn promise(&self, connection: &Connection, now: Duration) -> bool;

    /// Where this process takes the connections that datagrams of its sockets travel on, if it does. Called by the
    /// thread.
    fn carriers(&self) -> Option<TakesCarriers> {
        None
    }
}

/// Why this process answers, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has no listener that may be asked for.
    Idle,
    /// It answers.
    Answers,
    /// The discovery port belongs to another user's processes, or to a program of this user that does not share it.
    PortTaken,
    /// The kernel does not say which connections there are (no `sock_diag`).
    NoSockDiag,
    /// Descriptors, memory or threads are short.
    Short,
}

const STANDINGS: [Standing; 5] = [
    Standing::Idle,
    Standing::Answers,
    Standing::PortTaken,
    Standing::NoSockDiag,
    Standing::Short,
];

/// The thread, as long as there is one.
#[derive(Debug, Default)]
struct Thread {
    runs: bool,
    waker: Option<Guarded<Waker>>,
}

/// What is shared between the calls of the program and the thread.
#[derive(Debug)]
struct Shared {
    /// The process that the rest is of.
    process: u32,
    listeners: Listeners,
    thread: Thread,
}

/// What answers, for one process and those forked from it.
pub struct Answering {
    port: DiscoveryPort,
    owner: &'static dyn Owner,
    claims: Claims,
    shared: Lock<Shared>,
    /// The process that listeners are noted for, as `shared` has it: so that most calls look no further.
    process: AtomicU32,
    thread: OwnThread,
    /// When a socket that could not be had may be tried for again, in microseconds; 0: there is none such.
    retry_at_us: AtomicU64,
    given_way: [AtomicU32; GIVEN_WAY_MAX],
    /// Counts how often the thread has looked at what it was told.
    heeded: AtomicU32,
    standing: AtomicU32,
    confined: AtomicBool,
    counts: Counts,
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answering")
            .field("port", &self.port)
            .field("standing", &self.standing())
            .finish_non_exhaustive()
    }
}

impl Answering {
    /// Answers nobody yet; nothing where the kernel has no room for what a family shares.
    pub fn new(port: DiscoveryPort, owner: &'static dyn Owner) -> Option<Answering> {
        weft_os::fork::watch();
        Some(Answering {
            port,
            owner,
            claims: Claims::new()?,
            shared: Lock::new(Shared {
                process: 0,
                listeners: Listeners::default(),
                thread: Thread::default(),
            }),
            process: AtomicU32::new(0),
            thread: OwnThread::new(),
            retry_at_us: AtomicU64::new(0),
            given_way: [const { AtomicU32::new(0) }; GIVEN_WAY_MAX],
            heeded: AtomicU32::new(0),
            standing: AtomicU32::new(0),
            confined: AtomicBool::new(false),
            counts: Counts::default(),
        })
    }

    /// The listening socket behind `fd`, or the UDP socket, which the caller knows by `key`, may be asked for. To be
    /// called in each call that accepts or receives from it: a forked child, and a process that could not have the port
    /// before, begins to answer then. Where there is nothing to do that is a free lock and a look at a short list.
    #[inline]
    pub fn serve(&'static self, key: u32, about: About, fd: i32) {
        let is_known = self.process.load(Ordering::Acquire) == process::id()
            && self.retry_at_us.load(Ordering::Relaxed) == 0;
        if !is_known || !self.is_served(key) {
            self.begin_to_serve(key, about, fd);
        }
    }

    /// The socket behind `fd` has just begun to listen: whatever had this key before is gone.
    pub fn listen(&'static self, key: u32, about: About, fd: i32) {
        self.leave(key);
        self.begin_to_serve(key, about, fd);
    }

    /// The listening socket with this key is closed in this process.
    pub fn leave(&'static self, key: u32) {
        if let Some(mut shared) = self.shared() {
            if shared.listeners.remove(key) {
                shared.thread.wake();
            }
        }
    }

    /// The program is about to bind a UDP socket to this port: if it is one of ours, it is free when this returns, and
    /// is not taken again.
    pub fn give_way(&'static self, port: u16) {
        let is_ours = match self.port {
            DiscoveryPort::Agreed(agreed) => agreed == port,
            DiscoveryPort::Same => self
                .shared()
                .is_some_and(|shared| shared.listeners.has(port)),
        };
        if !is_ours || port == 0 || self.has_given_way(port) {
            return;
        }
        let free = |place: &&AtomicU32| {
            let port = u32::from(port);
            place
                .compare_exchange(0, port, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        if self.given_way.iter().find(free).is_some() {
            self.await_heeded();
        }
    }

    /// The program confines itself: the thread ends, and there is no other one in this process.
    pub fn confine(&'static self) {
        self.confined.store(true, Ordering::SeqCst);
        self.await_heeded();
        self.thread.await_end(|| ());
    }

    /// Why this process answers, or does not.
    pub fn standing(&self) -> Standing {
        let number = self.standing.load(Ordering::Relaxed) as usize;
        STANDINGS.get(number).copied().unwrap_or(Standing::Idle)
    }

    /// What has become of questions in this process.
    pub fn counted(&self) -> Counted {
        self.counts.counted()
    }

    fn set_standing(&self, standing: Standing) {
        let number = STANDINGS.iter().position(|known| *known == standing);
        self.standing
            .store(number.unwrap_or(0) as u32, Ordering::Relaxed);
    }

    fn has_given_way(&self, port: u16) -> bool {
        let mut ports = self.given_way.iter();
        ports.any(|place| place.load(Ordering::Acquire) == u32::from(port))
    }

    fn is_confined(&self) -> bool {
        self.confined.load(Ordering::SeqCst)
    }

    fn is_served(&self, key: u32) -> bool {
        self.shared()
            .is_some_and(|shared| shared.listeners.knows(key))
    }

    /// What calls and thread share, of this process; nothing where the calling thread is at it already.
    fn shared(&self) -> Option<Guard<'_, Shared>> {
        let mut shared = match self.shared.lock() {
            Locked::Held(shared) | Locked::Orphaned(shared) => shared,
            Locked::Again => return None,
        };
        let own = process::id();
        if shared.process != own {
            // A child's sockets are closed as it begins, and it has none of its parent's threads.
            *shared = Shared {
                process: own,
                listeners: Listeners::default(),
                thread: Thread::default(),
            };
            self.counts.clear();
            self.retry_at_us.store(0, Ordering::Relaxed);
            self.set_standing(Standing::Idle);
            self.process.store(own, Ordering::Release);
        }
        Some(shared)
    }

    #[cold]
    fn begin_to_serve(&'static self, key: u32, about: About, fd: i32) {
        if self.is_confined() || process::is_borrowed() {
            return;
        }
        let Some(mut shared) = self.shared() else {
            return;
        };
        let is_new = !shared.listeners.knows(key) && shared.listeners.add(key, about, fd);
        let retry_at = Duration::from_micros(self.retry_at_us.load(Ordering::Relaxed));
        let is_due = !retry_at.is_zero() && retry_at <= now();
        if is_new || is_due {
            self.retry_at_us.store(0, Ordering::Relaxed);
            match shared.thread.runs {
                true => shared.thread.wake(),
                false => self.start(&mut shared.thread),
            }
        }
    }

    fn start(&'static self, thread: &mut Thread) {
        let Ok(waker) = Waker::apart() else {
            self.set_standing(Standing::Short);
            return self.try_again_later();
        };
        thread.waker = Some(Guarded::new(waker));
        let run = move || serving::run(self);
        thread.runs = self.thread.start("weft-discovery", 256 * 1024, run);
        if !thread.runs {
            self.set_standing(Standing::Short);
            self.try_again_later();
        }
    }

    /// The next call after a while makes the thread look again.
    fn try_again_later(&self) {
        let at = (now() + RETRY_AFTER).as_micros() as u64;
        self.retry_at_us.store(at, Ordering::Relaxed);
    }

    /// Waits until the thread, if there is one, has seen what was just changed.
    fn await_heeded(&'static self) {
        let before = self.heeded.load(Ordering::Acquire);
        let runs = self.shared().is_some_and(|mut shared| {
            shared.thread.wake();
            shared.thread.runs
        });
        let begun = now();
        // Two looks: the first may have begun before the change.
        let heeded = || self.heeded.load(Ordering::Acquire).wrapping_sub(before) >= 2;
        while runs && !heeded() && now() - begun < HEEDED_WITHIN {
            sched::pause(Duration::from_micros(50));
            if let Some(mut shared) = self.shared() {
                shared.thread.wake();
            }
        }
    }
}

impl Thread {
    /// Makes the thread look at what has changed.
    fn wake(&mut self) {
        if let Some(waker) = self.waker.as_mut().and_then(Guarded::get) {
            waker.wake();
        }
    }
}
