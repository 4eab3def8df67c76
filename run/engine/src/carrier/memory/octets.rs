//! Octets on their way through memory: copies, and runs of registered memory that are read when the receiver takes
//! them.

use std::collections::VecDeque;

use weft_os::mem::Unmapped;

use crate::carrier::{Gather, Registered, Run};

/// A queue of octets.
#[derive(Debug, Default)]
pub(super) struct Octets {
    parts: VecDeque<Part>,
    len: usize,
}

#[derive(Debug)]
enum Part {
    Copied(VecDeque<u8>),
    Referred {
        memory: Registered,
        offset: u64,
        len: usize,
    },
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Copied(octets) => octets.len(),
            Part::Referred { len, .. } => *len,
        }
    }
}

impl Octets {
    /// Octets in the queue.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a copy.
    pub(super) fn push(&mut self, octets: &[u8]) {
        self.len += octets.len();
        match self.parts.back_mut() {
            Some(Part::Copied(last)) => last.extend(octets),
            _ => self.parts.push_back(Part::Copied(octets.to_vec().into())),
        }
    }

    /// Appends the first `most` octets of a list: registered memory by reference, everything else copied. Gives how
    /// many.
    pub(super) fn push_by_reference(&mut self, list: &Gather<'_>, most: usize) -> usize {
        let before = self.len;
        for run in list.runs() {
            let room = most - (self.len - before);
            match run {
                Run::Octets(octets) => self.push(&octets[..room.min(octets.len())]),
                Run::Registered {
                    memory,
                    offset,
                    len,
                } => {
                    let len = len.min(room);
                    self.len += len;
                    self.parts.push_back(Part::Referred {
                        memory: memory.clone(),
                        offset,
                        len,
                    });
                }
            }
        }
        self.len - before
    }

    /// Takes up to `most` octets from the front.
    ///
    /// # Errors
    /// Memory that is referred to is not mapped any more.
    pub(super) fn take(&mut self, most: usize) -> Result<Vec<u8>, Unmapped> {
        let mut taken = Vec::new();
        while let Some(part) = self.parts.front_mut() {
            let count = part.len().min(most - taken.len());
            match part {
                Part::Copied(octets) => taken.extend(octets.drain(..count)),
                Part::Referred {
                    memory,
                    offset,
                    len,
                } => {
                    memory.append_to(*offset, count, &mut taken)?;
                    *offset += count as u64;
                    *len -= count;
                }
            }
            if part.len() > 0 {
                break;
            }
            self.parts.pop_front();
        }
        self.len -= taken.len();
        Ok(taken)
    }

    /// Octets from the first on that is referred to.
    pub(super) fn unreleased(&self) -> usize {
        let referred = |part: &&Part| matches!(part, Part::Referred { .. });
        let copied = self.parts.iter().take_while(|part| !referred(part));
        self.len - copied.map(Part::len).sum::<usize>()
    }

    /// Copies what is referred to: all of it, or that of `memory` alone.
    ///
    /// # Errors
    /// Memory that is referred to is not mapped any more.
    pub(super) fn copy(&mut self, memory: Option<&Registered>) -> Result<(), Unmapped> {
        for part in &mut self.parts {
            let Part::Referred {
                memory: of,
                offset,
                len,
            } = part
            else {
                continue;
            };
            if memory.is_none_or(|memory| memory.addr() == of.addr()) {
                let mut octets = Vec::new();
                of.append_to(*offset, *len, &mut octets)?;
                *part = Part::Copied(octets.into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(memory: &Registered) -> Octets {
        memory.write(0, b"registered").unwrap();
        let mut list = Gather::default();
        list.push(b"head");
        list.push_registered(memory, 0, 10);
        list.push(b"tail");
        let mut octets = Octets::default();
        assert_eq!(octets.push_by_reference(&list, 16), 16);
        octets
    }

    #[test]
    fn what_is_referred_to_is_read_when_it_is_taken() {
        let memory = Registered::allocate(64).unwrap();
        let mut octets = sample(&memory);
        assert_eq!((octets.len(), octets.unreleased()), (16, 12));
        assert_eq!(octets.take(6).unwrap(), b"headre");
        memory.write(2, b"XY").unwrap();
        assert_eq!((octets.len(), octets.unreleased()), (10, 10));
        assert_eq!(octets.take(100).unwrap(), b"XYsteredta");
        assert_eq!((octets.len(), octets.unreleased()), (0, 0));
    }

    #[test]
    fn copies_do_not_change_with_the_memory() {
        let (memory, other) = (
            Registered::allocate(64).unwrap(),
            Registered::allocate(64).unwrap(),
        );
        let mut octets = sample(&memory);
        octets.copy(Some(&other)).unwrap();
        assert_eq!(octets.unreleased(), 12);
        octets.copy(Some(&memory)).unwrap();
        assert_eq!(octets.unreleased(), 0);
        memory.write(0, b"changed   ").unwrap();
        assert_eq!(octets.take(100).unwrap(), b"headregisteredta");
    }
}
