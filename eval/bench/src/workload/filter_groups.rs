//! Several filter groups of a program beside each other, among which units of work are shared: how many results they
//! come to together.

use std::time::Duration;

use anyhow::Result;

use super::filter_copy::{filter_words, End, FilterCopy, FilterProgram, MICROSCOPE};
use super::sockets::{carries, printed};
use super::{GivenSlide, Workload};
use crate::axis::Axis;
use crate::exec::Output;
use crate::job::{Job, Role};
use crate::metric::{Metric, REQUEST_RATE};
use crate::path::PathKind;
use crate::record::Metrics;
use crate::stack::{Site, Stack, PLAIN_CLIENT, TCP};

/// Octets of a unit of the streams between the filters.
const UNIT: u32 = 32 << 10;
/// Views that are under way in all groups together: what differs is how the filters are joined, not how much they are
/// given at once.
const UNDER_WAY: u32 = 4;
/// Copies of each filter but the last, in all groups together.
const COPIES: usize = 2;
/// The host of the client, which hands out the views and compares them.
const CLIENT_HOST: usize = 0;
/// The host of the last filter of every group.
const VIEW: usize = 1;
/// The others, from the last but one to the first, each with the hosts of its copies: the same whatever the groups.
const FILTERS: [(&str, [usize; COPIES]); 3] =
    [("subsample", [2, 3]), ("clip", [4, 5]), ("read", [6, 7])];
const CLIENT: &str = "client";
/// What the first views of a group may take.
const FIRST_VIEWS: Duration = Duration::from_secs(10);

/// Microscopes beside each other.
#[derive(Debug)]
pub(super) struct FilterGroups {
    groups: u32,
    /// The user's own; else one that is drawn from a seed.
    slide: Option<GivenSlide>,
}

/// One group of two copies of each filter, and two of one.
pub(super) fn groups(slide: Option<&GivenSlide>) -> [FilterGroups; 2] {
    [1, 2].map(|groups| FilterGroups {
        groups,
        slide: slide.cloned(),
    })
}

impl FilterGroups {
    /// Copies of each filter but the last in a group.
    fn copies(&self) -> usize {
        COPIES / self.groups as usize
    }

    /// Where the copies of a filter in a group run.
    fn ends(&self, hosts: [usize; COPIES], group: u32) -> Vec<End> {
        let hosts = hosts.chunks(self.copies()).nth(group as usize);
        let hosts = hosts.into_iter().flatten();
        hosts.map(|&host| End::of(host)).collect()
    }

    fn client(&self, site: &Site) -> FilterCopy {
        let [.., (_, reads)] = FILTERS;
        FilterCopy {
            role: CLIENT.to_owned(),
            at: End::of(CLIENT_HOST),
            ports: self.groups as u16,
            before: 1,
            behind: (0..self.groups)
                .flat_map(|group| self.ends(reads, group))
                .collect(),
            filter: vec![
                CLIENT.to_owned(),
                format!("--groups={}", self.groups),
                format!("--works={}", UNDER_WAY / self.groups),
                format!("--seconds={}", site.seconds),
            ],
            measures: true,
        }
    }

    /// The filters of a group, the last one first.
    fn group(&self, group: u32) -> Vec<FilterCopy> {
        let port = group as u16;
        let view = End { host: VIEW, port };
        let mut copies = vec![FilterCopy {
            role: format!("view-{}", group + 1),
            at: view,
            ports: 1,
            before: self.copies(),
            behind: vec![End {
                host: CLIENT_HOST,
                port,
            }],
            filter: vec!["group-view".to_owned()],
            measures: false,
        }];
        let mut behind = vec![view];
        for (filter, hosts) in FILTERS {
            let is_first = filter == "read";
            let ends = self.ends(hosts, group);
            for (number, &at) in ends.iter().enumerate() {
                let share = is_first.then_some((number, self.copies()));
                copies.push(FilterCopy {
                    role: format!("{filter}-{}", group as usize * self.copies() + number + 1),
                    at,
                    ports: 1,
                    before: if is_first { 1 } else { self.copies() },
                    behind: behind.clone(),
                    filter: filter_words(filter, share),
                    measures: false,
                });
            }
            behind = ends;
        }
        copies
    }
}

impl Workload for FilterGroups {
    fn id(&self) -> String {
        format!("{MICROSCOPE}-groups-{}", self.groups)
    }

    fn describe(&self) -> String {
        let groups = match self.groups {
            1 => "one filter group, two copies of each filter".to_owned(),
            groups => format!("{groups} filter groups, one copy of each filter in each"),
        };
        format!("views of a slide, {UNDER_WAY} under way, by {groups}, on eight hosts")
    }

    fn metric(&self) -> Metric {
        REQUEST_RATE
    }

