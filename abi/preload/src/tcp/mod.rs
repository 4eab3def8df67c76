//! TCP sockets, as the hooks see them: sends and receives are the kernel's, or go over DDP.

mod attempts;
pub mod events;
mod files;
mod holding;
mod mapping;
mod options;
mod receiving;
mod sending;
mod waits;

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{epoll_event, mmsghdr, msghdr, socklen_t, timespec};
use weft_os::user::UserBuffers;
use weft_os::{file, stream};
use weft_sockets::ddp::{Connection, State};
use weft_sockets::stack::{Kind, Stack};
use weft_sockets::tcp::{RdmaOptions, Record, Streams};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::calls;
use crate::edge::{buffers, caught, errno, fail, get, List};
use crate::messages::receive_one_by_one;
use crate::socket::{Beside, FileOctets, Socket, SIOCOUTQNSD};
use crate::stack::stack;
pub use holding::forget_left;
use receiving::tell;

/// A TCP socket of the program's.
#[derive(Clone, Copy)]
pub struct TcpSocket {
    stack: &'static Stack,
    record: &'static Record,
    fd: c_int,
}

impl TcpSocket {
    /// The one with this number, behind `fd`.
    #[inline(always)]
    pub fn new(stack: &'static Stack, number: usize, fd: c_int) -> Option<TcpSocket> {
        let record = stack.kinds().streams.record(number)?;
        Some(TcpSocket { stack, record, fd })
    }

    /// The one behind `fd`, whether or not a rule looks for any: the program uses an option that only these have.
    /// Nothing once the program has confined itself.
    pub fn claim(fd: c_int) -> Option<TcpSocket> {
        let stack = stack().filter(|stack| !stack.is_confined())?;
        let socket = caught(None, || stack.claim(fd, Kind::Streams))?;
        TcpSocket::new(stack, socket.number, fd)
    }

