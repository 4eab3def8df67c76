//! Who may take the head of the kernel's queue of a socket: it is looked at first and taken in a second call.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use weft_os::lock::{lock_shared_within, Guard, Lock, Locked, SharedGuard};

/// How long another process is waited for that looks at the head. Who holds it may be the very thread that asks, which
/// a signal handler interrupted.
const HELD_WITHIN: Duration = Duration::from_millis(100);

/// The lock of one socket.
#[derive(Debug)]
pub(crate) struct Heads(Lock<Option<&'static AtomicU32>>);

/// The right to take the head.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    _in_process: Guard<'a, Option<&'static AtomicU32>>,
    _among_processes: Option<SharedGuard<'static>>,
}

impl Heads {
    pub(crate) const fn new() -> Heads {
        Heads(Lock::new(None))
    }

    /// From here on those of another socket. `among`: where processes that are forked from each other lock.
    pub(crate) fn begin(&self, among: Option<&'static AtomicU32>) {
        if let Locked::Held(mut word) | Locked::Orphaned(mut word) = self.0.lock() {
            *word = among;
        }
    }

    /// Where they lock.
    pub(crate) fn among(&self) -> Option<&'static AtomicU32> {
        match self.0.lock() {
            Locked::Held(word) | Locked::Orphaned(word) => *word,
            Locked::Again => None,
        }
    }

    /// Takes the lock, of a socket that other processes may have where it `is_shared`. Nothing where the calling thread
    /// has it.
    pub(crate) fn take(&self, is_shared: bool) -> Option<Head<'_>> {
        let (Locked::Held(word) | Locked::Orphaned(word)) = self.0.lock() else {
            return None;
        };
        let among = match word.filter(|_| is_shared) {
            Some(word) => Some(lock_shared_within(word, HELD_WITHIN)?),
            None => None,
        };
        Some(Head {
            _in_process: word,
            _among_processes: among,
        })
    }
}
