//! What nobody may ever call for: a Request once a connect is through, what was written before the Reply, the rest that
//! a full socket left.
//!
//! A thread looks once a tick, with a descriptor that a call left behind. Whoever closes or overwrites that number
//! takes it away first, so the thread never uses a number that stands for something else by then.

use std::time::Duration;

use weft_os::beside;
use weft_os::lock::Locked;

use super::lingering::Lingering;
use super::room::owes_edge;
use super::{Record, Streams};
use crate::ddp::{Connection, State};
use crate::flusher::Gathering;
use crate::kind::Sockets;

/// How often the thread looks.
pub(super) const TICK: Duration = Duration::from_millis(1);

impl Streams {
    /// A call on the connection ends. Where something is left to do the thread does it, if no other call comes first.
    #[inline]
    pub fn called(&'static self, record: &'static Record, connection: Connection<'static>) {
        let is_doubtful = connection.is_doubtful();
        if is_doubtful != record.is_doubtful() {
            self.set_doubtful(record, is_doubtful);
        }
        self.has_room(record, connection);
        if connection.needs_service() || owes_edge(record, connection) {
            self.leave_to_thread(record, connection);
        }
    }

    /// A connection was accepted whose Request has not come. The program's next call on it answers that, or a call of
    /// this process that waits for the Reply ([`Streams::answer_own`]).
    pub fn accepted_early(&self, record: &Record, connection: Connection<'_>) {
        if connection.slot().state() != State::Answering {
            return;
        }
        if let Locked::Held(mut fd) | Locked::Orphaned(mut fd) = record.served_by.lock() {
            *fd = connection.fd();
        }
    }

    /// A call on this descriptor waits for a Reply, and has for so many looks. Where this process has the other end too
    /// and one thread alone, no call is made there before this one has ended: a Request that has come there is answered
    /// here. That end is looked for the more seldom the longer it lasts, as there may be many connections.
    pub fn answer_own(&self, fd: i32, looks: u32) {
        const LOOKS_MOST: u32 = 1024;
        let is_due = looks.is_power_of_two() || looks > 0 && looks.is_multiple_of(LOOKS_MOST);
        if !is_due || self.is_confined() {
            return;
        }
        let (Some(slots), Some(own)) = (&self.slots, beside::local_end(fd)) else {
            return;
        };
        let is_answering = |record: &&Record| {
            let slot = record.slot().ok().flatten();
            let slot = slot.filter(|_| record.is_used_here());
            let slot = slot.and_then(|slot| slots.get(slot));
            slot.is_some_and(|slot| slot.state() == State::Answering)
        };
        let is_other_end = |record: &&Record| {
            let (Locked::Held(fd) | Locked::Orphaned(fd)) = record.served_by.lock() else {
                return false;
            };
            *fd >= 0 && beside::peer_end(*fd) == Some(own)
        };
        let used = |record: &&Record| record.references.is_used();
        let mut answering = self.records.taken().filter(used).filter(is_answering);
        if let Some(record) = answering.find(is_other_end) {
            self.serve(record);
        }
    }

    #[cold]
    pub(super) fn leave_to_thread(
        &'static self,
        record: &'static Record,
        connection: Connection<'static>,
    ) {
        if self.is_confined() {
            return;
        }
        if let Locked::Held(mut fd) | Locked::Orphaned(mut fd) = record.served_by.lock() {
            *fd = connection.fd();
        }
        self.waiting.insert(record.number as usize);
        self.flusher.ensure(self);
        self.flusher.wake();
    }

    /// Does what is left to do in the connection, as far as it goes at once.
    pub(super) fn serve(&self, record: &Record) {
        let number = record.number as usize;
        if self.is_anothers(record) {
            return self.waiting.remove(number);
        }
        let (Locked::Held(fd) | Locked::Orphaned(fd)) = record.served_by.lock() else {
            return;
        };
        let is_there = *fd >= 0 && self.is_its_own(record, *fd);
        let connection = is_there.then(|| self.connection(record, *fd)).flatten();
        // A thread of the program's may hold what is needed here, and a handler that interrupted it may wait for
        // `served_by`; or a process may hold it that was stopped, while others of our connections wait.
        let connection = connection.map(Connection::without_waiting);
        let connection = connection.map(|connection| match connection.is_held() {
            true => self.resolved(record, connection, false),
            false => connection,
        });
        let is_done = connection.is_none_or(|connection| {
            let settled = connection.settle();
            let finished = settled.and_then(|_| connection.finish());
            let finished = finished.and_then(|_| connection.probe());
            self.has_room(record, connection);
            match finished {
                Err(libc::EAGAIN) => false,
                // What goes wrong is told by the program's next call.
                Err(_) => true,
                Ok(_) => !connection.needs_service() && !owes_edge(record, connection),
            }
        });
        if is_done {
            self.waiting.remove(number);
        }
    }

    /// The number that the thread would use is about to stand for something else.
    pub(super) fn take_from_thread(&self, record: &Record) {
        if let Locked::Held(mut fd) | Locked::Orphaned(mut fd) = record.served_by.lock() {
            *fd = -1;
        }
    }
}

impl Gathering for Streams {
    fn waits(&self) -> bool {
        self.anything_waits()
    }

    fn send_waiting(&self) {
        self.flush_all();
    }

    fn is_over(&self) -> bool {
        self.is_confined()
    }

    fn ends_when_idle(&self) -> bool {
        true
    }

    /// An answer, if there is one, mostly comes within a fraction of a tick, and so does a Reply; what a program has
    /// sent meanwhile leaves with it. Nor does a Request come later, for which what was sent waits before the close.
    fn next_tick(&self) -> Option<Duration> {
        const HASTE: Duration = Duration::from_micros(100);
        const FRESH_MS: u32 = 5;
        let lingering = self.lingering.as_ref().zip(self.slots.as_ref());
        if lingering.is_some_and(|(lingering, slots)| lingering.any_fresh(slots, FRESH_MS)) {
            return Some(HASTE);
        }
        let mut records = self.waiting.iter().filter_map(|number| self.record(number));
        let is_awaited = |record: &Record| {
            // The number matters to no part of this.
            let connection = self.connection(record, -1);
            connection.is_some_and(|connection| {
                let awaits = connection.is_held() || connection.awaits_reply();
                awaits && connection.slot().age_ms() <= FRESH_MS
            })
        };
        records.any(is_awaited).then_some(HASTE)
    }

    /// A host that does not answer, or a program that does not accept, is waited for as long as those take.
    fn pause(&self) -> Option<Duration> {
        if self.lingering.as_ref().is_some_and(Lingering::any) {
            return None;
        }
        let records = self.waiting.iter().filter_map(|number| self.record(number));
        let pauses = records.map(|record| {
            // The number matters to no part of this.
            let connection = self.connection(record, -1)?;
            match connection.is_held() {
                true => None,
                false => connection.pause(),
            }
        });
        pauses.min().flatten()
    }
}
