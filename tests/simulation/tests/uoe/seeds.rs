//! Runs drawn from seeds: each datagram arrives whole and at most once, in order where the ways keep it, and each that
//! does not arrive is in exactly one counter.
//!
//! `UOE_SEEDS=1000` tries so many, `UOE_SEEDS=5000..6000` these, `UOE_SEEDS=77..78` one again.

use crate::world::{Plan, Summary, World};
use weft_link::Random;

/// Says whether the carriers gave segments on as they came, and what became of the run.
fn run(seed: u64) -> (bool, Summary) {
    let mut random = Random::new(seed);
    let plan = Plan::draw(&mut random);
    (plan.any_order, World::new(plan, random).run())
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("UOE_SEEDS") else {
        return 0..60;
    };
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..text.parse().expect("UOE_SEEDS is a number or a range"),
    }
}

#[test]
fn every_datagram_arrives_once_or_is_counted() {
    let (seeds, mut sums) = (seeds(), [Summary::default(), Summary::default()]);
    for seed in seeds.clone() {
        let ran = std::panic::catch_unwind(|| run(seed));
        let (any_order, one) = ran.unwrap_or_else(|_| panic!("seed {seed} failed"));
        let sum = &mut sums[usize::from(any_order)];
        sum.sent += one.sent;
        sum.delivered += one.delivered;
        sum.on_carriers += one.on_carriers;
        sum.carriers += one.carriers;
        sum.forgiven += one.forgiven;
    }
    println!(
        "{} seeds, in order and in any: {sums:?}",
        seeds.end - seeds.start
    );
    if seeds.end - seeds.start >= 60 {
        for sum in &sums {
            assert!(
                sum.delivered > sum.sent / 2,
                "hardly anything arrives: {sum:?}"
            );
            let most = sum.on_carriers > sum.sent / 3;
            assert!(most, "hardly anything takes a carrier: {sum:?}");
        }
        assert!(sums[1].forgiven > 0, "nothing was missing for long");
    }
}

#[test]
fn a_seed_is_one_run() {
    assert_eq!(run(3), run(3));
}
