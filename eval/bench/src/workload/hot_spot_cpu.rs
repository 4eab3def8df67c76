//! One server of many clients who each keep a pace: what an answer costs the server, over DDP beside the kernel's TCP.

use anyhow::Result;

use super::hot_spot::HotSpot;
use super::sockets::{carried_many, carries, printed};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, SERVER};
use crate::metric::{Metric, SERVER_CPU};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Requests a second of each client.
const PACE: u32 = 250;
/// Octets of a request and of its answer.
const SIZE: u64 = 64;

/// So many clients, each a program that sleeps between its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct HotSpotCpu(u32);

/// Every number of clients.
pub(super) const ALL: [HotSpotCpu; 4] =
    [HotSpotCpu(1), HotSpotCpu(4), HotSpotCpu(16), HotSpotCpu(64)];

impl Workload for HotSpotCpu {
    fn id(&self) -> String {
        format!("hot-spot-cpu-{}", self.0)
    }

    fn describe(&self) -> String {
        let clients = match self.0 {
            1 => "1 client".to_owned(),
            clients => format!("each of {clients} clients"),
        };
        format!("CPU of a server for a request of {SIZE} B, {PACE} a second from {clients}")
    }

    fn metric(&self) -> Metric {
        SERVER_CPU
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("hot-spot-cpu", "clients", self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        // A round trip that is longer than the pace allows would be another one.
        carries(stack) && path.is_local()
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "ping-pong".to_owned(),
            "--mode=event".to_owned(),
            format!("--request={SIZE}"),
            format!("--reply={SIZE}"),
            format!("--iterations={}", u64::from(site.seconds * PACE)),
            format!("--pace={PACE}"),
        ];
        carried_many(stack, site, self.0, &program)
    }

    /// The server tells its CPU from when all clients were connected until all were served; the clients, their times.
    fn parse(&self, stack: &dyn Stack, output: &Output) -> Result<Metrics> {
        let mut metrics = HotSpot(self.0).parse(stack, output)?;
        metrics.extend(printed(output.server(), SERVER)?);
        Ok(metrics)
    }

    fn on_request(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    #[test]
    fn what_the_server_tells_stands_beside_the_times_of_its_clients() {
        let client =
            "{\"half_rtt_us\": 5, \"p99_us\": 9, \"messages_per_s\": 10, \"operations\": 7}";
        let (server, clients) = (
            ("server", "{\"server_cpu_ns\": 4000}"),
            ("client-1", client),
        );
        let one = ALL[0];
        let metrics = one
            .parse(&raw_tcp(), &Output::of(&[server, clients]))
            .unwrap();
        assert_eq!(metrics[SERVER_CPU.key], 4000.0);
        assert_eq!((metrics["half_rtt_us"], metrics["operations"]), (5.0, 7.0));
        let silent = one.parse(&raw_tcp(), &Output::of(&[("server", ""), clients]));
        assert!(format!("{:#}", silent.unwrap_err()).contains("server"));
    }
}
