//! The picture of a surface: of each pixel how far the nearest point of it is, and how bright.

use anyhow::{ensure, Context, Result};

use super::cubes::{Point, Triangle};
use super::reservoir::GRID;

/// Columns and rows.
pub const SIDE: usize = 512;
/// Octets that say where a row's pixels are: its number, the first column, and how many.
const SPAN: usize = 12;
/// Octets of a pixel: how far, and how bright.
const PIXEL: usize = 5;

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    /// Row by row. What nothing is at is infinitely far.
    pixels: Vec<Pixel>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Pixel {
    far: f32,
    bright: u8,
}

const NOTHING: Pixel = Pixel {
    far: f32::INFINITY,
    bright: 0,
};

impl Image {
    /// Of nothing.
    pub fn empty() -> Image {
        Image {
            pixels: vec![NOTHING; SIDE * SIDE],
        }
    }

    /// How many pixels show something.
    pub fn shown(&self) -> usize {
        self.pixels
            .iter()
            .filter(|pixel| **pixel != NOTHING)
            .count()
    }

    /// Draws a triangle. In whatever order triangles are drawn, and by however many, the picture is the same.
    pub fn draw(&mut self, triangle: &Triangle) {
        let bright = brightness(triangle);
        let [a, b, c] = triangle.map(seen);
        let area = side(a, b, c);
        if area == 0.0 {
            return;
        }
        let span = |axis: usize| {
            let all = [a[axis], b[axis], c[axis]];
            let least = all
                .into_iter()
                .fold(f32::INFINITY, f32::min)
                .ceil()
                .max(0.0);
            let most = all.into_iter().fold(f32::NEG_INFINITY, f32::max).floor();
            // What lies beside the picture is an empty range.
            least as usize..(most.min(SIDE as f32 - 1.0) + 1.0).max(0.0) as usize
        };
        for y in span(1) {
            for x in span(0) {
                let at = [x as f32, y as f32, 0.0];
                let weights = [
                    side(b, c, at) / area,
                    side(c, a, at) / area,
                    side(a, b, at) / area,
                ];
                if weights.iter().all(|weight| *weight >= 0.0) {
                    let far = weights[0] * a[2] + weights[1] * b[2] + weights[2] * c[2];
                    self.put(y * SIDE + x, Pixel { far, bright });
                }
            }
        }
    }

    fn put(&mut self, at: usize, pixel: Pixel) {
        let there = &mut self.pixels[at];
        let order = pixel
            .far
            .total_cmp(&there.far)
            .then(pixel.bright.cmp(&there.bright));
        if order.is_lt() {
            *there = pixel;
        }
    }

    /// Gives what is shown to `give`, in pieces of so many octets at most.
    ///
    /// # Errors
    /// Those of `give`.
    pub fn give(&self, most: usize, mut give: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut piece = Vec::with_capacity(most);
        for (y, row) in self.pixels.as_chunks::<SIDE>().0.iter().enumerate() {
            let is_shown = |pixel: &Pixel| *pixel != NOTHING;
            let (Some(first), Some(last)) = (
                row.iter().position(is_shown),
                row.iter().rposition(is_shown),
            ) else {
                continue;
            };
            let shown = &row[first..=last];
            if piece.len() + SPAN + shown.len() * PIXEL > most {
                give(&piece)?;
                piece.clear();
            }
            let head = [y, first, shown.len()].map(|number| (number as u32).to_be_bytes());
            piece.extend(head.concat());
            for pixel in shown {
                piece.extend_from_slice(&pixel.far.to_be_bytes());
                piece.push(pixel.bright);
            }
        }
        match piece.is_empty() {
            true => Ok(()),
            false => give(&piece),
        }
    }

    /// Puts such a piece of another picture into this one: what is nearer is seen.
    ///
    /// # Errors
    /// The octets are no such piece.
    pub fn merge(&mut self, mut piece: &[u8]) -> Result<()> {
        while !piece.is_empty() {
            let (head, rest) = piece
                .split_first_chunk::<SPAN>()
                .context("a piece of a picture that is cut")?;
            let word =
                |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[at + i])) as usize;
            let (y, first, count) = (word(0), word(4), word(8));
            let fits =
                y < SIDE && first < SIDE && count <= SIDE - first && rest.len() >= count * PIXEL;
            ensure!(
                fits,
                "{count} pixels of row {y} from column {first} on, in {} octets",
                rest.len()
            );
            let (pixels, rest) = rest.split_at(count * PIXEL);
            for (x, pixel) in pixels.as_chunks::<PIXEL>().0.iter().enumerate() {
                let far = f32::from_be_bytes(std::array::from_fn(|i| pixel[i]));
                let bright = pixel[PIXEL - 1];
                self.put(y * SIDE + first + x, Pixel { far, bright });
            }
            piece = rest;
        }
        Ok(())
    }
}

