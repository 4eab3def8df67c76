//! Which rows there are, and which of them a run takes.

use std::rc::Rc;

use crate::path::PathKind;
use crate::stack::Stack;
use crate::targets;
use crate::verbs::{Mode, Op, Verbs, ATOMIC, UD_IN_ONE_PACKET, UD_LONGEST};
use crate::workload::{self, Given, Workload};

/// A workload on a path and the stacks that serve it.
#[derive(Clone, Debug)]
pub struct Row {
    /// Path.
    pub path: PathKind,
    /// Workload.
    pub workload: Rc<dyn Workload>,
    /// Indices into the list of stacks.
    pub stacks: Vec<usize>,
}

/// Rows that are compared with each other and therefore run in turn, like the cells of one row.
pub type Group = Vec<Row>;

/// Which rows and stacks a run takes.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Every size and mode, not only the usual ones.
    pub full: bool,
    /// Every row of the usual sizes and modes, not only those that tell most.
    pub wide: bool,
    /// Only the rows that the targets need.
    pub targets: bool,
    /// Rows whose id contains one of these, or whose workload is exactly one of these; empty is
    /// every row.
    pub only: Vec<String>,
    /// Stacks whose name contains one of these, and the references; empty is every stack.
    pub stacks: Vec<String>,
    /// What rows are made with.
    pub given: Given,
}

/// Rows that tell most, on loopback and on veth: 13 minutes, where all of the usual sizes take 98.
const TELLING: [&str; 10] = [
    "send-lat-64",
    "write-bw-1M",
    "send-rate-64",
    "connect",
    "socket-bulk-busy",
    "socket-lat-64-epoll",
    "redis-get",
    "udp-flow-64",
    "udp-flow-1448",
    "udp-lat-64-waiting",
];

const SMALL: u64 = 64;
const SIZES: [u64; 5] = [64, 4 << 10, 64 << 10, 1 << 20, 4 << 20];
const SIZES_FULL: [u64; 9] = [
    64,
    256,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];
const DEPTH: u32 = 128;
const LISTS: [u32; 2] = [1, 16];

impl Selection {
    /// Whether only the rows that tell most are wanted: who names rows means all that have the name.
    fn is_short(&self) -> bool {
        !self.full && !self.wide && !self.targets && self.only.is_empty()
    }

    /// Whether rows that a run takes on request alone are wanted: in full, or as those that it names.
    fn takes_requested(&self) -> bool {
        self.full || !self.only.is_empty()
    }
}

/// Whether a row is among those that tell most. On the paths that nobody has without asking for them all are.
pub fn is_telling(row: &Row) -> bool {
    let is_usual = matches!(
        row.path,
        PathKind::Loopback | PathKind::Veth | PathKind::Hosts
    );
    !is_usual || TELLING.contains(&row.workload.id().as_str())
}

impl Row {
    /// `loopback/send-lat-64`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.path.name(), self.workload.id())
    }
}

/// The groups of one path.
pub fn groups(path: PathKind, stacks: &[Box<dyn Stack>], selection: &Selection) -> Vec<Group> {
    let rows = workloads(path, selection.full, &selection.given)
        .into_iter()
        .filter(|workload| !selection.targets || targets::needs(&workload.id()))
        .map(|workload| Row {
            path,
            stacks: serving(path, workload.as_ref(), stacks, selection),
            workload,
        })
        .filter(|row| named(row, &selection.only))
        .filter(|row| !row.workload.on_request() || selection.takes_requested())
        .filter(|row| !selection.is_short() || is_telling(row));
    let mut groups: Vec<Group> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if compared(group[0].workload.as_ref(), row.workload.as_ref()) => {
                group.push(row)
            }
            _ => groups.push(vec![row]),
        }
    }
    groups
}

/// Every workload of the default or of the full plan of a path; those that belong together are neighbours.
pub fn workloads(path: PathKind, full: bool, given: &Given) -> Vec<Rc<dyn Workload>> {
    if path == PathKind::Adapter {
        return workload::of_adapter(full, given.link_rate);
    }
    if path == PathKind::Ablation {
        return workload::of_ablation();
    }
    if path == PathKind::Cluster {
        return workload::of_cluster(given.slide.as_ref());
    }
    if path == PathKind::TwoLinks {
        return workload::of_two_links();
    }
    let verbs = verbs(full)
        .into_iter()
        .map(|verbs| Rc::new(verbs) as Rc<dyn Workload>);
    verbs
        .chain(workload::of_sockets(full))
        .chain(workload::of_mpi())
        .collect()
}

