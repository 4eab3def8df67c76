//! Two builds of Weft measured in turn: on each row pair after pair, until the interval of their ratio is narrow
//! enough. Rows that stay wide have their instructions counted.

use std::time::Duration;

use clap::ValueEnum;

use crate::comparison::{comparisons_of, ratios, Verdict};
use crate::exec::Executor;
use crate::instructions;
use crate::pairs::{estimate, this_comes_first, Rule};
use crate::path::Place;
use crate::plan::{Group, Row};
use crate::record::{CellRecord, RowRecord, BESIDE, THIS};
use crate::runner::{empty_row, lacks};
use crate::sample::{planned_seconds, Progress, Sampler, Told, Turn};
use crate::stack::Stack;

/// Pairs after which a row is given up when none of them has a figure of both builds.
const NO_FIGURE_PAIRS: u32 = 3;

/// Which rows have their instructions counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Counting {
    /// Those whose interval is too wide
    Undecided,
    /// All
    All,
    /// None
    None,
}

/// Runs groups on one path after another, each row with both builds.
pub struct Beside<'a, E> {
    /// Takes the samples.
    pub sampler: Sampler<E>,
    /// The stacks of the build that is judged, and the same of the one beside it, in the same order.
    pub builds: [&'a [Box<dyn Stack>]; 2],
    /// When a row has pairs enough.
    pub rule: Rule,
    /// Which rows have their instructions counted.
    pub counting: Counting,
}

impl<E: Executor> Beside<'_, E> {
    /// How long these groups will take at most, without counting instructions.
    pub fn expected(&self, groups: &[Group]) -> Duration {
        let seconds = |row: &Row| {
            planned_seconds(row.workload.as_ref(), self.sampler.seconds)
                * row.stacks.len() as f64
                * f64::from(2 * self.rule.most)
        };
        Duration::from_secs_f64(groups.iter().flatten().map(seconds).sum())
    }

    /// Runs the groups of one path; ends early when the executor says that the user wants no more.
    /// `keep` is told of all rows so far after each.
    pub fn run(
        &mut self,
        groups: &[Group],
        place: &Place,
        progress: Progress,
        keep: &mut dyn FnMut(&[RowRecord]),
    ) -> Vec<RowRecord> {
        let mut records = Vec::new();
        for row in groups.iter().flatten() {
            if self.sampler.executor.interrupted() {
                break;
            }
            let mut record = empty_row(row);
            for &stack in &row.stacks {
                let cells = self.run_stack(row, stack, place, progress);
                record.cells.extend(cells);
            }
            records.push(record);
            keep(&records);
        }
        records
    }

    /// The cells of this build and of the one beside it.
    fn run_stack(
        &mut self,
        row: &Row,
        stack: usize,
        place: &Place,
        progress: Progress,
    ) -> [CellRecord; 2] {
        let stacks = self.builds.map(|stacks| stacks[stack].as_ref());
        let mut cells = [THIS, BESIDE].map(|build| CellRecord {
            build: Some(build.to_owned()),
            ..CellRecord::new(stacks[0].name())
        });
        for (cell, reason) in cells.iter_mut().zip(why_not(row, stacks)) {
            if let Some(reason) = reason {
                progress(Told::note(&format!(
                    "{} {}: skipped: {reason}",
                    row.id(),
                    cell.label()
                )));
                cell.skipped = Some(reason);
            }
        }
        if cells.iter().all(|cell| cell.skipped.is_none()) {
            self.run_pairs(row, stacks, &mut cells, place, progress);
            let ratios = ratios(&cells[0], &cells[1], row.workload.metric());
            cells[0].ratio = estimate(&ratios).map(|estimate| estimate.record(ratios.len()));
            self.count(row, stacks, &mut cells, place, progress);
        }
        cells
    }

    fn run_pairs(
        &mut self,
        row: &Row,
        stacks: [&dyn Stack; 2],
        cells: &mut [CellRecord; 2],
        place: &Place,
        progress: Progress,
    ) {
        for pair in 1..=self.rule.most {
            let order = if this_comes_first(pair) {
                [0, 1]
            } else {
                [1, 0]
            };
            for side in order {
                if self.sampler.executor.interrupted() {
                    return;
                }
                self.sampler.take(
                    row,
                    stacks[side],
                    &mut cells[side],
                    Turn::free(pair),
                    place,
                    progress,
                );
            }
            let ratios = ratios(&cells[0], &cells[1], row.workload.metric());
            if ratios.is_empty() && pair >= NO_FIGURE_PAIRS {
                progress(Told::note(&format!(
                    "{} {}: given up: {pair} pairs without a figure of both builds",
                    row.id(),
                    cells[0].stack
                )));
                return;
            }
            if self.rule.is_met(pair, &ratios) {
                return;
            }
        }
    }

    /// Counts instructions where that is asked for.
    fn count(
        &mut self,
        row: &Row,
        stacks: [&dyn Stack; 2],
        cells: &mut [CellRecord; 2],
        place: &Place,
        progress: Progress,
    ) {
        let mut record = empty_row(row);
        record.cells = cells.to_vec();
        let verdict = comparisons_of(&record, self.rule.precision)
            .first()
            .map(|comparison| comparison.verdict);
        let wanted = match self.counting {
            Counting::None => false,
            Counting::All => verdict != Some(Verdict::NoFigure),
            Counting::Undecided => verdict == Some(Verdict::TooWide),
        };
        if !wanted || self.sampler.executor.interrupted() {
            return;
        }
        let counted = instructions::count(&mut self.sampler.executor, row, stacks, place);
        let told = match counted.iter().find_map(|one| one.skipped.as_ref()) {
            Some(reason) => format!("not counted: {reason}"),
            None => "counted".to_owned(),
        };
        progress(Told::note(&format!(
            "      {} {}: instructions {told}",
            row.id(),
            cells[0].stack
        )));
        for (cell, counted) in cells.iter_mut().zip(counted) {
            cell.instructions = Some(counted);
        }
    }
}

