//! What becomes of a socket when a descriptor of it goes.

use std::time::Duration;

use weft_os::descriptors::APART;
use weft_os::{file, process, sched};

use super::Descriptors;
use crate::kind::Kinds;
use crate::table::{Entry, Socket};

impl<S: Kinds> Descriptors<S> {
    /// `fd` is about to be closed.
    pub fn closing(&'static self, fd: i32) {
        self.closing_apart(fd);
        if self.table.get(fd) == Entry::Unknown || self.is_borrowed() {
            return;
        }
        self.forget(fd);
    }

    /// Descriptors `first` to `last` are about to be closed.
    pub fn closing_range(&'static self, first: u32, last: u32) {
        if self.is_borrowed() {
            return;
        }
        for fd in self.table.sockets(first, last) {
            self.forget(fd);
        }
        self.table.forget_kernels(first, last);
        for sockets in self.each_kind() {
            sockets.closing_numbers(first, last);
        }
    }

    /// The same of one number where some of Weft's own may be.
    fn closing_apart(&self, fd: i32) {
        if fd >= APART && !self.is_borrowed() {
            for sockets in self.each_kind() {
                sockets.closing_numbers(fd as u32, fd as u32);
            }
        }
    }

    /// The process is about to end, or to become another program. Waits until what waits in its sockets has left,
    /// within bounds of their own.
    pub fn ending(&self) {
        const LOOK_EVERY: Duration = Duration::from_millis(1);
        if self.is_confined() || process::is_borrowed() {
            return self.flush_all();
        }
        let begun = sched::now_ms();
        let is_done = |waited| {
            let mut sockets = self.table.sockets(0, u32::MAX);
            let of_descriptors = sockets.by_ref().fold(true, |done, fd| {
                let socket = self.known(fd);
                let ending = |socket: Socket<S::Kind>| {
                    let sockets = self.kinds.sockets(socket.kind);
                    sockets.ending(socket.number, fd, waited)
                };
                socket.is_none_or(ending) && done
            });
            let mut closed = true;
            for sockets in self.each_kind() {
                closed &= sockets.ending_closed(waited);
            }
            of_descriptors && closed
        };
        while !is_done(sched::now_ms().wrapping_sub(begun)) {
            sched::pause(LOOK_EVERY);
        }
    }

    /// Whatever `fd` stood for, it does no longer; what waits in it leaves.
    pub(super) fn forget(&'static self, fd: i32) {
        let Some(socket) = self.known(fd) else {
            self.table.set(fd, Entry::Unknown);
            return;
        };
        let sockets = self.kinds.sockets(socket.kind);
        sockets.closing(socket.number, fd);
        self.table.set(fd, Entry::Unknown);
        if sockets.needs_descriptor(socket.number) {
            let mut others = self.table.sockets(0, u32::MAX);
            if let Some(other) = others.find(|other| self.known(*other) == Some(socket)) {
                sockets.go_on_with(socket.number, other);
            }
        }
        self.remove_reference(socket);
    }

    /// `new` is about to be made a duplicate of `old`, which closes it; nothing where that will fail. What else could
    /// stand in the way of the kernel's call are arguments that no program gives.
    pub fn overwriting(&'static self, old: i32, new: i32) {
        if new >= APART && file::is_open(old) {
            self.closing_apart(new);
        }
        if self.known(new).is_some() && file::is_open(old) {
            self.forgetting(new);
        }
    }

    /// `fd` is about to be made a duplicate of something that nobody will tell of.
    pub fn forgetting(&'static self, fd: i32) {
        if !self.is_borrowed() {
            self.forget(fd);
        }
    }
}
