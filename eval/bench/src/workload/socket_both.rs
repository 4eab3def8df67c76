//! One connection of an unmodified program of sockets that carries as much as goes in both directions at once, over
//! DDP beside the kernel's TCP.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Octets of a message, as in the rows of one direction.
const SIZE: u64 = 1 << 20;

/// Both ends send, and receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketBoth;

impl Workload for SocketBoth {
    fn id(&self) -> String {
        "socket-bulk-both".to_owned()
    }

    fn describe(&self) -> String {
        "goodput of one connection in both directions at once, added up, 1 MiB messages".to_owned()
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "both".to_owned(),
            format!("--size={SIZE}"),
            format!("--seconds={}", site.seconds),
        ];
        carried_pair(stack, site, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn size(&self) -> Option<u64> {
        Some(SIZE)
    }

    fn on_request(&self) -> bool {
        true
    }
}