/// The longest row as a piece has it: no piece may be shorter.
pub const LONGEST_ROW: usize = SPAN + SIDE * PIXEL;

/// Where a point is in the picture, and how far: seen from above and from a corner, all of the grid fits.
fn seen([x, y, z]: Point) -> Point {
    let [width, depth, height] = GRID.map(|points| points as f32);
    let (right, up) = (0.5 * (x + y), z * 1.2 + 0.25 * (y - x));
    let (wide, high) = (0.5 * (width + depth), height * 1.2 + 0.25 * (width + depth));
    let scale = SIDE as f32 / (wide.max(high) + 8.0);
    [
        4.0 * scale + right * scale,
        SIDE as f32 - (4.0 + 0.25 * width + up) * scale,
        x - y - 0.5 * z,
    ]
}

/// Twice the area of a triangle in the picture, negative where its points come in the order of the clock's hands.
fn side(a: Point, b: Point, c: Point) -> f32 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// How much light falls on a triangle.
fn brightness([a, b, c]: &Triangle) -> u8 {
    let between =
        |from: &Point, to: &Point| -> Point { std::array::from_fn(|axis| to[axis] - from[axis]) };
    let (one, other) = (between(a, b), between(a, c));
    let normal = [
        one[1] * other[2] - one[2] * other[1],
        one[2] * other[0] - one[0] * other[2],
        one[0] * other[1] - one[1] * other[0],
    ];
    let length = normal
        .iter()
        .map(|part| part * part)
        .sum::<f32>()
        .sqrt()
        .max(f32::MIN_POSITIVE);
    let light = [-0.5, 0.4, 0.77];
    let cosine = normal
        .iter()
        .zip(light)
        .map(|(part, light)| part * light)
        .sum::<f32>()
        / length;
    (40.0 + 215.0 * cosine.abs().min(1.0)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn triangles() -> Vec<Triangle> {
        let point = |number: u32| -> Point {
            std::array::from_fn(|axis| {
                (number.wrapping_mul(7919 + 104_729 * axis as u32) % 60) as f32
            })
        };
        (0..200)
            .map(|number| {
                [
                    point(3 * number),
                    point(3 * number + 1),
                    point(3 * number + 2),
                ]
            })
            .collect()
    }

    fn drawn<'a>(triangles: impl Iterator<Item = &'a Triangle>) -> Image {
        let mut image = Image::empty();
        triangles.for_each(|triangle| image.draw(triangle));
        image
    }

    #[test]
    fn a_picture_is_the_same_in_any_order_and_from_parts() {
        let triangles = triangles();
        let whole = drawn(triangles.iter());
        assert!(whole.shown() > 1000);
        assert_eq!(drawn(triangles.iter().rev()), whole);
        for most in [LONGEST_ROW, 5000, 1 << 16] {
            let mut merged = Image::empty();
            for part in 0..3 {
                let part = drawn(triangles.iter().skip(part).step_by(3));
                let give = |piece: &[u8]| {
                    assert!(piece.len() <= most);
                    merged.merge(piece)
                };
                part.give(most, give).unwrap();
            }
            assert_eq!(merged, whole);
        }
    }

    #[test]
    fn every_point_of_the_grid_is_in_the_picture() {
        let most = GRID.map(|points| (points - 1) as f32);
        for corner in 0..8 {
            let at = std::array::from_fn(|axis| most[axis] * (corner >> axis & 1) as f32);
            let [x, y, _] = seen(at);
            let inside = 0.0..SIDE as f32;
            assert!(
                inside.contains(&x) && inside.contains(&y),
                "{at:?} is at {x}, {y}"
            );
        }
    }

    #[test]
    fn what_is_no_piece_is_refused() {
        let span = |numbers: [u32; 3]| numbers.map(u32::to_be_bytes).concat();
        for piece in [
            span([0, 0, 1]),
            span([512, 0, 0]),
            span([0, 512, 0]),
            [span([0, 500, 13]), vec![0; 13 * PIXEL]].concat(),
            span([0, 0, u32::MAX]),
            vec![0; 5],
        ] {
            assert!(Image::empty().merge(&piece).is_err(), "{piece:?}");
        }
    }
}
