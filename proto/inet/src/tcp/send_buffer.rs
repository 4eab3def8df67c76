//! References to the octets a program gave to send, until they are acknowledged.

use alloc::collections::VecDeque;
use core::ops::Range;

/// A queue of references. `B` is whatever the driver can find octets by: an `Arc<[u8]>`, an arena and a place in it.
#[derive(Clone, Debug)]
pub struct SendBuffer<B> {
    pieces: VecDeque<Piece<B>>,
    /// Offset in the stream behind the last piece.
    end: u64,
}

#[derive(Clone, Debug)]
struct Piece<B> {
    /// Offset in the stream of its first octet.
    offset: u64,
    buffer: B,
    /// Which octets of the buffer.
    octets: Range<usize>,
}

impl<B> Default for SendBuffer<B> {
    fn default() -> SendBuffer<B> {
        SendBuffer {
            pieces: VecDeque::new(),
            end: 0,
        }
    }
}

impl<B> SendBuffer<B> {
    /// Appends octets of a buffer. Tell the connection by [`super::Connection::write`].
    pub fn push(&mut self, buffer: B, octets: Range<usize>) {
        let offset = self.end;
        self.end += octets.len() as u64;
        self.pieces.push_back(Piece {
            offset,
            buffer,
            octets,
        });
    }

    /// Octets before `acknowledged` (offset in the stream) are the program's again. Returns the buffers that are done.
    pub fn release(&mut self, acknowledged: u64) -> impl Iterator<Item = B> + '_ {
        let done = self
            .pieces
            .partition_point(|piece| piece.end() <= acknowledged);
        self.pieces.drain(..done).map(|piece| piece.buffer)
    }

    /// The pieces of a part of the stream, in order: a buffer and which of its octets.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = (&B, Range<usize>)> {
        let first = self
            .pieces
            .partition_point(|piece| piece.end() <= range.start);
        let last = self
            .pieces
            .partition_point(|piece| piece.offset < range.end);
        self.pieces.range(first.min(last)..last).map(move |piece| {
            let from = range.start.saturating_sub(piece.offset) as usize;
            let to = (range.end.min(piece.end()) - piece.offset) as usize;
            (
                &piece.buffer,
                piece.octets.start + from..piece.octets.start + to,
            )
        })
    }

    /// Offset in the stream behind the last piece.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Pieces kept.
    pub fn len(&self) -> usize {
        self.pieces.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

impl<B> Piece<B> {
    fn end(&self) -> u64 {
        self.offset + self.octets.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_part_of_the_stream_is_found_across_pieces() {
        let mut buffer = SendBuffer::default();
        buffer.push('a', 10..20);
        buffer.push('b', 0..5);
        buffer.push('c', 0..100);
        let pieces: Vec<_> = buffer.pieces(8..17).collect();
        assert_eq!(pieces, [(&'a', 18..20), (&'b', 0..5), (&'c', 0..2)]);
        assert_eq!(buffer.release(14).collect::<Vec<_>>(), ['a']);
        assert_eq!(buffer.release(15).collect::<Vec<_>>(), ['b']);
        let pieces: Vec<_> = buffer.pieces(20..21).collect();
        assert_eq!(pieces, [(&'c', 5..6)]);
    }
}
