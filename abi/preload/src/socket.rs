//! What the hooks ask of a socket of ours, of whatever kind it is.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{epoll_event, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use weft_os::user::UserBuffers;
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::edge::List;

/// Of what was sent, what has not left (include/uapi/linux/sockios.h).
pub const SIOCOUTQNSD: c_ulong = 0x894b;

/// Where the address and the control messages of what is received go.
#[derive(Clone, Copy)]
pub enum Beside {
    /// Nowhere.
    Nothing,
    /// The address, and its length in and out.
    Name(*mut sockaddr, *mut socklen_t),
    /// Both, by way of a message.
    Message(*mut msghdr, msghdr),
}

/// Octets that the program has sent without reading them itself.
#[derive(Clone, Copy)]
pub struct FileOctets {
    /// The file's descriptor, or the pipe's.
    pub fd: c_int,
    /// Where the octets begin and where the program wants to be told how far it is; null for the file's own position.
    pub offset: *mut i64,
    /// How many at most.
    pub most: usize,
    /// It is a pipe, and these are the flags of `splice`.
    pub splice: Option<c_uint>,
}

/// A socket of ours behind a descriptor, for the time of one call.
///
/// Where a call's result is the kernel's, `real` makes the same call of the C library; with it errno is set as that set
/// it. A result of -1 has errno set.
pub trait Socket: Copy {
    /// The program sends `data` to `to` (nothing: the connected peer).
    fn send(self, to: Option<&[u8]>, data: &UserBuffers, flags: c_int) -> Verdict;

    /// The same with buffers that cannot be held as a whole.
    fn send_list(self, to: Option<&[u8]>, data: List, flags: c_int) -> Verdict;

    /// The program sends with control messages: nothing where they do not matter and the send goes on without.
    fn send_with_control(self, message: &msghdr, flags: c_int) -> Option<Verdict>;

    /// The program has a file's octets sent, or a pipe's (`sendfile`, `splice`); gives the call's result.
    fn send_file(self, from: FileOctets, real: impl FnOnce() -> isize) -> isize;

    /// The program has octets of the socket moved to a pipe (`splice`); gives the call's result.
    fn receive_to_pipe(
        self,
        pipe: c_int,
        most: usize,
        flags: c_uint,
        real: impl FnOnce() -> isize,
    ) -> isize;

    /// Whether a list of messages that the program sends with these `flags` has a verdict for each of them. Else the
    /// kernel is given the list.
    fn sends_one_by_one(self, flags: c_int) -> bool;

    /// The kernel is to send something that must not overtake what waits.
    fn make_way(self, flags: c_int) -> Verdict;

    /// The program receives into `room`, which may be a list that cannot be held as a whole; gives the call's result.
    fn receive(
        self,
        room: Result<&UserBuffers, List>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize;

    /// `recvmmsg`.
    fn receive_messages(
        self,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
        real: impl FnOnce() -> c_int,
    ) -> c_int;

    /// What waits leaves, before a call that concerns the socket as a whole.
    fn flush(self);

    /// The socket is about to be connected to the address `to`, perhaps elsewhere. An address that cannot be read is
    /// empty.
    fn connecting(self, to: &[u8]) -> Verdict;

    /// The socket is about to listen.
    fn listening(self) -> Verdict;

    /// It listens.
    fn listened(self);

    /// The socket is about to accept.
    fn accepting(self) -> Verdict;

    /// A connect of the socket succeeded or goes on, or it has just been accepted.
    fn connected(self);

    /// The socket is about to be shut down: for what `how` says, as `shutdown` has it.
    fn shutting_down(self, how: c_int) -> Verdict;

    /// The program sets an option.
    fn setting_option(
        self,
        level: c_int,
        option: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> Verdict;

    /// What an option is that is not the kernel's to tell: a number.
    fn own_option(self, level: c_int, option: c_int) -> Option<c_int>;

    /// The program has bound the socket to an address.
    fn bound(self);

    /// The program is about to wait until it can receive something.
    fn awaited(self);

    /// The program did this with the descriptor in an epoll (`epoll_ctl`).
    fn watched(self, epoll: c_int, operation: c_int, event: *const epoll_event);

    /// Whether its octets are framed, or are going to be: nobody may read or write the descriptor past the hooks.
    fn is_framed(self) -> bool;

    /// Whether the program can receive something, where the kernel says that octets are there.
    fn is_readable(self) -> bool;

    /// Whether what is hidden of it may be shown soon, with nothing that would wake whoever waits.
    fn is_asking(self) -> bool;

    /// Whether the program can send something, where the kernel says that there is room.
    fn is_writable(self) -> bool;

    /// The error of a send that nobody waited for, which `SO_ERROR` gives before the kernel's own.
    fn take_error(self) -> Option<Errno>;

    /// What `FIONREAD` gives; nothing if the kernel knows that itself.
    fn next_len(self) -> Option<usize>;

    /// What `SIOCOUTQ` gives, likewise, or `SIOCOUTQNSD`.
    fn unsent(self, request: c_ulong) -> Option<usize>;
}
