//! Descriptors and what they stand for, readable by index without a lock.
//!
//! An entry is a guess that costs nothing to be without: 0 means that nobody has looked yet, and whoever meets it
//! looks. That is how descriptors come to be known that appear by ways no hook sees (inherited through exec,
//! received over a Unix socket, `pidfd_getfd`).

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::pages;

/// Descriptors up to this number have an entry; those above it, if a machine has them, are the kernel's alone.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// A name for each kind of sockets: an enum without fields.
pub trait Kind: Copy + Debug + Eq + Send + Sync + 'static {
    /// All kinds, each at the place that [`Kind::place`] gives; fewer than 255.
    const ALL: &'static [Self];

    /// Where the kind stands in [`Kind::ALL`].
    fn place(self) -> usize;
}

/// What a descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<K> {
    /// Nobody has looked.
    Unknown,
    /// Nothing of ours.
    Kernel,
    /// A socket of ours.
    Ours(Socket<K>),
}

/// A socket of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket<K> {
    /// Its kind.
    pub kind: K,
    /// Its number among the sockets of its kind, below 2^24.
    pub number: usize,
}

const UNKNOWN: u32 = 0;
const KERNEL: u32 = 1;
/// Where in a word the kind begins, counted from 1; below it is the number.
const KIND_SHIFT_BITS: u32 = 24;

impl<K: Kind> Socket<K> {
    /// The socket as a word, which is neither 0 nor 1.
    #[inline]
    pub fn to_word(self) -> u32 {
        (self.kind.place() as u32 + 1) << KIND_SHIFT_BITS | self.number as u32
    }

    /// The socket that [`Socket::to_word`] made `word` of; nothing if it made it of none.
    #[inline]
    pub fn from_word(word: u32) -> Option<Socket<K>> {
        let place = (word >> KIND_SHIFT_BITS).checked_sub(1)?;
        Some(Socket {
            kind: *K::ALL.get(place as usize)?,
            number: (word & ((1 << KIND_SHIFT_BITS) - 1)) as usize,
        })
    }
}

impl<K: Kind> Entry<K> {
    #[inline]
    fn from_word(word: u32) -> Entry<K> {
        match word {
            UNKNOWN => Entry::Unknown,
            // Nearly every descriptor, of calls that files have too: it takes no decoding.
            KERNEL => Entry::Kernel,
            word => Socket::from_word(word).map_or(Entry::Kernel, Entry::Ours),
        }
    }

    fn to_word(self) -> u32 {
        match self {
            Entry::Unknown => UNKNOWN,
            Entry::Kernel => KERNEL,
            Entry::Ours(socket) => socket.to_word(),
        }
    }
}

/// The table.
#[derive(Debug)]
pub struct Table<K> {
    words: &'static [AtomicU32],
    /// One more than the greatest descriptor that ever stood for a socket.
    end: AtomicU32,
    kinds: PhantomData<K>,
}

impl<K: Kind> Table<K> {
    /// An empty table; nothing when there is no memory for it.
    pub fn new() -> Option<Table<K>> {
        Some(Table {
            words: pages::words(DESCRIPTORS_MAX)?,
            end: AtomicU32::new(0),
            kinds: PhantomData,
        })
    }

    /// What `fd` stands for.
    #[inline]
    pub fn get(&self, fd: i32) -> Entry<K> {
        match self.word(fd) {
            Some(word) => Entry::from_word(word.load(Ordering::Acquire)),
            None => Entry::Kernel,
        }
    }

    /// Sets what `fd` stands for; gives what it was.
    pub fn set(&self, fd: i32, entry: Entry<K>) -> Entry<K> {
        let Some(word) = self.word(fd) else {
            return Entry::Kernel;
        };
        if let Entry::Ours(_) = entry {
            self.end.fetch_max(fd as u32 + 1, Ordering::AcqRel);
        }
        Entry::from_word(word.swap(entry.to_word(), Ordering::AcqRel))
    }

    /// The descriptors from `first` to `last` that may stand for sockets; those between that do not are forgotten.
    pub fn sockets(&self, first: u32, last: u32) -> impl Iterator<Item = i32> + '_ {
        let end = self.end.load(Ordering::Acquire).min(last.saturating_add(1));
        (first..end)
            .map(|fd| fd as i32)
            .filter(|fd| matches!(self.get(*fd), Entry::Ours(_)))
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

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fruit {
        Apple,
        Pear,
    }

    impl Kind for Fruit {
        const ALL: &'static [Fruit] = &[Fruit::Apple, Fruit::Pear];
        fn place(self) -> usize {
            self as usize
        }
    }

    const fn apple(number: usize) -> Entry<Fruit> {
        Entry::Ours(Socket {
            kind: Fruit::Apple,
            number,
        })
    }

    const fn pear(number: usize) -> Entry<Fruit> {
        Entry::Ours(Socket {
            kind: Fruit::Pear,
            number,
        })
    }

    #[test]
    fn entries_are_what_they_were_set_to() {
        let table = Table::new().unwrap();
        let mut before = Entry::Unknown;
        let most = (1 << KIND_SHIFT_BITS) - 1;
        for entry in [
            apple(0),
            pear(0),
            apple(most),
            pear(most),
            Entry::Kernel,
            Entry::Unknown,
        ] {
            assert_eq!(table.get(3), before);
            assert_eq!(table.set(3, entry), before);
            before = entry;
        }
        assert_eq!(table.get(3), Entry::Unknown);
    }

    #[test]
    fn numbers_without_an_entry_are_the_kernels() {
        let table = Table::new().unwrap();
        for fd in [-1, i32::MIN, i32::MAX, DESCRIPTORS_MAX as i32] {
            assert_eq!(table.set(fd, apple(1)), Entry::Kernel);
            assert_eq!(table.get(fd), Entry::Kernel);
        }
    }

    #[test]
    fn ranges_find_their_sockets() {
        let table = Table::new().unwrap();
        for (fd, entry) in [(4, apple(0)), (9, pear(0)), (1000, apple(0))] {
            table.set(fd, entry);
        }
        table.set(5, Entry::Kernel);
        assert_eq!(table.sockets(0, 9).collect::<Vec<_>>(), [4, 9]);
        assert_eq!(table.sockets(5, u32::MAX).collect::<Vec<_>>(), [9, 1000]);
        table.forget_kernels(0, u32::MAX);
        assert_eq!(table.get(5), Entry::Unknown);
        assert_eq!(table.get(9), pear(0));
    }
}
