//! What the placement experiment takes by the machine's clock: from the arrival of the segment that fills a gap until
//! all that the gap held up is placed and completed, once with octets delivered in order and once placed as they came.
//!
//!     cargo run --release -p weft-simulation --example placement_time
//!
//! Virtual link and losses are those of the test, so the gaps are the same; only the receiver's work is timed. What
//! another process takes of the core in between is in the times: look at the medians first.

#[path = "../tests/inet/placement/rig.rs"]
mod rig;

use rig::{run, Mode};
use std::time::Duration;

const ROUNDS: u64 = 5;

fn main() {
    println!("microseconds from gap filled to completion; {ROUNDS} runs that take turns, all their gaps together");
    println!(
        "{:>6} {:>6} | {:>6} | {:>27} | {:>27} | {:>18}",
        "RTT ms",
        "loss",
        "gaps",
        "in order: median p90 p99",
        "out of: median p90 p99",
        "copied, kB/gap"
    );
    for rtt in [1u64, 10, 100] {
        for loss in [0.0001, 0.001, 0.01, 0.05] {
            let mut fills = [Vec::new(), Vec::new()];
            let (mut copied, mut gaps) = ([0, 0], 0);
            for round in 0..ROUNDS {
                for (at, mode) in [Mode::InOrder, Mode::OutOfOrder].into_iter().enumerate() {
                    let outcome = run(mode, Duration::from_millis(rtt), loss, 11 + 2 * round);
                    copied[at] += outcome.copied_after_fill;
                    gaps += outcome.gaps;
                    fills[at].extend(outcome.fills);
                }
            }
            let [ordered, placed] = fills.map(percentiles);
            println!(
                "{rtt:>6} {:>5}% | {:>6} | {ordered} | {placed} | {:>11.1} {:>6.1}",
                loss * 100.0,
                gaps / 2,
                copied[0] as f64 * 2e-3 / gaps as f64,
                copied[1] as f64 * 2e-3 / gaps as f64,
            );
        }
    }
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort();
    let micros = |share: f64| {
        let at = ((times.len() - 1) as f64 * share) as usize;
        times[at].as_nanos() as f64 / 1e3
    };
    format!(
        "{:>9.2} {:>8.1} {:>8.1}",
        micros(0.5),
        micros(0.9),
        micros(0.99)
    )
}
