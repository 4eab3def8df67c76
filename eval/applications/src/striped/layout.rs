//! Where the octets of a striped file are: a stripe on the first server, the next one on the second, and so on.

use anyhow::{ensure, Result};

use super::message::OCTETS_MAX;

/// How a file is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Octets of a stripe.
    pub stripe: u64,
    /// Over how many servers.
    pub servers: u64,
}

/// Octets of a file, or of one server's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Where they begin.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Part of what a client reads or writes that is one server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Whose it is, from 0.
    pub server: usize,
    /// Where that server has it.
    pub there: Region,
    /// Where it begins in the client's memory.
    pub here: usize,
}

impl Layout {
    /// A layout that says something.
    ///
    /// # Errors
    /// It has no stripe or no server.
    pub fn new(stripe: u64, servers: u64) -> Result<Layout> {
        let is_one = (1..=OCTETS_MAX as u64).contains(&stripe) && servers > 0;
        ensure!(
            is_one,
            "a stripe has 1 to {OCTETS_MAX} octets, and a file one server at least"
        );
        Ok(Layout { stripe, servers })
    }

    /// How many octets of a file of this length are on a server.
    pub fn part(&self, len: u64, server: u64) -> u64 {
        let row = self.stripe * self.servers;
        let last = (len % row).saturating_sub(server * self.stripe);
        len / row * self.stripe + last.min(self.stripe)
    }

    /// The length of a file of which the servers have parts of these lengths: its last octet is the last one of a part.
    pub fn len(&self, parts: &[u64]) -> u64 {
        let ends = parts.iter().zip(0..).map(|(&part, server)| {
            let last = part.checked_sub(1)?;
            // A server may say any length.
            let number = (last / self.stripe)
                .saturating_mul(self.servers)
                .saturating_add(server);
            let begins = number.saturating_mul(self.stripe);
            Some(begins.saturating_add(last % self.stripe + 1))
        });
        ends.flatten().max().unwrap_or(0)
    }

    /// The pieces of these regions of the file, of which the octets stand in memory one behind the other. Neighbours on
    /// a server are one piece.
    pub fn pieces(&self, regions: &[Region]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut here = 0;
        for region in regions {
            let (mut at, end) = (region.offset, region.offset + region.len);
            while at < end {
                let (number, within) = (at / self.stripe, at % self.stripe);
                let len = (self.stripe - within).min(end - at);
                let piece = Piece {
                    server: (number % self.servers) as usize,
                    there: Region {
                        offset: number / self.servers * self.stripe + within,
                        len,
                    },
                    here,
                };
                match pieces
                    .last_mut()
                    .filter(|last| last.is_followed_by(&piece, len))
                {
                    Some(last) => last.there.len += len,
                    None => pieces.push(piece),
                }
                at += len;
                here += len as usize;
            }
        }
        pieces
    }
}

impl Piece {
    /// Whether the other one, of this length, belongs to it: not where they would be more than a request takes.
    fn is_followed_by(&self, other: &Piece, len: u64) -> bool {
        let is_short = self.there.len + len <= OCTETS_MAX as u64;
        let is_there = self.there.offset + self.there.len == other.there.offset;
        is_short
            && self.server == other.server
            && is_there
            && self.here + self.there.len as usize == other.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a file with this layout is made of: each octet's server and place.
    fn places(layout: Layout, regions: &[Region]) -> Vec<(usize, u64)> {
        let octets = regions
            .iter()
            .flat_map(|region| region.offset..region.offset + region.len);
        let place = |at: u64| {
            let number = at / layout.stripe;
            let server = (number % layout.servers) as usize;
            (
                server,
                number / layout.servers * layout.stripe + at % layout.stripe,
            )
        };
        octets.map(place).collect()
    }

    #[test]
    fn every_octet_has_its_place() {
        let region = |offset, len| Region { offset, len };
        for (stripe, servers) in [(1, 1), (4, 3), (64, 1), (7, 2)] {
            let layout = Layout::new(stripe, servers).unwrap();
            for regions in [
                vec![region(0, 100)],
                vec![region(13, 1), region(14, 30), region(200, 5)],
                vec![region(50, 9), region(3, 40), region(0, 0)],
            ] {
                let pieces = layout.pieces(&regions);
                let mut found = Vec::new();
                for piece in &pieces {
                    assert_eq!(piece.here, found.len());
                    let there = piece.there.offset..piece.there.offset + piece.there.len;
                    found.extend(there.map(|at| (piece.server, at)));
                }
                assert_eq!(found, places(layout, &regions), "{layout:?}, {regions:?}");
            }
        }
    }

    #[test]
    fn a_length_is_that_of_its_parts() {
        for (stripe, servers) in [(1, 1), (4, 3), (64, 1), (7, 2)] {
            let layout = Layout::new(stripe, servers).unwrap();
            for len in 0..100 {
                let parts: Vec<u64> = (0..servers)
                    .map(|server| layout.part(len, server))
                    .collect();
                let whole = [Region { offset: 0, len }];
                for (server, &part) in parts.iter().enumerate() {
                    let there = places(layout, &whole);
                    let there = there.iter().filter(|(on, _)| *on == server);
                    assert_eq!(there.count() as u64, part, "{layout:?}, {len}, {server}");
                }
                assert_eq!(layout.len(&parts), len, "{layout:?}, {parts:?}");
            }
        }
        // A hole: the second server alone was written to.
        let layout = Layout::new(4, 3).unwrap();
        assert_eq!(layout.len(&[0, 5, 0]), 17);
    }

    #[test]
    fn what_stands_together_on_a_server_is_one_piece() {
        let layout = Layout::new(64, 1).unwrap();
        let whole = Region {
            offset: 10,
            len: 1000,
        };
        assert_eq!(layout.pieces(&[whole]).len(), 1);
        assert!(Layout::new(0, 1).is_err() && Layout::new(1, 0).is_err());
    }
}
