//! Octets that a carrier hands over as they arrive, in whatever order, for who places them ahead of order (decision
//! 0038).

use std::collections::VecDeque;
use std::io;

use weft_os::net::Transfer;

/// Pieces that are kept as they came. Beyond these, those that follow each other in the stream are put together: a peer
/// that sends single octets gets no more memory than holes are allowed to it.
const PIECES_MAX: usize = 16 * 1024;
/// Octets of one piece that is handed out at most. Who takes pieces looks only between two of them whether it can take
/// more: a queue pair that was full and takes again would be given all that came meanwhile, and hold more than it may.
const PIECE_OCTETS_MAX: usize = 256 * 1024;
/// An empty buffer larger than this is given back.
const KEPT_OCTETS_MAX: usize = 1 << 20;

/// What a carrier has beside that hands over pieces of its stream.
pub trait Pieces {
    /// From now on octets are handed over as they arrive, those of them first that are there already, and
    /// [`crate::carrier::Carrier::recv`] gives none any more. Gives the offset in the stream of the first of them.
    ///
    /// # Errors
    /// The connection is over.
    fn begin(&self) -> io::Result<u64>;

    /// Swaps what arrived since with `arrived`, which is empty. Gives how many octets that is; where it is none,
    /// whether more may come. The peer may send on as `done` says.
    fn take(&self, done: Done, arrived: &mut Arrived) -> Transfer;

    /// Octets before this offset of the stream that are missing are waited for no more, as far as some behind them have
    /// arrived: the peer is told as if they had. None of them is handed over from then on.
    fn forgive(&self, offset: u64);
}

/// How far who takes pieces has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Done {
    /// Offset in the stream behind the octets that are done with. Beyond all that arrived in order: it wants no more,
    /// and all of it is done with.
    pub position: u64,
    /// Octets behind that which take no buffer.
    pub placed: u64,
}

/// Octets that arrived, each once.
#[derive(Debug)]
pub struct Arrived {
    /// One piece behind the other, as they came.
    octets: Vec<u8>,
    /// How many of these were taken.
    taken: usize,
    /// Offset in the stream and octets of each.
    pieces: VecDeque<(u64, usize)>,
    /// So many are put together.
    pieces_max: usize,
}

impl Default for Arrived {
    fn default() -> Arrived {
        Arrived {
            octets: Vec::new(),
            taken: 0,
            pieces: VecDeque::new(),
            pieces_max: PIECES_MAX,
        }
    }
}

impl Arrived {
    /// None is there.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Octets that were not taken.
    #[inline]
    pub fn octets(&self) -> usize {
        self.octets.len() - self.taken
    }

    /// Octets at this offset of the stream have arrived.
    pub fn push(&mut self, offset: u64, octets: &[u8]) {
        if octets.is_empty() {
            return;
        }
        if self.pieces.len() >= self.pieces_max {
            self.join();
        }
        self.octets.extend_from_slice(octets);
        self.pieces.push_back((offset, octets.len()));
    }

    /// The next piece, of at most 256 KiB. Where it is the one at `frontier`, which is next in the stream, those that
    /// continue it come with it. Others stay by themselves: each is a segment, which tells where an FPDU begins. What
    /// is too long for one piece is the next one.
    #[inline]
    pub fn next(&mut self, frontier: u64) -> Option<(u64, &mut [u8])> {
        let Some((offset, mut len)) = self.pieces.pop_front() else {
            self.clear();
            return None;
        };
        if offset == frontier {
            while let Some((_, more)) = self
                .pieces
                .front()
                .filter(|(at, _)| *at == offset + len as u64 && len < PIECE_OCTETS_MAX)
            {
                len += more;
                self.pieces.pop_front();
            }
        }
        // What was put together may be longer.
        let rest = len.saturating_sub(PIECE_OCTETS_MAX);
        if rest > 0 {
            len = PIECE_OCTETS_MAX;
            self.pieces.push_front((offset + len as u64, rest));
        }
        let from = self.taken;
        self.taken += len;
        Some((offset, &mut self.octets[from..from + len]))
    }

    fn clear(&mut self) {
        self.taken = 0;
        self.octets.clear();
        if self.octets.capacity() > KEPT_OCTETS_MAX {
            self.octets = Vec::new();
        }
    }

