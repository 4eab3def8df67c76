//! The placement experiment's counts; `examples/placement_time.rs` measures its times.

mod rig;

use crate::snapshot;
use rig::{run, Mode};
use std::time::Duration;

#[test]
fn in_order_and_out_of_order_placement() {
    let mut table = String::from(
        "RDMA Writes of 64 kB, CRC on, FPDUs to the EMSS, 24 MB, 1 Gb/s fixed rate; all counted, on virtual time\n\
         copied after fill: out of the reassembly buffer and to the target until what a gap held up is complete\n\
         Mb/s: of the whole transfer, the repair of its end included; work of the receiver takes no virtual time\n\
         RTT ms   loss | mode    |  gaps | copied after fill, kB/gap mean/worst | buffered kB | Mb/s\n",
    );
    for rtt in [1u64, 10, 100] {
        for loss in [0.0001, 0.001, 0.01, 0.05] {
            for mode in [Mode::InOrder, Mode::OutOfOrder] {
                let outcome = run(mode, Duration::from_millis(rtt), loss, 11);
                let kilo = |octets: u64| octets as f64 / 1e3;
                table +=
                    &format!(
                    "{rtt:>6} {:>5}% | {:<7} | {:>5} | {:>25.1} {:>10.1} | {:>11.1} | {:>5.1}\n",
                    loss * 100.0,
                    if mode == Mode::InOrder { "in" } else { "out of" },
                    outcome.gaps,
                    kilo(outcome.copied_after_fill) / outcome.gaps.max(1) as f64,
                    kilo(outcome.worst_copy),
                    kilo(outcome.buffered),
                    outcome.octets as f64 * 8e-6 / outcome.seconds,
                );
                assert_eq!(outcome.fills.len() as u64, outcome.gaps);
                assert!(
                    mode == Mode::InOrder
                        || outcome.through_buffer + outcome.copied_after_fill == 0
                );
            }
        }
    }
    snapshot::check("placement.txt", &table);
}
