//! Runs a plan: in each repetition every cell of a group once, in turn, so that what disturbs the
//! machine for a while disturbs all of them.

use std::collections::HashMap;
use std::time::Duration;

use crate::exec::Executor;
use crate::path::Place;
use crate::plan::{Group, Row};
use crate::record::{CellRecord, RowRecord};
use crate::sample::{planned_seconds, Progress, Sampler, Told, Turn};
use crate::stack::Stack;

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

impl Cell {
    /// Whether this repetition is still to be measured.
    fn lacks(&self, repetition: u32) -> bool {
        let samples = &self.record.samples;
        self.record.skipped.is_none() && samples.iter().all(|s| s.repetition != repetition)
    }
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
            // One cell more, for what is measured twice.
            self.cell_seconds(row) * (row.stacks.len() + 1) as f64
        };
        Duration::from_secs_f64(groups.iter().flatten().map(seconds).sum())
    }

    fn cell_seconds(&self, row: &Row) -> f64 {
        planned_seconds(row.workload.as_ref(), self.sampler.seconds) * f64::from(self.repetitions)
    }

    /// Runs the groups of one path; ends early when the executor says that the user wants no more. `earlier` are rows
    /// that an earlier run has begun: what they have is not measured again. `keep` is told of all rows so far after
    /// each group.
    pub fn run(
        &mut self,
        groups: &[Group],
        place: &Place,
        earlier: &[RowRecord],
        progress: Progress,
        keep: &mut dyn FnMut(&[RowRecord]),
    ) -> Vec<RowRecord> {
        let mut records = Vec::new();
        for group in groups {
            if self.sampler.executor.interrupted() {
                // What is not reached is not lost.
                let begun = group.iter().filter_map(|row| found(earlier, row));
                records.extend(begun.cloned());
                continue;
            }
            records.extend(self.run_group(group, place, earlier, progress));
            keep(&records);
        }
        records
    }

    fn run_group(
        &mut self,
        group: &Group,
        place: &Place,
        earlier: &[RowRecord],
        progress: Progress,
    ) -> Vec<RowRecord> {
        let mut cells = self.cells(group, place, earlier, progress);
        for repetition in 1..=self.repetitions {
            for at in 0..cells.len() {
                if self.sampler.executor.interrupted() {
                    break;
                }
                if !cells[at].lacks(repetition) {
                    continue;
                }
                let row = &group[cells[at].row];
                let pace = self.pace(&cells, at, row, repetition);
                let cell = &mut cells[at];
                let stack = self.stacks[cell.stack].as_ref();
                let (sampler, record) = (&mut self.sampler, &mut cell.record);
                match pace {
                    Ok(pace) => {
                        let turn = Turn { repetition, pace };
                        sampler.take(row, stack, record, turn, place, progress);
                    }
                    Err(reason) => sampler.go_without(row, record, repetition, reason, progress),
                }
            }
        }
        let mut rows: Vec<RowRecord> = group.iter().map(empty_row).collect();
        for cell in cells {
            rows[cell.row].cells.push(cell.record);
        }
        rows
    }

    /// What the stack whose rate is the pace of a row came to in this repetition; none for that stack itself, under
    /// whatever name, and in rows without a pace. An error says that there is no such figure.
    fn pace(
        &self,
        cells: &[Cell],
        at: usize,
        row: &Row,
        repetition: u32,
    ) -> Result<Option<f64>, String> {
        let is = |cell: &Cell, name: &str| self.stacks[cell.stack].name() == name;
        let paced = row.workload.paced_by();
        let Some((name, metric)) = paced.filter(|(name, _)| !is(&cells[at], name)) else {
            return Ok(None);
        };
        let same = |cell: &&Cell| cell.row == cells[at].row && cell.record.stack == name;
        let sample = cells.iter().find(same).and_then(|cell| {
            let mut samples = cell.record.samples.iter();
            samples.find(|sample| sample.repetition == repetition)
        });
        let came_to = sample.and_then(|sample| sample.metrics()?.get(metric.key).copied());
        let rate = came_to.filter(|rate| rate.is_finite() && *rate > 0.0);
        match rate {
            Some(rate) => Ok(Some(rate)),
            None => Err(format!(
                "{name}, whose rate is to be its pace, has none in this repetition"
            )),
        }
    }

    /// The cells of a group in the order in which they take turns: all stacks, then what is measured twice, so that
    /// the others lie between its two measurements.
    fn cells(
        &mut self,
        group: &Group,
        place: &Place,
        earlier: &[RowRecord],
        progress: Progress,
    ) -> Vec<Cell> {
        let mut cells = Vec::new();
        for (row, of) in group.iter().enumerate() {
            for &stack in &of.stacks {
                let skipped = cannot_run(of, place).or_else(|| self.why_not(stack));
                let name = self.stacks[stack].name();
                if let Some(reason) = &skipped {
                    progress(Told {
                        line: &format!("{} {name}: skipped: {reason}", of.id()),
                        planned: self.cell_seconds(of),
                    });
                }
                let record = CellRecord {
                    skipped,
                    ..CellRecord::new(name)
                };
                cells.push(Cell { row, stack, record });
            }
        }
        for (row, of) in group.iter().enumerate() {
            let twice = match cannot_run(of, place) {
                Some(_) => None,
                None => self.measured_twice(of),
            };
            if let Some(stack) = twice {
                let name = self.stacks[stack].name();
                let record = CellRecord {
                    again: Some(name.clone()),
                    ..CellRecord::new(format!("{name}, again"))
                };
                cells.push(Cell { row, stack, record });
            }
        }
        for cell in &mut cells {
            let begun =
                found(earlier, &group[cell.row]).and_then(|row| row.cell(&cell.record.stack));
            if let Some(begun) = begun {
                cell.record.samples.clone_from(&begun.samples);
                cell.record.commands.clone_from(&begun.commands);
                progress(Told {
                    line: &format!(
                        "{} {}: has {} samples",
                        group[cell.row].id(),
                        begun.stack,
                        begun.samples.len()
                    ),
                    planned: self.cell_seconds(&group[cell.row]) * begun.samples.len() as f64
                        / f64::from(self.repetitions),
                });
            }
        }
        cells
    }

    /// The stack that a row measures once more under another name: what the others are compared with, or the first
    /// that can run.
    fn measured_twice(&mut self, row: &Row) -> Option<usize> {
        let references = row.workload.references();
        let can_run: Vec<usize> = row
            .stacks
            .iter()
            .copied()
            .filter(|&stack| self.why_not(stack).is_none())
            .collect();
        let reference = |&&stack: &&usize| references.contains(&self.stacks[stack].name());
        can_run.iter().find(reference).or(can_run.first()).copied()
    }

    fn why_not(&mut self, stack: usize) -> Option<String> {
        let stacks = self.stacks;
        self.ready
            .entry(stack)
            .or_insert_with(|| stacks[stack].ready().err().map(|e| format!("{e:#}")))
            .clone()
    }
}

