//! Counts with the rates since the look before.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use serde::Serialize;
use weft_engine::stats::{self, Connection, Snapshot, Totals};

use super::datagrams::{carrying, Carrying};
use super::processes::{Process, Seen};
use super::streams::Streaming;

/// Everything seen at one time.
#[derive(Debug, Serialize)]
pub struct Look {
    /// In the order of their numbers.
    pub processes: Vec<Row>,
    /// Those whose datagrams may travel over connections, likewise.
    pub udp: Vec<Carrying>,
    /// Those that have TCP sockets which may go as DDP, likewise.
    pub tcp: Vec<Streaming>,
}

/// One process.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Connections now.
    pub connections: u64,
    /// Connections ever.
    pub connections_ever: u64,
    /// Queue pairs now.
    pub queue_pairs: u64,
    /// Memory regions now.
    pub memory_regions: u64,
    /// Octets received.
    pub octets_in: u64,
    /// Octets sent.
    pub octets_out: u64,
    /// Send work requests completed.
    pub sends: u64,
    /// Receives completed.
    pub recvs: u64,
    /// Work requests that failed, and protocol errors.
    pub errors: u64,
    /// Times a peer reached for memory that it was not given.
    pub refused_accesses: u64,
    /// Connections that waited or were refused for it.
    pub slowed: u64,
    /// Connections whose MPA Request is not there yet.
    pub half_open: u64,
    /// Such connections that were closed to make room.
    pub crowded_out: u64,
    /// Datagrams dropped for their Q_Key.
    pub wrong_qkeys: u64,
    /// Connect attempts of bring-ups by who is not the peer.
    pub wrong_bring_ups: u64,
    /// Who serves its connections now.
    pub served_by: ServedBy,
    /// Since the look before; nothing at the first.
    pub rates: Option<Rates>,
    /// Its connections.
    pub each: Vec<Each>,
    /// The addresses that reached for memory they were not given.
    pub refused: Vec<Refused>,
    /// The interfaces of its adapter.
    pub interfaces: Vec<Interface>,
}

/// An interface of the adapter.
#[derive(Debug, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Frames received.
    pub frames_in: u64,
    /// Frames sent.
    pub frames_out: u64,
    /// Frames that it did not take.
    pub frames_lost: u64,
    /// Frames that came while nobody looked, for which there was no room.
    pub frames_dropped: u64,
}

/// Who receives and completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServedBy {
    /// The threads that poll its completion queues.
    Polling,
    /// Weft's thread.
    Thread,
}

/// An address that reached for memory it was not given.
#[derive(Debug, Serialize)]
pub struct Refused {
    /// The address, or the network of an IPv6 address.
    pub address: String,
    /// How often.
    pub accesses: u64,
    /// Connections of it that waited or were refused.
    pub slowed: u64,
}

/// Per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Octets received.
    pub octets_in: f64,
    /// Octets sent.
    pub octets_out: f64,
    /// Work requests completed, of both kinds.
    pub operations: f64,
}

/// One connection.
#[derive(Debug, Serialize)]
pub struct Each {
    /// Number of its queue pair.
    pub queue_pair: u64,
    /// This end.
    pub local: String,
    /// The other.
    pub peer: String,
    /// Octets received.
    pub octets_in: u64,
    /// Octets sent.
    pub octets_out: u64,
    /// Send work requests completed.
    pub sends: u64,
    /// Receives completed.
    pub recvs: u64,
    /// DDP segments received.
    pub segments_in: u64,
    /// DDP segments sent.
    pub segments_out: u64,
    /// Errors.
    pub errors: u64,
    /// Whether the CRC is on.
    pub crc: bool,
    /// Largest ULPDU sent, octets.
    pub mulpdu: u64,
    /// Times the peer reached for memory that it was not given.
    pub refused_accesses: u64,
    /// What carries its octets.
    pub carrier: CarriedBy,
    /// Octets of payload placed before what precedes them had arrived.
    pub placed_ahead: u64,
    /// Octets that had to be kept until it had.
    pub copied: u64,
    /// Octets of those that are kept now.
    pub buffered: u64,
    /// What the adapter's TCP knows of its path.
    pub path: Option<Path>,
}

/// What a TCP of Weft's own knows of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    /// Its congestion control.
    pub control: Control,
    /// Octets a second that it may send now.
    pub rate: u64,
    /// Smoothed round trip, nanoseconds.
    pub rtt_ns: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// The most holes at a time in what it received.
    pub holes: u64,
}

/// Congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Control {
    /// CUBIC.
    Cubic,
    /// Reno.
    Reno,
    /// A fixed rate.
    Rate,
    /// None.
    None,
}

/// What carries a connection's octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CarriedBy {
    /// The connection itself.
    Tcp,
    /// Memory that two processes of this machine share.
    Rings,
    /// A TCP of Weft's own.
    Adapter,
}

/// Remembers the look before.
#[derive(Debug, Default)]
pub struct Meter {
    before: HashMap<u32, (Instant, Totals)>,
}

impl Meter {
    /// The counts of all that was seen, with the rates since the last call.
    pub fn look(&mut self, seen: Seen) -> Look {
        Look {
            processes: self.look_at(&seen.processes, Instant::now()),
            udp: seen.carrying.iter().map(carrying).collect(),
            tcp: seen.streaming,
        }
    }

