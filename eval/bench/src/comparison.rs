//! How one build of Weft stands to the one beside it on each row of a record. Computed anew at every report; never
//! stored.

use crate::metric::{Better, Metric};
use crate::pairs::{self, Estimate, FEWEST_PAIRS};
use crate::record::{CellRecord, Instructions, RowRecord, Run, BESIDE, THIS};
use crate::stats::{median, quantile_of_sorted, sorted};
use crate::summary::values;

/// A row is slower when the whole interval of its ratio lies below this.
pub const SLOWER_BELOW: f64 = 0.98;
/// Where the interval is too wide, instructions for a message may be this many times those of the build beside.
pub const MOST_INSTRUCTIONS: f64 = 1.02;

/// One stack of one row, as both builds have it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison<'a> {
    /// The row.
    pub row: &'a RowRecord,
    /// The build that is judged.
    pub this: &'a CellRecord,
    /// The build that it is compared with.
    pub beside: &'a CellRecord,
    /// Metric of the row.
    pub metric: Metric,
    /// Medians of this build and of the one beside it; none without a good sample.
    pub medians: [Option<f64>; 2],
    /// Pairs of which both samples are good.
    pub pairs: usize,
    /// Of the ratios of the pairs: above 1 this build is the better one, whatever the metric.
    pub estimate: Option<Estimate>,
    /// Instructions for a message, this build and the one beside it.
    pub instructions: Option<[f64; 2]>,
    /// What follows.
    pub verdict: Verdict,
}

/// Whether a build is slower than the one beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The interval is narrow enough, or at or above [`SLOWER_BELOW`] as a whole, and not below it.
    NoSlower,
    /// The interval lies below [`SLOWER_BELOW`].
    Slower,
    /// The interval is too wide, and instructions were not counted.
    TooWide,
    /// The interval is too wide; instructions are within [`MOST_INSTRUCTIONS`].
    NoMoreInstructions,
    /// The interval is too wide; instructions are more than [`MOST_INSTRUCTIONS`].
    MoreInstructions,
    /// There are not pairs enough for an interval.
    TooFewPairs,
    /// At least one of the builds was measured and gave no figure.
    NoFigure,
    /// It was not measured, for the reason that the record has.
    Skipped,
}

/// Every comparison of a record, in its order.
pub fn comparisons(run: &Run) -> Vec<Comparison<'_>> {
    let precision = run.options.precision.unwrap_or_default();
    let of_row = |row| comparisons_of(row, precision);
    run.rows.iter().flat_map(of_row).collect()
}

/// The comparisons of one row.
pub fn comparisons_of(row: &RowRecord, precision: f64) -> Vec<Comparison<'_>> {
    let of_build = |name: &'static str| {
        row.cells
            .iter()
            .filter(move |cell| cell.build.as_deref() == Some(name))
    };
    of_build(THIS)
        .filter_map(|this| {
            let beside = of_build(BESIDE).find(|cell| cell.stack == this.stack)?;
            Some(comparison(row, this, beside, precision))
        })
        .collect()
}

/// Whether a row fails the comparison. More instructions alone do not: they are a reason to look, and no time.
pub fn is_worse(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Slower | Verdict::NoFigure)
}

fn comparison<'a>(
    row: &'a RowRecord,
    this: &'a CellRecord,
    beside: &'a CellRecord,
    precision: f64,
) -> Comparison<'a> {
    let metric = row.metric;
    let ratios = ratios(this, beside, metric);
    let estimate = pairs::estimate(&ratios);
    let of_each = [this, beside].map(|cell| cell.instructions.as_ref().and_then(for_a_message));
    let instructions = match of_each {
        [Some(this), Some(beside)] => Some([this, beside]),
        _ => None,
    };
    let verdict = match (this.skipped.is_some() || beside.skipped.is_some(), estimate) {
        (true, _) => Verdict::Skipped,
        (false, None) => Verdict::NoFigure,
        (false, Some(estimate)) => judge(estimate, precision, instructions),
    };
    Comparison {
        row,
        this,
        beside,
        metric,
        medians: [this, beside].map(|cell| median(&values(cell, metric.key))),
        pairs: ratios.len(),
        estimate,
        instructions,
        verdict,
    }
}

/// The ratio of each pair of which both samples are good, turned so that above 1 `this` is the better one.
pub fn ratios(this: &CellRecord, beside: &CellRecord, metric: Metric) -> Vec<f64> {
    let theirs = beside.values(metric.key);
    this.values(metric.key)
        .into_iter()
        .filter_map(|(pair, own)| {
            let (_, other) = theirs.iter().find(|(number, _)| *number == pair)?;
            Some(match metric.better {
                Better::Higher => own / other,
                Better::Lower => other / own,
            })
        })
        .collect()
}

fn judge(estimate: Estimate, precision: f64, instructions: Option<[f64; 2]>) -> Verdict {
    let Some(interval) = estimate.interval else {
        return Verdict::TooFewPairs;
    };
    match instructions {
        _ if interval.high < SLOWER_BELOW => Verdict::Slower,
        _ if interval.low >= SLOWER_BELOW || estimate.is_within(precision) => Verdict::NoSlower,
        None => Verdict::TooWide,
        Some([this, beside]) if this <= beside * MOST_INSTRUCTIONS => Verdict::NoMoreInstructions,
        Some(_) => Verdict::MoreInstructions,
    }
}

