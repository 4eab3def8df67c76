//! Control messages of a stream whose segments come in any order: which are there, which wait, whether one is missing.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Control messages by how many are before each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Controls {
    /// Those that wait for the stream before them, by where each begins, with how many are before each.
    waiting: BTreeMap<u64, (u64, Vec<u8>)>,
    /// Those that were given on.
    given: u64,
    /// Those that were sent, as far as the frames say that came.
    sent: u64,
}

impl Controls {
    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// One was sent that has not come, as far as the frames say that came.
    pub(crate) fn is_one_missing(&self) -> bool {
        self.given + self.waiting.len() as u64 != self.sent
    }

    /// How many are before this place of the stream, as far as is known.
    pub(crate) fn before(&self, offset: u64) -> u64 {
        let last = self.waiting.range(..offset).next_back();
        last.map_or(self.given, |(_, (before, _))| before + 1)
    }

    /// A frame says that so many were sent.
    pub(crate) fn note_sent(&mut self, sent: u64) {
        self.sent = self.sent.max(sent);
    }

    /// One is given on as it comes, in the order of the stream.
    pub(crate) fn note_given(&mut self) {
        self.given += 1;
    }

    /// One waits that begins at `offset`, and that so many are before.
    pub(crate) fn keep(&mut self, offset: u64, before: u64, octets: &[u8]) {
        self.waiting.insert(offset, (before, octets.to_vec()));
    }

    /// The next one that nothing is missing before, where the stream is there up to `frontier`.
    pub(crate) fn next(&mut self, frontier: u64) -> Option<Vec<u8>> {
        let first = self.waiting.first_entry()?;
        if *first.key() >= frontier {
            return None;
        }
        self.given += 1;
        Some(first.remove().1)
    }
}
