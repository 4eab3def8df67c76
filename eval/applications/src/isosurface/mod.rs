//! An isosurface: where water has come to in an oil reservoir, over time, drawn by several machines.
//!
//! Four filters: *read* has the field, each copy a share of its blocks; *extract* finds the surface in a block
//! (marching cubes); *render* draws triangles, each copy a picture of those it was given; *merge* puts the pictures
//! together, and is where somebody looks. It looks at one time after another, and compares each picture with what one
//! process by itself computes.

mod cubes;
mod image;
mod reservoir;

use anyhow::{ensure, Context, Result};
use clap::{Args, Subcommand};

use crate::filters::{self, Filter, Joints, Output, Tour};
use cubes::{surface, Block, Triangle};
use image::{Image, LONGEST_ROW};
use reservoir::{Front, Reservoir, GRID};

/// The reservoir that is looked at.
const SEED: u64 = 2005;
/// Times that are looked at; then they come again.
const STEPS: u32 = 8;
/// The surface is where so much of the pores has water.
const WATER: f32 = 0.45;
/// Octets that say which block a unit is.
const HEAD: usize = 24;
/// Octets of a triangle.
const TRIANGLE: usize = 36;

/// A copy of one of the filters.
#[derive(Args, Clone, Debug)]
pub struct IsosurfaceArgs {
    #[command(flatten)]
    joints: Joints,
    #[command(subcommand)]
    filter: Which,
}

#[derive(Subcommand, Clone, Debug)]
enum Which {
    /// Has a share of the field
    Read(filters::Share),
    /// Finds the surface in a block
    Extract,
    /// Draws triangles
    Render,
    /// Looks at one time after another, and prints how long they took
    Merge(filters::Look),
}

/// Runs a copy of one of the filters.
///
/// # Errors
/// See [`filters::run`]; and a picture is not what it should be.
pub fn run(args: &IsosurfaceArgs) -> Result<()> {
    let unit = args.joints.unit as usize;
    ensure!(
        unit >= LONGEST_ROW,
        "a unit has {LONGEST_ROW} octets at least, for a row of the picture"
    );
    match &args.filter {
        Which::Read(share) => filters::run(&mut Reader::new(share, unit), &args.joints),
        Which::Extract => filters::run(&mut Extract::new(unit), &args.joints),
        Which::Render => filters::run(&mut Render::new(unit), &args.joints),
        Which::Merge(look) => {
            let (reservoir, front) = (Reservoir::drawn(SEED), Front::solved());
            let alone = |step| (step, alone(&reservoir, &front, step));
            let wanted: Vec<(u32, Image)> = (0..STEPS).map(alone).collect();
            let mut tour = Tour::begin(&args.joints)?;
            tour.look(look, &wanted, |group, (step, wanted)| {
                let mut image = Image::empty();
                group.order(&step.to_be_bytes())?;
                group.results(|piece| image.merge(piece))?;
                ensure!(image == *wanted, "the picture of step {step} is wrong");
                Ok(image.shown() as u64)
            })
        }
    }
}

/// Which time a piece of work is about.
fn step(work: &[u8]) -> Result<u32> {
    let octets = work.try_into().ok().context("a step has four octets")?;
    let step = u32::from_be_bytes(octets);
    ensure!(step < STEPS, "there is no step {step}");
    Ok(step)
}

/// The blocks that the field is cut into. Each cube is in one of them, and the points between two blocks in both.
fn blocks(points_most: usize) -> Vec<Block> {
    let side = ((points_most as f32).cbrt() as usize).max(2);
    let cubes = [side - 1, side - 1, (points_most / (side * side)).max(2) - 1];
    let starts = |axis: usize| (0..GRID[axis] - 1).step_by(cubes[axis]);
    let mut all = Vec::new();
    for z in starts(2) {
        for y in starts(1) {
            for x in starts(0) {
                let origin = [x, y, z];
                let points = |axis: usize| (cubes[axis] + 1).min(GRID[axis] - origin[axis]) as u32;
                all.push(Block {
                    origin: origin.map(|at| at as u32),
                    points: std::array::from_fn(points),
                });
            }
        }
    }
    all
}

/// What the field has in a block at a time.
fn field(reservoir: &Reservoir, front: &Front, block: Block, time: f32, to: &mut Vec<f32>) {
    let [columns, rows, layers]: [_; 3] = std::array::from_fn(|axis| {
        let start = block.origin[axis] as usize;
        start..start + block.points[axis] as usize
    });
    for z in layers {
        for y in rows.clone() {
            let row = columns
                .clone()
                .map(|x| reservoir.water(front, [x, y, z], time));
            to.extend(row);
        }
    }
}

/// *Read*.
struct Reader {
    reservoir: Reservoir,
    front: Front,
    blocks: Vec<Block>,
    step: u32,
}

impl Reader {
    fn new(share: &filters::Share, unit: usize) -> Reader {
        let blocks = blocks((unit - HEAD) / size_of::<f32>());
        let own = blocks
            .into_iter()
            .enumerate()
            .filter(|(number, _)| share.has(*number));
        Reader {
            reservoir: Reservoir::drawn(SEED),
            front: Front::solved(),
            blocks: own.map(|(_, block)| block).collect(),
            step: 0,
        }
    }
}

