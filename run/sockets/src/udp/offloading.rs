//! Datagrams over carriers: when they are offered one, and how they come out.
//!
//! What a carrier is and who runs it is `run/uoe`'s. Here its answers become those of a socket's calls.

use std::sync::atomic::Ordering;

use weft_os::dgram::{self, NAME_LEN};
use weft_os::user::UserBuffers;
use weft_udp_offload::{Offload, Pause, Sending, Sent, Taken, Use};

use super::receiver::{Ask, Datagram};
use super::record::{Outgoing, Record};
use super::Datagrams;
use crate::verdict::Verdict;
use crate::Errno;

/// Octets of a datagram at most, whatever carries it.
const DATAGRAM_OCTETS_MAX: usize = 65_507;
/// Tells UDP sockets from TCP's, whose numbers are below.
const KEY: u32 = 1 << 31;

/// By which name others know the socket.
fn key(record: &Record) -> u32 {
    KEY | record.number as u32
}

impl Datagrams {
    /// Offers a datagram to a carrier. Nothing where it is to go plainly; an error is how long to wait before it is
    /// offered again. `has_waited`: it has done so.
    #[inline]
    pub(super) fn send_offloaded(
        &'static self,
        record: &'static Record,
        tx: &mut Outgoing,
        sending: Sending<'_>,
        has_waited: bool,
        data: &UserBuffers,
    ) -> Result<Option<Verdict>, Pause> {
        let Some(offload) = self.offload.filter(|_| !record.port.is_off()) else {
            return Ok(None);
        };
        if sending.len > DATAGRAM_OCTETS_MAX {
            return Ok(None);
        }
        // What gathered for the plain way was sent before. It stays where it is while no carrier is near: datagrams of
        // another rule gather beside this one.
        let may_overtake = !tx.sender.is_empty() && offload.has_path(&record.port, sending);
        if may_overtake {
            if let Verdict::Done(Err(errno)) = self.make_way(tx, sending.fd, 0) {
                return Ok(Some(Verdict::Done(Err(errno))));
            }
        }
        let fill = |place: &mut [u8]| data.read(place).map_err(|_| libc::EFAULT);
        Ok(match offload.send(&record.port, sending, fill) {
            Sent::Plain => None,
            Sent::Failed(errno) => Some(Verdict::Done(Err(errno))),
            Sent::Wait(pause) => return Err(pause),
            done @ (Sent::Done | Sent::Flushed) => {
                if has_waited || done == Sent::Flushed {
                    // That was not the program's pause: its sends come as thick as before.
                    tx.sender.resume(dgram::now());
                }
                if offload.anything_waits() {
                    self.have_flushed(offload);
                }
                Some(Verdict::Done(Ok(sending.len)))
            }
        })
    }

    /// A signal handler's send, amid another one of its thread on the same socket.
    #[cold]
    pub(super) fn send_amid_another(
        &self,
        record: &'static Record,
        sending: Sending<'_>,
    ) -> Verdict {
        let is_dropped = |offload: &Offload| offload.drop_interrupting(&record.port, sending);
        match self.offload.is_some_and(is_dropped) {
            true => Verdict::Done(Ok(sending.len)),
            false => Verdict::Kernel,
        }
    }

    /// Whether a rule says that what the socket sends there (nothing: to its connected peer) never goes plainly.
    pub(super) fn is_never_plain(
        &self,
        record: &'static Record,
        fd: i32,
        to: Option<&[u8]>,
    ) -> bool {
        let sending = Sending {
            fd,
            to: to.unwrap_or_default(),
            len: 0,
            is_busy: false,
            dont_wait: true,
            since: 0,
        };
        self.offload
            .is_some_and(|offload| offload.is_never_plain(&record.port, sending))
    }

    /// A send that only the kernel can do, as it says something to it, or the socket's options do. Where a rule says
    /// that nothing goes there plainly it is refused.
    pub(super) fn leave_to_kernel(
        &self,
        record: &'static Record,
        fd: i32,
        to: Option<&[u8]>,
    ) -> Verdict {
        let is_shut = record.is_shut.load(Ordering::Acquire);
        match !is_shut && self.is_never_plain(record, fd, to) {
            true => Verdict::Done(Err(libc::EOPNOTSUPP)),
            false => Verdict::Kernel,
        }
    }

