//! A receive that waits for a datagram: looking for it, or asleep in the C library's own calls.

use std::ffi::{c_int, c_void};

use libc::{size_t, socklen_t, ssize_t};
use weft_os::busy_poll::short_waits::Wait;
use weft_os::dgram::{self, NAME_LEN};
use weft_os::parts::Receives;
use weft_os::user::UserBuffers;
use weft_sockets::udp::{Ask, Datagram, Ended};

use super::deliver::deliver;
use super::room::Room;
use super::UdpSocket;
use crate::calls;
use crate::edge::{caught, errno, fail};
use crate::real::Real;
use crate::socket::Beside;
use crate::timeout::{wait_once, Timeout};

/// Octets of a datagram that is taken as it comes which are looked at before the program gets them: more than those of
/// Weft's own have.
const FIRST_OCTETS: usize = 64;

/// How a receive has waited.
pub(super) enum Waited {
    /// The call is over, with this result.
    Over(isize),
    /// It is to look what is there. `is_empty`: a datagram of no octets, or the end of receiving.
    Looks { is_empty: bool },
}

/// A receive that takes what comes.
#[derive(Clone, Copy)]
struct Taking<'a> {
    ask: Ask,
    held: &'a UserBuffers,
    flags: c_int,
    beside: &'a Beside,
}

impl Waited {
    /// What came of it.
    fn ended(&self) -> Ended {
        match self {
            Waited::Over(..0) if errno() == libc::EAGAIN => Ended::WouldBlock,
            Waited::Over(..0) => Ended::Empty,
            _ => Ended::Came,
        }
    }
}

impl UdpSocket {
    /// Waits for a datagram: looks for it first, where it is likely to come soon.
    pub(super) fn take_or_wait(
        self,
        ask: Ask,
        room: Room<'_>,
        flags: c_int,
        beside: &Beside,
        timeout: &mut Timeout,
    ) -> Waited {
        let UdpSocket { stack, record, fd } = self;
        let sockets = self.sockets();
        let most = stack.busy_poll();
        let wait = caught(None, || sockets.begin_wait(record, most));
        // One look a call: what it finds may be none of the program's, and the end of receiving shows for ever.
        let looks = |wait: &Wait| !timeout.has_begun() && sockets.looks(record, fd, *wait);
        let is_found = wait.is_some_and(|wait| caught(false, || looks(&wait)));
        let waited = match is_found {
            true => {
                timeout.begin();
                Waited::Looks { is_empty: false }
            }
            false => {
                // A program that looks again and again, and is told that nothing is there, pays for no clock.
                let is_timed = wait.is_some();
                self.take_or_sleep((ask, room, flags, beside), timeout, is_timed)
            }
        };
        caught((), || sockets.end_wait(record, wait, waited.ended()));
        waited
    }

