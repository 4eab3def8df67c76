//! A number that a process has for itself: a child begins with a part of its parent's.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_os::process;

/// The number in the lower half of a word, and the process that it is of in the upper one.
#[derive(Debug)]
pub(crate) struct Marked(AtomicU64);

impl Marked {
    /// Of no process: each begins with it.
    pub(crate) const fn new(number: u32) -> Marked {
        Marked(AtomicU64::new(number as u64))
    }

    /// This process's; in a child that has not changed it, those bits of its parent's that are `inherited`.
    #[inline]
    pub(crate) fn get(&self, inherited: u32) -> u32 {
        number(self.0.load(Ordering::Acquire), inherited)
    }

    /// Sets it.
    pub(crate) fn set(&self, number: u32) {
        self.0.store(word(number), Ordering::Release);
    }

    /// Changes it; gives what it was.
    #[inline]
    pub(crate) fn update(&self, inherited: u32, change: impl Fn(u32) -> u32) -> u32 {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let own = number(before, inherited);
            let after = word(change(own));
            match self
                .0
                .compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return own,
                Err(now) => before = now,
            }
        }
    }
}

#[inline]
fn word(number: u32) -> u64 {
    u64::from(process::id()) << 32 | u64::from(number)
}

#[inline]
fn number(word: u64, inherited: u32) -> u32 {
    match (word >> 32) as u32 {
        own if own == process::id() => word as u32,
        0 => word as u32,
        _ => word as u32 & inherited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_has_what_is_inherited() {
        assert!(process::watch());
        let marked = Marked::new(5);
        assert_eq!(marked.get(0), 5, "of nobody");
        assert_eq!(marked.update(0, |before| before | 8), 5);
        assert_eq!(marked.get(0), 13);
        // As a child finds the word of a parent with another number.
        let parents = u64::from(process::id() ^ 1) << 32 | 13;
        marked.0.store(parents, Ordering::Relaxed);
        assert_eq!((marked.get(0), marked.get(9)), (0, 9));
        assert_eq!(marked.update(9, |before| before + 1), 9);
        assert_eq!(marked.get(0), 10);
    }
}
