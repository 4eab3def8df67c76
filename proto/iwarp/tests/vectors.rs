//! The octets of known FPDUs, made and read: vectors A to W of the project's wire reference and the two hex dumps
//! of RFC 5044. Every vector is compared octet by octet with what [`Outbound`] makes, and [`Inbound`] must read it
//! back to the same message.

use weft_iwarp::ddp::{Header, Tagged, Untagged};
use weft_iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Established, Fault, Inbound, InboundConfig,
    Message, Msn, Opcode, Outbound, Parse, PeerFault, QueueNumber, ReadRequest, Role, Rtr, Stag,
    Terminate,
};

/// Two ends of one direction of a stream, CRC on.
struct Line {
    outbound: Outbound,
    inbound: Inbound,
}

impl Line {
    fn new(markers: bool) -> Line {
        let established = Established {
            role: Role::Initiator,
            crc: true,
            markers_tx: markers,
            markers_rx: markers,
            revision: 1,
            peer_to_peer: false,
            rtr: None,
            ird: 1,
            ord: 1,
            peer_ird: 1,
            peer_ord: 1,
            private_data: Vec::new(),
        };
        let inbound = InboundConfig {
            crc: true,
            markers,
            rfc7306: true,
        };
        Line {
            outbound: Outbound::new(&established, 9000),
            inbound: Inbound::with_config(inbound),
        }
    }

    /// A line whose next message on this queue has this number.
    fn at(qn: QueueNumber, msn: u32) -> Line {
        let mut line = Line::new(false);
        for _ in 1..msn {
            let header = line.untagged(true, Opcode::SEND, qn);
            // What the messages before were does not matter to the vector, only that there were some.
            let (opcode, body): (_, &[u8]) = match qn {
                QueueNumber::SEND => (Opcode::SEND, &[]),
                _ => (Opcode::READ_REQUEST, &[0; 28]),
            };
            let Header::Untagged(header) = header else {
                unreachable!("made untagged");
            };
            let fpdu = line.fpdu(&Header::Untagged(Untagged { opcode, ..header }), body, &[]);
            line.read(&fpdu);
        }
        line
    }

    fn untagged(&mut self, last: bool, opcode: Opcode, qn: QueueNumber) -> Header {
        Header::Untagged(Untagged {
            last,
            opcode,
            invalidate: 0,
            qn,
            msn: self.outbound.next_msn(qn),
            mo: 0,
        })
    }

    fn fpdu(&mut self, header: &Header, body: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let start = self.outbound.begin(&mut out, header, body, payload.len());
        out.extend_from_slice(payload);
        self.outbound.seal(&mut out, start);
        out
    }

    fn send(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = self.untagged(true, Opcode::SEND, QueueNumber::SEND);
        self.fpdu(&header, &[], payload)
    }

    /// Reads one whole FPDU: its message and payload.
    fn read(&mut self, fpdu: &[u8]) -> (Message, Vec<u8>) {
        let mut octets = fpdu.to_vec();
        // One octet less is not enough, whatever it is for.
        let Ok(Parse::Need { octets: need }) = self.inbound.parse(&mut octets[..fpdu.len() - 1])
        else {
            panic!("an FPDU with its last octet missing was taken");
        };
        assert_eq!(need, fpdu.len());
        match self.inbound.parse(&mut octets) {
            Ok(Parse::Segment(segment)) => {
                assert_eq!(segment.consumed, fpdu.len());
                (segment.message, octets[segment.payload].to_vec())
            }
            other => panic!("no segment: {other:?}"),
        }
    }

    /// The FPDU made is the vector, and the vector reads back to this message.
    fn check(&mut self, made: &[u8], vector: &[u8], message: Message, payload: &[u8]) {
        assert_eq!(dump(made), dump(vector));
        assert_eq!(self.read(vector), (message, payload.to_vec()));
    }
}

fn hex(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|octet| u8::from_str_radix(octet, 16).expect("two hex digits"))
        .collect()
}

/// For failures that can be read.
fn dump(octets: &[u8]) -> String {
    let lines = octets.chunks(16).enumerate();
    lines
        .map(|(n, line)| format!("{:04x} {line:02x?}\n", 16 * n))
        .collect()
}

