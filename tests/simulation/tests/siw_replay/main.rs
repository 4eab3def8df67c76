//! The client's side of every capture of Linux siw, played to Weft: it has to answer with the server's messages.
//!
//! What the server's program did (which Sends, Writes and Reads it posted) is taken from the capture and posted to
//! Weft at the same moments. The Reply, the Read Responses, the Terminate, all numbers, tags and offsets are Weft's.

mod host;
mod messages;
#[path = "../../../../proto/iwarp/tests/streams/mod.rs"]
mod streams;

use std::time::Duration;

use host::{Capture, Server};
use messages::{Decoder, Message};
use streams::{Connection, From};
use weft_iwarp::{
    Established, FrameKind, Initiator, InitiatorEvent, Responder, ResponderEvent, Rtr, RtrSet,
    StartConfig, StartFrame,
};
use weft_verbs::types::{Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge};

const NOW: Duration = Duration::ZERO;
/// TCP's segment size on the captures' Ethernet, with timestamps.
const EMSS: usize = 1448;
const CAPTURES: [&str; 14] = [
    "read_bw_small",
    "read_lat_small",
    "rping_crc",
    "rping_mpav1",
    "rping_nocrc",
    "rping_p2p",
    "send_lat_small",
    "sendbw_small",
    "term_write_oob",
    "write_bw_small",
    "write_lat_small",
    "writebw_64k",
    "writebw_crc_odd",
    "writebw_gso",
];

fn frame(kind: FrameKind, octets: &[u8]) -> (StartFrame, usize) {
    let frame = StartFrame::parse(kind, octets)
        .expect("a good frame")
        .expect("a whole frame");
    let len = frame.wire_len();
    (frame, len)
}

/// Weft's start-up as the server: the Reply, and what it agreed to.
fn answer(request: &[u8], captured: &StartFrame) -> (StartFrame, Established) {
    // siw takes a Write as ready-to-receive wherever one is offered.
    let config = StartConfig {
        crc: false,
        rtr: RtrSet::from(Rtr::Write),
        ..StartConfig::default()
    };
    let mut responder = Responder::new(config, NOW);
    assert_eq!(responder.handle_bytes(request, NOW), request.len());
    assert!(matches!(
        responder.poll_event(),
        Some(ResponderEvent::Request(_))
    ));
    let depths = captured.enhanced.unwrap_or_default();
    let established = responder
        .accept(captured.private_data.clone(), depths.ird, depths.ord)
        .expect("a Request that can be accepted");
    let octets = responder.poll_transmit().expect("a Reply");
    (frame(FrameKind::Reply, &octets).0, established)
}

/// What the client made of the Reply: how to read what the server sends.
fn client_view(request: &StartFrame, reply: &[u8]) -> Established {
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
    initiator.handle_bytes(reply, NOW);
    match initiator.poll_event() {
        Some(InitiatorEvent::Accepted(established)) => established,
        other => panic!("the Reply was not accepted: {other:?}"),
    }
}

/// The work request that makes a server send this message; none for what Weft sends of itself.
fn request_of(message: &Message) -> Option<SendOp> {
    match *message {
        Message::Send { .. } => Some(SendOp::Send),
        Message::Write { stag, to, .. } => Some(SendOp::Write {
            remote_addr: to,
            rkey: stag,
        }),
        Message::ReadRequest { request, .. } => Some(SendOp::Read {
            remote_addr: request.source_to,
            rkey: request.source_stag,
        }),
        Message::ReadResponse { .. } | Message::Terminate { .. } => None,
    }
}

/// Does what the server's program did when siw sent this message.
fn post(server: &mut Server, message: &Message) {
    let Some(op) = request_of(message) else {
        return;
    };
    let sge = match message {
        Message::ReadRequest { request, .. } => Sge {
            addr: request.sink_to,
            length: request.size,
            lkey: request.sink_stag.0,
        },
        other => server.host.provide(other.payload()),
    };
    let request = SendRequest {
        wr_id: 0,
        op,
        flags: SendFlags::default(),
        payload: Payload::Gather(&[sge]),
    };
    let posted = server.qp.post_send(&request, &mut server.host);
    posted.expect("room in the send queue");
}

/// Plays a connection; gives the server's messages as captured and as Weft sent them.
fn replay(connection: &Connection) -> (Vec<Message>, Vec<Message>) {
    let client = connection.stream(From::Initiator);
    let siw = connection.stream(From::Responder);
    let (request, request_len) = frame(FrameKind::Request, &client);
    let (reply, reply_len) = frame(FrameKind::Reply, &siw);
    let (our_reply, established) = answer(&client[..request_len], &reply);
    // siw echoes reserved bits, which are to be sent as zero (RFC 5044 section 7.1.1).
    let reply = StartFrame {
        reserved: 0,
        ..reply
    };
    assert_eq!(our_reply, reply);

    let view = client_view(&request, &siw[..reply_len]);
    let capture = Capture::read(
        &established,
        &client[request_len..],
        &view,
        &siw[reply_len..],
    );
    let mut server = Server::new(&established, EMSS, &capture);
    for wr_id in 0..1024 {
        let scatter = [server.host.receive_buffer()];
        let recv = RecvRequest {
            wr_id,
            scatter: &scatter,
        };
        let posted = server.qp.post_recv(&recv, &mut server.host);
        posted.expect("room in the receive queue");
    }
    let mut captured = Decoder::new(&view);
    let mut ours = Decoder::new(&view);
    let (mut expected, mut sent) = (Vec::new(), Vec::new());
    let mut skip = [request_len, reply_len];
    for (from, octets) in &connection.pieces {
        let skip = &mut skip[usize::from(*from == From::Responder)];
        let rest = &octets[octets.len().min(*skip)..];
        *skip -= octets.len() - rest.len();
        match from {
            From::Initiator => server.receive(rest),
            From::Responder => {
                for message in captured.take(rest) {
                    post(&mut server, &message);
                    expected.push(message);
                }
            }
        }
        sent.extend(ours.take(&server.transmit()));
    }
    (expected, sent)
}

/// Read Responses come when the peer asks, all else when the program does: each of the two in order.
fn sorted(messages: Vec<Message>) -> [Vec<Message>; 2] {
    let (responses, others) = messages
        .into_iter()
        .partition(|m| matches!(m, Message::ReadResponse { .. }));
    [responses, others]
}

#[test]
fn each_client_gets_the_messages_that_siw_sent() {
    let mut total = 0;
    for name in CAPTURES {
        for (number, connection) in streams::connections(name).iter().enumerate() {
            let (expected, sent) = replay(connection);
            total += expected.len();
            let [responses, others] = sorted(expected);
            let [our_responses, our_others] = sorted(sent);
            assert_eq!(our_responses, responses, "{name}, connection {number}");
            assert_eq!(our_others, others, "{name}, connection {number}");
        }
    }
    assert!(total > 200, "{total} messages are too few to show anything");
}
