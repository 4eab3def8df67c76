//! Where and for how long a job runs, and how much of something fits that time.

use std::net::SocketAddr;
use std::time::Duration;

use crate::job::{Invocation, Job};
use crate::path::Place;
use crate::verbs::{Mode, Op, Verbs};

/// Where and for how long one job is to run.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Ends of the path.
    pub place: &'a Place,
    /// A TCP port nobody else uses there.
    pub port: u16,
    /// Seconds to measure for.
    pub seconds: u32,
}

impl Site<'_> {
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.place.server().address, self.port)
    }

    /// Bounded well above what a healthy cell needs, start-up and warm-up included.
    pub(crate) fn job(&self, workload: &Verbs, server: Invocation, client: Invocation) -> Job {
        Job {
            pinned: workload.pinned(),
            timeout: self.timeout(),
            ..Job::pair(server, client, self.port, self.place.hosts.len())
        }
    }

    /// How long a job may take.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds) * 5 + 10)
    }

    /// Round trips that take about as long as a cell should, for programs that count rather than
    /// time. Sized for what software over kernel TCP does, so that a slow stack stays within the
    /// timeout.
    pub(super) fn round_trips(&self, op: Op, size: u64, mode: Mode, pinned: bool) -> u64 {
        let start = match (mode, pinned) {
            (Mode::Polling, true) if matches!(op, Op::Write | Op::UcWrite) => 20.0,
            (Mode::Polling, true) => 8.0,
            (Mode::Event, _) | (_, false) => 50.0,
        };
        let half_us = start + size as f64 / 2000.0;
        // Half the time is plenty for percentiles, and latency rows are many.
        self.count(4.0 * half_us, 50)
    }

    /// How many events of this length fill a cell, and at least `least`.
    pub(crate) fn count(&self, each_us: f64, least: u64) -> u64 {
        let fitting = f64::from(self.seconds) * 1e6 / (each_us + self.place.round_trip_us);
        // Over a long path the least would take longer than a cell may.
        let least = match self.place.round_trip_us > 0.0 {
            true => least.min((4.0 * fitting) as u64).max(5),
            false => least,
        };
        (fitting as u64).max(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_fits_its_timeout_by_design() {
        let place = Place::loopback(None);
        let site = Site {
            place: &place,
            port: 1,
            seconds: 1,
        };
        assert_eq!(site.round_trips(Op::Send, 0, Mode::Polling, true), 31_250);
        assert_eq!(site.round_trips(Op::Send, 1 << 40, Mode::Polling, true), 50);
    }
}
