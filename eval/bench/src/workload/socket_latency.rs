//! Ping-pong of an unmodified program of sockets, over DDP beside the kernel's TCP.

use anyhow::Result;

use super::sockets::{carried_pair, carries, printed};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, HALF_ROUND_TRIP};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, TCP};

/// Octets of a message in the rows that every run of usual sizes has.
const USUAL: u64 = 64;
/// Octets of a message, by how long they are: one, what a cache line, a page or two, and the longest segment hold.
const SIZES: [u64; 5] = [1, USUAL, 1024, 8192, 65_536];
/// Octets that cross a machine in a microsecond, at least: how many round trips fit a cell follows from it.
const OCTETS_PER_US: f64 = 2000.0;

/// A ping-pong and how both ends wait for the next message.
#[derive(Clone, Copy, Debug)]
pub struct SocketLatency {
    size: u64,
    spins: bool,
}

/// Both ends wait in `epoll_wait`.
pub const LATENCY_EPOLL: SocketLatency = SocketLatency {
    size: USUAL,
    spins: false,
};
/// Both ends receive without waiting, over and over.
pub const LATENCY_SPIN: SocketLatency = SocketLatency {
    size: USUAL,
    spins: true,
};

/// Every length, in both ways to wait.
pub(super) fn all() -> impl Iterator<Item = SocketLatency> {
    let of = |spins| SIZES.map(|size| SocketLatency { size, spins });
    of(false).into_iter().chain(of(true))
}

impl SocketLatency {
    fn waiting(&self) -> &'static str {
        if self.spins {
            "spin"
        } else {
            "epoll"
        }
    }
}

impl Workload for SocketLatency {
    fn id(&self) -> String {
        format!("socket-lat-{}-{}", self.size, self.waiting())
    }

    fn describe(&self) -> String {
        let waiting = match self.spins {
            true => "receiving without waiting",
            false => "waiting in epoll",
        };
        format!("{} B half round trip of sockets, {waiting}", self.size)
    }

    fn metric(&self) -> Metric {
        HALF_ROUND_TRIP
    }

    fn axis(&self) -> Option<Axis> {
        let series = format!("socket-lat-{}", self.waiting());
        Some(Axis::size(series, self.size))
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, _: PathKind) -> bool {
        carries(stack)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        // About what a round trip takes over the kernel's TCP, µs; half of the time is plenty for percentiles.
        let (short_us, waits) = match self.spins {
            true => (16.0, &["--mode=polling"][..]),
            false => (60.0, &["--mode=event", "--epoll"][..]),
        };
        let round_trip_us = short_us + 2.0 * self.size as f64 / OCTETS_PER_US;
        let mut program = vec![
            "ping-pong".to_owned(),
            format!("--request={}", self.size),
            format!("--reply={}", self.size),
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
        0.1
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn on_request(&self) -> bool {
        self.size != USUAL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn lengths_that_wait_alike_are_on_one_line() {
        let series: HashSet<String> = all().map(|row| row.axis().unwrap().series).collect();
        assert_eq!(
            series,
            HashSet::from(["socket-lat-epoll".to_owned(), "socket-lat-spin".to_owned()])
        );
        let usual: Vec<String> = all()
            .filter(|row| !row.on_request())
            .map(|row| row.id())
            .collect();
        assert_eq!(usual, ["socket-lat-64-epoll", "socket-lat-64-spin"]);
    }
}
