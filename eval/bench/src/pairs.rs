//! Two things measured in turn: when there are pairs enough, and what their ratios say.
//!
//! The figure is the Hodges-Lehmann estimate: the median of the means of every two logarithms of ratios. Its 95 %
//! interval follows from Wilcoxon's signed-rank distribution, which asks for no normal distribution; of a dozen pairs
//! or more, one that a neighbour disturbed moves its ends to the next ones. It asks that the logarithms lie alike on
//! both sides of their middle: so do those of two equally disturbed figures, and that is why the order within the
//! pairs alternates.

use crate::record::PairsRecord;
pub use crate::stats::Interval;
use crate::stats::{median_of_sorted, sorted};

/// Pairs from which on there is a 95 % interval: of five even the widest has 93.75 %.
pub const FEWEST_PAIRS: usize = 6;
/// Pairs at most that [`estimate`] is made for.
pub const MOST_PAIRS: u32 = 200;
/// Part of all cases that lies beyond each end of the interval.
const BEYOND_EACH_END: f64 = 0.025;

/// What the ratios of pairs amount to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Typical ratio.
    pub ratio: f64,
    /// Its 95 % interval; none for fewer pairs than [`FEWEST_PAIRS`].
    pub interval: Option<Interval>,
}

/// When a row has pairs enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Pairs at most.
    pub most: u32,
    /// They go on until the ends of the interval are within this part of the ratio: 0.02 is 2 %.
    pub precision: f64,
}

impl Rule {
    /// Whether `tried` pairs, of which these are the ratios, are enough. Looks after an even number of pairs only, so
    /// that each side has come first as often as the other.
    pub fn is_met(&self, tried: u32, ratios: &[f64]) -> bool {
        let precise = || {
            tried.is_multiple_of(2) && estimate(ratios).is_some_and(|e| e.is_within(self.precision))
        };
        tried >= self.most || precise()
    }
}

impl Estimate {
    /// As a record has it, from so many pairs.
    pub fn record(&self, pairs: usize) -> PairsRecord {
        PairsRecord {
            pairs,
            ratio: self.ratio,
            interval: self.interval.map(|Interval { low, high }| (low, high)),
        }
    }

    /// Whether both ends of the interval are within this part of the ratio.
    pub fn is_within(&self, precision: f64) -> bool {
        self.interval.is_some_and(|Interval { low, high }| {
            low >= self.ratio * (1.0 - precision) && high <= self.ratio * (1.0 + precision)
        })
    }
}

/// Whether this side comes before the one beside it in pair `number`, counted from 1.
pub fn this_comes_first(number: u32) -> bool {
    number % 2 == 1
}

/// Estimate from the ratios of up to [`MOST_PAIRS`] pairs, all above zero; `None` when there are none.
pub fn estimate(ratios: &[f64]) -> Option<Estimate> {
    let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let means = sorted(&means_of_two(&logarithms));
    let ratio = median_of_sorted(&means)?.exp();
    let interval = critical_value(ratios.len()).map(|left_out| Interval {
        low: means[left_out].exp(),
        high: means[means.len() - 1 - left_out].exp(),
    });
    Some(Estimate { ratio, interval })
}

/// The mean of each two values, and of each with itself.
fn means_of_two(values: &[f64]) -> Vec<f64> {
    let pairs = (0..values.len()).flat_map(|one| (one..values.len()).map(move |two| (one, two)));
    pairs
        .map(|(one, two)| (values[one] + values[two]) / 2.0)
        .collect()
}

