//! Many connections of a program of sockets that carry nothing: memory and time that they take.

use std::time::Duration;

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, MEMORY};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Connections, where the limit of descriptors allows as many.
const CONNECTIONS: u32 = 10_000;
/// A second of a cell is so many seconds of nothing: what wakes seldom is to be seen.
const IDLE_SECONDS: u32 = 3;
/// Making the connections, one after another, on a busy machine.
const MAKING: Duration = Duration::from_secs(60);
/// Round trips of the path that making one takes: a connect, what DDP says first, an octet there and back.
const ROUND_TRIPS: f64 = 3.0;
/// What those of all connections may take together, µs.
const ROUND_TRIPS_US: f64 = 10e6;

/// The connections.
#[derive(Clone, Copy, Debug)]
pub struct SocketsIdle;

/// The only one.
pub const IDLE: SocketsIdle = SocketsIdle;

impl Workload for SocketsIdle {
    fn id(&self) -> String {
        "sockets-idle".to_owned()
    }

    fn describe(&self) -> String {
        "memory of the process for each of 10,000 idle connections, at the end that has more"
            .to_owned()
    }

    fn metric(&self) -> Metric {
        MEMORY
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let program = [
            "idle".to_owned(),
            format!("--connections={}", connections(site.place.round_trip_us)),
            format!("--seconds={}", site.seconds * IDLE_SECONDS),
        ];
        let mut job = carried_pair(stack, site, &program);
        job.timeout += MAKING;
        job
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn share(&self) -> f64 {
        f64::from(IDLE_SECONDS)
    }
}

/// Fewer over a long path, where making them would take longer than a cell may.
fn connections(round_trip_us: f64) -> u32 {
    let fitting = ROUND_TRIPS_US / (ROUND_TRIPS * round_trip_us);
    (fitting as u32).clamp(2, CONNECTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_has_fewer_connections() {
        assert_eq!(connections(0.0), CONNECTIONS);
        assert_eq!(connections(100_000.0), 33);
        assert_eq!(connections(1e9), 2);
    }
}
