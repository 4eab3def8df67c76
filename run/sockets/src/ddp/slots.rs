//! Room for connections, shared with every process that is forked from this one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weft_os::shared::{self, give_back, Region, Taken};
use weft_os::{process, sched};
use zerocopy::FromZeros;

use super::reclaiming::Reclaiming;
use super::rows::{self, Rows};
use super::slot::{Slot, State};
use crate::discovering::Room;

const BITS: usize = u64::BITS as usize;
/// Words in a page.
const WORDS: usize = 4096 / 8;
/// Connections that a family of processes can have at a time.
pub const SLOTS_MAX: usize = 16_384;
const _: () = assert!(std::mem::size_of::<Map>() == 4096);
const _: () = assert!(std::mem::offset_of!(Map, bits) == 0);
/// How often slots are looked at whose process may have ended, at most.
const LOOK_EVERY_MS: u32 = 1000;
/// What the region is called, with what it is made of: programs of another version do not take it for theirs.
pub const NAME: &str = concat!("weft-streams-", env!("CARGO_PKG_VERSION"));

/// Connections beside that, for which nobody is told any more that Weft is here: those that were told already come.
const KEPT_FREE: u32 = (SLOTS_MAX / 64) as u32;

/// Which slots are taken, a bit each. A look for a free one touches this page and no slot.
#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
pub(super) struct Map {
    bits: [AtomicU64; SLOTS_MAX / BITS],
    /// When slots that nobody has any more are looked for.
    pub(super) reclaiming: Reclaiming,
}

/// The inodes of their sockets, a page of them.
#[repr(C, align(4096))]
#[derive(Debug, FromZeros)]
struct Inodes([AtomicU64; WORDS]);

const MAP_OCTETS: usize = std::mem::size_of::<Map>();
const INODES_COUNT: usize = SLOTS_MAX / WORDS;
const INODES_OCTETS: usize = INODES_COUNT * std::mem::size_of::<Inodes>();
const ROWS_OCTETS: usize = rows::PAGES * std::mem::size_of::<Rows>();

/// Octets of the map's bits, which the file begins with.
pub(super) const BITS_OCTETS: usize = SLOTS_MAX / 8;
/// Where in the file the inodes begin, the rows, the slots; and how long it is.
pub(super) const INODES_AT: usize = MAP_OCTETS;
pub(super) const ROWS_AT: usize = INODES_AT + INODES_OCTETS;
pub(super) const SLOTS_AT: usize = ROWS_AT + ROWS_OCTETS;
pub(super) const FILE_OCTETS: usize = SLOTS_AT + SLOTS_MAX * std::mem::size_of::<Slot>();

/// The slots of a family of processes.
#[derive(Debug)]
pub struct Slots {
    are_inherited: bool,
    region: Region,
    pub(super) map: &'static Map,
    inodes: &'static [Inodes],
    rows: &'static [Rows],
    slots: &'static [Slot],
    /// When all of them were last looked at.
    looked_ms: AtomicU32,
}

impl Slots {
    /// Those of the family that this program was started in, or of a new one; nothing where the kernel has no room for
    /// them. `is_handed_on`: programs started from this one are to be of the family too.
    pub fn new(is_handed_on: bool) -> Option<Slots> {
        let inherited = match is_handed_on {
            true => Region::inherited(NAME, FILE_OCTETS),
            false => None,
        };
        let are_inherited = inherited.is_some();
        let region = inherited.or_else(|| match is_handed_on {
            true => Region::with_file(NAME, FILE_OCTETS),
            false => Region::new(FILE_OCTETS),
        })?;
        Some(Slots {
            are_inherited,
            map: region.values::<Map>(0, 1)?.first()?,
            inodes: region.values(INODES_AT, INODES_COUNT)?,
            rows: region.values(ROWS_AT, rows::PAGES)?,
            slots: region.values(SLOTS_AT, SLOTS_MAX)?,
            looked_ms: AtomicU32::new(0),
            region,
        })
    }

    /// Whether a program before this one had them.
    pub fn are_inherited(&self) -> bool {
        self.are_inherited
    }

    /// The file of those that a program before this one had. Allocates.
    pub fn inherited_file() -> Option<i32> {
        Region::inherited_file(NAME)
    }

    /// The descriptor by which programs that are handed it find the slots; nobody may close it.
    pub fn file(&self) -> Option<i32> {
        self.region.file()
    }

