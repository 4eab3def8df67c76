//! TCP without a library: this executable's own `raw` programs.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::workload::{Mode, Op, Workload};

pub(super) const NAME: &str = "raw-tcp";
pub(super) const NAME_NAGLE: &str = "raw-tcp nagle";

/// Octets of a Read Request as an FPDU: what a program without RDMA would send as "give me that".
const READ_REQUEST: u64 = 52;

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

    fn serves(&self, workload: &Workload, _: PathKind) -> bool {
        match workload {
            Workload::Rate { .. } => true,
            // The kernel's stream has no completion to wait for: one bulk figure serves both modes.
            Workload::Latency { .. } | Workload::Bulk { .. } | Workload::Connect => !self.nagle,
        }
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn job(&self, workload: &Workload, site: &Site) -> Job {
        let program = self.program(workload, site);
        let side = |role: &str| {
            Invocation::new(&self.bench.0, &self.bench.1)
                .args(["raw", role, &site.address().to_string()])
                .args(&program)
        };
        site.job(workload, side("--listen"), side("--connect"))
    }

    fn parse(&self, _: &Workload, output: &Output) -> Result<Metrics> {
        serde_json::from_str(&output.client).context("the client printed no metrics")
    }
}

impl RawTcp {
    fn program(&self, workload: &Workload, site: &Site) -> Vec<String> {
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
            Workload::Latency {
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
                let request = if op == Op::Read { READ_REQUEST } else { size };
                // Raw TCP has no passive side, so a Write is as quick as a Send.
                let iterations = site.round_trips(Op::Send, size, mode, pinned);
                vec![
                    "ping-pong".to_owned(),
                    format!("--mode={mode_name}"),
                    format!("--request={request}"),
                    format!("--reply={size}"),
                    format!("--iterations={iterations}"),
                ]
            }
            Workload::Bulk { size, .. } | Workload::Rate { size, .. } => stream(size),
            Workload::Connect => vec![
                "connect".to_owned(),
                format!("--iterations={}", site.count(200.0, 100)),
            ],
        }
    }
}
