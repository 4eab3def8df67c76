//! Epolls that watch connections over DDP: an event that is framing alone is none of the program's.
//!
//! An event names what the program chose, not a descriptor. So a socket remembers with what it was last entered; one
//! that is in several epolls, or there twice, is reported as the kernel has it.

use std::ffi::c_int;

use libc::epoll_event;
use weft_os::dgram;
use weft_sockets::stack::{Kind, Stack};
use weft_sockets::tcp::{Record, Watch};

use super::TcpSocket;
use crate::edge::{get, put};
use crate::sifted::Sifted;

const READABLE: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const WRITABLE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;

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
        let is_new = operation == libc::EPOLL_CTL_ADD;
        self.sockets().watched(self.record, is_new, watch);
    }
}

/// Takes the events away that say only that framing came, or that the socket has room where the peer has none; gives
/// how many are left of the first `ready` of `list`.
pub fn sift(stack: &'static Stack, epoll: c_int, list: *mut epoll_event, ready: c_int) -> Sifted {
    let sockets = &stack.kinds().streams;
    if !sockets.has_doubtful() {
        return Sifted::nothing(ready);
    }
    let (mut left, mut looks_again) = (ready, false);
    for record in sockets.doubtful() {
        let Some(watch) = record.watch().filter(|watch| watch.epoll == epoll) else {
            continue;
        };
        let found = (0..left as usize).find_map(|number| {
            let event = get(list.wrapping_add(number))?;
            let is_it = event.u64 == watch.data && event.events & (READABLE | WRITABLE) != 0;
            is_it.then_some((number, event))
        });
        let Some((number, mut event)) = found else {
            continue;
        };
        let (own, mut hidden) = (own_events(stack, record, &watch) & event.events, 0);
        if own & READABLE != 0 && !sockets.is_readable(record, watch.fd) {
            hidden |= READABLE;
            looks_again |= sockets.is_asking(record);
        }
        if own & WRITABLE != 0 && !sockets.is_writable(record, watch.fd) {
            hidden |= WRITABLE;
            looks_again = true;
        }
        if event.events & hidden == 0 {
            continue;
        }
        event.events &= !hidden;
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
            // The kernel has reported the event and watches no longer; the program has not seen it.
            weft_os::poll::watch_again(watch.epoll, watch.fd, watch.events, watch.data);
        }
    }
    Sifted { left, looks_again }
}

/// Which events that name what this socket was entered with may be the socket's: others may be entered with the same.
fn own_events(stack: &Stack, record: &Record, watch: &Watch) -> u32 {
    // The number may be another socket's by now: a call on that with the state of this would ruin both.
    if !stack.is_known_as(watch.fd, Kind::Streams, record.number()) {
        return 0;
    }
    let connection = stack.kinds().streams.connection(record, watch.fd);
    // While the connection starts the thread may have taken what the kernel saw.
    if connection.is_some_and(|connection| connection.needs_service()) {
        return READABLE | WRITABLE;
    }
    let ready = dgram::ready(watch.fd, libc::POLLIN | libc::POLLOUT, 0);
    let or_none = |flag, events| if ready & flag != 0 { events } else { 0 };
    or_none(libc::POLLIN, READABLE) | or_none(libc::POLLOUT, WRITABLE)
}
