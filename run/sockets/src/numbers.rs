//! A set of numbers that threads, signal handlers and forked children change without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

const BITS: usize = u64::BITS as usize;

/// Numbers below a bound, a bit for each.
#[derive(Debug)]
pub struct Numbers {
    words: Box<[AtomicU64]>,
}

impl Numbers {
    /// No numbers yet; of those to come all are below `bound`, rounded up to a multiple of 64. Allocates.
    pub fn new(bound: usize) -> Numbers {
        let words = (0..bound.div_ceil(BITS)).map(|_| AtomicU64::new(0));
        Numbers {
            words: words.collect(),
        }
    }

    /// Whether `number` is in the set.
    #[inline]
    pub fn contains(&self, number: usize) -> bool {
        let (word, bit) = self.place(number);
        word.load(Ordering::Relaxed) & bit != 0
    }

    /// Puts `number` in; whether it was not.
    #[inline]
    pub fn insert(&self, number: usize) -> bool {
        let (word, bit) = self.place(number);
        // Who finds it there only reads, and leaves the cache line to all threads.
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    /// Takes `number` out; whether it was in.
    #[inline]
    pub fn remove(&self, number: usize) -> bool {
        let (word, bit) = self.place(number);
        word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// Puts the lowest number in that is not; nothing when all are.
    pub fn insert_lowest(&self) -> Option<usize> {
        for (at, word) in self.words.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != u64::MAX {
                let bit = !bits & (bits + 1);
                bits = word.fetch_or(bit, Ordering::AcqRel);
                if bits & bit == 0 {
                    return Some(at * BITS + bit.trailing_zeros() as usize);
                }
            }
        }
        None
    }

    /// The numbers, upwards. One that comes or goes meanwhile may be among them or not.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().flat_map(|(at, word)| {
            let mut bits = word.load(Ordering::Acquire);
            std::iter::from_fn(move || {
                let lowest = bits.trailing_zeros() as usize;
                // Clears the lowest bit; with none left `lowest` is no bit's number.
                bits &= bits.wrapping_sub(1);
                (lowest < BITS).then_some(at * BITS + lowest)
            })
        })
    }

    #[inline]
    fn place(&self, number: usize) -> (&AtomicU64, u64) {
        (&self.words[number / BITS], 1 << (number % BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: usize = 4096;

    #[test]
    fn the_lowest_free_number_comes_first() {
        let numbers = Numbers::new(BOUND);
        for number in 0..130 {
            assert_eq!(numbers.insert_lowest(), Some(number));
        }
        for number in [129, 64, 3] {
            assert!(numbers.remove(number));
            assert!(!numbers.remove(number));
        }
        for number in [3, 64, 129, 130] {
            assert_eq!(numbers.insert_lowest(), Some(number));
        }
    }

    #[test]
    fn there_is_an_end_to_them() {
        let numbers = Numbers::new(BOUND);
        assert!((0..BOUND).all(|number| numbers.insert_lowest() == Some(number)));
        assert_eq!(numbers.insert_lowest(), None);
        assert!(numbers.remove(BOUND - 1));
        assert_eq!(numbers.insert_lowest(), Some(BOUND - 1));
        assert_eq!(Numbers::new(0).insert_lowest(), None);
    }

    #[test]
    fn the_set_is_what_was_put_in_and_not_taken_out() {
        let numbers = Numbers::new(BOUND);
        for number in [0, 63, 64, 1000, BOUND - 1] {
            assert!(numbers.insert(number));
            assert!(!numbers.insert(number));
        }
        assert!(numbers.remove(64));
        assert!(!numbers.contains(64));
        assert!(numbers.contains(63));
        let all: Vec<usize> = numbers.iter().collect();
        assert_eq!(all, [0, 63, 1000, BOUND - 1]);
    }

    #[test]
    fn threads_never_get_the_same_number() {
        let numbers = Numbers::new(BOUND);
        let take = || -> Vec<usize> { (0..1000).filter_map(|_| numbers.insert_lowest()).collect() };
        let mut taken = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(take));
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        taken.sort_unstable();
        assert_eq!(taken, (0..4000).collect::<Vec<_>>());
    }
}
