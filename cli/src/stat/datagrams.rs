//! What processes tell of UDP datagrams that travel over connections of Weft's: as data, and as tables.

use serde::Serialize;
use weft_udp_offload::stat::{self, Snapshot};

use super::table::Column::{self, Number, Text};
use super::table::{errors, short, table};
use crate::stat::processes::Process;

/// A process whose datagrams may travel so.
#[derive(Debug, Serialize)]
pub struct Carrying {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Connections that datagrams travel on, now.
    pub carriers: u64,
    /// The same, ever.
    pub carriers_ever: u64,
    /// Datagrams that left on them.
    pub sent: u64,
    /// Datagrams that came on them and that the program took.
    pub received: u64,
    /// Datagrams that were dropped before they left: no room, or too old.
    pub dropped_sent: u64,
    /// Datagrams that came and were dropped.
    pub dropped_received: u64,
    /// Octets that were missing for too long, and that nobody waits for any more.
    pub forgiven: u64,
    /// Channels of others that were refused.
    pub refused: u64,
    /// Connections that were closed for what the other end did.
    pub faults: u64,
    /// Its sockets and their peers, as many as it shows.
    pub peers: Vec<Peer>,
}

/// A socket and a peer of its.
#[derive(Debug, Serialize)]
pub struct Peer {
    /// The socket's port; nothing where it is not known.
    pub port: Option<u16>,
    /// The peer.
    pub peer: String,
    /// Which way datagrams go.
    pub way: &'static str,
    /// Why.
    pub why: &'static str,
}

/// What this process tells.
pub fn carrying(process: &Process<Snapshot>) -> Carrying {
    let Snapshot {
        carriers,
        counted,
        rows,
        ..
    } = &process.snapshot;
    Carrying {
        pid: process.pid,
        program: process.name.clone(),
        carriers: *carriers,
        carriers_ever: counted.carriers,
        sent: counted.sent,
        received: counted.received,
        dropped_sent: counted.dropped_full,
        dropped_received: counted.dropped_received,
        forgiven: counted.forgiven,
        refused: counted.refused,
        faults: counted.faults,
        peers: rows.iter().map(peer).collect(),
    }
}

fn peer(row: &stat::Row) -> Peer {
    use stat::{Way, Why};
    Peer {
        port: Some(row.port).filter(|port| *port != 0),
        peer: row.peer.to_string(),
        way: match row.way {
            Way::SentOverCarrier => "to, over a connection",
            Way::ReceivedOverCarrier => "from, over a connection",
            Way::SentPlainly => "to, plainly",
            Way::Waiting => "to: they wait",
        },
        why: match row.why {
            Why::BothAreWeft => "both ends are Weft",
            Why::BothHaveAdapters => "both ends are Weft and have adapters",
            Why::NoAnswer => "nobody there says that it is Weft",
            Why::NotConnected => "no TCP connection came to be",
            Why::Refused => "the socket there, or this one, takes none",
            Why::NotProven => "UDP did not prove whose address it is",
            Why::SameProcess => "it is a socket of the same process",
            Why::TooMany => "there are as many as there may be",
            Why::Shared => "another process has the socket, too, and its connections",
        },
    }
}

/// Those processes; each one's peers, if `peers`. Nothing where there are none.
pub fn tables(all: &[Carrying], peers: bool) -> String {
    if all.is_empty() {
        return String::new();
    }
    let mut text = table(&HEAD, all.iter().map(cells));
    for one in all.iter().filter(|one| peers && !one.peers.is_empty()) {
        text.push('\n');
        text += &table(&PEER_HEAD, one.peers.iter().map(peer_cells));
    }
    text
}

const HEAD: [Column; 9] = [
    Number("PID"),
    Text("PROGRAM"),
    Number("UDP CONN"),
    Number("SENT"),
    Number("CAME"),
    Number("DROPPED"),
    Number("DROPPED IN"),
    Number("REFUSED"),
    Number("FAULTS"),
];

fn cells(one: &Carrying) -> Vec<String> {
    vec![
        one.pid.to_string(),
        one.program.clone(),
        one.carriers.to_string(),
        short(one.sent as f64),
        short(one.received as f64),
        short(one.dropped_sent as f64),
        short(one.dropped_received as f64),
        one.refused.to_string(),
        errors(one.faults),
    ]
}

const PEER_HEAD: [Column; 4] = [
    Number("PORT"),
    Text("PEER"),
    Text("DATAGRAMS GO"),
    Text("BECAUSE"),
];

fn peer_cells(peer: &Peer) -> Vec<String> {
    vec![
        peer.port.map_or("-".to_owned(), |port| port.to_string()),
        peer.peer.clone(),
        peer.way.to_owned(),
        peer.why.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::table::tests::plain;
    use weft_udp_offload::counts::Counted;

    fn process() -> Process<Snapshot> {
        Process {
            pid: 4711,
            name: "iperf".to_owned(),
            snapshot: Snapshot {
                pid: 4711,
                carriers: 1,
                counted: Counted {
                    sent: 12_345,
                    carriers: 2,
                    dropped_full: 3,
                    ..Counted::default()
                },
                rows: vec![
                    stat::Row {
                        port: 40_000,
                        peer: ([192, 0, 2, 1], 5001).into(),
                        way: stat::Way::SentOverCarrier,
                        why: stat::Why::BothAreWeft,
                    },
                    stat::Row {
                        port: 0,
                        peer: "[2001:db8::1]:53".parse().unwrap(),
                        way: stat::Way::SentPlainly,
                        why: stat::Why::NoAnswer,
                    },
                ],
            },
        }
    }

    #[test]
    fn a_process_has_a_line_and_one_for_each_peer() {
        let carrying = [carrying(&process())];
        let wanted = " PID  PROGRAM  UDP CONN   SENT  CAME  DROPPED  DROPPED IN  REFUSED  FAULTS\n\
                      4711  iperf           1  12.3k     0        3           0        0       0\n";
        assert_eq!(plain(&tables(&carrying, false)), wanted);
        let peers = "\n PORT  PEER              DATAGRAMS GO           BECAUSE\n\
                     40000  192.0.2.1:5001    to, over a connection  both ends are Weft\n    \
                     -  [2001:db8::1]:53  to, plainly            nobody there says that it is Weft\n";
        assert_eq!(plain(&tables(&carrying, true)), wanted.to_owned() + peers);
        assert_eq!(tables(&[], true), "");
    }

    #[test]
    fn a_program_reads_the_same() {
        let text = serde_json::to_value(carrying(&process())).unwrap();
        assert_eq!(text["carriers_ever"], 2);
        assert_eq!(text["peers"][1]["port"], serde_json::Value::Null);
        assert_eq!(text["peers"][0]["peer"], "192.0.2.1:5001");
    }
}
