//! Locks for code that a signal handler, a fork or another process may meet.
//!
//! A lock of the standard library hangs when a signal handler comes back for it, and is lost when
//! a process forks while another thread holds it. These say so instead.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::process;
use crate::sys;

const FREE: usize = 0;
/// Beside the holder in a lock's word; what names a thread is aligned and leaves the bit.
const WAITED_FOR: usize = 1;
/// A free lock between processes.
const NOBODY: u32 = 0;

/// A lock of this process around a value.
#[derive(Debug)]
pub struct Lock<T> {
    /// The thread that holds it. It is there from the first moment: a signal handler that comes
    /// right after must know.
    word: AtomicUsize,
    /// The process that held it last.
    process: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is only reached through a guard, of which there is one at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

/// What came of asking for a lock.
#[derive(Debug)]
pub enum Locked<'a, T> {
    /// It is held now.
    Held(Guard<'a, T>),
    /// It is held now; a thread of the parent held it when this process was forked, and the value
    /// is as that left it.
    Orphaned(Guard<'a, T>),
    /// This thread holds it already: a signal handler came in between.
    Again,
}

/// Gives the lock back when dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Lock<T> {
    /// A free lock.
    pub const fn new(value: T) -> Lock<T> {
        Lock {
            word: AtomicUsize::new(FREE),
            process: AtomicU32::new(NOBODY),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock; waits for another thread, never for the calling one.
    #[inline]
    pub fn lock(&self) -> Locked<'_, T> {
        let own = process::thread();
        let taken = self
            .word
            .compare_exchange(FREE, own, Ordering::Acquire, Ordering::Relaxed);
        match taken {
            Ok(_) => Locked::Held(self.held()),
            Err(_) => self.contend(own),
        }
    }

    #[inline]
    fn held(&self) -> Guard<'_, T> {
        let own = process::id();
        if self.process.load(Ordering::Relaxed) != own {
            self.process.store(own, Ordering::Relaxed);
        }
        Guard { lock: self }
    }

    #[cold]
    fn contend(&self, own: usize) -> Locked<'_, T> {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let holder = word & !WAITED_FOR;
            let process = self.process.load(Ordering::Relaxed);
            let foreign = process != NOBODY && process != process::id();
            // In a forked child the holder does not exist, whatever thread has its name now.
            let next = match holder {
                FREE => own | WAITED_FOR,
                _ if foreign => own | WAITED_FOR,
                _ if holder == own => return Locked::Again,
                _ => word | WAITED_FOR,
            };
            let changed =
                self.word
                    .compare_exchange(word, next, Ordering::Acquire, Ordering::Relaxed);
            match changed {
                Err(_) => continue,
                Ok(_) if holder == FREE => return Locked::Held(self.held()),
                Ok(_) if foreign => return Locked::Orphaned(self.held()),
                Ok(_) => wait_word(&self.word, next),
            }
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed mutably.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word.swap(FREE, Ordering::Release) & WAITED_FOR != 0 {
            futex(&self.lock.word, libc::FUTEX_WAKE, 1, None);
        }
    }
}

/// Sleeps while the low half of `word` is that of `value`.
fn wait_word(word: &AtomicUsize, value: usize) {
    futex(word, libc::FUTEX_WAIT, value as u32, None);
}

/// A lock between processes: a word in shared memory that holds the process that has it.
#[derive(Debug)]
pub struct SharedGuard<'a> {
    word: &'a AtomicU32,
}

/// Takes a lock whose word is in shared memory. A holder that died is succeeded.
pub fn lock_shared(word: &AtomicU32) -> SharedGuard<'_> {
    const LOOK_EVERY_NS: u64 = 50_000_000;
    let own = process::id();
    loop {
        match word.compare_exchange(NOBODY, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return SharedGuard { word },
            Err(holder) => {
                futex_wait(word, holder, Some(LOOK_EVERY_NS));
                if word.load(Ordering::Relaxed) == holder && !process::exists(holder) {
                    let _ =
                        word.compare_exchange(holder, NOBODY, Ordering::Acquire, Ordering::Relaxed);
                }
            }
        }
    }
}

/// The same, for so long at most. Nothing where it was held all that time.
pub fn lock_shared_within(word: &AtomicU32, within: Duration) -> Option<SharedGuard<'_>> {
    const LOOK_EVERY_NS: u64 = 1_000_000;
    let (own, begun) = (process::id(), Instant::now());
    loop {
        match word.compare_exchange(NOBODY, own, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => return Some(SharedGuard { word }),
            Err(_) if begun.elapsed() >= within => return None,
            Err(holder) if !process::exists(holder) => {
                let _ = word.compare_exchange(holder, NOBODY, Ordering::Acquire, Ordering::Relaxed);
            }
            Err(holder) => futex_wait(word, holder, Some(LOOK_EVERY_NS)),
        }
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.word.store(NOBODY, Ordering::Release);
        futex_wake(self.word, i32::MAX as u32);
    }
}

/// Sleeps while `word` is `value`, at most `ns` nanoseconds; may wake for no reason.
pub fn futex_wait(word: &AtomicU32, value: u32, ns: Option<u64>) {
    futex(word, libc::FUTEX_WAIT, value, ns);
}

/// Wakes up to `count` that sleep on `word`.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    futex(word, libc::FUTEX_WAKE, count, None);
}

/// The system call, on the four octets at `word`.
fn futex<W>(word: &W, operation: i32, value: u32, ns: Option<u64>) {
    let time = ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // The low half of a pointer-sized word is what a 32-bit futex has to look at.
    let low = std::mem::size_of::<W>() - 4;
    let offset = if cfg!(target_endian = "big") { low } else { 0 };
    let args = [
        std::ptr::from_ref(word) as usize + offset,
        operation as usize,
        value as usize,
        time as usize,
        0,
        0,
    ];
    // SAFETY: the kernel reads the word and the time, which outlive the call.
    let _ = unsafe { sys::call(libc::SYS_futex, args) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held<T>(locked: Locked<'_, T>) -> Guard<'_, T> {
        match locked {
            Locked::Held(guard) => guard,
            _ => panic!("not held"),
        }
    }

    #[test]
    fn a_thread_that_comes_back_is_told() {
        let lock = Lock::new(1);
        let guard = held(lock.lock());
        assert!(matches!(lock.lock(), Locked::Again));
        drop(guard);
        held(lock.lock());
    }

    #[test]
    fn threads_exclude_each_other() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *held(lock.lock()) += 1;
                    }
                });
            }
        });
        assert_eq!(*held(lock.lock()), 80_000);
    }

    #[test]
    fn a_dead_process_is_succeeded() {
        process::watch();
        // No process has this id: it is above the kernel's greatest.
        let word = AtomicU32::new(1 << 22);
        drop(lock_shared(&word));
        assert_eq!(word.load(Ordering::Relaxed), NOBODY);
    }
}
