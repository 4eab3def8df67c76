//! Several streams at once between two programs.

use anyhow::Result;

use super::sockets::{printed, side, MESSAGE};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, RAW_TCP};

/// So many streams, each with a connection and a thread at either end.
#[derive(Debug)]
pub(super) struct Streams(pub(super) u32);

impl Workload for Streams {
    fn id(&self) -> String {
        format!("streams-{}", self.0)
    }

    fn describe(&self) -> String {
        format!("goodput of {} streams together, 64 KiB messages", self.0)
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("streams", "streams", self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![RAW_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        stack.launch(&[]).is_some()
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let clients = [format!("--clients={}", self.0)];
        let program = [
            "stream".to_owned(),
            format!("--size={MESSAGE}"),
            format!("--seconds={}", site.seconds),
        ];
        let side = |role| side(stack, site, role, &clients, &program);
        Job {
            timeout: site.timeout(),
            ..Job::pair(
                side("--listen"),
                side("--connect"),
                site.port,
                site.place.hosts.len(),
            )
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }
}
