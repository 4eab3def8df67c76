//! UCX under its own `ucx_perftest`: over its own TCP and shared memory, and over Weft's device.

use anyhow::{Context, Result};

use super::{need, numbers, Site, Stack, Weft};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::metric::{GOODPUT, HALF_ROUND_TRIP, MESSAGE_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

/// Octets in what `ucx_perftest` calls a megabyte.
const MEGABYTE: f64 = 1048576.0;

/// Which of `ucx_perftest`'s tests. None of its gets: there the passive side sleeps a millisecond
/// between looks at the network, and what is measured is that. Bulk puts suffer from it too, but
/// are what users of the program see; tagged messages are beside them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    /// Tagged messages: both sides take part.
    Tag,
    /// Puts into the other side's memory.
    Put,
}

/// What carries UCX's messages.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Carrier {
    /// UCX's own TCP transport, nothing else.
    Tcp,
    /// UCX's own shared memory, nothing else: of one machine.
    SharedMemory,
    /// Its verbs transports (reliable connections, set up over datagrams) on the device of this `weft`.
    Weft(Weft),
}

/// UCX on one carrier, polling.
pub(super) struct Ucx {
    pub(super) api: Api,
    pub(super) carrier: Carrier,
}

/// UCX without Weft.
pub(super) fn own() -> impl Iterator<Item = Box<dyn Stack>> {
    let carriers = [Carrier::Tcp, Carrier::SharedMemory];
    carriers.into_iter().flat_map(|carrier| {
        [Api::Tag, Api::Put].map(|api| -> Box<dyn Stack> {
            Box::new(Ucx {
                api,
                carrier: carrier.clone(),
            })
        })
    })
}

impl Stack for Ucx {
    fn name(&self) -> String {
        let carrier = match self.carrier {
            Carrier::Tcp => "tcp",
            Carrier::SharedMemory => "shared memory",
            Carrier::Weft(_) => "weft",
        };
        let api = match self.api {
            Api::Tag => "tag",
            Api::Put => "put",
        };
        format!("ucx {carrier} {api}")
    }

    fn serves(&self, workload: &Verbs, path: PathKind) -> bool {
        if self.carrier == Carrier::SharedMemory && path != PathKind::Loopback {
            return false;
        }
        let put = self.api == Api::Put;
        match *workload {
            Verbs::Latency { op, mode, .. } => {
                mode == Mode::Polling && op == if put { Op::Write } else { Op::Send }
            }
            // Writes are compared with tagged messages as well: they are UCX's faster way.
            Verbs::Bulk { op, mode, .. } => {
                mode == Mode::Polling && (op == Op::Write || op == Op::Send && !put)
            }
            Verbs::Rate { op, post_list, .. } => {
                post_list == 1 && (op == Op::Write || op == Op::Send && !put)
            }
            Verbs::Connect | Verbs::BringUp => false,
        }
    }

    fn ready(&self) -> Result<()> {
        if let Carrier::Weft(weft) = &self.carrier {
            weft.ready()?;
        }
        need("ucx_perftest", "ucx-utils")
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let side = |interface: &str| {
            let program = match &self.carrier {
                Carrier::Tcp => Invocation::new("ucx_perftest", [""; 0])
                    .env("UCX_TLS", "tcp")
                    .env("UCX_NET_DEVICES", interface),
                Carrier::SharedMemory => {
                    Invocation::new("ucx_perftest", [""; 0]).env("UCX_TLS", "shm")
                }
                Carrier::Weft(weft) => weft
                    .run(&[])
                    .args(["ucx_perftest"])
                    .env("UCX_TLS", "rc")
                    .env("UCX_NET_DEVICES", "weft0:1"),
            };
            program
                .args(self.test(workload, site))
                .args(["-p", &site.port.to_string()])
        };
        let client = side(&site.place.client().side.interface).args([site
            .place
            .server()
            .address
            .to_string()]);
        site.job(workload, side(&site.place.server().side.interface), client)
    }

