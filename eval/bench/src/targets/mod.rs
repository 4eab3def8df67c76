//! The targets of the design that concern verbs over the host stack, sockets over DDP and datagrams over carriers, and
//! how a record stands to them.

mod datagrams;
mod sockets;
mod verbs;

use crate::metric::Metric;
use crate::path::PathKind;
use crate::record::{CellRecord, RowRecord, Run, Subject};
use crate::stats::{estimate, median};
use crate::summary::{best, ratio, values, Ratio};
use crate::workload::{self, Workload};

/// One target for one variant of Weft.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What is judged, for people.
    pub what: &'static str,
    /// Row of the judged cell.
    pub workload: Judged,
    /// Stack of the judged cell.
    pub stack: String,
    /// What it is compared with.
    pub against: Against,
    /// What passes.
    pub bound: Bound,
    /// Only on this path; every local path otherwise.
    pub path: Option<&'static str>,
}

/// A workload, as far as targets have to know it.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// Name.
    pub id: String,
    /// What its rows are judged by.
    pub metric: Metric,
}

/// What a cell is compared with.
#[derive(Clone, Debug, PartialEq)]
pub enum Against {
    /// The best reference of its own row.
    Reference,
    /// The same; not the ratio has to keep the bound but the difference, in the row's metric.
    BeyondReference,
    /// The same stack on the workload of this name.
    Same(String),
    /// Nothing: this figure of the cell itself has to keep the bound.
    Alone(Metric),
}

/// What passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most `target`; up to `passes` it is accepted.
    AtMost {
        /// The aim.
        target: f64,
        /// What is accepted.
        passes: f64,
    },
    /// At least `target`; from `passes` on it is accepted.
    AtLeast {
        /// The aim.
        target: f64,
        /// What is accepted.
        passes: f64,
    },
}

/// How a record stands to one target on one path.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The target.
    pub target: Target,
    /// Path name.
    pub path: String,
    /// The judged median and the median it is compared with.
    pub medians: Option<(f64, Option<f64>)>,
    /// What is held against the bound; a difference or the figure itself where that is what the target is about.
    pub ratio: Option<Ratio>,
    /// Metric of the medians.
    pub metric: Metric,
    /// Verdict.
    pub verdict: Verdict,
}

/// Whether a target is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The aim is met.
    Met,
    /// Accepted, below the aim.
    Passes,
    /// Not met.
    FallsShort,
    /// No figure.
    NotMeasured,
}

/// Every target.
pub fn targets() -> Vec<Target> {
    let mut list = verbs::targets();
    list.extend(sockets::targets());
    list.extend(datagrams::targets());
    list
}

const fn at_least(bound: f64) -> Bound {
    Bound::AtLeast {
        target: bound,
        passes: bound,
    }
}

const fn at_most(bound: f64) -> Bound {
    Bound::AtMost {
        target: bound,
        passes: bound,
    }
}

impl Judged {
    fn of(workload: &dyn Workload) -> Judged {
        Judged {
            id: workload.id(),
            metric: workload.metric(),
        }
    }
}

/// Whether a row of the workload of this name bears on a target.
pub fn needs(workload: &str) -> bool {
    let other = |t: &Target| matches!(&t.against, Against::Same(other) if other == workload);
    targets()
        .iter()
        .any(|t| t.workload.id == workload || other(t))
}

/// How the record stands to every target on every path it has, and that its options ask for. There are none for a
/// record of a runner outside the bench.
pub fn judge(run: &Run) -> Vec<Standing> {
    if is_of_another_runner(run) {
        return Vec::new();
    }
    let made = run.paths.iter().filter(|p| p.skipped.is_none());
    let pairs = made.flat_map(|path| targets().into_iter().map(move |t| (path.name.as_str(), t)));
    pairs
        .filter(|(path, target)| holds_on(path, target))
        .filter(|(path, target)| wanted(run, path, target))
        .map(|(p, t)| judge_one(run, p, t))
        .collect()
}

/// Whether a row is none of this bench's.
fn is_of_another_runner(run: &Run) -> bool {
    let ours: Vec<String> = workload::of_sockets(true).iter().map(|w| w.id()).collect();
    let foreign = |row: &RowRecord| match &row.workload {
        Subject::Named { name, .. } => !ours.contains(name),
        Subject::Verbs(_) => false,
    };
    run.rows.iter().any(foreign)
}

fn holds_on(path: &str, target: &Target) -> bool {
    match target.path {
        Some(named) => named == path,
        None => PathKind::from_name(path).is_some_and(PathKind::is_local),
    }
}

/// A run of chosen rows is not blamed for those it was told to leave out.
fn wanted(run: &Run, path: &str, target: &Target) -> bool {
    run.options.only.is_empty() || run.row(&row_id(path, &target.workload.id)).is_some()
}

fn row_id(path: &str, workload: &str) -> String {
    format!("{path}/{workload}")
}

fn judge_one(run: &Run, path: &str, target: Target) -> Standing {
    let metric = match target.against {
        Against::Alone(metric) => metric,
        _ => target.workload.metric,
    };
    let figures = figures(run, path, &target, metric);
    let (medians, ratio) = figures.map_or((None, None), |(medians, ratio)| {
        (Some(medians), Some(ratio))
    });
    let verdict = ratio.map_or(Verdict::NotMeasured, |r| target.bound.verdict(r.of_medians));
    Standing {
        target,
        path: path.to_owned(),
        medians,
        ratio,
        metric,
        verdict,
    }
}

type Figures = ((f64, Option<f64>), Ratio);

fn figures(run: &Run, path: &str, target: &Target, metric: Metric) -> Option<Figures> {
    let row_of = |workload: &str| -> Option<&RowRecord> { run.row(&row_id(path, workload)) };
    let row = row_of(&target.workload.id)?;
    let cell = row.cell(&target.stack)?;
    let other: &CellRecord = match &target.against {
        Against::Reference | Against::BeyondReference => best(row, &row.reference, metric)?,
        Against::Same(workload) => row_of(workload)?.cell(&target.stack)?,
        Against::Alone(metric) => return alone(cell, *metric),
    };
    let medians = (
        median(&values(cell, metric.key))?,
        median(&values(other, metric.key)),
    );
    let held = match target.against {
        Against::BeyondReference => difference(cell, other, metric)?,
        _ => ratio(cell, other, metric.key)?,
    };
    Some((medians, held))
}

fn alone(cell: &CellRecord, metric: Metric) -> Option<Figures> {
    let figures = estimate(&values(cell, metric.key))?;
    let ratio = Ratio {
        of_medians: figures.median,
        min: figures.min,
        max: figures.max,
        interval: None,
    };
    Some(((figures.median, None), ratio))
}

/// The cell's median less the other's, and the greatest and the least difference from it.
fn difference(cell: &CellRecord, other: &CellRecord, metric: Metric) -> Option<Ratio> {
    let figures = estimate(&values(cell, metric.key))?;
    let less = median(&values(other, metric.key))?;
    Some(Ratio {
        of_medians: figures.median - less,
        min: figures.min - less,
        max: figures.max - less,
        interval: None,
    })
}

impl Bound {
    fn verdict(self, value: f64) -> Verdict {
        match self {
            Bound::AtMost { target, .. } if value <= target => Verdict::Met,
            Bound::AtMost { passes, .. } if value <= passes => Verdict::Passes,
            Bound::AtLeast { target, .. } if value >= target => Verdict::Met,
            Bound::AtLeast { passes, .. } if value >= passes => Verdict::Passes,
            _ => Verdict::FallsShort,
        }
    }
}

#[cfg(test)]
mod tests;
