//! Linux siw talking to siw, decoded from the packets up to the last octet: start-up by both state machines, then
//! every FPDU of both directions.

mod streams;

use std::time::Duration;
use streams::From;
use weft_iwarp::{
    Established, FrameKind, Header, Inbound, Initiator, InitiatorEvent, Message, Parse, Responder,
    ResponderEvent, Rtr, RtrSet, Stag, StartConfig, StartFrame, TerminateCode,
};

const NOW: Duration = Duration::ZERO;

/// The connections of a capture; each as its two directions, Initiator first.
fn connections(name: &str) -> Vec<[Vec<u8>; 2]> {
    let found = streams::connections(name);
    let both = |c: &streams::Connection| [From::Initiator, From::Responder].map(|f| c.stream(f));
    found.iter().map(both).collect()
}

/// What went through one connection.
struct Decoded {
    request: StartFrame,
    initiator: Established,
    /// From the Initiator, from the Responder.
    messages: [Vec<(Message, usize)>; 2],
}

fn decode(streams: &[Vec<u8>; 2]) -> Decoded {
    let [from_initiator, from_responder] = streams;
    let (request, request_len) = frame(FrameKind::Request, from_initiator);
    let initiator = start_initiator(&request, from_responder);
    let responder = start_responder(&request, &from_initiator[..request_len]);
    let reply_len = frame(FrameKind::Reply, from_responder).1;
    assert_eq!(initiator.crc, responder.crc);
    Decoded {
        messages: [
            full_operation(&responder, &from_initiator[request_len..]),
            full_operation(&initiator, &from_responder[reply_len..]),
        ],
        request,
        initiator,
    }
}

fn frame(kind: FrameKind, octets: &[u8]) -> (StartFrame, usize) {
    let frame = StartFrame::parse(kind, octets)
        .expect("a good frame")
        .expect("a whole frame");
    let len = frame.wire_len();
    // siw sends what our own frames look like, its reserved bit included.
    assert_eq!(frame.encode().expect("it fits"), octets[..len]);
    (frame, len)
}

/// What an Initiator that had sent this Request makes of the octets of the Responder.
fn start_initiator(request: &StartFrame, octets: &[u8]) -> Established {
    let block = request.enhanced.unwrap_or_default();
    let config = StartConfig {
        revision: request.revision,
        crc: request.crc,
        markers: request.markers,
        peer_to_peer: block.peer_to_peer,
        rtr: block.rtr,
        ird: block.ird,
        ord: block.ord,
        ..StartConfig::default()
    };
    let mut initiator = Initiator::new(config, NOW);
    let taken = initiator.handle_bytes(octets, NOW);
    assert_eq!(taken, frame(FrameKind::Reply, octets).1);
    match initiator.poll_event() {
        Some(InitiatorEvent::Accepted(established)) => established,
        other => panic!("the Reply was not accepted: {other:?}"),
    }
}

/// What a Responder makes of the Request.
fn start_responder(request: &StartFrame, octets: &[u8]) -> Established {
    let config = StartConfig {
        crc: false,
        rtr: RtrSet::WRITE_AND_READ,
        ..StartConfig::default()
    };
    let mut responder = Responder::new(config, NOW);
    for octet in octets {
        responder.handle_bytes(&[*octet], NOW);
    }
    match responder.poll_event() {
        Some(ResponderEvent::Request(seen)) => assert_eq!(seen.private_data, request.private_data),
        other => panic!("no Request: {other:?}"),
    }
    responder
        .accept(Vec::new(), 1, 1)
        .expect("it can be accepted")
}

/// Messages and payload lengths of all segments, in reads of 1448 octets.
fn full_operation(receiver: &Established, octets: &[u8]) -> Vec<(Message, usize)> {
    let mut inbound = Inbound::new(receiver);
    let mut segments: Vec<(Message, usize)> = Vec::new();
    let mut staged = Vec::new();
    for read in octets.chunks(1448) {
        staged.extend_from_slice(read);
        loop {
            let consumed = match inbound.parse(&mut staged).expect("siw is right") {
                Parse::Need { .. } => break,
                Parse::Segment(segment) => {
                    segments.push((segment.message, segment.payload_len));
                    segment.consumed
                }
                Parse::More(more) => more.consumed,
                Parse::Consumed { octets } => octets,
            };
            staged.drain(..consumed);
        }
    }
    assert_eq!(
        (staged.len(), inbound.outstanding()),
        (0, 0),
        "octets behind the last FPDU"
    );
    assert_eq!(inbound.first_fpdu_seen(), !octets.is_empty());
    segments
}

/// How many segments there are of each kind: Write, Read Request, Read Response, Send, Terminate.
fn kinds(segments: &[(Message, usize)]) -> [usize; 5] {
    let mut count = [0; 5];
    for (message, _) in segments {
        count[match message {
            Message::Write { .. } => 0,
            Message::ReadRequest { .. } => 1,
            Message::ReadResponse { .. } => 2,
            Message::Send { .. } => 3,
            Message::Terminate(_) => 4,
            other => panic!("siw has no {other:?}"),
        }] += 1;
    }
    count
}

/// Segments of each kind, Initiator to Responder and back, for each connection of each capture. The numbers agree
/// with those of Wireshark's dissector.
type Expected = (&'static str, &'static [[[usize; 5]; 2]]);

