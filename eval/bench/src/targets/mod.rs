//! The targets of the design that concern verbs over the host stack, and how a record stands to
//! them.

use crate::metric::{Metric, P99};
use crate::path::PathKind;
use crate::record::{CellRecord, RowRecord, Run, Subject};
use crate::stack::{weft_emss_name, weft_gid_name, weft_name};
use crate::stats::median;
use crate::summary::{best, ratio, values, Ratio};
use crate::verbs::{Mode, Op, Verbs};

/// One target for one variant of Weft.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What is judged, for people.
    pub what: &'static str,
    /// Verbs of the judged cell.
    pub workload: Verbs,
    /// Stack of the judged cell.
    pub stack: String,
    /// What it is compared with.
    pub against: Against,
    /// What passes.
    pub bound: Bound,
    /// Only on this path; every path otherwise.
    pub path: Option<&'static str>,
}

/// What a cell is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Against {
    /// The best reference of its own row.
    Reference,
    /// The same stack on another workload.
    Same(Verbs),
    /// Nothing: the 99th percentile itself has to keep the bound, µs.
    P99,
}

/// What passes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
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
    /// The judged median and the median it is compared with, in the row's metric.
    pub medians: Option<(f64, Option<f64>)>,
    /// What is held against the bound; for a p99 bound the figure itself.
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

const fn small(op: Op, pinned: bool) -> Verbs {
    Verbs::Latency {
        op,
        size: 64,
        mode: Mode::Polling,
        pinned,
    }
}

const MEGABYTE_WRITES: Verbs = Verbs::Bulk {
    op: Op::Write,
    size: 1 << 20,
    mode: Mode::Polling,
};

const fn at_least(bound: f64) -> Bound {
    Bound::AtLeast {
        target: bound,
        passes: bound,
    }
}

/// Every target, CRC off before CRC on.
pub fn targets() -> Vec<Target> {
    let mut list = Vec::new();
    let mut named = |name: fn(bool) -> String, what, workload, against, bound| {
        for crc in [false, true] {
            list.push(Target {
                what,
                workload,
                stack: name(crc),
                against,
                bound,
                path: None,
            });
        }
    };
    named(
        weft_name,
        "64 B send/recv half round trip, polling",
        small(Op::Send, true),
        Against::Reference,
        Bound::AtMost(1.08),
    );
    for name in [weft_name, weft_gid_name] {
        named(
            name,
            "ib_write_lat 64 B, not pinned, over ib_send_lat",
            small(Op::Write, false),
            Against::Same(small(Op::Send, false)),
            Bound::AtMost(3.0),
        );
        named(
            name,
            "ib_write_lat 64 B, not pinned, p99 in µs",
            small(Op::Write, false),
            Against::P99,
            Bound::AtMost(50.0),
        );
    }
    for (op, what) in [
        (Op::Send, "64 B sends per second, depth 128"),
        (Op::Write, "64 B writes per second, depth 128"),
    ] {
        for post_list in [1, 16] {
            let rate = Verbs::Rate {
                op,
                size: 64,
                depth: 128,
                post_list,
            };
            named(weft_name, what, rate, Against::Reference, at_least(5.0));
        }
    }
    named(
        weft_name,
        "rdma_connect to established",
        Verbs::Connect,
        Against::Reference,
        Bound::AtMost(3.0),
    );

    for crc in [false, true] {
        let bulk = |what, stack, bound, path| Target {
            what,
            workload: MEGABYTE_WRITES,
            stack,
            against: Against::Reference,
            bound,
            path,
        };
        let bound = if crc {
            Bound::AtLeast {
                target: 0.9,
                passes: 0.85,
            }
        } else {
            at_least(1.0)
        };
        list.push(bulk("1 MB RDMA write goodput", weft_name(crc), bound, None));
        let emss = weft_emss_name(crc);
        list.push(bulk(
            "the same, FPDUs to the EMSS",
            emss,
            at_least(0.6),
            Some("veth"),
        ));
    }
    list
}

/// Whether a row of the workload of this name bears on a target.
pub fn needs(workload: &str) -> bool {
    targets().iter().any(|t| {
        let other = match t.against {
            Against::Same(other) => Some(other.id()),
            Against::Reference | Against::P99 => None,
        };
        t.workload.id() == workload || other.as_deref() == Some(workload)
    })
}

/// How the record stands to every target on every path it has, and that its options ask for. There are none for a
/// record of a runner outside the bench.
pub fn judge(run: &Run) -> Vec<Standing> {
    let named = |row: &RowRecord| matches!(row.workload, Subject::Named { .. });
    if run.rows.iter().any(named) {
        return Vec::new();
    }
    let made: Vec<&str> = run
        .paths
        .iter()
        .filter(|p| {
            p.skipped.is_none() && PathKind::from_name(&p.name).is_some_and(PathKind::is_local)
        })
        .map(|p| p.name.as_str())
        .collect();
    let pairs = made
        .iter()
        .flat_map(|path| targets().into_iter().map(move |target| (*path, target)));
    pairs
        .filter(|(path, target)| target.path.is_none_or(|p| p == *path))
        .filter(|(path, target)| wanted(run, path, target))
        .map(|(p, t)| judge_one(run, p, t))
        .collect()
}

