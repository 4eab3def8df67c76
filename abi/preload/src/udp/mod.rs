//! UDP sockets, as the hooks see them.

mod deliver;
mod options;
mod receive;
mod room;
mod waiting;

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{epoll_event, mmsghdr, msghdr, socklen_t, timespec};
use weft_os::dgram::NAME_LEN;
use weft_os::pages::Temporary;
use weft_os::user::UserBuffers;
use weft_sockets::stack::Stack;
use weft_sockets::udp::{Call, Datagrams, Record};
use weft_sockets::verdict::Verdict;
use weft_sockets::Errno;

use crate::edge::{buffer, caught, get, name_of, settle, test_cancel, List};
use crate::socket::{Beside, FileOctets, Socket};

/// Octets of a datagram at most.
const DATAGRAM_OCTETS_MAX: usize = 65_507;

/// The octets that a list names, in one piece. Nothing where the kernel is to answer: they are no datagram, or there is
/// no memory for them.
fn copied(list: List) -> Option<Result<Temporary, Errno>> {
    let octets = list.octets().ok()?;
    let fits = (1..=DATAGRAM_OCTETS_MAX).contains(&octets);
    let mut copy = fits.then(|| Temporary::new(octets))??;
    let mut place = copy.octets();
    for piece in list.pieces() {
        let Some(piece) = piece else {
            return Some(Err(libc::EFAULT));
        };
        let (here, rest) = place.split_at_mut(piece.octets().min(place.len()));
        if piece.read(here).is_err() {
            return Some(Err(libc::EFAULT));
        }
        place = rest;
    }
    Some(Ok(copy))
}

/// Whether a list names octets that one datagram can have.
fn is_datagram(list: List) -> bool {
    list.octets()
        .is_ok_and(|octets| octets <= DATAGRAM_OCTETS_MAX)
}

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

    /// A send that no carrier can bring.
    fn send_uncarried(self, to: Option<&[u8]>, flags: c_int) -> Verdict {
        caught(Verdict::Kernel, || {
            self.sockets()
                .before_uncarried_send(self.record, self.fd, to, flags)
        })
    }
}

impl Socket for UdpSocket {
    fn send(self, to: Option<&[u8]>, data: &UserBuffers, flags: c_int) -> Verdict {
        let mut call = Call::new(self.fd, to, data, flags);
        loop {
            // Here, and nowhere below, a thread that is cancelled leaves the call: no lock is held, and nothing is put
            // on its way.
            test_cancel();
            let tried = caught(Ok(Verdict::Kernel), || {
                self.sockets().send(self.record, &mut call)
            });
            match tried {
                Ok(verdict) => return verdict,
                Err(pause) => pause.sleep(),
            }
        }
    }

    /// A copy of it goes to a carrier, if there may be one.
    fn send_list(self, to: Option<&[u8]>, data: List, flags: c_int) -> Verdict {
        if !caught(false, || self.sockets().may_be_offloaded(self.record)) {
            return self.make_way(flags);
        }
        match copied(data) {
            Some(Ok(mut copy)) => {
                let octets = copy.octets();
                self.send(to, &buffer(octets.as_ptr().cast(), octets.len()), flags)
            }
            Some(Err(errno)) => Verdict::Done(Err(errno)),
            // What is no datagram the kernel refuses in its own words.
            None if !is_datagram(data) => Verdict::Kernel,
            None => self.send_uncarried(to, flags),
        }
    }

    /// Control messages are about one send: the kernel's.
    fn send_with_control(self, message: &msghdr, flags: c_int) -> Option<Verdict> {
        let mut octets = [0; NAME_LEN];
        let to = name_of(message, &mut octets).ok().flatten();
        Some(self.send_uncarried(to, flags))
    }

    fn send_file(self, _from: FileOctets, real: impl FnOnce() -> isize) -> isize {
        settle(self.send_uncarried(None, 0), real)
    }

    fn receive_to_pipe(
        self,
        _pipe: c_int,
        _most: usize,
        _flags: c_uint,
        real: impl FnOnce() -> isize,
    ) -> isize {
        real()
    }

    fn sends_one_by_one(self, _flags: c_int) -> bool {
        true
    }

    fn make_way(self, flags: c_int) -> Verdict {
        caught(Verdict::Kernel, || {
            self.sockets()
                .before_plain_send(self.record, self.fd, flags)
        })
    }

    #[inline(always)]
    fn receive(
        self,
        room: Result<&UserBuffers, List>,
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

    fn connecting(self, _to: &[u8]) -> Verdict {
        caught((), || self.sockets().connecting(self.record));
        Verdict::Kernel
    }

    fn listening(self) -> Verdict {
        self.flush();
        Verdict::Kernel
    }

    fn listened(self) {}

    fn accepting(self) -> Verdict {
        Verdict::Kernel
    }

    fn connected(self) {}

    fn shutting_down(self, how: c_int) -> Verdict {
        match how {
            libc::SHUT_RD => self.flush(),
            _ => caught((), || self.sockets().shutting_down(self.record)),
        }
        Verdict::Kernel
    }

    fn setting_option(
        self,
        level: c_int,
        option: c_int,
        _value: *const c_void,
        _len: socklen_t,
    ) -> Verdict {
        caught((), || {
            self.sockets().flush_record(self.record);
            self.sockets().option_set(self.record, level, option);
        });
        Verdict::Kernel
    }

    fn own_option(self, _level: c_int, _option: c_int) -> Option<c_int> {
        None
    }

    fn bound(self) {
        caught((), || self.sockets().bound(self.record, self.fd));
    }

    fn awaited(self) {
        caught((), || self.sockets().awaited(self.record, self.fd));
    }

    fn watched(self, _epoll: c_int, operation: c_int, event: *const epoll_event) {
        let waits = get(event).is_some_and(|event| event.events & libc::EPOLLIN as u32 != 0);
        if waits && operation != libc::EPOLL_CTL_DEL {
            caught((), || self.sockets().watched(self.record, self.fd));
        }
    }

    fn is_framed(self) -> bool {
        false
    }

    /// A bell may be all that the kernel has.
    fn is_readable(self) -> bool {
        caught(true, || self.sockets().is_readable(self.record, self.fd))
    }

    /// A carrier may be full.
    fn is_asking(self) -> bool {
        false
    }

    fn is_writable(self) -> bool {
        self.record.is_writable()
    }

    fn take_error(self) -> Option<Errno> {
        caught(None, || self.sockets().take_error(self.record))
    }

    /// What waits leaves, and counts.
    fn unsent(self, _request: c_ulong) -> Option<usize> {
        self.flush();
        None
    }

    /// Octets of the next datagram, not of all that were coalesced with it.
    fn next_len(self) -> Option<usize> {
        caught(None, || self.sockets().next_len(self.record, self.fd))
    }
}
