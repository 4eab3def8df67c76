//! Programs that are pipelines of filters on several machines: how many results they come to.

use std::net::SocketAddr;

use anyhow::Result;

use super::sockets::{carried, carries, printed};
use super::Workload;
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, Ready, Role, Seat};
use crate::metric::{Metric, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Program, Site, Stack, PLAIN_CLIENT, TCP};

/// Octets of a unit of the streams between the filters.
const UNITS: [u32; 3] = [16 << 10, 32 << 10, 64 << 10];
/// Copies of each filter but the last.
const COPIES: usize = 2;
/// The host of the last filter.
const LAST: usize = 0;
/// Hosts of the copies of the others, from the last but one to the first.
const HOSTS: [[usize; COPIES]; 3] = [[1, 2], [3, 4], FIRST];
const FIRST: [usize; COPIES] = [5, 6];

/// Two copies of each of three filters and one of the last, each on a host of its own.
#[derive(Debug)]
pub(super) struct Pipeline {
    program: &'static Filters,
    /// Octets of a unit.
    unit: u32,
}

/// A program of four filters.
#[derive(Debug)]
struct Filters {
    name: &'static str,
    /// What one result is, for people.
    result: &'static str,
    last: &'static str,
    /// From the last but one to the first.
    others: [&'static str; 3],
}

const PROGRAMS: [Filters; 2] = [
    Filters {
        name: "microscope",
        result: "views of a slide",
        last: "view",
        others: ["subsample", "clip", "read"],
    },
    Filters {
        name: "isosurface",
        result: "pictures of an isosurface",
        last: "merge",
        others: ["render", "extract", "read"],
    },
];

/// Every program with every unit.
pub(super) fn pipelines() -> impl Iterator<Item = Pipeline> {
    let of_program = |program| UNITS.map(|unit| Pipeline { program, unit });
    PROGRAMS.iter().flat_map(of_program)
}

/// One process of it.
struct Copy<'a> {
    /// Its name in the record.
    role: String,
    host: usize,
    /// Copies of the filter before it.
    before: usize,
    /// Hosts of those of the filter behind it.
    behind: &'a [usize],
    /// Which filter it is, and what that wants to know.
    filter: Vec<String>,
}

impl Pipeline {
    fn role(&self, stack: &dyn Stack, site: &Site, copy: Copy<'_>) -> Role {
        let address = |host| SocketAddr::new(site.place.host(host).address, site.port).to_string();
        let behind = copy.behind.iter().map(|&host| address(host));
        let mut words = vec![
            "application".to_owned(),
            self.program.name.to_owned(),
            format!("--listen={}", address(copy.host)),
            format!("--before={}", copy.before),
            format!("--to={}", behind.collect::<Vec<_>>().join(",")),
            format!("--unit={}", self.unit),
        ];
        words.extend(copy.filter);
        Role {
            name: copy.role,
            host: copy.host,
            seat: Seat::Server,
            program: carried(stack, Seat::Server, Program::Bench(&words)),
            ready: Ready::Listens(site.port),
            measures: copy.host == LAST,
            told_to_end: false,
        }
    }
}

impl Workload for Pipeline {
    fn id(&self) -> String {
        format!("{}-{}K", self.program.name, self.unit >> 10)
    }

    fn describe(&self) -> String {
        format!(
            "{} over four filters on seven hosts, one after another, units of {} KiB",
            self.program.result,
            self.unit >> 10
        )
    }

