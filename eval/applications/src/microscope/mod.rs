//! A virtual microscope: somebody looks at parts of a slide that is spread over several machines.
//!
//! Four filters: *read* has the chunks of the slide, each copy a share of them; *clip* cuts away what lies beside the
//! view; *subsample* makes it smaller; *view* puts the parts together.
//!
//! Somebody looks at *view*, at one view after another, each once the one before is there. Or there are several filter
//! groups, and a *client*, which has several views made at once: each by the group that has the fewest under way.
//! Either compares each view with what one process by itself computes.

mod picture;
mod query;
mod scan;
mod slide;
mod stages;

use std::path::PathBuf;

use anyhow::{ensure, Result};
use clap::{Args, Subcommand};

use crate::filters::{self, Beside, Group, Groups, Joints, Look, Merge, Share, Tour, Works};
use picture::{crop, paste, subsample, Rect, PIXEL};
use query::{Query, FACTOR_MAX};
pub use scan::{examine, Facts};
use slide::{Slide, CHUNK};
use stages::{Clip, Picture, Reader, Subsample, View};

/// Different views; then they come again.
const VIEWS: u32 = 8;

/// A copy of one of the filters.
#[derive(Args, Clone, Debug)]
pub struct MicroscopeArgs {
    #[command(flatten)]
    joints: Joints,
    /// A TIFF file to look at, instead of a slide that is drawn from a seed; each process of the program has to have it
    #[arg(long, value_name = "FILE", global = true)]
    slide: Option<PathBuf>,
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
    /// Puts views together for a client
    GroupView,
    /// Has filter groups make views, several at once, and prints how long they took
    Client(Client),
}

#[derive(Args, Clone, Debug)]
struct Client {
    #[command(flatten)]
    beside: Beside,
    #[command(flatten)]
    look: Look,
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
    let mut slide = Slide::open(args.slide.as_deref())?;
    let whole = slide.whole();
    match &args.filter {
        Which::Read(share) => filters::run(&mut Reader::new(slide, share, unit), &args.joints),
        Which::Clip => filters::run(&mut Clip::new(whole), &args.joints),
        Which::Subsample => filters::run(&mut Subsample::new(whole), &args.joints),
        Which::View(look) => {
            // Those before it are to find it at once, and nothing is asked of them while the views are computed.
            let mut tour = Tour::begin(&args.joints)?;
            let views = Views::tour(&mut slide, VIEWS)?;
            tour.look(look, &views.0, |group, (query, wanted)| {
                see(group, *query, wanted)
            })
        }
        Which::GroupView => filters::run(&mut View::new(whole, unit), &args.joints),
        Which::Client(client) => {
            let groups = Groups::join(&args.joints, &client.beside)?;
            let views = Views::tour(&mut slide, VIEWS)?;
            Merge::of(&views, groups).run(&client.look)
        }
    }
}

/// Views, each with what one process by itself computes.
struct Views(Vec<(Query, Vec<u8>)>);

impl Views {
    fn tour(slide: &mut Slide, number: u32) -> Result<Views> {
        let tour = Query::tour(number, slide.whole()).into_iter();
        let alone = |query| Ok((query, alone(slide, query)?));
        Ok(Views(tour.map(alone).collect::<Result<_>>()?))
    }

    fn at(&self, work: u64) -> &(Query, Vec<u8>) {
        &self.0[work as usize]
    }
}

impl Works for Views {
    type Whole = Picture;

    fn number(&self) -> u64 {
        self.0.len() as u64
    }

    fn order(&self, work: u64) -> Vec<u8> {
        self.at(work).0.to_octets().to_vec()
    }

    fn begin(&self, work: u64) -> Picture {
        Picture::empty(self.at(work).0)
    }

    fn take(&self, whole: &mut Picture, unit: &[u8]) -> Result<()> {
        whole.take(unit)
    }

    fn end(&self, work: u64, whole: Picture) -> Result<u64> {
        let (query, wanted) = self.at(work);
        compare(*query, &whole, wanted)
    }
}

/// Gives the octets of a view that is as wanted.
fn compare(query: Query, shown: &Picture, wanted: &[u8]) -> Result<u64> {
    ensure!(shown.pixels == wanted, "{query:?} is shown wrongly");
    Ok(wanted.len() as u64)
}

/// Has one view shown, which is the wanted one; gives its octets.
fn see(group: &mut Group, query: Query, wanted: &[u8]) -> Result<u64> {
    let mut picture = Picture::empty(query);
    group.order(&query.to_octets())?;
    group.results(|unit| picture.take(unit))?;
    compare(query, &picture, wanted)
}

/// A view as one process by itself computes it.
fn alone(slide: &mut Slide, query: Query) -> Result<Vec<u8>> {
    let mut whole = vec![0; query.rect.len()];
    for chunk in Slide::chunks(query.rect) {
        let place = slide.place(chunk);
        let part = place.within(query.rect);
        let mut pixels = Vec::with_capacity(part.len());
        crop(place, &slide.pixels(chunk)?, part, &mut pixels);
        paste(query.rect, &mut whole, part, &pixels);
    }
    let mut small = Vec::with_capacity(query.shown().len());
    subsample(query.rect, &whole, query.factor, &mut small);
    Ok(small)
}

#[cfg(test)]
mod scan_tests;
#[cfg(test)]
mod tests;
