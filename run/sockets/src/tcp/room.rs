//! What a program is told of room where a send was refused until the peer gives some.

use weft_os::poll;

use super::{Record, Streams};
use crate::ddp::Connection;

impl Streams {
    /// Whether the program can send to a socket that the kernel calls writable.
    pub fn is_writable(&self, record: &Record, fd: i32) -> bool {
        self.connection(record, fd)
            .is_none_or(|connection| self.has_room(record, connection))
    }

    /// Whether no send was refused for want of the peer's room, or there is some by now. Who watches for an edge is
    /// given one then: the kernel's socket has had room all the time.
    pub(super) fn has_room(&self, record: &Record, connection: Connection<'static>) -> bool {
        if !connection.slot().is_short() {
            return true;
        }
        // An error is something to be told.
        if connection.is_still_short() == Ok(true) {
            return false;
        }
        connection.slot().set_short(false);
        give_edge(record, connection.fd());
        true
    }
}

/// Only by the number that is known to be the socket's. A watch for one event is entered anew by the program itself.
fn give_edge(record: &Record, fd: i32) {
    const EDGE: u32 = (libc::EPOLLET | libc::EPOLLOUT) as u32;
    const ONCE: u32 = libc::EPOLLONESHOT as u32;
    let is_owed = |events: u32| events & (EDGE | ONCE) == EDGE;
    if let Some(watch) = record.watch() {
        if watch.fd == fd && is_owed(watch.events) {
            poll::watch_again(watch.epoll, watch.fd, watch.events, watch.data);
        }
    }
}
