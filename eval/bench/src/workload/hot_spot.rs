//! One server that many clients ask at once: how long an answer takes.

use anyhow::{Context, Result};

use super::sockets::{client_name, one_to_many, printed};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::Job;
use crate::metric::{Metric, HALF_ROUND_TRIP, MESSAGE_RATE, OPERATIONS, P99};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, RAW_TCP};
use crate::stats::median;

/// About how long a round trip takes for each client that asks, µs: one core serves them one after another.
const ROUND_TRIP_US: f64 = 60.0;

/// So many clients, each a program that has one request under way and sleeps until the answer is there.
#[derive(Debug)]
pub(super) struct HotSpot(pub(super) u32);

impl Workload for HotSpot {
    fn id(&self) -> String {
        format!("hot-spot-{}", self.0)
    }

    fn describe(&self) -> String {
        format!(
            "1 B half round trip with {} clients of one server, event mode",
            self.0
        )
    }

    fn metric(&self) -> Metric {
        HALF_ROUND_TRIP
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("hot-spot", "clients", self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![RAW_TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        stack.launch(&[]).is_some()
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let iterations = site.count(ROUND_TRIP_US * f64::from(self.0), 50);
        let program = [
            "ping-pong".to_owned(),
            "--mode=event".to_owned(),
            "--request=1".to_owned(),
            "--reply=1".to_owned(),
            format!("--iterations={iterations}"),
        ];
        one_to_many(stack, site, self.0, &program)
    }

    /// The median of the clients' medians; of the 99th percentiles the worst, as that client's user sees it.
    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let (mut halves, mut p99, mut rate, mut operations) = (Vec::new(), 0.0_f64, 0.0, 0.0);
        for number in 1..=self.0 {
            let name = client_name(number);
            let metrics = printed(output.role(&name), &name)?;
            let of = |key: &str| {
                metrics
                    .get(key)
                    .copied()
                    .with_context(|| format!("{name} printed no {key}"))
            };
            halves.push(of(HALF_ROUND_TRIP.key)?);
            p99 = p99.max(of(P99)?);
            rate += of(MESSAGE_RATE.key)?;
            operations += of(OPERATIONS)?;
        }
        let half = median(&halves).context("there is no client")?;
        Ok(Metrics::from([
            (HALF_ROUND_TRIP.key.to_owned(), half),
            (P99.to_owned(), p99),
            (MESSAGE_RATE.key.to_owned(), rate),
            (OPERATIONS.to_owned(), operations),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Place;
    use crate::stack::tests::raw_tcp;

    #[test]
    fn each_client_is_a_role_and_the_server_waits_for_all_of_them() {
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 1,
        };
        let job = HotSpot(3).job(&raw_tcp(), &site);
        let names: Vec<_> = job.roles.iter().map(|role| role.name.as_str()).collect();
        assert_eq!(names, ["server", "client-1", "client-2", "client-3"]);
        assert!(job.roles[0]
            .program
            .display()
            .contains("--listen 127.0.0.1:7000 --clients=3 ping-pong"));
        assert!(job.roles[3]
            .program
            .display()
            .contains("--connect 127.0.0.1:7000 ping-pong"));
    }

    #[test]
    fn the_median_client_counts_and_the_worst_tail() {
        let client = |half: f64, p99: f64| {
            format!("{{\"half_rtt_us\": {half}, \"p99_us\": {p99}, \"messages_per_s\": 10, \"operations\": 7}}")
        };
        let printed = [client(5.0, 9.0), client(7.0, 30.0), client(6.0, 8.0)];
        let output = Output::of(&[
            ("client-1", &printed[0]),
            ("client-2", &printed[1]),
            ("client-3", &printed[2]),
        ]);
        let metrics = HotSpot(3).parse(&raw_tcp(), &output).unwrap();
        assert_eq!(metrics["half_rtt_us"], 6.0);
        assert_eq!((metrics["p99_us"], metrics["messages_per_s"]), (30.0, 30.0));
        assert_eq!(metrics["operations"], 21.0);
        let missing = HotSpot(4).parse(&raw_tcp(), &output).unwrap_err();
        assert!(format!("{missing:#}").contains("client-4"), "{missing:#}");
    }
}