    /// The program sends to `to` (nothing: the connected peer) what no carrier can bring: see
    /// [`Datagrams::before_plain_send`].
    pub fn before_uncarried_send(
        &self,
        record: &'static Record,
        fd: i32,
        to: Option<&[u8]>,
        flags: i32,
    ) -> Verdict {
        match self.leave_to_kernel(record, fd, to) {
            Verdict::Done(refused) => Verdict::Done(refused),
            _ => self.before_plain_send(record, fd, flags),
        }
    }

    /// What gathered on a carrier leaves within a tick, or at once where nobody ticks.
    #[inline]
    fn have_flushed(&'static self, offload: &Offload) {
        if !self.flusher.is_running() {
            self.flusher.ensure(self);
        }
        match self.flusher.is_running() {
            true => self.flusher.wake(),
            false => offload.flush_all(),
        }
    }

    /// The program is about to receive; whether it is to be given what came over carriers, too.
    #[inline]
    pub(super) fn looks_at_receives(&self, record: &'static Record, fd: i32) -> bool {
        let Some(offload) = self.offload else {
            return false;
        };
        offload.receives(&record.port, key(record), fd, Use::Receives);
        !record.port.begin_plain()
    }

    /// The program waits, or is to wait, for datagrams at the socket. Others may be told from here on that it takes
    /// carriers: a peer that never sends plainly would wake nobody who could say so in a receive.
    #[inline]
    pub fn awaited(&self, record: &'static Record, fd: i32) {
        if let Some(offload) = self.offload {
            offload.receives(&record.port, key(record), fd, Use::Waits);
        }
    }

    /// The program has bound the socket, and waits for datagrams from here on, in one way or another, or will.
    pub fn bound(&self, record: &'static Record, fd: i32) {
        if let Some(offload) = self.offload {
            offload.receives(&record.port, key(record), fd, Use::Binds);
        }
    }

    /// An epoll watches the socket by this descriptor.
    pub fn watched(&self, record: &'static Record, fd: i32) {
        let Some(offload) = self.offload else { return };
        offload.receives(&record.port, key(record), fd, Use::Waits);
        if offload.awaits_port(&record.port, fd) {
            record.watched_fd.store(fd, Ordering::Relaxed);
            self.portless.insert(record.number);
        }
    }

    /// The program is about to wait for an epoll: sockets that were entered there without a port are looked at again.
    /// `is_its`: whether a descriptor still stands for the socket with a number.
    #[inline]
    pub fn await_watched(&self, is_its: impl Fn(i32, usize) -> bool) {
        if !self.portless.any() {
            return;
        }
        for record in self.portless.iter().filter_map(|at| self.record(at)) {
            let fd = record.watched_fd.load(Ordering::Relaxed);
            let is_its = is_its(fd, record.number);
            if is_its {
                self.awaited(record, fd);
            }
            let awaits_port = |offload: &Offload| offload.awaits_port(&record.port, fd);
            if !is_its || !self.offload.is_some_and(awaits_port) {
                self.portless.remove(record.number);
            }
        }
    }

    /// A bind has failed because its address is taken. Whether it was by a socket that the program has closed, and is
    /// free now.
    pub fn gives_address_back(&self) -> bool {
        self.offload.is_some_and(Offload::give_addresses_back)
    }

    /// Whether datagrams for the socket may come to travel over carriers.
    #[inline]
    pub fn may_be_offloaded(&self, record: &Record) -> bool {
        self.offload.is_some() && !record.port.is_off() && !self.is_confined()
    }

    /// A receive that the kernel did is over.
    #[inline]
    pub(super) fn end_look(&self, record: &Record) {
        if self.offload.is_some() {
            record.port.end_plain();
        }
    }

