//! One sample of one cell: a job run, its figures read, the outcome kept whatever it is.

use std::net::TcpListener;
use std::time::Instant;

use crate::exec::{Executor, Output};
use crate::job::{Job, Role};
use crate::metric::Metric;
use crate::path::Place;
use crate::plan::Row;
use crate::record::{CellRecord, CommandRecord, Failure, Metrics, Outcome, Sample};
use crate::stack::{Site, Stack};
use crate::workload::Workload;

/// Seconds a sample takes beyond its measuring: its programs start, connect and end. As measured: 0.1 to 0.2 of the
/// bench's own, up to 0.7 of others.
const OVERHEAD: f64 = 0.3;

/// Takes what there is to say about what is going on.
pub type Progress<'a> = &'a mut dyn FnMut(Told);

/// A line about what is going on, and how much of the plan that was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told<'a> {
    /// The line.
    pub line: &'a str,
    /// Seconds that the plan had for what is through now, whatever it took.
    pub planned: f64,
}

impl<'a> Told<'a> {
    /// A line about nothing that was planned.
    pub fn note(line: &'a str) -> Told<'a> {
        Told { line, planned: 0.0 }
    }
}

/// Which measurement of a cell is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Counted from 1.
    pub repetition: u32,
    /// What another stack came to in this repetition, where that is the pace of this one.
    pub pace: Option<f64>,
}

impl Turn {
    /// One that goes as fast as it can.
    pub fn free(repetition: u32) -> Turn {
        Turn {
            repetition,
            pace: None,
        }
    }
}

/// Takes samples, one after another.
pub struct Sampler<E> {
    /// Starts the programs.
    pub executor: E,
    /// Seconds a cell measures for.
    pub seconds: u32,
    /// When the run started, or went on.
    pub started: Instant,
    /// Seconds from the start of the run to [`Sampler::started`].
    pub before: f64,
    ports: Ports,
    done: usize,
}

impl<E: Executor> Sampler<E> {
    /// A sampler that has taken nothing yet.
    pub fn new(executor: E, seconds: u32) -> Self {
        Sampler {
            executor,
            seconds,
            started: Instant::now(),
            before: 0.0,
            ports: Ports::new(),
            done: 0,
        }
    }

    /// Puts down that `row` was not run for want of something, as a failure of this repetition.
    pub fn go_without(
        &mut self,
        row: &Row,
        cell: &mut CellRecord,
        repetition: u32,
        reason: String,
        progress: Progress,
    ) {
        let outcome = Outcome::Failure(Failure {
            reason,
            tail: Vec::new(),
        });
        self.done += 1;
        progress(Told {
            line: &line(self.done, row, &cell.label(), repetition, &outcome),
            planned: planned_seconds(row.workload.as_ref(), self.seconds),
        });
        cell.samples.push(Sample {
            repetition,
            at: millis(self.before + self.started.elapsed().as_secs_f64()),
            took: 0.0,
            roles: Vec::new(),
            machine: None,
            outcome,
        });
    }

    /// Runs `stack` on `row` once and puts what came of it into `cell`; nothing when the user interrupts it. The pace
    /// that it was given stands among its figures.
    pub fn take(
        &mut self,
        row: &Row,
        stack: &dyn Stack,
        cell: &mut CellRecord,
        turn: Turn,
        place: &Place,
        progress: Progress,
    ) {
        let site = Site {
            place,
            port: self.ports.next(),
            seconds: self.seconds,
        };
        let job = match turn.pace {
            Some(pace) => row.workload.job_at(stack, &site, pace),
            None => row.workload.job(stack, &site),
        };
        let start = Instant::now();
        let result = self.executor.execute(&job, place);
        let took = start.elapsed().as_secs_f64();
        if self.executor.interrupted() {
            // What a killed program printed is neither a figure nor a failure of the stack.
            return;
        }
        let read = |output: &Output| {
            let metrics = row.workload.parse(stack, output);
            metrics
                .and_then(|m| checked(m, row.workload.metric()))
                .map_err(|e| unreadable(&e, output))
        };
        let (mut roles, mut machine) = (Vec::new(), None);
        let outcome = match result.and_then(|output| Ok((read(&output)?, output))) {
            Ok((mut metrics, output)) => {
                let pace = row.workload.paced_by().zip(turn.pace);
                metrics.extend(pace.map(|((_, metric), pace)| (pace_key(metric), pace)));
                roles = output.roles.into_iter().map(|role| role.taken).collect();
                machine = output.machine;
                Outcome::Metrics(metrics)
            }
            Err(failure) => Outcome::Failure(failure),
        };
        self.done += 1;
        progress(Told {
            line: &line(self.done, row, &cell.label(), turn.repetition, &outcome),
            planned: planned_seconds(row.workload.as_ref(), self.seconds),
        });
        cell.commands = commands(&job, place);
        let at = self.before + (start - self.started).as_secs_f64();
        cell.samples.push(Sample {
            repetition: turn.repetition,
            at: millis(at),
            took: millis(took),
            roles,
            machine,
            outcome,
        });
    }
}

