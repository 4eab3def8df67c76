//! What RDMA programs do over a wire, by stacks that tell what a TCP of one's own changes.

use anyhow::Result;

use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::Job;
use crate::metric::Metric;
use crate::path::PathKind;
use crate::record::{Metrics, Subject};
use crate::stack::{self, Site, Stack};
use crate::verbs::{Mode, Op, Size, Verbs};

/// One of them.
#[derive(Debug)]
pub(super) struct Wire(Verbs);

impl Wire {
    /// Half a round trip of a Send, both ends polling.
    pub(super) fn latency(size: u64) -> Wire {
        Wire(Verbs::Latency {
            op: Op::Send,
            size,
            mode: Mode::Polling,
            pinned: true,
        })
    }

    /// RDMA Writes as fast as they go.
    pub(super) fn throughput(size: u64) -> Wire {
        Wire(Verbs::Bulk {
            op: Op::Write,
            size,
            mode: Mode::Polling,
        })
    }
}

impl Workload for Wire {
    fn id(&self) -> String {
        let size = Size(self.0.size().unwrap_or_default());
        match self.0 {
            Verbs::Latency { .. } => format!("latency-{size}"),
            _ => format!("throughput-{size}"),
        }
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn metric(&self) -> Metric {
        self.0.metric()
    }

    fn axis(&self) -> Option<Axis> {
        let series = self.id();
        let (series, _) = series.rsplit_once('-')?;
        Some(Axis::size(series, self.0.size()?))
    }

    fn references(&self) -> Vec<String> {
        stack::references(&self.0)
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        stack.beside_adapters() && stack.serves(&self.0, path)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let mut job = stack.job(&self.0, site);
        // Two processes of one machine would have memory between them, and not this wire.
        for role in &mut job.roles {
            role.program
                .env
                .push(("WEFT_SAME_HOST".to_owned(), "off".to_owned()));
        }
        job
    }

    fn parse(&self, stack: &dyn Stack, output: &Output) -> Result<Metrics> {
        stack.parse(&self.0, output)
    }

    fn spins(&self) -> bool {
        true
    }

    fn share(&self) -> f64 {
        match self.0 {
            Verbs::Latency { .. } => 0.5,
            _ => 1.0,
        }
    }

    fn size(&self) -> Option<u64> {
        self.0.size()
    }

    fn subject(&self) -> Subject {
        Subject::Verbs(self.0)
    }
}
