//! The records of the sockets of one kind, by number.
//!
//! Records are made when a number is taken for the first time and stay for ever: whoever holds a reference, in a signal
//! handler or another thread, finds memory there. The next socket of that number has it again, with the buffers it was
//! given. Small records are made a row at a time, so that as many as a page holds cost one page.

use std::sync::OnceLock;

use crate::numbers::Numbers;

/// Records, and which of them a socket has. A row is `ROW` records, a power of two.
#[derive(Debug)]
pub struct Pool<R: 'static, const ROW: usize> {
    taken: Numbers,
    rows: Box<[OnceLock<&'static [R]>]>,
}

impl<R, const ROW: usize> Pool<R, ROW> {
    /// A pool without a record, for up to `most` sockets, rounded up to a multiple of 64 and of `ROW`. Allocates.
    pub fn new(most: usize) -> Pool<R, ROW> {
        const { assert!(ROW.is_power_of_two()) };
        let most = most.next_multiple_of(ROW);
        Pool {
            taken: Numbers::new(most),
            rows: (0..most / ROW).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The record of this number, if it was ever made.
    #[inline]
    pub fn get(&self, number: usize) -> Option<&'static R> {
        let row: &'static [R] = self.rows.get(number / ROW)?.get()?;
        row.get(number % ROW)
    }

    /// Takes the lowest number that is free, and its record. The first time `make` makes its row: it is given the
    /// row's first number. Nothing when all numbers are taken, or `make` says so.
    pub fn take(&self, make: impl FnOnce(usize) -> Option<&'static [R]>) -> Option<&'static R> {
        let number = self.taken.insert_lowest()?;
        if let Some(record) = self.get(number) {
            return Some(record);
        }
        let first = number / ROW * ROW;
        if let (Some(row), Some(place)) = (make(first), self.rows.get(number / ROW)) {
            // Two threads that need the same new row both make it; the second one's is left unused.
            let _ = place.set(row);
        }
        let record = self.get(number);
        if record.is_none() {
            self.give_back(number);
        }
        record
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

    const MOST: usize = 128;

    fn alone(number: usize) -> Option<&'static [usize]> {
        Some(std::slice::from_ref(Box::leak(Box::new(number))))
    }

    fn by_eight(first: usize) -> Option<&'static [usize]> {
        Some(Box::leak((first..first + 8).collect()))
    }

    #[test]
    fn a_number_has_the_same_record_every_time() {
        let pool = Pool::<_, 1>::new(MOST);
        let first = pool.take(alone).unwrap();
        assert_eq!(pool.take(alone), Some(&1));
        pool.give_back(0);
        assert_eq!(pool.taken().collect::<Vec<_>>(), [&1]);
        let again = pool.take(|_| panic!("made twice")).unwrap();
        assert!(std::ptr::eq(first, again));
        assert_eq!(pool.get(0), Some(&0));
    }

    #[test]
    fn a_row_is_made_once_and_is_its_numbers() {
        let pool = Pool::<_, 8>::new(MOST);
        assert_eq!(pool.take(by_eight), Some(&0));
        for number in 1..8 {
            let made = pool.take(|_| panic!("made twice"));
            assert_eq!(made, Some(&number));
        }
        assert_eq!(pool.take(by_eight), Some(&8));
        assert_eq!(
            pool.taken().count(),
            9,
            "those of the row that are free are nobody's"
        );
        assert_eq!((pool.get(15), pool.get(16)), (Some(&15), None));
    }

    #[test]
    fn threads_that_make_one_row_have_records_of_their_own() {
        for _ in 0..50 {
            let pool = Pool::<_, 64>::new(MOST);
            let row = |first| Some(&*Box::leak((first..first + 64).collect::<Box<[usize]>>()));
            let take =
                || -> Vec<usize> { (0..16).filter_map(|_| pool.take(row)).copied().collect() };
            let mut taken = std::thread::scope(|scope| {
                let threads = [(); 4].map(|()| scope.spawn(take));
                threads.map(|thread| thread.join().unwrap()).concat()
            });
            taken.sort_unstable();
            assert_eq!(taken, (0..64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_record_that_cannot_be_made_leaves_its_number_free() {
        let pool = Pool::<_, 1>::new(MOST);
        assert_eq!(pool.take(|_| None), None);
        assert_eq!(pool.get(0), None);
        assert_eq!(pool.take(alone), Some(&0));
    }

    #[test]
    fn numbers_end() {
        let pool = Pool::<_, 8>::new(MOST);
        assert!((0..MOST).all(|number| pool.take(by_eight) == Some(&number)));
        assert_eq!(pool.take(by_eight), None);
        assert_eq!(pool.get(MOST), None);
        assert_eq!(Pool::<_, 1>::new(0).take(alone), None);
    }
}
