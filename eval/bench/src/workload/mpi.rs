//! Two ranks of MPI: a message there and back, and a sum of what both have, over each of the ways that Open MPI has.

use anyhow::{ensure, Context, Result};

use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat, CLIENT};
use crate::metric::{Metric, ALLREDUCE, HALF_ROUND_TRIP, OPERATIONS};
use crate::path::two_links::Links;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, MPI_TCP};
use crate::verbs::{octets, Size};

/// What the C program calls the median.
const MEDIAN: &str = "median_us";

/// What the ranks do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    PingPong,
    Allreduce,
}

/// Two ranks and how much each message, or each rank's share of a sum, has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mpi {
    pattern: Pattern,
    octets: u64,
    on_request: bool,
}

const fn row(pattern: Pattern, octets: u64, on_request: bool) -> Mpi {
    Mpi {
        pattern,
        octets,
        on_request,
    }
}

/// Every row.
pub(super) const ALL: [Mpi; 7] = [
    row(Pattern::PingPong, 8, false),
    row(Pattern::PingPong, 4 << 10, true),
    row(Pattern::PingPong, 64 << 10, true),
    row(Pattern::PingPong, 1 << 20, true),
    row(Pattern::Allreduce, 8, true),
    row(Pattern::Allreduce, 64 << 10, true),
    row(Pattern::Allreduce, 1 << 20, true),
];

impl Mpi {
    /// Its name without the size, which is the C program's word for it.
    fn name(self) -> &'static str {
        match self.pattern {
            Pattern::PingPong => "ping-pong",
            Pattern::Allreduce => "allreduce",
        }
    }

    fn series(self) -> String {
        format!("mpi-{}", self.name())
    }
}

impl Workload for Mpi {
    fn on_request(&self) -> bool {
        self.on_request
    }

    fn id(&self) -> String {
        format!("{}-{}", self.series(), Size(self.octets))
    }

    fn describe(&self) -> String {
        let size = octets(self.octets);
        match self.pattern {
            Pattern::PingPong => {
                format!("{size} half round trip between two ranks of MPI")
            }
            Pattern::Allreduce => format!("{size} allreduce, sums over two ranks of MPI"),
        }
    }

    fn metric(&self) -> Metric {
        match self.pattern {
            Pattern::PingPong => HALF_ROUND_TRIP,
            Pattern::Allreduce => ALLREDUCE,
        }
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::size(self.series(), self.octets))
    }

    fn references(&self) -> Vec<String> {
        vec![MPI_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        stack.carries_ranks(path)
    }

    // The launcher is on the first host; it starts both ranks.
    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        launched(stack, self.name(), self.octets, None, site)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let (mut metrics, median) = printed(output)?;
        metrics.insert(self.metric().key.to_owned(), median);
        Ok(metrics)
    }

    fn spins(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        Some(self.octets)
    }
}

/// Two ranks that do this with so many octets, over these of two links where there are two.
pub(super) fn launched(
    stack: &dyn Stack,
    pattern: &str,
    octets: u64,
    links: Option<Links>,
    site: &Site,
) -> Job {
    let words = [
        pattern.to_owned(),
        octets.to_string(),
        site.seconds.to_string(),
    ];
    let launcher = Role {
        name: CLIENT.to_owned(),
        host: 0,
        seat: Seat::Client,
        program: stack
            .ranks(&words, links, site)
            .expect("a stack that serves the workload starts its ranks"),
        ready: Ready::AtOnce,
        measures: true,
        told_to_end: false,
    };
    Job {
        roles: vec![launcher],
        // Both ranks would be tied to the core of the launcher. They tie themselves, each to its own.
        pinned: false,
        timeout: site.timeout(),
    }
}

/// What rank 0 printed, and apart from it the median in microseconds.
pub(super) fn printed(output: &Output) -> Result<(Metrics, f64)> {
    let mut lines = output.client().lines();
    let line = lines.find(|line| line.starts_with('{'));
    let line = line.context("rank 0 printed no figures")?;
    let mut metrics: Metrics =
        serde_json::from_str(line).with_context(|| format!("rank 0 printed {line:?}"))?;
    let median = metrics.remove(MEDIAN).context("rank 0 printed no median")?;
    let operations = metrics.get(OPERATIONS).copied().unwrap_or_default();
    ensure!(
        median > 0.0 && operations >= 1.0,
        "rank 0 measured nothing: {line}"
    );
    Ok((metrics, median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    const PRINTED: &str = include_str!("../../tests/samples/mpi_rows.txt");

    fn parsed(row: &Mpi, printed: &str) -> Result<Metrics> {
        row.parse(&raw_tcp(), &Output::of_client(printed))
    }

    #[test]
    fn the_median_is_the_rows_metric_whatever_the_launcher_prints_before() {
        let metrics = parsed(&ALL[0], PRINTED).unwrap();
        assert_eq!((metrics["half_rtt_us"], metrics["p99_us"]), (5.068, 26.184));
        assert_eq!(metrics["operations"], 1562.0);
        let before = format!("a launcher's warning\n\n{PRINTED}");
        let metrics = parsed(&ALL[4], &before).unwrap();
        assert_eq!(metrics["allreduce_us"], 5.068);
        assert!(!metrics.contains_key("half_rtt_us") && !metrics.contains_key(MEDIAN));
    }

    #[test]
    fn what_is_no_measurement_is_an_error() {
        let complaint = |printed: &str| format!("{:#}", parsed(&ALL[0], printed).unwrap_err());
        let aborted = "mpi_rows: rank 0: a message is wrong (operation 7)\n";
        assert!(complaint(aborted).contains("no figures"));
        assert!(complaint("{\"median_us\": 1.0,\n").contains("printed"));
        assert!(complaint("{\"p99_us\": 1.0}\n").contains("no median"));
        assert!(complaint("{\"median_us\": 1.0, \"operations\": 0}\n").contains("nothing"));
        assert!(complaint("{\"median_us\": 0.0, \"operations\": 9}\n").contains("nothing"));
    }

    #[test]
    fn rows_are_named_by_what_they_do_and_their_size() {
        let names = ALL.map(|row| row.id());
        assert_eq!(
            names,
            [
                "mpi-ping-pong-8",
                "mpi-ping-pong-4K",
                "mpi-ping-pong-64K",
                "mpi-ping-pong-1M",
                "mpi-allreduce-8",
                "mpi-allreduce-64K",
                "mpi-allreduce-1M",
            ]
        );
        let usual = ALL.iter().filter(|row| !row.on_request());
        assert_eq!(usual.count(), 1);
    }
}
