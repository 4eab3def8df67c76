//! Connections that the program has closed and that still have something under way: they go on with a descriptor of
//! our own until that has left, as the kernel goes on with what it was given.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weft_os::{beside, descriptors, file, pages, process, sched, stream};

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
/// They take no more than this part of the descriptors that the process may have.
const SHARE: u64 = 8;
/// Numbers that they are counted in, by the hash of the peer's address.
const COUNTERS: usize = 256;
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
    /// By what its peer's address is counted.
    counted_by: &'static [AtomicU32],
    /// How many had come before each: of those of one millisecond, too, one is the first.
    before: &'static [AtomicU32],
    came: AtomicU32,
    /// Makes it unforeseeable which addresses are counted together.
    seed: u64,
}

impl Lingering {
    /// None yet; nothing where the kernel has no memory for them.
    pub(super) fn new() -> Option<Lingering> {
        Some(Lingering {
            slots: Waiting::new(SLOTS_MAX),
            process: AtomicU32::new(0),
            descriptors: pages::words(SLOTS_MAX)?,
            counted_by: pages::words(SLOTS_MAX)?,
            before: pages::words(SLOTS_MAX)?,
            came: AtomicU32::new(0),
            seed: weft_os::random_u64(),
        })
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        self.slots.any() && !self.drop_inherited()
    }

    /// Whether one of them was closed so many milliseconds ago, or later.
    pub(super) fn any_fresh(&self, slots: &Slots, ms: u32) -> bool {
        let mut all = self
            .slots
            .iter()
            .filter_map(|number| slots.get(number as u32));
        self.any() && all.any(|slot| slot.closed_for_ms() <= ms)
    }

    fn insert(&self, slot: u32, fd: i32) {
        self.drop_inherited();
        self.process.store(process::id(), Ordering::Release);
        let before = self.came.fetch_add(1, Ordering::Relaxed);
        self.before[slot as usize].store(before, Ordering::Relaxed);
        self.counted_by[slot as usize].store(self.counter_of(fd), Ordering::Relaxed);
        self.descriptors[slot as usize].store(fd as u32 + 1, Ordering::Release);
        self.slots.insert(slot as usize);
    }

    fn counter_of(&self, fd: i32) -> u32 {
        beside::peer_end(fd).map_or(0, |peer| counter(self.seed, peer.ip()))
    }

    /// Makes room for one more: peers that take nothing of what was sent to them would hold the program's descriptors.
    /// The peers' address that has the most loses the one that has waited longest, so that nobody else's is lost to a
    /// peer that comes again and again.
    fn make_room(&self, slots: &Slots, most: usize) {
        let mut counts = [0u16; COUNTERS];
        let all = || {
            self.slots
                .iter()
                .filter_map(|number| Some((number, slots.get(number as u32)?)))
        };
        let counter =
            |number: usize| self.counted_by[number].load(Ordering::Relaxed) as usize % COUNTERS;
        all().for_each(|(number, _)| counts[counter(number)] += 1);
        if counts
            .iter()
            .map(|count| usize::from(*count))
            .sum::<usize>()
            < most
        {
            return;
        }
        let came = self.came.load(Ordering::Relaxed);
        let since = |number: usize| came.wrapping_sub(self.before[number].load(Ordering::Relaxed));
        let worst = all().max_by_key(|(number, _)| (counts[counter(*number)], since(*number)));
        if let Some((number, slot)) = worst {
            let fd = self.descriptors[number].load(Ordering::Acquire);
            let inode = slots.inode_of(number as u32);
            if let Some(fd) = fd.checked_sub(1).filter(|fd| is_still(*fd as i32, inode)) {
                Connection::new(slot, fd as i32).give_up();
            }
            self.end(slots, number);
        }
    }

