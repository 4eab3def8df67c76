//! A virtual microscope: somebody looks at parts of a slide that is spread over several machines.
//!
//! Four filters: *read* has the chunks of the slide, each copy a share of them; *clip* cuts away what lies beside the
//! view; *subsample* makes it smaller; *view* puts the parts together, and is where somebody looks. It looks at one
//! view after another, each once the one before is there, and compares each with what one process by itself computes.

mod picture;
mod query;
mod slide;

use std::collections::HashMap;

use anyhow::{ensure, Context, Result};
use clap::{Args, Subcommand};

use crate::filters::{self, Filter, Group, Joints, Look, Output, Share, Tour};
use picture::{crop, paste, subsample, Rect, PIXEL};
use query::{Query, FACTOR_MAX};
use slide::{Slide, CHUNK};

/// The slide that is looked at.
const SEED: u64 = 2005;
/// Different views; then they come again.
const VIEWS: u32 = 8;
/// Chunks that a copy keeps: 200 MB.
const KEPT_MAX: usize = 1024;

/// A copy of one of the filters.
#[derive(Args, Clone, Debug)]
pub struct MicroscopeArgs {
    #[command(flatten)]
    joints: Joints,
    #[command(subcommand)]
    filter: Which,
}

#[derive(Subcommand, Clone, Debug)]
enum Which {
    /// Has a share of the slide
    Read(Share),
    /// Cuts away what lies beside the view
    Clip,
    /// Makes it smaller
    Subsample,
    /// Looks at one view after another, and prints how long they took
    View(Look),
}

/// A unit has at least as many rows of a chunk as the largest factor takes.
const UNIT_MIN: usize = Rect::OCTETS + (FACTOR_MAX * CHUNK) as usize * PIXEL;

/// Runs a copy of one of the filters.
///
/// # Errors
/// See [`filters::run`]; and a view is not what it should be.
pub fn run(args: &MicroscopeArgs) -> Result<()> {
    let unit = args.joints.unit as usize;
    ensure!(
        unit >= UNIT_MIN,
        "a unit has {UNIT_MIN} octets at least, for rows of the slide"
    );
    match &args.filter {
        Which::Read(share) => filters::run(&mut Reader::new(share, unit), &args.joints),
        Which::Clip => filters::run(&mut Clip::default(), &args.joints),
        Which::Subsample => filters::run(&mut Subsample::default(), &args.joints),
        Which::View(look) => {
            // Before anybody waits for it.
            let alone = |query| (query, alone(query));
            let tour: Vec<(Query, Vec<u8>)> = Query::tour(VIEWS).into_iter().map(alone).collect();
            Tour::begin(&args.joints)?.look(look, &tour, |group, (query, wanted)| {
                see(group, *query, wanted)
            })
        }
    }
}

/// *Read*.
struct Reader {
    slide: Slide,
    share: Share,
    rows: u32,
    kept: HashMap<(u32, u32), Vec<u8>>,
    query: Option<Query>,
}

impl Reader {
    fn new(share: &Share, unit: usize) -> Reader {
        let rows = (unit - Rect::OCTETS) / (CHUNK as usize * PIXEL);
        Reader {
            slide: Slide::drawn(SEED),
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

    /// The pixels of a chunk: drawn the first time, as a file would be read into memory.
    fn chunk(&mut self, chunk: (u32, u32)) -> &[u8] {
        if self.kept.len() >= KEPT_MAX && !self.kept.contains_key(&chunk) {
            self.kept.clear();
        }
        let slide = self.slide;
        self.kept.entry(chunk).or_insert_with(|| slide.draw(chunk))
    }
}

impl Filter for Reader {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.query = Some(Query::parse(work)?);
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
            let (place, pixels) = (Slide::place(chunk), self.chunk(chunk));
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
#[derive(Default)]
struct Clip {
    query: Option<Query>,
    pixels: Vec<u8>,
}

impl Filter for Clip {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.query = Some(Query::parse(work)?);
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
#[derive(Default)]
struct Subsample {
    query: Option<Query>,
    pixels: Vec<u8>,
}

impl Filter for Subsample {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.query = Some(Query::parse(work)?);
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
            is_aligned && rect.within(query.rect) == rect,
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

/// Has one view shown, which is the wanted one; gives its octets.
fn see(group: &mut Group, query: Query, wanted: &[u8]) -> Result<u64> {
    let shown = query.shown();
    // Nobody's pixel is this one everywhere.
    let mut pixels = vec![0; shown.len()];
    group.order(&query.to_octets())?;
    group.results(|unit| {
        let (part, from) = picture::parse(unit)?;
        ensure!(part.within(shown) == part, "{part:?} lies beside the view");
        paste(shown, &mut pixels, part, from);
        Ok(())
    })?;
    ensure!(pixels == wanted, "{query:?} is shown wrongly");
    Ok(wanted.len() as u64)
}

/// A view as one process by itself computes it.
fn alone(query: Query) -> Vec<u8> {
    let slide = Slide::drawn(SEED);
    let mut whole = vec![0; query.rect.len()];
    for chunk in Slide::chunks(query.rect) {
        let place = Slide::place(chunk);
        let part = place.within(query.rect);
        let mut pixels = Vec::with_capacity(part.len());
        crop(place, &slide.draw(chunk), part, &mut pixels);
        paste(query.rect, &mut whole, part, &pixels);
    }
    let mut small = Vec::with_capacity(query.shown().len());
    subsample(query.rect, &whole, query.factor, &mut small);
    small
}

#[cfg(test)]
mod tests;
