//! Epolls that watch connections over DDP: an event that is framing alone is none of the program's.
//!
//! An event names what the program chose, not a descriptor. So a socket remembers with what it was entered in each, and
//! an event that may as well be another descriptor's is reported as the kernel has it.

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
        match watch_of(epoll, operation, self.fd, event) {
            Some(watch) => self.sockets().watched(self.record, watch),
            None => self
                .sockets()
                .watched_no_more(self.record, Some(epoll), self.fd),
        }
    }
}

/// The same of a descriptor that is none of a TCP socket: it may be there with the same word as one.
pub fn note_other(
    stack: &'static Stack,
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *const epoll_event,
) {
    let sockets = &stack.kinds().streams;
    match watch_of(epoll, operation, fd, event) {
        Some(watch) => sockets.other_watched(watch),
        None => sockets.other_watched_no_more(Some(epoll), fd),
    }
}

fn watch_of(epoll: c_int, operation: c_int, fd: c_int, event: *const epoll_event) -> Option<Watch> {
    let event = get(event).filter(|_| operation != libc::EPOLL_CTL_DEL)?;
    Some(Watch {
        epoll,
        fd,
        events: event.events,
        data: event.u64,
    })
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
        for watch in record.watches().filter(|watch| watch.epoll == epoll) {
            let sifted = sift_of(stack, record, &watch, list, left);
            left = sifted.left;
            looks_again |= sifted.looks_again;
        }
    }
    Sifted { left, looks_again }
}

/// The same of one socket, as it was entered.
fn sift_of(
    stack: &'static Stack,
    record: &'static Record,
    watch: &Watch,
    list: *mut epoll_event,
    ready: c_int,
) -> Sifted {
    let sockets = &stack.kinds().streams;
    let mut sifted = Sifted::nothing(ready);
    let found = (0..ready as usize).find_map(|number| {
        let event = get(list.wrapping_add(number))?;
        let is_it = event.u64 == watch.data && event.events & (READABLE | WRITABLE) != 0;
        is_it.then_some((number, event))
    });
    let Some((number, mut event)) = found else {
        return sifted;
    };
    // It may be another's event, which comes once. To be told of one for nothing harms no program.
    if sockets.shares_word(record, watch) {
        return sifted;
    }
    let (own, mut hidden) = (own_events(stack, record, watch) & event.events, 0);
    if own & READABLE != 0 && !sockets.is_readable(record, watch.fd) {
        hidden |= READABLE;
        sifted.looks_again |= sockets.is_asking(record);
    }
    if own & WRITABLE != 0 && !sockets.is_writable(record, watch.fd) {
        hidden |= WRITABLE;
        sifted.looks_again = true;
    }
    if event.events & hidden == 0 {
        return sifted;
    }
    event.events &= !hidden;
    if event.events != 0 {
        let _ = put(list.wrapping_add(number), event);
        return sifted;
    }
    for behind in number + 1..ready as usize {
        if let Some(event) = get(list.wrapping_add(behind)) {
            let _ = put(list.wrapping_add(behind - 1), event);
        }
    }
    sifted.left -= 1;
    if watch.events & libc::EPOLLONESHOT as u32 != 0 {
        // The kernel has reported the event and watches no longer; the program has not seen it.
        weft_os::poll::watch_again(watch.epoll, watch.fd, watch.events, watch.data);
    }
    sifted
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
