//! Knowing that the process forked, and what a forked child has of its own.
//!
//! A child begins with a copy of its parent's memory and descriptors: of locks that threads held which it does not
//! have, and of sockets that go on being the parent's. What is its own it has to make anew, and it has to know what
//! is not.

use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::OnceLock;

pub use crate::generation::Generation;
use crate::{forking, generation, private};

static WATCHED: AtomicBool = AtomicBool::new(false);

extern "C" fn before() {
    private::before_fork();
}

extern "C" fn in_parent() {
    forking::over();
    private::after_fork();
}

extern "C" fn in_child() {
    generation::begin_next();
    forking::over();
    private::close_all();
}

/// Begins to watch for forks: in a child, [`Generation`]s of the parent are over from then on, and its copies of the
/// parent's sockets are closed, so that a peer notices when the parent ends.
///
/// Told of `fork` alone: a child of `vfork` or `posix_spawn` shares its parent's memory or executes another program,
/// and one that was made by a bare system call is taken for its parent.
pub fn watch() {
    // No lock: a fork while another thread is here must not leave a child that waits for that thread.
    if !WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handlers count, wait a while, and close descriptors: all of that is async-signal-safe.
        unsafe {
            libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
        }
    }
}

/// A value that each process of a family of forks has for itself: a child begins with none.
///
/// What the parent had stays where it is, untouched, as the memory of the child it is in: objects of the parent refer
/// to it, and its locks may be held for good.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    /// The value of the process that was here last; never freed, one for each generation.
    slot: AtomicPtr<Slot<T>>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: Generation,
    value: OnceLock<T>,
}

impl<T> PerProcess<T> {
    /// No value yet.
    pub const fn new() -> PerProcess<T> {
        PerProcess {
            slot: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// This process's value, which `make` makes if it has none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        watch();
        let now = Generation::now();
        let slot = loop {
            let there = self.slot.load(Ordering::Acquire);
            match own(there, now) {
                Some(slot) => break slot,
                None => self.replace(there, now),
            }
        };
        slot.value.get_or_init(make)
    }

    /// This process's value, if it has one.
    pub fn get(&self) -> Option<&'static T> {
        let there = self.slot.load(Ordering::Acquire);
        own(there, Generation::now())?.value.get()
    }

    /// Puts an empty slot of this generation in place of one that is over, unless another thread did.
    fn replace(&self, there: *mut Slot<T>, generation: Generation) {
        let value = OnceLock::new();
        let new = Box::into_raw(Box::new(Slot { generation, value }));
        let put = self
            .slot
            .compare_exchange(there, new, Ordering::AcqRel, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: made from a box just above, and nobody else has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
    }
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        PerProcess::new()
    }
}

/// The value of a cell that keeps what was made first, in children too. It is made outside of the cell: of one that a
/// thread is filling as the process forks, the child would wait for that thread.
pub fn once<T>(cell: &'static OnceLock<T>, make: impl FnOnce() -> T) -> &'static T {
    match cell.get() {
        Some(value) => value,
        None => {
            let made = make();
            cell.get_or_init(|| made)
        }
    }
}

/// The slot at this address, if there is one of this generation.
fn own<T>(slot: *mut Slot<T>, now: Generation) -> Option<&'static Slot<T>> {
    // SAFETY: null, or made from a box by `replace` and never freed once it is in place; only shared references are
    // made.
    let slot = unsafe { slot.as_ref() }?;
    (slot.generation == now).then_some(slot)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What a child that runs `act` says: its exit status.
    pub(crate) fn in_a_child(act: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the child allocates, which the C library allows after `fork`, and leaves without running handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let well = act();
            // SAFETY: as above.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child just made.
        unsafe { libc::waitpid(child, &mut status, 0) };
        status
    }

    #[test]
    fn children_and_theirs_begin_with_nothing_and_leave_the_parents_alone() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        assert_eq!(VALUE.get(), None);
        assert_eq!(*VALUE.get_or_init(|| 1), 1);
        let here = Generation::now();
        let status = in_a_child(|| {
            let first = here.is_over() && VALUE.get().is_none() && *VALUE.get_or_init(|| 2) == 2;
            let second = in_a_child(|| VALUE.get().is_none() && *VALUE.get_or_init(|| 3) == 3);
            first && second == 0 && VALUE.get() == Some(&2)
        });
        assert_eq!(status, 0);
        assert!(!here.is_over());
        assert_eq!(*VALUE.get_or_init(|| 4), 1);
    }

    /// A thread that is about to make the value is not there in the child.
    #[test]
    fn a_value_half_made_by_another_thread_holds_no_child_up() {
        static VALUE: PerProcess<u32> = PerProcess::new();
        let (begun, other) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                VALUE.get_or_init(|| {
                    begun.wait();
                    other.wait();
                    1
                })
            });
            begun.wait();
            assert_eq!(in_a_child(|| *VALUE.get_or_init(|| 2) == 2), 0);
            other.wait();
        });
        assert_eq!(VALUE.get(), Some(&1));
    }
}
