//! The whole program with a thread for each copy.

use std::path::Path;

use super::slide::DRAWN;
use super::*;
use crate::filters::testing::{joined, side_by_side};
use crate::filters::Look;

/// The slide that everybody has without a file.
fn drawn() -> Slide {
    Slide::open(None).unwrap()
}

/// Looks at these views of a slide, that of a file or the one that is drawn, with two copies of each filter and units
/// of this length.
pub(super) fn looked(file: Option<&Path>, unit: usize, views: &[Query]) {
    let mut slide = Slide::open(file).unwrap();
    let whole = slide.whole();
    joined(
        unit as u32,
        &|share| Box::new(Reader::new(Slide::open(file).unwrap(), share, unit)),
        &[&|| Box::new(Clip::new(whole)), &|| {
            Box::new(Subsample::new(whole))
        }],
        |group| {
            for query in views {
                see(group, *query, &alone(&mut slide, *query).unwrap()).unwrap();
            }
            let other = alone(&mut slide, views[1]).unwrap();
            let wrong = see(group, views[0], &other).unwrap_err();
            assert!(wrong.to_string().contains("shown wrongly"), "{wrong}");
        },
    );
}

#[test]
fn each_view_is_what_one_process_computes() {
    for unit in [UNIT_MIN, 16 << 10, 64 << 10, 256 << 10] {
        looked(None, unit, &Query::tour(3, DRAWN));
    }
}

#[test]
fn the_largest_factor_and_the_edges_of_the_slide() {
    let edge = Rect {
        x: DRAWN.width - 1000,
        y: DRAWN.height - 504,
        width: 1000,
        height: 504,
    };
    let at = |factor| Query { rect: edge, factor };
    looked(None, 32 << 10, &[at(1), at(8)]);
}

#[test]
fn each_view_is_that_of_one_process_whichever_of_two_groups_makes_it() {
    let unit = 32 << 10;
    let views = Views::tour(&mut drawn(), 3).unwrap();
    let ended = side_by_side(
        unit as u32,
        2,
        &|share| Box::new(Reader::new(drawn(), share, unit)),
        &[
            &|| Box::new(Clip::new(DRAWN)),
            &|| Box::new(Subsample::new(DRAWN)),
            &|| Box::new(View::new(DRAWN, unit)),
        ],
        |joints| {
            let beside = Beside {
                groups: 2,
                works: 2,
            };
            let merge = Merge::of(&views, Groups::join(joints, &beside).unwrap());
            merge.run(&Look { seconds: 1 }).unwrap();
        },
    );
    assert_eq!(ended.len(), 8);
    ended.into_iter().for_each(|ended| ended.unwrap());
}
