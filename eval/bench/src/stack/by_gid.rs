//! What perftest does not measure of queue pairs brought up by GID and number: the bring-up
//! itself, and RDMA Writes with immediate data (which later versions of perftest have). A small C
//! program on the system's libibverbs, under `weft run`.

use std::path::PathBuf;

use anyhow::{ensure, Context, Result};

use super::compiled::{Source, CC};
use super::counted::Counted;
use super::{numbers, on_off, weft_gid_name, Programs, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::{BRING_UP, GOODPUT, MESSAGE_RATE, P99, P999};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stats::{median, quantile_of_sorted, sorted};
use crate::verbs::{Mode, Op, Verbs};

const SOURCE: Source = Source {
    name: "by_gid",
    compiler: CC,
    text: include_str!("../../c/by_gid.c"),
    libraries: &["-libverbs"],
};

/// Messages under way in a bulk row, as perftest has by default.
const DEPTH: u32 = 128;

/// The C program, compiled when it is first asked for.
pub(super) struct ByGid {
    weft: Weft,
    scratch: PathBuf,
    crc: bool,
    counted: Counted,
}

impl ByGid {
    pub(super) fn new(programs: &Programs, crc: bool) -> Self {
        ByGid {
            weft: programs.weft.clone(),
            scratch: programs.scratch.clone(),
            crc,
            counted: Counted::new(programs),
        }
    }
}

impl Stack for ByGid {
    fn name(&self) -> String {
        weft_gid_name(self.crc)
    }

    fn serves(&self, workload: &Verbs, path: PathKind) -> bool {
        match *workload {
            // What is compiled here is on no other machine.
            _ if path == PathKind::Hosts => false,
            Verbs::BringUp => true,
            Verbs::Latency { op, mode, .. } | Verbs::Bulk { op, mode, .. } => {
                op == Op::WriteImm && mode == Mode::Polling
            }
            Verbs::Rate { op, post_list, .. } => op == Op::WriteImm && post_list == 1,
            Verbs::Connect => false,
        }
    }

    fn ready(&self) -> Result<()> {
        self.weft.ready()?;
        SOURCE.compile(&self.scratch)
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let side = || {
            self.weft
                .run(&[])
                .args([SOURCE.program(&self.scratch)])
                .args([site.port.to_string()])
                .env("WEFT_CRC", on_off(self.crc))
        };
        let client = side()
            .args([site.place.server().address.to_string()])
            .args(order(workload, site));
        site.job(workload, side(), client)
    }

    fn parse(&self, workload: &Verbs, output: &Output) -> Result<Metrics> {
        parse(workload, output.client())
    }

    fn counted(&self, workload: &Verbs, messages: u64) -> Result<Invocation> {
        let program = self.counted.program(workload, messages)?;
        Ok(program.env("WEFT_CRC", on_off(self.crc)))
    }
}

/// What the client is told to measure.
fn order(workload: &Verbs, site: &Site) -> Vec<String> {
    let stream = |size: u64, depth: u32| {
        vec![
            "stream".to_owned(),
            size.to_string(),
            site.seconds.to_string(),
            depth.to_string(),
        ]
    };
    match *workload {
        Verbs::Latency {
            op,
            size,
            mode,
            pinned,
        } => vec![
            "latency".to_owned(),
            size.to_string(),
            site.round_trips(op, size, mode, pinned).to_string(),
        ],
        Verbs::Bulk { size, .. } => stream(size, DEPTH),
        Verbs::Rate { size, depth, .. } => stream(size, depth),
        Verbs::BringUp | Verbs::Connect => {
            vec!["bring-up".to_owned(), site.count(1000.0, 100).to_string()]
        }
    }
}

fn parse(workload: &Verbs, text: &str) -> Result<Metrics> {
    let rows: Vec<Vec<f64>> = text
        .lines()
        .map(|line| numbers(line).with_context(|| format!("by_gid printed {line:?}")))
        .collect::<Result<_>>()?;
    let column = |at: usize| -> Result<Vec<f64>> {
        let column: Option<Vec<f64>> = rows.iter().map(|row| row.get(at).copied()).collect();
        column
            .filter(|c| !c.is_empty())
            .context("by_gid printed too little")
    };
    match *workload {
        Verbs::Bulk { size, .. } | Verbs::Rate { size, .. } => {
            let (messages, nanoseconds) = (column(0)?[0], column(1)?[0]);
            ensure!(nanoseconds > 0.0, "nothing was received");
            Ok(Metrics::from([
                (
                    GOODPUT.key.to_owned(),
                    messages * size as f64 * 8.0 / nanoseconds,
                ),
                (MESSAGE_RATE.key.to_owned(), messages * 1e9 / nanoseconds),
            ]))
        }
        _ => {
            let times = sorted(&column(0)?);
            let at = |rank| quantile_of_sorted(&times, rank).context("by_gid printed no times");
            let mut metrics = Metrics::from([
                (workload.metric().key.to_owned(), at(0.5)?),
                ("min_us".to_owned(), at(0.0)?),
                (P99.to_owned(), at(0.99)?),
                (P999.to_owned(), at(0.999)?),
            ]);
            if workload.metric() == BRING_UP {
                metrics
                    .extend(median(&column(1)?).map(|with| ("with_exchange_us".to_owned(), with)));
            }
            Ok(metrics)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bring_up_tells_the_time_without_and_with_the_programs_own_exchange() {
        let metrics = parse(&Verbs::BringUp, "300.5 340\n200.5 250\n900 990\n").unwrap();
        assert_eq!(
            (
                metrics["bring_up_us"],
                metrics["with_exchange_us"],
                metrics["p99_us"]
            ),
            (300.5, 340.0, 900.0)
        );
    }

    #[test]
    fn a_stream_is_what_the_receiver_counted() {
        let bulk = Verbs::Bulk {
            op: Op::WriteImm,
            size: 1000,
            mode: Mode::Polling,
        };
        let metrics = parse(&bulk, "2000 1000000\n").unwrap();
        assert_eq!(
            (metrics["goodput_gbit_s"], metrics["messages_per_s"]),
            (16.0, 2e6)
        );
    }

    #[test]
    fn too_little_is_an_error() {
        let ping = Verbs::Latency {
            op: Op::WriteImm,
            size: 64,
            mode: Mode::Polling,
            pinned: true,
        };
        assert!(parse(&ping, "").is_err());
        assert!(parse(&ping, "9.5\ncompletion: timed out\n").is_err());
        assert!(parse(&Verbs::BringUp, "300.5\n").is_err());
    }
}
