//! The targets that concern verbs over the host stack.

use super::{at_least, at_most, Against, Bound, Judged, Target};
use crate::metric::TAIL;
use crate::stack::{weft_emss_name, weft_gid_name, weft_name};
use crate::verbs::{Mode, Op, Verbs};

pub(super) const fn small(op: Op, pinned: bool) -> Verbs {
    Verbs::Latency {
        op,
        size: 64,
        mode: Mode::Polling,
        pinned,
    }
}

pub(super) const MEGABYTE_WRITES: Verbs = Verbs::Bulk {
    op: Op::Write,
    size: 1 << 20,
    mode: Mode::Polling,
};

/// CRC off before CRC on.
pub(super) fn targets() -> Vec<Target> {
    let mut list = Vec::new();
    let mut named = |name: fn(bool) -> String, what, workload: Verbs, against: Against, bound| {
        for crc in [false, true] {
            list.push(Target {
                what,
                workload: Judged::of(&workload),
                stack: name(crc),
                against: against.clone(),
                bound,
                path: None,
            });
        }
    };
    named(
        weft_name,
        "64 B send/recv half round trip, polling",
        small(Op::Send, true),
        Against::Reference,
        at_most(1.08),
    );
    for name in [weft_name, weft_gid_name] {
        named(
            name,
            "ib_write_lat 64 B, not pinned, over ib_send_lat",
            small(Op::Write, false),
            Against::Same(small(Op::Send, false).id()),
            at_most(3.0),
        );
        named(
            name,
            "ib_write_lat 64 B, not pinned, p99 in µs",
            small(Op::Write, false),
            Against::Alone(TAIL),
            at_most(50.0),
        );
    }
    for (op, what) in [
        (Op::Send, "64 B sends per second, depth 128"),
        (Op::Write, "64 B writes per second, depth 128"),
    ] {
        for post_list in [1, 16] {
            let rate = Verbs::Rate {
                op,
                size: 64,
                depth: 128,
                post_list,
            };
            named(weft_name, what, rate, Against::Reference, at_least(5.0));
        }
    }
    named(
        weft_name,
        "rdma_connect to established",
        Verbs::Connect,
        Against::Reference,
        at_most(3.0),
    );

    for crc in [false, true] {
        let bulk = |what, stack, bound, path| Target {
            what,
            workload: Judged::of(&MEGABYTE_WRITES),
            stack,
            against: Against::Reference,
            bound,
            path,
        };
        let bound = if crc {
            Bound::AtLeast {
                target: 0.9,
                passes: 0.85,
            }
        } else {
            at_least(1.0)
        };
        list.push(bulk("1 MB RDMA write goodput", weft_name(crc), bound, None));
        let emss = weft_emss_name(crc);
        list.push(bulk(
            "the same, FPDUs to the EMSS",
            emss,
            at_least(0.6),
            Some("veth"),
        ));
    }
    list
}
