//! One stream of an unmodified program of sockets, over DDP beside the kernel's TCP.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Octets that the sender writes at a time.
const WRITTEN: u64 = 1 << 20;

/// A stream and how its reader reads.
#[derive(Clone, Copy, Debug)]
pub struct SocketBulk {
    waits: bool,
}

/// The reader receives again at once.
pub const BULK_BUSY: SocketBulk = SocketBulk { waits: false };
/// The reader waits in `poll` before each receive.
pub const BULK_WAITING: SocketBulk = SocketBulk { waits: true };

impl Workload for SocketBulk {
    fn id(&self) -> String {
        let reader = if self.waits { "waiting" } else { "busy" };
        format!("socket-bulk-{reader}")
    }

    fn describe(&self) -> String {
        let reader = match self.waits {
            true => "waits in poll before each receive",
            false => "receives again at once",
        };
        format!("goodput of one stream of sockets, 1 MiB a write, the reader {reader}")
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
        let mut program = vec![
            "stream".to_owned(),
            format!("--size={WRITTEN}"),
            format!("--seconds={}", site.seconds),
        ];
        program.extend(self.waits.then(|| "--poll".to_owned()));
        carried_pair(stack, site, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn size(&self) -> Option<u64> {
        Some(WRITTEN)
    }
}