/// Every workload of RDMA programs.
fn verbs(full: bool) -> Vec<Verbs> {
    let mut list = Vec::new();
    latency(&mut list, full);
    bulk(&mut list, full);
    for op in [Op::Send, Op::Write] {
        list.extend(LISTS.map(|post_list| rate(op, SMALL, post_list)));
    }
    list.push(Verbs::Connect);
    by_gid(&mut list);
    list
}

/// What programs do that bring queue pairs up by GID and number, and rows of their own for what
/// only they do.
fn by_gid(list: &mut Vec<Verbs>) {
    let latency = |op, size| Verbs::Latency {
        op,
        size,
        mode: Mode::Polling,
        pinned: true,
    };
    let bulk = |op, size| Verbs::Bulk {
        op,
        size,
        mode: Mode::Polling,
    };
    list.push(Verbs::BringUp);
    let atomics = [Op::FetchAdd, Op::CompareSwap];
    list.extend(atomics.map(|op| latency(op, ATOMIC)));
    list.extend(atomics.map(|op| rate(op, ATOMIC, 1)));
    list.extend([
        latency(Op::WriteImm, SMALL),
        bulk(Op::WriteImm, 1 << 20),
        rate(Op::WriteImm, SMALL, 1),
        latency(Op::UcSend, SMALL),
        latency(Op::UcWrite, SMALL),
        bulk(Op::UcWrite, 1 << 20),
        latency(Op::UdSend, SMALL),
        latency(Op::UdSend, UD_IN_ONE_PACKET),
        latency(Op::UdSend, UD_LONGEST),
        bulk(Op::UdSend, UD_IN_ONE_PACKET),
        bulk(Op::UdSend, UD_LONGEST),
        rate(Op::UdSend, SMALL, 1),
    ]);
}

fn rate(op: Op, size: u64, post_list: u32) -> Verbs {
    Verbs::Rate {
        op,
        size,
        depth: DEPTH,
        post_list,
    }
}

fn latency(list: &mut Vec<Verbs>, full: bool) {
    let row = |op, size, mode, pinned| Verbs::Latency {
        op,
        size,
        mode,
        pinned,
    };
    let sizes = |some: &'static [u64]| if full { &SIZES_FULL } else { some };
    list.extend(
        sizes(&SIZES)
            .iter()
            .map(|&size| row(Op::Send, size, Mode::Polling, true)),
    );
    list.extend(
        sizes(&SIZES[..2])
            .iter()
            .map(|&size| row(Op::Send, size, Mode::Event, true)),
    );
    list.extend(
        sizes(&SIZES[..2])
            .iter()
            .map(|&size| row(Op::Write, size, Mode::Polling, true)),
    );
    list.extend(
        sizes(&SIZES[..1])
            .iter()
            .map(|&size| row(Op::Read, size, Mode::Polling, true)),
    );
    list.extend(
        sizes(&SIZES[..1])
            .iter()
            .map(|&size| row(Op::Read, size, Mode::Event, true)),
    );
    list.extend([Op::Send, Op::Write].map(|op| row(op, SMALL, Mode::Polling, false)));
}

fn bulk(list: &mut Vec<Verbs>, full: bool) {
    let row = |op, size, mode| Verbs::Bulk { op, size, mode };
    let (large, telling) = if full {
        (&SIZES_FULL[..], &SIZES_FULL[..])
    } else {
        (&SIZES[1..], &SIZES[3..4])
    };
    list.extend(
        large
            .iter()
            .map(|&size| row(Op::Write, size, Mode::Polling)),
    );
    // No writes in event mode: ib_write_bw has no -e.
    for op in [Op::Send, Op::Read] {
        list.extend(telling.iter().map(|&size| row(op, size, Mode::Polling)));
        list.extend(
            telling
                .iter()
                .filter(|_| full || op == Op::Send)
                .map(|&size| row(op, size, Mode::Event)),
        );
    }
}

/// The unpinned write is judged by the unpinned send.
fn compared(a: &dyn Workload, b: &dyn Workload) -> bool {
    !a.pinned() && !b.pinned()
}

fn serving(
    path: PathKind,
    workload: &dyn Workload,
    stacks: &[Box<dyn Stack>],
    selection: &Selection,
) -> Vec<usize> {
    let references = workload.references();
    let wanted = |name: String| matches(&name, &selection.stacks) || references.contains(&name);
    (0..stacks.len())
        .filter(|&i| workload.serves(stacks[i].as_ref(), path) && wanted(stacks[i].name()))
        .collect()
}

