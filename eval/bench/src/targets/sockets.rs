//! The targets that concern programs of sockets over DDP, beside the same over the kernel's TCP.

use super::{at_least, at_most, Against, Bound, Judged, Target};
use crate::metric::IDLE_CPU;
use crate::stack::{DDP, PLAIN_CLIENT};
use crate::workload::{
    Workload, BULK_BUSY, BULK_WAITING, IDLE, LATENCY_EPOLL, LATENCY_SPIN, REDIS_GET,
};

/// Octets of ours for an idle connection.
const IDLE_OCTETS: f64 = 8192.0;
/// What counts as no time on a core, in per cent of one: what a look at the clock and the wake-up to say so take.
const NO_CPU: f64 = 0.1;
/// What a client without Weft may lose at a listener that would take DDP.
const PLAIN: f64 = 0.99;

pub(super) fn targets() -> Vec<Target> {
    let mut list = vec![
        ddp("1 MiB writes over DDP", &BULK_BUSY, at_least(0.9)),
        ddp(
            "the same, with a reader that waits",
            &BULK_WAITING,
            at_least(1.0),
        ),
        ddp(
            "64 B half round trip over DDP, epoll",
            &LATENCY_EPOLL,
            Bound::AtMost {
                target: 1.2,
                passes: 1.3,
            },
        ),
        ddp("the same, spinning", &LATENCY_SPIN, at_most(1.2)),
        ddp("redis GET over DDP", &REDIS_GET, at_least(0.95)),
        Target {
            against: Against::BeyondReference,
            ..ddp("octets more than TCP's", &IDLE, at_most(IDLE_OCTETS))
        },
        Target {
            against: Against::Alone(IDLE_CPU),
            ..ddp("no CPU of idle connections", &IDLE, at_most(NO_CPU))
        },
    ];
    for workload in [&BULK_BUSY, &BULK_WAITING] {
        list.push(Target {
            path: Some("long-haul"),
            ..ddp("1 MiB writes over DDP, 100 ms", workload, at_least(0.9))
        });
        list.push(plain_client(workload, at_least(PLAIN)));
    }
    for workload in [&LATENCY_EPOLL, &LATENCY_SPIN] {
        list.push(plain_client(workload, at_most(1.0 / PLAIN)));
    }
    list
}

/// Over DDP at both ends, by the ratio to the kernel's TCP.
fn ddp(what: &'static str, workload: &dyn Workload, bound: Bound) -> Target {
    Target {
        what,
        workload: Judged::of(workload),
        stack: DDP.to_owned(),
        against: Against::Reference,
        bound,
        path: None,
    }
}

fn plain_client(workload: &dyn Workload, bound: Bound) -> Target {
    Target {
        stack: PLAIN_CLIENT.to_owned(),
        ..ddp("a plain client of a DDP listener", workload, bound)
    }
}
