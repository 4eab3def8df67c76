//! What a connection has taken to send, until the peer has it: copies, and parts of registered memory.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Range;

use weft_engine::carrier::{Gather, Registered, Run};
use weft_os::mem::Unmapped;

use super::copies::{Copies, Place, Pool};

/// Runs of registered memory below this are copied: a piece of its own costs more.
const REFERRED_OCTETS_MIN: usize = 1 << 10;

/// The octets of a stream from the first that the peer has not acknowledged.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pieces: VecDeque<Piece>,
    copies: Copies,
    /// Offset in the stream behind the last octet.
    end: u64,
    /// Pieces that refer to registered memory.
    referred: usize,
    /// Pieces that were released.
    gone: u64,
    /// The piece that was asked for last, of all that ever were: the next frame begins about there.
    next: Cell<u64>,
}

#[derive(Debug)]
struct Piece {
    /// Offset in the stream of its first octet.
    offset: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Copied(Place),
    Referred {
        memory: Registered,
        offset: u64,
        len: usize,
    },
    /// It was referred to, and copied later.
    Kept(Vec<u8>),
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
            What::Copied(place) => place.len as usize,
            What::Referred { len, .. } => *len,
            What::Kept(octets) => octets.len(),
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
    pub fn push(&mut self, mut octets: &[u8], pool: &mut Pool) {
        while !octets.is_empty() {
            let place = self.copies.push(octets, pool);
            octets = &octets[place.len as usize..];
            self.push_copy(place);
        }
    }

    fn push_copy(&mut self, place: Place) {
        match self.pieces.back_mut().map(|last| &mut last.what) {
            Some(What::Copied(last)) if place.follows(*last) => last.len += place.len,
            _ => self.pieces.push_back(Piece {
                offset: self.end,
                what: What::Copied(place),
            }),
        }
        self.end += u64::from(place.len);
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
        pool: &mut Pool,
    ) -> Result<usize, Unmapped> {
        let all = list.octets().min(most);
        let referred = all.saturating_sub(copied);
        let mut taken = 0;
        for run in list.runs() {
            let left = all - taken;
            let done = match run {
                Run::Octets(octets) => {
                    let len = octets.len().min(left);
                    self.push(&octets[..len], pool);
                    len
                }
                Run::Registered {
                    memory,
                    offset,
                    len,
                } => {
                    let len = len.min(left);
                    let by_reference = len.min(referred.saturating_sub(taken));
                    match self.push_registered(memory, offset, len, by_reference, pool) {
                        Ok(pushed) if pushed < len => return Ok(taken + pushed),
                        Ok(_) => len,
                        Err(Unmapped) if taken > 0 => return Ok(taken),
                        Err(unmapped) => return Err(unmapped),
                    }
                }
            };
            taken += done;
        }
        Ok(taken)
    }

    /// Gives how many octets: fewer where memory that was to be copied is not mapped behind them.
    fn push_registered(
        &mut self,
        memory: &Registered,
        offset: u64,
        len: usize,
        by_reference: usize,
        pool: &mut Pool,
    ) -> Result<usize, Unmapped> {
        if by_reference < REFERRED_OCTETS_MIN {
            return self.push_copies(memory, offset, len, pool);
        }
        // What is copied may fail, and comes first.
        let (from, copied) = (offset + by_reference as u64, len - by_reference);
        let copy = match copied {
            0 => None,
            _ => Some(self.copies.push_registered(memory, from, copied, pool)?),
        };
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
        let Some(place) = copy else {
            return Ok(len);
        };
        self.push_copy(place);
        // Behind the end of a block.
        let (pushed, rest) = (
            by_reference + place.len as usize,
            copied - place.len as usize,
        );
        let rest = self.push_copies(memory, from + u64::from(place.len), rest, pool);
        Ok(pushed + rest.unwrap_or(0))
    }

    /// Appends copies of registered memory. Gives how many octets.
    fn push_copies(
        &mut self,
        memory: &Registered,
        offset: u64,
        len: usize,
        pool: &mut Pool,
    ) -> Result<usize, Unmapped> {
        let mut pushed = 0;
        while pushed < len {
            let (from, rest) = (offset + pushed as u64, len - pushed);
            match self.copies.push_registered(memory, from, rest, pool) {
                Ok(place) => {
                    self.push_copy(place);
                    pushed += place.len as usize;
                }
                Err(Unmapped) if pushed > 0 => break,
                Err(unmapped) => return Err(unmapped),
            }
        }
        Ok(pushed)
    }

