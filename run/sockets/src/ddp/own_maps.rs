//! Memory of this process that is mapped for the peers of its connections.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weft_os::lock::{Guard, Lock, Locked};
use weft_os::user::UserRange;
use weft_os::{pages, process};
use weft_stream::map::place_of_write;
use weft_stream::{Fault, Map, Target};

use super::SLOTS_MAX;
use crate::pool::Pool;
use crate::Errno;

/// Ranges of memory that are mapped on one connection at most. A power of two: an STag has the number of its range in
/// it.
pub const MAPS_MAX: usize = 256;
/// Connections of a process with mapped memory at most.
const CONNECTIONS_MAX: usize = 1024;

/// One range.
#[derive(Clone, Copy, Debug)]
struct OwnMap {
    memory: UserRange,
    /// As the peer was told; of one that it was not told of, zero.
    told: Option<Map>,
}

/// The mapped memory of one connection.
#[derive(Debug)]
pub struct OwnMaps {
    number: usize,
    /// Whose memory it is.
    process: AtomicU32,
    list: Lock<[Option<OwnMap>; MAPS_MAX]>,
}

impl OwnMaps {
    fn new(number: usize) -> OwnMaps {
        OwnMaps {
            number,
            process: AtomicU32::new(0),
            list: Lock::new([None; MAPS_MAX]),
        }
    }

    /// Whether it is this process's: a forked child has a copy of its parent's.
    pub(super) fn are_own(&self) -> bool {
        self.process.load(Ordering::Relaxed) == process::id()
    }

    /// It is this process's and empty, unless it is already: another thread may have put something into it.
    fn begin(&self) {
        if let Locked::Held(mut list) | Locked::Orphaned(mut list) = self.list.lock() {
            if !self.are_own() {
                *list = [None; MAPS_MAX];
                self.process.store(process::id(), Ordering::Release);
            }
        }
    }

    fn list(&self) -> Result<Guard<'_, [Option<OwnMap>; MAPS_MAX]>, Errno> {
        match self.list.lock() {
            Locked::Held(list) | Locked::Orphaned(list) => Ok(list),
            Locked::Again => Err(libc::EINTR),
        }
    }

    /// Maps memory for a peer whose table has so many entries, by this offset; gives the entry's number, and the entry.
    ///
    /// # Errors
    /// `ENOMEM` where no entry is free.
    pub(super) fn insert(
        &self,
        memory: UserRange,
        offset: u64,
        entries: u16,
    ) -> Result<(u16, Map), Errno> {
        let mut list = self.list()?;
        let usable = usize::from(entries).min(MAPS_MAX);
        let free = list[..usable].iter().position(Option::is_none);
        let number = free.ok_or(libc::ENOMEM)?;
        let random = weft_os::random_u64();
        let map = Map {
            offset,
            target: Target {
                // Upper halves of zero leave room for any range.
                to: random >> 32 << 12,
                stag: random as u32 & !(MAPS_MAX as u32 - 1) | number as u32,
                len: u32::try_from(memory.len()).map_err(|_| libc::EINVAL)?,
            },
        };
        list[number] = Some(OwnMap {
            memory,
            told: Some(map),
        });
        Ok((number as u16, map))
    }

    /// Takes note of memory that no peer is told of.
    ///
    /// # Errors
    /// `ENOMEM` where there is no place for more.
    pub(super) fn insert_untold(&self, memory: UserRange) -> Result<(), Errno> {
        let mut list = self.list()?;
        // From above: entries that a peer can be told of are the first.
        let free = list.iter_mut().rev().find(|map| map.is_none());
        *free.ok_or(libc::ENOMEM)? = Some(OwnMap { memory, told: None });
        Ok(())
    }

    /// The memory is mapped no longer; the entry that the peer was told of, where it was.
    ///
    /// # Errors
    /// `EINVAL` where it is not mapped.
    pub(super) fn remove(&self, memory: &UserRange) -> Result<Option<u16>, Errno> {
        let mut list = self.list()?;
        let is_it = |map: &Option<OwnMap>| map.is_some_and(|map| map.memory.is_same(memory));
        let number = list.iter().position(is_it).ok_or(libc::EINVAL)?;
        let map = list[number].take();
        Ok(map.and_then(|map| map.told).map(|_| number as u16))
    }

    /// This entry is mapped no longer.
    pub(super) fn remove_entry(&self, number: u16) {
        if let Ok(mut list) = self.list() {
            list[usize::from(number) % MAPS_MAX] = None;
        }
    }

    /// The memory that a Write of the peer's goes to.
    ///
    /// # Errors
    /// There is none there, or the Write goes beyond it.
    pub(super) fn find(&self, stag: u32, to: u64, len: u32) -> Result<UserRange, Fault> {
        let unknown = Fault::Stag(weft_iwarp::Stag(stag));
        let list = self.list().map_err(|_| unknown)?;
        let map = list[stag as usize % MAPS_MAX].filter(|map| is_named(map, stag));
        let map = map.ok_or(unknown)?;
        let target = map.told.unwrap_or_default().target;
        let at = place_of_write(&target, to, len)?;
        Ok(map.memory.part(at, len as usize))
    }
}

fn is_named(map: &OwnMap, stag: u32) -> bool {
    map.told.is_some_and(|told| told.target.stag == stag)
}

/// The mapped memory of this process, by the number of the connection's slot.
#[derive(Debug)]
pub struct Mapped {
    tables: Pool<OwnMaps, 1>,
    /// The number of each slot's table, and one; 0 for none.
    by_slot: &'static [AtomicU32],
    any: AtomicBool,
}

