//! A virtual microscope: somebody looks at parts of a slide that is spread over several machines.
//!
//! Four filters: *read* has the chunks of the slide, each copy a share of them; *clip* cuts away what lies beside the
//! view; *subsample* makes it smaller; *view* puts the parts together, and is where somebody looks. It looks at one
//! view after another, each once the one before is there, and compares each with what one process by itself computes.

mod picture;
mod query;
mod slide;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{ensure, Context, Result};
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::filters::{self, Filter, Group, Joints, Output};
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
    Read(Read),
    /// Cuts away what lies beside the view
    Clip,
    /// Makes it smaller
    Subsample,
    /// Looks at one view after another, and prints how long they took
    View(View),
}

#[derive(Args, Clone, Debug)]
struct Read {
    /// Octets of a unit that it gives, at most
    #[arg(long, value_parser = clap::value_parser!(u32).range(UNIT_MIN..=UNIT_MAX))]
    unit: u32,
    /// Which of the copies it is, from 0
    #[arg(long)]
    copy: u32,
    /// How many there are
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    copies: u32,
}

#[derive(Args, Clone, Debug)]
struct View {
    /// Seconds to look for
    #[arg(long)]
    seconds: u32,
}

/// A unit has at least as many rows of a chunk as the largest factor takes.
const UNIT_MIN: i64 = 8 << 10;
/// A chunk, which is less than a frame may have.
const UNIT_MAX: i64 = 256 << 10;
const _: () = assert!(UNIT_MIN as usize >= Rect::OCTETS + (FACTOR_MAX * CHUNK) as usize * PIXEL);

/// Runs a copy of one of the filters.
///
/// # Errors
/// See [`filters::run`]; and a view is not what it should be.
pub fn run(args: &MicroscopeArgs) -> Result<()> {
    match &args.filter {
        Which::Read(read) => filters::run(&mut Reader::new(read), &args.joints),
        Which::Clip => filters::run(&mut Clip::default(), &args.joints),
        Which::Subsample => filters::run(&mut Subsample::default(), &args.joints),
        Which::View(view) => look(view, &args.joints),
    }
}

/// *Read*.
struct Reader {
    slide: Slide,
    copy: u32,
    copies: u32,
    rows: u32,
    kept: HashMap<(u32, u32), Vec<u8>>,
    query: Option<Query>,
}

impl Reader {
    fn new(read: &Read) -> Reader {
        let rows = (read.unit as usize - Rect::OCTETS) / (CHUNK as usize * PIXEL);
        Reader {
            slide: Slide::drawn(SEED),
            copy: read.copy,
            copies: read.copies,
            rows: (rows as u32 / FACTOR_MAX * FACTOR_MAX).min(CHUNK),
            kept: HashMap::new(),
            query: None,
        }
    }

    /// Neighbours belong to different copies, so that each view has something of all.
    fn has(&self, (column, row): (u32, u32)) -> bool {
        (column + row) % self.copies == self.copy
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
        let is_aligned = numbers.iter().all(|number| number.is_multiple_of(query.factor));
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

/// What *view* prints.
#[derive(Debug, Serialize)]
struct Figures {
    requests_per_s: f64,
    /// The median view.
    request_us: f64,
    p99_us: f64,
    operations: u64,
    /// Octets that were shown.
    shown: u64,
}

/// *View*.
fn look(view: &View, joints: &Joints) -> Result<()> {
    // Before anybody waits for it.
    let tour: Vec<(Query, Vec<u8>)> = Query::tour(VIEWS)
        .into_iter()
        .map(|query| (query, alone(query)))
        .collect();
    let mut group = Group::join(&filters::listen(joints.listen)?, joints)?;
    // What is seen for the first time is drawn.
    for (query, wanted) in &tour {
        see(&mut group, *query, wanted)?;
    }
    let (start, time) = (Instant::now(), Duration::from_secs(view.seconds.into()));
    let (mut took, mut shown) = (Vec::new(), 0);
    for (query, wanted) in tour.iter().cycle() {
        let asked = Instant::now();
        see(&mut group, *query, wanted)?;
        took.push(asked.elapsed().as_secs_f64() * 1e6);
        shown += wanted.len() as u64;
        if start.elapsed() >= time {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    took.sort_by(f64::total_cmp);
    let figures = Figures {
        requests_per_s: took.len() as f64 / seconds,
        request_us: took[took.len() / 2],
        p99_us: took[took.len() * 99 / 100],
        operations: took.len() as u64,
        shown,
    };
    let figures = serde_json::to_string(&figures)? + "\n";
    weft_os::stdout::print(&figures).context("cannot print the figures")?;
    Ok(())
}

/// Has one view shown, which is the wanted one.
fn see(group: &mut Group, query: Query, wanted: &[u8]) -> Result<()> {
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
    Ok(())
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
