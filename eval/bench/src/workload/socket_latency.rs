//! Ping-pong of an unmodified program of sockets, over DDP beside the kernel's TCP.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, HALF_ROUND_TRIP};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Octets of a message.
const SIZE: u64 = 64;

/// A ping-pong and how both ends wait for the next message.
#[derive(Clone, Copy, Debug)]
pub struct SocketLatency {
    spins: bool,
}

/// Both ends wait in `epoll_wait`.
pub const LATENCY_EPOLL: SocketLatency = SocketLatency { spins: false };
/// Both ends receive without waiting, over and over.
pub const LATENCY_SPIN: SocketLatency = SocketLatency { spins: true };

impl Workload for SocketLatency {
    fn id(&self) -> String {
        let waiting = if self.spins { "spin" } else { "epoll" };
        format!("socket-lat-{SIZE}-{waiting}")
    }

    fn describe(&self) -> String {
        let waiting = match self.spins {
            true => "receiving without waiting",
            false => "waiting in epoll",
        };
        format!("{SIZE} B half round trip of sockets, {waiting}")
    }

    fn metric(&self) -> Metric {
        HALF_ROUND_TRIP
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        // About what a round trip takes over the kernel's TCP, µs; half of the time is plenty for percentiles.
        let (round_trip_us, waits) = match self.spins {
            true => (16.0, &["--mode=polling"][..]),
            false => (60.0, &["--mode=event", "--epoll"][..]),
        };
        let mut program = vec![
            "ping-pong".to_owned(),
            format!("--request={SIZE}"),
            format!("--reply={SIZE}"),
            format!("--iterations={}", site.count(2.0 * round_trip_us, 50)),
        ];
        program.extend(waits.iter().map(|&word| word.to_owned()));
        carried_pair(stack, site, &program)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn spins(&self) -> bool {
        self.spins
    }

    fn share(&self) -> f64 {
        0.5
    }

    fn size(&self) -> Option<u64> {
        Some(SIZE)
    }
}
