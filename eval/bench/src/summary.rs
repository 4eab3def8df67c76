//! Medians, spreads and ratios of a record. Computed anew at every report; never stored.

use crate::cost;
use crate::metric::{Better, Metric, P99};
use crate::record::{CellRecord, RowRecord};
use crate::stats::{bootstrap, estimate, median, Estimate, Interval};

/// A row with what its cells amount to.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSummary {
    /// Path and workload.
    pub id: String,
    /// Metric of every figure.
    pub metric: Metric,
    /// The reference stack with the best median; none when none was measured.
    pub reference: Option<String>,
    /// By how much two measurements of one stack differ here: 0.03 is 3 %. None where no stack was measured twice.
    pub noise: Option<f64>,
    /// One per stack, in row order.
    pub cells: Vec<CellSummary>,
}

/// What one cell amounts to.
#[derive(Clone, Debug, PartialEq)]
pub struct CellSummary {
    /// Stack.
    pub stack: String,
    /// None when there is no good sample.
    pub estimate: Option<Estimate>,
    /// Median of the 99th percentiles, where the program gives them.
    pub p99: Option<f64>,
    /// Against the row's reference; none for the reference itself.
    pub ratio: Option<Ratio>,
    /// Samples that failed.
    pub failures: usize,
    /// Good samples during which others were on the cores.
    pub disturbed: usize,
    /// The stack that this cell is another measurement of.
    pub again: Option<String>,
    /// Why it was not run.
    pub skipped: Option<String>,
}

/// One cell over another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Of the medians.
    pub of_medians: f64,
    /// Smallest ratio within one repetition.
    pub min: f64,
    /// Largest ratio within one repetition.
    pub max: f64,
    /// 95 % interval of the ratio of medians; none for too few repetitions.
    pub interval: Option<Interval>,
}

/// How a ratio reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The whole interval is on the better side.
    Wins,
    /// It is on both sides.
    Level,
    /// The whole interval is on the worse side.
    Loses,
    /// There is no interval: too few repetitions.
    Open,
}

/// The word that tables have for it.
impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Standing::Wins => "wins",
            Standing::Level => "level",
            Standing::Loses => "LOSES",
            Standing::Open => "open",
        })
    }
}

/// Summary of one row.
pub fn row(record: &RowRecord) -> RowSummary {
    let metric = record.metric;
    let reference = best(record, &record.reference, metric);
    let cells = record
        .cells
        .iter()
        .map(|c| cell(c, metric, reference))
        .collect();
    RowSummary {
        id: record.id.clone(),
        metric,
        reference: reference.map(|r| r.stack.clone()),
        noise: noise(record, metric),
        cells,
    }
}

/// Of the named cells the one with the best median.
pub fn best<'a>(row: &'a RowRecord, names: &[String], metric: Metric) -> Option<&'a CellRecord> {
    let with_median = names.iter().filter_map(|name| {
        let cell = row.cell(name)?;
        Some((cell, median(&values(cell, metric.key))?))
    });
    let better = |a: &f64, b: &f64| match metric.better {
        Better::Lower => a.total_cmp(b),
        Better::Higher => b.total_cmp(a),
    };
    with_median
        .min_by(|(_, a), (_, b)| better(a, b))
        .map(|(cell, _)| cell)
}

/// `cell` over `reference`; none when either has no good sample. The spread is of the repetitions
/// both have.
pub fn ratio(cell: &CellRecord, reference: &CellRecord, metric: &str) -> Option<Ratio> {
    let of_medians = median(&values(cell, metric))? / median(&values(reference, metric))?;
    let theirs = reference.values(metric);
    let pairs: Vec<(f64, f64)> = cell
        .values(metric)
        .into_iter()
        .filter_map(|(repetition, value)| {
            let (_, other) = theirs.iter().find(|(r, _)| *r == repetition)?;
            Some((value, *other))
        })
        .collect();
    let within = pairs.iter().map(|(value, other)| value / other);
    let (min, max) = within.fold((of_medians, of_medians), |(min, max), r| {
        (min.min(r), max.max(r))
    });
    Some(Ratio {
        of_medians,
        min,
        max,
        interval: bootstrap::ratio_of_medians(&pairs),
    })
}

