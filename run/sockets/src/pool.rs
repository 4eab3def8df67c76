//! The records of the sockets of one kind, by number.
//!
//! A record is made when its number is taken for the first time and stays for ever: whoever holds a reference, in a
//! signal handler or another thread, finds memory there. The next socket of that number has it again, with the buffers
//! it was given.

use std::sync::OnceLock;

use crate::numbers::{Numbers, SOCKETS_MAX};

/// Records, and which of them a socket has.
#[derive(Debug)]
pub struct Pool<R: 'static> {
    taken: Numbers,
    records: [OnceLock<&'static R>; SOCKETS_MAX],
}

impl<R> Default for Pool<R> {
    fn default() -> Self {
        Pool::new()
    }
}

impl<R> Pool<R> {
    /// A pool without a record.
    pub const fn new() -> Pool<R> {
        Pool {
            taken: Numbers::new(),
            records: [const { OnceLock::new() }; SOCKETS_MAX],
        }
    }

    /// The record of this number, if it was ever taken.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&'static R> {
        self.records.get(number)?.get().copied()
    }

    /// Takes the lowest number that is free, and its record, which `make` makes if this is the first time. Nothing when
    /// all numbers are taken, or `make` says so.
    pub fn take(&self, make: impl FnOnce(usize) -> Option<&'static R>) -> Option<&'static R> {
        let number = self.taken.insert_lowest()?;
        if let Some(record) = self.get(number) {
            return Some(record);
        }
        let Some(record) = make(number) else {
            self.give_back(number);
            return None;
        };
        // Nobody else sets it: the number is this thread's.
        let _ = self.records[number].set(record);
        Some(record)
    }

    /// The number is free again.
    pub fn give_back(&self, number: usize) {
        self.taken.remove(number);
    }

    /// The records of the numbers that are taken.
    pub fn taken(&self) -> impl Iterator<Item = &'static R> + '_ {
        self.taken.iter().filter_map(|number| self.get(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(number: usize) -> Option<&'static usize> {
        Some(Box::leak(Box::new(number)))
    }

    #[test]
    fn a_number_has_the_same_record_every_time() {
        let pool = Pool::new();
        let first = pool.take(made).unwrap();
        assert_eq!(pool.take(made), Some(&1));
        pool.give_back(0);
        assert_eq!(pool.taken().collect::<Vec<_>>(), [&1]);
        let again = pool.take(|_| panic!("made twice")).unwrap();
        assert!(std::ptr::eq(first, again));
        assert_eq!(pool.get(0), Some(&0));
    }

    #[test]
    fn a_record_that_cannot_be_made_leaves_its_number_free() {
        let pool = Pool::new();
        assert_eq!(pool.take(|_| None), None);
        assert_eq!(pool.get(0), None);
        assert_eq!(pool.take(made), Some(&0));
    }

    #[test]
    fn numbers_end() {
        let pool = Pool::new();
        assert!((0..SOCKETS_MAX).all(|number| pool.take(made) == Some(&number)));
        assert_eq!(pool.take(made), None);
        assert_eq!(pool.get(SOCKETS_MAX), None);
    }
}