    /// Hands the next datagram to `deliver` if it came over a carrier, or an error that is the program's to hear of.
    /// Nothing where the kernel's queue is next.
    #[inline]
    pub(super) fn receive_carried<T>(
        &self,
        record: &'static Record,
        fd: i32,
        ask: Ask,
        deliver: &mut impl FnMut(Datagram<'_>) -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        let offload = self.offload.filter(|_| record.port.is_looked_at())?;
        if let Some(errno) = record.port.take_pending() {
            return Some(Err(errno));
        }
        let delivered = offload.take(&record.port, fd, ask.stay, |waiting| {
            deliver(Datagram::whole(waiting.octets, waiting.name, ask))
        });
        // The look at the kernel's queue may have met one.
        delivered.or_else(|| record.port.take_pending().map(Err))
    }

    /// The same, where a look at the kernel's queue comes before a receive from it: Weft's own datagrams are taken out
    /// of that.
    #[inline]
    pub(super) fn receive_offloaded<T>(
        &self,
        record: &'static Record,
        fd: i32,
        ask: Ask,
        deliver: &mut impl FnMut(Datagram<'_>) -> Result<T, Errno>,
    ) -> Option<Result<T, Errno>> {
        let offload = self.offload.filter(|_| record.port.is_looked_at())?;
        let delivered = self.receive_carried(record, fd, ask, deliver);
        if delivered.is_some() {
            return delivered;
        }
        let has_plain = offload.has_plain(&record.port, fd);
        match record.port.take_pending() {
            Some(errno) => Some(Err(errno)),
            None if has_plain => None,
            None => Some(Err(libc::EAGAIN)),
        }
    }

    /// Takes the head of the kernel's queue.
    #[inline]
    pub(super) fn take_head(
        &self,
        record: &'static Record,
        fd: i32,
        octets: &mut [u8],
        name: &mut [u8; NAME_LEN],
    ) -> Taken {
        match self.offload {
            Some(offload) => offload.take_head(&record.port, fd, octets, name),
            None => Taken::Nothing,
        }
    }

    /// Whether something waits that came over a carrier.
    #[inline]
    pub(super) fn has_carried(&self, record: &'static Record) -> bool {
        let offload = self.offload.filter(|_| record.port.is_looked_at());
        offload.is_some_and(|offload| offload.has_waiting(&record.port))
    }

    /// The program receives from the socket, in a call that is not the kernel's alone.
    #[inline]
    pub fn receiving(&self, record: &'static Record, fd: i32) {
        if let Some(offload) = self.offload {
            offload.receives(&record.port, key(record), fd, Use::Receives);
        }
    }

    /// Octets of the datagram that is next, if it came over a carrier.
    pub(super) fn next_len_offloaded(&self, record: &'static Record, fd: i32) -> Option<usize> {
        let offload = self.offload.filter(|_| record.port.is_looked_at())?;
        offload.next_len(&record.port, fd)
    }

    /// Whether there is something for the program at a socket that the kernel calls readable.
    pub fn is_readable(&self, record: &'static Record, fd: i32) -> bool {
        // The end of receiving shows for ever, with nothing to receive.
        let has_ended = || dgram::ready(fd, libc::POLLRDHUP, 0) & libc::POLLRDHUP != 0;
        self.offload
            .is_none_or(|offload| offload.is_readable(&record.port, fd) || has_ended())
    }

    /// The socket is used in ways that no hook sees, or by another process: nothing of it goes over carriers any more.
    pub(super) fn offload_nothing(&self, number: usize) {
        if let (Some(offload), Some(record)) = (self.offload, self.record(number)) {
            offload.leave(&record.port);
        }
    }

    /// The process is about to fork: a child has the socket, too.
    pub(super) fn offload_shared(&self, record: &'static Record) {
        if let Some(offload) = self.offload {
            offload.before_fork(&record.port, key(record));
        }
    }

    /// The socket is about to be connected elsewhere, or to have another option.
    pub(super) fn offload_anew(&self, record: &'static Record) {
        if let Some(offload) = self.offload {
            offload.begin_anew(&record.port);
        }
    }

    /// The socket is closed.
    pub(super) fn offload_closed(&self, record: &'static Record) {
        if let Some(offload) = self.offload {
            offload.closed(&record.port, key(record));
        }
    }
}
