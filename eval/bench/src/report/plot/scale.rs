//! From figures to places on an axis.

/// How figures lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    /// Of figures above zero that span orders of magnitude: equal ratios are equally long.
    pub(super) fn logarithmic(values: &[f64]) -> Scale {
        let (low, high) = span(values);
        // A figure alone, or equal ones, still need an axis.
        let (low, high) = if high / low < 1.25 {
            (low / 1.5, high * 1.5)
        } else {
            (low, high)
        };
        Scale {
            low,
            high,
            logarithmic: true,
        }
    }

    /// From zero.
    pub(super) fn from_zero(values: &[f64]) -> Scale {
        let (_, high) = span(values);
        let step = step(high);
        Scale {
            low: 0.0,
            high: (high / step).ceil() * step,
            logarithmic: false,
        }
    }

    /// Logarithmic where the figures span more than an order of magnitude, else from zero.
    pub(super) fn fitting(values: &[f64]) -> Scale {
        let (low, high) = span(values);
        match high / low > 12.0 {
            true => {
                let scale = Scale::logarithmic(values);
                Scale {
                    low: scale.low / 1.15,
                    high: scale.high * 1.15,
                    ..scale
                }
            }
            false => Scale::from_zero(values),
        }
    }

    /// Where a figure lies, from 0 to 1; figures beyond the ends lie at them.
    pub(super) fn part(&self, value: f64) -> f64 {
        let of = |v: f64| {
            if self.logarithmic {
                v.max(1e-300).ln()
            } else {
                v
            }
        };
        let part = (of(value) - of(self.low)) / (of(self.high) - of(self.low));
        part.clamp(0.0, 1.0)
    }

    /// Figures to be written at the axis, at most about `most`.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
        if !self.logarithmic {
            let step = step(self.high);
            let count = (self.high / step).round() as usize;
            let every = count.div_ceil(most).max(1);
            return (0..=count)
                .step_by(every)
                .map(|n| n as f64 * step)
                .collect();
        }
        // Powers of ten, and where those are few their doubles and fives.
        for digits in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
            let found = self.powers(digits);
            if found.len() <= most {
                return found;
            }
        }
        let tens = self.powers(&[1.0]);
        let every = tens.len().div_ceil(most).max(1);
        tens.into_iter().step_by(every).collect()
    }

    fn powers(&self, digits: &[f64]) -> Vec<f64> {
        let [first, last] = [self.low, self.high].map(|v| v.log10().floor() as i32);
        let all = (first..=last)
            .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)));
        all.filter(|v| (self.low * 0.999..=self.high * 1.001).contains(v))
            .collect()
    }
}

/// Least and greatest figure above zero; 1 to 10 where there is none.
fn span(values: &[f64]) -> (f64, f64) {
    let good = || values.iter().copied().filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = (
        good().fold(f64::INFINITY, f64::min),
        good().fold(0.0, f64::max),
    );
    if high > 0.0 {
        (low, high)
    } else {
        (1.0, 10.0)
    }
}

/// A step of 1, 2 or 5 times a power of ten, four to ten of which reach `high`.
fn step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    let digit = high / 5.0 / power;
    let nice = [1.0, 2.0, 5.0]
        .into_iter()
        .rev()
        .find(|nice| *nice <= digit);
    nice.unwrap_or(1.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_from_zero_ends_at_a_round_figure() {
        let scale = Scale::from_zero(&[3.0, 23.0]);
        assert_eq!(
            scale.ticks(10),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0][..]
                .iter()
                .copied()
                .step_by(2)
                .collect::<Vec<_>>()
        );
        assert_eq!(
            (scale.part(0.0), scale.part(24.0), scale.part(12.0)),
            (0.0, 1.0, 0.5)
        );
    }

    #[test]
    fn equal_ratios_are_equally_long_on_a_logarithmic_one() {
        let scale = Scale::logarithmic(&[1.0, 100.0]);
        assert!((scale.part(10.0) - 0.5).abs() < 1e-12);
        assert_eq!((scale.part(0.01), scale.part(1e6)), (0.0, 1.0));
        assert_eq!(scale.ticks(8), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(scale.ticks(3), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn whatever_the_figures_the_places_are_places() {
        for values in [
            &[][..],
            &[0.0],
            &[5.0],
            &[1e-30, 1e30],
            &[f64::NAN, f64::INFINITY],
        ] {
            for scale in [
                Scale::logarithmic(values),
                Scale::from_zero(values),
                Scale::fitting(values),
            ] {
                for value in [0.0, 1e-300, 5.0, 1e300] {
                    let part = scale.part(value);
                    assert!((0.0..=1.0).contains(&part), "{values:?}: {part}");
                }
                let ticks = scale.ticks(6);
                assert!(ticks.len() <= 8, "{values:?}: {ticks:?}");
            }
        }
    }
}