/// Instructions for one message: what the runs of more messages took beyond those of fewer, so that the start of the
/// program is not in it. Of the runs of each length the middle one counts.
fn for_a_message(counted: &Instructions) -> Option<f64> {
    let lengths = sorted(
        &counted
            .counts
            .iter()
            .map(|c| c.messages as f64)
            .collect::<Vec<_>>(),
    );
    let of_length = |messages: f64| {
        let runs = counted.counts.iter();
        let taken: Vec<f64> = runs
            .filter(|c| c.messages as f64 == messages)
            .map(|c| c.instructions as f64)
            .collect();
        median(&taken)
    };
    let (few, many) = (
        quantile_of_sorted(&lengths, 0.0)?,
        quantile_of_sorted(&lengths, 1.0)?,
    );
    let beyond = of_length(many)? - of_length(few)?;
    (many > few && beyond > 0.0).then(|| beyond / (many - few))
}

/// What [`FEWEST_PAIRS`] bounds, in words.
pub fn too_few() -> String {
    format!("not decided: fewer than {FEWEST_PAIRS} pairs")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::pairs::Interval;
    use crate::record::Count;
    use crate::summary::tests::{cell_of, row_of};
    use crate::verbs::Verbs;

    /// A row of two builds of one stack.
    pub(crate) fn both_of(
        workload: Verbs,
        this: &[Option<f64>],
        beside: &[Option<f64>],
    ) -> RowRecord {
        let metric = workload.metric().key;
        let cell = |build: &str, values| CellRecord {
            build: Some(build.to_owned()),
            ..cell_of("weft crc=on", metric, values)
        };
        row_of(
            "loopback",
            workload,
            vec![cell(THIS, this), cell(BESIDE, beside)],
        )
    }

    pub(crate) fn counted(few: u64, many: u64) -> Instructions {
        let count = |messages, instructions| Count {
            messages,
            instructions,
        };
        Instructions {
            counts: vec![count(100, few), count(500, many)],
            ..Instructions::default()
        }
    }

    const RATE: Verbs = Verbs::Rate {
        op: crate::verbs::Op::Write,
        size: 64,
        depth: 128,
        post_list: 1,
    };

    #[test]
    fn above_one_is_better_for_latencies_and_for_rates() {
        let (this, beside) = (&[Some(10.0)], &[Some(20.0)]);
        for (workload, ratio) in [(Verbs::Connect, 2.0), (RATE, 0.5)] {
            let row = both_of(workload, this, beside);
            let found = comparisons_of(&row, 0.02)[0].estimate.unwrap().ratio;
            assert!((found - ratio).abs() < 1e-12, "{found}");
        }
    }

    #[test]
    fn a_pair_counts_when_both_of_it_are_good() {
        let row = both_of(
            RATE,
            &[Some(1.0), None, Some(4.0)],
            &[None, Some(1.0), Some(2.0)],
        );
        let found = &comparisons_of(&row, 0.02)[0];
        assert_eq!((found.pairs, found.verdict), (1, Verdict::TooFewPairs));
        assert!((found.estimate.unwrap().ratio - 2.0).abs() < 1e-12);
    }

    #[test]
    fn verdicts() {
        let judged = |low, ratio, high, instructions| {
            let interval = Some(Interval { low, high });
            judge(Estimate { ratio, interval }, 0.02, instructions)
        };
        assert_eq!(judged(0.99, 1.0, 1.01, None), Verdict::NoSlower);
        // Within 2 % of itself, and not below 0.98.
        assert_eq!(judged(0.975, 0.985, 0.995, None), Verdict::NoSlower);
        assert_eq!(judged(0.95, 0.96, 0.9799, None), Verdict::Slower);
        assert_eq!(judged(0.5, 0.7, 0.9, None), Verdict::Slower);
        // Wide, but nowhere below.
        assert_eq!(judged(1.1, 1.3, 1.5, None), Verdict::NoSlower);
        assert_eq!(judged(0.9, 1.0, 1.1, None), Verdict::TooWide);
        let with = |this| judged(0.9, 1.0, 1.1, Some([this, 1000.0]));
        assert_eq!(with(1020.0), Verdict::NoMoreInstructions);
        assert_eq!(with(1021.0), Verdict::MoreInstructions);
        // Instructions make nothing good that the interval decides.
        assert_eq!(judged(0.5, 0.7, 0.9, Some([1.0, 1000.0])), Verdict::Slower);
    }

    #[test]
    fn a_build_that_gives_no_figure_is_worse_and_one_that_was_skipped_is_not() {
        let mut row = both_of(RATE, &[None, None], &[Some(1.0), Some(1.0)]);
        let found = comparisons_of(&row, 0.02)[0].verdict;
        assert_eq!(found, Verdict::NoFigure);
        assert!(is_worse(found));
        row.cells[1].skipped = Some("it has no such program".to_owned());
        let found = comparisons_of(&row, 0.02)[0].verdict;
        assert_eq!(found, Verdict::Skipped);
        assert!(!is_worse(found));
    }

    #[test]
    fn the_start_of_the_program_is_not_in_what_a_message_takes() {
        let mut three = counted(1_000_100, 1_002_100);
        three.counts.extend(counted(1_000_000, 1_002_000).counts);
        three.counts.extend(counted(9_000_000, 9_002_000).counts);
        assert_eq!(for_a_message(&three), Some(5.0));
        assert_eq!(for_a_message(&Instructions::default()), None);
        assert_eq!(for_a_message(&counted(7, 7)), None);
    }
}
