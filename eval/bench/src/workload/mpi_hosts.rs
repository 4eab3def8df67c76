//! Four ranks of MPI on as many hosts at a switch: sums of what all of them have.

use anyhow::Result;

use super::{mpi, Workload};
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::Job;
use crate::metric::{Metric, ALLREDUCE};
use crate::path::{PathKind, Place};
use crate::record::Metrics;
use crate::stack::{Site, Stack, MPI_TCP};
use crate::verbs::{octets, Size};

/// Hosts, each with a rank.
const HOSTS: usize = 4;

/// How many octets each rank has of a sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct MpiHosts(u64);

/// Every row.
pub(super) const ALL: [MpiHosts; 3] = [MpiHosts(8), MpiHosts(64 << 10), MpiHosts(1 << 20)];

const SERIES: &str = "mpi-hosts-allreduce";

impl Workload for MpiHosts {
    fn id(&self) -> String {
        format!("{SERIES}-{}", Size(self.0))
    }

    fn describe(&self) -> String {
        let size = octets(self.0);
        format!("{size} allreduce, sums over {HOSTS} ranks of MPI on as many hosts, which take turns on the cores")
    }

    fn metric(&self) -> Metric {
        ALLREDUCE
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::size(SERIES.to_owned(), self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![MPI_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::Cluster && stack.carries_ranks(path)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let place = Place {
            hosts: site.place.hosts[..HOSTS].to_vec(),
            ..site.place.clone()
        };
        let site = Site {
            place: &place,
            ..*site
        };
        mpi::launched(stack, "allreduce", self.0, None, &site)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let (mut metrics, median) = mpi::printed(output)?;
        metrics.insert(ALLREDUCE.key.to_owned(), median);
        Ok(metrics)
    }

    fn spins(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    #[test]
    fn the_median_is_the_rows_metric() {
        let printed = r#"{"median_us": 70.5, "operations": 9}"#;
        let metrics = ALL[0]
            .parse(&raw_tcp(), &Output::of_client(printed))
            .unwrap();
        assert_eq!(metrics[ALLREDUCE.key], 70.5);
        let ids = ALL.map(|row| row.id());
        assert_eq!(
            ids,
            [
                "mpi-hosts-allreduce-8",
                "mpi-hosts-allreduce-64K",
                "mpi-hosts-allreduce-1M"
            ]
        );
    }
}
