//! Octets of the stream that are framed and wait for the transport.
//!
//! Headers, trailers and small payloads are copied into one arena; large payloads stay where
//! the program has them and are named by a [`Span`]. The driver turns the two into one gather
//! list and says how many octets the transport took.
//!
//! A transport copies what it takes, as the kernel's TCP does, or goes on referring to the program's memory until its
//! peer has the octets. So octets are first *taken* and then *released*; between the two they are *held*.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::host::{Host, MemoryFault, Span};

/// A run of octets to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Chunk {
    /// The next octets of the arena.
    Octets(usize),
    /// Registered memory.
    Memory(Span),
}

/// A piece for the driver's gather list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// Octets unreleased here.
    Octets(&'a [u8]),
    /// Octets of registered memory.
    Memory(Span),
}

/// The framed part of one direction of a stream.
#[derive(Debug, Default)]
pub struct Outgoing {
    arena: Vec<u8>,
    /// First octet of the arena that the transport has not taken.
    head: usize,
    chunks: VecDeque<Chunk>,
    /// Octets of the arena behind those that the chunks name: all of them, where nothing goes by reference.
    tail: usize,
    queued: usize,
    sent: u64,
    /// Octets at the end of those that the transport has taken whose memory it still refers to.
    unreleased: usize,
    /// Stream offsets behind FPDUs of which the transport has not taken all, where its segments are to end with them.
    cuts: VecDeque<u64>,
}

/// The arena is compacted when this many octets at its front are spent.
const COMPACT_OCTETS_MIN: usize = 64 * 1024;
/// An idle arena larger than this is given back: a busy stream frames a few hundred kilobytes at
/// a time and must not fault its pages in each time.
const KEPT_OCTETS_MAX: usize = 1024 * 1024;

impl Outgoing {
    /// Octets that wait.
    #[inline]
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Octets the transport has taken since the stream began.
    #[inline]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Octets that the transport has taken and still refers to.
    #[inline]
    pub fn unreleased(&self) -> usize {
        self.unreleased
    }

    /// Octets since the stream began whose memory is the program's again.
    #[inline]
    pub(crate) fn released(&self) -> u64 {
        self.sent - self.unreleased as u64
    }

    /// The transport refers to the last `unreleased` octets of what it has taken, and no more to those before them.
    ///
    /// What was released once stays so: a transport that says otherwise is wrong, and a completion is not taken back.
    #[inline]
    pub(crate) fn note_unreleased(&mut self, unreleased: usize) {
        debug_assert!(
            unreleased as u64 <= self.sent,
            "nothing is unreleased that was not taken"
        );
        self.unreleased = unreleased;
    }

    /// Stream offset just behind everything queued.
    #[inline]
    pub fn end(&self) -> u64 {
        self.sent + self.queued as u64
    }

