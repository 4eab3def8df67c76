//! What a connection has taken to send, until the peer has it: copies, and parts of registered memory.

use std::collections::VecDeque;
use std::ops::Range;

use weft_engine::carrier::{Gather, Registered, Run};
use weft_os::mem::Unmapped;

/// Copies of up to so many octets are put into one piece: a frame of 64 kB is then of few.
const COPIED_TOGETHER_OCTETS_MAX: usize = 64 << 10;
/// Room that a new piece begins with.
const COPIED_OCTETS_MIN: usize = 4 << 10;
/// Runs of registered memory below this are copied: a piece of its own costs more.
const REFERRED_OCTETS_MIN: usize = 1 << 10;

/// The octets of a stream from the first that the peer has not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    /// Offset in the stream behind the last octet.
    end: u64,
    /// Pieces that refer to registered memory.
    referred: usize,
    /// The buffer of a small copy that is over, for the next one.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Piece {
    /// Offset in the stream of its first octet.
    offset: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Copied(Vec<u8>),
    Referred {
        memory: Registered,
        offset: u64,
        len: usize,
    },
}

/// Octets of one piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    Octets(&'a [u8]),
    Registered {
        memory: &'a Registered,
        offset: u64,
        len: usize,
    },
}

impl Piece {
    fn len(&self) -> usize {
        match &self.what {
            What::Copied(octets) => octets.len(),
            What::Referred { len, .. } => *len,
        }
    }

    fn end(&self) -> u64 {
        self.offset + self.len() as u64
    }
}

impl Outgoing {
    /// Offset in the stream behind the last octet.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends a copy.
    pub fn push(&mut self, octets: &[u8]) {
        self.room_for(octets.len()).extend_from_slice(octets);
        self.end += octets.len() as u64;
    }

    /// Appends the first `most` octets of a list. The last `copied` of these are copied, and what is short; other
    /// registered memory is referred to. Gives how many.
    ///
    /// # Errors
    /// Memory of the first run is not mapped.
    pub fn push_list(
        &mut self,
        list: &Gather<'_>,
        most: usize,
        copied: usize,
    ) -> Result<usize, Unmapped> {
        let all = list.octets().min(most);
        let referred = all.saturating_sub(copied);
        let mut taken = 0;
        for run in list.runs() {
            let left = all - taken;
            let done = match run {
                Run::Octets(octets) => {
                    let len = octets.len().min(left);
                    self.push(&octets[..len]);
                    len
                }
                Run::Registered {
                    memory,
                    offset,
                    len,
                } => {
                    let len = len.min(left);
                    let by_reference = len.min(referred.saturating_sub(taken));
                    match self.push_registered(memory, offset, len, by_reference) {
                        Ok(()) => len,
                        Err(Unmapped) if taken > 0 => return Ok(taken),
                        Err(unmapped) => return Err(unmapped),
                    }
                }
            };
            taken += done;
        }
        Ok(taken)
    }

    fn push_registered(
        &mut self,
        memory: &Registered,
        offset: u64,
        len: usize,
        by_reference: usize,
    ) -> Result<(), Unmapped> {
        let by_reference = match by_reference >= REFERRED_OCTETS_MIN {
            true => by_reference,
            false => 0,
        };
        if by_reference == 0 {
            if len > 0 {
                memory.append_to(offset, len, self.room_for(len))?;
                self.end += len as u64;
            }
            return Ok(());
        }
        // What is copied may fail, and comes first.
        let mut copy = Vec::new();
        memory.append_to(offset + by_reference as u64, len - by_reference, &mut copy)?;
        self.pieces.push_back(Piece {
            offset: self.end,
            what: What::Referred {
                memory: memory.clone(),
                offset,
                len: by_reference,
            },
        });
        self.end += by_reference as u64;
        self.referred += 1;
        if !copy.is_empty() {
            self.push(&copy);
        }
        Ok(())
    }

    /// The buffer that the next `octets` are appended to.
    fn room_for(&mut self, octets: usize) -> &mut Vec<u8> {
        let fits = match self.pieces.back() {
            Some(Piece {
                what: What::Copied(last),
                ..
            }) => last.len() + octets <= COPIED_TOGETHER_OCTETS_MAX,
            _ => false,
        };
        if !fits {
            let mut spare = std::mem::take(&mut self.spare);
            spare.reserve(octets.max(COPIED_OCTETS_MIN));
            self.pieces.push_back(Piece {
                offset: self.end,
                what: What::Copied(spare),
            });
        }
        match self.pieces.back_mut() {
            Some(Piece {
                what: What::Copied(last),
                ..
            }) => last,
            _ => unreachable!("a copy was just put there"),
        }
    }

    /// The peer has all before `acknowledged`, an offset in the stream. Says whether memory was given back.
    pub fn release(&mut self, acknowledged: u64) -> bool {
        let before = self.referred;
        while self
            .pieces
            .front()
            .is_some_and(|first| first.end() <= acknowledged)
        {
            match self.pieces.pop_front().map(|first| first.what) {
                Some(What::Copied(mut octets)) if octets.capacity() <= COPIED_OCTETS_MIN => {
                    octets.clear();
                    self.spare = octets;
                }
                Some(What::Copied(_)) | None => {}
                Some(What::Referred { .. }) => self.referred -= 1,
            }
        }
        self.referred < before
    }

    /// Octets from the first that it has no copy of to the end.
    pub fn unreleased(&self) -> usize {
        if self.referred == 0 {
            return 0;
        }
        let mut pieces = self.pieces.iter();
        let first = pieces.find(|piece| matches!(piece.what, What::Referred { .. }));
        first.map_or(0, |first| (self.end - first.offset) as usize)
    }

