//! What a piece of the way is worth: the same program with one piece less or more, by turns.

use anyhow::Result;

use super::per_octet;
use super::sockets::printed;
use super::Workload;
use crate::exec::Output;
use crate::job::{Invocation, Job, Ready, Role, Seat, CLIENT};
use crate::metric::{Metric, GOODPUT, HALF_ROUND_TRIP, MESSAGE_RATE};
use crate::offloads;
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Ablation, Of, Site, Stack, ALL_ON, NO_CRC};
use crate::verbs::octets;

/// Octets of a long message, of a short one, and of a datagram that fits a packet of 1500 octets.
const LONG: u64 = 64 << 10;
const SHORT: u64 = 64;
const DATAGRAM: u64 = 1448;

/// One row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    of: Of,
    /// One message there and back, instead of as many as go one way.
    alone: bool,
}

const fn row(of: Of, alone: bool) -> Row {
    Row { of, alone }
}

/// Every row.
pub(super) const ALL: [Row; 6] = [
    row(Of::Bulk, false),
    row(Of::Small, false),
    row(Of::Bulk, true),
    row(Of::Datagrams, false),
    row(Of::Datagrams, true),
    row(Of::Rdma, false),
];

impl Row {
    fn octets(self) -> u64 {
        match (self.of, self.alone) {
            (Of::Small, _) | (_, true) => SHORT,
            (Of::Datagrams, _) => DATAGRAM,
            (Of::Bulk | Of::Rdma, _) => LONG,
        }
    }

    /// The program and its arguments, without those of a column.
    fn words(self, site: &Site) -> Vec<String> {
        let seconds = format!("--seconds={}", site.seconds);
        let size = format!("--size={}", self.octets());
        if self.of == Of::Rdma {
            return vec!["write".to_owned(), size, seconds];
        }
        let mut words = match self.alone {
            // About what a round trip takes, µs; half of the time is plenty for percentiles.
            true => vec![
                "ablated-ping-pong".to_owned(),
                format!("--iterations={}", site.count(100.0, 50)),
            ],
            false => vec!["ablated-flow".to_owned(), seconds],
        };
        words.push(size);
        words.extend((self.of != Of::Datagrams).then(|| "--carrier=tcp".to_owned()));
        words
    }

    /// An end of it, with what a column has beside.
    fn end(self, stack: &dyn Stack, role: &str, site: &Site) -> Invocation {
        let program = if self.of == Of::Rdma { "native" } else { "raw" };
        let at = [
            program.to_owned(),
            role.to_owned(),
            site.address().to_string(),
        ];
        let (ablation, program) = ablated(stack, &[&at[..], &self.words(site)].concat());
        let settings = [("WEFT_SAME_HOST", "off")];
        let settings = settings.iter().filter(|_| self.of == Of::Rdma);
        settings
            .chain(ablation.env)
            .fold(program.args(ablation.words), |program, (name, value)| {
                program.env(name, *value)
            })
    }
}

fn ablated(stack: &dyn Stack, words: &[String]) -> (Ablation, Invocation) {
    stack
        .ablated(words)
        .expect("a stack that serves the workload is one of its columns")
}

/// What switches the device of a host.
fn switched(stack: &dyn Stack, site: &Site, host: usize, name: &str) -> Role {
    let interface = &site.place.host(host).side.interface;
    let words = ["offloads".to_owned(), format!("--interface={interface}")];
    let (ablation, program) = ablated(stack, &words);
    let off = ablation
        .off
        .iter()
        .map(|offload| format!("--off={}", offload.word()));
    Role {
        name: format!("{name} device"),
        host,
        seat: Seat::Server,
        program: program.args(off),
        ready: Ready::Says(offloads::READY.to_owned()),
        measures: false,
        told_to_end: true,
    }
}

impl Workload for Row {
    fn id(&self) -> String {
        let name = match (self.of, self.alone) {
            (Of::Bulk, false) => "tcp-bulk",
            (Of::Small, _) => "tcp-small",
            (Of::Bulk, true) => "tcp-lat-64",
            (Of::Datagrams, false) => "udp-flow",
            (Of::Datagrams, true) => "udp-lat-64",
            (Of::Rdma, _) => "rdma-write",
        };
        name.to_owned()
    }

    fn describe(&self) -> String {
        let size = octets(self.octets());
        match (self.of, self.alone) {
            (Of::Bulk, false) => {
                format!("TCP, {size} a write: one piece of the way less or more")
            }
            (Of::Small, _) => format!("TCP, messages of {size}: what gathers them"),
            (Of::Datagrams, false) => {
                format!("UDP, datagrams of {size}: one piece of the way less or more")
            }
            (Of::Rdma, _) => format!("RDMA Writes of {size} over TCP: CRC and markers"),
            (_, true) => {
                let carrier = if self.of == Of::Bulk { "TCP" } else { "UDP" };
                format!("{size} half round trip over {carrier}, waiting: one piece of the way less or more")
            }
        }
    }

    fn metric(&self) -> Metric {
        match (self.of, self.alone) {
            (_, true) => HALF_ROUND_TRIP,
            (Of::Small, _) => MESSAGE_RATE,
            _ => GOODPUT,
        }
    }

    fn references(&self) -> Vec<String> {
        let all = if self.of == Of::Rdma { NO_CRC } else { ALL_ON };
        vec![all.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        let has =
            |(column, _): (Ablation, _)| column.of == self.of && (column.alone || !self.alone);
        path == PathKind::Ablation && stack.ablated(&[]).is_some_and(has)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let last = site.place.hosts.len() - 1;
        let ends = Job::pair(
            self.end(stack, "--listen", site),
            self.end(stack, "--connect", site),
            site.port,
            site.place.hosts.len(),
        );
        let mut roles = vec![
            switched(stack, site, 0, "server's"),
            switched(stack, site, last, "client's"),
        ];
        roles.extend(ends.roles);
        Job {
            roles,
            timeout: site.timeout(),
            ..ends
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let mut metrics = printed(output.client(), CLIENT)?;
        per_octet::put(&mut metrics, output, self.octets());
        Ok(metrics)
    }

    fn spins(&self) -> bool {
        self.of == Of::Rdma
    }

    fn share(&self) -> f64 {
        if self.alone {
            0.5
        } else {
            1.0
        }
    }

    fn size(&self) -> Option<u64> {
        Some(self.octets())
    }
}
