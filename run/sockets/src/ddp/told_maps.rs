//! What a peer has mapped for this end: the table that it writes into, in shared memory.
//!
//! Whoever receives writes it, one at a time, and whoever sends reads it without a lock: an entry that changes
//! meanwhile is none.

use std::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use weft_stream::map::ENTRIES_MAX;
use weft_stream::{Map, Target};
use zerocopy::FromZeros;

/// An entry. Its number of changes is odd while it is being changed.
#[repr(C)]
#[derive(Debug, FromZeros)]
struct Entry {
    changes: AtomicU64,
    offset: AtomicU64,
    to: AtomicU64,
    /// STag, and octets in the lower half.
    stag_and_len: AtomicU64,
}

/// The table of one connection. Empty while it is zero.
#[repr(C)]
#[derive(Debug, FromZeros)]
pub(super) struct ToldMaps {
    /// Entries from here on were never written.
    end: AtomicU32,
    padding: AtomicU32,
    entries: [Entry; ENTRIES_MAX as usize],
}

impl ToldMaps {
    /// The peer has written this entry. To be called by one at a time.
    pub(super) fn set(&self, number: u16, map: &Map) {
        let Some(entry) = self.entries.get(usize::from(number)) else {
            return;
        };
        entry.set(map);
        self.end.fetch_max(u32::from(number) + 1, Ordering::Release);
    }

    /// Where the octet at this offset goes: STag, place, and how many octets there are from there on.
    pub(super) fn find(&self, offset: u64) -> Option<(u32, u64, u32)> {
        self.written().find_map(|entry| {
            let map = entry.get();
            let (to, left) = map.place(offset)?;
            Some((map.target.stag, to, left))
        })
    }

    /// As if nothing had ever been written.
    pub(super) fn clear(&self) {
        self.written().for_each(|entry| entry.set(&Map::default()));
        self.end.store(0, Ordering::Release);
    }

    fn written(&self) -> impl Iterator<Item = &Entry> {
        let end = self.end.load(Ordering::Acquire) as usize;
        self.entries.iter().take(end)
    }
}

impl Entry {
    fn set(&self, map: &Map) {
        // One that was left odd, by a process that died in here, is odd again.
        let changes = self.changes.load(Ordering::Relaxed) | 1;
        self.changes.store(changes, Ordering::Relaxed);
        fence(Ordering::Release);
        self.offset.store(map.offset, Ordering::Relaxed);
        self.to.store(map.target.to, Ordering::Relaxed);
        let stag_and_len = u64::from(map.target.stag) << 32 | u64::from(map.target.len);
        self.stag_and_len.store(stag_and_len, Ordering::Relaxed);
        self.changes.store(changes + 1, Ordering::Release);
    }

    /// One that is being changed is none: its new words count once all of them are there.
    fn get(&self) -> Map {
        let before = self.changes.load(Ordering::Acquire);
        let stag_and_len = self.stag_and_len.load(Ordering::Relaxed);
        let map = Map {
            offset: self.offset.load(Ordering::Relaxed),
            target: Target {
                to: self.to.load(Ordering::Relaxed),
                stag: (stag_and_len >> 32) as u32,
                len: stag_and_len as u32,
            },
        };
        fence(Ordering::Acquire);
        match before.is_multiple_of(2) && self.changes.load(Ordering::Relaxed) == before {
            true => map,
            false => Map::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(offset: u64, len: u32) -> Map {
        Map {
            offset,
            target: Target {
                to: offset + 0x1000,
                stag: offset as u32,
                len,
            },
        }
    }

    #[test]
    fn octets_are_found_where_they_are_mapped() {
        let maps = ToldMaps::new_zeroed();
        assert_eq!(maps.find(0), None);
        maps.set(0, &map(100, 10));
        maps.set(ENTRIES_MAX - 1, &map(0, 5));
        maps.set(ENTRIES_MAX, &map(500, 5));
        assert_eq!(maps.find(104), Some((100, 0x1000 + 104, 6)));
        assert_eq!(maps.find(0), Some((0, 0x1000, 5)));
        for offset in [5, 99, 110, 500] {
            assert_eq!(maps.find(offset), None, "{offset}");
        }
        maps.set(0, &Map::default());
        assert_eq!(maps.find(104), None, "it is unmapped");
        maps.clear();
        assert_eq!(maps.find(0), None);
    }

    #[test]
    fn an_entry_is_read_as_a_whole_or_not_at_all() {
        let maps = ToldMaps::new_zeroed();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..200_000u64 {
                    maps.set(0, &map(1000 * (round % 2), 1000));
                }
            });
            let mut found = 0;
            while !writer.is_finished() || found == 0 {
                if let Some((stag, to, left)) = maps.find(1500) {
                    assert_eq!((stag, to, left), (1000, 0x1000 + 1500, 500));
                    found += 1;
                }
                assert_ne!(maps.find(2500).map(drop), Some(()));
            }
        });
    }

    /// Whoever dies in the middle of a change leaves an entry that is none, and the next change makes it one.
    #[test]
    fn an_entry_whose_change_was_cut_off_can_be_changed() {
        let maps = ToldMaps::new_zeroed();
        maps.set(0, &map(100, 10));
        maps.entries[0].changes.store(3, Ordering::Relaxed);
        assert_eq!(maps.find(104), None);
        maps.set(0, &map(100, 10));
        assert!(maps.find(104).is_some());
    }
}
