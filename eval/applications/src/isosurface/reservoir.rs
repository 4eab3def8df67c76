//! The reservoir: water drives oil out of porous rock.
//!
//! The rock is drawn from a seed: its permeability differs by two orders of magnitude. Water comes in by a well in the
//! middle. How long it takes to come to a point is the shortest time of flight through the rock; how much of the pores
//! it has filled there at a time is the solution of Buckley and Leverett along such a way. This is how simulators of
//! streamlines work, with the quickest way for all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Points of the grid, in each direction: those of a well-known comparison of simulators (SPE 10).
pub const GRID: [usize; 3] = [60, 220, 85];
/// The ratio of the mobilities of oil and water.
const MOBILITY: f32 = 0.5;

/// How long water takes to come to each point.
pub struct Reservoir {
    /// In units of a way through one cell of the least permeability, divided by [`TICKS`]; x runs quickest.
    arrival: Vec<u32>,
    latest: u32,
}

/// Parts of the unit of time.
const TICKS: f32 = 1024.0;

impl Reservoir {
    /// Always the same one for a seed.
    pub fn drawn(seed: u64) -> Reservoir {
        let rock: Vec<u32> = points().map(|point| resistance(seed, point)).collect();
        let arrival = arrivals(&rock);
        let latest = arrival.iter().copied().max().unwrap_or(1);
        Reservoir { arrival, latest }
    }

    /// The time of a step of `steps`, from the first water to where nearly all of the rock has some.
    pub fn time(&self, step: u32, steps: u32) -> f32 {
        let part = (step + 1) as f32 / steps as f32;
        0.6 * part * self.latest as f32
    }

    /// What part of the pores has water at a point at a time: from 0 to 1.
    pub fn water(&self, front: &Front, [x, y, z]: [usize; 3], time: f32) -> f32 {
        let arrival = self.arrival[index([x, y, z])];
        front.water(arrival as f32 / time)
    }
}

/// Where a point is in a list of all.
fn index([x, y, z]: [usize; 3]) -> usize {
    (z * GRID[1] + y) * GRID[0] + x
}

fn points() -> impl Iterator<Item = [usize; 3]> {
    let [width, depth, height] = GRID;
    (0..height).flat_map(move |z| (0..depth).flat_map(move |y| (0..width).map(move |x| [x, y, z])))
}

/// The shortest time of flight from the well to every point (Dijkstra).
fn arrivals(rock: &[u32]) -> Vec<u32> {
    let mut arrival = vec![u32::MAX; rock.len()];
    let mut next = BinaryHeap::new();
    for z in 0..GRID[2] {
        let well = [GRID[0] / 2, GRID[1] / 2, z];
        arrival[index(well)] = 0;
        next.push(Reverse((0_u32, well)));
    }
    while let Some(Reverse((time, at))) = next.pop() {
        if time > arrival[index(at)] {
            continue;
        }
        for axis in 0..3 {
            for step in [-1, 1] {
                let mut to = at;
                let Some(moved) = at[axis]
                    .checked_add_signed(step)
                    .filter(|&moved| moved < GRID[axis])
                else {
                    continue;
                };
                to[axis] = moved;
                let then = time + (rock[index(at)] + rock[index(to)]) / 2;
                if then < arrival[index(to)] {
                    arrival[index(to)] = then;
                    next.push(Reverse((then, to)));
                }
            }
        }
    }
    arrival
}

/// How long water takes through a cell: smooth noise of two lengths, the layers of the rock thinner than they are wide.
fn resistance(seed: u64, [x, y, z]: [usize; 3]) -> u32 {
    let coarse = smooth(seed, [x, y, z], [16.0, 24.0, 6.0]);
    let fine = smooth(seed + 1, [x, y, z], [4.0, 5.0, 2.0]);
    let logarithm = -2.0 * (0.7 * coarse + 0.3 * fine);
    (TICKS * 10_f32.powf(logarithm)) as u32 + 1
}