    /// Copies what it refers to: all of it, or that of `memory` alone. Says whether there was any.
    ///
    /// # Errors
    /// Some of that is not mapped any more.
    pub fn copy(&mut self, memory: Option<&Registered>) -> Result<bool, Unmapped> {
        let before = self.referred;
        for piece in &mut self.pieces {
            if self.referred == 0 {
                break;
            }
            let What::Referred {
                memory: of,
                offset,
                len,
            } = &piece.what
            else {
                continue;
            };
            if memory.is_none_or(|memory| memory.addr() == of.addr()) {
                let mut octets = Vec::new();
                of.append_to(*offset, *len, &mut octets)?;
                piece.what = What::Copied(octets);
                self.referred -= 1;
            }
        }
        Ok(self.referred < before)
    }

    /// The parts of a range of the stream, in order.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part<'_>> {
        let first = self
            .pieces
            .partition_point(|piece| piece.end() <= range.start);
        let last = self
            .pieces
            .partition_point(|piece| piece.offset < range.end);
        self.pieces.range(first.min(last)..last).map(move |piece| {
            let from = range.start.saturating_sub(piece.offset) as usize;
            let to = (range.end.min(piece.end()) - piece.offset) as usize;
            match &piece.what {
                What::Copied(octets) => Part::Octets(&octets[from..to]),
                What::Referred { memory, offset, .. } => Part::Registered {
                    memory,
                    offset: offset + from as u64,
                    len: to - from,
                },
            }
        })
    }
}

impl Part<'_> {
    /// Appends its octets.
    ///
    /// # Errors
    /// They are not mapped any more.
    pub fn append_to(self, out: &mut Vec<u8>) -> Result<(), Unmapped> {
        match self {
            Part::Octets(octets) => {
                out.extend_from_slice(octets);
                Ok(())
            }
            Part::Registered {
                memory,
                offset,
                len,
            } => memory.append_to(offset, len, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn octets(outgoing: &Outgoing, range: Range<u64>) -> Vec<u8> {
        let mut all = Vec::new();
        for part in outgoing.parts(range) {
            part.append_to(&mut all).unwrap();
        }
        all
    }

    fn memory() -> (Registered, Vec<u8>) {
        let octets: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        let memory = Registered::allocate(5000).unwrap();
        memory.write(0, &octets).unwrap();
        (memory, octets)
    }

    /// Head, 4,000 octets of memory and a tail, of which the last 1,000 are to be copies.
    fn sample(memory: &Registered) -> Outgoing {
        let mut list = Gather::default();
        list.push(b"head");
        list.push_registered(memory, 100, 4000);
        list.push(b"tail");
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.push_list(&list, usize::MAX, 1000), Ok(4008));
        outgoing
    }

    #[test]
    fn the_last_octets_are_copies_and_what_is_before_them_is_referred_to() {
        let (memory, was) = memory();
        let outgoing = sample(&memory);
        assert_eq!((outgoing.end(), outgoing.unreleased()), (4008, 4004));
        memory.write(0, &[0; 5000]).unwrap();
        let now = octets(&outgoing, 0..4008);
        let by_reference = 4008 - 1000 - 4;
        assert_eq!(&now[..4], b"head");
        assert!(now[4..4 + by_reference].iter().all(|octet| *octet == 0));
        assert_eq!(now[4 + by_reference..4004], was[100 + by_reference..4100]);
        assert_eq!(&now[4004..], b"tail");
    }

    #[test]
    fn memory_is_released_when_all_of_a_piece_is_acknowledged() {
        let (memory, _) = memory();
        let mut outgoing = sample(&memory);
        assert!(!outgoing.release(3007));
        assert_eq!(outgoing.unreleased(), 4004);
        assert!(outgoing.release(3008));
        assert_eq!(outgoing.unreleased(), 0);
        assert_eq!(octets(&outgoing, 4004..4008), b"tail");
    }

    #[test]
    fn copies_do_not_change_with_the_memory() {
        let (memory, was) = memory();
        let other = Registered::allocate(64).unwrap();
        let mut outgoing = sample(&memory);
        assert_eq!(outgoing.copy(Some(&other)), Ok(false));
        assert_eq!(outgoing.copy(Some(&memory)), Ok(true));
        assert_eq!(outgoing.unreleased(), 0);
        memory.write(0, &[0; 5000]).unwrap();
        assert_eq!(octets(&outgoing, 4..4004), was[100..4100]);
    }

    #[test]
    fn small_copies_share_a_piece() {
        let mut outgoing = Outgoing::default();
        for number in 0..1000u32 {
            outgoing.push(&number.to_be_bytes());
        }
        assert_eq!(outgoing.pieces.len(), 1);
        assert_eq!(octets(&outgoing, 398..402), [0, 99, 0, 0]);
        outgoing.push(&[1; COPIED_TOGETHER_OCTETS_MAX]);
        assert_eq!(outgoing.pieces.len(), 2);
        outgoing.release(4000);
        assert_eq!(outgoing.pieces.len(), 1);
    }

    #[test]
    fn a_list_is_taken_as_far_as_there_is_room() {
        let (memory, was) = memory();
        let mut list = Gather::default();
        list.push(b"head");
        list.push_registered(&memory, 0, 4000);
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.push_list(&list, 2, 0), Ok(2));
        assert_eq!(outgoing.push_list(&list, 2004, 0), Ok(2004));
        assert_eq!(octets(&outgoing, 0..6), b"hehead");
        assert_eq!(octets(&outgoing, 6..2006), was[..2000]);
        assert_eq!(outgoing.end(), 2006);
    }
}
