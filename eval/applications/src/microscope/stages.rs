//! The filters of a microscope: *read*, *clip*, *subsample*, and *view* where several groups of them are side by side.

use std::collections::HashMap;

use anyhow::{ensure, Context, Result};

use super::picture::{self, crop, paste, subsample, Rect, PIXEL};
use super::query::{Query, FACTOR_MAX};
use super::slide::{Slide, CHUNK};
use crate::filters::{Filter, Output, Share};

/// Chunks that a copy keeps: 200 MB.
const KEPT_MAX: usize = 1024;

/// *Read*.
pub(super) struct Reader {
    slide: Slide,
    share: Share,
    rows: u32,
    kept: HashMap<(u32, u32), Vec<u8>>,
    query: Option<Query>,
}

impl Reader {
    pub(super) fn new(slide: Slide, share: &Share, unit: usize) -> Reader {
        let rows = (unit - Rect::OCTETS) / (CHUNK as usize * PIXEL);
        Reader {
            slide,
            share: share.clone(),
            rows: (rows as u32 / FACTOR_MAX * FACTOR_MAX).min(CHUNK),
            kept: HashMap::new(),
            query: None,
        }
    }

    /// Neighbours belong to different copies, so that each view has something of all.
    fn has(&self, (column, row): (u32, u32)) -> bool {
        self.share.has((column + row) as usize)
    }

    /// The pixels of a chunk: drawn or read from the file the first time.
    fn chunk(&mut self, chunk: (u32, u32)) -> Result<&[u8]> {
        if !self.kept.contains_key(&chunk) {
            if self.kept.len() >= KEPT_MAX {
                self.kept.clear();
            }
            self.kept.insert(chunk, self.slide.pixels(chunk)?);
        }
        Ok(&self.kept[&chunk])
    }
}

impl Filter for Reader {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.query = Some(Query::parse(work, self.slide.whole())?);
        Ok(())
    }

    fn take(&mut self, _: &[u8], _: &mut Output) -> Result<()> {
        anyhow::bail!("nothing is given to those who read the slide")
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        let query = self.query.take().context("no view was asked for")?;
        let rows = self.rows;
        for chunk in Slide::chunks(query.rect) {
            if !self.has(chunk) {
                continue;
            }
            let (place, pixels) = (self.slide.place(chunk), self.chunk(chunk)?);
            for (number, pixels) in pixels
                .chunks(place.width as usize * rows as usize * PIXEL)
                .enumerate()
            {
                let y = place.y + number as u32 * rows;
                let band = Rect {
                    y,
                    height: rows.min(place.y + place.height - y),
                    ..place
                };
                // Whole rows above and below a view are not read.
                if !band.within(query.rect).is_empty() {
                    output.give(&band.to_octets(), pixels)?;
                }
            }
        }
        Ok(())
    }
}

/// *Clip*.
pub(super) struct Clip {
    slide: Rect,
    query: Option<Query>,
    pixels: Vec<u8>,
}

impl Clip {
    /// `slide`: all that can be looked at.
    pub(super) fn new(slide: Rect) -> Clip {
        Clip {
            slide,
            query: None,
            pixels: Vec::new(),
        }
    }
}

impl Filter for Clip {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.query = Some(Query::parse(work, self.slide)?);
        Ok(())
    }

    fn take(&mut self, unit: &[u8], output: &mut Output) -> Result<()> {
        let query = self.query.context("no view was asked for")?;
        let (rect, pixels) = picture::parse(unit)?;
        let part = rect.within(query.rect);
        if part.is_empty() {
            return Ok(());
        }
        self.pixels.clear();
        crop(rect, pixels, part, &mut self.pixels);
        output.give(&part.to_octets(), &self.pixels)
    }

    fn end(&mut self, _: &mut Output) -> Result<()> {
        Ok(())
    }
}

/// *Subsample*.
pub(super) struct Subsample {
    slide: Rect,
    query: Option<Query>,
    pixels: Vec<u8>,
}

impl Subsample {
    /// `slide`: all that can be looked at.
    pub(super) fn new(slide: Rect) -> Subsample {
        Subsample {
            slide,
            query: None,
            pixels: Vec::new(),
        }
    }
}

impl Filter for Subsample {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.query = Some(Query::parse(work, self.slide)?);
        Ok(())
    }

    fn take(&mut self, unit: &[u8], output: &mut Output) -> Result<()> {
        let query = self.query.context("no view was asked for")?;
        let (rect, pixels) = picture::parse(unit)?;
        let numbers = [rect.x, rect.y, rect.width, rect.height];
        let is_aligned = numbers
            .iter()
            .all(|number| number.is_multiple_of(query.factor));
        ensure!(
            is_aligned && !rect.is_empty() && rect.within(query.rect) == rect,
            "{rect:?} is no part of {query:?}"
        );
        self.pixels.clear();
        subsample(rect, pixels, query.factor, &mut self.pixels);
        output.give(&query.shown_part(rect).to_octets(), &self.pixels)
    }

    fn end(&mut self, _: &mut Output) -> Result<()> {
        Ok(())
    }
}

/// *View* of a filter group: puts the parts together, and gives the picture on when it is whole.
pub(super) struct View {
    slide: Rect,
    unit: usize,
    picture: Option<Picture>,
}

impl View {
    pub(super) fn new(slide: Rect, unit: usize) -> View {
        View {
            slide,
            unit,
            picture: None,
        }
    }
}

impl Filter for View {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.picture = Some(Picture::empty(Query::parse(work, self.slide)?));
        Ok(())
    }

    fn take(&mut self, unit: &[u8], _: &mut Output) -> Result<()> {
        let picture = self.picture.as_mut();
        picture.context("no view was asked for")?.take(unit)
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        let picture = self.picture.take().context("no view was asked for")?;
        let shown = picture.shown;
        let row = shown.width as usize * PIXEL;
        ensure!(
            Rect::OCTETS + row <= self.unit,
            "a row of the view does not fit a unit of {} octets",
            self.unit
        );
        let rows = (self.unit - Rect::OCTETS) / row;
        let mut y = 0;
        for pixels in picture.pixels.chunks(row * rows) {
            let height = (pixels.len() / row) as u32;
            let band = Rect { y, height, ..shown };
            output.give(&band.to_octets(), pixels)?;
            y += height;
        }
        Ok(())
    }
}

/// A view that is put together.
pub(super) struct Picture {
    shown: Rect,
    pub(super) pixels: Vec<u8>,
}

impl Picture {
    /// Nobody's pixels are all like these.
    pub(super) fn empty(query: Query) -> Picture {
        let shown = query.shown();
        Picture {
            shown,
            pixels: vec![0; shown.len()],
        }
    }

    /// Puts a part in.
    ///
    /// # Errors
    /// The octets are no part of this view.
    pub(super) fn take(&mut self, unit: &[u8]) -> Result<()> {
        let (part, from) = picture::parse(unit)?;
        ensure!(
            part.within(self.shown) == part && !part.is_empty(),
            "{part:?} lies beside the view"
        );
        paste(self.shown, &mut self.pixels, part, from);
        Ok(())
    }
}
