//! The slide: chunks of pixels, drawn from a seed, or from a file of the user's own.
//!
//! What is drawn stands for a scan of stained tissue: it has no meaning, but is nowhere uniform, so that a picture that
//! was put together wrongly differs.

use std::path::Path;

use anyhow::Result;

use super::picture::{Rect, PIXEL};
use super::scan::Scan;

/// The slide that is drawn: 201 million pixels.
pub const DRAWN: Rect = Rect {
    x: 0,
    y: 0,
    width: 16_384,
    height: 12_288,
};
/// Columns and rows of a chunk; those at the right and lower edge have fewer where the slide ends.
pub const CHUNK: u32 = 256;
/// The seed of the slide that is drawn.
const SEED: u64 = 2005;

/// A slide.
pub enum Slide {
    /// One that is drawn from a seed.
    Drawn(Drawn),
    /// The user's own.
    Own(Box<Scan>),
}

/// A slide of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Drawn {
    seed: u64,
}

impl Slide {
    /// That of a file, or the one that is drawn.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(file: Option<&Path>) -> Result<Slide> {
        Ok(match file {
            Some(file) => Slide::Own(Box::new(Scan::open(file)?)),
            None => Slide::Drawn(Drawn::of(SEED)),
        })
    }

    /// All that can be looked at.
    pub fn whole(&self) -> Rect {
        match self {
            Slide::Drawn(_) => DRAWN,
            Slide::Own(scan) => scan.whole(),
        }
    }

    /// The chunks that a rectangle lies in, by column and row of chunks.
    pub fn chunks(rect: Rect) -> impl Iterator<Item = (u32, u32)> {
        let columns = rect.x / CHUNK..(rect.x + rect.width).div_ceil(CHUNK);
        let rows = rect.y / CHUNK..(rect.y + rect.height).div_ceil(CHUNK);
        rows.flat_map(move |row| columns.clone().map(move |column| (column, row)))
    }

    /// Where a chunk lies.
    pub fn place(&self, chunk: (u32, u32)) -> Rect {
        square(chunk).within(self.whole())
    }

    /// The pixels of a chunk.
    ///
    /// # Errors
    /// The file cannot be read there.
    pub fn pixels(&mut self, chunk: (u32, u32)) -> Result<Vec<u8>> {
        let place = self.place(chunk);
        match self {
            Slide::Drawn(drawn) => Ok(drawn.draw(place)),
            Slide::Own(scan) => scan.pixels(place),
        }
    }
}

fn square((column, row): (u32, u32)) -> Rect {
    Rect {
        x: column * CHUNK,
        y: row * CHUNK,
        width: CHUNK,
        height: CHUNK,
    }
}

impl Drawn {
    /// Always the same one for a seed.
    fn of(seed: u64) -> Drawn {
        Drawn { seed }
    }

    /// The pixels of a rectangle.
    fn draw(&self, rect: Rect) -> Vec<u8> {
        let mut pixels = Vec::with_capacity(rect.len());
        for y in rect.y..rect.y + rect.height {
            // Tissue, then cells, then grain.
            let (mut tissue, mut cell) = (Row::new(self.seed, y, 7), Row::new(self.seed + 1, y, 4));
            for x in rect.x..rect.x + rect.width {
                let (tissue, cell) = (tissue.at(x), cell.at(x));
                let grain = noise(self.seed + 2, x, y) & 15;
                let dark = (tissue * 3 + cell) / 4;
                let of = |full: u32, stain: u32| (full - dark * stain / 256 - grain) as u8;
                let pixel: [u8; PIXEL] = [of(245, 120), of(225, 200), of(240, 90)];
                pixels.extend_from_slice(&pixel);
            }
        }
        pixels
    }
}

/// A row of smooth noise: between the points of a grid of 2^`bits` pixels values are interpolated.
struct Row {
    seed: u64,
    y: u32,
    bits: u32,
    /// The cell that `ends` belong to.
    cell: Option<u32>,
    /// What the row has at the cell's left and right end.
    ends: [u32; 2],
}

impl Row {
    fn new(seed: u64, y: u32, bits: u32) -> Row {
        Row {
            seed,
            y,
            bits,
            cell: None,
            ends: [0; 2],
        }
    }

    /// From 0 to 255.
    fn at(&mut self, x: u32) -> u32 {
        let (bits, cell) = (self.bits, x >> self.bits);
        if self.cell != Some(cell) {
            let row = self.y >> bits;
            let down = self.y & ((1 << bits) - 1);
            let end = |x| {
                let [upper, lower] = [row, row + 1].map(|y| noise(self.seed, x, y) & 255);
                (upper * ((1 << bits) - down) + lower * down) >> bits
            };
            (self.cell, self.ends) = (Some(cell), [end(cell), end(cell + 1)]);
        }
        let along = x & ((1 << bits) - 1);
        (self.ends[0] * ((1 << bits) - along) + self.ends[1] * along) >> bits
    }
}

/// Bits of a point, as good as random.
fn noise(seed: u64, x: u32, y: u32) -> u32 {
    let point = u64::from(x) << 32 | u64::from(y);
    let mixed =
        (point ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 33) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_slide_and_another_one_another() {
        let (place, below) = (square((3, 5)), square((3, 6)));
        let chunk = Drawn::of(7).draw(place);
        assert_eq!(chunk.len(), place.len());
        assert_eq!(chunk, Drawn::of(7).draw(place));
        assert_ne!(chunk, Drawn::of(8).draw(place));
        assert_ne!(chunk, Drawn::of(7).draw(below));
        let rows: Vec<&[u8]> = chunk.chunks(CHUNK as usize * PIXEL).collect();
        assert!(
            rows.windows(2).all(|rows| rows[0] != rows[1]),
            "no two rows are equal"
        );
    }

    #[test]
    fn a_rectangle_has_the_chunks_that_it_lies_in() {
        let rect = Rect {
            x: 200,
            y: 256,
            width: 313,
            height: 256,
        };
        let chunks: Vec<_> = Slide::chunks(rect).collect();
        assert_eq!(chunks, [(0, 1), (1, 1), (2, 1)]);
        assert!(chunks
            .iter()
            .all(|&chunk| !square(chunk).within(rect).is_empty()));
    }
}
