//! The first datagram to a destination, of a program that sends no other: how long it takes where every datagram needs
//! a connection, and what becomes of it where its receiver is not there yet.

use std::time::Duration;

use anyhow::Result;

use super::datagrams::pair;
use super::sockets::printed;
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, DELAY};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, UDP, UOE, UOE_INLINE, UOE_PATIENT, UOE_WAITING};

/// Octets of a datagram.
const SIZE: u64 = 1000;
/// About what a connection's channel takes, µs.
const CHANNEL_US: f64 = 1000.0;
/// Ports at most: a socket has carriers to so many destinations and to some more.
const PORTS_MAX: u64 = 500;
/// By how much a late receiver is late, ms: the sender has tried some times.
const LATE_MS: u32 = 300;
/// About what it takes until the sender has found it, µs.
const FOUND_US: f64 = 500_000.0;

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstDatagrams {
    /// The receiver is there, and the sender makes no call on its socket afterwards.
    Stuck,
    /// The receiver comes late.
    LateReceiver,
}

/// Both.
pub(super) const ALL: [FirstDatagrams; 2] = [FirstDatagrams::Stuck, FirstDatagrams::LateReceiver];

impl Workload for FirstDatagrams {
    fn id(&self) -> String {
        let name = match self {
            FirstDatagrams::Stuck => "udp-stuck",
            FirstDatagrams::LateReceiver => "udp-late-receiver",
        };
        name.to_owned()
    }

    fn share(&self) -> f64 {
        match self {
            FirstDatagrams::Stuck => 3.0,
            FirstDatagrams::LateReceiver => 1.4,
        }
    }

    fn describe(&self) -> String {
        match self {
            FirstDatagrams::Stuck => format!(
                "delay of one datagram of {SIZE} octets to each of many ports, its sender making no call behind it; \
                 carriers required"
            ),
            FirstDatagrams::LateReceiver => format!(
                "delay of the same behind the bind of a receiver that is {LATE_MS} ms late; carriers required (UDP \
                 loses it)"
            ),
        }
    }

    fn metric(&self) -> Metric {
        DELAY
    }

    fn references(&self) -> Vec<String> {
        let name = match self {
            FirstDatagrams::Stuck => UDP,
            // UDP brings none, so nothing else is there to compare with.
            FirstDatagrams::LateReceiver => UOE,
        };
        vec![name.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        let name = stack.name();
        let fits = match name.as_str() {
            UDP => *self == FirstDatagrams::Stuck,
            UOE | UOE_WAITING | UOE_PATIENT => true,
            UOE_INLINE => stack.carries_datagrams(path),
            _ => false,
        };
        path.is_local() && fits
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let (each_us, late) = match self {
            FirstDatagrams::Stuck => (CHANNEL_US, 0),
            FirstDatagrams::LateReceiver => (FOUND_US, LATE_MS),
        };
        let own = [
            "datagram-lone".to_owned(),
            format!("--size={SIZE}"),
            format!("--iterations={}", site.count(each_us, 4).min(PORTS_MAX)),
            format!("--late={late}"),
        ];
        Job {
            // One that does not come is waited for.
            timeout: site.timeout() + Duration::from_secs(30),
            ..pair(stack, site, &own, true)
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn size(&self) -> Option<u64> {
        Some(SIZE)
    }
}