    fn metric(&self) -> Metric {
        REQUEST_RATE
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis {
            parameter: "unit".to_owned(),
            ..Axis::size(self.program.name, self.unit.into())
        })
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    /// Each program listens and connects: there is no server whose clients could be plain.
    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::Cluster && carries(stack) && stack.name() != PLAIN_CLIENT
    }

    /// In the order of their start: those behind listen before those before connect.
    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let last = Copy {
            role: self.program.last.to_owned(),
            host: LAST,
            before: COPIES,
            // It orders what the first are to give.
            behind: &FIRST,
            filter: vec![
                self.program.last.to_owned(),
                format!("--seconds={}", site.seconds),
            ],
        };
        let mut roles = vec![self.role(stack, site, last)];
        let mut behind = &[LAST][..];
        for (filter, hosts) in self.program.others.into_iter().zip(&HOSTS) {
            let is_first = *hosts == FIRST;
            for (number, &host) in hosts.iter().enumerate() {
                let mut words = vec![filter.to_owned()];
                if is_first {
                    words.push(format!("--copy={number}"));
                    words.push(format!("--copies={COPIES}"));
                }
                let copy = Copy {
                    role: format!("{filter}-{}", number + 1),
                    host,
                    before: if is_first { 1 } else { COPIES },
                    behind,
                    filter: words,
                };
                roles.push(self.role(stack, site, copy));
            }
            behind = hosts;
        }
        Job {
            roles,
            // There are more of them than cores: the scheduler knows best.
            pinned: false,
            timeout: site.timeout(),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        let last = self.program.last;
        printed(output.role(last), last)
    }

    fn pinned(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Side;
    use crate::path::{Host, Place};
    use crate::stack::{all, Programs, Weft, DDP};

    #[test]
    fn each_copy_is_joined_to_those_before_and_behind_it() {
        let host = |number: u8| Host {
            name: format!("host-{number}"),
            side: Side::default(),
            address: [192, 0, 2, number].into(),
            far: None,
        };
        let place = Place {
            hosts: (1..=8).map(host).collect(),
            cores: None,
            round_trip_us: 0.0,
        };
        let site = Site {
            place: &place,
            port: 7000,
            seconds: 3,
        };
        let stacks = all(&Programs {
            bench: ("/opt/weft".into(), vec!["bench".into()]),
            weft: Weft::new("/opt/weft"),
            scratch: "/tmp".into(),
        });
        let row = pipelines().next().unwrap();
        let fitting: Vec<_> = stacks
            .iter()
            .filter(|stack| row.serves(stack.as_ref(), PathKind::Cluster))
            .collect();
        let names: Vec<String> = fitting.iter().map(|stack| stack.name()).collect();
        assert_eq!(names, ["tcp", "tcp under hooks", DDP]);
        let job = row.job(fitting[2].as_ref(), &site);
        let shown: Vec<String> = job
            .roles
            .iter()
            .map(|role| {
                let words = role.program.display();
                let (_, words) = words.split_once("microscope ").unwrap();
                format!("{} {}: {words}", role.host, role.name)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "0 view: --listen=192.0.2.1:7000 --before=2 --to=192.0.2.6:7000,192.0.2.7:7000 --unit=16384 view --seconds=3",
                "1 subsample-1: --listen=192.0.2.2:7000 --before=2 --to=192.0.2.1:7000 --unit=16384 subsample",
                "2 subsample-2: --listen=192.0.2.3:7000 --before=2 --to=192.0.2.1:7000 --unit=16384 subsample",
                "3 clip-1: --listen=192.0.2.4:7000 --before=2 --to=192.0.2.2:7000,192.0.2.3:7000 --unit=16384 clip",
                "4 clip-2: --listen=192.0.2.5:7000 --before=2 --to=192.0.2.2:7000,192.0.2.3:7000 --unit=16384 clip",
                "5 read-1: --listen=192.0.2.6:7000 --before=1 --to=192.0.2.4:7000,192.0.2.5:7000 --unit=16384 read --copy=0 --copies=2",
                "6 read-2: --listen=192.0.2.7:7000 --before=1 --to=192.0.2.4:7000,192.0.2.5:7000 --unit=16384 read --copy=1 --copies=2",
            ]
        );
        let measuring: Vec<&str> = job
            .roles
            .iter()
            .filter(|role| role.measures)
            .map(|role| role.name.as_str())
            .collect();
        assert_eq!(measuring, ["view"]);
        let ids: Vec<String> = pipelines().map(|row| row.id()).collect();
        assert_eq!(ids.len(), 6);
        assert!(ids.contains(&"isosurface-64K".to_owned()), "{ids:?}");
        assert!(job.roles[1]
            .program
            .display()
            .starts_with("weft run --ddp require -- weft bench application"));
    }
}