    /// The peer has all before `acknowledged`, an offset in the stream. Says whether memory was given back.
    pub fn release(&mut self, acknowledged: u64, pool: &mut Pool) -> bool {
        let before = self.referred;
        let mut over = None;
        let is_over = |first: &Piece| first.end() <= acknowledged;
        while self.pieces.front().is_some_and(is_over) {
            self.gone += 1;
            match self.pieces.pop_front().map(|first| first.what) {
                Some(What::Copied(place)) => over = Some(place),
                Some(What::Referred { .. }) => self.referred -= 1,
                Some(What::Kept(_)) | None => {}
            }
        }
        if self.pieces.is_empty() {
            self.copies.release_all(pool);
        } else if let Some(last) = over {
            self.copies.release_before(last, pool);
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
                piece.what = What::Kept(octets);
                self.referred -= 1;
            }
        }
        Ok(self.referred < before)
    }

    /// The piece that an offset in the stream is in: most often the one that was asked for last, or the one behind it.
    fn find(&self, offset: u64) -> usize {
        let hint = self.next.get().saturating_sub(self.gone) as usize;
        let is_there = |at: usize| {
            let piece = self.pieces.get(at);
            piece.is_some_and(|piece| (piece.offset..piece.end()).contains(&offset))
        };
        let mut near = [hint, hint + 1].into_iter();
        let found = near.find(|at| is_there(*at));
        found.unwrap_or_else(|| self.pieces.partition_point(|piece| piece.end() <= offset))
    }

    /// The parts of a range of the stream, in order.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part<'_>> {
        let first = self.find(range.start);
        let end = range.end;
        let pieces = self.pieces.range(first..).enumerate();
        let pieces = pieces.take_while(move |(_, piece)| piece.offset < end);
        pieces.map(move |(ahead, piece)| {
            self.next.set(self.gone + (first + ahead) as u64);
            let from = range.start.saturating_sub(piece.offset) as usize;
            let to = (range.end.min(piece.end()) - piece.offset) as usize;
            match &piece.what {
                What::Copied(place) => Part::Octets(&self.copies.octets(*place)[from..to]),
                What::Kept(octets) => Part::Octets(&octets[from..to]),
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
        assert_eq!(
            outgoing.push_list(&list, usize::MAX, 1000, &mut Pool::default()),
            Ok(4008)
        );
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
        assert!(!outgoing.release(3007, &mut Pool::default()));
        assert_eq!(outgoing.unreleased(), 4004);
        assert!(outgoing.release(3008, &mut Pool::default()));
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
            outgoing.push(&number.to_be_bytes(), &mut Pool::default());
        }
        assert_eq!(outgoing.pieces.len(), 1);
        assert_eq!(octets(&outgoing, 398..402), [0, 99, 0, 0]);
        outgoing.push(&[1; 100_000], &mut Pool::default());
        assert_eq!(octets(&outgoing, 3998..104_000)[2..], [1; 100_000]);
        outgoing.release(4000, &mut Pool::default());
        assert_eq!(octets(&outgoing, 4000..104_000), [1; 100_000]);
    }

    /// Copies, references, and references that became copies, taken and released in steps that fit none of them.
    #[test]
    fn octets_are_what_they_were_however_they_are_kept() {
        let (memory, was) = memory();
        let other = Registered::allocate(5000).unwrap();
        other.write(0, &was).unwrap();
        let (mut outgoing, mut pool) = (Outgoing::default(), Pool::default());
        let (mut all, mut released) = (Vec::new(), 0);
        for round in 0..2000usize {
            let head = [round as u8; 20];
            let mut list = Gather::default();
            list.push(&head);
            let of = if round % 3 == 0 { &other } else { &memory };
            let (from, len) = (round % 1000, 1000 + round % 3000);
            list.push_registered(of, from as u64, len);
            let copied = round % 2500;
            assert_eq!(
                outgoing.push_list(&list, usize::MAX, copied, &mut pool),
                Ok(20 + len)
            );
            all.extend(head);
            all.extend(&was[from..from + len]);
            if round % 7 == 0 {
                outgoing.copy(Some(&other)).unwrap();
            }
            if round % 2 == 1 {
                released += (all.len() - released) * (round % 5) / 4;
                outgoing.release(released as u64, &mut pool);
            }
            let end = all.len();
            let begin = released.max(end.saturating_sub(100_000));
            assert!(octets(&outgoing, begin as u64..end as u64) == all[begin..]);
        }
    }

    #[test]
    fn a_list_is_taken_as_far_as_there_is_room() {
        let (memory, was) = memory();
        let mut list = Gather::default();
        list.push(b"head");
        list.push_registered(&memory, 0, 4000);
        let mut outgoing = Outgoing::default();
        assert_eq!(outgoing.push_list(&list, 2, 0, &mut Pool::default()), Ok(2));
        assert_eq!(
            outgoing.push_list(&list, 2004, 0, &mut Pool::default()),
            Ok(2004)
        );
        assert_eq!(octets(&outgoing, 0..6), b"hehead");
        assert_eq!(octets(&outgoing, 6..2006), was[..2000]);
        assert_eq!(outgoing.end(), 2006);
    }
}