impl Filter for Reader {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        self.step = step(work)?;
        Ok(())
    }

    fn take(&mut self, _: &[u8], _: &mut Output) -> Result<()> {
        anyhow::bail!("nothing is given to those who read the field")
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        let time = self.reservoir.time(self.step, STEPS);
        let (mut values, mut octets) = (Vec::new(), Vec::new());
        for &block in &self.blocks {
            values.clear();
            field(&self.reservoir, &self.front, block, time, &mut values);
            octets.clear();
            octets.extend(values.iter().flat_map(|value| value.to_be_bytes()));
            let numbers = [block.origin, block.points].concat();
            let head: Vec<u8> = numbers.into_iter().flat_map(u32::to_be_bytes).collect();
            output.give(&head, &octets)?;
        }
        Ok(())
    }
}

/// *Extract*.
struct Extract {
    unit: usize,
    values: Vec<f32>,
    triangles: Vec<u8>,
}

impl Extract {
    fn new(unit: usize) -> Extract {
        Extract {
            unit: unit / TRIANGLE * TRIANGLE,
            values: Vec::new(),
            triangles: Vec::new(),
        }
    }
}

/// A block and its values, as a unit has them.
fn parse_block(unit: &[u8], values: &mut Vec<f32>) -> Result<Block> {
    let (head, octets) = unit
        .split_first_chunk::<HEAD>()
        .context("a block that is cut")?;
    let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| head[4 * at + i]));
    let block = Block {
        origin: [word(0), word(1), word(2)],
        points: [word(3), word(4), word(5)],
    };
    let is_inside = |axis: usize| {
        let end = u64::from(block.origin[axis]) + u64::from(block.points[axis]);
        end <= GRID[axis] as u64
    };
    let is_block = (0..3).all(is_inside) && block.len() * size_of::<f32>() == octets.len();
    ensure!(
        is_block,
        "{block:?} with {} octets is no block of the field",
        octets.len()
    );
    values.clear();
    let (each, _) = octets.as_chunks::<{ size_of::<f32>() }>();
    values.extend(each.iter().copied().map(f32::from_be_bytes));
    Ok(block)
}

impl Filter for Extract {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        step(work)?;
        Ok(())
    }

    fn take(&mut self, unit: &[u8], output: &mut Output) -> Result<()> {
        let block = parse_block(unit, &mut self.values)?;
        let triangles = &mut self.triangles;
        surface(block, &self.values, WATER, |triangle| {
            let numbers = triangle.into_iter().flatten();
            triangles.extend(numbers.flat_map(f32::to_be_bytes));
        });
        // What is left over waits for the next block's.
        let whole = triangles.len() / self.unit * self.unit;
        for unit in triangles[..whole].chunks(self.unit) {
            output.give(unit, &[])?;
        }
        triangles.drain(..whole);
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        if !self.triangles.is_empty() {
            output.give(&self.triangles, &[])?;
        }
        self.triangles.clear();
        Ok(())
    }
}

/// *Render*.
struct Render {
    unit: usize,
    image: Image,
}

impl Render {
    fn new(unit: usize) -> Render {
        Render {
            unit,
            image: Image::empty(),
        }
    }
}

impl Filter for Render {
    fn begin(&mut self, work: &[u8], _: &mut Output) -> Result<()> {
        step(work)?;
        self.image = Image::empty();
        Ok(())
    }

    fn take(&mut self, unit: &[u8], _: &mut Output) -> Result<()> {
        ensure!(
            unit.len().is_multiple_of(TRIANGLE),
            "{} octets are no triangles",
            unit.len()
        );
        for octets in unit.as_chunks::<TRIANGLE>().0 {
            let number =
                |at: usize| f32::from_be_bytes(std::array::from_fn(|i| octets[4 * at + i]));
            let triangle: Triangle =
                std::array::from_fn(|corner| std::array::from_fn(|axis| number(3 * corner + axis)));
            let is_finite = triangle.iter().flatten().all(|number| number.is_finite());
            ensure!(is_finite, "a triangle without an end");
            self.image.draw(&triangle);
        }
        Ok(())
    }

    fn end(&mut self, output: &mut Output) -> Result<()> {
        self.image.give(self.unit, |piece| output.give(piece, &[]))
    }
}

/// The picture of a step as one process by itself computes it.
fn alone(reservoir: &Reservoir, front: &Front, step: u32) -> Image {
    let whole = Block {
        origin: [0; 3],
        points: GRID.map(|points| points as u32),
    };
    let mut values = Vec::with_capacity(whole.len());
    field(
        reservoir,
        front,
        whole,
        reservoir.time(step, STEPS),
        &mut values,
    );
    let mut image = Image::empty();
    surface(whole, &values, WATER, |triangle| image.draw(&triangle));
    image
}

#[cfg(test)]
mod tests;
