//! Descriptors and what they stand for, readable by index without a lock.
//!
//! An entry is a guess that costs nothing to be without: 0 means that nobody has looked yet, and whoever meets it
//! looks. That is how descriptors come to be known that appear by ways no hook sees (inherited through exec,
//! received over a Unix socket, `pidfd_getfd`).

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::pages;

/// Descriptors up to this number have an entry; those above it, if a machine has them, are the kernel's alone.
const MOST: usize = 1 << 20;

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nobody has looked.
    Unknown,
    /// Nothing of ours.
    Kernel,
    /// The socket with this index.
    Socket(usize),
}

/// The table.
#[derive(Debug)]
pub struct Table {
    words: &'static [AtomicU32],
    /// One more than the greatest descriptor that ever stood for a socket.
    end: AtomicU32,
}

const UNKNOWN: u32 = 0;
const KERNEL: u32 = 1;
const SOCKETS: u32 = 2;

impl Table {
    /// An empty table; nothing when there is no memory for it.
    pub fn new() -> Option<Table> {
        Some(Table {
            words: pages::words(MOST)?,
            end: AtomicU32::new(0),
        })
    }

    /// What `fd` stands for.
    #[inline]
    pub fn get(&self, fd: i32) -> Entry {
        match self.word(fd).map(|word| word.load(Ordering::Acquire)) {
            Some(UNKNOWN) => Entry::Unknown,
            None | Some(KERNEL) => Entry::Kernel,
            Some(number) => Entry::Socket((number - SOCKETS) as usize),
        }
    }

    /// Sets what `fd` stands for; gives what it was.
    pub fn set(&self, fd: i32, entry: Entry) -> Entry {
        let Some(word) = self.word(fd) else {
            return Entry::Kernel;
        };
        let number = match entry {
            Entry::Unknown => UNKNOWN,
            Entry::Kernel => KERNEL,
            Entry::Socket(index) => SOCKETS + index as u32,
        };
        if number >= SOCKETS {
            self.end.fetch_max(fd as u32 + 1, Ordering::AcqRel);
        }
        match word.swap(number, Ordering::AcqRel) {
            UNKNOWN => Entry::Unknown,
            KERNEL => Entry::Kernel,
            number => Entry::Socket((number - SOCKETS) as usize),
        }
    }

    /// The descriptors from `first` to `last` that may stand for sockets; those between that do not are forgotten.
    pub fn sockets(&self, first: u32, last: u32) -> impl Iterator<Item = i32> + '_ {
        let end = self.end.load(Ordering::Acquire).min(last.saturating_add(1));
        (first..end)
            .map(|fd| fd as i32)
            .filter(|fd| matches!(self.get(*fd), Entry::Socket(_)))
    }

    /// Forgets the descriptors from `first` to `last` that stand for nothing of ours.
    pub fn forget_kernels(&self, first: u32, last: u32) {
        // What is above stays marked as the kernel's until somebody makes a socket of it, which a hook sees.
        const BLOCK: u32 = 65_536;
        for fd in first..last.saturating_add(1).min(BLOCK) {
            if self.get(fd as i32) == Entry::Kernel {
                self.set(fd as i32, Entry::Unknown);
            }
        }
    }

    #[inline]
    fn word(&self, fd: i32) -> Option<&AtomicU32> {
        self.words.get(usize::try_from(fd).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_what_they_were_set_to() {
        let table = Table::new().unwrap();
        assert_eq!(table.get(3), Entry::Unknown);
        assert_eq!(table.set(3, Entry::Socket(7)), Entry::Unknown);
        assert_eq!(table.get(3), Entry::Socket(7));
        assert_eq!(table.set(3, Entry::Kernel), Entry::Socket(7));
    }

    #[test]
    fn numbers_without_an_entry_are_the_kernels() {
        let table = Table::new().unwrap();
        for fd in [-1, i32::MIN, i32::MAX, MOST as i32] {
            assert_eq!(table.set(fd, Entry::Socket(1)), Entry::Kernel);
            assert_eq!(table.get(fd), Entry::Kernel);
        }
    }

    #[test]
    fn ranges_find_their_sockets() {
        let table = Table::new().unwrap();
        for fd in [4, 9, 1000] {
            table.set(fd, Entry::Socket(0));
        }
        table.set(5, Entry::Kernel);
        assert_eq!(table.sockets(0, 9).collect::<Vec<_>>(), [4, 9]);
        assert_eq!(table.sockets(5, u32::MAX).collect::<Vec<_>>(), [9, 1000]);
        table.forget_kernels(0, u32::MAX);
        assert_eq!(table.get(5), Entry::Unknown);
        assert_eq!(table.get(9), Entry::Socket(0));
    }
}