const CAPTURES: [Expected; 14] = [
    (
        "read_bw_small",
        &[
            [[0, 0, 0, 16, 0], [0, 0, 0, 16, 0]],
            [[0, 20, 0, 0, 0], [0, 0, 20, 0, 0]],
        ],
    ),
    (
        "read_lat_small",
        &[
            [[0, 0, 0, 11, 0], [0, 0, 0, 11, 0]],
            [[0, 20, 0, 0, 0], [0, 0, 20, 0, 0]],
        ],
    ),
    ("rping_crc", &[[[0, 0, 3, 6, 0], [3, 3, 0, 6, 0]]]),
    ("rping_mpav1", &[[[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]]),
    ("rping_nocrc", &[[[0, 0, 10, 20, 0], [10, 10, 0, 20, 0]]]),
    ("rping_p2p", &[[[1, 0, 2, 4, 0], [2, 2, 0, 4, 0]]]),
    (
        "send_lat_small",
        &[
            [[0, 0, 0, 11, 0], [0, 0, 0, 11, 0]],
            [[0, 0, 0, 20, 0], [0, 0, 0, 20, 0]],
        ],
    ),
    (
        "sendbw_small",
        &[
            [[0, 0, 0, 11, 0], [0, 0, 0, 11, 0]],
            [[0, 0, 0, 20, 0], [4, 0, 0, 0, 0]],
        ],
    ),
    (
        "term_write_oob",
        &[
            [[0, 0, 0, 9, 0], [0, 0, 0, 9, 0]],
            [[4, 0, 0, 0, 0], [0, 0, 0, 0, 1]],
        ],
    ),
    (
        "write_bw_small",
        &[
            [[0, 0, 0, 16, 0], [0, 0, 0, 16, 0]],
            [[20, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        ],
    ),
    (
        "write_lat_small",
        &[
            [[0, 0, 0, 10, 0], [0, 0, 0, 10, 0]],
            [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        ],
    ),
    (
        "writebw_64k",
        &[
            [[0, 0, 0, 9, 0], [0, 0, 0, 9, 0]],
            [[230, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        ],
    ),
    (
        "writebw_crc_odd",
        &[
            [[0, 0, 0, 9, 0], [0, 0, 0, 9, 0]],
            [[15, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        ],
    ),
    (
        "writebw_gso",
        &[
            [[0, 0, 0, 9, 0], [0, 0, 0, 9, 0]],
            [[13, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
        ],
    ),
];

#[test]
fn every_capture_to_the_last_octet() {
    for (name, expected) in CAPTURES {
        let found: Vec<_> = connections(name)
            .iter()
            .map(|streams| decode(streams).messages.map(|segments| kinds(&segments)))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
}

/// The connections of a capture, decoded.
fn decoded(name: &str) -> Vec<Decoded> {
    connections(name).iter().map(decode).collect()
}

#[test]
fn revision_2_and_1() {
    for (name, revision) in [("rping_nocrc", 2), ("rping_mpav1", 1)] {
        let rping = &decoded(name)[0];
        assert_eq!(
            (rping.request.revision, rping.initiator.revision),
            (revision, revision)
        );
        assert_eq!(rping.request.enhanced.is_some(), revision == 2);
        assert!(!rping.initiator.crc && !rping.initiator.markers_rx && !rping.initiator.markers_tx);
    }
}

#[test]
fn crc_with_paddings() {
    assert!(decoded("rping_crc")[0].initiator.crc);
    let connections = decoded("writebw_crc_odd");
    assert!(connections
        .iter()
        .all(|connection| connection.initiator.crc));
    let mut paddings: Vec<usize> = connections
        .iter()
        .flat_map(|connection| connection.messages[0].iter())
        .map(|(_, len)| weft_iwarp::mpa::fpdu::pad_len(14 + len))
        .collect();
    paddings.sort_unstable();
    paddings.dedup();
    assert_eq!(paddings, [0, 2, 3]);
}

/// siw asks for a Write as ready-to-receive, gets it granted and sends it first.
#[test]
fn peer_to_peer() {
    let rping = &decoded("rping_p2p")[0];
    assert!(rping.initiator.peer_to_peer);
    assert_eq!(rping.initiator.rtr, Some(Rtr::Write));
    let (message, len) = &rping.messages[0][0];
    let rtr = Message::Write {
        stag: Stag(1),
        to: 0,
        last: true,
    };
    assert_eq!((message, *len), (&rtr, 0));
}

#[test]
fn large_fpdus() {
    let data = &decoded("writebw_gso")[1];
    assert_eq!(data.request.reserved, 0x8);
    let longest = data.messages[0].iter().map(|(_, len)| *len).max();
    assert_eq!(longest, Some(65140));
    let emss = &decoded("writebw_64k")[1];
    assert_eq!(emss.request.reserved, 0);
    assert_eq!(
        emss.messages[0].iter().map(|(_, len)| *len).max(),
        Some(1428)
    );
}

/// siw's Terminate: control word mirrored, the header of the Write it refused behind it.
#[test]
fn terminate_for_a_write_out_of_bounds() {
    let streams = &connections("term_write_oob")[1];
    let reply_len = frame(FrameKind::Reply, &streams[1]).1;
    let control = &streams[1][reply_len + 20..][..4];
    assert_eq!(control[2] & 0xe0, 0, "not mirrored: {control:02x?}");

    let connection = decode(streams);
    let (Message::Terminate(terminate), _) = &connection.messages[1][0] else {
        panic!("no Terminate");
    };
    assert_eq!(terminate.code, TerminateCode::new(1, 1, 1));
    let (_, header) = terminate.ddp.expect("the header of the Write");
    let refused = connection.messages[0].iter().any(|(message, _)| {
        let Header::Tagged(h) = header else {
            return false;
        };
        let (stag, to, last) = (h.stag, h.to, h.last);
        *message == Message::Write { stag, to, last }
    });
    assert!(refused, "{header} is none of the Writes");
}
