//! What a program is told of room where a send was refused until the peer gives some.

use weft_os::{poll, stream};

use super::{Record, Streams, Watch};
use crate::ddp::Connection;

pub(super) const READABLE: u32 = libc::EPOLLIN as u32;
pub(super) const WRITABLE: u32 = libc::EPOLLOUT as u32;

impl Streams {
    /// Whether the program can send to a socket that the kernel calls writable.
    pub fn is_writable(&'static self, record: &'static Record, fd: i32) -> bool {
        let Some(connection) = self.connection(record, fd) else {
            return true;
        };
        let has_room = self.has_room(record, connection);
        if owes_edge(record, connection) {
            // The program has heard of none, and hears of nothing more by itself.
            self.leave_to_thread(record, connection);
        }
        has_room
    }

    /// Whether no send was refused for want of the peer's room, or there is some by now. Who watches for an edge is
    /// given one then: the kernel's socket has had room all the time.
    pub(super) fn has_room(&self, record: &Record, connection: Connection<'static>) -> bool {
        if !connection.slot().is_short() && !connection.wants_room() {
            return true;
        }
        // An error is something to be told.
        if connection.is_still_short() == Ok(true) {
            return false;
        }
        connection.slot().set_short(false);
        give_edges(record, connection.fd(), WRITABLE);
        true
    }
}

/// Whether somebody watches for an edge that comes with the peer's room. A watch for octets as well is woken by what
/// gives room; one for room alone is not, so that the thread has to look.
pub(super) fn owes_edge(record: &Record, connection: Connection<'static>) -> bool {
    connection.slot().is_short() && record.watches().any(|watch| is_by_edge(&watch, WRITABLE))
}

/// A watch for one event is entered anew by the program itself.
fn is_by_edge(watch: &Watch, of: u32) -> bool {
    const EDGE: u32 = libc::EPOLLET as u32;
    const ONCE: u32 = libc::EPOLLONESHOT as u32;
    watch.events & (EDGE | ONCE) == EDGE && watch.events & of != 0
}

/// Gives an edge to everybody who watches for one of these events, by the number that the socket is watched by, if that
/// is its own still: `fd` is.
pub(super) fn give_edges(record: &Record, fd: i32, of: u32) {
    let is_its =
        |number: i32| number == fd || stream::inode(number) == Some(record.references.inode());
    let watches = record.watches().filter(|watch| is_by_edge(watch, of));
    watches.filter(|watch| is_its(watch.fd)).for_each(|watch| {
        poll::watch_again(watch.epoll, watch.fd, watch.events, watch.data);
    });
}