/// Key of the pace that a sample was given, by the metric that tells it.
pub fn pace_key(metric: Metric) -> String {
    format!("pace_{}", metric.key)
}

/// About how many seconds one sample takes.
pub(crate) fn planned_seconds(workload: &dyn Workload, cell_seconds: u32) -> f64 {
    workload.share() * f64::from(cell_seconds) + OVERHEAD
}

/// A cell without the metric its row is judged by, or with one that cannot be, is a failure.
fn checked(metrics: Metrics, metric: Metric) -> anyhow::Result<Metrics> {
    match metrics.get(metric.key) {
        Some(value) if *value > 0.0 => Ok(metrics),
        Some(value) => anyhow::bail!("{} is {value}", metric.key),
        None => anyhow::bail!("there is no {}", metric.key),
    }
}

/// The last lines are those of the role that started last: it measures.
fn unreadable(error: &anyhow::Error, output: &Output) -> Failure {
    let Some(role) = output.roles.last() else {
        return Failure {
            reason: format!("{error:#}"),
            tail: Vec::new(),
        };
    };
    let lines: Vec<&str> = role.out.lines().filter(|l| !l.trim().is_empty()).collect();
    let tail = lines[lines.len().saturating_sub(8)..]
        .iter()
        .map(|l| format!("{}: {l}", role.taken.role))
        .collect();
    Failure {
        reason: format!("{error:#}"),
        tail,
    }
}

/// The cast as a record has it.
fn commands(job: &Job, place: &Place) -> Vec<CommandRecord> {
    let command = |role: &Role| CommandRecord {
        role: role.name.clone(),
        host: place
            .hosts
            .get(role.host)
            .map_or(String::new(), |host| host.name.clone()),
        core: if job.pinned {
            place.core(role.seat)
        } else {
            None
        },
        command: role.program.display(),
    };
    job.roles.iter().map(command).collect()
}

fn line(done: usize, row: &Row, stack: &str, repetition: u32, outcome: &Outcome) -> String {
    let metric = row.workload.metric();
    let text = match outcome {
        Outcome::Metrics(m) => format!(
            "{:.2} {}",
            m.get(metric.key).copied().unwrap_or_default(),
            metric.unit
        ),
        Outcome::Failure(f) => format!("FAILED: {}", f.reason),
    };
    format!("{done:4}  {} #{repetition}  {stack}: {text}", row.id())
}

fn millis(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Ports below the ephemeral range, a fresh one for each job: the last one's may still be in
/// TIME-WAIT.
struct Ports(u16);

impl Ports {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 10_000;

    fn new() -> Self {
        // Two benches at once start apart.
        Ports((std::process::id() % u32::from(Self::COUNT)) as u16)
    }

    fn next(&mut self) -> u16 {
        for _ in 0..Self::COUNT {
            self.0 = (self.0 + 1) % Self::COUNT;
            if TcpListener::bind(("0.0.0.0", Self::FIRST + self.0)).is_ok() {
                break;
            }
        }
        Self::FIRST + self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PathKind;
    use crate::plan::workloads;
    use crate::record::Run;
    use crate::workload::Given;
    use std::path::Path as FilePath;

    #[test]
    fn a_run_takes_about_what_is_said_before_it() {
        let docs = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/measurements");
        let run = Run::read(&docs.join("2026-11-28-default-1.json")).unwrap();
        let (mut planned, mut took) = (0.0, 0.0);
        for row in &run.rows {
            let (path, id) = row.id.split_once('/').unwrap();
            let path = PathKind::from_name(path).unwrap();
            let all = workloads(path, true, &Given::default());
            let workload = all.iter().find(|workload| workload.id() == id).unwrap();
            for sample in row.cells.iter().flat_map(|cell| &cell.samples) {
                planned += planned_seconds(workload.as_ref(), 1);
                took += sample.took;
            }
        }
        let ratio = planned / took;
        assert!((0.9..1.1).contains(&ratio), "{planned} s instead of {took}");
    }
}
