//! Medians, spreads and ratios of a record. Computed anew at every report; never stored.

use crate::metric::{Better, Metric, P99};
use crate::record::{CellRecord, RowRecord};
use crate::stats::{estimate, median, Estimate};

/// A row with what its cells amount to.
#[derive(Clone, Debug, PartialEq)]
pub struct RowSummary {
    /// Path and workload.
    pub id: String,
    /// Metric of every figure.
    pub metric: Metric,
    /// The reference stack with the best median; none when none was measured.
    pub reference: Option<String>,
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
}

/// How a ratio reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Better in every repetition.
    Wins,
    /// Better in some, worse in others.
    Level,
    /// Worse in every repetition.
    Loses,
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
    let paired = cell
        .values(metric)
        .into_iter()
        .filter_map(|(repetition, value)| {
            let (_, other) = theirs.iter().find(|(r, _)| *r == repetition)?;
            Some(value / other)
        });
    let (min, max) = paired.fold((of_medians, of_medians), |(min, max), r| {
        (min.min(r), max.max(r))
    });
    Some(Ratio {
        of_medians,
        min,
        max,
    })
}

impl Ratio {
    /// How the ratio reads for a metric of this direction.
    pub fn standing(&self, better: Better) -> Standing {
        match better {
            Better::Lower if self.max < 1.0 => Standing::Wins,
            Better::Lower if self.min > 1.0 => Standing::Loses,
            Better::Higher if self.min > 1.0 => Standing::Wins,
            Better::Higher if self.max < 1.0 => Standing::Loses,
            _ => Standing::Level,
        }
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
        skipped: record.skipped.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{Failure, Metrics, Outcome, Sample, Subject};
    use crate::workload::Workload;

    /// A cell with one sample of `metric` per repetition; none is a failure.
    pub(crate) fn cell_of(stack: &str, metric: &str, values: &[Option<f64>]) -> CellRecord {
        let sample = |(i, value): (usize, &Option<f64>)| Sample {
            repetition: i as u32 + 1,
            at: 0.0,
            took: 0.0,
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

    pub(crate) fn row_of(path: &str, workload: Workload, cells: Vec<CellRecord>) -> RowRecord {
        RowRecord {
            id: format!("{path}/{}", workload.id()),
            path: path.to_owned(),
            workload: Subject::Workload(workload),
            metric: workload.metric(),
            reference: crate::stack::references(&workload),
            cells,
        }
    }

    fn connect(cells: &[(&str, &[Option<f64>])]) -> RowSummary {
        let cells = cells
            .iter()
            .map(|(stack, values)| cell_of(stack, "connect_us", values))
            .collect();
        row(&row_of("loopback", Workload::Connect, cells))
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
                max: 2.0
            }
        );
        assert_eq!(ratio.standing(Better::Lower), Standing::Loses);
        assert_eq!(ratio.standing(Better::Higher), Standing::Wins);
        assert_eq!(summary.cells[0].ratio, None);
    }

    #[test]
    fn a_ratio_on_both_sides_of_one_is_level() {
        let ratio = Ratio {
            of_medians: 0.99,
            min: 0.9,
            max: 1.1,
        };
        assert_eq!(ratio.standing(Better::Lower), Standing::Level);
        assert_eq!(ratio.standing(Better::Higher), Standing::Level);
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
        use crate::workload::{Mode, Op};
        let cells = [
            ("iperf3", 20.0),
            ("iperf3 -l size", 25.0),
            ("weft crc=off", 30.0),
        ];
        let cells = cells
            .iter()
            .map(|(s, v)| cell_of(s, "goodput_gbit_s", &[Some(*v)]))
            .collect();
        let bulk = Workload::Bulk {
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
