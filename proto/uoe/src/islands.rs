//! Octets of a stream that wait for others, where each stands.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Octets that wait for others.
#[derive(Clone, Debug)]
pub(crate) struct Island {
    pub(crate) octets: Vec<u8>,
    /// A frame begins at its start, which reaches beyond its end.
    pub(crate) begins_with_frame: bool,
}

impl Island {
    /// Both, the second of which begins where the first ends.
    pub(crate) fn joined(mut self, other: Island) -> Island {
        self.octets.extend(other.octets);
        self
    }
}

/// What waits, by where it begins. No two touch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Islands(BTreeMap<u64, Island>);

impl Islands {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the one begins that ends at `offset`.
    pub(crate) fn before(&self, offset: u64) -> Option<u64> {
        let (start, island) = self.0.range(..offset).next_back()?;
        (start + island.octets.len() as u64 == offset).then_some(*start)
    }

    /// Whether what stands at `offset` has to be the rest of a frame.
    pub(crate) fn has_frame_before(&self, offset: u64) -> bool {
        let before = self.before(offset).and_then(|at| self.0.get(&at));
        before.is_some_and(|island| island.begins_with_frame)
    }

    /// Behind the last one.
    pub(crate) fn end(&self) -> Option<u64> {
        let (start, island) = self.0.last_key_value()?;
        Some(start + island.octets.len() as u64)
    }

    /// Takes the one out that begins at `start`.
    pub(crate) fn take(&mut self, start: u64) -> Option<Island> {
        self.0.remove(&start)
    }

    /// Puts one in.
    pub(crate) fn put(&mut self, start: u64, island: Island) {
        self.0.insert(start, island);
    }

    /// Gives up those that begin before `offset`. How many octets that is.
    pub(crate) fn give_up(&mut self, offset: u64) -> usize {
        let kept = self.0.split_off(&offset);
        let given_up = core::mem::replace(&mut self.0, kept);
        given_up.values().map(|island| island.octets.len()).sum()
    }
}
