//! The whole program with a thread for each copy.

use super::*;
use crate::filters::testing::joined;

#[test]
fn the_blocks_have_each_cube_once() {
    for points in [700, 4086, 16_378] {
        let mut seen = vec![0_u8; GRID.iter().map(|points| points - 1).product()];
        for block in blocks(points) {
            assert!(block.len() <= points, "{block:?}");
            let at: [usize; 3] = block.origin.map(|at| at as usize);
            let size: [usize; 3] = block.points.map(|points| points as usize - 1);
            for z in at[2]..at[2] + size[2] {
                for y in at[1]..at[1] + size[1] {
                    for x in at[0]..at[0] + size[0] {
                        seen[(z * (GRID[1] - 1) + y) * (GRID[0] - 1) + x] += 1;
                    }
                }
            }
        }
        assert!(seen.iter().all(|&times| times == 1), "{points}");
    }
}

#[test]
fn each_picture_is_what_one_process_computes() {
    let (reservoir, front) = (Reservoir::drawn(SEED), Front::solved());
    let wanted: Vec<Image> = [0, 5].map(|step| alone(&reservoir, &front, step)).to_vec();
    assert!(wanted.iter().all(|image| image.shown() > 1000) && wanted[0] != wanted[1]);
    for unit in [16 << 10, 64 << 10] {
        joined(
            unit as u32,
            &move |share| Box::new(Reader::new(share, unit)),
            &[&move || Box::new(Extract::new(unit)), &move || {
                Box::new(Render::new(unit))
            }],
            |group| {
                for (step, wanted) in [0_u32, 5].into_iter().zip(&wanted) {
                    let mut image = Image::empty();
                    group.order(&step.to_be_bytes()).unwrap();
                    group.results(|piece| image.merge(piece)).unwrap();
                    assert!(image == *wanted, "step {step} in units of {unit}");
                }
            },
        );
    }
}

#[test]
fn what_is_no_block_is_refused() {
    let mut values = Vec::new();
    let unit = |numbers: [u32; 6], octets: usize| {
        let head: Vec<u8> = numbers.into_iter().flat_map(u32::to_be_bytes).collect();
        [head, vec![0; octets]].concat()
    };
    assert!(parse_block(&unit([0, 0, 0, 2, 2, 2], 32), &mut values).is_ok());
    for (numbers, octets) in [
        ([0, 0, 0, 2, 2, 2], 31),
        ([59, 0, 0, 2, 2, 2], 32),
        ([u32::MAX, 0, 0, 2, 2, 2], 32),
        ([0, 0, 0, u32::MAX, u32::MAX, u32::MAX], 32),
    ] {
        assert!(
            parse_block(&unit(numbers, octets), &mut values).is_err(),
            "{numbers:?}"
        );
    }
    assert!(parse_block(&[0; 23], &mut values).is_err());
}