    fn parse(&self, workload: &Verbs, output: &Output) -> Result<Metrics> {
        let last = output
            .client()
            .lines()
            .filter_map(|line| line.strip_prefix("Final:"))
            .next_back();
        let last = last.context("ucx_perftest printed no final line")?;
        // iterations, percentile, average, overall (µs), average, overall (MB/s), average, overall
        // (messages/s)
        let figures = numbers(last).filter(|f| f.len() == 8);
        let figures = figures
            .with_context(|| format!("ucx_perftest printed an unknown final line: {last}"))?;
        let (median, mean, megabytes, rate) = (figures[1], figures[3], figures[5], figures[7]);
        let value = match workload.metric() {
            metric if metric == HALF_ROUND_TRIP => median,
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

impl Ucx {
    /// Test, size and counts.
    fn test(&self, workload: &Verbs, site: &Site) -> Vec<String> {
        let (latency, bandwidth) = match self.api {
            Api::Tag => ("tag_lat", "tag_bw"),
            Api::Put => ("ucp_put_lat", "ucp_put_bw"),
        };
        let stream = |size: u64| site.count((size as f64 / self.octets_per_us()).max(6.0), 50);
        let (name, size, iterations, outstanding) = match *workload {
            Verbs::Latency {
                size, mode, pinned, ..
            } => (
                latency,
                size,
                site.round_trips(Op::Write, size, mode, pinned),
                None,
            ),
            Verbs::Bulk { size, .. } => (bandwidth, size, stream(size), None),
            Verbs::Rate { size, depth, .. } => (bandwidth, size, stream(size), Some(depth)),
            Verbs::Connect | Verbs::BringUp => (latency, 64, 1, None),
        };
        let (iterations, warm_up) = (iterations.to_string(), (iterations / 10).to_string());
        let mut words = vec![
            "-t",
            name,
            "-s",
            &size.to_string(),
            "-n",
            &iterations,
            "-w",
            &warm_up,
        ]
        .into_iter()
        .map(str::to_owned)
        .collect::<Vec<_>>();
        words.extend(outstanding.map(|n| format!("-O{n}")));
        words
    }

    /// What the test moves over kernel TCP or shared memory, rounded down, so that a cell lasts about as long as it
    /// should.
    fn octets_per_us(&self) -> f64 {
        match (&self.carrier, self.api) {
            (Carrier::SharedMemory, _) => 6000.0,
            (_, Api::Tag) => 2000.0,
            (_, Api::Put) => 300.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::CLIENT;

    fn parse(workload: &Verbs, client: &str) -> Result<Metrics> {
        let ucx = Ucx {
            api: Api::Tag,
            carrier: Carrier::Tcp,
        };
        ucx.parse(workload, &Output::of_client(client))
    }

    #[test]
    fn over_weft_the_same_test_runs_on_its_device() {
        let place = crate::path::Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 1,
        };
        let bulk = Verbs::Rate {
            op: Op::Write,
            size: 64,
            depth: 128,
            post_list: 1,
        };
        let words = |carrier| {
            let ucx = Ucx {
                api: Api::Put,
                carrier,
            };
            ucx.job(&bulk, &site).program(CLIENT).unwrap().display()
        };
        let (tcp, weft) = (
            words(Carrier::Tcp),
            words(Carrier::Weft(Weft::new("/opt/weft"))),
        );
        let test = tcp.split_once("ucx_perftest ").unwrap().1;
        assert_eq!(
            weft,
            format!("UCX_TLS=rc UCX_NET_DEVICES=weft0:1 weft run -- ucx_perftest {test}")
        );
    }

    #[test]
    fn its_own_shared_memory_is_of_one_machine() {
        let bulk = Verbs::Bulk {
            op: Op::Write,
            size: 1 << 20,
            mode: Mode::Polling,
        };
        let serving = |path| {
            let stacks = own().filter(|stack| stack.serves(&bulk, path));
            stacks.map(|stack| stack.name()).collect::<Vec<_>>()
        };
        let tcp = ["ucx tcp tag", "ucx tcp put"];
        assert_eq!(serving(PathKind::Veth), tcp);
        let memory = ["ucx shared memory tag", "ucx shared memory put"];
        assert_eq!(serving(PathKind::Loopback), [tcp, memory].concat());
    }

    #[test]
    fn latency_is_the_median_column() {
        let ping = Verbs::Latency {
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
        let bulk = Verbs::Bulk {
            op: Op::Write,
            size: 1 << 20,
            mode: Mode::Polling,
        };
        let metrics = parse(&bulk, include_str!("../../tests/samples/ucx_put_bw.txt")).unwrap();
        assert!((metrics["goodput_gbit_s"] - 500.88 * 1048576.0 * 8.0 / 1e9).abs() < 1e-9);
    }

    #[test]
    fn message_rate_is_the_overall_one() {
        let rate = Verbs::Rate {
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
        let ping = Verbs::Latency {
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
