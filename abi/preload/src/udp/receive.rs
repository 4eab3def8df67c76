//! Datagrams in: as the kernel hands them over, or out of what it coalesced.

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, msghdr, timespec};
use weft_os::dgram;
use weft_os::user::UserBuffers;
use weft_sockets::udp::{Ask, Receive};
use weft_sockets::verdict::Verdict;

use super::deliver::deliver;
use super::room::Room;
use super::waiting::Waited;
use super::UdpSocket;
use crate::calls;
use crate::edge::{buffers, caught, errno, fail, get, test_cancel, List};
use crate::messages::receive_one_by_one;
use crate::socket::Beside;
use crate::timeout::Timeout;

/// Receives that are not about datagrams in the queue.
const ELSEWHERE: c_int = libc::MSG_ERRQUEUE | libc::MSG_OOB;

impl UdpSocket {
    /// A receive in the kernel or out of what was coalesced. `real` is the same call of the C library.
    #[inline(always)]
    pub(super) fn receive_datagram(
        self,
        room: Result<&UserBuffers, List>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize {
        // The way of nearly every receive stands in the hook itself: calls from layer to layer were a third of it.
        let usual = match flags & ELSEWHERE {
            0 => caught(None, || self.sockets().begin_usual_receive(self.record)),
            _ => None,
        };
        match (usual, room) {
            (Some(Receive::Plain), _) => self.receive_plainly(real),
            (Some(Receive::Split), Ok(held)) => {
                self.split(Room::Held(held), flags, beside, &mut Timeout::to_receive())
            }
            _ => self.receive_looking(room, flags, beside, real),
        }
    }

    /// By the kernel, a receive that has begun.
    #[inline(always)]
    fn receive_plainly(self, real: impl FnOnce() -> isize) -> isize {
        let UdpSocket { stack, record, fd } = self;
        // Whoever is about to wait for an answer wants the question sent, from whatever kind of socket.
        if stack.anything_waits() && dgram::ready(fd, libc::POLLIN, 0) == 0 {
            caught((), || {
                stack.flush_all();
                self.sockets().note_sleep();
            });
        }
        let octets = real();
        // A thread that is cancelled in the call leaves it begun, which is safe.
        let failed = (octets < 0).then(errno);
        caught((), || self.sockets().end_receive(record, fd, octets >= 0));
        failed.map_or(octets, fail)
    }

    /// A receive that is not of the usual kind: carriers may bring the datagram, receives are always coalesced, the
    /// flags ask for something else, or the buffers are more than can be held.
    #[inline(never)]
    fn receive_looking(
        self,
        room: Result<&UserBuffers, List>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let UdpSocket { record, .. } = self;
        let sockets = self.sockets();
        let room = match Room::of(room) {
            Some(room) if flags & ELSEWHERE == 0 => room,
            _ => {
                caught((), || sockets.flush_record(record));
                return real();
            }
        };
        let mut timeout = Timeout::to_receive();
        if flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK) == 0
            && caught(false, || sockets.takes_heads(record))
        {
            // One that waits in the kernel would be given what is Weft's own.
            caught((), || sockets.receiving(record, self.fd));
            return self.split(room, flags, beside, &mut timeout);
        }
        match self.begin_receive(flags, &mut timeout) {
            None => -1,
            Some(Receive::Plain) => self.receive_plainly(real),
            Some(Receive::Split) => self.split(room, flags, beside, &mut timeout),
        }
    }

    /// How a receive is to be done that is about to begin. Nothing where its wait has failed, with errno.
    fn begin_receive(self, flags: c_int, timeout: &mut Timeout) -> Option<Receive> {
        let UdpSocket { stack, record, fd } = self;
        let sockets = self.sockets();
        loop {
            let receive = caught(Receive::Split, || sockets.begin_receive(record, fd));
            let may_sleep = receive == Receive::Plain && flags & libc::MSG_DONTWAIT == 0;
            let is_alone = !may_sleep || !sockets.may_be_offloaded(record);
            if is_alone || dgram::ready(fd, libc::POLLIN, 0) != 0 {
                return Some(receive);
            }
            // A carrier can begin only while no receive is under way in the kernel, which would be given what is
            // Weft's own: so this one begins when there is something.
            caught((), || {
                stack.flush_all();
                sockets.end_receive(record, fd, false);
            });
            if self.wait(timeout) < 0 {
                return None;
            }
        }
    }

