//! Streams between two hosts that have two links between them, over one of these or over both.

use std::net::SocketAddr;

use anyhow::Result;

use super::sockets::{carried, carries, client_name, moved_together, MESSAGE};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat};
use crate::metric::{Metric, GOODPUT};
use crate::path::{two_links, PathKind};
use crate::record::Metrics;
use crate::stack::{Program, Site, Stack, TCP};

/// Servers, and clients, each a program of its own; and the streams of each.
const PAIRS: u32 = 2;
const STREAMS: u32 = 2;

/// How many of the links the streams go over.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiNic(u32);

/// Every row.
pub(super) const ALL: [MultiNic; 2] = [MultiNic(1), MultiNic(2)];

impl Workload for MultiNic {
    fn id(&self) -> String {
        format!("multi-nic-{}", self.0)
    }

    fn describe(&self) -> String {
        let streams = PAIRS * STREAMS;
        let over = match self.0 {
            1 => "one of two links",
            _ => "both links, half of them each",
        };
        format!("goodput of {streams} streams together over {over}, 64 KiB messages")
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("multi-nic", "links", self.0))
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::TwoLinks && carries(stack)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let role = |seat, number: u32| {
            let at = self.address(site, number).to_string();
            let (name, listens) = match seat {
                Seat::Server => (format!("server-{number}"), true),
                Seat::Client => (client_name(number), false),
            };
            let words = [
                "raw".to_owned(),
                if listens { "--listen" } else { "--connect" }.to_owned(),
                at,
                format!("--clients={STREAMS}"),
                "stream".to_owned(),
                format!("--size={MESSAGE}"),
                format!("--seconds={}", site.seconds),
            ];
            Role {
                name,
                host: if listens { 0 } else { two_links::CLIENT },
                seat,
                program: carried(stack, seat, Program::Bench(&words)),
                ready: match listens {
                    true => Ready::Listens(port(site, number)),
                    false => Ready::AtOnce,
                },
                measures: !listens,
                told_to_end: false,
            }
        };
        let servers = (1..=PAIRS).map(|number| role(Seat::Server, number));
        let clients = (1..=PAIRS).map(|number| role(Seat::Client, number));
        Job {
            roles: servers.chain(clients).collect(),
            pinned: true,
            timeout: site.timeout(),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        moved_together(output, PAIRS)
    }
}

impl MultiNic {
    /// Where a server listens: at its host's address on the link that its streams are to go over.
    fn address(&self, site: &Site, number: u32) -> SocketAddr {
        let link = match self.0 {
            2 if number == 2 => two_links::SERVER_BY_SECOND,
            _ => 0,
        };
        SocketAddr::new(site.place.host(link).address, port(site, number))
    }
}

fn port(site: &Site, number: u32) -> u16 {
    site.port + number as u16 - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{tests::cluster, Place};
    use crate::stack::{all, Programs, Weft};

    #[test]
    fn the_second_half_goes_over_the_second_link_where_there_are_two() {
        let stacks = all(&Programs {
            bench: ("weft".into(), vec![]),
            weft: Weft::new("weft"),
            scratch: "scratch".into(),
        });
        let tcp = stacks.iter().find(|stack| stack.name() == TCP).unwrap();
        let place = Place {
            hosts: cluster().hosts.into_iter().take(3).collect(),
            ..cluster()
        };
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 1,
        };
        for (links, second) in [(1, "192.0.2.1:7001"), (2, "192.0.2.2:7001")] {
            let job = MultiNic(links).job(tcp.as_ref(), &site);
            let shown = |role| job.program(role).unwrap().display();
            assert!(shown("server-1").contains("--listen 192.0.2.1:7000"));
            assert!(shown("server-2").contains(&format!("--listen {second}")));
            assert!(shown("client-2").contains(&format!("--connect {second}")));
        }
    }
}
