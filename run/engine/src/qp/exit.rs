//! What leaves when the process exits.
//!
//! Posts may wait for others, and answers for the next post, some hundred microseconds: a process that exits meanwhile
//! has nobody left who looks again. On a device they would be on the wire.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::meeting::Meetings;
use super::rings::ring;
use super::table::Table;
use super::Qp;
use crate::engine::{started, Engine};

/// A thread that holds a lock as the process exits may never let go of it: `exit` is called from signal handlers too.
const LOCK_TIME_MAX: Duration = Duration::from_millis(20);

/// Sees to it that what waits in any queue pair leaves when the process exits.
pub(super) fn wakeups() {
    // A child has its parent's handlers, and may have queue pairs too.
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if !WATCHED.swap(true, Ordering::Relaxed) {
        weft_os::exit::at_exit(leave);
    }
}

/// The process is at its end.
static LEAVING: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// This thread ends it.
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the calling thread for good once another one ends the process. Programs destroy what another thread of theirs
/// is about to wait on, and exit: with a device the process is over before that thread finds out, and here what waits
/// in the network leaves first.
pub fn hold_while_leaving() {
    while LEAVING.load(Ordering::Acquire) && !LEAVES.get() {
        std::thread::park();
    }
}

extern "C" fn leave() {
    LEAVES.set(true);
    LEAVING.store(true, Ordering::Release);
    // Nobody is there to be told of a panic.
    let _ = catch_unwind(|| {
        if let Some(engine) = started() {
            send_what_waits(&engine);
            engine.part::<Meetings>().leave();
            engine.network.leave();
        }
    });
}

fn send_what_waits(engine: &Engine) {
    // Held throughout, so that no pass waits for it.
    let Some(_regions) = engine.regions.try_read_recursive_for(LOCK_TIME_MAX) else {
        return;
    };
    for qp in engine.part::<Table>().living(LOCK_TIME_MAX) {
        qp.send_last(engine);
    }
}

impl Qp {
    /// What is due leaves, and nobody is told what follows from it.
    fn send_last(&self, engine: &Engine) {
        if let Some(mut inner) = self.inner.try_lock_for(LOCK_TIME_MAX) {
            let _ = self.transmit(&mut inner, engine);
            ring(&inner);
        }
    }
}