    /// Appends octets by letting `write` extend the arena.
    #[inline]
    pub(crate) fn append<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.arena.len();
        let result = write(&mut self.arena);
        let octets = self.arena.len() - before;
        self.queued += octets;
        self.tail += octets;
        result
    }

    /// What was appended so far ends with an FPDU: a segment of the transport's may end here.
    #[inline]
    pub(crate) fn cut(&mut self) {
        self.cuts.push_back(self.end());
    }

    /// Where FPDUs end in what waits: octets from its front. Empty for a transport that was promised nothing
    /// ([`crate::qp::Qp::set_aligned`]).
    pub fn cuts(&self) -> impl Iterator<Item = usize> + '_ {
        self.cuts.iter().map(|cut| (cut - self.sent) as usize)
    }

    /// Takes octets that were appended last off again; `mark` is the arena's length before.
    pub(crate) fn undo_octets(&mut self, mark: usize) {
        let octets = self.arena.len() - mark;
        self.arena.truncate(mark);
        self.queued -= octets;
        self.tail -= octets;
    }

    /// The arena's length, for [`Outgoing::undo_octets`].
    pub(crate) fn mark(&self) -> usize {
        self.arena.len()
    }

    /// Appends registered memory by reference.
    pub(crate) fn append_memory(&mut self, span: Span) {
        if span.len > 0 {
            self.queued += span.len as usize;
            self.end_tail();
            self.chunks.push_back(Chunk::Memory(span));
        }
    }

    /// Something else follows the octets appended last.
    fn end_tail(&mut self) {
        let octets = core::mem::take(&mut self.tail);
        if octets > 0 {
            self.chunks.push_back(Chunk::Octets(octets));
        }
    }

    /// What waits, in stream order.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let mut at = self.head;
        let tail = (self.tail > 0).then_some(Chunk::Octets(self.tail));
        let chunks = self.chunks.iter().copied();
        chunks.chain(tail).map(move |chunk| match chunk {
            Chunk::Octets(n) => {
                at += n;
                Piece::Octets(&self.arena[at - n..at])
            }
            Chunk::Memory(span) => Piece::Memory(span),
        })
    }

    /// All that waits, where it lies in one piece here.
    #[inline]
    pub fn only_octets(&self) -> Option<&[u8]> {
        let is_only = self.chunks.is_empty() && self.tail > 0;
        is_only.then(|| &self.arena[self.head..])
    }

    /// The transport took `octets` from the front.
    pub(crate) fn take(&mut self, octets: usize) {
        debug_assert!(octets <= self.queued, "no more is sent than was framed");
        self.sent += octets as u64;
        self.queued -= octets;
        while self.cuts.front().is_some_and(|cut| *cut <= self.sent) {
            self.cuts.pop_front();
        }
        let mut left = octets;
        while left > 0 {
            let Some(front) = self.chunks.front_mut() else {
                self.head += left;
                self.tail -= left;
                break;
            };
            left -= match front {
                Chunk::Octets(n) => {
                    let taken = left.min(*n);
                    *n -= taken;
                    self.head += taken;
                    if *n == 0 {
                        self.chunks.pop_front();
                    }
                    taken
                }
                Chunk::Memory(span) => {
                    let taken = left.min(span.len as usize);
                    *span = span.skip(taken as u32);
                    if span.len == 0 {
                        self.chunks.pop_front();
                    }
                    taken
                }
            };
        }
        self.tidy();
    }

    fn tidy(&mut self) {
        if self.queued == 0 {
            self.arena.clear();
            self.head = 0;
            if self.arena.capacity() > KEPT_OCTETS_MAX {
                self.arena.shrink_to(KEPT_OCTETS_MAX);
            }
        } else if self.head >= COMPACT_OCTETS_MIN {
            self.arena.drain(..self.head);
            self.head = 0;
        }
    }

    /// Copies everything that is still referred to into the arena, so that the program may have
    /// its buffers back while the octets wait.
    ///
    /// # Errors
    /// Memory that is gone; the stream can then not be continued.
    pub(crate) fn detach(&mut self, host: &mut impl Host) -> Result<(), MemoryFault> {
        if !self.chunks.iter().any(|c| matches!(c, Chunk::Memory(_))) {
            return Ok(());
        }
        let mut whole = Vec::with_capacity(self.queued);
        for piece in self.pieces() {
            match piece {
                Piece::Octets(octets) => whole.extend_from_slice(octets),
                Piece::Memory(span) => {
                    host.read(span, &mut whole)?;
                }
            }
        }
        self.head = 0;
        self.chunks.clear();
        self.tail = whole.len();
        self.arena = whole;
        Ok(())
    }

    /// Drops everything that waits. What was taken and not released stays counted: nobody knows whether it arrived, so
    /// it does not complete.
    pub(crate) fn clear(&mut self) {
        self.arena = Vec::new();
        self.head = 0;
        self.chunks.clear();
        self.tail = 0;
        self.cuts.clear();
        self.queued = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Device;
    use crate::types::Access;
    use alloc::vec;
    use weft_iwarp::Stag;

    const SPAN: Span = Span {
        stag: Stag(0x100),
        offset: 8,
        len: 10,
    };

    fn sample() -> Outgoing {
        let mut out = Outgoing::default();
        out.append(|a| a.extend_from_slice(b"head"));
        out.append_memory(SPAN);
        out.append(|a| a.extend_from_slice(b"tail"));
        out.append(|a| a.extend_from_slice(b"next"));
        out
    }

    #[test]
    fn neighbouring_octets_are_one_piece() {
        let out = sample();
        let pieces: Vec<_> = out.pieces().collect();
        assert_eq!(
            pieces,
            vec![
                Piece::Octets(b"head"),
                Piece::Memory(SPAN),
                Piece::Octets(b"tailnext")
            ]
        );
        assert_eq!(out.queued(), 22);
    }

    #[test]
    fn a_partial_send_may_end_anywhere() {
        for cut in 0..=22 {
            let mut out = sample();
            out.take(cut);
            assert_eq!(out.queued(), 22 - cut);
            let left: usize = out
                .pieces()
                .map(|p| match p {
                    Piece::Octets(o) => o.len(),
                    Piece::Memory(s) => s.len as usize,
                })
                .sum();
            assert_eq!(left, 22 - cut, "cut at {cut}");
            assert_eq!(out.end(), 22);
        }
    }

    #[test]
    fn cuts_move_along_with_what_is_taken() {
        let mut out = Outgoing::default();
        for fpdu in [&b"one"[..], b"second", b"third"] {
            out.append(|arena| arena.extend_from_slice(fpdu));
            out.cut();
        }
        assert_eq!(out.cuts().collect::<Vec<_>>(), [3, 9, 14]);
        out.take(4);
        assert_eq!(out.cuts().collect::<Vec<_>>(), [5, 10]);
        out.take(5);
        assert_eq!(out.cuts().collect::<Vec<_>>(), [5]);
        out.clear();
        assert_eq!(out.cuts().count(), 0);
    }

    #[test]
    fn what_is_taken_is_held_until_it_is_released() {
        let mut out = sample();
        out.take(14);
        out.note_unreleased(10);
        assert_eq!((out.sent(), out.released(), out.unreleased()), (14, 4, 10));
        out.take(8);
        out.note_unreleased(12);
        assert_eq!(out.released(), 10);
        // A stream that ends takes the rest with it, and releases nothing.
        out.clear();
        assert_eq!(out.released(), 10);
        out.note_unreleased(0);
        assert_eq!(out.released(), 22);
    }

    #[test]
    fn octets_can_be_taken_back() {
        let mut out = sample();
        let mark = out.mark();
        out.append(|a| a.extend_from_slice(b"mistake"));
        out.undo_octets(mark);
        assert_eq!(out.queued(), 22);
        assert_eq!(out.pieces().count(), 3);
    }

    #[test]
    fn what_is_detached_needs_the_programs_memory_no_more() {
        let mut device = Device::default();
        let stag = device.region(20, 0, Access::NONE, SPAN.stag.0);
        assert_eq!(stag, SPAN.stag);
        device.octets(stag)[8..18].copy_from_slice(b"registered");
        let mut out = sample();
        out.take(2);
        out.detach(&mut device).expect("the memory is there");
        let pieces: Vec<_> = out.pieces().collect();
        assert_eq!(pieces, vec![Piece::Octets(b"adregisteredtailnext")]);
        assert_eq!((out.queued(), out.end()), (20, 22));
    }

    #[test]
    fn what_is_gone_cannot_be_detached() {
        let mut device = Device::default();
        let stag = device.region(20, 0, Access::NONE, SPAN.stag.0);
        device.unmapped.push(stag);
        assert_eq!(sample().detach(&mut device), Err(MemoryFault));
    }
}
