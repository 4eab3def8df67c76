//! Runs a plan: in each repetition every cell of a group once, in turn, so that what disturbs the
//! machine for a while disturbs all of them.

use std::collections::HashMap;
use std::time::Duration;

use crate::exec::Executor;
use crate::path::Place;
use crate::plan::{Group, Row};
use crate::record::{CellRecord, RowRecord, Subject};
use crate::sample::{Progress, Sampler};
use crate::stack::{references, Stack};
use crate::workload::Workload;

/// Seconds a cell takes beyond its measuring: two processes start, connect and end.
const OVERHEAD: f64 = 0.5;

/// Runs groups on one path after another.
pub struct Runner<'a, E> {
    /// Takes the samples.
    pub sampler: Sampler<E>,
    /// What row indices refer to.
    pub stacks: &'a [Box<dyn Stack>],
    /// Times each cell is measured.
    pub repetitions: u32,
    /// Why a stack cannot run, asked once per stack.
    ready: HashMap<usize, Option<String>>,
}

/// One cell while it is being measured.
struct Cell {
    row: usize,
    stack: usize,
    record: CellRecord,
}

impl<'a, E: Executor> Runner<'a, E> {
    /// A runner that has run nothing yet.
    pub fn new(executor: E, stacks: &'a [Box<dyn Stack>], repetitions: u32, seconds: u32) -> Self {
        Runner {
            sampler: Sampler::new(executor, seconds),
            stacks,
            repetitions,
            ready: HashMap::new(),
        }
    }

    /// About how long these groups will take.
    pub fn expected(&self, groups: &[Group]) -> Duration {
        let seconds = |row: &Row| {
            sample_seconds(&row.workload, self.sampler.seconds)
                * row.stacks.len() as f64
                * f64::from(self.repetitions)
        };
        Duration::from_secs_f64(groups.iter().flatten().map(seconds).sum())
    }

    /// Runs the groups of one path; ends early when the executor says that the user wants no more.
    pub fn run(&mut self, groups: &[Group], place: &Place, progress: Progress) -> Vec<RowRecord> {
        let mut records = Vec::new();
        for group in groups {
            if self.sampler.executor.interrupted() {
                break;
            }
            records.extend(self.run_group(group, place, progress));
        }
        records
    }

    fn run_group(&mut self, group: &Group, place: &Place, progress: Progress) -> Vec<RowRecord> {
        let mut cells = self.cells(group, progress);
        for repetition in 1..=self.repetitions {
            for cell in cells
                .iter_mut()
                .filter(|cell| cell.record.skipped.is_none())
            {
                if self.sampler.executor.interrupted() {
                    break;
                }
                let stack = self.stacks[cell.stack].as_ref();
                let row = &group[cell.row];
                self.sampler
                    .take(row, stack, &mut cell.record, repetition, place, progress);
            }
        }
        let mut rows: Vec<RowRecord> = group.iter().map(empty_row).collect();
        for cell in cells {
            rows[cell.row].cells.push(cell.record);
        }
        rows
    }

    fn cells(&mut self, group: &Group, progress: Progress) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (row, of) in group.iter().enumerate() {
            for &stack in &of.stacks {
                let skipped = self.why_not(stack);
                let name = self.stacks[stack].name();
                if let Some(reason) = &skipped {
                    progress(&format!("{} {name}: skipped: {reason}", of.id()));
                }
                let record = CellRecord {
                    skipped,
                    ..CellRecord::new(name)
                };
                cells.push(Cell { row, stack, record });
            }
        }
        cells
    }

    fn why_not(&mut self, stack: usize) -> Option<String> {
        let stacks = self.stacks;
        self.ready
            .entry(stack)
            .or_insert_with(|| stacks[stack].ready().err().map(|e| format!("{e:#}")))
            .clone()
    }
}

/// About how many seconds one sample takes.
pub(crate) fn sample_seconds(workload: &Workload, cell_seconds: u32) -> f64 {
    let measuring = match workload {
        Workload::Latency { .. } => 0.5,
        _ => 1.0,
    };
    measuring * f64::from(cell_seconds) + OVERHEAD
}