/// The largest rank sum of the positive values among `n` that chance stays at or below in no more than
/// [`BEYOND_EACH_END`] of all cases; `None` where even zero is more likely.
fn critical_value(n: usize) -> Option<usize> {
    // Of the 2^n ways to give the ranks 1 to n a sign, the part that has each rank sum.
    let mut part = vec![1.0];
    for rank in 1..=n {
        let mut next = vec![0.0; part.len() + rank];
        for (sum, share) in part.iter().enumerate() {
            next[sum] += share / 2.0;
            next[sum + rank] += share / 2.0;
        }
        part = next;
    }
    let mut so_far = 0.0;
    let within = part.iter().take_while(|share| {
        so_far += **share;
        so_far <= BEYOND_EACH_END
    });
    within.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn critical_values_are_those_of_the_printed_tables() {
        // Wilcoxon's signed-rank test, two-sided, 5 %.
        let table = [
            (6, 0),
            (7, 2),
            (8, 3),
            (9, 5),
            (10, 8),
            (12, 13),
            (15, 25),
            (20, 52),
            (25, 89),
            (30, 137),
        ];
        for (n, value) in table {
            assert_eq!(critical_value(n), Some(value), "{n}");
        }
        assert_eq!(critical_value(FEWEST_PAIRS - 1), None);
        assert_eq!(critical_value(0), None);
    }

    /// Ratios whose logarithms are these multiples of a hundredth.
    fn of_hundredths(values: &[i32]) -> Vec<f64> {
        values
            .iter()
            .map(|v| (f64::from(*v) / 100.0).exp())
            .collect()
    }

    fn hundredths(ratio: f64) -> f64 {
        (ratio.ln() * 1e4).round() / 100.0
    }

    #[test]
    fn the_estimate_and_its_interval_by_hand() {
        // Of 1 to 10 the 55 means of two run from 1 to 10 about 5.5, eight of them are left out at each end: 1, 1.5,
        // 2, 2, 2.5, 2.5, 3, 3.
        let e = estimate(&of_hundredths(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).unwrap();
        let Interval { low, high } = e.interval.unwrap();
        assert_eq!([e.ratio, low, high].map(hundredths), [5.5, 3.0, 8.0]);
    }

    #[test]
    fn six_pairs_have_an_interval_from_the_least_to_the_most_and_five_have_none() {
        let ratios = of_hundredths(&[3, -1, 2, 0, 1, 7]);
        let e = estimate(&ratios).unwrap();
        let Interval { low, high } = e.interval.unwrap();
        assert_eq!([low, high].map(hundredths), [-1.0, 7.0]);
        assert_eq!(estimate(&ratios[..5]).unwrap().interval, None);
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn of_a_dozen_pairs_one_that_a_neighbour_disturbed_moves_little() {
        let calm = [1, -1, 0, 2, -2, 1, -1, 0, 2, -2, 1, -1];
        let disturbed = [1, -1, 0, 2, -2, 1, -1, 0, 2, -2, 1, -200];
        let [calm, disturbed] = [calm, disturbed].map(|v| estimate(&of_hundredths(&v)).unwrap());
        assert!((hundredths(calm.ratio) - hundredths(disturbed.ratio)).abs() <= 0.5);
        assert!(hundredths(disturbed.interval.unwrap().low) >= -2.0);
    }

    #[test]
    fn turning_the_ratios_turns_the_interval() {
        let ratios = of_hundredths(&[4, 1, -2, 3, 9, 0, 5]);
        let turned: Vec<f64> = ratios.iter().map(|r| 1.0 / r).collect();
        let [one, other] = [&ratios, &turned].map(|r| estimate(r).unwrap().interval.unwrap());
        assert!((one.low * other.high - 1.0).abs() < 1e-12);
        assert!((one.high * other.low - 1.0).abs() < 1e-12);
    }

    #[test]
    fn pairs_go_on_until_the_interval_is_narrow_or_they_are_enough() {
        let rule = Rule {
            most: 30,
            precision: 0.02,
        };
        let narrow = of_hundredths(&[1, -1, 1, -1, 1, -1]);
        assert!(rule.is_met(6, &narrow));
        // Each side has not come first as often as the other, or there is no interval.
        assert!(!rule.is_met(7, &narrow));
        assert!(!rule.is_met(6, &narrow[1..]));
        let wide = of_hundredths(&[3, -3, 3, -3, 3, -3]);
        assert!(!rule.is_met(6, &wide) && !rule.is_met(29, &wide) && rule.is_met(30, &wide));
        // Two per cent are of the ratio, not of one.
        let tenfold: Vec<f64> = narrow.iter().map(|r| 10.0 * r).collect();
        assert!(rule.is_met(6, &tenfold));
        assert!(rule.is_met(30, &[]));
    }

    #[test]
    fn the_order_within_pairs_alternates() {
        assert_eq!(
            [1, 2, 3, 4].map(this_comes_first),
            [true, false, true, false]
        );
    }
}