/// By how much the cells differ that measure one stack twice: as far from 1 as the interval of their ratio reaches, or
/// their ratios within repetitions where those are too few for one.
fn noise(row: &RowRecord, metric: Metric) -> Option<f64> {
    let again = row.cells.iter().find(|cell| cell.again.is_some())?;
    let first = row.cell(again.again.as_ref()?)?;
    let ratio = ratio(again, first, metric.key)?;
    let Interval { low, high } = ratio.interval.unwrap_or(Interval {
        low: ratio.min,
        high: ratio.max,
    });
    Some(low.ln().abs().max(high.ln().abs()).exp() - 1.0)
}

impl Ratio {
    /// How the ratio reads for a metric of this direction.
    pub fn standing(&self, better: Better) -> Standing {
        match (better, self.interval) {
            (_, None) => Standing::Open,
            (Better::Lower, Some(i)) if i.high < 1.0 => Standing::Wins,
            (Better::Lower, Some(i)) if i.low > 1.0 => Standing::Loses,
            (Better::Higher, Some(i)) if i.low > 1.0 => Standing::Wins,
            (Better::Higher, Some(i)) if i.high < 1.0 => Standing::Loses,
            _ => Standing::Level,
        }
    }

    /// Whether it is no farther from 1 than two measurements of one thing.
    pub fn is_within(&self, noise: Option<f64>) -> bool {
        noise.is_some_and(|noise| self.of_medians.ln().abs() <= noise.ln_1p())
    }
}

/// The cell's values of this metric.
pub fn values(cell: &CellRecord, metric: &str) -> Vec<f64> {
    cell.values(metric)
        .into_iter()
        .map(|(_, value)| value)
        .collect()
}

