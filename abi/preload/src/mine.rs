//! Whose descriptor it is: the one place in the hooks that knows which kinds of sockets there are.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{epoll_event, mmsghdr, msghdr, socklen_t, timespec};
use weft_os::user::UserBuffers;
use weft_sockets::stack::{self, Kind, Stack};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::edge::List;
use crate::socket::{Beside, FileOctets, Socket};
use crate::stack::stack;
use crate::tcp::TcpSocket;
use crate::udp::UdpSocket;

/// A descriptor of the program's that stands for a socket of ours.
#[derive(Clone, Copy)]
pub enum Mine {
    /// One of UDP.
    Datagrams(UdpSocket),
    /// One of TCP.
    Streams(TcpSocket),
}

/// Does the same with a socket of every kind.
macro_rules! each {
    ($mine:expr, $socket:ident => $work:expr) => {
        match $mine {
            Mine::Datagrams($socket) => $work,
            Mine::Streams($socket) => $work,
        }
    };
}

impl Mine {
    #[inline(always)]
    fn new(stack: &'static Stack, socket: stack::Socket, fd: c_int) -> Option<Mine> {
        match socket.kind {
            Kind::Datagrams => UdpSocket::new(stack, socket.number, fd).map(Mine::Datagrams),
            Kind::Streams => TcpSocket::new(stack, socket.number, fd).map(Mine::Streams),
        }
    }
}

/// Whether `fd` is a socket of ours. Nearly always not; without a rule this is one load.
#[inline(always)]
pub fn mine(fd: c_int) -> Option<Mine> {
    let stack = stack()?;
    Mine::new(stack, stack.socket(fd)?, fd)
}

/// The same, for a call that files have too: descriptors that nobody has looked at are looked at only where a rule
/// needs it.
#[inline(always)]
pub fn mine_or_file(fd: c_int) -> Option<Mine> {
    let stack = stack()?;
    Mine::new(stack, stack.met_by_read(fd)?, fd)
}

/// The same, without looking at descriptors nobody has looked at.
#[inline(always)]
pub fn known(fd: c_int) -> Option<Mine> {
    let stack = stack()?;
    Mine::new(stack, stack.known(fd)?, fd)
}

impl Socket for Mine {
    #[inline(always)]
    fn send(self, to: Option<&[u8]>, data: &UserBuffers, flags: c_int) -> Verdict {
        each!(self, socket => socket.send(to, data, flags))
    }

    fn send_list(self, to: Option<&[u8]>, data: List, flags: c_int) -> Verdict {
        each!(self, socket => socket.send_list(to, data, flags))
    }

    fn send_with_control(self, message: &msghdr, flags: c_int) -> Option<Verdict> {
        each!(self, socket => socket.send_with_control(message, flags))
    }

    fn send_file(self, from: FileOctets, real: impl FnOnce() -> isize) -> isize {
        each!(self, socket => socket.send_file(from, real))
    }

    fn receive_to_pipe(
        self,
        pipe: c_int,
        most: usize,
        flags: c_uint,
        real: impl FnOnce() -> isize,
    ) -> isize {
        each!(self, socket => socket.receive_to_pipe(pipe, most, flags, real))
    }

    #[inline(always)]
    fn sends_one_by_one(self, flags: c_int) -> bool {
        each!(self, socket => socket.sends_one_by_one(flags))
    }

    #[inline(always)]
    fn make_way(self, flags: c_int) -> Verdict {
        each!(self, socket => socket.make_way(flags))
    }

    #[inline(always)]
    fn receive(
        self,
        room: Result<&UserBuffers, List>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize {
        each!(self, socket => socket.receive(room, flags, beside, real))
    }

    #[inline(always)]
    fn receive_messages(
        self,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
        real: impl FnOnce() -> c_int,
    ) -> c_int {
        each!(self, socket => socket.receive_messages(messages, count, flags, timeout, real))
    }

    fn flush(self) {
        each!(self, socket => socket.flush());
    }

    fn connecting(self, to: &[u8]) -> Verdict {
        each!(self, socket => socket.connecting(to))
    }

    fn listening(self) -> Verdict {
        each!(self, socket => socket.listening())
    }

    fn listened(self) {
        each!(self, socket => socket.listened());
    }

    fn accepting(self) -> Verdict {
        each!(self, socket => socket.accepting())
    }

    fn connected(self) {
        each!(self, socket => socket.connected());
    }

    fn shutting_down(self, how: c_int) -> Verdict {
        each!(self, socket => socket.shutting_down(how))
    }

    fn setting_option(
        self,
        level: c_int,
        option: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> Verdict {
        each!(self, socket => socket.setting_option(level, option, value, len))
    }

    fn own_option(self, level: c_int, option: c_int) -> Option<c_int> {
        each!(self, socket => socket.own_option(level, option))
    }

    fn bound(self) {
        each!(self, socket => socket.bound());
    }

    fn awaited(self) {
        each!(self, socket => socket.awaited());
    }

    fn watched(self, epoll: c_int, operation: c_int, event: *const epoll_event) {
        each!(self, socket => socket.watched(epoll, operation, event));
    }

    fn is_framed(self) -> bool {
        each!(self, socket => socket.is_framed())
    }

    fn is_readable(self) -> bool {
        each!(self, socket => socket.is_readable())
    }

    fn is_asking(self) -> bool {
        each!(self, socket => socket.is_asking())
    }

    fn is_writable(self) -> bool {
        each!(self, socket => socket.is_writable())
    }

    fn take_error(self) -> Option<Errno> {
        each!(self, socket => socket.take_error())
    }

    fn next_len(self) -> Option<usize> {
        each!(self, socket => socket.next_len())
    }

    fn unsent(self, request: c_ulong) -> Option<usize> {
        each!(self, socket => socket.unsent(request))
    }
}
