//! Looking for what a wait for several descriptors waits for, for a moment, before its thread sleeps (decision 0056).

use std::cell::Cell;
use std::ffi::c_int;
use std::time::Duration;

use weft_os::busy_poll::giving_way;
use weft_os::busy_poll::short_waits::ShortWaits;
use weft_os::dgram;
use weft_sockets::stack::Stack;

use crate::limit::Limit;

thread_local! {
    /// The thread's waits lately.
    static WAITS: Cell<ShortWaits> = const { Cell::new(ShortWaits::new()) };
}

fn now() -> Duration {
    Duration::from_nanos(dgram::now())
}

/// Waits up to a limit, and looks first where the waits before were short. `wait` makes the call with another limit,
/// and gives what it does: a number above 0, 0 where nothing was ready in time, and -1 with errno.
pub fn wait_looking(stack: &Stack, limit: Limit, mut wait: impl FnMut(Limit) -> c_int) -> c_int {
    if limit.left_ns() == Some(0) {
        return wait(limit);
    }
    let begun = WAITS.get().begin(now(), stack.busy_poll());
    let ready = match begun.looks_until() {
        Some(until) => match look(until, limit, &mut wait) {
            0 => wait(limit),
            ready => ready,
        },
        None => wait(limit),
    };
    // A handler may have waited meanwhile: one lesson is as good as the other.
    let mut waits = WAITS.get();
    match ready > 0 {
        true => waits.end(begun, now()),
        // Else a program that is idle, and waits with a timeout, would look each time.
        false => waits.end_in_vain(begun),
    }
    WAITS.set(waits);
    ready
}

/// The same without sleeping, until then.
fn look(until: Duration, limit: Limit, wait: &mut impl FnMut(Limit) -> c_int) -> c_int {
    loop {
        let ready = wait(Limit::NOW);
        if ready != 0 || now() >= until || limit.left_ns() == Some(0) {
            return ready;
        }
        // The peer may need this very core for its answer.
        giving_way::look();
    }
}
