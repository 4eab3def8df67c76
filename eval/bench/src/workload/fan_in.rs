//! Many programs that send to one: what it takes in all.

use anyhow::Result;

use super::sockets::{moved_together, one_to_many, MESSAGE};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::Job;
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, RAW_TCP};

/// So many senders, each with a stream to the one receiver.
#[derive(Debug)]
pub(super) struct FanIn(pub(super) u32);

impl Workload for FanIn {
    fn id(&self) -> String {
        format!("fan-in-{}", self.0)
    }

    fn describe(&self) -> String {
        format!(
            "goodput of {} senders to one receiver, 64 KiB messages",
            self.0
        )
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("fan-in", "senders", self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![RAW_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        stack.launch(&[]).is_some()
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "stream".to_owned(),
            format!("--size={MESSAGE}"),
            format!("--seconds={}", site.seconds),
        ];
        one_to_many(stack, site, self.0, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        moved_together(output, self.0)
    }
}
