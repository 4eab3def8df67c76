//! Telling a process from those that it was forked from.

use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the process that first watched for them ([`crate::fork::watch`]) and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// This process is a child that has just begun. Async-signal-safe.
pub(crate) fn begin_next() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Which process of a family of forks something was made by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation(u32);

impl Generation {
    /// This process.
    #[inline]
    pub fn now() -> Generation {
        Generation(FORKS.load(Ordering::Relaxed))
    }

    /// It was made by a process that this one was forked from.
    #[inline]
    pub fn is_over(self) -> bool {
        self != Generation::now()
    }
}
