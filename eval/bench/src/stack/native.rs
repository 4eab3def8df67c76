//! Weft through its own Rust API: this executable's `native` programs.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::{on_off, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::workload::{Mode, Op, Workload};

/// The engine without its C face; polling only.
pub(super) struct Native {
    pub(super) bench: (PathBuf, Vec<OsString>),
    pub(super) crc: bool,
}

impl Stack for Native {
    fn name(&self) -> String {
        format!("weft native crc={}", on_off(self.crc))
    }

    fn serves(&self, workload: &Workload, _: PathKind) -> bool {
        match *workload {
            Workload::Latency { op, mode, .. } => op == Op::Send && mode == Mode::Polling,
            Workload::Bulk { op, mode, .. } => op == Op::Write && mode == Mode::Polling,
            Workload::Rate { op, .. } => op == Op::Write,
            Workload::Connect => true,
            Workload::BringUp => false,
        }
    }

    fn ready(&self) -> Result<()> {
        Ok(())
    }

    fn job(&self, workload: &Workload, site: &Site) -> Job {
        let side = |role: &str| {
            Invocation::new(&self.bench.0, &self.bench.1)
                .args(["native", role, &site.address().to_string()])
                .args(program(workload, site))
                .env("WEFT_CRC", on_off(self.crc))
        };
        site.job(workload, side("--listen"), side("--connect"))
    }

    fn parse(&self, _: &Workload, output: &Output) -> Result<Metrics> {
        serde_json::from_str(&output.client).context("the client printed no metrics")
    }
}

fn program(workload: &Workload, site: &Site) -> Vec<String> {
    let write = |size: u64, post_list: u32| {
        vec![
            "write".to_owned(),
            format!("--size={size}"),
            format!("--seconds={}", site.seconds),
            format!("--post-list={post_list}"),
        ]
    };
    match *workload {
        Workload::Latency {
            op,
            size,
            mode,
            pinned,
        } => {
            let iterations = site.round_trips(op, size, mode, pinned);
            vec![
                "ping-pong".to_owned(),
                format!("--size={size}"),
                format!("--iterations={iterations}"),
            ]
        }
        Workload::Bulk { size, .. } => write(size, 1),
        Workload::Rate {
            size, post_list, ..
        } => write(size, post_list),
        Workload::Connect | Workload::BringUp => {
            vec![
                "connect".to_owned(),
                format!("--iterations={}", site.count(1000.0, 100)),
            ]
        }
    }
}
