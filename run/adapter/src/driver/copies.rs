//! Blocks of memory for copies of octets, used in the order of a stream and given back in that order.
//!
//! A sender of small FPDUs has tens of thousands of copies under way, each of some 24 octets between parts of
//! registered memory. Memory of their own for each would be more than the payload, and asked for and freed by different
//! threads.

use std::collections::VecDeque;
use std::ops::Range;

use weft_engine::carrier::Registered;
use weft_os::mem::Unmapped;

/// Octets of a block: a frame of 64 kB then has parts of two at most.
const BLOCK_OCTETS: usize = 64 << 10;
/// Octets of a block where nothing else is under way: whoever sends a message now and then holds no more.
const SMALL_BLOCK_OCTETS: usize = 4 << 10;
/// Blocks that a driver keeps for later: 16 MiB, about what is under way on a link whose receiver is quick.
const SPARE_BLOCKS_MAX: usize = 256;

/// Blocks that no connection has, for the next one that wants some: asked of the system anew, each page of them would
/// cost a fault.
#[derive(Debug, Default)]
pub(super) struct Pool {
    spare: Vec<Vec<u8>>,
}

impl Pool {
    fn take(&mut self) -> Vec<u8> {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Vec::with_capacity(BLOCK_OCTETS))
    }

    fn give_back(&mut self, block: Vec<u8>) {
        if self.spare.len() < SPARE_BLOCKS_MAX {
            self.spare.push(block);
        }
    }
}

/// A copy, within one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// The block's number, of all that ever were.
    block: u64,
    from: u32,
    pub len: u32,
}

impl Place {
    /// It begins where another one ends.
    pub fn follows(self, other: Place) -> bool {
        self.block == other.block && self.from == other.from + other.len
    }

    fn range(self) -> Range<usize> {
        self.from as usize..(self.from + self.len) as usize
    }
}

/// Copies, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Copies {
    blocks: VecDeque<Vec<u8>>,
    /// Number of the first block.
    first: u64,
    /// The small block, where it is not in use.
    small: Vec<u8>,
}

impl Copies {
    /// Copies octets behind what is there, as many as go into one place.
    pub fn push(&mut self, octets: &[u8], pool: &mut Pool) -> Place {
        let (number, block) = self.block_for(octets.len(), pool);
        let from = block.len();
        let len = octets.len().min(block.capacity() - from);
        block.extend_from_slice(&octets[..len]);
        place(number, from, len)
    }

    /// The same of registered memory.
    ///
    /// # Errors
    /// It is not mapped; nothing was copied then.
    pub fn push_registered(
        &mut self,
        memory: &Registered,
        offset: u64,
        len: usize,
        pool: &mut Pool,
    ) -> Result<Place, Unmapped> {
        let (number, block) = self.block_for(len, pool);
        let from = block.len();
        let len = len.min(block.capacity() - from);
        memory.append_to(offset, len, block)?;
        Ok(place(number, from, len))
    }

    /// The last block, or a new one where that is full: it has room for one octet at least.
    fn block_for(&mut self, octets: usize, pool: &mut Pool) -> (u64, &mut Vec<u8>) {
        let is_full = |block: &Vec<u8>| block.len() == block.capacity();
        if self.blocks.back().is_none_or(is_full) {
            let block = if self.blocks.is_empty() && octets <= SMALL_BLOCK_OCTETS {
                let mut small = std::mem::take(&mut self.small);
                small.reserve_exact(SMALL_BLOCK_OCTETS);
                small
            } else {
                pool.take()
            };
            self.blocks.push_back(block);
        }
        let number = self.first + self.blocks.len() as u64 - 1;
        match self.blocks.back_mut() {
            Some(block) => (number, block),
            None => unreachable!("a block was just put there"),
        }
    }

    /// The octets of a copy that was not given back.
    pub fn octets(&self, place: Place) -> &[u8] {
        let block = self.blocks.get((place.block - self.first) as usize);
        block.map_or(&[], |block| &block[place.range()])
    }

