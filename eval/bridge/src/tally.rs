//! What a direction tells others while it runs.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weft_link::PathCounters;

use crate::lateness::Lateness;

/// The sums of a direction, with the names of its interfaces.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) from: String,
    pub(crate) to: String,
    sums: Mutex<Sums>,
}

/// The sums of a direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) path: PathCounters,
    pub(crate) lateness: Lateness,
    /// Frames that the kernel dropped before they were taken in, because the ring was full.
    pub(crate) overrun: u64,
    /// Frames that came too long for the ring.
    pub(crate) truncated: u64,
    /// Frames that the interface did not take.
    pub(crate) not_sent: u64,
    /// Frames longer than the interface's MTU.
    pub(crate) too_long: u64,
    /// Why the direction ended before it was told to.
    pub(crate) ended: Option<String>,
}

impl Tally {
    pub(crate) fn new(from: String, to: String) -> Tally {
        Tally {
            from,
            to,
            sums: Mutex::default(),
        }
    }

    pub(crate) fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