    /// Puts pieces together that follow each other in the stream.
    fn join(&mut self) {
        let mut at = self.taken;
        let place = |&(offset, len): &(u64, usize)| {
            at += len;
            (offset, at - len, len)
        };
        let mut places: Vec<_> = self.pieces.iter().map(place).collect();
        places.sort_unstable();
        let mut octets = Vec::with_capacity(self.octets());
        self.pieces.clear();
        for (offset, from, len) in places {
            octets.extend_from_slice(&self.octets[from..from + len]);
            match self.pieces.back_mut() {
                Some((start, before)) if *start + *before as u64 == offset => *before += len,
                _ => self.pieces.push_back((offset, len)),
            }
        }
        self.octets = octets;
        self.taken = 0;
        self.pieces_max = PIECES_MAX.max(2 * self.pieces.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(arrived: &mut Arrived, mut frontier: u64) -> Vec<(u64, Vec<u8>)> {
        let mut pieces = Vec::new();
        while let Some((offset, octets)) = arrived.next(frontier) {
            if offset == frontier {
                frontier += octets.len() as u64;
            }
            pieces.push((offset, octets.to_vec()));
        }
        pieces
    }

    #[test]
    fn pieces_come_as_they_came_and_those_in_order_together() {
        let mut arrived = Arrived::default();
        for (offset, octets) in [(10, "ab"), (12, "cd"), (20, "ef"), (22, "gh"), (14, "ij")] {
            arrived.push(offset, octets.as_bytes());
        }
        arrived.push(16, b"");
        assert_eq!((arrived.octets(), arrived.is_empty()), (10, false));
        let piece = |offset: u64, octets: &str| (offset, octets.as_bytes().to_vec());
        assert_eq!(
            all(&mut arrived, 10),
            [
                piece(10, "abcd"),
                piece(20, "ef"),
                piece(22, "gh"),
                piece(14, "ij")
            ]
        );
        assert_eq!((arrived.octets(), arrived.is_empty()), (0, true));
        arrived.push(30, b"kl");
        arrived.push(32, b"mn");
        assert_eq!(all(&mut arrived, 16), [piece(30, "kl"), piece(32, "mn")]);
    }

    #[test]
    fn single_octets_take_no_entry_each_for_ever() {
        let mut arrived = Arrived::default();
        let most = 4 * PIECES_MAX as u64;
        // Two runs that grow by turns, so that no octet follows the one before it.
        for n in 0..most {
            arrived.push(if n % 2 == 0 { n / 2 } else { most + n / 2 }, &[n as u8]);
            assert!(arrived.pieces.len() <= PIECES_MAX);
        }
        let mut seen = vec![None; 2 * most as usize];
        for (offset, octets) in all(&mut arrived, u64::MAX) {
            for (n, octet) in octets.iter().enumerate() {
                assert_eq!(seen[offset as usize + n].replace(*octet), None, "once");
            }
        }
        for n in 0..most / 2 {
            assert_eq!(seen[n as usize], Some((2 * n) as u8));
            assert_eq!(seen[(most + n) as usize], Some((2 * n + 1) as u8));
        }
    }

    #[test]
    fn no_piece_is_longer_than_who_takes_it_can_bear() {
        const LEN: usize = 3 * PIECE_OCTETS_MAX + 100;
        let octets: Vec<u8> = (0..LEN).map(|n| (n / 7) as u8).collect();
        let in_segments = || {
            let mut arrived = Arrived::default();
            for (n, segment) in octets.chunks(1000).enumerate() {
                arrived.push(10 + 1000 * n as u64, segment);
            }
            arrived
        };
        let joined = || {
            let mut arrived = in_segments();
            arrived.join();
            assert_eq!(arrived.pieces.len(), 1);
            arrived
        };
        for (mut arrived, frontier) in [(in_segments(), 10), (joined(), 10), (joined(), 0)] {
            let pieces = all(&mut arrived, frontier);
            let longest = pieces.iter().map(|(_, piece)| piece.len()).max();
            assert_eq!(longest, Some(PIECE_OCTETS_MAX));
            let mut at = 10;
            for (offset, piece) in pieces {
                assert_eq!(
                    (offset, &piece[..]),
                    (at, &octets[at as usize - 10..][..piece.len()])
                );
                at += piece.len() as u64;
            }
            assert_eq!((at as usize - 10, arrived.octets()), (LEN, 0));
        }
    }

    #[test]
    fn a_buffer_that_was_large_is_given_back() {
        let mut arrived = Arrived::default();
        arrived.push(0, &vec![1; 2 * KEPT_OCTETS_MAX]);
        assert!(!all(&mut arrived, 0).is_empty());
        assert!(arrived.octets.capacity() <= KEPT_OCTETS_MAX);
    }
}
