//! Striped files in the manner of PVFS on several machines: what several clients read or write together.

use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::sockets::{carried, carries, client_name, moved_together, printed};
use super::Workload;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat};
use crate::metric::{Metric, GOODPUT, P99};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Program, Site, Stack, PLAIN_CLIENT, TCP};

/// The host of the manager, those of the servers, and those of the clients.
const MANAGER: usize = 0;
const SERVERS: [usize; 3] = [1, 2, 3];
pub(super) const CLIENTS: [usize; 4] = [4, 5, 6, 7];

/// A manager, three servers and four clients, each on a host of its own.
#[derive(Debug)]
pub(super) struct Striped {
    name: &'static str,
    /// What a figure is, for people.
    what: &'static str,
    /// What the clients do, in their words.
    words: [&'static str; 2],
}

/// Every row.
pub(super) const ALL: [Striped; 5] = [
    Striped {
        name: "striped-write",
        what: "four clients write to three servers, each an unbroken row, 1 MiB a request",
        words: ["--pattern=row", "--does=write"],
    },
    Striped {
        name: "striped-read",
        what: "four clients read the same from the servers' memory",
        words: ["--pattern=row", "--does=read"],
    },
    Striped {
        name: "striped-read-cold",
        what: "four clients read the same from the servers' disks",
        words: ["--pattern=row", "--does=read-cold"],
    },
    Striped {
        name: "striped-tile-write",
        what: "four clients write to three servers, each a tile of a picture, 64 rows a request",
        words: ["--pattern=tile", "--does=write"],
    },
    Striped {
        name: "striped-tile-read",
        what: "four clients read the same from the servers' memory, tile by tile",
        words: ["--pattern=tile", "--does=read"],
    },
];

impl Workload for Striped {
    fn id(&self) -> String {
        self.name.to_owned()
    }

    fn describe(&self) -> String {
        format!("goodput together: {}", self.what)
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::Cluster && carries(stack) && stack.name() != PLAIN_CLIENT
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let mut roles = store(stack, site);
        for (number, host) in CLIENTS.into_iter().enumerate() {
            let mut words = vec![
                format!("--copy={number}"),
                format!("--copies={}", CLIENTS.len()),
                format!("--seconds={}", site.seconds),
            ];
            words.extend(self.words.map(str::to_owned));
            roles.push(Role {
                measures: true,
                ..client(
                    stack,
                    site,
                    "client",
                    client_name(number as u32 + 1),
                    host,
                    &words,
                )
            });
        }
        Job {
            roles,
            pinned: false,
            timeout: site.timeout(),
        }
    }

    /// What flows is added up; of the 99th percentiles the worst, as that client's user sees it.
    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let clients = CLIENTS.len() as u32;
        let mut metrics = moved_together(output, clients)?;
        let mut worst = 0.0_f64;
        for number in 1..=clients {
            let name = client_name(number);
            let own = printed(output.role(&name), &name)?.get(P99).copied();
            worst = worst.max(own.with_context(|| format!("{name} printed no {P99}"))?);
        }
        metrics.insert(P99.to_owned(), worst);
        Ok(metrics)
    }

    fn pinned(&self) -> bool {
        false
    }
}

/// The manager and the servers, for so many clients as there are hosts for.
pub(super) fn store(stack: &dyn Stack, site: &Site) -> Vec<Role> {
    let clients = format!("--clients={}", CLIENTS.len());
    let role = |what: &str, name: String, host, more: &[String]| {
        let listen = format!("--listen={}", address(site, host));
        let words = words(what, &[&[listen, clients.clone()], more].concat());
        Role {
            name,
            host,
            seat: Seat::Server,
            program: carried(stack, Seat::Server, Program::Bench(&words)),
            ready: Ready::Listens(site.port),
            measures: false,
            told_to_end: false,
        }
    };
    let spread = [format!("--servers={}", SERVERS.len())];
    let mut roles = vec![role("manager", "manager".to_owned(), MANAGER, &spread)];
    for (number, host) in SERVERS.into_iter().enumerate() {
        roles.push(role("server", format!("server-{}", number + 1), host, &[]));
    }
    roles
}

/// A process that reaches the manager and all servers.
pub(super) fn client(
    stack: &dyn Stack,
    site: &Site,
    what: &str,
    name: String,
    host: usize,
    more: &[String],
) -> Role {
    let servers = SERVERS.map(|host| address(site, host)).join(",");
    let own = [
        format!("--manager={}", address(site, MANAGER)),
        format!("--servers={servers}"),
    ];
    let words = words(what, &[&own, more].concat());
    Role {
        name,
        host,
        seat: Seat::Client,
        program: carried(stack, Seat::Client, Program::Bench(&words)),
        ready: Ready::AtOnce,
        measures: false,
        told_to_end: false,
    }
}

fn address(site: &Site, host: usize) -> String {
    SocketAddr::new(site.place.host(host).address, site.port).to_string()
}

fn words(what: &str, more: &[String]) -> Vec<String> {
    let program = ["application", "striped", what].map(str::to_owned);
    [&program, more].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::raw_tcp;

    #[test]
    fn what_the_clients_moved_is_added_up() {
        let client = |goodput: f64, p99: f64| {
            format!("{{\"goodput_gbit_s\": {goodput}, \"request_us\": 5, \"p99_us\": {p99}, \"operations\": 7}}")
        };
        let printed = [client(1.0, 90.0), client(2.0, 100.0), client(3.0, 80.0)];
        let some = [
            ("client-1", &printed[0][..]),
            ("client-2", &printed[1]),
            ("client-3", &printed[2]),
        ];
        let row = &ALL[0];
        let missing = row.parse(&raw_tcp(), &Output::of(&some)).unwrap_err();
        assert!(format!("{missing:#}").contains("client-4"), "{missing:#}");
        let all = [&some[..], &[("client-4", &printed[0][..])]].concat();
        let metrics = row.parse(&raw_tcp(), &Output::of(&all)).unwrap();
        assert_eq!(
            (metrics["goodput_gbit_s"], metrics["operations"]),
            (7.0, 28.0)
        );
        assert_eq!(metrics["p99_us"], 100.0);
    }
}
