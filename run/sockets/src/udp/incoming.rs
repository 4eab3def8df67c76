//! Datagrams on their way in: when receives are coalesced, and how they come out.

use std::sync::atomic::Ordering;

use weft_datagram::batch::QUICK;
use weft_os::dgram::{self, Peeked, NAME_LEN};
use weft_os::{pages, process};
use weft_settings::datagrams::Direction;
use weft_udp_offload::{Offload, Taken};

use super::options::may_coalesce;
use super::receiver::{Ask, Datagram, Queue, Receiver, MEMORY_OCTETS};
use super::record::Record;
use super::Datagrams;
use crate::ends::ends;
use crate::Errno;

/// Receives after which their pace is looked at.
const LOOK_AFTER: u32 = 16;
/// Receives that begin by waiting once one has found nothing. The next looks first: where datagrams come faster than
/// they are taken, waiting is a call for nothing. With 64 of them a slow receiver that was flooded had its channel
/// seconds later (the case `a_slow_receiver_beside_another.each` of `tests/uoe`).
const EXPECTED_WAITS: u32 = 8;

/// How a receive is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// By the kernel; [`Datagrams::end_receive`] is to be told when it is over.
    Plain,
    /// By [`Datagrams::receive`].
    Split,
}

/// The kernel's queue.
struct Socket<'a> {
    datagrams: &'a Datagrams,
    fd: i32,
}