/// A pattern that is some workload's whole name, with or without a path, stands for that one alone.
fn named(row: &Row, patterns: &[String]) -> bool {
    let (id, workload) = (row.id(), row.workload.id());
    let is_name = |pattern: &str| {
        let name = pattern.split_once('/').map_or(pattern, |(_, name)| name);
        workloads(row.path, true, &Given::default())
            .iter()
            .any(|w| w.id() == name)
    };
    let one = |pattern: &String| match is_name(pattern) {
        true => *pattern == workload || *pattern == id,
        false => id.contains(pattern.as_str()),
    };
    patterns.is_empty() || patterns.iter().any(one)
}

fn matches(text: &str, patterns: &[String]) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| text.contains(pattern))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::{all, Programs, Weft};
    use std::collections::HashSet;

    fn stacks() -> Vec<Box<dyn Stack>> {
        all(&Programs {
            bench: ("weft".into(), vec![]),
            weft: Weft::new("weft"),
            scratch: "scratch".into(),
        })
    }

    fn ids(selection: &Selection) -> Vec<String> {
        groups(PathKind::Loopback, &stacks(), selection)
            .iter()
            .flatten()
            .map(Row::id)
            .collect()
    }

    #[test]
    fn rows_are_unique_and_the_full_plan_holds_the_default_one() {
        let [default, wide, full] =
            [(false, false), (true, false), (false, true)].map(|(wide, full)| {
                ids(&Selection {
                    full,
                    wide,
                    ..Selection::default()
                })
            });
        assert_eq!(full.iter().collect::<HashSet<_>>().len(), full.len());
        assert_eq!(default.len(), TELLING.len(), "each of them is a row");
        assert!(default.iter().all(|id| wide.contains(id)));
        assert!(wide.iter().all(|id| full.contains(id)));
        assert!(default.len() < wide.len() && wide.len() < full.len());
    }

    #[test]
    fn what_is_on_request_is_in_no_run_that_does_not_name_it() {
        let of = |full, wide| {
            ids(&Selection {
                full,
                wide,
                ..Selection::default()
            })
        };
        let id = "loopback/socket-lat-8192-epoll".to_owned();
        assert!(!of(false, false).contains(&id));
        assert!(!of(false, true).contains(&id));
        assert!(of(true, false).contains(&id));
    }

    #[test]
    fn the_unpinned_rows_run_in_turn() {
        let wide = Selection {
            wide: true,
            ..Selection::default()
        };
        let groups = groups(PathKind::Loopback, &stacks(), &wide);
        let together: Vec<Vec<String>> = groups
            .iter()
            .filter(|g| g.len() > 1)
            .map(|g| g.iter().map(Row::id).collect())
            .collect();
        assert_eq!(
            together,
            [[
                "loopback/send-lat-64-unpinned",
                "loopback/write-lat-64-unpinned"
            ]]
        );
    }

    #[test]
    fn a_stack_pattern_keeps_the_references() {
        let stacks = stacks();
        let selection = Selection {
            only: vec!["loopback/write-bw-1M".into()],
            stacks: vec!["weft crc=off".into()],
            ..Selection::default()
        };
        let groups = groups(PathKind::Loopback, &stacks, &selection);
        let row = &groups[0][0];
        let names: Vec<String> = row.stacks.iter().map(|&i| stacks[i].name()).collect();
        assert_eq!(names, ["iperf3", "iperf3 -l size", "weft crc=off"]);
    }

    #[test]
    fn only_selects_by_part_of_the_id() {
        let only = |p: &str| {
            ids(&Selection {
                only: vec![p.into()],
                ..Selection::default()
            })
        };
        assert_eq!(only("connect"), ["loopback/connect"]);
        assert_eq!(only("send-lat-64"), ["loopback/send-lat-64"]);
        assert_eq!(only("loopback/send-lat-64"), ["loopback/send-lat-64"]);
        assert_eq!(only("veth/send-lat-64"), [""; 0]);
        assert_eq!(
            only("send-rate"),
            [
                "loopback/send-rate-64",
                "loopback/send-rate-64-list16",
                "loopback/ud-send-rate-64"
            ]
        );
        assert_eq!(only("send-rate-64"), ["loopback/send-rate-64"]);
        assert_eq!(only("no such row"), [""; 0]);
        assert_eq!(only("socket-lat-1-epoll"), ["loopback/socket-lat-1-epoll"]);
        assert_eq!(only("socket-lat").len(), 10);
    }
}
