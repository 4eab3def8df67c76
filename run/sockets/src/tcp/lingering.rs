//! Connections that the program has closed and that still have something under way: they go on with a descriptor of
//! our own until that has left, as the kernel goes on with what it was given.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_os::{file, pages, process, sched, stream};

use super::{Record, Streams};
use crate::ddp::{Connection, Left, Slots, SLOTS_MAX};
use crate::discovering::Discovery;
use crate::waiting::Waiting;

/// How long the end of a message, or the other end's answer, is waited for where no octets of the program's depend on
/// it.
const FRAMING_MS: u32 = 1000;
/// How long octets of the program's wait for a peer that takes none.
const OCTETS_MS: u32 = 600_000;
/// How long a process that ends waits for a peer to take what it sent.
const AT_END_MS: u32 = 10_000;
/// Numbers of descriptors of ours begin here, where there may be so many: a program counts on having the lowest.
pub(super) const DESCRIPTORS_FROM: i32 = 512;
/// How often what a process waits for at its end is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Connections by the number of their slot.
#[derive(Debug)]
pub(super) struct Lingering {
    slots: Waiting,
    /// Whose they are.
    process: AtomicU32,
    /// The descriptor of each, and one; 0 for none.
    descriptors: &'static [AtomicU32],
}

impl Lingering {
    /// None yet; nothing where the kernel has no memory for them.
    pub(super) fn new() -> Option<Lingering> {
        Some(Lingering {
            slots: Waiting::new(SLOTS_MAX),
            process: AtomicU32::new(0),
            descriptors: pages::words(SLOTS_MAX)?,
        })
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        self.slots.any() && !self.drop_inherited()
    }

    fn insert(&self, slot: u32, fd: i32) {
        self.drop_inherited();
        self.process.store(process::id(), Ordering::Release);
        self.descriptors[slot as usize].store(fd as u32 + 1, Ordering::Release);
        self.slots.insert(slot as usize);
    }

    /// Goes on with all of them, as far as it goes at once.
    pub(super) fn serve(&self, slots: &Slots, discovery: Option<&'static Discovery>) {
        if !self.any() {
            return;
        }
        for number in self.slots.iter() {
            let fd = self.descriptors[number].load(Ordering::Acquire);
            let Some((slot, fd)) = slots.get(number as u32).zip(fd.checked_sub(1)) else {
                continue;
            };
            let connection = Connection::new(slot, fd as i32).with_discovery(discovery);
            let left = connection.without_waiting().wind_up();
            let is_done = match left {
                Left::Nothing => true,
                Left::Framing => slot.closed_for_ms() > FRAMING_MS,
                Left::Octets => slot.closed_for_ms() > OCTETS_MS,
            };
            // Another thread may serve it too.
            if is_done && self.descriptors[number].swap(0, Ordering::AcqRel) != 0 {
                self.slots.remove(number);
                file::close(fd as i32);
                slots.leave(number as u32);
            }
        }
    }

    /// A forked child, in which the descriptors are closed, leaves the connections to its parent; whether this is one.
    fn drop_inherited(&self) -> bool {
        if self.process.load(Ordering::Acquire) == process::id() {
            return false;
        }
        for number in self.slots.iter() {
            self.descriptors[number].store(0, Ordering::Release);
            self.slots.remove(number);
        }
        true
    }
}

impl Streams {
    /// The last descriptor of a connection is about to be closed in this process.
    pub(super) fn wind_up(&'static self, record: &Record, fd: i32) {
        let Some(connection) = self.connection(record, fd) else {
            return;
        };
        connection.slot().begin_to_close();
        // Memory that is mapped is the program's again.
        connection.unmap_all();
        let linger = stream::linger(fd);
        // The program wants a reset.
        if linger == Some(0) {
            return;
        }
        let mut left = connection.wind_up();
        if let Some(seconds) = linger {
            while left == Left::Octets && connection.slot().closed_for_ms() < seconds * 1000 {
                sched::pause(LOOK_EVERY);
                left = connection.wind_up();
            }
        }
        if left == Left::Nothing || self.is_confined() {
            return;
        }
        let (Some(lingering), Ok(Some(slot))) = (&self.lingering, record.slot()) else {
            return;
        };
        if let Some(own) = file::duplicate(fd, DESCRIPTORS_FROM) {
            // An epoll watches as long as there is any descriptor.
            if let Some(watch) = record.watch() {
                weft_os::poll::unwatch(watch.epoll, watch.fd);
            }
            self.forget_slot(record);
            lingering.insert(slot, own);
            self.flusher.ensure(self);
            self.flusher.wake();
        }
    }

    /// The process is about to end: a connection goes on until the kernel has what the program sent. `waited`: for how
    /// many milliseconds it has. Whether nothing is left.
    pub(super) fn wind_up_at_end(&self, record: &Record, fd: i32, waited: u32) -> bool {
        let is_there = self.is_its_own(record, fd);
        let Some(connection) = is_there.then(|| self.connection(record, fd)).flatten() else {
            return true;
        };
        if stream::linger(fd) == Some(0) || !connection.slot().is_left_to(process::id()) {
            return true;
        }
        match connection.wind_up() {
            Left::Nothing => true,
            Left::Framing => waited > FRAMING_MS,
            Left::Octets => waited > AT_END_MS,
        }
    }

    /// The same with the connections that the program has closed.
    pub(super) fn wind_up_lingering(&self, waited: u32) -> bool {
        let (Some(lingering), Some(slots)) = (&self.lingering, &self.slots) else {
            return true;
        };
        lingering.serve(slots, self.discovery);
        !lingering.any() || waited > AT_END_MS
    }
}
