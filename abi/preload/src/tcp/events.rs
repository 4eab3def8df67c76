//! Epolls that watch connections over DDP: an event that is framing alone is none of the program's.
//!
//! An event names what the program chose, not a descriptor. So a socket remembers with what it was last entered; one
//! that is in several epolls, or there twice, is reported as the kernel has it.

use std::ffi::c_int;

use libc::epoll_event;
use weft_sockets::stack::Stack;
use weft_sockets::tcp::Watch;

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
        self.record
            .set_watch(operation == libc::EPOLL_CTL_ADD, watch);
    }
}

/// Takes the events away that say only that framing came, or that the socket has room where the peer has none; gives
/// how many are left of the first `ready` of `list`.
pub fn sift(stack: &'static Stack, epoll: c_int, list: *mut epoll_event, ready: c_int) -> Sifted {
    let sockets = &stack.kinds().streams;
    if !sockets.has_doubtful() {
        return Sifted::nothing(ready);
    }
    let (mut left, mut hides_room) = (ready, false);
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
        let mut hidden = 0;
        if event.events & READABLE != 0 && !sockets.is_readable(record, watch.fd) {
            hidden |= READABLE;
        }
        if event.events & WRITABLE != 0 && !sockets.is_writable(record, watch.fd) {
            hidden |= WRITABLE;
            hides_room = true;
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
    Sifted { left, hides_room }
}