fn cell(record: &CellRecord, metric: Metric, reference: Option<&CellRecord>) -> CellSummary {
    let other = reference.filter(|r| r.stack != record.stack);
    CellSummary {
        stack: record.stack.clone(),
        estimate: estimate(&values(record, metric.key)),
        p99: median(&values(record, P99)),
        ratio: other.and_then(|r| ratio(record, r, metric.key)),
        failures: record.failures().count(),
        disturbed: cost::disturbed(record),
        again: record.again.clone(),
        skipped: record.skipped.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{Failure, Metrics, Outcome, Sample, Subject};
    use crate::verbs::Verbs;

    /// A cell with one sample of `metric` per repetition; none is a failure.
    pub(crate) fn cell_of(stack: &str, metric: &str, values: &[Option<f64>]) -> CellRecord {
        let sample = |(i, value): (usize, &Option<f64>)| Sample {
            repetition: i as u32 + 1,
            at: 0.0,
            took: 0.0,
            roles: vec![],
            machine: None,
            outcome: match value {
                Some(v) => Outcome::Metrics(Metrics::from([(metric.to_owned(), *v)])),
                None => Outcome::Failure(Failure {
                    reason: "no".into(),
                    tail: vec![],
                }),
            },
        };
        CellRecord {
            samples: values.iter().enumerate().map(sample).collect(),
            ..CellRecord::new(stack.to_owned())
        }
    }

    pub(crate) fn row_of(path: &str, workload: Verbs, cells: Vec<CellRecord>) -> RowRecord {
        RowRecord {
            id: format!("{path}/{}", workload.id()),
            path: path.to_owned(),
            workload: Subject::Verbs(workload),
            metric: workload.metric(),
            axis: workload.axis(),
            reference: crate::stack::references(&workload),
            cells,
        }
    }

    fn connect(cells: &[(&str, &[Option<f64>])]) -> RowSummary {
        let cells = cells
            .iter()
            .map(|(stack, values)| cell_of(stack, "connect_us", values))
            .collect();
        row(&row_of("loopback", Verbs::Connect, cells))
    }

    #[test]
    fn the_ratio_is_of_medians_and_its_spread_is_within_repetitions() {
        let summary = connect(&[
            ("raw-tcp", &[Some(10.0), Some(20.0), Some(40.0)]),
            ("weft crc=on", &[Some(20.0), Some(30.0), Some(60.0)]),
        ]);
        let ratio = summary.cells[1].ratio.unwrap();
        assert_eq!(
            ratio,
            Ratio {
                of_medians: 1.5,
                min: 1.5,
                max: 2.0,
                interval: None
            }
        );
        // Three of three are on one side by chance once in four times.
        assert_eq!(ratio.standing(Better::Lower), Standing::Open);
        assert_eq!(summary.cells[0].ratio, None);
    }

    #[test]
    fn a_verdict_needs_the_whole_interval_on_one_side() {
        let ratio = |low, high| Ratio {
            of_medians: 1.2,
            min: 0.5,
            max: 2.0,
            interval: Some(Interval { low, high }),
        };
        let standings = |r: Ratio| [Better::Lower, Better::Higher].map(|better| r.standing(better));
        assert_eq!(
            standings(ratio(1.1, 1.3)),
            [Standing::Loses, Standing::Wins]
        );
        assert_eq!(
            standings(ratio(0.8, 0.9)),
            [Standing::Wins, Standing::Loses]
        );
        assert_eq!(standings(ratio(0.99, 1.4)), [Standing::Level; 2]);
    }

    #[test]
    fn the_noise_of_a_row_is_what_two_measurements_of_one_stack_differ_by() {
        let cells = vec![
            cell_of("raw-tcp", "connect_us", &[10.0; 6].map(Some)),
            cell_of("weft crc=on", "connect_us", &[10.4; 6].map(Some)),
            CellRecord {
                again: Some("raw-tcp".to_owned()),
                ..cell_of("raw-tcp, again", "connect_us", &[9.5; 6].map(Some))
            },
        ];
        let summary = row(&row_of("loopback", Verbs::Connect, cells));
        let noise = summary.noise.unwrap();
        assert!((noise - (10.0 / 9.5 - 1.0)).abs() < 1e-9, "{noise}");
        let ratio = summary.cells[1].ratio.unwrap();
        assert_eq!(ratio.standing(Better::Lower), Standing::Loses);
        assert!(ratio.is_within(summary.noise) && !ratio.is_within(None));
        assert_eq!(summary.cells[2].again.as_deref(), Some("raw-tcp"));
    }

    #[test]
    fn failed_repetitions_leave_the_pairing_of_the_others_alone() {
        let summary = connect(&[
            ("raw-tcp", &[Some(1.0), None, Some(10.0)]),
            ("weft crc=on", &[None, Some(7.0), Some(20.0)]),
        ]);
        assert_eq!(summary.cells[1].failures, 1);
        let ratio = summary.cells[1].ratio.unwrap();
        assert_eq!((ratio.max, ratio.of_medians), (13.5 / 5.5, 13.5 / 5.5));
        assert_eq!(ratio.min, 2.0);
    }

    #[test]
    fn the_best_reference_counts() {
        use crate::verbs::{Mode, Op};
        let cells = [
            ("iperf3", 20.0),
            ("iperf3 -l size", 25.0),
            ("weft crc=off", 30.0),
        ];
        let cells = cells
            .iter()
            .map(|(s, v)| cell_of(s, "goodput_gbit_s", &[Some(*v)]))
            .collect();
        let bulk = Verbs::Bulk {
            op: Op::Write,
            size: 1 << 20,
            mode: Mode::Polling,
        };
        let summary = row(&row_of("loopback", bulk, cells));
        assert_eq!(summary.reference.as_deref(), Some("iperf3 -l size"));
        assert_eq!(summary.cells[2].ratio.unwrap().of_medians, 1.2);
    }

    #[test]
    fn without_a_reference_there_is_no_ratio() {
        let summary = connect(&[("raw-tcp", &[None]), ("weft crc=on", &[Some(1.0)])]);
        assert_eq!((summary.reference, summary.cells[1].ratio), (None, None));
    }
}
