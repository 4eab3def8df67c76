//! The bench's own generators beside those that others measure the same with: rows that say whether figures here are
//! comparable with figures elsewhere. Both programs use the kernel's TCP.

use anyhow::{Context, Result};

use super::sockets::{carried_pair, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Invocation, Job, CLIENT, SERVER};
use crate::metric::{Metric, GOODPUT, HALF_ROUND_TRIP, P99};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, IPERF3, SOCKPERF, TCP};
use crate::verbs::{Mode, Op, Verbs};

/// Octets of a message of the ping-pong.
const PING: u64 = 64;
/// Octets of a block of the stream: iperf3's own choice.
const BLOCK: u64 = 128 << 10;

/// What is measured by two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Agreement {
    /// A message there and back, both ends asleep in `recv`: sockperf.
    Latency,
    /// One stream: iperf3.
    Bulk,
}

/// Every row.
pub(super) const ALL: [Agreement; 2] = [Agreement::Latency, Agreement::Bulk];

impl Agreement {
    fn other(self) -> &'static str {
        match self {
            Agreement::Latency => SOCKPERF,
            Agreement::Bulk => IPERF3,
        }
    }

    /// The bench's program.
    fn own(self, site: &Site) -> Vec<String> {
        match self {
            Agreement::Latency => vec![
                "ping-pong".to_owned(),
                "--mode=event".to_owned(),
                format!("--request={PING}"),
                format!("--reply={PING}"),
                // About what a round trip takes, µs.
                format!("--iterations={}", site.count(50.0, 50)),
            ],
            Agreement::Bulk => vec![
                "stream".to_owned(),
                format!("--size={BLOCK}"),
                format!("--seconds={}", site.seconds),
            ],
        }
    }

    /// As the stack of that name has it.
    fn verbs() -> Verbs {
        Verbs::Bulk {
            op: Op::Write,
            size: BLOCK,
            mode: Mode::Polling,
        }
    }
}

impl Workload for Agreement {
    fn id(&self) -> String {
        match self {
            Agreement::Latency => format!("agree-lat-{PING}"),
            Agreement::Bulk => "agree-bulk".to_owned(),
        }
    }

    fn describe(&self) -> String {
        let what = match self {
            Agreement::Latency => format!("{PING} B half round trip over TCP, asleep in recv"),
            Agreement::Bulk => "goodput of one stream over TCP".to_owned(),
        };
        format!("{what}: the bench's own program beside {}", self.other())
    }

    fn metric(&self) -> Metric {
        match self {
            Agreement::Latency => HALF_ROUND_TRIP,
            Agreement::Bulk => GOODPUT,
        }
    }

    fn references(&self) -> Vec<String> {
        vec![self.other().to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path.is_local() && [self.other(), TCP].contains(&&*stack.name())
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        if stack.name() == TCP {
            return carried_pair(stack, site, &self.own(site));
        }
        if *self == Agreement::Bulk {
            return stack.job(&Agreement::verbs(), site);
        }
        let address = site.place.server().address.to_string();
        let to = ["--tcp", "-i", &address, "-p", &site.port.to_string()].map(str::to_owned);
        let measures = [
            format!("--msg-size={PING}"),
            format!("--time={}", site.seconds),
        ];
        let mut job = Job {
            timeout: site.timeout(),
            ..Job::pair(
                Invocation::new(SOCKPERF, ["server"]).args(&to),
                Invocation::new(SOCKPERF, ["ping-pong"])
                    .args(&to)
                    .args(&measures),
                site.port,
                site.place.hosts.len(),
            )
        };
        // It would serve for ever.
        for role in job.roles.iter_mut().filter(|role| role.name == SERVER) {
            role.told_to_end = true;
        }
        job
    }

    fn parse(&self, stack: &dyn Stack, output: &Output) -> Result<Metrics> {
        match (self, stack.name() == TCP) {
            (_, true) => printed(output.client(), CLIENT),
            (Agreement::Bulk, false) => stack.parse(&Agreement::verbs(), output),
            (Agreement::Latency, false) => {
                let percentile = |rank: &str| -> Result<f64> {
                    let mut lines = output.client().lines();
                    let found =
                        lines.find_map(|line| line.split_once(&format!("percentile {rank} =")));
                    let (_, value) =
                        found.with_context(|| format!("sockperf printed no percentile {rank}"))?;
                    Ok(value.trim().parse()?)
                };
                Ok(Metrics::from([
                    (HALF_ROUND_TRIP.key.to_owned(), percentile("50.000")?),
                    (P99.to_owned(), percentile("99.000")?),
                ]))
            }
        }
    }

    fn share(&self) -> f64 {
        match self {
            Agreement::Latency => 0.5,
            Agreement::Bulk => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{all, Programs, Weft};

    fn sockperf() -> Box<dyn Stack> {
        let programs = Programs {
            bench: ("weft".into(), vec![]),
            weft: Weft::new("weft"),
            scratch: "scratch".into(),
        };
        let mut stacks = all(&programs).into_iter();
        stacks.find(|stack| stack.name() == SOCKPERF).unwrap()
    }

    #[test]
    fn the_median_of_sockperf_is_half_a_round_trip() {
        let printed = include_str!("../../tests/samples/sockperf-ping-pong.txt");
        let parse = |text| Agreement::Latency.parse(sockperf().as_ref(), &Output::of_client(text));
        let metrics = parse(printed).unwrap();
        assert_eq!((metrics["half_rtt_us"], metrics["p99_us"]), (7.025, 10.31));
        let complaint = parse("sockperf: Test ended\n").unwrap_err().to_string();
        assert!(complaint.contains("no percentile"), "{complaint}");
    }
}
