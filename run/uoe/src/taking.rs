//! The program's receives: datagrams that came over carriers, and Weft's own among those of the kernel.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use weft_os::beside::{self, socket_addr};
use weft_os::dgram::{self, Peeked};
use weft_uoe::proof::{Proof, BELL, PROOF_LEN};

use crate::counts::count;
use crate::inlet::{Rest, Waiting};
use crate::mail::Mail;
use crate::nonces::Own;
use crate::offload::{now, Offload};
use crate::port::{Place, Port};
use crate::suitable::is_connected;

/// The thread that waits for room in a socket's queue is told by one of so many receives where there is little.
const TOLD_EVERY: u32 = 32;

/// What is at the head of the kernel's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// One of Weft's own was, and is taken.
    Own(Own),
    /// A datagram of the program's, or an error.
    Other,
    /// Nothing.
    Nothing,
}

/// What taking the head of the kernel's queue has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A datagram of the program's.
    Datagram(Peeked),
    /// One of Weft's own: what waits there now may have come over a carrier.
    Own,
    /// Nothing: there was none.
    Nothing,
    /// An error of the socket, which the kernel tells of once.
    Failed(i32),
}

impl Offload {
    /// Hands the datagram that came over a carrier and is next to `deliver`, and takes it out unless it is to `stay`.
    /// Nothing where none is, or the kernel's queue has its turn and something in it.
    #[inline]
    pub fn take<T>(
        &self,
        port: &'static Port,
        fd: RawFd,
        stay: bool,
        deliver: impl FnOnce(Waiting<'_>) -> T,
    ) -> Option<T> {
        let is_kernels_turn = match port.looked_at_in() {
            Some(place) => place == Place::Kernel,
            None => {
                // Threads that receive at a time may count one turn as one.
                let turn = port.turns.load(Ordering::Relaxed);
                port.turns.store(turn.wrapping_add(1), Ordering::Relaxed);
                turn.is_multiple_of(port.kernel_turn())
            }
        };
        if is_kernels_turn {
            let has_plain = self.has_plain(port, fd);
            port.note_kernel_turn(has_plain);
            if has_plain {
                port.note_look(stay.then_some(Place::Kernel));
                return None;
            }
        }
        let mut inlet = port.inlet()?;
        let now = inlet.time();
        let Some(waiting) = inlet.front(now) else {
            port.note_look(stay.then_some(Place::Kernel));
            return None;
        };
        let delivered = deliver(waiting);
        port.note_look(stay.then_some(Place::Inlet));
        if stay {
            return Some(delivered);
        }
        let rest = inlet.pop();
        drop(inlet);
        count(&self.counts.received);
        port.taken_at
            .store(now.as_nanos() as u64, Ordering::Relaxed);
        if port.is_waited_for() {
            self.tell_taken(port, rest);
        }
        if rest == Rest::Nothing {
            // The bell has done its work: a program that asks whether there is something is told no.
            self.has_plain(port, fd);
        }
        Some(delivered)
    }

    /// Octets of the datagram that is next, if it came over a carrier. Else the kernel knows, from whose queue Weft's
    /// own datagrams were taken.
    pub fn next_len(&self, port: &'static Port, fd: RawFd) -> Option<usize> {
        if port.looked_at_in() == Some(Place::Kernel) && self.has_plain(port, fd) {
            return None;
        }
        let next = port
            .inlet()?
            .front(now())
            .map(|waiting| waiting.octets.len());
        let is_plain = next.is_none() && self.has_plain(port, fd);
        port.note_look(match (next, is_plain) {
            (Some(_), _) => Some(Place::Inlet),
            (None, true) => Some(Place::Kernel),
            (None, false) => None,
        });
        next
    }

    /// Whether there is something for the program at a socket that the kernel calls readable.
    pub fn is_readable(&self, port: &'static Port, fd: RawFd) -> bool {
        if !port.is_looked_at() {
            return true;
        }
        let waits = port.inlet().is_none_or(|mut inlet| !inlet.is_empty(now()));
        waits || self.has_plain(port, fd)
    }

    /// Takes Weft's own datagrams from the head of the kernel's queue; says whether another one, or an error, is there.
    /// Where something else waits the bell is rung again, so that the socket stays readable.
    pub fn has_plain(&self, port: &'static Port, fd: RawFd) -> bool {
        let mut took_bell = false;
        let has_plain = loop {
            match self.take_own(port, fd) {
                Head::Own(own) => took_bell |= own == Own::Bell,
                Head::Other => break true,
                Head::Nothing => break false,
            }
        };
        if took_bell && !has_plain && self.has_waiting(port) {
            self.ring(fd);
        }
        has_plain
    }

    /// Whether something waits that came over a carrier. A call that interrupted another one amid a look sees nothing.
    pub fn has_waiting(&self, port: &Port) -> bool {
        port.inlet().is_some_and(|mut inlet| inlet.has_some())
    }

    /// Bells of this process that were taken so far.
    pub(crate) fn bells_taken(&self) -> u64 {
        self.bells_taken.load(Ordering::Acquire)
    }

    /// Takes the head of the kernel's queue if it is one of Weft's own.
    pub(crate) fn take_own(&self, port: &'static Port, fd: RawFd) -> Head {
        // One octet more than those of Weft have, so that a longer one shows.
        let mut octets = [0; PROOF_LEN + 1];
        let mut name = [0; dgram::NAME_LEN];
        let Some(_head) = port.head() else {
            return Head::Other;
        };
        if port.is_taken_by_another(fd) {
            return Head::Nothing;
        }
        let peeked = match dgram::peek(fd, &mut octets, &mut name, &mut []) {
            Ok(peeked) => peeked,
            Err(libc::EAGAIN) => return Head::Nothing,
            Err(errno) => {
                // The kernel tells of it once.
                port.set_pending(errno);
                return Head::Other;
            }
        };
        let head = octets.get(..peeked.octets);
        let Some((proof, own)) = head.and_then(|head| self.find_own(port, head)) else {
            return Head::Other;
        };
        let is_bell = is_bell(proof, own);
        // To a socket that is connected another one would come late, from its peer. Behind it there is nothing that was
        // sent before what waits here.
        if is_bell && self.has_waiting(port) && is_connected(fd) {
            return Head::Nothing;
        }
        if dgram::discard(fd).is_err() {
            return Head::Other;
        }
        self.handle_own(port, proof, own, &name[..peeked.name]);
        Head::Own(own)
    }

    /// Takes the head of the kernel's queue: one call, where a look first and a receive afterwards are two. Without its
    /// control messages, and not for a socket that another process may have too.
    pub fn take_head(
        &self,
        port: &'static Port,
        fd: RawFd,
        octets: &mut [u8],
        name: &mut [u8; dgram::NAME_LEN],
    ) -> Taken {
        // Who has looked at the head and is about to take it finds it there. A signal handler's call that interrupts
        // its thread amid that has to go on without.
        let head = port.head();
        let taken = match dgram::take(fd, octets, name) {
            Ok(taken) => taken,
            Err(libc::EAGAIN) => return Taken::Nothing,
            Err(errno) => return Taken::Failed(errno),
        };
        drop(head);
        let came = octets.get(..taken.octets).unwrap_or_default();
        match self.is_own(port, fd, came, &name[..taken.name]) {
            true => Taken::Own,
            false => Taken::Datagram(taken),
        }
    }

    /// A receive is about to wait in the kernel's own call, and takes what comes. Not of a socket that another process
    /// may have too. [`Offload::end_take`] follows, unless its thread is cancelled meanwhile.
    pub fn begin_take(&self, port: &'static Port) {
        port.begin_take();
    }

    /// It is over, and has brought this datagram from `name`, of which the first octets will do. Whether that is one of
    /// Weft's own: what waits there now may have come over a carrier.
    pub fn end_take(&self, port: &'static Port, fd: RawFd, came: Option<(&[u8], &[u8])>) -> bool {
        port.end_take();
        came.is_some_and(|(octets, name)| self.is_own(port, fd, octets, name))
    }

    /// Whether a datagram that was taken is one of Weft's own. If so it is dealt with.
    fn is_own(&self, port: &'static Port, fd: RawFd, octets: &[u8], name: &[u8]) -> bool {
        if octets.len() != PROOF_LEN {
            return false;
        }
        let Some((proof, own)) = self.find_own(port, octets) else {
            return false;
        };
        self.handle_own(port, proof, own, name);
        // Something came over a carrier since the caller looked. The socket stays readable for others who wait for it;
        // to one that is connected its peer sends another bell before long.
        if is_bell(proof, own) && self.has_waiting(port) && !is_connected(fd) {
            self.ring(fd);
        }
        true
    }

    /// What a datagram is, if it is one of Weft's own.
    fn find_own(&self, port: &Port, octets: &[u8]) -> Option<(Proof, Own)> {
        let proof = Proof::parse(octets)?;
        // What is another process's, that has the socket too, is none of the program's either.
        let others = || port.is_shared().then_some(Own::OfOthers);
        let own = self.nonces.find(&proof.nonce).or_else(others)?;
        Some((proof, own))
    }

    /// One of Weft's own was taken, which came from `name`.
    fn handle_own(&self, port: &'static Port, proof: Proof, own: Own, name: &[u8]) {
        if own == Own::Bell {
            self.bells_taken.fetch_add(1, Ordering::AcqRel);
        }
        if own == Own::OfChannel && !is_bell(proof, own) {
            if let Some(from) = socket_addr(name) {
                let port = port.held();
                self.tell(Mail::Own { port, proof, from });
            }
        }
    }

    /// Wakes who waits in the kernel at the socket behind `fd`, which is not connected. Says whether the bell left.
    pub(crate) fn ring(&self, fd: RawFd) -> bool {
        let mut name = [0; dgram::NAME_LEN];
        let len = dgram::local_name(fd, &mut name);
        let Some(at) = name.get(..len).and_then(beside::written_addr) else {
            return false;
        };
        let is_v6 = at.is_ipv6();
        let ip = match at.ip() {
            ip if !ip.is_unspecified() => ip,
            // One of IPv6 has IPv4 too unless it says otherwise.
            _ if is_v6 => std::net::Ipv6Addr::LOCALHOST.into(),
            _ => std::net::Ipv4Addr::LOCALHOST.into(),
        };
        let (name, len) = beside::socket_name(SocketAddr::new(ip, at.port()), is_v6);
        let bell = Proof::new(self.nonces.bell(), BELL);
        count(&self.counts.bells);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        dgram::send(fd, &name[..len], &bell.to_octets(), None, flags).is_ok()
    }

    /// The same at a socket that is connected, and whose carrier is gone: nobody could ask its peer for a bell.
    #[cold]
    pub(crate) fn ring_in_place_of_peer(&self, fd: RawFd) {
        let bell = Proof::new(self.nonces.bell(), BELL);
        count(&self.counts.bells);
        let _ = dgram::send_to_itself(fd, &bell.to_octets());
    }

    /// The thread waits for room, or for all of what came to be taken.
    #[cold]
    fn tell_taken(&self, port: &Port, rest: Rest) {
        // Each time costs a call, and a core that both have to themselves two changes of thread: it is told of the
        // last, and now and then before where there is room for many.
        let is_turn = port
            .turns
            .load(Ordering::Relaxed)
            .is_multiple_of(TOLD_EVERY);
        let is_due = match rest {
            Rest::Nothing => true,
            Rest::Little => is_turn,
            Rest::Much => false,
        };
        if is_due && port.take_waited_for() {
            self.wake();
        }
    }
}

fn is_bell(proof: Proof, own: Own) -> bool {
    own == Own::Bell || (own == Own::OfChannel && proof.number == BELL)
}
