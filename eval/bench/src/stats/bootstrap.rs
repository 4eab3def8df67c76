//! Intervals of figures that have no formula for one: the bootstrap (Efron 1979). What was measured is drawn from
//! again and again, and the figure of each draw taken; the interval is where the middle 95 % of them lie.

use super::{median, quantile_of_sorted, sorted, Interval};

/// Pairs from which on there is an interval: fewer can hardly be drawn in ways enough to tell anything.
pub const FEWEST_PAIRS: usize = 5;
/// Draws: the ends of the interval are the 50th from either end.
const DRAWS: usize = 2000;
/// The same for every interval, so that a report says the same of a record whenever it is made.
const SEED: u64 = 0x77_65_66_74;

/// The 95 % interval of the median of the first values of `pairs` over the median of the second ones. Pairs are drawn
/// as they are: what disturbed one value of a pair disturbed the other. None for fewer than [`FEWEST_PAIRS`].
pub fn ratio_of_medians(pairs: &[(f64, f64)]) -> Option<Interval> {
    if pairs.len() < FEWEST_PAIRS {
        return None;
    }
    let mut random = Random(SEED);
    interval(|| {
        let drawn: Vec<(f64, f64)> = (0..pairs.len())
            .map(|_| pairs[random.below(pairs.len())])
            .collect();
        let [first, second] = [
            drawn.iter().map(|pair| pair.0).collect::<Vec<f64>>(),
            drawn.iter().map(|pair| pair.1).collect(),
        ];
        Some(median(&first)? / median(&second)?)
    })
}

/// The same for values that are no pairs, as they were not measured at the same time: each side is drawn from by
/// itself. None where a side has fewer than [`FEWEST_PAIRS`].
pub fn ratio_of_two(first: &[f64], second: &[f64]) -> Option<Interval> {
    if first.len().min(second.len()) < FEWEST_PAIRS {
        return None;
    }
    let mut random = Random(SEED);
    interval(|| {
        let [first, second] = [first, second].map(|values| -> Vec<f64> {
            let draw = |_| values[random.below(values.len())];
            (0..values.len()).map(draw).collect()
        });
        Some(median(&first)? / median(&second)?)
    })
}

/// Where the middle of the draws lies.
fn interval(draw: impl FnMut() -> Option<f64>) -> Option<Interval> {
    let mut draw = draw;
    let ratios: Vec<f64> = (0..DRAWS).map_while(|_| draw()).collect();
    let ratios = sorted(&ratios);
    Some(Interval {
        low: quantile_of_sorted(&ratios, 0.025)?,
        high: quantile_of_sorted(&ratios, 0.975)?,
    })
}

/// SplitMix64: the same numbers on every machine and in every version.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is above zero.
    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        assert_eq!(Random(1).bits(), 0x910a_2dec_8902_5cc1);
    }

    #[test]
    fn pairs_that_all_say_the_same_leave_no_doubt() {
        let pairs = [(2.0, 1.0), (4.0, 2.0), (20.0, 10.0), (6.0, 3.0), (8.0, 4.0)];
        let Interval { low, high } = ratio_of_medians(&pairs).unwrap();
        assert!((low - 2.0).abs() < 1e-12 && (high - 2.0).abs() < 1e-12);
        assert_eq!(ratio_of_medians(&pairs[..4]), None);
    }

    #[test]
    fn the_interval_of_a_median_is_what_the_binomial_distribution_says() {
        // Over a constant the ratio is a median of draws of 1 to 11. That median is k or less where at least 6 of 11
        // draws are: 0.7 % of the time for 2, 5.1 % for 3, so that the 2.5 % point is 3, and 9 the one beyond.
        let pairs: Vec<(f64, f64)> = (1..=11).map(|n| (f64::from(n), 1.0)).collect();
        let interval = ratio_of_medians(&pairs).unwrap();
        assert_eq!((interval.low, interval.high), (3.0, 9.0));
    }

    #[test]
    fn turning_the_pairs_turns_the_interval() {
        let pairs = [
            (9.0, 10.0),
            (12.0, 10.5),
            (8.0, 9.0),
            (11.0, 11.5),
            (10.0, 9.5),
            (9.5, 10.0),
            (13.0, 11.0),
        ];
        let turned: Vec<(f64, f64)> = pairs.iter().map(|(a, b)| (*b, *a)).collect();
        let [one, other] = [&pairs[..], &turned].map(|p| ratio_of_medians(p).unwrap());
        // The quantiles of draws are draws, so the ends are one draw off at most.
        assert!(
            (one.low * other.high - 1.0).abs() < 0.02,
            "{one:?} {other:?}"
        );
        assert!(
            (one.high * other.low - 1.0).abs() < 0.02,
            "{one:?} {other:?}"
        );
    }

    #[test]
    fn two_sides_that_differ_are_told_apart_and_two_that_do_not_are_not() {
        let before = [10.0, 10.3, 9.8, 10.1, 9.9, 10.2];
        let slower: Vec<f64> = before.iter().map(|v| v * 1.1).collect();
        let Interval { low, high } = ratio_of_two(&slower, &before).unwrap();
        assert!(
            1.05 < low && low < 1.1 && 1.1 < high && high < 1.15,
            "{low} {high}"
        );
        let same = [10.2, 9.9, 10.0, 10.1, 9.7, 10.3];
        let Interval { low, high } = ratio_of_two(&same, &before).unwrap();
        assert!(low < 1.0 && 1.0 < high, "{low} {high}");
        assert_eq!(ratio_of_two(&same, &before[..4]), None);
    }

    #[test]
    fn the_true_ratio_lies_within_about_as_often_as_it_should() {
        let mut random = Random(7);
        let mut unit = || (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        // Noise of the sort that machines have: most of the time little, sometimes much, never below nothing.
        let mut noisy = |true_value: f64| {
            let much = if unit() < 0.1 { 0.5 } else { 0.05 };
            true_value * (1.0 + much * unit())
        };
        let rounds = 300;
        let within = (0..rounds).filter(|_| {
            let pairs: Vec<(f64, f64)> = (0..10).map(|_| (noisy(1.3), noisy(1.0))).collect();
            let Interval { low, high } = ratio_of_medians(&pairs).unwrap();
            (low..=high).contains(&1.3)
        });
        let share = within.count() as f64 / f64::from(rounds);
        assert!((0.9..=1.0).contains(&share), "{share}");
    }
}
