//! UDP without a library: this executable's own `raw` programs.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

pub(super) const NAME: &str = "raw-udp";

/// UDP as a program would write it: one `send` or `recv` per datagram, non-blocking and spinning.
/// Nothing keeps a sender from overrunning the receiver; what counts is what was received.
pub(super) struct RawUdp {
    pub(super) bench: (PathBuf, Vec<OsString>),
}

impl Stack for RawUdp {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn serves(&self, workload: &Verbs, _: PathKind) -> bool {
        let sleeps = matches!(
            workload,
            Verbs::Latency {
                mode: Mode::Event,
                ..
            } | Verbs::Bulk {
                mode: Mode::Event,
                ..
            }
        );
        workload.op() == Some(Op::UdSend) && !sleeps
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let program = program(workload, site);
        let side = |role: &str| {
            Invocation::new(&self.bench.0, &self.bench.1)
                .args(["raw", role, &site.address().to_string()])
                .args(&program)
        };
        site.job(workload, side("--listen"), side("--connect"))
    }

    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        serde_json::from_str(output.client()).context("the client printed no metrics")
    }
}

fn program(workload: &Verbs, site: &Site) -> Vec<String> {
    match *workload {
        Verbs::Latency {
            op,
            size,
            mode,
            pinned,
        } => vec![
            "datagram-ping-pong".to_owned(),
            format!("--size={size}"),
            format!("--iterations={}", site.round_trips(op, size, mode, pinned)),
        ],
        Verbs::Bulk { size, .. } | Verbs::Rate { size, .. } => vec![
            "datagram-stream".to_owned(),
            format!("--size={size}"),
            format!("--seconds={}", site.seconds),
        ],
        Verbs::Connect | Verbs::BringUp => Vec::new(),
    }
}
