//! Medians and spreads. Few samples and noisy neighbours: order statistics only, no means.

pub mod bootstrap;
mod many;

pub use many::widening;

/// From one figure to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What a handful of samples of one cell says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Middle sample, or the mean of the two middle ones.
    pub median: f64,
    /// Median absolute deviation from the median, unscaled.
    pub mad: f64,
    /// Smallest sample.
    pub min: f64,
    /// Largest sample.
    pub max: f64,
    /// How many samples.
    pub n: usize,
}

/// Estimate from samples in any order; `None` when there are none.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let sorted = sorted(samples);
    let middle = median_of_sorted(&sorted)?;
    let deviations: Vec<f64> = samples.iter().map(|s| (s - middle).abs()).collect();
    Some(Estimate {
        median: middle,
        mad: median(&deviations)?,
        min: *sorted.first()?,
        max: *sorted.last()?,
        n: sorted.len(),
    })
}

/// Median of samples in any order; `None` when there are none.
pub fn median(samples: &[f64]) -> Option<f64> {
    median_of_sorted(&sorted(samples))
}

/// The `rank` quantile (0 to 1) of ascending samples, by the nearest-rank rule perftest uses;
/// `None` when there are none.
pub fn quantile_of_sorted(sorted: &[f64], rank: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = (rank * sorted.len() as f64).ceil() as usize;
    Some(sorted[at.saturating_sub(1).min(last)])
}

/// Ascending copy. Samples come from parsers that let no NaN through; total order keeps this from
/// panicking anyway.
pub fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Median of ascending samples; `None` when there are none.
pub fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let n = sorted.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(sorted[n / 2]),
        _ => Some((sorted[n / 2 - 1] + sorted[n / 2]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outlier_moves_neither_median_nor_spread() {
        let e = estimate(&[4.0, 3.0, 5.0, 4.0, 400.0]).unwrap();
        assert_eq!(
            e,
            Estimate {
                median: 4.0,
                mad: 1.0,
                min: 3.0,
                max: 400.0,
                n: 5
            }
        );
    }

    #[test]
    fn an_even_count_takes_the_mean_of_the_two_in_the_middle() {
        assert_eq!(median(&[1.0, 10.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn one_sample_has_no_spread_and_none_has_no_estimate() {
        assert_eq!(estimate(&[7.0]).unwrap().mad, 0.0);
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn quantiles_are_samples_that_occurred() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile_of_sorted(&hundred, 0.5), Some(50.0));
        assert_eq!(quantile_of_sorted(&hundred, 0.99), Some(99.0));
        assert_eq!(quantile_of_sorted(&hundred, 0.999), Some(100.0));
        assert_eq!(quantile_of_sorted(&hundred, 0.0), Some(1.0));
        assert_eq!(quantile_of_sorted(&[], 0.5), None);
    }
}
