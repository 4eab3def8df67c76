//! UDP sockets, as the hooks see them.

mod receive;

use std::ffi::{c_int, c_uint};

use libc::{mmsghdr, timespec};
use weft_os::user::UserBuffers;
use weft_sockets::stack::Stack;
use weft_sockets::udp::{Datagrams, Record};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::edge::{caught, test_cancel};
use crate::socket::{Beside, Socket};

/// A UDP socket of the program's.
#[derive(Clone, Copy)]
pub struct UdpSocket {
    stack: &'static Stack,
    record: &'static Record,
    fd: c_int,
}

impl UdpSocket {
    /// The one with this number, behind `fd`.
    #[inline(always)]
    pub fn new(stack: &'static Stack, number: usize, fd: c_int) -> Option<UdpSocket> {
        let record = stack.kinds().datagrams.record(number)?;
        Some(UdpSocket { stack, record, fd })
    }

    #[inline(always)]
    fn sockets(self) -> &'static Datagrams {
        &self.stack.kinds().datagrams
    }
}

impl Socket for UdpSocket {
    fn send(self, to: Option<&[u8]>, data: &UserBuffers, flags: c_int) -> Verdict {
        test_cancel();
        caught(Verdict::Kernel, || {
            self.sockets().send(self.record, self.fd, to, data, flags)
        })
    }

    fn make_way(self, flags: c_int) -> Verdict {
        caught(Verdict::Kernel, || {
            self.sockets()
                .before_plain_send(self.record, self.fd, flags)
        })
    }

    fn receive(
        self,
        room: Option<&UserBuffers>,
        flags: c_int,
        beside: Beside,
        real: impl FnOnce() -> isize,
    ) -> isize {
        self.receive_datagram(room, flags, beside, real)
    }

    fn receive_messages(
        self,
        messages: *mut mmsghdr,
        count: c_uint,
        flags: c_int,
        timeout: *mut timespec,
        real: impl FnOnce() -> c_int,
    ) -> c_int {
        self.receive_datagrams(messages, count, flags, timeout, real)
    }

    fn flush(self) {
        caught((), || self.sockets().flush_record(self.record));
    }

    fn connecting(self) {
        caught((), || self.sockets().connecting(self.record));
    }

    fn shutting_down(self, how: c_int) {
        match how {
            libc::SHUT_RD => self.flush(),
            _ => caught((), || self.sockets().shutting_down(self.record)),
        }
    }

    fn setting_option(self, level: c_int, option: c_int) {
        caught((), || {
            self.sockets().flush_record(self.record);
            self.sockets().option_set(self.record, level, option);
        });
    }

    fn take_error(self) -> Option<Errno> {
        caught(None, || self.sockets().take_error(self.record))
    }

    /// Octets of the next datagram, not of all that were coalesced with it.
    fn next_len(self) -> Option<usize> {
        caught(None, || self.sockets().next_len(self.record, self.fd))
    }
}
