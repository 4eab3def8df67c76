//! The TCP streams of a capture.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::Ipv4Addr;
use std::path::Path;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use pcap_file::pcap::PcapReader;

type Endpoint = (Ipv4Addr, u16);

/// Which end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    Initiator,
    Responder,
}

/// One connection: the octets that arrived, in the order in which they were captured.
#[derive(Default)]
pub struct Connection {
    pub pieces: Vec<(From, Vec<u8>)>,
}

impl Connection {
    /// All octets of one direction.
    pub fn stream(&self, from: From) -> Vec<u8> {
        let pieces = self.pieces.iter().filter(|(f, _)| *f == from);
        pieces.flat_map(|(_, octets)| octets).copied().collect()
    }
}

/// One direction of a TCP connection, put together by sequence number.
#[derive(Default)]
struct HalfStream {
    /// Sequence number of the first octet.
    start: Option<u32>,
    /// Octets so far.
    len: usize,
    /// Segments that came before what precedes them.
    early: BTreeMap<u32, Vec<u8>>,
}

impl HalfStream {
    /// Takes a segment; gives the octets that follow on what there was.
    fn take(&mut self, sequence: u32, syn: bool, payload: &[u8]) -> Vec<u8> {
        if syn {
            self.start = Some(sequence.wrapping_add(1));
        }
        let start = self.start.expect("every capture begins with the SYN");
        let mut octets = Vec::new();
        if payload.is_empty() {
            return octets;
        }
        self.early
            .insert(sequence.wrapping_sub(start), payload.to_vec());
        while let Some((at, segment)) = self.early.pop_first() {
            let have = self.len + octets.len();
            if at as usize > have {
                self.early.insert(at, segment);
                break;
            }
            // What was there already is a retransmission.
            octets.extend_from_slice(segment.get(have - at as usize..).unwrap_or(&[]));
        }
        self.len += octets.len();
        octets
    }
}

/// The connections of a capture that carried anything, in the order of their SYNs.
pub fn connections(name: &str) -> Vec<Connection> {
    // From `proto/iwarp` as from `tests/simulation`.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/siw");
    let file = File::open(folder.join(name).with_extension("pcap")).expect("the capture");
    let mut reader = PcapReader::new(file).expect("a pcap file");
    let mut found: Vec<((Endpoint, Endpoint), Connection)> = Vec::new();
    let mut halves: BTreeMap<(Endpoint, Endpoint), HalfStream> = BTreeMap::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a whole packet");
        assert_eq!(
            packet.data.len(),
            packet.orig_len as usize,
            "packets are not cut"
        );
        let Some((from, to, sequence, syn, payload)) = tcp(&packet.data) else {
            continue;
        };
        let known = |ends: (Endpoint, Endpoint)| found.iter().position(|(key, _)| *key == ends);
        let (index, side) = match (known((from, to)), known((to, from))) {
            (Some(index), _) => (index, From::Initiator),
            (_, Some(index)) => (index, From::Responder),
            _ => {
                found.push(((from, to), Connection::default()));
                (found.len() - 1, From::Initiator)
            }
        };
        // A RST carries no data and may stand anywhere.
        if syn || !payload.is_empty() {
            let half = halves.entry((from, to)).or_default();
            let octets = half.take(sequence, syn, &payload);
            if !octets.is_empty() {
                found[index].1.pieces.push((side, octets));
            }
        }
    }
    assert!(halves.values().all(|h| h.early.is_empty()), "a gap");
    let connections = found.into_iter().map(|(_, connection)| connection);
    connections.filter(|c| !c.pieces.is_empty()).collect()
}

/// Addresses, sequence number, SYN and payload of a TCP segment in IPv4 in Ethernet.
fn tcp(frame: &[u8]) -> Option<(Endpoint, Endpoint, u32, bool, Vec<u8>)> {
    let packet = SlicedPacket::from_ethernet(frame).ok()?;
    let Some(NetSlice::Ipv4(ip)) = &packet.net else {
        return None;
    };
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else {
        return None;
    };
    let header = ip.header();
    Some((
        (header.source_addr(), tcp.source_port()),
        (header.destination_addr(), tcp.destination_port()),
        tcp.sequence_number(),
        tcp.syn(),
        tcp.payload().to_vec(),
    ))
}