impl Mapped {
    /// None yet; nothing where the kernel has no memory for any. Allocates.
    pub fn new() -> Option<Mapped> {
        Some(Mapped {
            tables: Pool::new(CONNECTIONS_MAX),
            by_slot: pages::words(SLOTS_MAX)?,
            any: AtomicBool::new(false),
        })
    }

    /// What is mapped on the connection of this slot.
    #[inline]
    pub fn of(&self, slot: u32) -> Option<&'static OwnMaps> {
        match self.any.load(Ordering::Relaxed) {
            true => self.look_up(slot),
            false => None,
        }
    }

    fn look_up(&self, slot: u32) -> Option<&'static OwnMaps> {
        let number = self.by_slot.get(slot as usize)?.load(Ordering::Acquire);
        let maps = self.tables.get(number.checked_sub(1)? as usize)?;
        maps.are_own().then_some(maps)
    }

    /// The same, of a connection on which something is going to be.
    pub fn make(&self, slot: u32) -> Option<&'static OwnMaps> {
        if let Some(maps) = self.of(slot) {
            return Some(maps);
        }
        let word = self.by_slot.get(slot as usize)?;
        let before = word.load(Ordering::Acquire);
        let row =
            |number| pages::place(OwnMaps::new(number)).map(|maps| std::slice::from_ref(&*maps));
        let maps = match before.checked_sub(1) {
            // A child has its parent's number, and a table of its own.
            Some(number) => self.tables.get(number as usize)?,
            None => self.tables.take(row)?,
        };
        maps.begin();
        let own = maps.number as u32 + 1;
        let entered = word.compare_exchange(before, own, Ordering::AcqRel, Ordering::Acquire);
        self.any.store(true, Ordering::Relaxed);
        match entered {
            Ok(_) => Some(maps),
            // Another thread was quicker.
            Err(_) => {
                self.give_back(maps.number);
                self.look_up(slot)
            }
        }
    }

    /// Nothing is mapped on it any more.
    pub fn forget(&self, slot: u32) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let word = self.by_slot.get(slot as usize);
        let number = word.map_or(0, |word| word.swap(0, Ordering::AcqRel));
        if let Some(number) = number.checked_sub(1) {
            self.give_back(number as usize);
        }
    }

    /// The table is nobody's: who takes it next begins with none.
    fn give_back(&self, number: usize) {
        if let Some(maps) = self.tables.get(number) {
            maps.process.store(0, Ordering::Relaxed);
        }
        self.tables.give_back(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::testing::{await_child, fork};

    fn range(octets: usize) -> UserRange {
        UserRange::from(Box::leak(vec![0; octets].into_boxed_slice()))
    }

    #[test]
    fn memory_is_found_by_what_the_peer_was_told() {
        process::watch();
        let mapped = Mapped::new().unwrap();
        assert!(mapped.of(7).is_none());
        let maps = mapped.make(7).unwrap();
        let (one, other) = (range(100), range(50));
        let (first, told) = maps.insert(one, 1000, 2).unwrap();
        let (second, _) = maps.insert(other, 0, 2).unwrap();
        assert_eq!((first, second, told.offset), (0, 1, 1000));
        assert_eq!(maps.insert(one, 0, 2), Err(libc::ENOMEM));
        let Target { stag, to, len } = told.target;
        assert_eq!(len, 100);
        assert!(maps
            .find(stag, to + 10, 90)
            .unwrap()
            .is_same(&one.part(10, 90)));
        assert!(maps.find(stag, to + 11, 90).is_err());
        assert!(maps.find(stag ^ 1 << 20, to, 1).is_err());
        assert_eq!(maps.remove(&one), Ok(Some(0)));
        assert_eq!(maps.remove(&one), Err(libc::EINVAL));
        assert!(maps.find(stag, to, 1).is_err());
        mapped.forget(7);
        assert!(mapped.of(7).is_none());
        assert!(mapped.make(7).unwrap().find(stag, to, 1).is_err());
    }

    #[test]
    fn memory_that_nobody_is_told_of_takes_no_entry() {
        process::watch();
        let mapped = Mapped::new().unwrap();
        let maps = mapped.make(0).unwrap();
        let memory = range(8);
        maps.insert_untold(memory).unwrap();
        let entry = maps.insert(memory.part(0, 4), 0, 1);
        assert_eq!(entry.map(|(number, _)| number), Ok(0));
        assert_eq!(maps.remove(&memory), Ok(None));
    }

    #[test]
    fn a_child_has_none_of_its_parents() {
        process::watch();
        let mapped = Mapped::new().unwrap();
        let maps = mapped.make(3).unwrap();
        let memory = range(8);
        maps.insert(memory, 0, 1).unwrap();
        let child = fork(|| {
            let is_free = |maps: &OwnMaps| maps.insert(memory, 0, 1).is_ok();
            mapped.of(3).is_none() && mapped.make(3).is_some_and(is_free)
        });
        assert!(await_child(child));
        assert_eq!(maps.insert(memory, 0, 1), Err(libc::ENOMEM));
    }

    /// Threads of a child that map at once share its table, and the later one finds what the earlier one has mapped.
    #[test]
    fn a_table_begins_once_in_a_child() {
        process::watch();
        let mapped = Mapped::new().unwrap();
        let memory = range(8);
        mapped.make(3).unwrap().insert(memory, 0, 2).unwrap();
        let child = fork(|| {
            let maps = mapped.make(3).unwrap();
            let entry = maps.insert(memory, 0, 2).map(|(entry, _)| entry);
            // What the later thread does, which has not seen that the table is its process's.
            maps.begin();
            (entry, maps.remove(&memory)) == (Ok(0), Ok(Some(0)))
        });
        assert!(await_child(child));
    }
}
