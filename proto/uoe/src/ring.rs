//! Datagrams in a piece of memory, first in, first out.
//!
//! Each has a header of 16 octets before it and begins at a multiple of 8. One that does not fit before the end of the
//! memory lies at its beginning, so that every datagram is one slice.

use core::time::Duration;

/// Octets that a datagram takes beside its own.
pub const RECORD_HEADER_LEN: usize = 16;

/// A datagram that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its octets.
    pub octets: &'a [u8],
    /// What whoever put it in wants to know of it.
    pub tag: u32,
    /// When it was put in.
    pub since: Duration,
}

/// Datagrams in memory of the owner's: nothing is allocated here.
#[derive(Clone, Debug, Default)]
pub struct Ring<M> {
    memory: M,
    /// Where the first record is.
    head: usize,
    /// Where the next one goes.
    tail: usize,
    /// Behind the last record before the beginning is used again; `head` does not go beyond it.
    wrap: usize,
    count: usize,
    /// Octets that records take, headers and all.
    taken: usize,
}

/// Octets that a record of `len` octets takes.
#[inline]
pub fn record_len(len: usize) -> usize {
    (RECORD_HEADER_LEN + len).next_multiple_of(8)
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Ring<M> {
    /// An empty ring in this memory. Its length in octets is the bound.
    pub fn new(memory: M) -> Ring<M> {
        Ring {
            memory,
            head: 0,
            tail: 0,
            wrap: 0,
            count: 0,
            taken: 0,
        }
    }

    /// Datagrams that wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Octets taken, with headers and what is left over between records.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Whether there could ever be room for a datagram of `len` octets.
    pub fn could_hold(&self, len: usize) -> bool {
        record_len(len) <= self.memory.as_ref().len() & !7
    }

    /// Whether there is room for a datagram of `len` octets now.
    pub fn has_room(&self, len: usize) -> bool {
        self.place(record_len(len)).is_some()
    }

    /// Where a record of `needed` octets fits, if it does.
    fn place(&self, needed: usize) -> Option<usize> {
        let room = self.memory.as_ref().len() & !7;
        if self.count == 0 {
            return (needed <= room).then_some(0);
        }
        if self.tail > self.head {
            if needed <= room - self.tail {
                return Some(self.tail);
            }
            return (needed <= self.head).then_some(0);
        }
        (needed <= self.head - self.tail).then_some(self.tail)
    }

    /// Puts a datagram of `len` octets in, which `fill` writes. Says whether there was room.
    ///
    /// # Errors
    /// What `fill` says. Nothing was put in then.
    #[inline]
    pub fn push<E>(
        &mut self,
        len: usize,
        tag: u32,
        since: Duration,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<bool, E> {
        let needed = record_len(len);
        let Some(at) = self.place(needed) else {
            return Ok(false);
        };
        let record = &mut self.memory.as_mut()[at..at + needed];
        let (header, octets) = record.split_at_mut(RECORD_HEADER_LEN);
        fill(&mut octets[..len])?;
        header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&tag.to_ne_bytes());
        // Nanoseconds last 584 years.
        header[8..].copy_from_slice(&(since.as_nanos() as u64).to_ne_bytes());
        if self.count == 0 {
            self.head = 0;
        } else if at < self.tail {
            self.wrap = self.tail;
        }
        self.tail = at + needed;
        self.count += 1;
        self.taken += needed;
        Ok(true)
    }

    /// The first datagram.
    #[inline]
    pub fn front(&self) -> Option<Record<'_>> {
        if self.count == 0 {
            return None;
        }
        let (header, rest) = self.memory.as_ref()[self.head..].split_first_chunk::<16>()?;
        let [len, tag] = [0, 4].map(|at| {
            let mut octets = [0; 4];
            octets.copy_from_slice(&header[at..at + 4]);
            u32::from_ne_bytes(octets)
        });
        let mut nanos = [0; 8];
        nanos.copy_from_slice(&header[8..]);
        Some(Record {
            octets: &rest[..len as usize],
            tag,
            since: Duration::from_nanos(u64::from_ne_bytes(nanos)),
        })
    }

    /// Takes the first datagram out.
    #[inline]
    pub fn pop(&mut self) {
        let Some(record) = self.front() else {
            return;
        };
        let needed = record_len(record.octets.len());
        self.head += needed;
        self.count -= 1;
        self.taken -= needed;
        // The next one lies at the beginning where this was the last before the end.
        if self.count > 0 && self.head == self.wrap && self.tail <= self.head {
            self.head = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec;
    use std::vec::Vec;

    fn push(ring: &mut Ring<Vec<u8>>, octets: &[u8], tag: u32) -> bool {
        let since = Duration::from_nanos(u64::from(tag) << 33);
        let fill = |room: &mut [u8]| {
            room.copy_from_slice(octets);
            Ok::<(), ()>(())
        };
        ring.push(octets.len(), tag, since, fill).unwrap()
    }

    #[test]
    fn what_cannot_be_filled_takes_nothing() {
        let mut ring = Ring::new(vec![0; 64]);
        assert_eq!(ring.push(8, 0, Duration::ZERO, |_| Err(14)), Err(14));
        assert!(ring.is_empty() && ring.front().is_none());
        assert!(push(&mut ring, &[1; 48], 1), "all of the memory");
        assert!(!push(&mut ring, &[], 2));
        ring.pop();
        assert!(push(&mut ring, &[], 2), "an empty datagram is one");
        assert_eq!(ring.front().map(|record| record.octets.len()), Some(0));
    }

    #[test]
    fn a_ring_without_memory_holds_nothing() {
        let mut ring = Ring::new(Vec::new());
        assert!(!ring.could_hold(0));
        assert!(!push(&mut ring, &[], 2));
        ring.pop();
        assert_eq!(ring.taken(), 0);
    }

    proptest! {
        /// Whatever is put in and taken out: what comes out is what went in, in order, and no more room is lost
        /// than the longest record takes.
        #[test]
        fn first_in_first_out(
            memory in 0usize..400, steps in prop::collection::vec((any::<bool>(), 0usize..100), 0..300)
        ) {
            let mut ring = Ring::new(vec![0; memory]);
            let mut model: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
            for (number, (puts, len)) in steps.into_iter().enumerate() {
                let number = number as u32;
                if puts {
                    let octets = vec![number as u8; len];
                    let taken: usize = model.iter().map(|(_, octets)| record_len(octets.len())).sum();
                    prop_assert_eq!(taken, ring.taken());
                    prop_assert_eq!(ring.has_room(len), push(&mut ring, &octets, number));
                    if ring.len() > model.len() {
                        prop_assert!(taken + record_len(len) <= memory);
                        model.push_back((number, octets));
                    } else {
                        // What is left over at the end is less than the longest record.
                        prop_assert!(taken + record_len(len) + record_len(100) + 8 > memory);
                    }
                } else {
                    ring.pop();
                    model.pop_front();
                }
                prop_assert_eq!(ring.len(), model.len());
                let wanted = model.front().map(|(tag, octets)| Record {
                    octets, tag: *tag, since: Duration::from_nanos(u64::from(*tag) << 33)
                });
                prop_assert_eq!(ring.front(), wanted);
            }
        }
    }
}
