//! A buffer for those who want octets in order: placements go in as they come, octets come out in sequence.

use super::receive::Placement;
use alloc::vec::Vec;
use core::ops::Range;

/// A ring that grows with need up to its capacity.
#[derive(Clone, Debug)]
pub struct ReceiveBuffer {
    ring: Vec<u8>,
    /// Offset in the stream of the next octet to come out.
    start: u64,
    capacity: usize,
}

impl ReceiveBuffer {
    /// Holds up to `capacity` octets: give it the receive window of the connection.
    pub fn new(capacity: usize) -> ReceiveBuffer {
        ReceiveBuffer {
            ring: Vec::new(),
            start: 0,
            capacity,
        }
    }

    /// Puts octets of a payload where they belong. What lies beyond the capacity, which the window forbids, is dropped.
    pub fn place(&mut self, placement: &Placement, payload: &[u8]) {
        let Some(octets) = payload.get(placement.octets.clone()) else {
            return;
        };
        let Some(ahead) = placement.offset.checked_sub(self.start) else {
            return;
        };
        let needed = ahead as usize + octets.len();
        if needed > self.capacity {
            return;
        }
        self.grow(needed);
        let at = (placement.offset % self.ring.len() as u64) as usize;
        let first = octets.len().min(self.ring.len() - at);
        self.ring[at..at + first].copy_from_slice(&octets[..first]);
        self.ring[..octets.len() - first].copy_from_slice(&octets[first..]);
    }

    /// Takes octets in order, as many as `delivered` (of the connection) allows and `out` holds. Tell the connection by
    /// [`super::Connection::consume`].
    pub fn read(&mut self, delivered: u64, out: &mut [u8]) -> usize {
        let [first, second] = self.peek(delivered, out.len());
        out[..first.len()].copy_from_slice(first);
        out[first.len()..][..second.len()].copy_from_slice(second);
        let len = first.len() + second.len();
        self.skip(len);
        len
    }

    /// The next octets in order, `most` at most, where they are: behind the first part follows the second. Take them
    /// by [`ReceiveBuffer::skip`].
    pub fn peek(&self, delivered: u64, most: usize) -> [&[u8]; 2] {
        let len = self.readable(delivered).min(most as u64);
        self.range(self.start..self.start + len)
    }

    /// Offset in the stream of the next octet that comes out.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Octets at this range of the stream, where they are: behind the first part follows the second. All of them were
    /// placed, and none was taken.
    pub fn range(&self, range: Range<u64>) -> [&[u8]; 2] {
        let len = (range.end - range.start) as usize;
        if len == 0 {
            return [&[], &[]];
        }
        let at = (range.start % self.ring.len() as u64) as usize;
        let first = len.min(self.ring.len() - at);
        [&self.ring[at..at + first], &self.ring[..len - first]]
    }

    /// The next octets in order were taken: no more than [`ReceiveBuffer::peek`] showed.
    pub fn skip(&mut self, octets: usize) {
        self.start += octets as u64;
    }

    /// Octets in order that wait to be taken.
    pub fn readable(&self, delivered: u64) -> u64 {
        delivered.saturating_sub(self.start)
    }

    fn grow(&mut self, needed: usize) {
        if needed <= self.ring.len() {
            return;
        }
        let size = needed.next_power_of_two().max(4096);
        let mut ring = alloc::vec![0; size];
        let old = self.ring.len() as u64;
        if old > 0 {
            // Every place of the old ring is some offset from `start` on; what was never written moves along unseen.
            for offset in self.start..self.start + old {
                ring[(offset % size as u64) as usize] = self.ring[(offset % old) as usize];
            }
        }
        self.ring = ring;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_lies_beyond_the_capacity_takes_no_memory() {
        let mut buffer = ReceiveBuffer::new(1000);
        for offset in [999, 5000, 1 << 40] {
            let octets = 0..2;
            buffer.place(&Placement { offset, octets }, &[1, 2]);
        }
        assert!(buffer.ring.is_empty());
        let octets = 0..2;
        let offset = 998;
        buffer.place(&Placement { offset, octets }, &[1, 2]);
        assert_eq!(buffer.range(998..1000), [&[1u8, 2][..], &[]]);
    }

    proptest! {
        #[test]
        fn what_comes_out_is_what_was_placed(chunks in proptest::collection::vec(1usize..3000, 1..40)) {
            let stream: Vec<u8> = (0..200_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let mut buffer = ReceiveBuffer::new(64 * 1024);
            let mut at = 0;
            for pair in chunks.chunks(2) {
                // The second of each pair comes first.
                let ends = [at + pair[0], at + pair.iter().sum::<usize>()];
                for (from, to) in [(ends[0], ends[1]), (at, ends[0])] {
                    let placement = Placement { offset: from as u64, octets: 0..to - from };
                    buffer.place(&placement, &stream[from..to]);
                }
                let mut out = [0; 10_000];
                let read = buffer.read(ends[1] as u64, &mut out);
                prop_assert_eq!(&out[..read], &stream[at..ends[1]]);
                at = ends[1];
            }
        }
    }
}
