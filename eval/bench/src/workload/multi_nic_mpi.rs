//! Two ranks of MPI on hosts that have two links between them: long messages over one of these or over both.

use anyhow::Result;

use super::{mpi, Workload};
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::Job;
use crate::metric::{Metric, GOODPUT};
use crate::path::two_links::Links;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, MPI_TCP};

/// Octets of a message: long enough for its parts to be long.
const MESSAGE: u64 = 4 << 20;

/// What the ranks use of the links.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiNicMpi(Links);

/// Every row.
pub(super) const ALL: [MultiNicMpi; 2] = [MultiNicMpi(Links::First), MultiNicMpi(Links::Both)];

impl MultiNicMpi {
    fn links(self) -> u32 {
        match self.0 {
            Links::First => 1,
            Links::Both => 2,
        }
    }
}

impl Workload for MultiNicMpi {
    fn id(&self) -> String {
        format!("multi-nic-mpi-{}", self.links())
    }

    fn describe(&self) -> String {
        let over = match self.0 {
            Links::First => "one of two links",
            Links::Both => "both links, each message in two parts",
        };
        format!(
            "goodput one way of 4 MiB messages there and back between two ranks of MPI over {over}"
        )
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("multi-nic-mpi", "links", self.links()))
    }

    fn references(&self) -> Vec<String> {
        vec![MPI_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::TwoLinks && stack.carries_ranks(path)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        mpi::launched(stack, "ping-pong", MESSAGE, Some(self.0), site)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let (mut metrics, half_round_trip_us) = mpi::printed(output)?;
        let gbit_per_s = (8 * MESSAGE) as f64 / half_round_trip_us / 1e3;
        metrics.insert(GOODPUT.key.to_owned(), gbit_per_s);
        Ok(metrics)
    }

    fn spins(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        Some(MESSAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    #[test]
    fn goodput_is_a_message_in_half_a_round_trip() {
        let printed = r#"{"median_us": 33554.432, "operations": 9}"#;
        let metrics = ALL[1]
            .parse(&raw_tcp(), &Output::of_client(printed))
            .unwrap();
        assert_eq!(metrics[GOODPUT.key], 1.0);
        assert_eq!(
            ALL.map(|row| row.id()),
            ["multi-nic-mpi-1", "multi-nic-mpi-2"]
        );
    }
}