/// Why each of the two is not measured: what it lacks, or that the other one lacks something.
fn why_not(row: &Row, stacks: [&dyn Stack; 2]) -> [Option<String>; 2] {
    if let Some((reference, _)) = row.workload.paced_by() {
        let reason =
            format!("its pace is {reference}'s, which is not measured beside another build");
        return [Some(reason.clone()), Some(reason)];
    }
    let lacks_of = |stack: &dyn Stack| stack.ready().err().map(|error| format!("{error:#}"));
    match stacks.map(|stack| lacks(row).or_else(|| lacks_of(stack))) {
        [None, None] => [None, None],
        [this, beside] => {
            [(this, "the build beside it"), (beside, "this build")].map(|(reason, other)| {
                Some(reason.unwrap_or_else(|| format!("{other} cannot run it")))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Comparison;
    use crate::exec::Output;
    use crate::job::CLIENT;
    use crate::job::{Invocation, Job};
    use crate::metric::MESSAGE_RATE;
    use crate::path::PathKind;
    use crate::record::{Failure, Metrics};
    use crate::stack::Site;
    use crate::verbs::{Op, Verbs};

    const WORKLOAD: Verbs = Verbs::Rate {
        op: Op::Send,
        size: 64,
        depth: 1,
        post_list: 1,
    };

    const WIDE: [f64; 7] = [60.0, 140.0, 80.0, 120.0, 100.0, 70.0, 130.0];

    /// A stack whose programs are called after the build.
    struct Fake(&'static str);

    impl Stack for Fake {
        fn name(&self) -> String {
            "weft".to_owned()
        }
        fn serves(&self, _: &Verbs, _: PathKind) -> bool {
            true
        }
        fn ready(&self) -> anyhow::Result<()> {
            anyhow::ensure!(self.0 != "old", "it has no such program");
            Ok(())
        }
        fn job(&self, workload: &Verbs, site: &Site) -> Job {
            let program = || Invocation::new(self.0, [""; 0]);
            site.job(workload, program(), program())
        }
        fn parse(&self, _: &Verbs, output: &Output) -> anyhow::Result<Metrics> {
            let rate = output.client().parse()?;
            Ok(Metrics::from([(MESSAGE_RATE.key.to_owned(), rate)]))
        }
    }

    /// Answers with the next rate of the build that is called, over and over.
    #[derive(Default)]
    struct Mock {
        rates: Vec<(&'static str, Vec<f64>)>,
        calls: Vec<String>,
        interrupt_after: Option<usize>,
    }

    impl Executor for Mock {
        fn execute(&mut self, job: &Job, _: &Place) -> Result<Output, Failure> {
            let name = job.program(CLIENT).unwrap().display();
            let before = self.calls.iter().filter(|call| **call == name).count();
            self.calls.push(name.clone());
            let rates = self.rates.iter().find(|(build, _)| *build == name);
            let (_, rates) = rates.ok_or_else(|| Failure {
                reason: "exit status 1".to_owned(),
                tail: vec![],
            })?;
            Ok(Output::of_client(&rates[before % rates.len()].to_string()))
        }
        fn execute_alone(
            &mut self,
            _: &Invocation,
            _: &Place,
            _: Duration,
        ) -> Result<String, Failure> {
            unreachable!("a stack that has no program to count is not asked to run one")
        }
        fn interrupted(&self) -> bool {
            self.interrupt_after.is_some_and(|n| self.calls.len() >= n)
        }
    }

    struct Ran {
        rows: Vec<RowRecord>,
        calls: Vec<String>,
        told: Vec<String>,
    }

    impl Ran {
        fn comparison(&self) -> Comparison<'_> {
            comparisons_of(&self.rows[0], 0.02).remove(0)
        }
    }

    fn run(names: [&'static str; 2], mock: Mock) -> Ran {
        let [this, beside] =
            names.map(|name| -> Vec<Box<dyn Stack>> { vec![Box::new(Fake(name))] });
        let row = Row {
            path: PathKind::Loopback,
            workload: std::rc::Rc::new(WORKLOAD),
            stacks: vec![0],
        };
        let mut runner = Beside {
            sampler: Sampler::new(mock, 1),
            builds: [&this, &beside],
            rule: Rule {
                most: 30,
                precision: 0.02,
            },
            counting: Counting::Undecided,
        };
        let mut told = Vec::new();
        let rows = runner.run(
            &[vec![row]],
            &Place::loopback(None),
            &mut |line| {
                told.push(line.line.to_owned());
            },
            &mut |_| {},
        );
        let calls = runner.sampler.executor.calls;
        Ran { rows, calls, told }
    }

    fn rates(this: &[f64], beside: &[f64]) -> Mock {
        Mock {
            rates: vec![("new", this.to_vec()), ("before", beside.to_vec())],
            ..Mock::default()
        }
    }

    #[test]
    fn builds_alternate_and_the_order_within_pairs_too_until_the_interval_is_narrow() {
        let ran = run(["new", "before"], rates(&[100.0, 101.0], &[100.0]));
        let pair = ["new", "before", "before", "new"];
        assert_eq!(ran.calls, [pair, pair, pair].concat());
        let comparison = ran.comparison();
        assert_eq!(comparison.verdict, Verdict::NoSlower);
        assert_eq!(comparison.pairs, 6);
        // What decided is in the record, of the build that is judged.
        let estimate = comparison.estimate.unwrap();
        assert_eq!(ran.rows[0].cells[0].ratio, Some(estimate.record(6)));
        assert_eq!(ran.rows[0].cells[1].ratio, None);
        let cells = &ran.rows[0].cells;
        let builds: Vec<_> = cells.iter().filter_map(|c| c.build.as_deref()).collect();
        assert_eq!(builds, [THIS, BESIDE]);
        assert!(cells.iter().all(|cell| cell.instructions.is_none()));
    }

    #[test]
    fn a_wide_interval_takes_every_pair_and_then_a_count() {
        let ran = run(["new", "before"], rates(&WIDE, &[100.0]));
        assert_eq!(ran.calls.len(), 60);
        assert_eq!(ran.comparison().verdict, Verdict::TooWide);
        let counted = ran.rows[0].cells[0].instructions.as_ref().unwrap();
        // Here it is the stack or this machine that has no way to count.
        assert!(counted.skipped.is_some());
        assert!(ran.told.last().unwrap().contains("not counted"));
    }

    #[test]
    fn a_build_that_fails_is_given_up_soon_and_its_failures_stay() {
        let ran = run(["new", "broken"], rates(&[100.0], &[]));
        assert_eq!(ran.calls.len(), 2 * NO_FIGURE_PAIRS as usize);
        assert_eq!(ran.comparison().verdict, Verdict::NoFigure);
        assert_eq!(ran.rows[0].cells[1].failures().count(), 3);
        assert!(ran.told.last().unwrap().contains("given up"));
    }

    #[test]
    fn what_one_build_alone_can_run_is_skipped_in_words() {
        let ran = run(["new", "old"], rates(&[100.0], &[]));
        assert_eq!(ran.calls, [""; 0]);
        assert_eq!(ran.comparison().verdict, Verdict::Skipped);
        let told = [
            "loopback/send-rate-64 weft (this): skipped: the build beside it cannot run it",
            "loopback/send-rate-64 weft (beside): skipped: it has no such program",
        ];
        assert_eq!(ran.told, told);
    }

    #[test]
    fn an_interrupt_keeps_what_was_measured() {
        let mock = Mock {
            interrupt_after: Some(3),
            ..rates(&[100.0], &[100.0])
        };
        let ran = run(["new", "before"], mock);
        assert_eq!(ran.calls.len(), 3);
        assert_eq!(ran.comparison().pairs, 1);
    }
}
