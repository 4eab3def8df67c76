//! Many devices on virtual time: programs that post at random over connections that delay, cut, reset and corrupt,
//! on the state machines that production uses (`weft-verbs`, `weft-iwarp`).
//!
//! Of every run is checked: each work request completes exactly once and in order; a connection that is not cut comes
//! to rest with nothing outstanding; where one end just disconnects, the other receives every message that was
//! complete for it; what arrives is what was sent; no octet is read or written that was not granted for that purpose
//! at that moment, and none between the regions changes.
//!
//! In [`hostile`] the other end is no Weft but somebody who knows the wire and all the STags there ever were. In
//! [`turns`] two programs write to each other in turn, and drivers sleep whenever a queue pair lets them.
//!
//! `mutants.sh` takes the checks out of production one at a time and asks for a seed that fails.
//!
//! `WEFT_SEEDS=N` runs N seeds, `WEFT_SEEDS=77..78` one again; a failure names its seed.

mod hostile;
mod memory;
mod pipe;
mod program;
mod turns;
mod world;

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

use world::{Tally, World};

fn seeds() -> Range<u64> {
    let Ok(wanted) = std::env::var("WEFT_SEEDS") else {
        return 0..200;
    };
    let number = |word: &str| word.trim().parse().expect("a number in WEFT_SEEDS");
    match wanted.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&wanted),
    }
}

/// Runs every seed; what happened in all of them, and how many they are.
fn over_seeds<T: Default + Debug>(run: impl Fn(u64) -> T, add: impl Fn(&mut T, &T)) -> (T, usize) {
    let mut tally = T::default();
    for seed in seeds() {
        let run = catch_unwind(AssertUnwindSafe(|| run(seed)));
        match run {
            Ok(of_this) => add(&mut tally, &of_this),
            Err(_) => panic!(
                "seed {seed} failed: WEFT_SEEDS={seed}..{} runs it alone",
                seed + 1
            ),
        }
    }
    println!("{tally:?}");
    (tally, seeds().count())
}

#[test]
fn every_promise_holds_whatever_happens() {
    let (tally, seeds) = over_seeds(|seed| World::new(seed).run(), Tally::add);
    if seeds < 100 {
        return;
    }
    // The runs are about something: each of these happens in a few hundred.
    assert!(
        tally.succeeded > 0 && tally.flushed > 0 && tally.faults > 0,
        "{tally:?}"
    );
    assert!(
        tally.corrupted > 0 && tally.cut > 0 && tally.at_rest > 0 && tally.outlived > 0,
        "{tally:?}"
    );
    assert!(
        tally.timeouts > 0 && tally.closed_in_time > 0 && tally.deaf > 0,
        "{tally:?}"
    );
}

#[test]
fn a_hostile_peer_reaches_nothing_that_it_was_not_given() {
    let (tally, seeds) = over_seeds(hostile::run, hostile::Tally::add);
    if seeds >= 100 {
        tally.check_that_it_was_about_something();
    }
}

#[test]
fn who_writes_in_turn_is_acknowledged_in_time() {
    let (tally, seeds) = over_seeds(turns::run, turns::Tally::add);
    if seeds >= 100 {
        tally.check_that_it_was_about_something();
    }
}

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 11] {
        assert_eq!(World::new(seed).run(), World::new(seed).run());
    }
}
