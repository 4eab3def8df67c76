//! Two buffers that are one message, and how they get to the kernel together: what gathering is worth.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, GOODPUT};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, PLAIN_CLIENT, TCP};

/// A way of gathering, and how long the payload is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    how: &'static str,
    payload: u64,
}

/// Every way with every payload: those of one payload are neighbours.
pub(super) fn all() -> impl Iterator<Item = Gather> {
    let of_payload = |payload| ["copy", "writev", "cork"].map(|how| Gather { how, payload });
    [1448, 64 << 10].into_iter().flat_map(of_payload)
}

impl Workload for Gather {
    fn id(&self) -> String {
        let payload = match self.payload {
            kib if kib.is_multiple_of(1 << 10) => format!("{}K", kib >> 10),
            octets => octets.to_string(),
        };
        format!("gather-{}-{payload}", self.how)
    }

    fn describe(&self) -> String {
        let how = match self.how {
            "copy" => "copied into one buffer",
            "writev" => "given to one writev",
            _ => "given to a send each, under TCP_CORK",
        };
        format!(
            "goodput of messages of a header of 16 B and a payload of {} B, {how}",
            self.payload
        )
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack) && stack.name() != PLAIN_CLIENT
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "gather".to_owned(),
            format!("--how={}", self.how),
            format!("--payload={}", self.payload),
            format!("--seconds={}", site.seconds),
        ];
        carried_pair(stack, site, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn size(&self) -> Option<u64> {
        Some(self.payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_has_a_row_of_each_payload() {
        let ids: Vec<String> = all().map(|row| row.id()).collect();
        assert_eq!(
            ids,
            [
                "gather-copy-1448",
                "gather-writev-1448",
                "gather-cork-1448",
                "gather-copy-64K",
                "gather-writev-64K",
                "gather-cork-64K",
            ]
        );
    }
}
