//! Octets that wait for order, in blocks of memory that come and go with the holes before them.
//!
//! However small the pieces are that octets come in, they take no more memory than the blocks that they lie in, and a
//! range for each hole between them.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

/// Octets of a block.
const BLOCK_OCTETS: usize = 16 * 1024;

/// Octets by their offset in the stream.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By number: the offset divided by the size of a block.
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// Which octets of the blocks were put there: from, to. They do not touch.
    ranges: BTreeMap<u64, u64>,
    octets: u64,
}

impl Waiting {
    /// Octets that wait.
    pub(super) fn octets(&self) -> u64 {
        self.octets
    }

    /// Octets at this offset wait. None of them is there yet.
    pub(super) fn insert(&mut self, at: u64, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        let mut rest = octets;
        let mut offset = at;
        while !rest.is_empty() {
            let (number, into) = place_of(offset);
            let (now, later) = rest.split_at(rest.len().min(BLOCK_OCTETS - into));
            let block = self.blocks.entry(number);
            let block = block.or_insert_with(|| vec![0; BLOCK_OCTETS].into_boxed_slice());
            block[into..into + now.len()].copy_from_slice(now);
            offset += now.len() as u64;
            rest = later;
        }
        self.octets += octets.len() as u64;
        self.join(at, offset);
    }

    /// Adds a range to those that it touches.
    fn join(&mut self, mut from: u64, mut to: u64) {
        debug_assert!(
            self.ranges.range(from..to).next().is_none(),
            "octets that wait already"
        );
        let before = self.ranges.range(..from).next_back();
        if let Some((start, end)) = before.map(|(start, end)| (*start, *end)) {
            debug_assert!(end <= from, "octets that wait already");
            if end == from {
                from = start;
            }
        }
        if let Some(end) = self.ranges.remove(&to) {
            to = end;
        }
        self.ranges.insert(from, to);
    }

    /// Takes octets from this offset on, if they are there: to the end of their block, or of them.
    pub(super) fn take(&mut self, at: u64) -> Option<Vec<u8>> {
        let end = self.ranges.remove(&at)?;
        let (number, into) = place_of(at);
        let len = ((end - at) as usize).min(BLOCK_OCTETS - into);
        let taken = self.blocks.get(&number)?[into..into + len].to_vec();
        let next = at + len as u64;
        if next < end {
            self.ranges.insert(next, end);
        }
        self.octets -= len as u64;
        // Others in the block are behind these: what is taken is taken in order.
        let is_used = self
            .ranges
            .first_key_value()
            .is_some_and(|(from, _)| place_of(*from).0 == number);
        if !is_used {
            self.blocks.remove(&number);
        }
        Some(taken)
    }
}

/// Number of the block, and how far into it.
fn place_of(offset: u64) -> (u64, usize) {
    let block = BLOCK_OCTETS as u64;
    (offset / block, (offset % block) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_come_out_in_order_whatever_the_order_they_came_in() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let stream: Vec<u8> = (0..rng.usize(1..60_000)).map(|_| rng.u8(..)).collect();
            let base = rng.u64(0..100_000);
            let mut cuts: Vec<usize> = (0..rng.usize(0..40))
                .map(|_| rng.usize(..stream.len()))
                .collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let mut pieces: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
            rng.shuffle(&mut pieces);
            let mut waiting = Waiting::default();
            for piece in pieces {
                waiting.insert(base + piece.start as u64, &stream[piece]);
            }
            assert_eq!(waiting.octets(), stream.len() as u64);
            assert_eq!(waiting.ranges.len(), 1);
            let mut out = Vec::new();
            while let Some(octets) = waiting.take(base + out.len() as u64) {
                out.extend(octets);
            }
            assert_eq!(out, stream);
            assert_eq!((waiting.octets(), waiting.blocks.len()), (0, 0));
        }
    }

    #[test]
    fn small_pieces_take_the_memory_of_their_blocks() {
        let mut waiting = Waiting::default();
        for at in (0..BLOCK_OCTETS as u64).rev() {
            waiting.insert(at, &[1]);
        }
        assert_eq!((waiting.blocks.len(), waiting.ranges.len()), (1, 1));
        assert_eq!(waiting.take(1), None, "not the first");
        assert_eq!(
            waiting.take(0).map(|octets| octets.len()),
            Some(BLOCK_OCTETS)
        );
    }
}
