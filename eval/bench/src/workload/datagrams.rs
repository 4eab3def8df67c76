//! An unmodified program of UDP, with partial offload and over carriers, beside the kernel's UDP.

use anyhow::Result;

use super::sockets::printed;
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, CLIENT};
use crate::metric::{Metric, DELAY, GOODPUT, HALF_ROUND_TRIP};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Program, Site, Stack, UdpProgram, UDP, UDP_OWN};
use crate::verbs::Size;

/// Octets of datagrams in rows of throughput: short ones, what fits a packet of 1500 octets, what has to be fragmented
/// there, the longest.
pub const SIZES: [u64; 6] = [64, 1024, 1448, 8192, 32_768, 65_507];
/// Octets of the datagram of a ping-pong in the rows that every run of usual sizes has.
const PING: u64 = 64;
/// Octets of others; who waits and who spins.
const PINGS: [(u64, bool); 6] = [
    (1, true),
    (1024, true),
    (8192, true),
    (1, false),
    (1024, false),
    (8192, false),
];
/// Octets and datagrams a second of a sender that keeps a pace.
const PACES: [(u64, u32); 3] = [(64, 1_000), (1448, 10_000), (1448, 100_000)];
/// What fits a packet of 1500 octets behind the headers of IP and UDP.
const ONE_PACKET: u64 = 1472;

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// As many datagrams of this size as go, one a call.
    Flow(u64),
    /// So many a second, one way.
    Paced(u64, u32),
    /// One of this size there and back, waiting in `recv` or calling it over and over.
    PingPong { size: u64, waits: bool },
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams(What);

/// As many as go, by the octets of each.
pub const fn flow(size: u64) -> Datagrams {
    Datagrams(What::Flow(size))
}
const fn ping_pong(size: u64, waits: bool) -> Datagrams {
    Datagrams(What::PingPong { size, waits })
}
/// There and back, both ends waiting in `recv`.
pub const PING_PONG_WAITING: Datagrams = ping_pong(PING, true);
/// There and back, both ends receiving without waiting, over and over.
pub const PING_PONG_SPINNING: Datagrams = ping_pong(PING, false);

/// Every one.
pub(super) fn all() -> Vec<Datagrams> {
    let flows = SIZES.map(flow);
    let paced = PACES.map(|(size, rate)| Datagrams(What::Paced(size, rate)));
    let ping_pongs = [PING_PONG_WAITING, PING_PONG_SPINNING];
    let others = PINGS.map(|(size, waits)| ping_pong(size, waits));
    [&flows[..], &paced, &ping_pongs, &others].concat()
}

impl Workload for Datagrams {
    fn id(&self) -> String {
        match self.0 {
            What::Flow(size) => format!("udp-flow-{size}"),
            What::Paced(size, rate) => format!("udp-paced-{size}-{}k", rate / 1000),
            What::PingPong { size, waits } => format!("udp-lat-{size}-{}", waiting(waits)),
        }
    }

    fn describe(&self) -> String {
        match self.0 {
            What::Flow(size) => {
                format!("goodput of datagrams of {size} octets, one a call, as many as go")
            }
            What::Paced(size, rate) => {
                format!("delay of datagrams of {size} octets one way, {rate} a second")
            }
            What::PingPong { size, waits } => {
                let waiting = match waits {
                    true => "waiting in recv",
                    false => "receiving without waiting",
                };
                format!("{} B half round trip of datagrams, {waiting}", Size(size))
            }
        }
    }

    fn metric(&self) -> Metric {
        match self.0 {
            What::Flow(_) => GOODPUT,
            What::Paced(..) => DELAY,
            What::PingPong { .. } => HALF_ROUND_TRIP,
        }
    }

    fn axis(&self) -> Option<Axis> {
        match self.0 {
            What::Flow(size) => Some(Axis::size("udp-flow", size)),
            What::PingPong { size, waits } => {
                let series = format!("udp-lat-{}", waiting(waits));
                Some(Axis::size(series, size))
            }
            What::Paced(..) => None,
        }
    }

    fn references(&self) -> Vec<String> {
        vec![UDP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        // Nothing holds a sender of UDP back: over an emulated link the row would be about the link's queue, and on a
        // network of the user's others would suffer. One-way times need one clock.
        let is_bounded = matches!(self.0, What::PingPong { .. }) && path == PathKind::Hosts;
        if !(path.is_local() || is_bounded) || !stack.carries_datagrams(path) {
            return false;
        }
        if stack.name() != UDP_OWN {
            return true;
        }
        // The kernel cuts nothing into datagrams that would be fragments.
        let fits = |size| path == PathKind::Loopback || size <= ONE_PACKET;
        matches!(self.0, What::Flow(size) if fits(size))
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        pair(stack, site, &self.words(site), false)
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.client(), CLIENT)
    }

    fn spins(&self) -> bool {
        matches!(self.0, What::PingPong { waits: false, .. })
    }

    fn share(&self) -> f64 {
        match self.0 {
            What::PingPong { .. } => 0.2,
            _ => 1.0,
        }
    }

    fn size(&self) -> Option<u64> {
        match self.0 {
            What::Flow(size) | What::Paced(size, _) | What::PingPong { size, .. } => Some(size),
        }
    }

    fn on_request(&self) -> bool {
        matches!(self.0, What::PingPong { size, .. } if size != PING)
    }
}

fn waiting(waits: bool) -> &'static str {
    if waits {
        "waiting"
    } else {
        "spin"
    }
}

/// The bench's program of UDP with these words at both ends, on the stack; `requires` as [`UdpProgram`] has it.
pub(super) fn pair(stack: &dyn Stack, site: &Site, words: &[String], requires: bool) -> Job {
    let side = |role: &str, host| {
        let at = [
            "raw".to_owned(),
            role.to_owned(),
            site.address().to_string(),
        ];
        let program = UdpProgram {
            program: Program::Bench(&[&at[..], words].concat()),
            requires,
            is_neighbour: false,
        };
        stack
            .carry_datagrams(host, program)
            .expect("a stack that serves the workload carries its programs")
    };
    Job {
        timeout: site.timeout(),
        ..Job::pair(
            side("--listen", site.place.server()),
            side("--connect", site.place.client()),
            site.port,
            site.place.hosts.len(),
        )
    }
}

impl Datagrams {
    /// The program and its arguments.
    fn words(&self, site: &Site) -> Vec<String> {
        let flow = |size| {
            vec![
                "datagram-flow".to_owned(),
                format!("--size={size}"),
                format!("--seconds={}", site.seconds),
            ]
        };
        match self.0 {
            What::Flow(size) => flow(size),
            What::Paced(size, rate) => [flow(size), vec![format!("--pace={rate}")]].concat(),
            What::PingPong { size, waits } => {
                // About what a round trip takes over the kernel's UDP, µs; half of the time is plenty for percentiles.
                let round_trip_us = if waits { 50.0 } else { 12.0 };
                let mut words = vec![
                    "datagram-ping-pong".to_owned(),
                    format!("--size={size}"),
                    format!("--iterations={}", site.count(2.0 * round_trip_us, 50)),
                ];
                words.extend(waits.then(|| "--waits".to_owned()));
                words
            }
        }
    }
}