    fn axis(&self) -> Option<Axis> {
        let series = format!("{MICROSCOPE}-groups");
        Some(Axis::count(&series, "filter groups", self.groups))
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
            name: MICROSCOPE,
            unit: UNIT,
            slide: self.slide.as_ref(),
        };
        let groups = (0..self.groups).flat_map(|group| self.group(group));
        let copies = std::iter::once(self.client(site)).chain(groups);
        let roles: Vec<Role> = copies.map(|copy| program.role(stack, site, copy)).collect();
        Job {
            roles,
            // There are more of them than cores: the scheduler knows best.
            pinned: false,
            // Before the time is taken each group has each view once, and reads all that it takes of the slide.
            timeout: program.timeout(site) + FIRST_VIEWS * self.groups,
        }
    }

    fn parse(&self, _: &dyn Stack, output: &Output) -> Result<Metrics> {
        printed(output.role(CLIENT), CLIENT)
    }

    fn pinned(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Ready;
    use crate::path::tests::cluster;
    use crate::stack::tests::raw_tcp;
    use crate::stack::{all, Programs, Weft};

    fn shown(row: &FilterGroups) -> Vec<String> {
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
        let tcp = stacks.iter().find(|stack| stack.name() == TCP).unwrap();
        assert!(row.serves(tcp.as_ref(), PathKind::Cluster));
        let job = row.job(tcp.as_ref(), &site);
        let roles = job.roles.iter().map(|role| {
            let words = role.program.display();
            let (_, words) = words.split_once("microscope --unit=32768 ").unwrap();
            let Ready::Listens(port) = role.ready else {
                panic!("{} listens", role.name);
            };
            let words = words.replace("192.0.2.", "");
            format!("{} {} {port}: {words}", role.host, role.name)
        });
        roles.collect()
    }

    #[test]
    fn each_group_is_a_pipeline_of_its_own_on_the_same_hosts() {
        let [one, two] = groups(None);
        assert_eq!(
            shown(&one),
            [
                "0 client 7000: --listen=1:7000 --before=1 --to=7:7000,8:7000 client --groups=1 --works=4 --seconds=3",
                "1 view-1 7000: --listen=2:7000 --before=2 --to=1:7000 group-view",
                "2 subsample-1 7000: --listen=3:7000 --before=2 --to=2:7000 subsample",
                "3 subsample-2 7000: --listen=4:7000 --before=2 --to=2:7000 subsample",
                "4 clip-1 7000: --listen=5:7000 --before=2 --to=3:7000,4:7000 clip",
                "5 clip-2 7000: --listen=6:7000 --before=2 --to=3:7000,4:7000 clip",
                "6 read-1 7000: --listen=7:7000 --before=1 --to=5:7000,6:7000 read --copy=0 --copies=2",
                "7 read-2 7000: --listen=8:7000 --before=1 --to=5:7000,6:7000 read --copy=1 --copies=2",
            ]
        );
        assert_eq!(
            shown(&two),
            [
                "0 client 7001: --listen=1:7000 --before=1 --to=7:7000,8:7000 client --groups=2 --works=2 --seconds=3",
                "1 view-1 7000: --listen=2:7000 --before=1 --to=1:7000 group-view",
                "2 subsample-1 7000: --listen=3:7000 --before=1 --to=2:7000 subsample",
                "4 clip-1 7000: --listen=5:7000 --before=1 --to=3:7000 clip",
                "6 read-1 7000: --listen=7:7000 --before=1 --to=5:7000 read --copy=0 --copies=1",
                "1 view-2 7001: --listen=2:7001 --before=1 --to=1:7001 group-view",
                "3 subsample-2 7000: --listen=4:7000 --before=1 --to=2:7001 subsample",
                "5 clip-2 7000: --listen=6:7000 --before=1 --to=4:7000 clip",
                "7 read-2 7000: --listen=8:7000 --before=1 --to=6:7000 read --copy=0 --copies=1",
            ]
        );
    }

    #[test]
    fn a_slide_of_the_users_own_is_in_the_record_by_its_name_alone() {
        let slide = GivenSlide {
            file: "/home/somebody/a slide.tif".into(),
            decoded_in: Duration::from_secs(2),
        };
        let [one, _] = groups(Some(&slide));
        for line in shown(&one) {
            assert!(line.ends_with(" --slide a slide.tif"), "{line}");
        }
    }

    #[test]
    fn the_figures_are_the_clients() {
        let [_, row] = groups(None);
        let printed =
            r#"{"requests_per_s": 40.5, "request_us": 90, "group_least": 7, "group_most": 9}"#;
        let output = Output::of(&[("view-1", ""), (CLIENT, printed)]);
        let metrics = row.parse(&raw_tcp(), &output).unwrap();
        assert_eq!(
            (metrics["requests_per_s"], metrics["group_least"]),
            (40.5, 7.0)
        );
    }
}