fn write(stag: u32, to: u64, opcode: Opcode) -> Header {
    Header::Tagged(Tagged {
        last: true,
        opcode,
        stag: Stag(stag),
        to,
    })
}

fn plain_send(msn: u32) -> Message {
    Message::Send {
        msn: Msn(msn),
        first: true,
        mo: 0,
        last: true,
        solicited: false,
        invalidate: None,
    }
}

const READ: ReadRequest = ReadRequest {
    sink_stag: Stag(0xaabb_cc01),
    sink_to: 0x1000,
    size: 0x2000,
    source_stag: Stag(0x1122_3302),
    source_to: 0x7f00_0000_3000,
};

#[test]
fn a_send() {
    let vector = hex("00 17 41 43 00 00 00 00 00 00 00 00 00 00 00 01
                      00 00 00 00 68 65 6c 6c 6f 00 00 00 b9 90 b1 0c");
    let mut line = Line::new(false);
    let made = line.send(b"hello");
    line.check(&made, &vector, plain_send(1), b"hello");
}

#[test]
fn b_write() {
    let vector = hex("00 16 c1 40 00 00 12 34 00 00 00 01 00 00 00 00
                      00 11 22 33 44 55 66 77 67 43 c6 da");
    let payload = hex("00 11 22 33 44 55 66 77");
    let mut line = Line::new(false);
    let made = line.fpdu(&write(0x1234, 1 << 32, Opcode::WRITE), &[], &payload);
    let message = Message::Write {
        stag: Stag(0x1234),
        to: 1 << 32,
        last: true,
    };
    line.check(&made, &vector, message, &payload);
}

#[test]
fn c_read_request() {
    let vector = hex("00 2e 41 41 00 00 00 00 00 00 00 01 00 00 00 01
                      00 00 00 00 aa bb cc 01 00 00 00 00 00 00 10 00
                      00 00 20 00 11 22 33 02 00 00 7f 00 00 00 30 00
                      b7 e4 bf cf");
    let mut line = Line::new(false);
    let header = line.untagged(true, Opcode::READ_REQUEST, QueueNumber::READ_REQUEST);
    let made = line.fpdu(&header, &READ.to_octets(), &[]);
    let message = Message::ReadRequest {
        msn: Msn(1),
        request: READ,
    };
    line.check(&made, &vector, message, &[]);
}

#[test]
fn d_read_response() {
    let vector = hex("00 12 c1 42 aa bb cc 01 00 00 00 00 00 00 10 00
                      de ad be ef 77 db 8b 86");
    let payload = hex("de ad be ef");
    let mut line = Line::new(false);
    let made = line.fpdu(
        &write(READ.sink_stag.0, READ.sink_to, Opcode::READ_RESPONSE),
        &[],
        &payload,
    );
    let message = Message::ReadResponse {
        stag: READ.sink_stag,
        to: READ.sink_to,
        last: true,
    };
    line.check(&made, &vector, message, &payload);
}

#[test]
fn e_rtr_as_write() {
    let vector = hex("00 0e c1 40 00 00 00 01 00 00 00 00 00 00 00 00 eb d3 4c 5f");
    let mut line = Line::new(false);
    let mut made = Vec::new();
    line.outbound.rtr(Rtr::Write, 0, &mut made);
    let message = Message::Write {
        stag: Stag::RTR,
        to: 0,
        last: true,
    };
    line.check(&made, &vector, message, &[]);
}

#[test]
fn f_rtr_as_read_and_g_its_response() {
    let vector = hex("00 2e 41 41 00 00 00 00 00 00 00 01 00 00 00 01
                      00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00
                      00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00
                      27 db d7 e7");
    let mut line = Line::new(false);
    let mut made = Vec::new();
    line.outbound.rtr(Rtr::Read, 0, &mut made);
    let request = ReadRequest {
        sink_stag: Stag::RTR,
        sink_to: 0,
        size: 0,
        source_stag: Stag::RTR,
        source_to: 0,
    };
    let message = Message::ReadRequest {
        msn: Msn(1),
        request,
    };
    line.check(&made, &vector, message, &[]);
    // The next Read Request has the number behind it.
    assert_eq!(line.outbound.next_msn(QueueNumber::READ_REQUEST), Msn(2));

    let vector = hex("00 0e c1 42 00 00 00 01 00 00 00 00 00 00 00 00 21 a3 e8 3e");
    let mut line = Line::new(false);
    let made = line.fpdu(&write(1, 0, Opcode::READ_RESPONSE), &[], &[]);
    let message = Message::ReadResponse {
        stag: Stag(1),
        to: 0,
        last: true,
    };
    line.check(&made, &vector, message, &[]);
}

#[test]
fn h_rtr_as_send() {
    let vector = hex("00 12 41 43 00 00 00 00 00 00 00 00 00 00 00 01 00 00 00 00 58 7b e8 c4");
    let mut line = Line::new(false);
    let mut made = Vec::new();
    line.outbound.rtr(Rtr::Send, 0, &mut made);
    line.check(&made, &vector, plain_send(1), &[]);
}

#[test]
fn i_send_with_invalidate() {
    let vector = hex("00 14 41 44 ca fe 00 01 00 00 00 00 00 00 00 02
                      00 00 00 00 01 02 00 00 81 a6 3a 62");
    let mut line = Line::at(QueueNumber::SEND, 2);
    let header = Header::Untagged(Untagged {
        last: true,
        opcode: Opcode::SEND_INVALIDATE,
        invalidate: 0xcafe_0001,
        qn: QueueNumber::SEND,
        msn: line.outbound.next_msn(QueueNumber::SEND),
        mo: 0,
    });
    let made = line.fpdu(&header, &[], &[1, 2]);
    let message = Message::Send {
        msn: Msn(2),
        first: true,
        mo: 0,
        last: true,
        solicited: false,
        invalidate: Some(Stag(0xcafe_0001)),
    };
    line.check(&made, &vector, message, &[1, 2]);
}

/// The Terminate a fault draws is the vector, and reads back to itself.
fn terminate(fault: &Fault, vector: &str) {
    let terminate = fault.terminate().expect("a Terminate");
    let mut line = Line::new(false);
    let mut made = Vec::new();
    line.outbound.terminate(&terminate, &mut made);
    line.check(&made, &hex(vector), Message::Terminate(terminate), &[]);
}

/// The fault the receiver finds in this FPDU, which stands first in its stream.
fn fault_in(fpdu: &mut [u8]) -> Fault {
    match Line::new(false).inbound.parse(fpdu) {
        Err(fault) => fault,
        other => panic!("no fault: {other:?}"),
    }
}

#[test]
fn j_terminate_for_a_wrong_crc() {
    let mut fpdu = Line::new(false).send(b"hello");
    fpdu[21] ^= 1;
    terminate(
        &fault_in(&mut fpdu),
        "00 16 41 47 00 00 00 00 00 00 00 02 00 00 00 01
         00 00 00 00 20 02 00 00 7f e4 25 85",
    );
}

#[test]
fn k_terminate_for_an_empty_receive_queue() {
    let mut line = Line::at(QueueNumber::SEND, 5);
    let mut offender = line.send(&[0; 100]);
    let Ok(Parse::Segment(segment)) = line.inbound.parse(&mut offender) else {
        panic!("the segment itself is good");
    };
    let fault =
        Fault::new(PeerFault::NoBuffer, "MSN").in_segment(segment.ulpdu_len, segment.header);
    terminate(
        &fault,
        "00 2a 41 47 00 00 00 00 00 00 00 02 00 00 00 01
         00 00 00 00 12 02 c0 00 00 76 41 43 00 00 00 00
         00 00 00 00 00 00 00 05 00 00 00 00 a5 00 27 95",
    );
}

#[test]
fn l_terminate_for_tagged_bounds() {
    let mut line = Line::new(false);
    let mut offender = line.fpdu(&write(0x5555_0001, 0x4000, Opcode::WRITE), &[], &[0; 64]);
    let Ok(Parse::Segment(segment)) = line.inbound.parse(&mut offender) else {
        panic!("the segment itself is good");
    };
    let fault =
        Fault::new(PeerFault::TaggedBounds, "TO").in_segment(segment.ulpdu_len, segment.header);
    terminate(
        &fault,
        "00 26 41 47 00 00 00 00 00 00 00 02 00 00 00 01
         00 00 00 00 11 01 c0 00 00 4e c1 40 55 55 00 01
         00 00 00 00 00 00 40 00 2d 86 43 cc",
    );
}

#[test]
fn m_terminate_for_read_access() {
    let mut line = Line::at(QueueNumber::READ_REQUEST, 3);
    let header = line.untagged(true, Opcode::READ_REQUEST, QueueNumber::READ_REQUEST);
    let read = ReadRequest {
        source_to: 0x3000,
        ..READ
    };
    let mut offender = line.fpdu(&header, &read.to_octets(), &[]);
    let Ok(Parse::Segment(segment)) = line.inbound.parse(&mut offender) else {
        panic!("the segment itself is good");
    };
    let Message::ReadRequest { request, .. } = segment.message else {
        panic!("not a Read Request");
    };
    let fault = Fault::new(PeerFault::RemoteAccess, "SrcSTag")
        .in_segment(segment.ulpdu_len, segment.header)
        .in_read_request(request);
    terminate(
        &fault,
        "00 46 41 47 00 00 00 00 00 00 00 02 00 00 00 01
         00 00 00 00 01 02 e0 00 00 2e 41 41 00 00 00 00
         00 00 00 01 00 00 00 03 00 00 00 00 aa bb cc 01
         00 00 00 00 00 00 10 00 00 00 20 00 11 22 33 02
         00 00 00 00 00 00 30 00 f6 4f a3 bd",
    );
}

#[test]
fn n_immediate_data() {
    let vector = hex("00 1a 41 48 00 00 00 00 00 00 00 00 00 00 00 03
                      00 00 00 00 01 02 03 04 05 06 07 08 cc b2 8c 64");
    let mut line = Line::at(QueueNumber::SEND, 3);
    let header = line.untagged(true, Opcode::IMMEDIATE, QueueNumber::SEND);
    let data: u64 = 0x0102_0304_0506_0708;
    let made = line.fpdu(&header, &data.to_be_bytes(), &[]);
    let message = Message::ImmediateData {
        msn: Msn(3),
        data,
        solicited: false,
    };
    line.check(&made, &vector, message, &[]);
}

fn atomic(msn: u32, identifier: u32, operation: AtomicOperation, vector: &str) {
    let mut line = Line::at(QueueNumber::READ_REQUEST, msn);
    let header = line.untagged(true, Opcode::ATOMIC_REQUEST, QueueNumber::READ_REQUEST);
    let request = AtomicRequest {
        operation,
        identifier,
        stag: Stag(0x1122_3302),
        to: 0x3000,
    };
    let made = line.fpdu(&header, &request.to_octets(), &[]);
    let message = Message::AtomicRequest {
        msn: Msn(msn),
        request,
    };
    line.check(&made, &hex(vector), message, &[]);
}

#[test]
fn o_fetch_add() {
    atomic(
        2,
        0x77,
        AtomicOperation::FetchAdd { add: 1, mask: 0 },
        "00 46 41 4a 00 00 00 00 00 00 00 01 00 00 00 02
         00 00 00 00 00 00 00 00 00 00 00 77 11 22 33 02
         00 00 00 00 00 00 30 00 00 00 00 00 00 00 00 01
         00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
         ff ff ff ff ff ff ff ff e5 ce 45 91",
    );
}

#[test]
fn p_compare_swap() {
    let operation = AtomicOperation::CompareSwap {
        swap: 5,
        swap_mask: u64::MAX,
        compare: 4,
        compare_mask: u64::MAX,
    };
    atomic(
        3,
        0x78,
        operation,
        "00 46 41 4a 00 00 00 00 00 00 00 01 00 00 00 03
         00 00 00 00 00 00 00 02 00 00 00 78 11 22 33 02
         00 00 00 00 00 00 30 00 00 00 00 00 00 00 00 05
         ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 04
         ff ff ff ff ff ff ff ff 9d d8 06 4a",
    );
}

#[test]
fn q_atomic_response() {
    let vector = hex("00 1e 41 4b 00 00 00 00 00 00 00 03 00 00 00 01
                      00 00 00 00 00 00 00 77 00 00 00 00 00 00 00 29
                      55 66 71 a6");
    let mut line = Line::new(false);
    let header = line.untagged(true, Opcode::ATOMIC_RESPONSE, QueueNumber::ATOMIC_RESPONSE);
    let response = AtomicResponse {
        identifier: 0x77,
        original: 41,
    };
    let made = line.fpdu(&header, &response.to_octets(), &[]);
    let message = Message::AtomicResponse {
        msn: Msn(1),
        response,
    };
    line.check(&made, &vector, message, &[]);
}

#[test]
fn r_leading_marker() {
    let vector = hex("00 00 00 00 00 17 41 43 00 00 00 00 00 00 00 00
                      00 00 00 01 00 00 00 00 68 65 6c 6c 6f 00 00 00
                      7a 61 e9 71");
    let mut line = Line::new(true);
    let made = line.send(b"hello");
    line.check(&made, &vector, plain_send(1), b"hello");
}

#[test]
fn s_two_markers() {
    let payload: Vec<u8> = (0..500).map(|i| (7 * i + 3) as u8).collect();
    let mut line = Line::new(true);
    let made = line.send(&payload);
    assert_eq!(made.len(), 532);
    let head = hex("00 00 00 00 02 06 41 43 00 00 00 00 00 00 00 00
                    00 00 00 01 00 00 00 00 03 0a 11 18 1f 26 2d 34
                    3b 42 49 50 57 5e 65 6c 73 7a 81 88 8f 96 9d a4");
    assert_eq!(made[..0x30], head);
    let tail = hex("eb f2 f9 00 07 0e 15 1c 23 2a 31 38 3f 46 4d 54
                    00 00 01 fc 5b 62 69 70 77 7e 85 8c 93 9a a1 a8
                    82 fd 57 2a");
    assert_eq!(made[0x1f0..], tail);
    assert_eq!(line.read(&made), (plain_send(1), payload.clone()));

    let unmarked = Line::new(false).send(&payload);
    assert_eq!(unmarked.len(), 524);
    assert_eq!(unmarked[520..], hex("0b b5 42 8e"));
}

#[test]
fn t_marker_between_fpdus() {
    let mut line = Line::new(true);
    let first = line.send(&[0; 484]);
    assert_eq!((first.len(), &first[508..]), (512, &hex("a0 9b b5 5b")[..]));
    assert_eq!(line.read(&first), (plain_send(1), vec![0; 484]));
    let second = line.send(b"ABCD");
    let vector = hex("00 00 00 00 00 16 41 43 00 00 00 00 00 00 00 00
                      00 00 00 02 00 00 00 00 41 42 43 44 9c c1 87 91");
    line.check(&second, &vector, plain_send(2), b"ABCD");
}

#[test]
fn u_marker_before_the_crc() {
    let mut line = Line::new(true);
    let first = line.send(&[0; 488]);
    assert_eq!(first[0x200..], hex("00 00 01 fc 38 cf 64 e8"));
    assert_eq!(line.read(&first), (plain_send(1), vec![0; 488]));
    let second = line.send(b"ABCD");
    let vector = hex("00 16 41 43 00 00 00 00 00 00 00 00 00 00 00 02
                      00 00 00 00 41 42 43 44 1b ea b5 e2");
    line.check(&second, &vector, plain_send(2), b"ABCD");
}

#[test]
fn v_three_markers() {
    let mut line = Line::new(true);
    let made = line.send(&[0; 1200]);
    assert_eq!(made.len(), 1236);
    assert_eq!(made[..4], hex("00 00 00 00"));
    assert_eq!(made[0x200..0x204], hex("00 00 01 fc"));
    assert_eq!(made[0x400..0x404], hex("00 00 03 fc"));
    assert_eq!(made[1232..], hex("08 2f 57 3a"));
    assert_eq!(line.read(&made), (plain_send(1), vec![0; 1200]));
}

#[test]
fn w_two_segments() {
    let payload: Vec<u8> = (0..40).collect();
    let mut line = Line::new(false);
    let msn = line.outbound.next_msn(QueueNumber::SEND);
    let header = |last, mo| {
        Header::Untagged(Untagged {
            last,
            opcode: Opcode::SEND,
            invalidate: 0,
            qn: QueueNumber::SEND,
            msn,
            mo,
        })
    };
    let message = |last, mo| Message::Send {
        msn,
        first: mo == 0,
        mo,
        last,
        solicited: false,
        invalidate: None,
    };
    let made = line.fpdu(&header(false, 0), &[], &payload[..24]);
    let vector = hex("00 2a 01 43 00 00 00 00 00 00 00 00 00 00 00 01
                      00 00 00 00 00 01 02 03 04 05 06 07 08 09 0a 0b
                      0c 0d 0e 0f 10 11 12 13 14 15 16 17 b0 36 03 40");
    line.check(&made, &vector, message(false, 0), &payload[..24]);
    let made = line.fpdu(&header(true, 24), &[], &payload[24..]);
    let vector = hex("00 22 41 43 00 00 00 00 00 00 00 00 00 00 00 01
                      00 00 00 18 18 19 1a 1b 1c 1d 1e 1f 20 21 22 23
                      24 25 26 27 81 71 66 f6");
    line.check(&made, &vector, message(true, 24), &payload[24..]);
}

/// RFC 5044 Figure 5, with and without its marker.
#[test]
fn rfc_5044_figure_5() {
    let made = Line::new(true).send(&[0; 24]);
    assert_eq!(made[..10], hex("00 00 00 00 00 2a 41 43 00 00"));
    assert_eq!((made.len(), &made[48..]), (52, &hex("52 23 99 83")[..]));
    let unmarked = Line::new(false).send(&[0; 24]);
    assert_eq!(unmarked[44..], hex("b7 24 3e c3"));
}

/// RFC 5044 Figure 6: a marker in the middle of the header of the second FPDU, which begins at offset 0x1ec.
#[test]
fn rfc_5044_figure_6() {
    let mut line = Line::new(true);
    let first = line.send(&[0; 464]);
    assert_eq!(first.len(), 0x1ec);
    line.read(&first);
    let second = line.send(&[0; 24]);
    assert_eq!(second[0x14..0x18], hex("00 00 00 14"));
    assert_eq!(second[second.len() - 4..], hex("84 92 58 98"));
    assert_eq!(line.read(&second), (plain_send(2), vec![0; 24]));
}

/// With CRC and markers off the CRC field is zero, and the payload may stay where it is.
#[test]
fn crc_off_and_payload_by_reference() {
    let established = Established {
        role: Role::Initiator,
        crc: false,
        markers_tx: false,
        markers_rx: false,
        revision: 1,
        peer_to_peer: false,
        rtr: None,
        ird: 1,
        ord: 1,
        peer_ird: 1,
        peer_ord: 1,
        private_data: Vec::new(),
    };
    for len in 0..9 {
        let payload = vec![0xa5; len];
        let header = write(7, 8, Opcode::WRITE);
        let mut outbound = Outbound::new(&established, 1448);
        assert!(outbound.by_reference());
        let mut through = Vec::new();
        let start = outbound.begin(&mut through, &header, &[], len);
        through.extend_from_slice(&payload);
        outbound.seal(&mut through, start);
        assert_eq!(through[through.len() - 4..], [0; 4]);

        let mut around = Vec::new();
        outbound.begin(&mut around, &header, &[], len);
        let headers = around.len();
        outbound.seal_reference(&mut around, len, header.wire_len());
        let gathered = [&around[..headers], &payload, &around[headers..]].concat();
        assert_eq!(gathered, through);
    }
    // A CRC would cover the payload, and markers would split it.
    assert!(!Line::new(false).outbound.by_reference());
    let with_markers = Established {
        markers_tx: true,
        ..established
    };
    assert!(!Outbound::new(&with_markers, 1448).by_reference());
}

#[test]
fn sizes_of_segments() {
    let mut outbound = Line::new(false).outbound;
    assert_eq!(
        (outbound.max_payload(true), outbound.max_payload(false)),
        (8994 - 14, 8994 - 18)
    );
    // RFC 5041 section 5.2.
    outbound.set_mulpdu(1500);
    assert_eq!(
        (outbound.max_payload(true), outbound.max_payload(false)),
        (1486, 1482)
    );
    outbound.set_mulpdu(1);
    assert_eq!(outbound.mulpdu(), 128);
    outbound.set_mulpdu(usize::MAX);
    assert_eq!(outbound.mulpdu(), 64768);
}

/// What a Terminate says of itself is what a person reads in the log.
#[test]
fn terminate_in_words() {
    let fault = Fault::new(PeerFault::NoBuffer, "MSN");
    let terminate: Terminate = fault.terminate().expect("a Terminate");
    assert_eq!(
        terminate.to_string(),
        "DDP untagged: invalid MSN, no buffer available (1/2/02)"
    );
}
