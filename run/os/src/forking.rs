//! Whether the process is forking.
//!
//! Who forks marks first what the child will have too. Another thread may come to have something more between that and
//! the fork itself: it asks here, and marks what is its own.

use std::cell::Cell;
use std::sync::atomic::{fence, AtomicU32, Ordering};

use crate::atomic::try_update;
use crate::process;

/// Threads of the process that fork, as far as they have not told that it is over.
static COUNT: AtomicU32 = AtomicU32::new(0);
/// Forks that were begun. Wraps.
static BEGUN: AtomicU32 = AtomicU32::new(0);
/// The process whose they are: a forked child has none of them.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The process in which the thread forks; 0 while it does not.
    static HERE: Cell<u32> = const { Cell::new(0) };
}

/// The thread is about to fork, and marks after this what the child will have.
pub fn begin() {
    let own = process::id();
    if PROCESS.swap(own, Ordering::SeqCst) != own {
        COUNT.store(0, Ordering::SeqCst);
    }
    if HERE.replace(own) != own {
        COUNT.fetch_add(1, Ordering::SeqCst);
    }
    BEGUN.fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// The thread goes on, as a parent or as a child. Nobody tells of some ways to fork (`vfork`, `_Fork`, bare system
/// calls): a later call of the same thread does.
#[inline]
pub fn over() {
    if HERE.get() != 0 {
        end();
    }
}

#[cold]
fn end() {
    let own = process::id();
    if HERE.replace(0) == own && PROCESS.load(Ordering::SeqCst) == own {
        let less = |count: u32| count.checked_sub(1);
        let _ = try_update(&COUNT, less);
    }
}

/// A moment before the calling thread comes to have something.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    begun: u32,
    was_under_way: bool,
}

/// Now, before the calling thread comes to have something: [`Before::may_have_child`] is asked afterwards.
pub fn before() -> Before {
    Before {
        was_under_way: is_under_way(),
        begun: BEGUN.load(Ordering::SeqCst),
    }
}

impl Before {
    /// Whether a child was or may be made that has what the calling thread has come to have since, and that nobody has
    /// marked. A whole fork may lie between any two instructions of this thread.
    pub fn may_have_child(self) -> bool {
        is_under_way() || self.was_under_way || BEGUN.load(Ordering::SeqCst) != self.begun
    }
}

/// Whether a thread of this process is amid a fork.
fn is_under_way() -> bool {
    fence(Ordering::SeqCst);
    let is_any =
        PROCESS.load(Ordering::SeqCst) == process::id() && COUNT.load(Ordering::SeqCst) > 0;
    // Unless this is a handler that came in between, its own thread's is over: once more is enough.
    over();
    is_any
}

/// Makes a child by the system call alone, of which no handler of fork learns: 0 in the child, its number here.
///
/// # Safety
/// The child may call nothing that takes a lock, and leaves by `_exit`: other threads' locks are held in it for good.
#[cfg(test)]
pub(crate) unsafe fn bare_fork() -> libc::pid_t {
    let nothing: libc::c_long = 0;
    // Every machine has clone; fork is a call of the older ones.
    let flags = libc::c_long::from(libc::SIGCHLD);
    // SAFETY: a child with a copy of this process's memory, and so with a stack of its own; the caller promises the
    // rest.
    let child =
        unsafe { libc::syscall(libc::SYS_clone, flags, nothing, nothing, nothing, nothing) };
    child as libc::pid_t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::tests::in_a_child;

    fn asked_elsewhere() -> bool {
        ask_elsewhere(is_under_way)
    }

    fn ask_elsewhere<T: Send>(what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| scope.spawn(what).join().unwrap())
    }

    /// One test, as what it asks is the process's.
    #[test]
    fn a_fork_is_under_way_until_its_thread_goes_on() {
        process::watch();
        assert!(!asked_elsewhere());
        begin();
        begin();
        assert!(asked_elsewhere() && asked_elsewhere());
        assert_eq!(in_a_child(|| !is_under_way()), 0, "not the child's");
        over();
        assert!(!asked_elsewhere());
        over();
        begin();
        assert!(is_under_way(), "a handler may ask");
        assert!(!is_under_way() && !asked_elsewhere());

        let quiet = ask_elsewhere(before);
        assert!(!ask_elsewhere(|| quiet.may_have_child()));
        begin();
        let amid = ask_elsewhere(before);
        assert!(ask_elsewhere(|| quiet.may_have_child()));
        over();
        assert!(
            ask_elsewhere(|| quiet.may_have_child()),
            "a whole fork lay between"
        );
        assert!(
            ask_elsewhere(|| amid.may_have_child()),
            "it ended in between"
        );
    }
}