    fn split(self, room: Room<'_>, flags: c_int, beside: Beside, timeout: &mut Timeout) -> isize {
        let UdpSocket { stack, record, fd } = self;
        let sockets = self.sockets();
        test_cancel();
        let ask = Ask {
            room: room.octets(),
            whole: flags & libc::MSG_TRUNC != 0,
            stay: flags & libc::MSG_PEEK != 0,
        };
        let mut empty_wait = false;
        let mut flushed = false;
        let may_wait = flags & libc::MSG_DONTWAIT == 0;
        if may_wait && caught(false, || sockets.expects_to_wait(record)) {
            if stack.anything_waits() {
                caught((), || stack.flush_all());
            }
            match self.take_or_wait(ask, room, flags, &beside, timeout) {
                Waited::Over(octets) => return octets,
                Waited::Looks { is_empty } => empty_wait = is_empty,
            }
        }
        loop {
            let received = caught(Err(libc::EIO), || {
                sockets.receive(record, fd, ask, |datagram| {
                    deliver(&datagram, room, flags, &beside)
                })
            });
            match received {
                Ok(octets) => return octets as isize,
                Err(libc::EAGAIN) => {}
                Err(errno) => return fail(errno),
            }
            // What this process itself sent may be what it looks for.
            if !flushed && stack.anything_waits() {
                caught((), || stack.flush_all());
                flushed = true;
                continue;
            }
            if !may_wait {
                return fail(libc::EAGAIN);
            }
            // After SHUT_RD a wait ends at once with 0, as it does for an empty datagram.
            if empty_wait && dgram::ready(fd, libc::POLLRDHUP, 0) & libc::POLLRDHUP != 0 {
                return 0;
            }
            caught((), || sockets.note_wait(record));
            match self.take_or_wait(ask, room, flags, &beside, timeout) {
                Waited::Over(octets) => return octets,
                Waited::Looks { is_empty } => empty_wait = is_empty,
            }
        }
    }

    /// `recvmmsg`, likewise.
    pub(super) fn receive_datagrams(
        self,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
        real: impl FnOnce() -> c_int,
    ) -> c_int {
        let UdpSocket { stack, record, fd } = self;
        let sockets = self.sockets();
        let is_usual = flags & ELSEWHERE == 0 && count > 0;
        let waits_for_more = count > 1 && flags & (libc::MSG_DONTWAIT | libc::MSG_WAITFORONE) == 0;
        if is_usual && (waits_for_more || !timeout.is_null()) && sockets.may_be_offloaded(record) {
            // In the kernel it would wait for more than the first of them, and no carrier could begin meanwhile.
            return receive_one_by_one(messages, count, flags, timeout, |at, flags| {
                self.receive_message(at, flags)
            });
        }
        let mut first = Timeout::to_receive();
        // A list of none is over at once.
        let plain = match flags & ELSEWHERE {
            0 if is_usual => self.begin_receive(flags, &mut first),
            0 => self.begin_receive(flags | libc::MSG_DONTWAIT, &mut first),
            _ => Some(Receive::Plain),
        };
        let Some(plain) = plain else { return -1 };
        if plain == Receive::Plain {
            // The kernel waits for all of them, and some may be of this process.
            caught((), || stack.flush_all());
            let number = real();
            let before = errno();
            if flags & ELSEWHERE == 0 {
                caught((), || sockets.end_receive(record, fd, number > 0));
            }
            if number < 0 {
                fail(before);
            }
            return number;
        }
        receive_one_by_one(messages, count, flags, timeout, |at, flags| {
            self.split_message(at, flags)
        })
    }

    /// One message of a list as `recvmsg` would receive it.
    fn receive_message(self, at: *mut msghdr, flags: c_int) -> isize {
        // SAFETY: the message is the program's, which handed it over to be written.
        let real = || unsafe { calls::recvmsg(self.fd, at, flags) };
        match self.begin_receive(flags, &mut Timeout::to_receive()) {
            None => -1,
            Some(Receive::Plain) => self.receive_plainly(real),
            Some(Receive::Split) => self.split_message(at, flags),
        }
    }

    /// Of a list, each message is waited for as long as the socket's options say.
    fn split_message(self, at: *mut msghdr, flags: c_int) -> isize {
        let Some(message) = get(at) else {
            return fail(libc::EFAULT);
        };
        let held = buffers(message.msg_iov, message.msg_iovlen);
        let room = match &held {
            Ok(held) => Room::Held(held),
            Err(list) => match list.octets() {
                Ok(octets) => Room::Long {
                    list: *list,
                    octets,
                },
                Err(Verdict::Done(Err(errno))) => return fail(errno),
                // As the kernel says of a list that is too long.
                Err(_) => return fail(libc::EMSGSIZE),
            },
        };
        let beside = Beside::Message(at, message);
        self.split(room, flags, beside, &mut Timeout::to_receive())
    }
}
