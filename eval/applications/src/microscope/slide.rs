//! The slide: chunks of pixels, drawn from a seed.
//!
//! It stands for a scan of stained tissue: what is drawn has no meaning, but is nowhere uniform, so that a picture that
//! was put together wrongly differs.

use super::picture::{Rect, PIXEL};

/// Columns and rows of the slide: 201 million pixels.
pub const SIZE: (u32, u32) = (16_384, 12_288);
/// Columns and rows of a chunk. The slide is a whole number of them.
pub const CHUNK: u32 = 256;

const _: () = assert!(SIZE.0.is_multiple_of(CHUNK) && SIZE.1.is_multiple_of(CHUNK));

/// A slide of a seed.
#[derive(Clone, Copy, Debug)]
pub struct Slide {
    seed: u64,
}

impl Slide {
    /// Always the same one for a seed.
    pub fn drawn(seed: u64) -> Slide {
        Slide { seed }
    }

    /// The chunks that a rectangle lies in, by column and row of chunks.
    pub fn chunks(rect: Rect) -> impl Iterator<Item = (u32, u32)> {
        let columns = rect.x / CHUNK..(rect.x + rect.width).div_ceil(CHUNK);
        let rows = rect.y / CHUNK..(rect.y + rect.height).div_ceil(CHUNK);
        rows.flat_map(move |row| columns.clone().map(move |column| (column, row)))
    }

    /// Where a chunk lies.
    pub fn place((column, row): (u32, u32)) -> Rect {
        Rect {
            x: column * CHUNK,
            y: row * CHUNK,
            width: CHUNK,
            height: CHUNK,
        }
    }

    /// The pixels of a chunk.
    pub fn draw(&self, chunk: (u32, u32)) -> Vec<u8> {
        let rect = Slide::place(chunk);
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
        let chunk = Slide::drawn(7).draw((3, 5));
        assert_eq!(chunk.len(), Slide::place((3, 5)).len());
        assert_eq!(chunk, Slide::drawn(7).draw((3, 5)));
        assert_ne!(chunk, Slide::drawn(8).draw((3, 5)));
        assert_ne!(chunk, Slide::drawn(7).draw((3, 6)));
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
            .all(|&chunk| !Slide::place(chunk).within(rect).is_empty()));
    }
}