impl Queue for Socket<'_> {
    fn peek(
        &mut self,
        octets: &mut [u8],
        name: &mut [u8; NAME_LEN],
        control: &mut [u8],
    ) -> Result<Peeked, Errno> {
        dgram::peek(self.fd, octets, name, control)
    }

    fn discard(&mut self) -> Result<(), Errno> {
        dgram::discard(self.fd)?;
        self.datagrams.counts.heads.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Datagrams {
    /// The program is about to receive.
    pub fn begin_receive(&self, record: &'static Record, fd: i32) -> Receive {
        if self.busy_after == 0 {
            self.try_coalesce(record, fd);
        }
        if self.looks_at_receives(record, fd) {
            return Receive::Split;
        }
        if record.slot().begin_plain() {
            return Receive::Plain;
        }
        self.end_look(record);
        Receive::Split
    }

    /// The program is about to receive, where nothing comes over carriers and receives show whether it is busy, as in
    /// most programs. Nothing where [`Datagrams::begin_receive`] is to look closer.
    #[inline(always)]
    pub fn begin_usual_receive(&self, record: &'static Record) -> Option<Receive> {
        if self.offload.is_some() || self.busy_after == 0 {
            return None;
        }
        Some(match record.slot().begin_plain() {
            true => Receive::Plain,
            false => Receive::Split,
        })
    }

    /// A plain receive is over; `got` whether it brought a datagram.
    #[inline(always)]
    pub fn end_receive(&self, record: &'static Record, fd: i32, got: bool) {
        record.slot().end_plain();
        self.end_look(record);
        self.note_outcome(record, got);
        if got && !record.rx_off.load(Ordering::Relaxed) {
            self.note_receive(record, fd);
        }
    }

    /// A receive is over, and has brought something or found nothing: whether the thread that sends had to wait for it.
    #[inline(always)]
    fn note_outcome(&self, record: &'static Record, got: bool) {
        if !got {
            record.found_nothing.store(true, Ordering::Relaxed);
            return;
        }
        let own = process::thread();
        let slept = self.slept.load(Ordering::Relaxed) == own;
        if !slept && !record.found_nothing.load(Ordering::Relaxed) {
            return;
        }
        record.found_nothing.store(false, Ordering::Relaxed);
        if slept {
            self.slept.store(0, Ordering::Relaxed);
        }
        if record.sender.load(Ordering::Relaxed) == own {
            record.answered.store(true, Ordering::Relaxed);
        }
    }

    /// The calling thread has looked for what is ready, found nothing, and is about to sleep.
    pub fn note_sleep(&self) {
        self.slept.store(process::thread(), Ordering::Relaxed);
    }

    /// Counts a receive; where they come thick and the queue is never empty, coalescing begins.
    #[inline(always)]
    fn note_receive(&self, record: &'static Record, fd: i32) {
        let number = record.receives.fetch_add(1, Ordering::Relaxed) + 1;
        if number.is_multiple_of(LOOK_AFTER) && number >= self.busy_after {
            self.look_at_pace(record, fd);
        }
    }

    /// Begins to coalesce, where the last receives came thick and the queue is not empty.
    #[cold]
    fn look_at_pace(&self, record: &'static Record, fd: i32) {
        let now = dgram::now();
        let before = record.receives_since.swap(now, Ordering::Relaxed);
        let quick = now.saturating_sub(before) <= u64::from(LOOK_AFTER) * QUICK;
        if quick && !self.is_confined() && dgram::ready(fd, libc::POLLIN, 0) & libc::POLLIN != 0 {
            self.try_coalesce(record, fd);
        }
    }

    fn try_coalesce(&self, record: &'static Record, fd: i32) {
        if self.is_confined()
            || record.rx_off.load(Ordering::Acquire)
            || record.port.is_looked_at()
            || record.slot().is_coalesced()
        {
            return;
        }
        let ruled = || {
            self.rules
                .decide(Direction::Receive, ends(fd, &[]).as_slice())
        };
        // Where this is a signal handler's call amid a receive of its thread, that receive has memory.
        let has_memory = || {
            let rx = record.incoming();
            rx.is_none_or(|mut rx| give_memory(&mut rx.receiver))
        };
        if !may_coalesce(fd) || !ruled() || !has_memory() {
            record.rx_off.store(true, Ordering::Release);
            return;
        }
        if !record.slot().coalesce() {
            return;
        }
        if dgram::set_int(fd, dgram::SOL_UDP, dgram::UDP_GRO, 1).is_err() {
            record.slot().undo_coalesce();
            record.rx_off.store(true, Ordering::Release);
        }
    }

    /// Hands the next datagram to `deliver`; does not wait.
    ///
    /// # Errors
    /// EAGAIN when there is none, and what the socket or `deliver` says.
    #[inline]
    pub fn receive<T>(
        &self,
        record: &'static Record,
        fd: i32,
        ask: Ask,
        deliver: impl FnMut(Datagram<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let received = self.receive_by_any_way(record, fd, ask, deliver);
        match received {
            Ok(_) => self.note_outcome(record, true),
            Err(libc::EAGAIN) => self.note_outcome(record, false),
            Err(_) => {}
        }
        received
    }

    #[inline]
    fn receive_by_any_way<T>(
        &self,
        record: &'static Record,
        fd: i32,
        ask: Ask,
        mut deliver: impl FnMut(Datagram<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let takes_heads = !ask.stay && self.takes_heads(record);
        if takes_heads {
            // What came over a carrier needs no more than its queue.
            if let Some(received) = self.receive_carried(record, fd, ask, &mut deliver) {
                return received;
            }
        }
        // A signal handler that receives from the socket that it interrupted a receive from.
        let mut rx = record.incoming().ok_or(libc::EINTR)?;
        if !give_memory(&mut rx.receiver) {
            return Err(libc::ENOMEM);
        }
        if takes_heads && record.slot().begin_plain() {
            let taken = self.receive_taking(record, fd, ask, &mut rx.receiver, &mut deliver);
            drop(rx);
            record.slot().end_plain();
            if taken.is_ok() && !record.rx_off.load(Ordering::Relaxed) {
                self.note_receive(record, fd);
            }
            return taken;
        }
        if let Some(received) = self.receive_offloaded(record, fd, ask, &mut deliver) {
            return received;
        }
        let mut queue = Socket {
            datagrams: self,
            fd,
        };
        let received = rx.receiver.receive(record.slot(), &mut queue, ask, deliver);
        if received.is_ok() {
            self.counts.split.fetch_add(1, Ordering::Relaxed);
        }
        received
    }

    /// Whether receives of the socket take the head of its queue in one call, and see then whether it is Weft's own: no
    /// other process can have it looked at, it is one datagram, and its octets are all that the program asks for.
    #[inline]
    pub fn takes_heads(&self, record: &'static Record) -> bool {
        self.may_be_offloaded(record)
            && self.busy_after > 0
            && !record.has_options.load(Ordering::Relaxed)
            && !record.port.is_shared()
            && !record.slot().is_shared()
            && !record.slot().is_coalesced()
    }

    /// Such a receive, where nothing has come over a carrier.
    #[inline]
    fn receive_taking<T>(
        &self,
        record: &'static Record,
        fd: i32,
        ask: Ask,
        receiver: &mut Receiver,
        deliver: &mut impl FnMut(Datagram<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        if let Some(errno) = record.slot().take_pending() {
            return Err(errno);
        }
        loop {
            let mut taken = Taken::Nothing;
            let received = receiver.receive_whole(
                ask,
                |octets, name| {
                    taken = self.take_head(record, fd, octets, name);
                    match taken {
                        Taken::Datagram(taken) => Some(taken),
                        _ => None,
                    }
                },
                &mut *deliver,
            );
            match (received, taken) {
                (Some(received), _) => return received,
                (None, Taken::Own) => {}
                (None, Taken::Failed(errno)) => return Err(errno),
                (None, _) => return Err(libc::EAGAIN),
            }
            // It may have been a bell for what has come over one meanwhile.
            if let Some(received) = self.receive_carried(record, fd, ask, deliver) {
                return received;
            }
        }
    }

    /// A receive is about to wait in the kernel's own call and to take what comes there; false where it may not.
    /// [`Datagrams::end_take`] follows.
    pub fn begin_take(&self, record: &'static Record) -> bool {
        let Some(offload) = self.offload.filter(|_| self.takes_heads(record)) else {
            return false;
        };
        // It would meet several datagrams as one.
        if !record.slot().begin_plain() {
            return false;
        }
        offload.begin_take(&record.port);
        true
    }

    /// It is over, and has brought this datagram from `name`, of which the first octets will do. Whether that is the
    /// program's: it may have been one of Weft's own, and what waits now may have come over a carrier.
    pub fn end_take(&self, record: &'static Record, fd: i32, came: Option<(&[u8], &[u8])>) -> bool {
        record.slot().end_plain();
        let is_own = |offload: &Offload| offload.end_take(&record.port, fd, came);
        let is_programs = !self.offload.is_some_and(is_own) && came.is_some();
        if is_programs {
            self.note_outcome(record, true);
            if !record.rx_off.load(Ordering::Relaxed) {
                self.note_receive(record, fd);
            }
        }
        is_programs
    }

    /// A receive has found nothing, and has waited.
    #[inline]
    pub fn note_wait(&self, record: &'static Record) {
        record.waits.store(EXPECTED_WAITS, Ordering::Relaxed);
    }

    /// Whether a receive that may wait is to begin by that: one of the last found nothing, and nothing came over a
    /// carrier meanwhile.
    #[inline]
    pub fn expects_to_wait(&self, record: &'static Record) -> bool {
        let waits = record.waits.load(Ordering::Relaxed);
        if waits == 0 || !self.takes_heads(record) {
            return false;
        }
        if self.has_carried(record) {
            record.waits.store(0, Ordering::Relaxed);
            return false;
        }
        record.waits.store(waits - 1, Ordering::Relaxed);
        // It will have waited, as far as anybody knows.
        record.found_nothing.store(true, Ordering::Relaxed);
        true
    }

    /// Octets of the datagram that is next, for `FIONREAD`; nothing if the kernel knows that itself.
    pub fn next_len(&self, record: &'static Record, fd: i32) -> Option<usize> {
        if let Some(len) = self.next_len_offloaded(record, fd) {
            return Some(len);
        }
        if !record.slot().is_coalesced() {
            return None;
        }
        let mut rx = record.incoming()?;
        if !give_memory(&mut rx.receiver) {
            return None;
        }
        let mut queue = Socket {
            datagrams: self,
            fd,
        };
        Some(rx.receiver.next_len(record.slot(), &mut queue))
    }
}

/// Whether it can stage a head: it has memory, or is given it now.
#[inline]
fn give_memory(receiver: &mut Receiver) -> bool {
    receiver.has_memory() || give_new_memory(receiver)
}

#[cold]
fn give_new_memory(receiver: &mut Receiver) -> bool {
    let Some(memory) = pages::octets(MEMORY_OCTETS) else {
        return false;
    };
    receiver.set_memory(memory);
    true
}
