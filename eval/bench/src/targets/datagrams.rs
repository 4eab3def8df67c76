//! The targets that concern programs of UDP over carriers, beside the same over the kernel's UDP.

use super::{at_least, at_most, Against, Judged, Target};
use crate::metric::CPU_PER_OCTET;
use crate::path::PathKind;
use crate::stack::UOE;
use crate::workload::{
    datagram_flow, Workload, DATAGRAM_SIZES, PING_PONG_SPINNING, PING_PONG_WAITING,
};

/// Nothing is slower than this over a carrier where the program only prefers one.
const NOWHERE_SLOWER: f64 = 0.95;
/// On a path with packets of 1500 octets every datagram gains.
const VETH: f64 = 1.35;
/// CPU for an octet, of the kernel's, up to [`FITS_A_PACKET`].
const CPU: f64 = 0.2;
const FITS_A_PACKET: u64 = 1448;
/// Sizes whose goodput has bounds of its own.
const GOODPUT: [(u64, f64); 2] = [(64, 10.0), (1024, 6.0)];

pub(super) fn targets() -> Vec<Target> {
    let mut list = Vec::new();
    for size in DATAGRAM_SIZES {
        let row = datagram_flow(size);
        let own = GOODPUT.into_iter().find(|(of, _)| *of == size);
        let (loopback, veth) = own.map_or((NOWHERE_SLOWER, VETH), |(_, bound)| (bound, bound));
        for (path, bound) in [(PathKind::Loopback, loopback), (PathKind::Veth, veth)] {
            list.push(Target {
                path: Some(path.name()),
                ..uoe("datagrams over carriers", &row, at_least(bound))
            });
        }
        if size <= FITS_A_PACKET {
            let mut cpu = uoe("CPU of an octet of them", &row, at_most(CPU));
            cpu.workload.metric = CPU_PER_OCTET;
            list.push(cpu);
        }
    }
    let latency = at_most(1.0 / NOWHERE_SLOWER);
    for row in [&PING_PONG_WAITING, &PING_PONG_SPINNING] {
        list.push(uoe("64 B there and back under uoe prefer", row, latency));
    }
    list
}

fn uoe(what: &'static str, workload: &dyn Workload, bound: super::Bound) -> Target {
    Target {
        what,
        workload: Judged::of(workload),
        stack: UOE.to_owned(),
        against: Against::Reference,
        bound,
        path: None,
    }
}
