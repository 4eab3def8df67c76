//! Programs that are pipelines of filters on several machines: how many results they come to.

use anyhow::Result;

use super::filter_copy::{filter_words, End, FilterCopy, FilterProgram, MICROSCOPE};
use super::sockets::{carries, printed};
use super::{GivenSlide, Workload};
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::Job;
use crate::metric::{Metric, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, PLAIN_CLIENT, TCP};

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
    /// The user's own; else one that is drawn from a seed.
    slide: Option<GivenSlide>,
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
        name: MICROSCOPE,
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

/// Every program with every unit. A slide is the microscope's.
pub(super) fn pipelines(slide: Option<&GivenSlide>) -> Vec<Pipeline> {
    let of_program = |program: &'static Filters| {
        UNITS.map(|unit| Pipeline {
            program,
            unit,
            slide: slide.filter(|_| program.name == MICROSCOPE).cloned(),
        })
    };
    PROGRAMS.iter().flat_map(of_program).collect()
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
        let program = FilterProgram {
            name: self.program.name,
            unit: self.unit,
            slide: self.slide.as_ref(),
        };
        let role = |copy| program.role(stack, site, copy);
        let ends = |hosts: &[usize]| hosts.iter().map(|&host| End::of(host)).collect::<Vec<_>>();
        let last = FilterCopy {
            role: self.program.last.to_owned(),
            at: End::of(LAST),
            ports: 1,
            before: COPIES,
            // It orders what the first are to give.
            behind: ends(&FIRST),
            filter: vec![
                self.program.last.to_owned(),
                format!("--seconds={}", site.seconds),
            ],
            measures: true,
        };
        let mut roles = vec![role(last)];
        let mut behind = ends(&[LAST]);
        for (filter, hosts) in self.program.others.into_iter().zip(&HOSTS) {
            let is_first = *hosts == FIRST;
            for (number, &host) in hosts.iter().enumerate() {
                let share = is_first.then_some((number, COPIES));
                roles.push(role(FilterCopy {
                    role: format!("{filter}-{}", number + 1),
                    at: End::of(host),
                    ports: 1,
                    before: if is_first { 1 } else { COPIES },
                    behind: behind.clone(),
                    filter: filter_words(filter, share),
                    measures: false,
                }));
            }
            behind = ends(hosts);
        }
        Job {
            roles,
            // There are more of them than cores: the scheduler knows best.
            pinned: false,
            timeout: program.timeout(site),
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
    use crate::path::tests::cluster;
    use crate::stack::{all, Programs, Weft, DDP};

    #[test]
    fn each_copy_is_joined_to_those_before_and_behind_it() {
        let place = cluster();
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
        let row = pipelines(None).remove(0);
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
                "0 view: --unit=16384 --listen=192.0.2.1:7000 --before=2 --to=192.0.2.6:7000,192.0.2.7:7000 view --seconds=3",
                "1 subsample-1: --unit=16384 --listen=192.0.2.2:7000 --before=2 --to=192.0.2.1:7000 subsample",
                "2 subsample-2: --unit=16384 --listen=192.0.2.3:7000 --before=2 --to=192.0.2.1:7000 subsample",
                "3 clip-1: --unit=16384 --listen=192.0.2.4:7000 --before=2 --to=192.0.2.2:7000,192.0.2.3:7000 clip",
                "4 clip-2: --unit=16384 --listen=192.0.2.5:7000 --before=2 --to=192.0.2.2:7000,192.0.2.3:7000 clip",
                "5 read-1: --unit=16384 --listen=192.0.2.6:7000 --before=1 --to=192.0.2.4:7000,192.0.2.5:7000 read --copy=0 --copies=2",
                "6 read-2: --unit=16384 --listen=192.0.2.7:7000 --before=1 --to=192.0.2.4:7000,192.0.2.5:7000 read --copy=1 --copies=2",
            ]
        );
        let measuring: Vec<&str> = job
            .roles
            .iter()
            .filter(|role| role.measures)
            .map(|role| role.name.as_str())
            .collect();
        assert_eq!(measuring, ["view"]);
        let ids: Vec<String> = pipelines(None).iter().map(Workload::id).collect();
        assert_eq!(ids.len(), 6);
        assert!(ids.contains(&"isosurface-64K".to_owned()), "{ids:?}");
        assert!(job.roles[1]
            .program
            .display()
            .starts_with("weft run --ddp require -- weft bench application"));
    }
}
