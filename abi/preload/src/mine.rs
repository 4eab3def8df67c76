//! Whose descriptor it is: the one place in the hooks that knows which kinds of sockets there are.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, timespec};
use weft_os::user::UserBuffers;
use weft_sockets::stack::{self, Kind, Stack};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::socket::{Beside, Socket};
use crate::stack::stack;
use crate::udp::UdpSocket;

/// A descriptor of the program's that stands for a socket of ours.
#[derive(Clone, Copy)]
pub enum Mine {
    /// One of UDP.
    Datagrams(UdpSocket),
}

/// Does the same with a socket of every kind.
macro_rules! each {
    ($mine:expr, $socket:ident => $work:expr) => {
        match $mine {
            Mine::Datagrams($socket) => $work,
        }
    };
}

impl Mine {
    #[inline(always)]
    fn new(stack: &'static Stack, socket: stack::Socket, fd: c_int) -> Option<Mine> {
        match socket.kind {
            Kind::Datagrams => UdpSocket::new(stack, socket.number, fd).map(Mine::Datagrams),
        }
    }
}

/// Whether `fd` is a socket of ours. Nearly always not; without a rule this is one load.
#[inline(always)]
pub fn mine(fd: c_int) -> Option<Mine> {
    let stack = stack()?;
    Mine::new(stack, stack.socket(fd)?, fd)
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

    #[inline(always)]
    fn make_way(self, flags: c_int) -> Verdict {
        each!(self, socket => socket.make_way(flags))
    }

    #[inline(always)]
    fn receive(
        self,
        room: Option<&UserBuffers>,
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

    fn connecting(self) {
        each!(self, socket => socket.connecting());
    }

    fn shutting_down(self, how: c_int) {
        each!(self, socket => socket.shutting_down(how));
    }

    fn setting_option(self, level: c_int, option: c_int) {
        each!(self, socket => socket.setting_option(level, option));
    }

    fn take_error(self) -> Option<Errno> {
        each!(self, socket => socket.take_error())
    }

    fn next_len(self) -> Option<usize> {
        each!(self, socket => socket.next_len())
    }
}