/// A run of chosen rows is not blamed for those it was told to leave out.
fn wanted(run: &Run, path: &str, target: &Target) -> bool {
    run.options.only.is_empty() || run.row(&row_id(path, &target.workload)).is_some()
}

fn row_id(path: &str, workload: &Verbs) -> String {
    format!("{path}/{}", workload.id())
}

fn judge_one(run: &Run, path: &str, target: Target) -> Standing {
    let metric = target.workload.metric();
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
    let row_of = |workload: &Verbs| -> Option<&RowRecord> { run.row(&row_id(path, workload)) };
    let row = row_of(&target.workload)?;
    let cell = row.cell(&target.stack)?;
    let other: &CellRecord = match target.against {
        Against::Reference => best(row, &row.reference, metric)?,
        Against::Same(workload) => row_of(&workload)?.cell(&target.stack)?,
        Against::P99 => return p99(cell),
    };
    let medians = (
        median(&values(cell, metric.key))?,
        median(&values(other, metric.key)),
    );
    Some((medians, ratio(cell, other, metric.key)?))
}

fn p99(cell: &CellRecord) -> Option<Figures> {
    let figures = crate::stats::estimate(&values(cell, P99))?;
    let ratio = Ratio {
        of_medians: figures.median,
        min: figures.min,
        max: figures.max,
        interval: None,
    };
    Some(((figures.median, None), ratio))
}

impl Bound {
    fn verdict(self, value: f64) -> Verdict {
        match self {
            Bound::AtMost(most) if value <= most => Verdict::Met,
            Bound::AtLeast { target, .. } if value >= target => Verdict::Met,
            Bound::AtLeast { passes, .. } if value >= passes => Verdict::Passes,
            _ => Verdict::FallsShort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;
    use crate::report::tests::run_of;
    use crate::summary::tests::{cell_of, row_of};
    use crate::workload::LinkRate;

    #[test]
    fn every_target_has_its_rows_in_the_default_plan() {
        let workloads = plan::workloads(PathKind::Loopback, false, LinkRate::default());
        for target in targets() {
            let planned = |verbs: Verbs| workloads.iter().any(|w| w.id() == verbs.id());
            assert!(planned(target.workload), "{}", target.workload.id());
            if let Against::Same(other) = target.against {
                assert!(planned(other), "{}", other.id());
            }
        }
    }

    #[test]
    fn bounds() {
        assert_eq!(Bound::AtMost(1.08).verdict(1.08), Verdict::Met);
        assert_eq!(Bound::AtMost(1.08).verdict(1.081), Verdict::FallsShort);
        let with_crc = Bound::AtLeast {
            target: 0.9,
            passes: 0.85,
        };
        assert_eq!(
            [0.9, 0.87, 0.84].map(|v| with_crc.verdict(v)),
            [Verdict::Met, Verdict::Passes, Verdict::FallsShort]
        );
    }

    fn verdict_of(run: &Run, what: &str, stack: &str) -> Verdict {
        let judged = judge(run);
        judged
            .iter()
            .find(|s| s.target.what.contains(what) && s.target.stack == stack)
            .unwrap()
            .verdict
    }

    #[test]
    fn an_unpinned_write_is_held_against_the_unpinned_send_of_the_same_stack() {
        let mut write = cell_of("weft crc=on", "half_rtt_us", &[Some(29.0)]);
        let p99 = cell_of("weft crc=on", P99, &[Some(51.0)]);
        write.samples.extend(p99.samples);
        let run = run_of(vec![
            row_of(
                "loopback",
                small(Op::Send, false),
                vec![cell_of("weft crc=on", "half_rtt_us", &[Some(10.0)])],
            ),
            row_of("loopback", small(Op::Write, false), vec![write]),
        ]);
        assert_eq!(
            verdict_of(&run, "over ib_send_lat", "weft crc=on"),
            Verdict::Met
        );
        assert_eq!(verdict_of(&run, "p99", "weft crc=on"), Verdict::FallsShort);
        assert_eq!(
            verdict_of(&run, "over ib_send_lat", "weft crc=off"),
            Verdict::NotMeasured
        );
    }

    #[test]
    fn goodput_is_held_against_the_faster_iperf3() {
        let cells = [
            ("iperf3", 20.0),
            ("iperf3 -l size", 10.0),
            ("weft crc=on", 17.5),
            ("weft crc=off", 19.0),
        ];
        let cells = cells
            .map(|(stack, v)| cell_of(stack, "goodput_gbit_s", &[Some(v)]))
            .to_vec();
        let run = run_of(vec![row_of("loopback", MEGABYTE_WRITES, cells)]);
        assert_eq!(verdict_of(&run, "goodput", "weft crc=on"), Verdict::Passes);
        assert_eq!(
            verdict_of(&run, "goodput", "weft crc=off"),
            Verdict::FallsShort
        );
        assert!(judge(&run).len() > 2);
        let mut chosen = run.clone();
        chosen.options.only = vec!["write-bw-1M".to_owned()];
        assert_eq!(judge(&chosen).len(), 2);
        // A target of the veth path does not show on a run without one.
        assert!(judge(&run).iter().all(|s| s.target.path.is_none()));
    }
}