    fn inode(&self, number: usize) -> &AtomicU64 {
        &self.inodes[number / WORDS].0[number % WORDS]
    }

    /// The inode of the socket whose slot this is.
    pub fn inode_of(&self, number: u32) -> u64 {
        self.inode(number as usize).load(Ordering::Acquire)
    }

    /// The slot of the socket with this inode: another process of the family has the connection, or had.
    pub fn find(&self, inode: u64) -> Option<u32> {
        let words = self.map.bits.iter().enumerate();
        let number = words
            .filter(|(_, word)| word.load(Ordering::Relaxed) != 0)
            .find_map(|(at, _)| {
                (at * BITS..(at + 1) * BITS)
                    .find(|number| self.inode(*number).load(Ordering::Acquire) == inode)
            })?;
        self.enter(number as u32, inode).then_some(number as u32)
    }

    /// This process uses the connection of the socket with this inode, which it has from another and which had this
    /// slot; false where it has it no longer.
    pub fn enter(&self, number: u32, inode: u64) -> bool {
        let is_its = || self.inode_of(number) == inode;
        let Some(users) = self
            .get(number)
            .map(|slot| &slot.users)
            .filter(|_| is_its())
        else {
            return false;
        };
        // A parent that was amid taking the slot when it forked may not have come to that.
        self.share(number);
        let was_there = users.has_own();
        if users.enter() && is_its() {
            return true;
        }
        if !was_there {
            users.leave();
        }
        false
    }

    /// The numbers of slots that are taken.
    pub(super) fn taken_numbers(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.map.bits.iter().enumerate();
        words.flat_map(|(at, word)| {
            let bits = word.load(Ordering::Acquire);
            (0..BITS).filter_map(move |bit| (bits & 1 << bit != 0).then_some(at * BITS + bit))
        })
    }

    /// The slot with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&'static Slot> {
        self.slots.get(number as usize)
    }

    /// Takes a slot for a connection of this process, whose socket has this inode and is in this network namespace, if
    /// that is known; its number. `crc`: this end wants one.
    pub fn take(&self, state: State, inode: u64, crc: bool, network: Option<u64>) -> Option<u32> {
        self.reclaim_where_due();
        let number = self.take_number().or_else(|| {
            self.clear_dead();
            self.reclaim_now();
            self.take_number()
        })?;
        self.slots[number].begin(state, crc, network);
        self.inode(number).store(inode, Ordering::Release);
        Some(number as u32)
    }

    fn take_number(&self) -> Option<usize> {
        let mut words = self.map.bits.iter().enumerate();
        words.find_map(|(at, word)| take_bit(word).map(|bit| at * BITS + bit))
    }

    /// Frees what processes left that ended with connections which nobody else has: nothing runs in one that is
    /// killed. A look at all slots is long, so there is one in a second at most.
    #[cold]
    fn clear_dead(&self) {
        let now = sched::now_ms();
        let before = self.looked_ms.swap(now, Ordering::Relaxed);
        if before != 0 && now.wrapping_sub(before) < LOOK_EVERY_MS {
            return;
        }
        // Mostly one process has many.
        let mut last = (process::member(), false);
        for (number, slot) in self.slots.iter().enumerate() {
            let has_ended = |owner| {
                if last.0 != owner {
                    last = (owner, process::has_ended(owner));
                }
                last.1
            };
            if slot.take_from_dead(has_ended) {
                self.free(number);
            }
        }
    }

    pub(crate) fn free(&self, number: usize) {
        self.inode(number).store(0, Ordering::Release);
        self.slots[number].clear();
        let (word, bit) = (number / BITS, number % BITS);
        self.map.bits[word].fetch_and(!(1 << bit), Ordering::Release);
    }

    /// The process is about to fork, and has this connection.
    pub fn share(&self, number: u32) {
        if let Some(slot) = self.get(number) {
            slot.share();
        }
    }

    /// This process has the connection of the socket with this inode no longer. Its slot is free then, unless another
    /// process may have it.
    pub fn leave(&self, number: u32, inode: u64) {
        let Some(slot) = self.get(number) else {
            return;
        };
        // The slot may be another connection's by now, if this process had this one and never used it.
        if self.inode_of(number) != inode {
            return;
        }
        // A parent that was amid taking it when it forked has it, whether or not it has said so yet.
        if slot.is_shared() || !slot.users.has_own() {
            slot.disown();
            slot.users.leave();
            self.map.reclaiming.count_left();
            return;
        }
        self.free(number as usize);
    }

    /// Shows `word` of the socket with this inode to whoever looks. `again`: where something is shown already, too.
    pub fn show(&self, inode: u64, word: u32, again: bool) {
        rows::show(self.rows, inode, word, again);
    }

    /// Slots that are taken.
    pub fn taken(&self) -> u32 {
        let words = self.map.bits.iter();
        words
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum()
    }
}

