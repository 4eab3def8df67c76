//! What the processes that share a socket (through fork) have to agree on.

use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::lock::{lock_shared, SharedGuard};

use crate::Errno;

/// What the processes that share a socket (through fork) have to agree on, in memory they share.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    words: &'static [AtomicU32],
}

/// Words of a slot.
pub const SLOT_WORDS: usize = 8;
const LOCK: usize = 0;
/// Counts the heads taken.
const GENERATION: usize = 1;
/// Octets of the head that were handed out.
const CONSUMED: usize = 2;
/// Plain receives under way, and whether receives are coalesced.
const STATE: usize = 3;
/// An error of the socket that a call of ours met on its way.
const PENDING: usize = 4;
/// Whether another process may have the socket too.
const SHARED: usize = 5;

const COALESCED: u32 = 1 << 31;

impl Slot {
    /// A slot in `words`, of which there are [`SLOT_WORDS`].
    pub fn new(words: &'static [AtomicU32]) -> Slot {
        assert_eq!(words.len(), SLOT_WORDS);
        Slot { words }
    }

    /// Makes a used slot as new.
    pub fn reset(&self) {
        for word in self.words {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// From now on other processes may have the socket.
    pub fn share(&self) {
        self.words[SHARED].store(1, Ordering::Release);
    }

    /// Whether other processes may have the socket.
    pub fn is_shared(&self) -> bool {
        self.words[SHARED].load(Ordering::Acquire) != 0
    }

    /// Whether receives are coalesced.
    #[inline]
    pub fn is_coalesced(&self) -> bool {
        self.words[STATE].load(Ordering::Acquire) & COALESCED != 0
    }

    /// Begins a receive that is the kernel's alone; false when receives are coalesced. A receive that never ends
    /// (its thread was cancelled) only means that receives never are.
    #[inline]
    pub fn begin_plain(&self) -> bool {
        if self.is_coalesced() {
            return false;
        }
        if self.words[STATE].fetch_add(1, Ordering::AcqRel) & COALESCED == 0 {
            return true;
        }
        self.end_plain();
        false
    }

    /// Ends it.
    #[inline]
    pub fn end_plain(&self) {
        self.words[STATE].fetch_sub(1, Ordering::AcqRel);
    }

    /// Makes receives coalesced, if no plain one is under way: it would meet several datagrams as one.
    pub fn coalesce(&self) -> bool {
        let state = &self.words[STATE];
        state
            .compare_exchange(0, COALESCED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes that back; nothing was coalesced yet.
    pub fn undo_coalesce(&self) {
        self.words[STATE].fetch_and(!COALESCED, Ordering::AcqRel);
    }

    /// Where those processes lock.
    pub fn lock_word(&self) -> &'static AtomicU32 {
        &self.words[LOCK]
    }

    /// The lock between those processes; none where the socket is this one's alone.
    pub fn lock(&self) -> Option<SharedGuard<'static>> {
        self.is_shared().then(|| lock_shared(&self.words[LOCK]))
    }

    pub fn generation(&self) -> u32 {
        self.words[GENERATION].load(Ordering::Relaxed)
    }

    pub fn consumed(&self) -> usize {
        self.words[CONSUMED].load(Ordering::Relaxed) as usize
    }

    pub fn set_consumed(&self, octets: usize) {
        self.words[CONSUMED].store(octets as u32, Ordering::Relaxed);
    }

    pub fn next_generation(&self) {
        self.words[GENERATION].fetch_add(1, Ordering::Relaxed);
        self.set_consumed(0);
    }

    pub fn set_pending(&self, errno: Errno) {
        self.words[PENDING].store(errno as u32, Ordering::Relaxed);
    }

    pub fn take_pending(&self) -> Option<Errno> {
        if self.words[PENDING].load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.words[PENDING].swap(0, Ordering::Relaxed) {
            0 => None,
            errno => Some(errno as Errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::pages;

    #[test]
    fn coalescing_waits_for_plain_receives() {
        let slot = Slot::new(pages::shared_words(SLOT_WORDS).unwrap());
        assert!(slot.begin_plain());
        assert!(!slot.coalesce());
        slot.end_plain();
        assert!(slot.coalesce());
        assert!(!slot.begin_plain());
        assert!(slot.is_coalesced());
    }
}
