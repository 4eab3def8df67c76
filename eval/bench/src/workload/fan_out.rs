//! One program that sends to many: what they take in all.

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

/// So many receivers, each with a stream from the one sender.
#[derive(Debug)]
pub(super) struct FanOut(pub(super) u32);

impl Workload for FanOut {
    fn id(&self) -> String {
        format!("fan-out-{}", self.0)
    }

    fn describe(&self) -> String {
        format!(
            "goodput of one sender to {} receivers, 64 KiB messages",
            self.0
        )
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("fan-out", "receivers", self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![RAW_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        stack.launch(&[]).is_some()
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "feed".to_owned(),
            format!("--size={MESSAGE}"),
            format!("--seconds={}", site.seconds),
        ];
        one_to_many(stack, site, self.0, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        moved_together(output, self.0)
    }
}