    /// Waits for a datagram asleep, and takes it where that is one call of the kernel's: in the first wait of a receive
    /// of the usual kind.
    fn take_or_sleep(
        self,
        (ask, room, flags, beside): (Ask, Room<'_>, c_int, &Beside),
        timeout: &mut Timeout,
        is_timed: bool,
    ) -> Waited {
        if let (Room::Held(held), false) = (room, ask.stay || timeout.has_begun()) {
            let taking = Taking {
                ask,
                held,
                flags,
                beside,
            };
            let since = is_timed.then(dgram::now);
            if let Some(waited) = self.take_as_it_comes(taking) {
                if let Waited::Looks { .. } = waited {
                    timeout.begin_at(since);
                }
                return waited;
            }
        }
        match self.wait(timeout) {
            -1 => Waited::Over(-1),
            octets => Waited::Looks {
                is_empty: octets == 0,
            },
        }
    }

    /// A receive that waits in the C library's own call, and takes what comes. That may be Weft's own, and then leaves
    /// nothing in the program's memory. Nothing where it may not be done so.
    fn take_as_it_comes(self, taking: Taking<'_>) -> Option<Waited> {
        let mut before = [0; FIRST_OCTETS];
        let mut had = |held: &UserBuffers| held.read_range(0..FIRST_OCTETS, &mut before).is_ok();
        // One of Weft's own fits such a buffer whole; and what stands there can be put back.
        let buffer = taking.held.only_range();
        match buffer.filter(|(_, len)| *len >= FIRST_OCTETS && had(taking.held)) {
            Some(buffer) => self.take_into(buffer, before, taking),
            None => self.take_apart(taking),
        }
    }

    /// The same into the program's only buffer, in the cheaper of the two calls; `before` is what stands there.
    fn take_into(
        self,
        (addr, room): (usize, usize),
        before: [u8; FIRST_OCTETS],
        taking: Taking<'_>,
    ) -> Option<Waited> {
        let UdpSocket { record, fd, .. } = self;
        let sockets = self.sockets();
        if !caught(false, || sockets.begin_take(record)) {
            return None;
        }
        let (mut name, mut named) = ([0; NAME_LEN], NAME_LEN as socklen_t);
        // SAFETY: the program handed its buffer over to be written; the name is this function's memory.
        let octets = unsafe {
            let name = name.as_mut_ptr().cast();
            calls::recvfrom(
                fd,
                addr as *mut c_void,
                room,
                libc::MSG_TRUNC,
                name,
                &mut named,
            )
        };
        let failed = (octets < 0).then(errno);
        let len = octets.max(0) as usize;
        let name = &name[..NAME_LEN.min(named as usize)];
        let mut first = [0; FIRST_OCTETS];
        // One that is longer than that is no datagram of ours, whatever it begins with.
        let first = first.get_mut(..len).unwrap_or_default();
        let is_read = taking.held.read_range(0..first.len(), first).is_ok();
        let came = (failed.is_none() && is_read).then_some((&*first, name));
        let is_programs = caught(false, || sockets.end_take(record, fd, came));
        if let Some(errno) = failed {
            return Some(Waited::Over(fail(errno)));
        }
        if !is_programs {
            let before = before.get(..len).unwrap_or(&before);
            // A buffer that is gone meanwhile has nothing to be put back to.
            let _ = taking.held.write(before);
            return Some(Waited::Looks { is_empty: false });
        }
        Some(hand_over(&[], len, name, taking))
    }

    /// The same into a list of buffers, or into one that is short: the first octets, all of them of one of Weft's own,
    /// go to the program's memory once it is known whose they are.
    fn take_apart(self, taking: Taking<'_>) -> Option<Waited> {
        let UdpSocket { record, fd, .. } = self;
        let Taking { ask, held, .. } = taking;
        let sockets = self.sockets();
        let (mut first, mut name) = ([0; FIRST_OCTETS], [0; NAME_LEN]);
        let mut receives = Receives::new();
        let behind = FIRST_OCTETS.min(ask.room)..ask.room;
        let has_place = receives.own(&mut first) && receives.user(held, behind);
        if !has_place || !caught(false, || sockets.begin_take(record)) {
            return None;
        }
        // SAFETY: the message names this function's memory, and what the program handed over to be written.
        let call = |message| unsafe { calls::recvmsg(fd, message, libc::MSG_TRUNC) };
        let (octets, named) = receives.with_message(&mut name, call);
        let failed = (octets < 0).then(errno);
        let len = octets.max(0) as usize;
        let (first, name) = (&first[..len.min(FIRST_OCTETS)], &name[..named]);
        // One that is longer than that is no datagram of ours, whatever it begins with.
        let came = failed
            .is_none()
            .then_some((if len > FIRST_OCTETS { &[] } else { first }, name));
        let is_programs = caught(false, || sockets.end_take(record, fd, came));
        if let Some(errno) = failed {
            return Some(Waited::Over(fail(errno)));
        }
        if !is_programs {
            return Some(Waited::Looks { is_empty: false });
        }
        let first = &first[..first.len().min(ask.room)];
        Some(hand_over(first, len, name, taking))
    }

    /// Waits for a datagram as the C library's `recv` would: as long as the socket's options say, in all of one call's
    /// waits together, interrupted and cancelled as that is; a descriptor that does not wait fails with EAGAIN.
    pub(super) fn wait(self, timeout: &mut Timeout) -> isize {
        let fd = self.fd;
        // Only Weft's own datagrams end a wait for nothing; and who has confined itself may ask for no options.
        if !self.sockets().may_be_offloaded(self.record) {
            return peek(fd, 0);
        }
        // In its first wait the kernel's own timeout is right; afterwards the kernel would count anew.
        if timeout.begin() {
            return peek(fd, 0);
        }
        match timeout.limit(fd) {
            Err(errno) => fail(errno),
            Ok(None) => peek(fd, 0),
            Ok(Some(_)) => match wait_once(fd, libc::POLLIN, timeout) {
                Some(errno) => fail(errno),
                None => match peek(fd, libc::MSG_DONTWAIT) {
                    // Another thread was quicker.
                    -1 if errno() == libc::EAGAIN => 1,
                    octets => octets,
                },
            },
        }
    }
}

/// Hands over a datagram of `len` octets, of which `first` are not in the program's memory yet.
fn hand_over(first: &[u8], len: usize, name: &[u8], taking: Taking<'_>) -> Waited {
    let Taking {
        ask,
        held,
        flags,
        beside,
    } = taking;
    let fits = len.min(ask.room);
    let datagram = Datagram {
        octets: first,
        name,
        control: &[],
        result: if ask.whole { len } else { fits },
        truncated: fits < len,
    };
    let delivered = caught(Err(libc::EIO), || {
        deliver(&datagram, Room::Held(held), flags, beside)
    });
    Waited::Over(match delivered {
        Ok(octets) => octets as isize,
        Err(errno) => fail(errno),
    })
}

/// The C library's `recv` that takes nothing; gives the octets of the next datagram.
fn peek(fd: c_int, flags: c_int) -> isize {
    type Signature = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, c_int) -> ssize_t;
    static REAL: Real<Signature> = Real::new(c"recv");
    listed!(REAL);
    let flags = flags | libc::MSG_PEEK | libc::MSG_TRUNC;
    // SAFETY: room for no octets is asked for.
    unsafe { REAL.get()(fd, std::ptr::null_mut(), 0, flags) }
}
