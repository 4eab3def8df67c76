//! What a program leaves behind when it exits.
//!
//! Posts may wait for others, and answers for the next post, some hundred microseconds: a process that exits meanwhile
//! has nobody left who looks again. On a device they would be on the wire.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{started, Engine};
use crate::qp::Qp;

/// A thread that holds a lock as the process exits may never let go of it: `exit` is called from signal handlers too.
pub(crate) const PATIENCE: Duration = Duration::from_millis(20);

/// Sees to it that what waits in any connection leaves when the process exits.
pub(crate) fn watch_exit() {
    // A child has its parent's handlers, and may start an engine too.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        weft_os::exit::at_exit(leave);
    }
}

extern "C" fn leave() {
    // Nobody is there to be told of a panic.
    let _ = catch_unwind(|| {
        if let Some(engine) = started() {
            engine.send_what_waits();
        }
    });
}

impl Engine {
    fn send_what_waits(&self) {
        // Held throughout, so that no pass waits for it.
        let Some(_regions) = self.regions.try_read_recursive_for(PATIENCE) else {
            return;
        };
        for qp in self.living() {
            qp.send_last(self);
        }
    }

    fn living(&self) -> Vec<Arc<Qp>> {
        let table = self.queue_pairs.try_lock_for(PATIENCE);
        table.map_or_else(Vec::new, |all| {
            all.values().filter_map(|qp| qp.upgrade()).collect()
        })
    }
}
