//! Epolls that watch connections over DDP: an event that is framing alone is none of the program's.
//!
//! An event names what the program chose, not a descriptor. So a socket remembers with what it was last entered; one
//! that is in several epolls, or there twice, is reported as the kernel has it.

use std::ffi::{c_int, c_void};

use libc::epoll_event;
use weft_os::dgram;
use weft_sockets::stack::{Kind, Stack};
use weft_sockets::tcp::{Record, Watch};

use super::TcpSocket;
use crate::edge::{get, put};
use crate::real::Real;

const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;

impl TcpSocket {
    /// The program did this with the descriptor in an epoll.
    pub(super) fn note_watch(self, epoll: c_int, operation: c_int, event: *const epoll_event) {
        let watch = match operation {
            libc::EPOLL_CTL_DEL => None,
            _ => get(event).map(|event| Watch {
                epoll,
                fd: self.fd,
                events: event.events,
                data: event.u64,
            }),
        };
        self.record
            .set_watch(operation == libc::EPOLL_CTL_ADD, watch);
    }
}

/// Takes the events away that say only that framing came; gives how many are left of the first `ready` of `list`.
pub fn sift(stack: &Stack, epoll: c_int, list: *mut epoll_event, ready: c_int) -> c_int {
    let sockets = &stack.kinds().streams;
    if !sockets.has_doubtful() {
        return ready;
    }
    let mut left = ready;
    for record in sockets.doubtful() {
        let Some(watch) = record.watch().filter(|watch| watch.epoll == epoll) else {
            continue;
        };
        let found = (0..left as usize).find_map(|number| {
            let event = get(list.wrapping_add(number))?;
            let is_it = event.u64 == watch.data && event.events & READABLE != 0;
            is_it.then_some((number, event))
        });
        let Some((number, mut event)) = found else {
            continue;
        };
        if !is_its_own(stack, record, &watch) || sockets.is_readable(record, watch.fd) {
            continue;
        }
        event.events &= !READABLE;
        if event.events != 0 {
            let _ = put(list.wrapping_add(number), event);
            continue;
        }
        for behind in number + 1..left as usize {
            if let Some(event) = get(list.wrapping_add(behind)) {
                let _ = put(list.wrapping_add(behind - 1), event);
            }
        }
        left -= 1;
        if watch.events & libc::EPOLLONESHOT as u32 != 0 {
            arm_again(&watch);
        }
    }
    left
}

/// Whether the event that names what this socket was entered with may be the socket's.
fn is_its_own(stack: &Stack, record: &Record, watch: &Watch) -> bool {
    // The number may be another socket's by now: a call on that with the state of this would ruin both.
    if !stack.is_known_as(watch.fd, Kind::Streams, record.number()) {
        return false;
    }
    // Others may be entered with the same. While the connection starts the thread may have taken what the kernel saw.
    let connection = stack.kinds().streams.connection(record, watch.fd);
    connection.is_some_and(|connection| connection.needs_service())
        || dgram::ready(watch.fd, libc::POLLIN, 0) != 0
}

/// The kernel has reported the event and watches no longer; the program has not seen it.
fn arm_again(watch: &Watch) {
    type Signature = unsafe extern "C-unwind" fn(c_int, c_int, c_int, *mut c_void) -> c_int;
    static REAL: Real<Signature> = Real::new(c"epoll_ctl");
    listed!(REAL);
    let mut event = epoll_event {
        events: watch.events,
        u64: watch.data,
    };
    let at = std::ptr::from_mut(&mut event).cast();
    // SAFETY: the event is ours, and the call reads it.
    let _ = unsafe { REAL.get()(watch.epoll, libc::EPOLL_CTL_MOD, watch.fd, at) };
}
