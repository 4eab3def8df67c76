//! Sockets by inode: how two descriptors of one socket come to know of each other where no hook saw the one made of
//! the other (inherited through exec, received over a Unix socket, duplicated by a bare system call).
//!
//! A hash table with open addressing. A socket stands in the first slot that was free from its own on, and a look-up
//! reads as many slots as any socket was ever moved on by. So whoever takes a socket out leaves a free slot, and no
//! mark that later look-ups have to step over. Slots hold words, whose meaning is the caller's; the inode is in the
//! record that the word names, and the caller compares it.

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::pages;

/// Slots for each socket that there can be, so that look-ups stay short.
const SLOTS_EACH: usize = 4;
/// A free slot.
const FREE: u32 = 0;

/// The table.
#[derive(Debug)]
pub struct Inodes {
    slots: &'static [AtomicU32],
    /// Slots that a look-up reads.
    reach: AtomicU32,
}

impl Inodes {
    /// An empty table for up to `sockets`, of all kinds together; nothing when there is no memory for it.
    pub fn new(sockets: usize) -> Option<Inodes> {
        let slots = (SLOTS_EACH * sockets).next_power_of_two().max(2);
        Some(Inodes {
            slots: pages::words(slots)?,
            reach: AtomicU32::new(0),
        })
    }

    /// Enters `word`, which is not 0, under `inode`; false when the table is full.
    pub fn insert(&self, inode: u64, word: u32) -> bool {
        let free = |slot: &AtomicU32| {
            slot.compare_exchange(FREE, word, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let Some(moved) = self.slots_of(inode, self.slots.len()).position(free) else {
            return false;
        };
        self.reach.fetch_max(moved as u32 + 1, Ordering::AcqRel);
        true
    }

    /// Takes `word` out again.
    pub fn remove(&self, inode: u64, word: u32) {
        let taken = |slot: &AtomicU32| {
            slot.compare_exchange(word, FREE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let _found = self.slots_of(inode, self.reach()).any(taken);
    }

    /// The words that may be of `inode`: all that are, and some that are of others.
    pub fn near(&self, inode: u64) -> impl Iterator<Item = u32> + '_ {
        self.slots_of(inode, self.reach())
            .map(|slot| slot.load(Ordering::Acquire))
            .filter(|word| *word != FREE)
    }

    fn reach(&self) -> usize {
        self.reach.load(Ordering::Acquire) as usize
    }

    /// `count` slots from that of `inode` on.
    fn slots_of(&self, inode: u64, count: usize) -> impl Iterator<Item = &AtomicU32> {
        // Inodes count up; multiplied by the golden ratio those near each other are far apart (Knuth 6.4).
        const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;
        let first = (inode.wrapping_mul(GOLDEN_RATIO) >> (64 - self.slots.len().ilog2())) as usize;
        // Their number is a power of two.
        let mask = self.slots.len() - 1;
        (0..count).map(move |number| &self.slots[(first + number) & mask])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOCKETS: usize = 4096;

    #[test]
    fn a_look_up_stays_short_whatever_comes_and_goes() {
        let inodes = Inodes::new(SOCKETS).unwrap();
        // A program with as many sockets as there are records, which closes and makes a million.
        let word = |inode: u64| (inode % 1_000_003) as u32 + 1;
        for inode in 0..1_000_000 {
            if let Some(old) = u64::checked_sub(inode, SOCKETS as u64) {
                inodes.remove(old, word(old));
            }
            assert!(inodes.insert(inode, word(inode)));
        }
        for inode in 0..1_000_000 {
            let open = inode + SOCKETS as u64 >= 1_000_000;
            let found = inodes.near(inode).any(|near| near == word(inode));
            assert_eq!(found, open, "{inode}");
        }
        assert!(inodes.reach() <= 8, "{} slots", inodes.reach());
    }

    #[test]
    fn a_full_table_takes_no_more_until_one_leaves() {
        let inodes = Inodes::new(SOCKETS).unwrap();
        assert!((0..inodes.slots.len() as u64).all(|_| inodes.insert(5, 7)));
        assert!(!inodes.insert(6, 8));
        inodes.remove(5, 7);
        assert!(inodes.insert(6, 8));
        assert!(inodes.near(6).any(|word| word == 8));
    }

    proptest! {
        /// What was entered and not taken out is found, wherever slots were free in between.
        #[test]
        fn what_is_there_is_found(
            steps in prop::collection::vec((any::<bool>(), 0u64..40), 0..400),
            // Inodes that all share a slot, and those that do not.
            stride in prop_oneof![Just(0u64), Just(1), Just(1 << 32)],
        ) {
            let inodes = Inodes::new(SOCKETS).unwrap();
            let mut entered = std::collections::BTreeSet::new();
            for (enter, number) in steps {
                let (inode, word) = (number * stride, number as u32 + 1);
                if enter && entered.insert(number) {
                    prop_assert!(inodes.insert(inode, word));
                } else if !enter && entered.remove(&number) {
                    inodes.remove(inode, word);
                }
            }
            for number in 0..40 {
                let found = inodes.near(number * stride).filter(|word| *word == number as u32 + 1).count();
                prop_assert_eq!(found, usize::from(entered.contains(&number)));
            }
        }
    }
}