/// From 0 to 1; values at the points of a grid with these distances, and between them interpolated.
fn smooth(seed: u64, point: [usize; 3], distances: [f32; 3]) -> f32 {
    let (mut cell, mut along) = ([0_u64; 3], [0_f32; 3]);
    for axis in 0..3 {
        let at = point[axis] as f32 / distances[axis];
        (cell[axis], along[axis]) = (at as u64, at.fract());
    }
    let mut value = 0.0;
    for corner in 0..8_usize {
        let (mut weight, mut at) = (1.0, cell);
        for axis in 0..3 {
            let far = corner >> axis & 1;
            at[axis] += far as u64;
            weight *= if far == 1 {
                along[axis]
            } else {
                1.0 - along[axis]
            };
        }
        value += weight * noise(seed, at);
    }
    value
}

/// From 0 to 1.
fn noise(seed: u64, [x, y, z]: [u64; 3]) -> f32 {
    let point = x << 40 | y << 20 | z;
    let mixed =
        (point ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed >> 40) as f32 / (1 << 24) as f32
}

/// How water is spread behind its front.
pub struct Front {
    /// The speed of each saturation behind the front, in order: `speeds[i]` is that of `fullest` at `i` steps below 1.
    speeds: Vec<f32>,
    /// The saturation just behind the front.
    behind: f32,
}

/// Saturations between full pores and the front.
const SATURATIONS: usize = 256;

impl Front {
    /// The solution of Buckley and Leverett for permeabilities that are squares of the saturation.
    pub fn solved() -> Front {
        // Where the line from nothing touches the curve of the flow: Welge's construction, which has this root here.
        let behind = (MOBILITY / (1.0 + MOBILITY)).sqrt();
        let speed = |number: usize| {
            let water = 1.0 - (1.0 - behind) * number as f32 / SATURATIONS as f32;
            let oil = 1.0 - water;
            let both = water * water + MOBILITY * oil * oil;
            2.0 * MOBILITY * water * oil / (both * both)
        };
        Front {
            speeds: (0..=SATURATIONS).map(speed).collect(),
            behind,
        }
    }

    /// The saturation where water that keeps its distance from the well at `speed` is.
    fn water(&self, speed: f32) -> f32 {
        let slower = self.speeds.partition_point(|&each| each < speed);
        if slower > SATURATIONS {
            return 0.0;
        }
        let part = match slower {
            0 => 0.0,
            _ => {
                let (below, above) = (self.speeds[slower - 1], self.speeds[slower]);
                (slower - 1) as f32 + (speed - below) / (above - below)
            }
        };
        1.0 - (1.0 - self.behind) * part / SATURATIONS as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn water_is_fullest_at_the_well_and_nowhere_before_its_front() {
        let front = Front::solved();
        assert_eq!(front.water(0.0), 1.0);
        let fastest = front.speeds[SATURATIONS];
        assert!(front.speeds.windows(2).all(|two| two[0] < two[1]));
        assert_eq!(front.water(fastest * 1.001), 0.0);
        let behind = front.water(fastest * 0.999);
        assert!((behind - front.behind).abs() < 0.01, "{behind}");
        // What came in is what is there: the area under the curve is the time.
        let steps = 10_000;
        let width = fastest / steps as f32;
        let there: f32 = (0..steps)
            .map(|at| front.water((at as f32 + 0.5) * width) * width)
            .sum();
        assert!((there - 1.0).abs() < 0.001, "{there}");
    }

    #[test]
    fn a_seed_draws_the_same_rock_and_water_comes_everywhere() {
        let (one, again) = (Reservoir::drawn(3), Reservoir::drawn(3));
        assert_eq!(one.arrival, again.arrival);
        assert!(one.latest < u32::MAX / 2, "every point is reached");
        assert_ne!(one.arrival, Reservoir::drawn(4).arrival);
        let front = Front::solved();
        let full = |step| {
            let time = one.time(step, 8);
            let wet = points().filter(|&point| one.water(&front, point, time) > 0.0);
            wet.count() as f32 / one.arrival.len() as f32
        };
        let (early, late) = (full(0), full(7));
        assert!(
            early > 0.01 && early < late && late < 1.0,
            "{early}, {late}"
        );
    }
}
