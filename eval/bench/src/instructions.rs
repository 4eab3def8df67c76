//! Counting the instructions that messages take, with callgrind: what a busy machine does not disturb.

use std::time::Duration;

use crate::exec::Executor;
use crate::path::Place;
use crate::plan::Row;
use crate::record::{Count, Failure, Instructions};
use crate::stack::{need, Stack};
use crate::workload::Workload;

/// Runs of each length; the middle one counts. Two ends that poll look in vain more or less often, so that counts of
/// one build differ by 3 % from run to run.
pub const RUNS: usize = 9;
/// The program works in rounds of so many messages.
const ROUND: u64 = 128;
/// Rounds of short messages in a short run.
const ROUNDS: u64 = 40;
/// A long run has so many times the messages of a short one.
const LONGER: u64 = 5;
/// Messages longer than this make a run shorter, octets: with CRC on each of them costs instructions.
const SHORT_MESSAGE: u64 = 16 << 10;
/// How long one run may take; callgrind is fifty times slower than the machine.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Counts what a message of this row takes with each of these stacks, in turn: short run, long run, the next stack.
/// Where that cannot be, the reason stands in place of counts.
pub fn count<E: Executor>(
    executor: &mut E,
    row: &Row,
    stacks: [&dyn Stack; 2],
    place: &Place,
) -> [Instructions; 2] {
    let mut counted = [Instructions::default(), Instructions::default()];
    if let Err(reason) = need("valgrind", "valgrind") {
        return counted.map(|_| skipped(format!("{reason:#}")));
    }
    for _ in 0..RUNS {
        for (of_stack, stack) in counted.iter_mut().zip(stacks) {
            for messages in lengths(row.workload.as_ref()) {
                if of_stack.skipped.is_some() || executor.interrupted() {
                    continue;
                }
                let counted = run(executor, of_stack, row, stack, messages, place);
                if let (Err(reason), false) = (counted, executor.interrupted()) {
                    of_stack.skipped = Some(reason);
                }
            }
        }
    }
    counted
}

fn run<E: Executor>(
    executor: &mut E,
    counted: &mut Instructions,
    row: &Row,
    stack: &dyn Stack,
    messages: u64,
    place: &Place,
) -> Result<(), String> {
    let program = row
        .workload
        .counted(stack, messages)
        .map_err(|error| format!("{error:#}"))?;
    counted.command = program.display();
    let printed = executor
        .execute_alone(&program, place, TIMEOUT)
        .map_err(told)?;
    let instructions = collected(&printed).ok_or("callgrind printed no count")?;
    counted.counts.push(Count {
        messages,
        instructions,
    });
    Ok(())
}

/// The reason with the last line that is the program's own, and not callgrind's.
fn told(failure: Failure) -> String {
    let own = |line: &&String| !line.contains("program: ==");
    match failure.tail.iter().rev().find(own) {
        Some(line) => format!("{}; {line}", failure.reason),
        None => failure.reason,
    }
}

/// Messages of a short and of a long run.
fn lengths(workload: &dyn Workload) -> [u64; 2] {
    let size = workload.size().unwrap_or(1).max(1);
    let rounds = (ROUNDS * SHORT_MESSAGE / size).clamp(1, ROUNDS);
    [ROUND * rounds, ROUND * rounds * LONGER]
}

/// The number in callgrind's line `==PID== Collected : N`.
fn collected(printed: &str) -> Option<u64> {
    let line = printed.lines().find(|line| line.contains("Collected :"))?;
    line.split_ascii_whitespace().next_back()?.parse().ok()
}

fn skipped(reason: String) -> Instructions {
    Instructions {
        skipped: Some(reason),
        ..Instructions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::{Mode, Op, Verbs};

    #[test]
    fn long_messages_are_fewer_and_a_long_run_is_five_short_ones() {
        let of = |size| {
            lengths(&Verbs::Bulk {
                op: Op::Write,
                size,
                mode: Mode::Polling,
            })
        };
        assert_eq!(of(64), [5120, 25600]);
        assert_eq!(of(64 << 10), [1280, 6400]);
        assert_eq!(of(4 << 20), [128, 640]);
    }

    #[test]
    fn a_failure_is_told_without_what_callgrind_says_of_itself() {
        let tail = ["program: completion: error", "program: ==7== Callgrind"].map(str::to_owned);
        let failure = Failure {
            reason: "timed out".to_owned(),
            tail: tail.to_vec(),
        };
        assert_eq!(told(failure), "timed out; program: completion: error");
    }

    #[test]
    fn the_count_is_in_callgrinds_last_lines() {
        let printed =
            "==7== Callgrind, a call-graph generating cache profiler\n==7== Events    : Ir\n\
                       ==7== Collected : 22016544\n==7== \n==7== I   refs:      22,016,544\n";
        assert_eq!(collected(printed), Some(22_016_544));
        assert_eq!(collected("==7== Command: instructions\n"), None);
    }
}