    /// Lets go of one, unless another thread has.
    fn end(&self, slots: &Slots, number: usize) {
        if let Some(fd) = self.descriptors[number]
            .swap(0, Ordering::AcqRel)
            .checked_sub(1)
        {
            self.slots.remove(number);
            let inode = slots.inode_of(number as u32);
            close_own(fd as i32, inode);
            slots.leave(number as u32, inode);
        }
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
            let (fd, inode) = (fd as i32, slots.inode_of(number as u32));
            let connection = Connection::new(slot, fd).with_discovery(discovery);
            let is_done = !is_still(fd, inode) || has_wound_up(connection.without_waiting());
            if is_done {
                self.end(slots, number);
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

/// What a peer's connections are counted by; of IPv6 the network of 64 bits is one peer.
fn counter(seed: u64, peer: IpAddr) -> u32 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let fold = |octets: &[u8]| {
        octets.iter().fold(seed, |hash, octet| {
            (hash ^ u64::from(*octet)).wrapping_mul(PRIME)
        })
    };
    let hash = match peer.to_canonical() {
        IpAddr::V4(address) => fold(&address.octets()),
        IpAddr::V6(address) => fold(&address.octets()[..8]),
    };
    (hash >> 32) as u32
}

/// Goes on with a connection that the program has closed, as far as it goes at once. Whether nothing is left, or it was
/// waited for long enough.
fn has_wound_up(connection: Connection<'_>) -> bool {
    let closed_for_ms = connection.slot().closed_for_ms();
    match connection.wind_up() {
        Left::Nothing => true,
        Left::Framing => closed_for_ms > FRAMING_MS,
        Left::Octets => closed_for_ms > OCTETS_MS,
    }
}

/// Whether our descriptor still stands for the socket with this inode: a program that closes all numbers there are
/// closes ours as well, and what it opens next has the number.
pub(super) fn is_still(fd: i32, inode: u64) -> bool {
    stream::inode(fd) == Some(inode)
}

/// Closes our descriptor of the socket with this inode, unless the number is the program's by now.
pub(super) fn close_own(fd: i32, inode: u64) {
    match is_still(fd, inode) {
        true => file::close(fd),
        false => file::abandon(fd),
    }
}

impl Streams {
    /// The last descriptor of a connection is about to be closed in this process.
    pub(super) fn wind_up(&'static self, record: &Record, fd: i32) {
        self.settle_question(record);
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
        if let Some(slots) = &self.slots {
            let most = descriptors::limits().0 / SHARE;
            lingering.make_room(slots, usize::try_from(most).unwrap_or(SLOTS_MAX));
        }
        if let Some(own) = file::duplicate(fd, DESCRIPTORS_FROM) {
            // An epoll watches as long as there is any descriptor.
            self.epolls.take_out(fd);
            self.forget_slot(record);
            lingering.insert(slot, own);
            self.flusher.ensure(self);
            self.flusher.hasten();
        }
    }

    /// The process is about to end: a connection goes on until the kernel has what the program sent. `waited`: for how
    /// many milliseconds it has. Whether nothing is left.
    pub(super) fn wind_up_at_end(&self, record: &Record, fd: i32, waited: u32) -> bool {
        let is_there = self.is_its_own(record, fd);
        // What another process has, and this one never used, it leaves to that one. What it has sent itself the other
        // one's thread does not know of.
        if !is_there || self.is_anothers(record) {
            return true;
        }
        self.settle_question(record);
        let Some(mut connection) = self.connection(record, fd) else {
            return true;
        };
        if connection.is_held() {
            connection = self.resolved(record, connection, false);
        }
        if stream::linger(fd) == Some(0) {
            return true;
        }
        match connection.wind_up() {
            Left::Nothing => true,
            // The socket stays open where another process has it.
            Left::Framing => {
                waited > FRAMING_MS || !connection.slot().is_left_to(process::member())
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_counted_by_its_address_or_network() {
        let counted = |address: &str| counter(7, address.parse().unwrap());
        assert_eq!(counted("192.0.2.1"), counted("::ffff:192.0.2.1"));
        assert_ne!(counted("192.0.2.1"), counted("192.0.2.2"));
        assert_eq!(counted("2001:db8::1"), counted("2001:db8::2"));
        assert_ne!(counted("2001:db8::1"), counted("2001:db8:0:1::1"));
        assert_ne!(
            counter(7, [192, 0, 2, 1].into()),
            counter(8, [192, 0, 2, 1].into())
        );
    }
}
