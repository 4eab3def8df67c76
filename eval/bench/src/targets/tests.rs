//! What a record is held against, and how it stands.

use super::verbs::{small, MEGABYTE_WRITES};
use super::*;
use crate::metric::{CPU_PER_OCTET, P99};
use crate::plan;
use crate::record::Subject;
use crate::report::tests::run_of;
use crate::stack::{DDP, UDP, UOE};
use crate::summary::tests::{cell_of, row_of};
use crate::verbs::Op;
use crate::workload::{datagram_flow, Given, BULK_BUSY, IDLE, LATENCY_EPOLL};

#[test]
fn every_target_has_its_rows_in_the_default_plan() {
    let workloads = plan::workloads(PathKind::Loopback, false, &Given::default());
    for target in targets() {
        let planned = |id: &str| workloads.iter().any(|w| w.id() == id);
        assert!(planned(&target.workload.id), "{:?}", target.workload);
        if let Against::Same(other) = target.against {
            assert!(planned(&other), "{other}");
        }
    }
}

#[test]
fn bounds() {
    assert_eq!(at_most(1.08).verdict(1.08), Verdict::Met);
    assert_eq!(at_most(1.08).verdict(1.081), Verdict::FallsShort);
    let with_crc = Bound::AtLeast {
        target: 0.9,
        passes: 0.85,
    };
    assert_eq!(
        [0.9, 0.87, 0.84].map(|v| with_crc.verdict(v)),
        [Verdict::Met, Verdict::Passes, Verdict::FallsShort]
    );
}

fn verdict_of(run: &Run, what: &str, stack: &str) -> Verdict {
    let judged = judge(run);
    judged
        .iter()
        .find(|s| s.target.what.contains(what) && s.target.stack == stack)
        .unwrap()
        .verdict
}

#[test]
fn an_unpinned_write_is_held_against_the_unpinned_send_of_the_same_stack() {
    let mut write = cell_of("weft crc=on", "half_rtt_us", &[Some(29.0)]);
    let p99 = cell_of("weft crc=on", P99, &[Some(51.0)]);
    write.samples.extend(p99.samples);
    let run = run_of(vec![
        row_of(
            "loopback",
            small(Op::Send, false),
            vec![cell_of("weft crc=on", "half_rtt_us", &[Some(10.0)])],
        ),
        row_of("loopback", small(Op::Write, false), vec![write]),
    ]);
    assert_eq!(
        verdict_of(&run, "over ib_send_lat", "weft crc=on"),
        Verdict::Met
    );
    assert_eq!(verdict_of(&run, "p99", "weft crc=on"), Verdict::FallsShort);
    assert_eq!(
        verdict_of(&run, "over ib_send_lat", "weft crc=off"),
        Verdict::NotMeasured
    );
}

#[test]
fn goodput_is_held_against_the_faster_iperf3() {
    let cells = [
        ("iperf3", 20.0),
        ("iperf3 -l size", 10.0),
        ("weft crc=on", 17.5),
        ("weft crc=off", 19.0),
    ];
    let cells = cells
        .map(|(stack, v)| cell_of(stack, "goodput_gbit_s", &[Some(v)]))
        .to_vec();
    let run = run_of(vec![row_of("loopback", MEGABYTE_WRITES, cells)]);
    assert_eq!(verdict_of(&run, "goodput", "weft crc=on"), Verdict::Passes);
    assert_eq!(
        verdict_of(&run, "goodput", "weft crc=off"),
        Verdict::FallsShort
    );
    assert!(judge(&run).len() > 2);
    let mut chosen = run.clone();
    chosen.options.only = vec!["write-bw-1M".to_owned()];
    assert_eq!(judge(&chosen).len(), 2);
    // A target of the veth path does not show on a run without one.
    let of_others = |s: &Standing| s.target.path.is_some_and(|path| path != "loopback");
    assert!(!judge(&run).iter().any(of_others));
}

