//! UCX over TCP under its own `ucx_perftest`.

use anyhow::{Context, Result};

use super::{need, numbers, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::workload::{Mode, Op, Workload, GOODPUT, HALF_ROUND_TRIP, MESSAGE_RATE, ROUND_TRIP};

/// Octets in what `ucx_perftest` calls a megabyte.
const MEGABYTE: f64 = 1048576.0;

/// `ucx_perftest`: tagged messages for Sends, its put and get for Writes and Reads; polling only.
pub(super) struct Ucx;

impl Stack for Ucx {
    fn name(&self) -> String {
        "ucx tcp".to_owned()
    }

    fn serves(&self, workload: &Workload, _: PathKind) -> bool {
        match workload {
            Workload::Latency { mode, .. } | Workload::Bulk { mode, .. } => *mode == Mode::Polling,
            Workload::Rate { post_list, .. } => *post_list == 1,
            Workload::Connect => false,
        }
    }

    fn ready(&self) -> Result<()> {
        need("ucx_perftest", "ucx-utils")
    }

    fn job(&self, workload: &Workload, site: &Site) -> Job {
        let side = |interface: &str| {
            Invocation::new("ucx_perftest", test(workload, site))
                .args(["-p", &site.port.to_string()])
                .env("UCX_TLS", "tcp")
                .env("UCX_NET_DEVICES", interface)
        };
        let client = side(&site.place.client.interface).args([site.place.address.to_string()]);
        site.job(workload, side(&site.place.server.interface), client)
    }

    fn parse(&self, workload: &Workload, output: &Output) -> Result<Metrics> {
        let last = output
            .client
            .lines()
            .filter_map(|line| line.strip_prefix("Final:"))
            .next_back();
        let last = last.context("ucx_perftest printed no final line")?;
        // iterations, percentile, average, overall (µs), average, overall (MB/s), average, overall (messages/s)
        let figures = numbers(last).filter(|f| f.len() == 8);
        let figures = figures
            .with_context(|| format!("ucx_perftest printed an unknown final line: {last}"))?;
        let (median, mean, megabytes, rate) = (figures[1], figures[3], figures[5], figures[7]);
        let value = match workload.metric() {
            metric if metric == HALF_ROUND_TRIP || metric == ROUND_TRIP => median,
            metric if metric == GOODPUT => megabytes * MEGABYTE * 8.0 / 1e9,
            metric if metric == MESSAGE_RATE => rate,
            metric => anyhow::bail!("ucx_perftest has no {}", metric.key),
        };
        Ok(Metrics::from([
            (workload.metric().key.to_owned(), value),
            ("mean_us".to_owned(), mean),
        ]))
    }
}

/// Test, size and counts.
fn test(workload: &Workload, site: &Site) -> Vec<String> {
    // What UCX does over kernel TCP, rounded down: 1.5 GB/s, 0.2 M messages/s.
    let stream = |size: u64| site.count((size as f64 / 1500.0).max(5.0), 50);
    let (name, size, iterations, outstanding) = match *workload {
        Workload::Latency {
            op,
            size,
            mode,
            pinned,
        } => {
            let name = by_op(op, "tag_lat", "ucp_put_lat", "ucp_get");
            let round_trips = site.round_trips(Op::Write, size, mode, pinned);
            (name, size, round_trips, (op == Op::Read).then_some(1))
        }
        Workload::Bulk { op, size, .. } => (
            by_op(op, "tag_bw", "ucp_put_bw", "ucp_get"),
            size,
            stream(size),
            None,
        ),
        Workload::Rate {
            op, size, depth, ..
        } => (
            by_op(op, "tag_bw", "ucp_put_bw", "ucp_get"),
            size,
            stream(size),
            Some(depth),
        ),
        Workload::Connect => ("tag_lat", 64, 1, None),
    };
    let mut words = vec![
        "-t".to_owned(),
        name.to_owned(),
        "-s".to_owned(),
        size.to_string(),
        "-n".to_owned(),
        iterations.to_string(),
        "-w".to_owned(),
        (iterations / 10).to_string(),
    ];
    words.extend(outstanding.map(|n| format!("-O{n}")));
    words
}

fn by_op<T>(op: Op, send: T, write: T, read: T) -> T {
    match op {
        Op::Send => send,
        Op::Write => write,
        Op::Read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(workload: &Workload, client: &str) -> Result<Metrics> {
        Ucx.parse(
            workload,
            &Output {
                client: client.to_owned(),
                server: String::new(),
            },
        )
    }

    #[test]
    fn latency_is_the_median_column() {
        let ping = Workload::Latency {
            op: Op::Send,
            size: 64,
            mode: Mode::Polling,
            pinned: true,
        };
        let metrics = parse(&ping, include_str!("../../tests/samples/ucx_tag_lat.txt")).unwrap();
        assert_eq!((metrics["half_rtt_us"], metrics["mean_us"]), (7.683, 8.020));
    }

    #[test]
    fn the_final_line_counts_not_the_stages_before_it() {
        let bulk = Workload::Bulk {
            op: Op::Write,
            size: 1 << 20,
            mode: Mode::Polling,
        };
        let metrics = parse(&bulk, include_str!("../../tests/samples/ucx_put_bw.txt")).unwrap();
        assert!((metrics["goodput_gbit_s"] - 500.88 * 1048576.0 * 8.0 / 1e9).abs() < 1e-9);
    }

    #[test]
    fn message_rate_is_the_overall_one() {
        let rate = Workload::Rate {
            op: Op::Send,
            size: 64,
            depth: 128,
            post_list: 1,
        };
        let metrics = parse(&rate, include_str!("../../tests/samples/ucx_tag_bw.txt")).unwrap();
        assert_eq!(metrics["messages_per_s"], 164854.0);
    }

    #[test]
    fn a_run_that_did_not_finish_is_an_error() {
        let ping = Workload::Latency {
            op: Op::Send,
            size: 64,
            mode: Mode::Polling,
            pinned: true,
        };
        assert!(parse(
            &ping,
            "[thread 0]  1522  1096.6  656.8  656.8  0.09  0.09  1523  1523\n"
        )
        .is_err());
    }
}
