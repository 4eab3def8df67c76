//! What another process reads of the statistics.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;

use weft_os::shm::SharedWords;

use super::addresses::address_of;
use super::{
    Connection, Interface, NetworkPath, Refused, Snapshot, Total, Totals, INTERFACES_AT,
    INTERFACES_MAX, INTERFACE_WORDS, MAGIC, PATH_AT, PID, REFUSED_ADDRESSES_MAX, REFUSED_AT,
    REFUSED_WORDS, SLOTS, SLOTS_AT, SLOT_WORDS, VERSION,
};

/// Reads the statistics segment at `path`, such as `/proc/PID/fd/N`.
///
/// # Errors
/// No permission, gone, or not a statistics segment of this layout.
pub fn read(path: &Path) -> io::Result<Snapshot> {
    let shared = SharedWords::open(path)?;
    let words = shared.words();
    let load = |at: usize| words.get(at).map_or(0, |w| w.load(Ordering::Acquire));
    if load(0) != MAGIC || load(1) != VERSION {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "not a statistics segment of this version of Weft",
        ));
    }
    let refused = (0..REFUSED_ADDRESSES_MAX)
        .map(|place| REFUSED_AT + place * REFUSED_WORDS)
        .filter(|at| load(at + 2) > 0)
        .map(|at| Refused {
            address: address_of([load(at), load(at + 1), 0]).ip(),
            accesses: load(at + 2),
            slowed: load(at + 3),
        })
        .collect();
    let interfaces = (0..INTERFACES_MAX)
        .map(|place| INTERFACES_AT + place * INTERFACE_WORDS)
        .filter_map(|at| Interface::of(std::array::from_fn(|n| load(at + n))))
        .collect();
    Ok(Snapshot {
        totals: totals(load),
        connections: connections(load),
        refused,
        interfaces,
    })
}

fn totals(load: impl Fn(usize) -> u64) -> Totals {
    let total = |which: Total| load(which as usize);
    Totals {
        pid: load(PID),
        connections: total(Total::Connections),
        connections_ever: total(Total::ConnectionsEver),
        queue_pairs: total(Total::QueuePairs),
        regions: total(Total::Regions),
        octets_in: total(Total::OctetsIn),
        octets_out: total(Total::OctetsOut),
        sends: total(Total::Sends),
        recvs: total(Total::Recvs),
        errors: total(Total::Errors),
        empty_polls: total(Total::EmptyPolls),
        service_passes: total(Total::ServicePasses),
        polled: total(Total::Polled),
        datagrams_dropped: total(Total::DatagramsDropped),
        refused_accesses: total(Total::RefusedAccesses),
        slowed: total(Total::Slowed),
        half_open: total(Total::HalfOpen),
        crowded_out: total(Total::CrowdedOut),
        wrong_qkeys: total(Total::WrongQKeys),
        wrong_bring_ups: total(Total::WrongBringUps),
    }
}

fn connections(load: impl Fn(usize) -> u64) -> Vec<Connection> {
    (0..SLOTS)
        .map(|slot| SLOTS_AT + slot * SLOT_WORDS)
        .filter(|at| load(*at) == 1)
        .map(|at| Connection {
            qp: load(at + 1),
            local: address_of([load(at + 2), load(at + 3), load(at + 4)]),
            peer: address_of([load(at + 5), load(at + 6), load(at + 7)]),
            crc: load(at + 8) != 0,
            octets_in: load(at + 9),
            octets_out: load(at + 10),
            sends: load(at + 11),
            recvs: load(at + 12),
            segments_in: load(at + 13),
            segments_out: load(at + 14),
            errors: load(at + 15),
            mulpdu: load(at + 16),
            refused_accesses: load(at + 17),
            rings: load(at + 18) != 0,
            placed_ahead: load(at + 19),
            copied: load(at + 20),
            buffered: load(at + 21),
            path: NetworkPath::of(std::array::from_fn(|n| load(at + PATH_AT + n))),
        })
        .collect()
}
