//! Computing that stands for a program's own: so many turns of arithmetic, each waiting for the one before it, which
//! touch no memory.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// How long a slice is.
pub(super) const SLICE: Duration = Duration::from_micros(20);
/// Turns by which the machine's speed is found, and how often: the fastest was disturbed least.
const TRIAL: u64 = 200_000;
const TRIALS: usize = 20;

/// Work in slices of a known length.
pub(super) struct Work {
    turns: u64,
    state: u64,
}

impl Work {
    /// In slices of [`SLICE`] on the core that this runs on.
    pub(super) fn calibrated() -> Work {
        let mut work = Work {
            turns: TRIAL,
            state: 1,
        };
        let mut trial = || {
            let start = Instant::now();
            work.slice();
            start.elapsed()
        };
        let fastest = (0..TRIALS).map(|_| trial()).min().unwrap_or_default();
        let each = fastest.as_secs_f64().max(1e-9) / TRIAL as f64;
        work.turns = (SLICE.as_secs_f64() / each).max(1.0) as u64;
        work
    }

    /// One slice.
    pub(super) fn slice(&mut self) {
        for _ in 0..self.turns {
            // Knuth's constants for a generator of 64 bits.
            self.state = self
                .state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
        black_box(self.state);
    }

    /// Slices a second where nothing else is done for so long.
    pub(super) fn alone(&mut self, time: Duration) -> f64 {
        let (start, mut slices) = (Instant::now(), 0_u64);
        loop {
            self.slice();
            slices += 1;
            let elapsed = start.elapsed();
            if elapsed >= time {
                return slices as f64 / elapsed.as_secs_f64();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_takes_about_as_long_as_it_should() {
        let mut work = Work::calibrated();
        // The best of some tries: a machine may stand still in any of them.
        let tries = (0..50).map(|_| work.alone(Duration::from_millis(5)));
        let fastest = tries.fold(0.0, f64::max);
        let wanted = 1.0 / SLICE.as_secs_f64();
        assert!(
            (0.5 * wanted..2.0 * wanted).contains(&fastest),
            "{fastest} of {wanted} slices a second"
        );
    }
}