    #[inline(always)]
    fn sockets(self) -> &'static Streams {
        &self.stack.kinds().streams
    }

    /// The connection over DDP, if it is one.
    #[inline(always)]
    fn connection(self) -> Option<Connection<'static>> {
        self.connection_for(0)
    }

    /// The same for a call with these flags, which may say that it does not wait.
    #[inline(always)]
    fn connection_for(self, flags: c_int) -> Option<Connection<'static>> {
        let connection = self.sockets().connection(self.record, self.fd)?;
        Some(match connection.is_held() {
            true => self.resolved(connection, flags),
            false => connection,
        })
    }

    /// The connection, once it is known what its other end is; held where a call with these flags does not wait for
    /// that.
    #[cold]
    fn resolved(self, connection: Connection<'static>, flags: c_int) -> Connection<'static> {
        let saved = errno();
        let resolved = caught(connection, || {
            let waits = flags & libc::MSG_DONTWAIT == 0 && !file::does_not_wait(self.fd);
            self.sockets().resolved(self.record, connection, waits)
        });
        fail(saved);
        resolved
    }

    /// A call on the connection ends.
    #[inline(always)]
    fn called(self, connection: Connection<'static>) {
        let is_owed = connection.needs_service() || connection.slot().is_short();
        if is_owed || connection.is_doubtful() != self.record.is_doubtful() {
            let saved = errno();
            caught((), || self.sockets().called(self.record, connection));
            fail(saved);
        }
    }

    fn connecting_with_octets(self, to: &[u8]) -> Verdict {
        caught(Verdict::Kernel, || {
            let sockets = self.sockets();
            sockets.connecting_with_octets(self.record, self.fd, to)
        })
    }

    /// One message of a list.
    fn receive_message(self, at: *mut msghdr, flags: c_int) -> isize {
        let Some(message) = get(at) else {
            return fail(libc::EFAULT);
        };
        let room = buffers(message.msg_iov, message.msg_iovlen);
        let room = room.as_ref().map_err(|list| *list);
        let beside = Beside::Message(at, message);
        // SAFETY: the program's own message.
        let real = || unsafe { calls::recvmsg(self.fd, at, flags) };
        self.receive(room, flags, beside, real)
    }

    /// A count of the connection's, unless the kernel knows it.
    fn counted(
        self,
        count: impl FnOnce(Connection<'static>) -> Result<usize, Errno>,
    ) -> Option<usize> {
        let connection = self.framed()?;
        // What the kernel has may be a Reply, or octets that no receive gives before those that were kept have left.
        if connection.slot().state() == State::Connecting && !stream::is_established(self.fd) {
            return None;
        }
        caught(None, || count(connection).ok())
    }

    /// Its options as an rsocket; nothing if it is none, or its number stands for something else by now.
    pub fn rdma_options(self) -> Option<RdmaOptions> {
        self.sockets().rdma_options(self.record, self.fd)
    }

    /// Sets them, which makes it one; whether there is memory for that.
    pub fn set_rdma_options(self, options: RdmaOptions) -> bool {
        self.sockets().set_rdma_options(self.record, options)
    }
}

impl Socket for TcpSocket {
    #[inline(always)]
    fn send(self, to: Option<&[u8]>, data: &UserBuffers, flags: c_int) -> Verdict {
        if let Some(connection) = self.connection_for(flags) {
            let verdict = self.send_octets(connection, data, 0, flags);
            self.called(connection);
            return verdict;
        }
        // A send that also connects.
        match flags & libc::MSG_FASTOPEN {
            0 => Verdict::Kernel,
            _ => self.connecting_with_octets(to.unwrap_or_default()),
        }
    }

    fn send_list(self, to: Option<&[u8]>, data: List, flags: c_int) -> Verdict {
        if let Some(connection) = self.connection_for(flags) {
            let verdict = self.send_pieces(connection, data, flags);
            self.called(connection);
            return verdict;
        }
        match flags & libc::MSG_FASTOPEN {
            0 => Verdict::Kernel,
            _ => self.connecting_with_octets(to.unwrap_or_default()),
        }
    }

    fn send_with_control(self, message: &msghdr, flags: c_int) -> Option<Verdict> {
        if self.connection_for(flags).is_none() {
            return Some(Verdict::Kernel);
        }
        // The kernel says what it thinks of them, of a send of nothing.
        let nothing = msghdr {
            msg_iovlen: 0,
            ..*message
        };
        // SAFETY: the program's own message, without its octets.
        let sent = unsafe { calls::sendmsg(self.fd, &nothing, flags) };
        (sent < 0).then(|| Verdict::Done(Err(errno())))
    }

    fn send_file(self, from: FileOctets, real: impl FnOnce() -> isize) -> isize {
        let Some(connection) = self.connection() else {
            return real();
        };
        let sent = self.send_octets_of(connection, from, real);
        self.called(connection);
        sent
    }

    fn receive_to_pipe(
        self,
        pipe: c_int,
        most: usize,
        flags: c_uint,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let Some(connection) = self.connection() else {
            let flags = match flags & libc::SPLICE_F_NONBLOCK {
                0 => 0,
                _ => libc::MSG_DONTWAIT,
            };
            return match self.await_beginning(flags) {
                Ok(()) => real(),
                Err(errno) => fail(errno),
            };
        };
        let moved = self.octets_to_pipe(connection, pipe, most, flags, real);
        self.note_refused(connection, moved);
        self.called(connection);
        moved
    }

    #[inline(always)]
    fn sends_one_by_one(self, flags: c_int) -> bool {
        flags & libc::MSG_FASTOPEN != 0 || self.connection_for(flags).is_some()
    }

    /// What is left to the kernel here it refuses: lists and names that are none.
    #[inline(always)]
    fn make_way(self, _flags: c_int) -> Verdict {
        Verdict::Kernel
    }

    #[inline(always)]
    fn receive(
        self,
        room: Result<&UserBuffers, List>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let Some(connection) = self.connection_for(flags) else {
            return match self.await_beginning(flags) {
                Ok(()) => real(),
                Err(errno) => fail(errno),
            };
        };
        let mut is_plain = false;
        let plain = || {
            is_plain = true;
            real()
        };
        let octets = match room {
            Ok(room) => self.receive_octets(connection, room, flags, plain),
            Err(list) => self.receive_pieces(connection, list, flags, plain),
        };
        self.note_refused(connection, octets);
        self.called(connection);
        match is_plain {
            true => octets,
            false => tell(octets, beside),
        }
    }

    fn receive_messages(
        self,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
        real: impl FnOnce() -> c_int,
    ) -> c_int {
        if self.connection_for(flags).is_none() && !self.record.lacks_room() {
            return real();
        }
        receive_one_by_one(messages, count, flags, timeout, |at, flags| {
            self.receive_message(at, flags)
        })
    }

    fn flush(self) {
        if let Some(connection) = self.connection() {
            caught((), || {
                let _ = connection.finish();
            });
        }
    }

    fn connecting(self, to: &[u8]) -> Verdict {
        caught(Verdict::Kernel, || {
            self.sockets().connecting(self.record, self.fd, to)
        })
    }

    fn listening(self) -> Verdict {
        caught(Verdict::Kernel, || {
            self.sockets().listening(self.record, self.fd)
        })
    }

    fn listened(self) {
        caught((), || self.sockets().listened(self.record, self.fd));
    }

    fn accepting(self) -> Verdict {
        caught(Verdict::Kernel, || {
            self.sockets().accepting(self.record, self.fd)
        })
    }

    fn connected(self) {
        let sockets = self.sockets();
        let connection = sockets.connection(self.record, self.fd);
        let connection = connection.map(|connection| match connection.is_held() {
            true if sockets.waits_for_answer(self.fd) => self.resolved(connection, 0),
            _ => connection,
        });
        if let Some(connection) = connection {
            // What goes wrong is told by the first call that needs it.
            caught((), || {
                let _ = connection.settle();
                sockets.called(self.record, connection);
                sockets.accepted_early(self.record, connection);
            });
        }
    }

    fn shutting_down(self, how: c_int) -> Verdict {
        match self.connection() {
            Some(connection) if how != libc::SHUT_RD => {
                let verdict = self.shut_down(connection, how);
                self.called(connection);
                verdict
            }
            Some(connection) => {
                connection.stop_receiving();
                Verdict::Kernel
            }
            None => Verdict::Kernel,
        }
    }

    fn setting_option(
        self,
        level: c_int,
        option: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> Verdict {
        caught(Verdict::Kernel, || {
            self.set_kernel_option(level, option, value, len)
        })
    }

    fn own_option(self, level: c_int, option: c_int) -> Option<c_int> {
        self.option_kept(level, option)
    }

    fn bound(self) {}

    fn awaited(self) {}

    fn watched(self, epoll: c_int, operation: c_int, event: *const epoll_event) {
        caught((), || self.note_watch(epoll, operation, event));
    }

    fn is_framed(self) -> bool {
        self.framed().is_some()
    }

    fn is_readable(self) -> bool {
        self.sockets().is_readable(self.record, self.fd)
    }

    fn is_asking(self) -> bool {
        self.sockets().is_asking(self.record)
    }

    fn is_writable(self) -> bool {
        self.sockets().is_writable(self.record, self.fd)
    }

    fn take_error(self) -> Option<Errno> {
        self.connection()?.slot().tell_error()
    }

    fn next_len(self) -> Option<usize> {
        self.counted(|connection| connection.available())
    }

    fn unsent(self, request: c_ulong) -> Option<usize> {
        self.counted(|connection| match request {
            SIOCOUTQNSD => connection.not_sent(),
            _ => connection.unacknowledged(),
        })
    }
}
