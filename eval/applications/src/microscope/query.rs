//! What somebody at the microscope wants to see: a rectangle of the slide, made smaller.

use anyhow::{ensure, Context, Result};

use super::picture::Rect;

/// The largest factor. Whatever a picture is cut into, its parts are multiples of it, so that each can be made smaller
/// by itself.
pub const FACTOR_MAX: u32 = 8;

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// What of the slide; all four numbers are multiples of [`FACTOR_MAX`].
    pub rect: Rect,
    /// One pixel is shown for so many of a row, and for so many rows: 1, 2, 4 or 8.
    pub factor: u32,
}

impl Query {
    /// Octets of one.
    pub const OCTETS: usize = Rect::OCTETS + 4;

    /// As a piece of work has it.
    pub fn to_octets(self) -> [u8; Query::OCTETS] {
        let mut octets = [0; Query::OCTETS];
        octets[..Rect::OCTETS].copy_from_slice(&self.rect.to_octets());
        octets[Rect::OCTETS..].copy_from_slice(&self.factor.to_be_bytes());
        octets
    }

    /// The same back.
    ///
    /// # Errors
    /// The octets are no view of the slide.
    pub fn parse(octets: &[u8], slide: Rect) -> Result<Query> {
        let octets: &[u8; Query::OCTETS] =
            octets.try_into().context("a query of the wrong length")?;
        let (rect, factor) = octets
            .split_first_chunk()
            .context("a query has a rectangle")?;
        let rect = Rect::from_octets(rect);
        let factor = u32::from_be_bytes(factor.try_into().context("a query has a factor")?);
        let query = Query { rect, factor };
        let numbers = [rect.x, rect.y, rect.width, rect.height];
        let is_aligned = numbers
            .iter()
            .all(|number| number.is_multiple_of(FACTOR_MAX));
        let is_one = matches!(factor, 1 | 2 | 4 | FACTOR_MAX) && is_aligned;
        ensure!(
            is_one && !rect.is_empty() && rect.within(slide) == rect,
            "{query:?} is no view of the slide"
        );
        Ok(query)
    }

    /// The picture that is shown, as a rectangle by itself.
    pub fn shown(self) -> Rect {
        Rect {
            x: 0,
            y: 0,
            width: self.rect.width / self.factor,
            height: self.rect.height / self.factor,
        }
    }

    /// Where a part of the rectangle is in the picture.
    pub fn shown_part(self, part: Rect) -> Rect {
        Rect {
            x: (part.x - self.rect.x) / self.factor,
            y: (part.y - self.rect.y) / self.factor,
            width: part.width / self.factor,
            height: part.height / self.factor,
        }
    }

    /// What somebody looks at who moves over the slide and looks closer now and then: so many views of 512 by 512
    /// pixels, or of fewer where the slide has not as many.
    pub fn tour(views: u32, slide: Rect) -> Vec<Query> {
        const SIDE: u32 = 512;
        let view = |number: u32| {
            let factor = 1 << (number % 4);
            let side = (SIDE * factor).min(slide.width).min(slide.height);
            // Steps that are no multiples of a chunk's side.
            let along = |size: u32, step: u32| {
                let room = (size - side).max(1);
                (number * step) % room / FACTOR_MAX * FACTOR_MAX
            };
            Query {
                rect: Rect {
                    x: along(slide.width, 1_976),
                    y: along(slide.height, 1_352),
                    width: side,
                    height: side,
                },
                factor,
            }
        };
        (0..views).map(view).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::slide::DRAWN;
    use super::*;

    #[test]
    fn every_view_of_a_tour_is_one_of_the_slide() {
        let tour = Query::tour(100, DRAWN);
        for query in &tour {
            assert_eq!(Query::parse(&query.to_octets(), DRAWN).unwrap(), *query);
            assert_eq!(query.shown().len(), 512 * 512 * 3);
        }
        assert!(tour.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn a_slide_that_is_smaller_than_a_view_has_views() {
        for (width, height) in [(8, 8), (8, 4000), (512, 512), (520, 600), (5000, 1000)] {
            let slide = Rect {
                width,
                height,
                ..DRAWN
            };
            for query in Query::tour(50, slide) {
                assert_eq!(Query::parse(&query.to_octets(), slide).unwrap(), query);
                assert!(!query.shown().is_empty());
            }
        }
    }

    #[test]
    fn what_is_no_view_is_refused() {
        let good = Query::tour(1, DRAWN)[0];
        let bad = [
            Query { factor: 3, ..good },
            Query { factor: 0, ..good },
            Query {
                rect: Rect { x: 4, ..good.rect },
                ..good
            },
            Query {
                rect: Rect {
                    x: DRAWN.width,
                    ..good.rect
                },
                ..good
            },
            Query {
                rect: Rect {
                    width: u32::MAX - 7,
                    ..good.rect
                },
                ..good
            },
        ];
        for query in bad {
            assert!(
                Query::parse(&query.to_octets(), DRAWN).is_err(),
                "{query:?}"
            );
        }
        assert!(Query::parse(&good.to_octets()[1..], DRAWN).is_err());
    }
}
