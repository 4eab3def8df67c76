//! Which FPDUs are placed ahead of order and await their turn.
//!
//! The ledger keeps them by their offset in the stream. It is bounded: what finds no room in it is not placed ahead of
//! order, which costs its receiver a copy and nothing else.

use crate::ahead::Envelope;
use alloc::collections::BTreeMap;

/// FPDUs that one ledger holds at most: those of 1448 octets behind one hole of a path at 1 Gb/s with a round trip of
/// 180 ms. With an STag and a range as the target of each a full ledger takes less than 2 MB.
pub const LEDGER_FPDUS_MAX: usize = 16 * 1024;

/// FPDUs that are placed and not delivered, by their offset in the stream. `T` says where the payload is.
#[derive(Clone, Debug)]
pub struct Ledger<T> {
    placed: BTreeMap<u64, Placed<T>>,
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
            placed: BTreeMap::new(),
        }
    }
}

impl<T> Ledger<T> {
    /// FPDUs that await their turn.
    pub fn len(&self) -> usize {
        self.placed.len()
    }

    /// None awaits its turn.
    pub fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// There is no room for another one.
    pub fn is_full(&self) -> bool {
        self.placed.len() >= LEDGER_FPDUS_MAX
    }

    /// The FPDU at this offset was placed.
    ///
    /// # Panics
    ///
    /// When the ledger is full. In debug builds, when the FPDU has octets of another one in the ledger: an octet of the
    /// stream is taken once.
    pub fn insert(&mut self, at: u64, placed: Placed<T>) {
        assert!(!self.is_full(), "asked first");
        debug_assert!(
            self.is_free(at, placed.envelope.wire_len()),
            "octets that were placed before"
        );
        self.placed.insert(at, placed);
    }

    fn is_free(&self, at: u64, octets: usize) -> bool {
        let before = self.placed.range(..at).next_back();
        let behind = self.placed.range(at..).next();
        before.is_none_or(|(start, other)| start + other.envelope.wire_len() as u64 <= at)
            && behind.is_none_or(|(start, _)| at + octets as u64 <= *start)
    }

    /// Takes the first FPDU out, if it begins at this offset: its turn has come.
    pub fn take(&mut self, at: u64) -> Option<Placed<T>> {
        let first = self.placed.first_entry()?;
        (*first.key() == at).then(|| first.remove())
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.placed.clear();
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
        for n in [3, 1, 2] {
            ledger.insert(n * len, placed(n));
        }
        assert!(!ledger.is_empty());
        assert_eq!(ledger.take(2 * len), None, "the first one's turn");
        for n in [1, 2, 3] {
            assert_eq!(ledger.take(n * len), Some(placed(n)));
            assert_eq!(ledger.take(n * len), None);
        }
        assert!(ledger.is_empty());
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
        let entry = size_of::<u64>() + size_of::<Placed<[u64; 2]>>();
        assert!(2 * entry * LEDGER_FPDUS_MAX < 2_000_000, "{entry}");
        ledger.clear();
        assert!(ledger.is_empty());
    }
}