    /// What was copied before this is over: its block is the oldest that is in use.
    pub fn release_before(&mut self, place: Place, pool: &mut Pool) {
        while self.first < place.block && self.release_first(pool) {}
    }

    /// All copies are over.
    pub fn release_all(&mut self, pool: &mut Pool) {
        while self.release_first(pool) {}
    }

    fn release_first(&mut self, pool: &mut Pool) -> bool {
        let Some(mut block) = self.blocks.pop_front() else {
            return false;
        };
        self.first += 1;
        block.clear();
        match block.capacity() < BLOCK_OCTETS {
            true => self.small = block,
            false => pool.give_back(block),
        }
        true
    }
}

fn place(block: u64, from: usize, len: usize) -> Place {
    Place {
        block,
        from: from as u32,
        len: len as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets of memory that both hold.
    fn held(copies: &Copies, pool: &Pool) -> usize {
        let blocks = copies.blocks.iter().chain(&pool.spare);
        let all = blocks.chain([&copies.small]);
        all.map(Vec::capacity).sum()
    }

    #[test]
    fn who_sends_little_holds_little() {
        let (mut copies, mut pool) = (Copies::default(), Pool::default());
        for n in 0..1000 {
            let place = copies.push(&[n as u8; 100], &mut pool);
            assert_eq!(copies.octets(place), [n as u8; 100]);
            copies.release_all(&mut pool);
        }
        assert_eq!(held(&copies, &pool), SMALL_BLOCK_OCTETS);
    }

    #[test]
    fn a_stream_goes_through_the_same_blocks_again_and_again() {
        let (mut copies, mut pool) = (Copies::default(), Pool::default());
        let mut places = VecDeque::new();
        let mut most = 0;
        for n in 0..100_000u32 {
            places.push_back((n, copies.push(&n.to_be_bytes(), &mut pool)));
            if places.len() > 50_000 {
                let (n, oldest) = places.pop_front().unwrap();
                assert!(oldest.len == 4 && copies.octets(oldest) == n.to_be_bytes());
                copies.release_before(places[0].1, &mut pool);
            }
            most = most.max(held(&copies, &pool));
        }
        let blocks = (50_000 * 4usize).next_multiple_of(BLOCK_OCTETS) + BLOCK_OCTETS;
        assert!(most <= blocks + SMALL_BLOCK_OCTETS, "{most}");
        copies.release_all(&mut pool);
        assert_eq!(held(&copies, &Pool::default()), SMALL_BLOCK_OCTETS);
    }

    #[test]
    fn a_pool_keeps_so_many_blocks() {
        let (mut copies, mut pool) = (Copies::default(), Pool::default());
        for _ in 0..2 * SPARE_BLOCKS_MAX {
            copies.push(&[1; BLOCK_OCTETS], &mut pool);
        }
        copies.release_all(&mut pool);
        assert_eq!(held(&copies, &pool), SPARE_BLOCKS_MAX * BLOCK_OCTETS);
    }

    #[test]
    fn a_long_copy_ends_with_its_block() {
        let (mut copies, mut pool) = (Copies::default(), Pool::default());
        let octets = vec![7; BLOCK_OCTETS + 10];
        let first = copies.push(&octets, &mut pool);
        let second = copies.push(&octets[first.len as usize..], &mut pool);
        assert_eq!((first.len as usize, second.len), (BLOCK_OCTETS, 10));
        assert!(!second.follows(first) && copies.push(b"x", &mut pool).follows(second));
    }

    #[test]
    fn memory_that_is_gone_leaves_nothing() {
        let (mut copies, mut pool) = (Copies::default(), Pool::default());
        let gone = weft_os::testing::unmapped(4096);
        copies.push(b"before", &mut pool);
        let pushed = copies.push_registered(&gone, 0, 4096, &mut pool);
        assert_eq!(pushed, Err(Unmapped));
        let place = copies.push(b"behind", &mut pool);
        assert_eq!(copies.octets(place), b"behind");
    }
}
