//! Which FPDUs are placed ahead of order and await their turn.
//!
//! The ledger keeps them by their offset in the stream, those that follow each other together: behind a hole there are
//! thousands, and all of them have their turn as it is filled. It is bounded: what finds no room in it is not placed
//! ahead of order, which costs its receiver a copy and nothing else.

use crate::ahead::Envelope;
use alloc::collections::{BTreeMap, VecDeque};

/// FPDUs that one ledger holds at most: those of 1448 octets behind one hole of a path at 1 Gb/s with a round trip of
/// 180 ms. With an STag and a range as the target of each a full ledger takes less than 3 MB, also where none follows
/// another.
pub const LEDGER_FPDUS_MAX: usize = 16 * 1024;

/// FPDUs that are placed and not delivered. `T` says where the payload is.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    /// By the offset in the stream that the first of each run had as it came.
    runs: BTreeMap<u64, Run<T>>,
    len: usize,
}

/// FPDUs that follow each other.
#[derive(Clone, Debug)]
struct Run<T> {
    /// Offsets in the stream of the first one, and behind the last one.
    start: u64,
    end: u64,
    fpdus: VecDeque<Placed<T>>,
}

/// An FPDU whose payload was placed ahead of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed<T> {
    /// All of it but its payload.
    pub envelope: Envelope,
    /// Where its payload is.
    pub target: T,
}

impl<T> Default for Ledger<T> {
    fn default() -> Ledger<T> {
        Ledger {
            runs: BTreeMap::new(),
            len: 0,
        }
    }
}

impl<T> Ledger<T> {
    /// FPDUs that await their turn.
    pub fn len(&self) -> usize {
        self.len
    }

    /// None awaits its turn.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// There is no room for another one.
    pub fn is_full(&self) -> bool {
        self.len >= LEDGER_FPDUS_MAX
    }

    /// The FPDU at this offset was placed.
    ///
    /// # Panics
    ///
    /// When the ledger is full. In debug builds, when the FPDU has octets of another one in the ledger: an octet of the
    /// stream is taken once.
    pub fn insert(&mut self, at: u64, placed: Placed<T>) {
        assert!(!self.is_full(), "asked first");
        let end = at + placed.envelope.wire_len() as u64;
        debug_assert!(self.is_free(at, end), "octets that were placed before");
        self.len += 1;
        let before = self.runs.range_mut(..at).next_back();
        if let Some((_, run)) = before.filter(|(_, run)| run.end == at) {
            run.end = end;
            run.fpdus.push_back(placed);
            return;
        }
        // Many may come alone: no more memory than one takes.
        let mut fpdus = VecDeque::with_capacity(1);
        fpdus.push_back(placed);
        let start = at;
        self.runs.insert(at, Run { start, end, fpdus });
    }

    fn is_free(&self, at: u64, end: u64) -> bool {
        let before = self.runs.range(..=at).next_back();
        let behind = self.runs.range(at..).next();
        before.is_none_or(|(_, run)| run.end <= at)
            && behind.is_none_or(|(_, run)| end <= run.start)
    }

    /// Takes the first FPDU out, if it begins at this offset: its turn has come.
    pub fn take(&mut self, at: u64) -> Option<Placed<T>> {
        let mut first = self.runs.first_entry()?;
        let run = first.get_mut();
        let placed = match run.start == at {
            true => run.fpdus.pop_front()?,
            false => return None,
        };
        run.start += placed.envelope.wire_len() as u64;
        if run.fpdus.is_empty() {
            first.remove();
        }
        self.len -= 1;
        Some(placed)
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::tests::envelope;

    #[test]
    fn each_is_taken_once_in_its_turn() {
        let mut ledger = Ledger::default();
        let placed = |target| Placed {
            envelope: envelope(4),
            target,
        };
        let len = placed(0).envelope.wire_len() as u64;
        for n in [3, 4, 7, 1, 2] {
            ledger.insert(n * len, placed(n));
        }
        assert_eq!((ledger.len(), ledger.is_empty()), (5, false));
        assert_eq!(ledger.take(2 * len), None, "the first one's turn");
        for n in [1, 2, 3, 4] {
            assert_eq!(ledger.take(n * len), Some(placed(n)));
            assert_eq!(ledger.take(n * len), None);
        }
        // Behind a run of which some had their turn, and where all of it had.
        ledger.insert(8 * len, placed(8));
        assert_eq!(ledger.take(7 * len), Some(placed(7)));
        ledger.insert(9 * len, placed(9));
        for n in [8, 9] {
            assert_eq!(ledger.take(n * len), Some(placed(n)));
        }
        assert_eq!((ledger.len(), ledger.is_empty()), (0, true));
        ledger.insert(9 * len, placed(9));
        assert_eq!(ledger.take(9 * len), Some(placed(9)));
    }

    #[test]
    #[should_panic(expected = "octets that were placed before")]
    #[cfg(debug_assertions)]
    fn an_octet_in_the_midst_of_a_run_is_not_taken_twice() {
        let mut ledger = Ledger::default();
        let placed = Placed {
            envelope: envelope(4),
            target: (),
        };
        let len = placed.envelope.wire_len() as u64;
        for n in 1..4 {
            ledger.insert(n * len, placed);
        }
        ledger.take(len);
        ledger.insert(3 * len, placed);
    }

    #[test]
    #[should_panic(expected = "octets that were placed before")]
    #[cfg(debug_assertions)]
    fn an_octet_is_not_taken_twice() {
        let mut ledger = Ledger::default();
        let placed = Placed {
            envelope: envelope(4),
            target: (),
        };
        ledger.insert(100, placed);
        ledger.insert(104, placed);
    }

    #[test]
    fn its_memory_is_bounded() {
        let mut ledger = Ledger::default();
        while !ledger.is_full() {
            let placed = Placed {
                envelope: envelope(4),
                target: 0u128,
            };
            ledger.insert(ledger.len() as u64 * 100, placed);
        }
        assert_eq!(ledger.len(), LEDGER_FPDUS_MAX);
        // A node of the tree is at least half full but the last one's.
        let entry = 2 * (size_of::<u64>() + size_of::<Run<[u64; 2]>>());
        let memory = (entry + size_of::<Placed<[u64; 2]>>()) * LEDGER_FPDUS_MAX;
        assert!(memory < 3_000_000, "{memory}");
        let capacity = ledger.runs.values().map(|run| run.fpdus.capacity());
        assert_eq!(capacity.sum::<usize>(), LEDGER_FPDUS_MAX);
        ledger.clear();
        assert!(ledger.is_empty());
    }
}
