//! Rectangles of pixels, of which each is three octets: red, green, blue, row by row.

use anyhow::{ensure, Result};

/// Octets of a pixel.
pub const PIXEL: usize = 3;

/// A rectangle on the slide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// Its left column.
    pub x: u32,
    /// Its upper row.
    pub y: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl Rect {
    /// Octets of what says which rectangle it is.
    pub const OCTETS: usize = 16;

    /// Four numbers in network order.
    pub fn to_octets(self) -> [u8; Rect::OCTETS] {
        let mut octets = [0; Rect::OCTETS];
        let words = [self.x, self.y, self.width, self.height];
        for (place, word) in octets.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
        octets
    }

    /// The same back.
    pub fn from_octets(octets: &[u8; Rect::OCTETS]) -> Rect {
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| octets[at + i]));
        Rect {
            x: word(0),
            y: word(4),
            width: word(8),
            height: word(12),
        }
    }

    /// Octets of its pixels.
    pub fn len(self) -> usize {
        self.width as usize * self.height as usize * PIXEL
    }

    /// Whether it has no pixel.
    pub fn is_empty(self) -> bool {
        self.width == 0 || self.height == 0
    }

    /// What lies in both.
    pub fn within(self, other: Rect) -> Rect {
        let span = |one: (u32, u32), other: (u32, u32)| {
            let start = one.0.max(other.0);
            let end = one
                .0
                .saturating_add(one.1)
                .min(other.0.saturating_add(other.1));
            (start, end.saturating_sub(start))
        };
        let (x, width) = span((self.x, self.width), (other.x, other.width));
        let (y, height) = span((self.y, self.height), (other.y, other.height));
        Rect {
            x,
            y,
            width,
            height,
        }
    }

    /// Octets of the pixels of one row.
    fn row(self) -> usize {
        self.width as usize * PIXEL
    }
}

/// A rectangle and its pixels, as a unit of a stream has them.
///
/// # Errors
/// The octets are no such unit.
pub fn parse(unit: &[u8]) -> Result<(Rect, &[u8])> {
    let Some((head, pixels)) = unit.split_first_chunk::<{ Rect::OCTETS }>() else {
        anyhow::bail!("a unit of {} octets is no part of a picture", unit.len());
    };
    let rect = Rect::from_octets(head);
    let octets = u128::from(rect.width) * u128::from(rect.height) * PIXEL as u128;
    let is_whole = octets == pixels.len() as u128;
    ensure!(
        is_whole,
        "{} octets are not the pixels of {rect:?}",
        pixels.len()
    );
    Ok((rect, pixels))
}

/// Appends the pixels of `part`, which lies in `rect`, to `to`.
pub fn crop(rect: Rect, pixels: &[u8], part: Rect, to: &mut Vec<u8>) {
    let rows = (part.y - rect.y) as usize..(part.y - rect.y + part.height) as usize;
    let from = (part.x - rect.x) as usize * PIXEL;
    for row in pixels
        .chunks_exact(rect.row())
        .take(rows.end)
        .skip(rows.start)
    {
        to.extend_from_slice(&row[from..from + part.row()]);
    }
}

/// Appends one pixel for each `factor` by `factor` pixels, their mean, to `to`. Both sides of `rect` are multiples of
/// the factor.
pub fn subsample(rect: Rect, pixels: &[u8], factor: u32, to: &mut Vec<u8>) {
    let factor = factor as usize;
    if factor == 1 {
        return to.extend_from_slice(pixels);
    }
    let area = (factor * factor) as u32;
    let mut sums = vec![0_u32; rect.row() / factor];
    for rows in pixels.chunks_exact(rect.row() * factor) {
        sums.fill(0);
        for row in rows.chunks_exact(rect.row()) {
            for (sums, block) in sums
                .chunks_exact_mut(PIXEL)
                .zip(row.chunks_exact(factor * PIXEL))
            {
                for pixel in block.as_chunks::<PIXEL>().0 {
                    for (sum, octet) in sums.iter_mut().zip(pixel) {
                        *sum += u32::from(*octet);
                    }
                }
            }
        }
        to.extend(sums.iter().map(|sum| (sum / area) as u8));
    }
}

/// Puts the pixels of `part` into those of `rect`, in which it lies.
pub fn paste(rect: Rect, pixels: &mut [u8], part: Rect, from: &[u8]) {
    let first = (part.y - rect.y) as usize;
    let at = (part.x - rect.x) as usize * PIXEL;
    let rows = pixels.chunks_exact_mut(rect.row()).skip(first);
    for (row, from) in rows.zip(from.chunks_exact(part.row())) {
        row[at..at + from.len()].copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Rect = Rect {
        x: 8,
        y: 16,
        width: 8,
        height: 4,
    };

    fn pixels() -> Vec<u8> {
        (0..WHOLE.len()).map(|i| (i * 5) as u8).collect()
    }

    #[test]
    fn what_is_cropped_and_pasted_back_is_what_was_there() {
        let part = Rect {
            x: 10,
            y: 17,
            width: 3,
            height: 2,
        };
        let mut cropped = Vec::new();
        crop(WHOLE, &pixels(), part, &mut cropped);
        assert_eq!(cropped.len(), part.len());
        assert_eq!(cropped[..9], pixels()[(8 + 2) * 3..(8 + 5) * 3]);
        let mut pasted = pixels();
        paste(WHOLE, &mut pasted, part, &vec![0; part.len()]);
        assert_ne!(pasted, pixels());
        paste(WHOLE, &mut pasted, part, &cropped);
        assert_eq!(pasted, pixels());
    }

    #[test]
    fn a_subsample_is_the_mean() {
        let square = Rect {
            x: 0,
            y: 0,
            width: 4,
            height: 2,
        };
        let mut pixels = vec![0; square.len()];
        // The upper left pixel, and the red of one beside the middle.
        pixels[..3].copy_from_slice(&[200, 100, 40]);
        pixels[6] = 7;
        let mut to = Vec::new();
        subsample(square, &pixels, 2, &mut to);
        assert_eq!(to, [50, 25, 10, 1, 0, 0]);
        to.clear();
        subsample(square, &pixels, 1, &mut to);
        assert_eq!(to, pixels);
    }

    #[test]
    fn rectangles_meet_or_do_not() {
        let other = Rect {
            x: 12,
            y: 0,
            width: 100,
            height: 18,
        };
        let both = Rect {
            x: 12,
            y: 16,
            width: 4,
            height: 2,
        };
        assert_eq!(WHOLE.within(other), both);
        assert_eq!(other.within(WHOLE), both);
        let beside = Rect { x: 16, ..WHOLE };
        assert!(WHOLE.within(beside).is_empty());
        let at_the_end = Rect {
            x: u32::MAX,
            ..WHOLE
        };
        assert!(WHOLE.within(at_the_end).is_empty());
    }

    #[test]
    fn a_unit_has_as_many_pixels_as_it_says() {
        let unit = [&WHOLE.to_octets()[..], &pixels()].concat();
        assert_eq!(parse(&unit).unwrap(), (WHOLE, &pixels()[..]));
        assert!(parse(&unit[..unit.len() - 1]).is_err());
        assert!(parse(&unit[..7]).is_err());
        let huge = Rect {
            width: u32::MAX,
            height: u32::MAX,
            ..WHOLE
        };
        assert!(parse(&[&huge.to_octets()[..], &[0; 3]].concat()).is_err());
    }
}
