//! Where DDP takes a connection over.

use std::sync::atomic::Ordering;

use weft_os::stream;
use weft_settings::streams::Mode;

use super::standing::{Reason, Standing, State};
use super::{Record, Streams};
use crate::ddp::{self, Connection, Received, Settled};
use crate::verdict::Verdict;

impl Streams {
    /// Begins DDP on a socket that is about to connect and asks nobody. Gives how its octets go, why, and what is left
    /// to do of the program's call: it fails where there is no room for another connection.
    pub(super) fn begin_ddp(&self, record: &Record) -> (State, Reason, Verdict) {
        // Of a connect that failed.
        self.end_ddp(record);
        match self.take_slot(record, ddp::State::Connecting) {
            true => (State::Ddp, Reason::None, Verdict::Kernel),
            false => (
                State::Undecided,
                Reason::NoRoom,
                Verdict::Done(Err(libc::ENOBUFS)),
            ),
        }
    }

    /// Gives the connection of this record a slot; whether there was one.
    pub(super) fn take_slot(&self, record: &Record, state: ddp::State) -> bool {
        let slots = self.slots.as_ref();
        let slot = slots.and_then(|slots| slots.take(state, record.references.inode(), self.crc));
        self.set_slot(record, slot);
        let slot = slot.and_then(|slot| slots?.get(slot));
        if let Some(slot) = slot {
            slot.set_map_entries(self.map_entries(record));
        }
        slot.is_some()
    }

    fn set_slot(&self, record: &Record, slot: Option<u32>) {
        self.connections
            .fetch_add(u32::from(slot.is_some()), Ordering::Relaxed);
        record.set_slot(slot);
    }

    /// The connection over DDP behind `fd`, if it is one.
    #[inline]
    pub fn connection(&self, record: &Record, fd: i32) -> Option<Connection<'static>> {
        let slot = match record.slot() {
            Ok(slot) => slot?,
            Err(_) => self.look_up(record)?,
        };
        let maps = self.mapped.as_ref().and_then(|mapped| mapped.of(slot));
        let connection = Connection::new(self.slots.as_ref()?.get(slot)?, fd);
        let connection = connection.with_discovery(self.discovery).with_maps(maps);
        Some(match record.question() {
            None => connection,
            Some(_) => connection.held(),
        })
    }

    /// Finds the slot of a socket that was accepted, or that came from another process of the family.
    #[cold]
    fn look_up(&self, record: &Record) -> Option<u32> {
        let standing = record.standing();
        if standing.state == State::Ddp {
            self.take_slot(record, ddp::State::Accepted);
            let slot = record.slot().ok()?;
            if standing.mode == Some(Mode::Prefer) {
                self.slots.as_ref()?.get(slot?)?.set_prefers();
            }
            return slot;
        }
        let found = self.slots.as_ref()?.find(record.references.inode());
        self.set_slot(record, found);
        if found.is_some() {
            record.set_standing(Standing {
                mode: Some(Mode::Require),
                state: State::Ddp,
                reason: Reason::None,
            });
        }
        found
    }

    /// Whether the connection was to be DDP, and its other end is not Weft.
    pub(super) fn went_plain(&self, record: &Record) -> bool {
        let slot = record.slot().ok().flatten();
        let slot = slot.and_then(|slot| self.slots.as_ref()?.get(slot));
        slot.is_some_and(|slot| matches!(slot.state(), ddp::State::Plain | ddp::State::Late))
    }

    /// The socket is gone from this process.
    pub(super) fn end_ddp(&self, record: &Record) {
        if let (Some(slots), Ok(Some(slot))) = (&self.slots, record.slot()) {
            self.forget_slot(record);
            slots.leave(slot);
        }
    }

    /// The record has no connection any more.
    pub(super) fn forget_slot(&self, record: &Record) {
        if let (Some(mapped), Ok(Some(slot))) = (&self.mapped, record.slot()) {
            mapped.forget(slot);
        }
        record.set_slot(None);
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.doubtful.remove(record.number as usize);
    }

    /// Whether the program can receive something from a socket that the kernel calls readable.
    pub fn is_readable(&'static self, record: &'static Record, fd: i32) -> bool {
        let Some(mut connection) = self.connection(record, fd) else {
            return true;
        };
        if connection.is_held() {
            connection = self.resolved(record, connection, true);
        }
        // What was doubtful when the kernel looked, the thread may have settled since.
        let is_doubtful = record.is_doubtful() || connection.is_doubtful();
        if !is_doubtful && connection.slot().low_water() == 1 {
            return true;
        }
        let was_plain = connection.slot().state() == ddp::State::Plain;
        // An error is something to be told.
        let settled = connection.settle();
        let is_readable = match settled {
            Ok(Settled::Open) => match connection.glance() {
                Ok(Received::Octets(_)) => connection.has_low_water(),
                looked => looked != Ok(Received::Nothing),
            },
            // A connect that was refused is told by a call that receives.
            Ok(Settled::Waits | Settled::Late) => stream::state(fd) == Some(stream::State::Closed),
            // The program's own mark is the kernel's from now on.
            Ok(Settled::Plain) => was_plain || connection.slot().low_water() == 1,
            Err(_) => true,
        };
        self.set_doubtful(record, connection.is_doubtful());
        // What came may be a part of a Request, whose rest is not waited for without end.
        if connection.needs_service() && !self.waiting.contains(record.number as usize) {
            self.leave_to_thread(record, connection);
        }
        is_readable
    }

    /// Whether there are any sockets of which the kernel may report framing.
    #[inline]
    pub fn has_doubtful(&self) -> bool {
        self.doubtful.any()
    }

    /// They.
    pub fn doubtful(&self) -> impl Iterator<Item = &'static Record> + '_ {
        self.doubtful
            .iter()
            .filter_map(|number| self.record(number))
    }

    pub(super) fn set_doubtful(&self, record: &Record, is_doubtful: bool) {
        record.set_doubtful(is_doubtful);
        match is_doubtful {
            true => self.doubtful.insert(record.number as usize),
            false => self.doubtful.remove(record.number as usize),
        }
    }

    /// The process is about to fork.
    pub(super) fn share_ddp(&self) {
        self.settle_questions();
        let Some(slots) = &self.slots else { return };
        let taken = self
            .records
            .taken()
            .filter_map(|record| record.slot().ok()?);
        taken.for_each(|slot| slots.share(slot));
    }
}
