//! What CPU an octet takes at one rate: that of the kernel's stack, as fast as it goes, is the pace of the
//! others in the same repetition.

use anyhow::Result;

use super::datagrams::pair;
use super::per_octet;
use super::sockets::{carried_pair, carries, printed, MESSAGE};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, CPU_PER_OCTET, MESSAGE_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, PLAIN_CLIENT, TCP, UDP};

/// Octets of a datagram: what fits a packet of 1500 octets.
const DATAGRAM: u64 = 1448;

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtRate {
    /// Datagrams at the rate of the kernel's UDP.
    Datagrams,
    /// A stream at the rate of the kernel's TCP.
    Stream,
}

/// Every row.
pub(super) const ALL: [AtRate; 2] = [AtRate::Datagrams, AtRate::Stream];

impl AtRate {
    fn octets(self) -> u64 {
        match self {
            AtRate::Datagrams => DATAGRAM,
            AtRate::Stream => MESSAGE,
        }
    }

    fn cast(self, stack: &dyn Stack, site: &Site, pace: Option<f64>) -> Job {
        let program = match self {
            AtRate::Datagrams => "datagram-flow",
            AtRate::Stream => "stream",
        };
        let mut words = vec![
            program.to_owned(),
            format!("--size={}", self.octets()),
            format!("--seconds={}", site.seconds),
        ];
        // No figure that is not whole and at least one is a rate that programs take.
        words.extend(pace.map(|pace| format!("--rate={}", pace.round().max(1.0))));
        match self {
            AtRate::Datagrams => pair(stack, site, &words, false),
            AtRate::Stream => carried_pair(stack, site, &words),
        }
    }
}

impl Workload for AtRate {
    fn id(&self) -> String {
        match self {
            AtRate::Datagrams => format!("udp-flow-{DATAGRAM}-at-udp-rate"),
            AtRate::Stream => "socket-bulk-at-tcp-rate".to_owned(),
        }
    }

    fn describe(&self) -> String {
        let (what, whose) = match self {
            AtRate::Datagrams => ("datagrams of 1448 octets", "UDP"),
            AtRate::Stream => ("a stream of sockets, 64 KiB a write", "TCP"),
        };
        format!("CPU of both ends for an octet of {what}, all at the rate of the kernel's {whose}")
    }

    fn metric(&self) -> Metric {
        CPU_PER_OCTET
    }

    fn references(&self) -> Vec<String> {
        self.paced_by()
            .map(|(name, _)| name.to_owned())
            .into_iter()
            .collect()
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        // What cores do is looked at on this machine alone, and one rate says nothing over a link that has its own.
        path.is_local()
            && match self {
                AtRate::Datagrams => stack.carries_datagrams(path),
                AtRate::Stream => carries(stack) && stack.name() != PLAIN_CLIENT,
            }
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        self.cast(stack, site, None)
    }

    fn paced_by(&self) -> Option<(&'static str, Metric)> {
        let name = match self {
            AtRate::Datagrams => UDP,
            AtRate::Stream => TCP,
        };
        Some((name, MESSAGE_RATE))
    }

    fn job_at(&self, stack: &dyn Stack, site: &Site, pace: f64) -> Job {
        self.cast(stack, site, Some(pace))
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let mut metrics = printed(output.client(), CLIENT)?;
        per_octet::put(&mut metrics, output, self.octets());
        Ok(metrics)
    }

    fn on_request(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        Some(self.octets())
    }
}
