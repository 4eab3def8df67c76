//! How late frames were, as a histogram.

use std::time::Duration;

/// Each power of two is divided into so many classes, so a figure is too high by at most a sixteenth.
const CLASSES: u64 = 16;
const CLASS_BITS: u32 = CLASSES.trailing_zeros();
const COUNT: usize = (64 - CLASS_BITS as usize + 1) * CLASSES as usize;

/// Times that frames left after they were due.
#[derive(Clone, Debug)]
pub struct Lateness {
    counts: Vec<u64>,
    total: u64,
    max: Duration,
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness {
            counts: vec![0; COUNT],
            total: 0,
            max: Duration::ZERO,
        }
    }
}

impl Lateness {
    /// Notes a frame that was so late.
    pub fn add(&mut self, late: Duration) {
        self.counts[class_of(late.as_nanos() as u64)] += 1;
        self.total += 1;
        self.max = self.max.max(late);
    }

    /// What this share of all frames did not exceed: 0.5 for the median. Zero when there was no frame.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if *count > 0 && seen >= rank {
                return Duration::from_nanos(end_of(class)).min(self.max);
            }
        }
        self.max
    }

    /// The latest of all.
    pub fn max(&self) -> Duration {
        self.max
    }
}

fn class_of(nanos: u64) -> usize {
    let bits = 64 - nanos.leading_zeros();
    let shift = bits.saturating_sub(CLASS_BITS + 1);
    (u64::from(shift) * CLASSES + (nanos >> shift)) as usize
}

/// The greatest number of a class.
fn end_of(class: usize) -> u64 {
    let class = class as u64;
    let shift = (class / CLASSES).saturating_sub(1);
    let first = class - shift * CLASSES;
    ((u128::from(first) + 1) << shift)
        .saturating_sub(1)
        .min(u128::from(u64::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_narrow_and_in_order() {
        assert_eq!(class_of(u64::MAX), COUNT - 1);
        let mut before = 0;
        for nanos in (0..200_000).chain([1 << 40, (1 << 40) + 1, 1 << 63]) {
            let class = class_of(nanos);
            assert!(class >= before, "{nanos}");
            before = class;
            let end = end_of(class);
            assert!(
                end >= nanos && end - nanos <= nanos / CLASSES,
                "{nanos} {end}"
            );
        }
    }

    #[test]
    fn quantiles_of_a_hundred() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(0.5), Duration::ZERO);
        for micros in 1..=100 {
            lateness.add(Duration::from_micros(micros));
        }
        let micros = |share| lateness.quantile(share).as_micros();
        assert!((50..54).contains(&micros(0.5)), "{}", micros(0.5));
        assert!((99..=100).contains(&micros(0.99)), "{}", micros(0.99));
        assert_eq!(lateness.max(), Duration::from_micros(100));
        assert_eq!(lateness.quantile(1.0), lateness.max());
    }
}
