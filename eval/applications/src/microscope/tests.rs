//! The whole program with a thread for each copy.

use super::*;
use crate::filters::testing::{joined, side_by_side};
use crate::filters::Look;

/// Looks at these views with two copies of each filter and units of this length.
fn looked(unit: usize, views: &[Query]) {
    joined(
        unit as u32,
        &|share| Box::new(Reader::new(share, unit)),
        &[&|| Box::<Clip>::default(), &|| Box::<Subsample>::default()],
        |group| {
            for query in views {
                see(group, *query, &alone(*query)).unwrap();
            }
            let wrong = see(group, views[0], &alone(Query::tour(9)[8])).unwrap_err();
            assert!(wrong.to_string().contains("shown wrongly"), "{wrong}");
        },
    );
}

#[test]
fn each_view_is_what_one_process_computes() {
    for unit in [UNIT_MIN, 16 << 10, 64 << 10, 256 << 10] {
        looked(unit, &Query::tour(3));
    }
}

#[test]
fn the_largest_factor_and_the_edges_of_the_slide() {
    let edge = Rect {
        x: slide::SIZE.0 - 1000,
        y: slide::SIZE.1 - 504,
        width: 1000,
        height: 504,
    };
    let at = |factor| Query { rect: edge, factor };
    looked(32 << 10, &[at(1), at(8)]);
}

#[test]
fn each_view_is_that_of_one_process_whichever_of_two_groups_makes_it() {
    let unit = 32 << 10;
    let views = Views::tour();
    let ended = side_by_side(
        unit as u32,
        2,
        &|share| Box::new(Reader::new(share, unit)),
        &[
            &|| Box::<Clip>::default(),
            &|| Box::<Subsample>::default(),
            &|| Box::new(View::new(unit)),
        ],
        |joints| {
            let beside = Beside {
                groups: 2,
                works: 2,
            };
            let merge = Merge::begin(&views, joints, &beside).unwrap();
            merge.run(&Look { seconds: 1 }).unwrap();
        },
    );
    assert_eq!(ended.len(), 8);
    ended.into_iter().for_each(|ended| ended.unwrap());
}