#[test]
fn datagrams_over_carriers_have_bounds_by_size_and_path() {
    let flow = |path, size, goodput| {
        let mut row = socket_row(path, &datagram_flow(size), &[(UDP, 1.0), (UOE, goodput)]);
        let cpu = |stack, value| cell_of(stack, CPU_PER_OCTET.key, &[Some(value)]);
        for (cell, cpu) in row.cells.iter_mut().zip([cpu(UDP, 10.0), cpu(UOE, 1.9)]) {
            cell.samples.extend(cpu.samples);
        }
        row
    };
    let run = run_of(vec![flow("loopback", 64, 9.9), flow("loopback", 8192, 1.0)]);
    let of = |id: &str| {
        let judged = judge(&run);
        let of_row = judged.iter().filter(|s| s.target.workload.id == id);
        of_row.map(|s| s.verdict).collect::<Vec<_>>()
    };
    assert_eq!(of("udp-flow-64"), [Verdict::FallsShort, Verdict::Met]);
    assert_eq!(of("udp-flow-8192"), [Verdict::Met]);
}

/// A row of sockets with a sample of one repetition for each stack.
fn socket_row(path: &str, workload: &dyn Workload, cells: &[(&str, f64)]) -> RowRecord {
    let metric = workload.metric();
    let cells = cells
        .iter()
        .map(|&(stack, value)| cell_of(stack, metric.key, &[Some(value)]));
    RowRecord {
        id: format!("{path}/{}", workload.id()),
        path: path.to_owned(),
        workload: workload.subject(),
        metric,
        axis: None,
        reference: workload.references(),
        cells: cells.collect(),
    }
}

#[test]
fn sockets_over_ddp_are_held_against_the_kernels_tcp() {
    let run = run_of(vec![
        socket_row("loopback", &BULK_BUSY, &[("tcp", 20.0), (DDP, 18.0)]),
        socket_row("loopback", &LATENCY_EPOLL, &[("tcp", 10.0), (DDP, 12.5)]),
    ]);
    assert_eq!(verdict_of(&run, "1 MiB writes", DDP), Verdict::Met);
    assert_eq!(verdict_of(&run, "epoll", DDP), Verdict::Passes);
    assert_eq!(verdict_of(&run, "redis", DDP), Verdict::NotMeasured);
}

#[test]
fn of_idle_connections_the_difference_counts_and_their_time_alone() {
    let mut idle = socket_row("loopback", &IDLE, &[("tcp", 5.0), (DDP, 8_000.0)]);
    let time = cell_of(DDP, "idle_cpu_percent", &[Some(0.2)]);
    idle.cells[1].samples.extend(time.samples);
    let run = run_of(vec![idle]);
    assert_eq!(verdict_of(&run, "more than TCP", DDP), Verdict::Met);
    assert_eq!(verdict_of(&run, "no CPU", DDP), Verdict::FallsShort);
    let standing = judge(&run);
    let memory = standing
        .iter()
        .find(|s| s.target.what.contains("more than"));
    assert_eq!(memory.unwrap().ratio.unwrap().of_medians, 7_995.0);
}

#[test]
fn a_long_path_has_the_targets_that_name_it() {
    let mut run = run_of(vec![socket_row(
        "long-haul",
        &BULK_BUSY,
        &[("tcp", 1.0), (DDP, 0.8)],
    )]);
    run.paths[0].name = "long-haul".to_owned();
    let judged = judge(&run);
    assert!(!judged.is_empty());
    assert!(judged.iter().all(|s| s.target.path == Some("long-haul")));
    assert_eq!(verdict_of(&run, "100 ms", DDP), Verdict::FallsShort);
}

#[test]
fn a_record_of_another_runner_has_no_targets() {
    let mut row = socket_row("loopback", &BULK_BUSY, &[("tcp", 20.0)]);
    row.workload = Subject::Named {
        name: "call-send".to_owned(),
        what: String::new(),
    };
    assert_eq!(judge(&run_of(vec![row])), []);
}