pub(crate) fn empty_row(row: &Row) -> RowRecord {
    RowRecord {
        id: row.id(),
        path: row.path.name().to_owned(),
        workload: Subject::Workload(row.workload),
        metric: row.workload.metric(),
        reference: references(&row.workload),
        cells: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Output;
    use crate::job::{Invocation, Job};
    use crate::metric::MESSAGE_RATE;
    use crate::path::PathKind;
    use crate::record::{Failure, Metrics};
    use crate::stack::Site;
    use crate::workload::{Mode, Op};
    use std::cell::RefCell;
    use std::rc::Rc;

    const WORKLOAD: Workload = Workload::Rate {
        op: Op::Send,
        size: 64,
        depth: 1,
        post_list: 1,
    };

    /// A stack whose client is called after it.
    struct Fake(&'static str);

    impl Stack for Fake {
        fn name(&self) -> String {
            self.0.to_owned()
        }
        fn serves(&self, _: &Workload, _: PathKind) -> bool {
            true
        }
        fn ready(&self) -> anyhow::Result<()> {
            anyhow::ensure!(self.0 != "absent", "not installed");
            Ok(())
        }
        fn job(&self, workload: &Workload, site: &Site) -> Job {
            let none = [""; 0];
            site.job(
                workload,
                Invocation::new(self.0, none),
                Invocation::new(self.0, none),
            )
        }
        fn parse(&self, _: &Workload, output: &Output) -> anyhow::Result<Metrics> {
            Ok(Metrics::from([(
                MESSAGE_RATE.key.to_owned(),
                output.client.trim().parse()?,
            )]))
        }
    }

    /// "Runs" a program by answering with a number that grows by one at each call, and keeps the
    /// order of calls.
    #[derive(Default)]
    struct Mock {
        calls: Rc<RefCell<Vec<String>>>,
        interrupt_after: Option<usize>,
    }

    impl Executor for Mock {
        fn execute(&mut self, job: &Job, _: &Place) -> Result<Output, Failure> {
            let mut calls = self.calls.borrow_mut();
            calls.push(job.client.display());
            match job.client.display().as_str() {
                "broken" => Err(Failure {
                    reason: "exit status 1".into(),
                    tail: vec!["client: no device".into()],
                }),
                "zero" => Ok(Output {
                    client: "0".into(),
                    ..Output::default()
                }),
                "garbled" => Ok(Output {
                    client: "?\n".into(),
                    ..Output::default()
                }),
                _ => Ok(Output {
                    client: calls.len().to_string(),
                    ..Output::default()
                }),
            }
        }
        fn execute_alone(
            &mut self,
            _: &Invocation,
            _: &Place,
            _: Duration,
        ) -> Result<String, Failure> {
            unreachable!("the runner starts pairs of programs only")
        }
        fn interrupted(&self) -> bool {
            self.interrupt_after
                .is_some_and(|n| self.calls.borrow().len() >= n)
        }
    }

    fn run(names: &[&'static str], mock: Mock, repetitions: u32) -> (Vec<RowRecord>, Vec<String>) {
        let calls = mock.calls.clone();
        let stacks: Vec<Box<dyn Stack>> = names
            .iter()
            .map(|n| Box::new(Fake(n)) as Box<dyn Stack>)
            .collect();
        let row = |workload| Row {
            path: PathKind::Loopback,
            workload,
            stacks: (0..stacks.len()).collect(),
        };
        let mut runner = Runner::new(mock, &stacks, repetitions, 1);
        let rows = runner.run(&[vec![row(WORKLOAD)]], &Place::loopback(None), &mut |_| {});
        let calls = calls.borrow().clone();
        (rows, calls)
    }

    #[test]
    fn stacks_take_turns_and_every_sample_is_kept() {
        let (rows, calls) = run(&["a", "b"], Mock::default(), 3);
        assert_eq!(calls, ["a", "b", "a", "b", "a", "b"]);
        assert_eq!(
            rows[0].cells[0].values("messages_per_s"),
            [(1, 1.0), (2, 3.0), (3, 5.0)]
        );
        assert_eq!(
            rows[0].cells[1].values("messages_per_s"),
            [(1, 2.0), (2, 4.0), (3, 6.0)]
        );
    }

    #[test]
    fn rows_of_a_group_take_turns_too() {
        let mock = Mock::default();
        let calls = mock.calls.clone();
        let stacks: Vec<Box<dyn Stack>> = vec![Box::new(Fake("a"))];
        let row = |op| {
            let workload = Workload::Latency {
                op,
                size: 64,
                mode: Mode::Polling,
                pinned: false,
            };
            Row {
                path: PathKind::Loopback,
                workload,
                stacks: vec![0],
            }
        };
        let group = vec![row(Op::Send), row(Op::Write)];
        let rows =
            Runner::new(mock, &stacks, 2, 1).run(&[group], &Place::loopback(None), &mut |_| {});
        assert_eq!((rows.len(), calls.borrow().len()), (2, 4));
        let order: Vec<f64> = rows
            .iter()
            .flat_map(|r| &r.cells[0].samples)
            .map(|s| s.at)
            .collect();
        assert!(
            order[0] <= order[2] && order[2] <= order[1] && order[1] <= order[3],
            "{order:?}"
        );
    }

    #[test]
    fn failures_stay_in_the_record_with_the_last_lines() {
        let (rows, _) = run(&["broken", "garbled", "zero", "a"], Mock::default(), 2);
        let reasons = |i: usize| {
            rows[0].cells[i]
                .failures()
                .map(|f| f.reason.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(reasons(0), ["exit status 1"; 2]);
        assert_eq!(
            rows[0].cells[0].failures().next().unwrap().tail,
            ["client: no device"]
        );
        assert_eq!(reasons(1), ["invalid float literal"; 2]);
        assert_eq!(
            rows[0].cells[1].failures().next().unwrap().tail,
            ["client: ?"]
        );
        assert_eq!(reasons(2), ["messages_per_s is 0"; 2]);
        assert_eq!(rows[0].cells[3].samples.len(), 2);
    }

    #[test]
    fn a_stack_that_is_not_installed_is_skipped_with_its_reason() {
        let (rows, calls) = run(&["absent", "a"], Mock::default(), 1);
        assert_eq!(calls, ["a"]);
        assert_eq!(rows[0].cells[0].skipped.as_deref(), Some("not installed"));
    }

    #[test]
    fn an_interrupt_keeps_what_was_measured_and_nothing_of_the_killed_job() {
        let mock = Mock {
            interrupt_after: Some(3),
            ..Mock::default()
        };
        let (rows, calls) = run(&["a", "b"], mock, 5);
        assert_eq!(calls.len(), 3);
        assert_eq!(
            rows[0].cells.iter().map(|c| c.samples.len()).sum::<usize>(),
            2
        );
    }
}
