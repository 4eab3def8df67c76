//! Many comparisons at once: some differ by chance.

/// The part of the runs in which nothing changed that may say all the same that something did.
const WRONG: f64 = 0.05;

/// How many times as wide an interval of 95 % has to be for each of `comparisons`, so that in 95 % of all runs none of
/// them is beside what it is an interval of: what Bonferroni's correction asks for where figures scatter as the normal
/// distribution does. 1 for one comparison, 1.4 for ten, 1.8 for a hundred.
pub fn widening(comparisons: usize) -> f64 {
    normal_quantile(WRONG / 2.0 / comparisons.max(1) as f64) / normal_quantile(WRONG / 2.0)
}

/// The quantile of the standard normal distribution that leaves `tail` above it, for a tail of less than a half. To
/// 0.0005 (Abramowitz and Stegun 26.2.23).
fn normal_quantile(tail: f64) -> f64 {
    let t = (-2.0 * tail.ln()).sqrt();
    let above = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let below = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (tail, quantile) in [(0.025, 1.960), (0.005, 2.576), (0.000_25, 3.481)] {
            assert!((normal_quantile(tail) - quantile).abs() < 0.001, "{tail}");
        }
    }

    #[test]
    fn one_comparison_is_as_wide_as_it_is_and_many_are_wider() {
        for (comparisons, times) in [(0, 1.0), (1, 1.0), (10, 1.432), (100, 1.776)] {
            assert!(
                (widening(comparisons) - times).abs() < 0.002,
                "{comparisons}"
            );
        }
    }
}