/// Why no stack can run a row.
fn cannot_run(row: &Row, place: &Place) -> Option<String> {
    starves(row, place).or_else(|| lacks(row))
}

/// What a row's own programs lack.
pub(crate) fn lacks(row: &Row) -> Option<String> {
    row.workload.ready().err().map(|error| format!("{error:#}"))
}

/// Why a row would measure how long the emulator of its path waits for a core: two programs that spin leave it none.
fn starves(row: &Row, place: &Place) -> Option<String> {
    const CORES: usize = 3;
    let online = std::thread::available_parallelism().map_or(1, usize::from);
    let starves = place.round_trip_us > 0.0 && row.workload.spins() && online < CORES;
    starves.then(|| {
        format!("its programs spin, and the emulated link needs a core of its own: {CORES} cores, here are {online}")
    })
}

/// The row as an earlier run began it.
fn found<'r>(earlier: &'r [RowRecord], row: &Row) -> Option<&'r RowRecord> {
    let id = row.id();
    earlier.iter().find(|record| record.id == id)
}

pub(crate) fn empty_row(row: &Row) -> RowRecord {
    RowRecord {
        id: row.id(),
        path: row.path.name().to_owned(),
        workload: row.workload.subject(),
        metric: row.workload.metric(),
        axis: row.workload.axis(),
        reference: row.workload.references(),
        cells: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Output;
    use crate::job::CLIENT;
    use crate::job::{Invocation, Job};
    use crate::metric::{Metric, MESSAGE_RATE};
    use crate::path::PathKind;
    use crate::record::{Failure, Metrics};
    use crate::stack::Site;
    use crate::verbs::{Mode, Op, Verbs};
    use crate::workload::Workload;
    use std::cell::RefCell;
    use std::rc::Rc;

    const WORKLOAD: Verbs = Verbs::Rate {
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
        fn serves(&self, _: &Verbs, _: PathKind) -> bool {
            true
        }
        fn ready(&self) -> anyhow::Result<()> {
            anyhow::ensure!(self.0 != "absent", "not installed");
            Ok(())
        }
        fn job(&self, workload: &Verbs, site: &Site) -> Job {
            let none = [""; 0];
            site.job(
                workload,
                Invocation::new(self.0, none),
                Invocation::new(self.0, none),
            )
        }
        fn parse(&self, _: &Verbs, output: &Output) -> anyhow::Result<Metrics> {
            Ok(Metrics::from([(
                MESSAGE_RATE.key.to_owned(),
                output.client().trim().parse()?,
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
            calls.push(job.program(CLIENT).unwrap().display());
            match job.program(CLIENT).unwrap().display().as_str() {
                "broken" => Err(Failure {
                    reason: "exit status 1".into(),
                    tail: vec!["client: no device".into()],
                }),
                "zero" => Ok(Output::of_client("0")),
                "garbled" => Ok(Output::of_client("?\n")),
                _ => Ok(Output::of_client(&calls.len().to_string())),
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
            workload: Rc::new(workload),
            stacks: (0..stacks.len()).collect(),
        };
        let mut runner = Runner::new(mock, &stacks, repetitions, 1);
        let rows = runner.run(
            &[vec![row(WORKLOAD)]],
            &Place::loopback(None),
            &[],
            &mut |_| {},
            &mut |_| {},
        );
        let calls = calls.borrow().clone();
        (rows, calls)
    }

    /// A row whose stacks go at the pace of one of them.
    #[derive(Debug)]
    struct Paced(&'static str);

    impl Workload for Paced {
        fn id(&self) -> String {
            "paced".to_owned()
        }
        fn describe(&self) -> String {
            self.id()
        }
        fn metric(&self) -> Metric {
            MESSAGE_RATE
        }
        fn references(&self) -> Vec<String> {
            vec![self.0.to_owned()]
        }
        fn serves(&self, _: &dyn Stack, _: PathKind) -> bool {
            true
        }
        fn paced_by(&self) -> Option<(&'static str, Metric)> {
            Some((self.0, MESSAGE_RATE))
        }
        fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
            stack.job(&WORKLOAD, site)
        }
        fn job_at(&self, stack: &dyn Stack, site: &Site, pace: f64) -> Job {
            let none = [""; 0];
            let client = Invocation::new(format!("{} at {pace}", stack.name()), none);
            site.job(&WORKLOAD, client.clone(), client)
        }
        fn parse(&self, stack: &dyn Stack, output: &Output) -> anyhow::Result<Metrics> {
            stack.parse(&WORKLOAD, output)
        }
    }

    fn paced(names: &[&'static str]) -> (Vec<RowRecord>, Vec<String>) {
        let mock = Mock::default();
        let calls = mock.calls.clone();
        let stacks: Vec<Box<dyn Stack>> = names
            .iter()
            .map(|name| Box::new(Fake(name)) as Box<dyn Stack>)
            .collect();
        let row = Row {
            path: PathKind::Loopback,
            workload: Rc::new(Paced(names[0])),
            stacks: (0..stacks.len()).collect(),
        };
        let mut runner = Runner::new(mock, &stacks, 2, 1);
        let place = Place::loopback(None);
        let rows = runner.run(&[vec![row]], &place, &[], &mut |_| {}, &mut |_| {});
        let calls = calls.borrow().clone();
        (rows, calls)
    }

    #[test]
    fn what_one_stack_comes_to_is_the_pace_of_the_others_in_that_repetition() {
        let (rows, calls) = paced(&["a", "b"]);
        // Each call answers with its number; what is measured twice goes as fast as it can, both times.
        assert_eq!(calls, ["a", "b at 1", "a", "a", "b at 4", "a"]);
        let paces = |cell: usize| rows[0].cells[cell].values("pace_messages_per_s");
        assert_eq!(paces(1), [(1, 1.0), (2, 4.0)]);
        assert_eq!((paces(0), paces(2)), (vec![], vec![]));
    }

    #[test]
    fn without_that_pace_nothing_is_measured_and_the_record_says_so() {
        for name in ["broken", "absent"] {
            let (rows, calls) = paced(&[name, "b"]);
            assert!(
                calls.iter().all(|call| !call.starts_with("b at")),
                "{calls:?}"
            );
            let mut failed = rows[0].cells[1].failures();
            let reason = &failed.next().unwrap().reason;
            let wanted = "whose rate is to be its pace, has none in this repetition";
            assert!(reason.contains(wanted), "{reason}");
            assert_eq!(failed.count(), 1);
        }
    }

    #[test]
    fn stacks_take_turns_and_every_sample_is_kept() {
        let (rows, calls) = run(&["a", "b"], Mock::default(), 3);
        // The first one twice, as there is no reference here.
        assert_eq!(calls, ["a", "b", "a", "a", "b", "a", "a", "b", "a"]);
        let values = |cell: usize| rows[0].cells[cell].values("messages_per_s");
        assert_eq!(values(0), [(1, 1.0), (2, 4.0), (3, 7.0)]);
        assert_eq!(values(1), [(1, 2.0), (2, 5.0), (3, 8.0)]);
        assert_eq!(values(2), [(1, 3.0), (2, 6.0), (3, 9.0)]);
        let again = &rows[0].cells[2];
        assert_eq!(
            (again.stack.as_str(), again.again.as_deref()),
            ("a, again", Some("a"))
        );
    }

    #[test]
    fn rows_of_a_group_take_turns_too() {
        let mock = Mock::default();
        let calls = mock.calls.clone();
        let stacks: Vec<Box<dyn Stack>> = vec![Box::new(Fake("a"))];
        let row = |op| {
            let workload = Verbs::Latency {
                op,
                size: 64,
                mode: Mode::Polling,
                pinned: false,
            };
            Row {
                path: PathKind::Loopback,
                workload: Rc::new(workload),
                stacks: vec![0],
            }
        };
        let group = vec![row(Op::Send), row(Op::Write)];
        let rows = Runner::new(mock, &stacks, 2, 1).run(
            &[group],
            &Place::loopback(None),
            &[],
            &mut |_| {},
            &mut |_| {},
        );
        // Two repetitions of two rows, each with what is measured twice.
        assert_eq!((rows.len(), calls.borrow().len()), (2, 8));
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
        assert_eq!(calls, ["a", "a"]);
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

    #[test]
    fn a_run_goes_on_where_it_was_ended() {
        let stacks: Vec<Box<dyn Stack>> = vec![Box::new(Fake("a")), Box::new(Fake("b"))];
        let group = |size| {
            let workload = Verbs::Rate {
                op: Op::Send,
                size,
                depth: 1,
                post_list: 1,
            };
            vec![Row {
                path: PathKind::Loopback,
                workload: Rc::new(workload),
                stacks: vec![0, 1],
            }]
        };
        let go_on = |earlier: &[RowRecord], interrupt_after| {
            let mock = Mock {
                interrupt_after,
                ..Mock::default()
            };
            let calls = mock.calls.clone();
            let mut kept = 0;
            let mut runner = Runner::new(mock, &stacks, 2, 1);
            let rows = runner.run(
                &[group(64), group(128)],
                &Place::loopback(None),
                earlier,
                &mut |_| {},
                &mut |rows| kept = rows.len(),
            );
            let calls = calls.borrow().len();
            (rows, calls, kept)
        };
        let samples = |rows: &[RowRecord]| -> Vec<usize> {
            let cells = rows.iter().flat_map(|row| &row.cells);
            cells.map(|cell| cell.samples.len()).collect()
        };
        // The fifth is killed.
        let (begun, _, kept) = go_on(&[], Some(5));
        assert_eq!((samples(&begun), kept), (vec![2, 1, 1], 1));
        let (more, calls, _) = go_on(&begun, Some(4));
        assert_eq!((samples(&more), calls), (vec![2, 2, 2, 1, 0, 0], 4));
        // Ended before it begins, it loses nothing.
        let (same, _, _) = go_on(&more, Some(0));
        assert_eq!(same, more);
        let (whole, calls, kept) = go_on(&more, None);
        assert_eq!((samples(&whole), calls, kept), (vec![2; 6], 5, 2));
        let repetitions: Vec<u32> = whole[0].cells[1]
            .samples
            .iter()
            .map(|s| s.repetition)
            .collect();
        assert_eq!(repetitions, [1, 2]);
    }
}