    fn look_at(&mut self, processes: &[Process<Snapshot>], now: Instant) -> Vec<Row> {
        let rows = processes
            .iter()
            .map(|process| {
                let before = self.before.get(&process.pid);
                row(
                    process,
                    before.and_then(|before| rates(before, process, now)),
                )
            })
            .collect();
        self.before = processes
            .iter()
            .map(|process| (process.pid, (now, process.snapshot.totals)))
            .collect();
        rows
    }
}

/// Nothing when counts have shrunk: another process has the number now.
fn rates(
    (then, before): &(Instant, Totals),
    process: &Process<Snapshot>,
    now: Instant,
) -> Option<Rates> {
    let after = &process.snapshot.totals;
    let seconds = now.duration_since(*then).as_secs_f64();
    let rate = |before: u64, after: u64| Some(after.checked_sub(before)? as f64 / seconds);
    (seconds > 0.0).then_some(())?;
    Some(Rates {
        octets_in: rate(before.octets_in, after.octets_in)?,
        octets_out: rate(before.octets_out, after.octets_out)?,
        operations: rate(before.sends, after.sends)? + rate(before.recvs, after.recvs)?,
    })
}

fn row(process: &Process<Snapshot>, rates: Option<Rates>) -> Row {
    let totals = &process.snapshot.totals;
    Row {
        pid: process.pid,
        program: process.name.clone(),
        connections: totals.connections,
        connections_ever: totals.connections_ever,
        queue_pairs: totals.queue_pairs,
        memory_regions: totals.regions,
        octets_in: totals.octets_in,
        octets_out: totals.octets_out,
        sends: totals.sends,
        recvs: totals.recvs,
        errors: totals.errors,
        refused_accesses: totals.refused_accesses,
        slowed: totals.slowed,
        half_open: totals.half_open,
        crowded_out: totals.crowded_out,
        wrong_qkeys: totals.wrong_qkeys,
        wrong_bring_ups: totals.wrong_bring_ups,
        served_by: match totals.polled {
            0 => ServedBy::Thread,
            _ => ServedBy::Polling,
        },
        rates,
        each: process.snapshot.connections.iter().map(each).collect(),
        refused: process.snapshot.refused.iter().map(refused).collect(),
        interfaces: process.snapshot.interfaces.iter().map(interface).collect(),
    }
}

fn interface(interface: &stats::Interface) -> Interface {
    Interface {
        name: interface.name.clone(),
        frames_in: interface.frames_in,
        frames_out: interface.frames_out,
        frames_lost: interface.frames_lost,
        frames_dropped: interface.dropped,
    }
}

fn path(path: &stats::NetworkPath) -> Path {
    Path {
        control: match path.control {
            stats::Control::Cubic => Control::Cubic,
            stats::Control::Reno => Control::Reno,
            stats::Control::Rate => Control::Rate,
            stats::Control::Unlimited => Control::None,
        },
        rate: path.rate,
        rtt_ns: path.rtt.as_nanos() as u64,
        retransmissions: path.retransmissions,
        holes: path.holes,
    }
}

fn refused(refused: &stats::Refused) -> Refused {
    Refused {
        address: match refused.address {
            IpAddr::V6(v6) if !v6.is_loopback() => format!("{v6}/64"),
            other => other.to_string(),
        },
        accesses: refused.accesses,
        slowed: refused.slowed,
    }
}

fn each(connection: &Connection) -> Each {
    Each {
        queue_pair: connection.qp,
        local: connection.local.to_string(),
        peer: connection.peer.to_string(),
        octets_in: connection.octets_in,
        octets_out: connection.octets_out,
        sends: connection.sends,
        recvs: connection.recvs,
        segments_in: connection.segments_in,
        segments_out: connection.segments_out,
        errors: connection.errors,
        crc: connection.crc,
        mulpdu: connection.mulpdu,
        refused_accesses: connection.refused_accesses,
        carrier: match connection.rings {
            true => CarriedBy::Rings,
            false => match connection.path {
                Some(_) => CarriedBy::Adapter,
                None => CarriedBy::Tcp,
            },
        },
        placed_ahead: connection.placed_ahead,
        copied: connection.copied,
        buffered: connection.buffered,
        path: connection.path.as_ref().map(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn process(pid: u32, octets_in: u64, sends: u64) -> Process<Snapshot> {
        Process {
            pid,
            name: "p".to_owned(),
            snapshot: Snapshot {
                totals: Totals {
                    octets_in,
                    sends,
                    ..Totals::default()
                },
                connections: Vec::new(),
                refused: Vec::new(),
                interfaces: Vec::new(),
            },
        }
    }

    #[test]
    fn rates_are_per_second_since_the_look_before() {
        let mut meter = Meter::default();
        let start = Instant::now();
        let first = meter.look_at(&[process(1, 1000, 10)], start);
        assert_eq!(first[0].rates, None);
        let later = start + Duration::from_millis(500);
        let second = meter.look_at(&[process(1, 3000, 15), process(2, 7, 7)], later);
        assert_eq!(
            second[0].rates,
            Some(Rates {
                octets_in: 4000.0,
                octets_out: 0.0,
                operations: 10.0
            })
        );
        assert_eq!(second[1].rates, None);
    }

    #[test]
    fn counts_that_shrink_are_another_process() {
        let mut meter = Meter::default();
        let start = Instant::now();
        meter.look_at(&[process(1, 1000, 10)], start);
        let look = meter.look_at(&[process(1, 5, 0)], start + Duration::from_secs(1));
        assert_eq!(look[0].rates, None);
    }
}