impl Room for Slots {
    fn has_room(&self) -> bool {
        let is_short = || self.taken() > SLOTS_MAX as u32 - KEPT_FREE;
        if is_short() {
            self.clear_dead();
            self.reclaim_now();
        }
        !is_short()
    }
}

#[cfg(test)]
impl Slots {
    /// As if all of them were taken.
    pub(crate) fn fill(&self) {
        let words = self.map.bits.iter();
        words.for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    }
}

/// Sets the lowest bit that is not set.
fn take_bit(word: &AtomicU64) -> Option<usize> {
    let mut bits = word.load(Ordering::Relaxed);
    loop {
        let free = bits.trailing_ones() as usize;
        if free == BITS {
            return None;
        }
        let before = word.fetch_or(1 << free, Ordering::Acquire);
        if before & 1 << free == 0 {
            return Some(free);
        }
        bits = before;
    }
}

/// Makes a part of a slot zero; what cannot be taken belongs to a call that was interrupted for good.
pub(super) fn clear<T: zerocopy::FromBytes + zerocopy::FromZeros>(part: &shared::Shared<T>) {
    if let Taken::Held(mut value) | Taken::Inherited(mut value) = part.take() {
        value.zero();
    }
}

/// The same with octets, whose pages go back to the kernel.
pub(super) fn clear_octets<const N: usize>(part: &shared::Shared<[u8; N]>) {
    if let Taken::Held(mut value) | Taken::Inherited(mut value) = part.take() {
        give_back(&mut value[..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::testing::{await_child, fork};

    #[test]
    fn slots_are_taken_lowest_first_and_come_back() {
        weft_os::process::watch();
        let slots = Slots::new(false).unwrap();
        let taken: Vec<u32> = (0..130u64)
            .map(|inode| {
                slots
                    .take(State::Connecting, 1000 + inode, false, None)
                    .unwrap()
            })
            .collect();
        assert_eq!(taken, (0..130).collect::<Vec<u32>>());
        assert_eq!(slots.get(65).unwrap().state(), State::Connecting);
        slots.share(66);
        slots.leave(66, 1066);
        assert_eq!(slots.taken(), 130, "another process may have it");
        slots.leave(65, 7);
        assert_eq!(slots.taken(), 130, "it is another connection's");
        slots.leave(65, 1065);
        assert_eq!(slots.taken(), 129);
        assert_eq!(slots.get(65).unwrap().state(), State::Free);
        assert_eq!(slots.find(1065), None);
        assert_eq!(slots.take(State::Accepted, 7, false, None), Some(65));
        assert_eq!(slots.find(7), Some(65));
        assert_eq!(slots.find(1003), Some(3));
    }

    #[test]
    fn what_a_process_left_that_ended_is_free_when_it_is_needed() {
        weft_os::process::watch();
        let slots = Slots::new(false).unwrap();
        let child = fork(|| {
            let taken = [1, 2, 3].map(|inode| slots.take(State::Accepted, inode, false, None));
            // Somebody else may have this one.
            slots.share(1);
            taken == [Some(0), Some(1), Some(2)]
        });
        assert!(await_child(child));
        assert_eq!(slots.take(State::Accepted, 4, false, None), Some(3));
        slots.fill();
        assert_eq!(slots.take(State::Accepted, 5, false, None), Some(0));
        assert_eq!(slots.take(State::Accepted, 6, false, None), Some(2));
        assert_eq!(slots.take(State::Accepted, 7, false, None), None);
        assert_eq!((slots.find(1), slots.find(2)), (None, Some(1)));
    }

    #[test]
    fn there_are_so_many_and_no_more() {
        weft_os::process::watch();
        let slots = Slots::new(false).unwrap();
        slots.fill();
        assert_eq!(slots.take(State::Connecting, 1, false, None), None);
    }
}
