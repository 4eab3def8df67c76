//! Weft through its own Rust API: this executable's `native` programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};

use super::counted::Counted;
use super::{on_off, Programs, Site, Stack};
use crate::exec::Output;
use crate::job::{Invocation, Job};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::verbs::{Mode, Op, Verbs};

/// The engine without its C face; polling only.
pub(super) struct Native {
    bench: (PathBuf, Vec<OsString>),
    crc: bool,
    counted: Counted,
}

impl Native {
    pub(super) fn new(programs: &Programs, crc: bool) -> Self {
        Native {
            bench: programs.bench.clone(),
            crc,
            counted: Counted::new(programs),
        }
    }
}

impl Stack for Native {
    fn name(&self) -> String {
        format!("weft native crc={}", on_off(self.crc))
    }

    fn serves(&self, workload: &Verbs, _: PathKind) -> bool {
        match *workload {
            Verbs::Latency { op, mode, .. } => op == Op::Send && mode == Mode::Polling,
            Verbs::Bulk { op, mode, .. } => op == Op::Write && mode == Mode::Polling,
            Verbs::Rate { op, .. } => op == Op::Write,
            Verbs::Connect => true,
            Verbs::BringUp => false,
        }
    }

    /// The bench may be another build's, of a time before it had these programs.
    fn ready(&self) -> Result<()> {
        let (program, words) = &self.bench;
        let asked = Command::new(program)
            .args(words)
            .args(["native", "--help"])
            .stdin(Stdio::null())
            .output();
        ensure!(
            asked.is_ok_and(|output| output.status.success()),
            "this build's bench has no programs on the Rust API"
        );
        Ok(())
    }

    fn job(&self, workload: &Verbs, site: &Site) -> Job {
        let side = |role: &str| {
            Invocation::new(&self.bench.0, &self.bench.1)
                .args(["native", role, &site.address().to_string()])
                .args(program(workload, site))
                .env("WEFT_CRC", on_off(self.crc))
        };
        site.job(workload, side("--listen"), side("--connect"))
    }

    fn parse(&self, _: &Verbs, output: &Output) -> Result<Metrics> {
        serde_json::from_str(output.client()).context("the client printed no metrics")
    }

    /// Counted through the C face, which is a part of what a message takes there.
    fn counted(&self, workload: &Verbs, messages: u64) -> Result<Invocation> {
        let program = self.counted.program(workload, messages)?;
        Ok(program.env("WEFT_CRC", on_off(self.crc)))
    }
}

fn program(workload: &Verbs, site: &Site) -> Vec<String> {
    let write = |size: u64, post_list: u32| {
        vec![
            "write".to_owned(),
            format!("--size={size}"),
            format!("--seconds={}", site.seconds),
            format!("--post-list={post_list}"),
        ]
    };
    match *workload {
        Verbs::Latency {
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
        Verbs::Bulk { size, .. } => write(size, 1),
        Verbs::Rate {
            size, post_list, ..
        } => write(size, post_list),
        Verbs::Connect | Verbs::BringUp => {
            vec![
                "connect".to_owned(),
                format!("--iterations={}", site.count(1000.0, 100)),
            ]
        }
    }
}
