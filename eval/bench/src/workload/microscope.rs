//! A virtual microscope on several machines: how many views it shows.

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

/// Octets of a unit of the streams between its filters.
pub(super) const UNITS: [u32; 3] = [16 << 10, 32 << 10, 64 << 10];

/// Copies of each filter but the last.
const COPIES: usize = 2;
const VIEW: &str = "view";

/// Two copies that read the slide, two that clip, two that subsample, and one that shows views, each on a host of its
/// own; with units of this length.
#[derive(Debug)]
pub(super) struct Microscope(pub(super) u32);

/// A filter and the hosts of its copies.
struct Stage {
    name: &'static str,
    hosts: [usize; COPIES],
}

/// In the order of their start: those behind listen before those before connect.
const STAGES: [Stage; 3] = [
    Stage {
        name: "subsample",
        hosts: [1, 2],
    },
    Stage {
        name: "clip",
        hosts: [3, 4],
    },
    Stage {
        name: READ,
        hosts: [5, 6],
    },
];
const READ: &str = "read";

impl Workload for Microscope {
    fn id(&self) -> String {
        format!("microscope-{}K", self.0 >> 10)
    }

    fn describe(&self) -> String {
        format!(
            "views of a slide over four filters on seven hosts, one after another, units of {} KiB",
            self.0 >> 10
        )
    }

    fn metric(&self) -> Metric {
        REQUEST_RATE
    }

    fn axis(&self) -> Option<Axis> {
        Some(Axis {
            parameter: "unit".to_owned(),
            ..Axis::size("microscope", self.0.into())
        })
    }

    fn references(&self) -> Vec<String> {
        vec![TCP.to_owned()]
    }

    /// Each program listens and connects: there is no server whose clients could be plain.
    fn serves(&self, stack: &dyn Stack, path: PathKind) -> bool {
        path == PathKind::Cluster && carries(stack) && stack.name() != PLAIN_CLIENT
    }

    fn job(&self, stack: &dyn Stack, site: &Site) -> Job {
        let addresses = |hosts: &[usize]| -> Vec<SocketAddr> {
            let address = |&host: &usize| site.place.host(host).address;
            let all = hosts.iter().map(address);
            all.map(|ip| SocketAddr::new(ip, site.port)).collect()
        };
        let role =
            |name: String, host: usize, before: usize, to: &[SocketAddr], filter: &[String]| {
                let to: Vec<String> = to.iter().map(SocketAddr::to_string).collect();
                let mut words = vec![
                    "application".to_owned(),
                    "microscope".to_owned(),
                    format!("--listen={}", addresses(&[host])[0]),
                    format!("--before={before}"),
                    format!("--to={}", to.join(",")),
                ];
                words.extend_from_slice(filter);
                Role {
                    measures: name == VIEW,
                    name,
                    host,
                    seat: Seat::Server,
                    program: carried(stack, Seat::Server, Program::Bench(&words)),
                    ready: Ready::Listens(site.port),
                    told_to_end: false,
                }
            };
        let [.., read] = &STAGES;
        let view = [VIEW.to_owned(), format!("--seconds={}", site.seconds)];
        let mut roles = vec![role(
            VIEW.to_owned(),
            0,
            COPIES,
            &addresses(&read.hosts),
            &view,
        )];
        let mut behind = addresses(&[0]);
        for stage in &STAGES {
            // The view orders what those that read are to give.
            let before = if stage.name == READ { 1 } else { COPIES };
            for (copy, &host) in stage.hosts.iter().enumerate() {
                let mut filter = vec![stage.name.to_owned()];
                if stage.name == READ {
                    filter.push(format!("--unit={}", self.0));
                    filter.push(format!("--copy={copy}"));
                    filter.push(format!("--copies={COPIES}"));
                }
                let name = format!("{}-{}", stage.name, copy + 1);
                roles.push(role(name, host, before, &behind, &filter));
            }
            behind = addresses(&stage.hosts);
        }
        Job {
            roles,
            // There are more of them than cores: the scheduler knows best.
            pinned: false,
            timeout: site.timeout(),
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.role(VIEW), VIEW)
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
        let row = Microscope(16 << 10);
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
                "0 view: --listen=192.0.2.1:7000 --before=2 --to=192.0.2.6:7000,192.0.2.7:7000 view --seconds=3",
                "1 subsample-1: --listen=192.0.2.2:7000 --before=2 --to=192.0.2.1:7000 subsample",
                "2 subsample-2: --listen=192.0.2.3:7000 --before=2 --to=192.0.2.1:7000 subsample",
                "3 clip-1: --listen=192.0.2.4:7000 --before=2 --to=192.0.2.2:7000,192.0.2.3:7000 clip",
                "4 clip-2: --listen=192.0.2.5:7000 --before=2 --to=192.0.2.2:7000,192.0.2.3:7000 clip",
                "5 read-1: --listen=192.0.2.6:7000 --before=1 --to=192.0.2.4:7000,192.0.2.5:7000 read --unit=16384 --copy=0 --copies=2",
                "6 read-2: --listen=192.0.2.7:7000 --before=1 --to=192.0.2.4:7000,192.0.2.5:7000 read --unit=16384 --copy=1 --copies=2",
            ]
        );
        let measuring: Vec<&str> = job
            .roles
            .iter()
            .filter(|role| role.measures)
            .map(|role| role.name.as_str())
            .collect();
        assert_eq!(measuring, ["view"]);
        assert!(job.roles[1]
            .program
            .display()
            .starts_with("weft run --ddp require -- weft bench application"));
    }
}
