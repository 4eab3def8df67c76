//! One-sided Writes between two hosts that have two links between them: pairs of programs over one of these or one pair
//! over each.

use anyhow::{Context, Result};

use super::sockets::client_name;
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat, CLIENT, SERVER};
use crate::metric::{Metric, GOODPUT};
use crate::path::{two_links, PathKind, Place};
use crate::record::Metrics;
use crate::stack::{references, weft_name, Site, Stack};
use crate::verbs::{Mode, Op, Verbs};

/// Servers, and clients, each a program of its own.
const PAIRS: u32 = 2;

/// What each pair does. Both clients spin, on one core; their servers have nothing to do.
const EACH: Verbs = Verbs::Bulk {
    op: Op::Write,
    size: 64 << 10,
    mode: Mode::Polling,
};

/// How many of the links the pairs go over.
#[derive(Clone, Copy, Debug)]
pub(super) struct MultiNicVerbs(u32);

/// Every row.
pub(super) const ALL: [MultiNicVerbs; 2] = [MultiNicVerbs(1), MultiNicVerbs(2)];

impl MultiNicVerbs {
    /// The number of the server's host, by its address on the link that a pair goes over.
    fn server(self, pair: u32) -> usize {
        match self.0 {
            2 if pair == 2 => two_links::SERVER_BY_SECOND,
            _ => 0,
        }
    }
}

impl Workload for MultiNicVerbs {
    fn id(&self) -> String {
        format!("multi-nic-verbs-{}", self.0)
    }

    fn describe(&self) -> String {
        let over = match self.0 {
            1 => "one of two links",
            _ => "both links, one each",
        };
        format!("goodput of {PAIRS} pairs of programs together over {over}, 64 KiB RDMA Write")
    }

    fn metric(&self) -> Metric {
        GOODPUT
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis::count("multi-nic-verbs", "links", self.0))
    }

    fn references(&self) -> Vec<String> {
        references(&EACH)
    }

    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        // Others' servers spin as well, four programs on two cores, or have an interface for themselves.
        let has_idle_servers = [true, false].map(weft_name).contains(&stack.name());
        let fits = has_idle_servers || self.references().contains(&stack.name());
        path == PathKind::TwoLinks && fits && stack.serves(&EACH, path)
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let pairs = (1..=PAIRS).flat_map(|pair| self.pair(pair, stack, site));
        let mut roles: Vec<Role> = pairs.collect();
        // Servers first, as clients find them ready.
        roles.sort_by_key(|role| role.seat == Seat::Client);
        Job {
            roles,
            pinned: EACH.pinned(),
            timeout: site.timeout(),
        }
    }

    fn parse(&self, stack: &dyn Stack, output: &Output) -> Result<Metrics> {
        let mut goodput = 0.0;
        for pair in 1..=PAIRS {
            let (server, client) = (server_name(pair), client_name(pair));
            let own = Output::of(&[
                (SERVER, output.role(&server)),
                (CLIENT, output.role(&client)),
            ]);
            let metrics = stack.parse(&EACH, &own).with_context(|| client.clone())?;
            let own = metrics.get(GOODPUT.key).copied();
            goodput += own.with_context(|| format!("{client} printed no {}", GOODPUT.key))?;
        }
        Ok([(GOODPUT.key.to_owned(), goodput)].into())
    }

    fn spins(&self) -> bool {
        true
    }

    fn size(&self) -> Option<u64> {
        EACH.size()
    }
}

impl MultiNicVerbs {
    /// The two programs of a pair, as the stack has them for two hosts with the link between them.
    fn pair(self, pair: u32, stack: &dyn Stack, site: &Site) -> Vec<Role> {
        let server = self.server(pair);
        let place = Place {
            hosts: [server, two_links::CLIENT]
                .map(|host| site.place.host(host).clone())
                .into(),
            ..site.place.clone()
        };
        let port = site.port + pair as u16 - 1;
        let own = Site {
            place: &place,
            port,
            ..*site
        };
        let roles = stack.job(&EACH, &own).roles.into_iter();
        let renamed = roles.map(|role| match role.seat {
            Seat::Server => Role {
                name: server_name(pair),
                host: server,
                ready: Ready::Listens(port),
                ..role
            },
            Seat::Client => Role {
                name: client_name(pair),
                host: two_links::CLIENT,
                ..role
            },
        });
        renamed.collect()
    }
}

fn server_name(pair: u32) -> String {
    format!("server-{pair}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::tests::cluster;
    use crate::stack::{all, Programs, Weft};

    fn stack() -> Box<dyn Stack> {
        let stacks = all(&Programs {
            bench: ("weft".into(), vec![]),
            weft: Weft::new("weft"),
            scratch: "scratch".into(),
        });
        let name = weft_name(true);
        stacks
            .into_iter()
            .find(|stack| stack.name() == name)
            .unwrap()
    }

    #[test]
    fn the_second_pair_goes_over_the_second_link_where_there_are_two() {
        let place = Place {
            hosts: cluster().hosts.into_iter().take(3).collect(),
            ..cluster()
        };
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 1,
        };
        for (links, second) in [(1, "192.0.2.1"), (2, "192.0.2.2")] {
            let job = MultiNicVerbs(links).job(stack().as_ref(), &site);
            let shown = |role| job.program(role).unwrap().display();
            assert!(shown("server-1").contains("-p 7000"));
            assert!(
                shown("client-2").ends_with(&format!("-p 7001 {second}")),
                "{}",
                shown("client-2")
            );
            let hosts: Vec<usize> = job.roles.iter().map(|role| role.host).collect();
            assert_eq!(hosts, [0, links as usize - 1, 2, 2]);
        }
    }

    #[test]
    fn goodput_is_that_of_all_pairs() {
        let printed = include_str!("../../tests/samples/ib_write_bw.txt");
        let one = stack().parse(&EACH, &Output::of_client(printed)).unwrap()[GOODPUT.key];
        let both = Output::of(&[("client-1", printed), ("client-2", printed)]);
        let sum = ALL[1].parse(stack().as_ref(), &both).unwrap()[GOODPUT.key];
        assert_eq!(sum, 2.0 * one);
        let half = Output::of(&[("client-1", printed)]);
        let complaint = ALL[1].parse(stack().as_ref(), &half).unwrap_err();
        assert!(
            format!("{complaint:#}").contains("client-2"),
            "{complaint:#}"
        );
    }
}
