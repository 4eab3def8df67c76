//! What the program enters in its epolls.

use std::ffi::{c_int, c_void};

use libc::epoll_event;

use crate::calls;
use crate::edge::caught;
use crate::mine::{known, mine};
use crate::socket::Socket;
use crate::stack::stack;
use crate::tcp::events;

hook!(fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int, real => {
    // A socket is classified before it is waited for: afterwards its first use may be in a signal handler.
    match mine(fd) {
        // Some programs change an epoll with every request, and most have nothing in it that matters here.
        None if !others_matter() => real(),
        // SAFETY: the program's own call, with its own arguments.
        _ => unsafe { change_and_note(epoll, operation, fd, event.cast()) },
    }
});

/// Whether it is to be remembered which descriptors that are none of ours are in epolls.
#[inline(always)]
fn others_matter() -> bool {
    stack().is_some_and(|stack| stack.kinds().streams.others_matter())
}

/// Makes a call of `epoll_ctl` and notes what it has changed. `mine` has looked at the descriptor before.
///
/// # Safety
/// As for `epoll_ctl`.
#[inline(never)]
unsafe fn change_and_note(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    let mine = known(fd);
    // SAFETY: the caller vouches for the arguments.
    let status = unsafe { calls::epoll_ctl(epoll, operation, fd, event) };
    if status != 0 {
        return status;
    }
    match mine {
        Some(mine) => mine.watched(epoll, operation, event),
        None => note_other(epoll, operation, fd, event),
    }
    status
}

fn note_other(epoll: c_int, operation: c_int, fd: c_int, event: *const epoll_event) {
    if let Some(stack) = stack() {
        caught((), || {
            events::note_other(stack, epoll, operation, fd, event)
        });
    }
}
