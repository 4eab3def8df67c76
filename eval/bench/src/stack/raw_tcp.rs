//! TCP without a library: this executable's own `raw` programs.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

pub(super) const NAME: &str = "raw-tcp";
pub(super) const NAME_NAGLE: &str = "raw-tcp nagle";

/// Octets of a Read Request as an FPDU: what a program without RDMA would send as "give me that".
const READ_REQUEST: u64 = 52;

/// Octets of an Atomic Request and of its Response as FPDUs (RFC 7306 section 8).
const ATOMIC_REQUEST: u64 = 76;
const ATOMIC_RESPONSE: u64 = 36;

/// TCP as a program would write it: non-blocking and spinning where the workload polls, blocking
/// where it sleeps.
pub(super) struct RawTcp {
    pub(super) bench: (PathBuf, Vec<OsString>),
    /// Leave Nagle's algorithm on, for message rates only: it gathers small sends, at the price
    /// of their latency.
    pub(super) nagle: bool,
}

impl Stack for RawTcp {
    fn name(&self) -> String {
        if self.nagle { NAME_NAGLE } else { NAME }.to_owned()
    }

    fn serves(&self, workload: &Verbs, _: PathKind) -> bool {
        match workload {
            _ if workload.op() == Some(Op::UdSend) => false,
            Verbs::Rate { op, .. } => !self.nagle || !op.asks(),
            // The kernel's stream has no completion to wait for: one bulk figure serves both modes.
            _ => !self.nagle,
        }
    }

    fn beside_adapters(&self) -> bool {
        !self.nagle
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let program = self.program(workload, site);
        let side = |role: &str| {
            Invocation::new(&self.bench.0, &self.bench.1)
                .args(["raw", role, &site.address().to_string()])
                .args(&program)
        };
        site.job(workload, side("--listen"), side("--connect"))
    }

    fn launch(&self, words: &[String]) -> Option<Invocation> {
        let program = || Invocation::new(&self.bench.0, &self.bench.1).args(words);
        (!self.nagle).then(program)
    }

    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        serde_json::from_str(output.client()).context("the client printed no metrics")
    }
}

impl RawTcp {
    fn program(&self, workload: &Verbs, site: &Site) -> Vec<String> {
        let stream = |size: u64| {
            let mut words = vec![
                "stream".to_owned(),
                format!("--size={size}"),
                format!("--seconds={}", site.seconds),
            ];
            words.extend(self.nagle.then(|| "--nagle".to_owned()));
            words
        };
        match *workload {
            Verbs::Latency {
                op,
                size,
                mode,
                pinned,
            } => {
                let mode_name = if mode == Mode::Polling {
                    "polling"
                } else {
                    "event"
                };
                let (request, reply) = match op {
                    Op::Read => (READ_REQUEST, size),
                    _ if op.is_atomic() => (ATOMIC_REQUEST, ATOMIC_RESPONSE),
                    _ => (size, size),
                };
                // Raw TCP has no passive side, so a Write is as quick as a Send.
                let iterations = site.round_trips(Op::Send, size, mode, pinned);
                vec![
                    "ping-pong".to_owned(),
                    format!("--mode={mode_name}"),
                    format!("--request={request}"),
                    format!("--reply={reply}"),
                    format!("--iterations={iterations}"),
                ]
            }
            Verbs::Rate { op, depth, .. } if op.is_atomic() => vec![
                "exchange".to_owned(),
                format!("--request={ATOMIC_REQUEST}"),
                format!("--reply={ATOMIC_RESPONSE}"),
                format!("--depth={depth}"),
                format!("--seconds={}", site.seconds),
            ],
            Verbs::Bulk { size, .. } | Verbs::Rate { size, .. } => stream(size),
            Verbs::Connect | Verbs::BringUp => {
                // As many as the other stacks make: each takes several turns of two programs, which
                // on a busy machine are milliseconds.
                let mut words = vec![
                    "connect".to_owned(),
                    format!("--iterations={}", site.count(1000.0, 100)),
                ];
                words.extend((*workload == Verbs::BringUp).then(|| "--reply".to_owned()));
                words
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::CLIENT;
    use crate::path::Place;

    fn client(workload: Verbs) -> String {
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 1,
        };
        let stack = RawTcp {
            bench: ("weft".into(), vec![]),
            nagle: false,
        };
        let shown = stack
            .job(&workload, &site)
            .program(CLIENT)
            .unwrap()
            .display();
        let (_, words) = shown.split_once("127.0.0.1:7000 ").unwrap();
        words.to_owned()
    }

    #[test]
    fn an_atomic_is_a_request_and_an_answer_as_long_as_on_the_wire() {
        let op = Op::FetchAdd;
        let mode = Mode::Polling;
        let latency = client(Verbs::Latency {
            op,
            size: 8,
            mode,
            pinned: true,
        });
        assert!(latency.starts_with("ping-pong --mode=polling --request=76 --reply=36 "));
        let rate = client(Verbs::Rate {
            op,
            size: 8,
            depth: 128,
            post_list: 1,
        });
        assert_eq!(
            rate,
            "exchange --request=76 --reply=36 --depth=128 --seconds=1"
        );
    }

    #[test]
    fn only_a_bring_up_waits_for_an_answer() {
        assert_eq!(
            [Verbs::Connect, Verbs::BringUp].map(client),
            [
                "connect --iterations=1000",
                "connect --iterations=1000 --reply"
            ]
        );
    }
}
