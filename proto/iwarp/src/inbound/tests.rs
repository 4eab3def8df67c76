//! What holds for any stream however it is split, and every fault a header can show.

use super::*;
use crate::ddp::{Tagged, Untagged};
use crate::fuzzing::receive;
use crate::mpa::crc::crc32c;
use crate::num::{Opcode, QueueNumber};
use crate::outbound::Outbound;
use crate::rdmap::AtomicOperation;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

/// A connection between two halves made here.
fn established(crc: bool, markers: bool) -> Established {
    Established {
        role: crate::Role::Initiator,
        crc,
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
    }
}

fn tagged(last: bool, opcode: Opcode, stag: u32, to: u64) -> Header {
    Header::Tagged(Tagged {
        last,
        opcode,
        stag: Stag(stag),
        to,
    })
}

fn untagged(last: bool, opcode: Opcode, qn: u32, msn: u32, mo: u32) -> Header {
    Header::Untagged(Untagged {
        last,
        opcode,
        invalidate: 0,
        qn: QueueNumber(qn),
        msn: Msn(msn),
        mo,
    })
}

/// A stream from FPDUs of these headers and bodies.
fn stream(established: &Established, fpdus: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut outbound = Outbound::new(established, 65483);
    let mut out = Vec::new();
    for (header, body) in fpdus {
        let start = outbound.begin(&mut out, header, &[], body.len());
        out.extend_from_slice(body);
        outbound.seal(&mut out, start);
    }
    out
}

const READ: ReadRequest = ReadRequest {
    sink_stag: Stag(0xaabb_cc01),
    sink_to: 0x1000,
    size: 0x2000,
    source_stag: Stag(0x1122_3302),
    source_to: 0x7f00_0000_3000,
};

/// What a source might do next.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<usize>),
    ReadResponse(u64, Vec<usize>),
    Send(bool, Option<u32>, Vec<usize>),
    Read,
    Immediate(u64),
    Atomic,
    AtomicResponse,
}

fn lengths() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(
        prop_oneof![4 => 0usize..40, 2 => 400usize..700, 1 => 1400usize..3000],
        1..5,
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (any::<u64>(), lengths()).prop_map(|(to, lens)| Step::Write(to, lens)),
        (any::<u64>(), lengths()).prop_map(|(to, lens)| Step::ReadResponse(to, lens)),
        (any::<bool>(), any::<Option<u32>>(), lengths())
            .prop_map(|(s, i, lens)| Step::Send(s, i, lens)),
        Just(Step::Read),
        any::<u64>().prop_map(Step::Immediate),
        Just(Step::Atomic),
        Just(Step::AtomicResponse),
    ]
}

/// Segments of the steps. Between the segments of a Send come those of the tagged message behind it.
fn segments(steps: &[Step]) -> Vec<(Header, Vec<u8>)> {
    let mut outbound = Outbound::new(&established(false, false), 1448);
    let mut all: Vec<(Header, Vec<u8>)> = Vec::new();
    let mut open_send: Vec<(Header, Vec<u8>)> = Vec::new();
    let mut fill = 0u8;
    let mut body = |len: usize| {
        fill = fill.wrapping_add(31);
        (0..len)
            .map(|i| fill.wrapping_add(i as u8))
            .collect::<Vec<u8>>()
    };
    for step in steps {
        let mut single =
            |opcode: Opcode, qn: QueueNumber, body: Vec<u8>, open: &mut Vec<(Header, Vec<u8>)>| {
                all.append(open);
                all.push((
                    untagged(true, opcode, qn.0, outbound.next_msn(qn).0, 0),
                    body,
                ));
            };
        match step {
            Step::Write(to, lens) | Step::ReadResponse(to, lens) => {
                let opcode = match step {
                    Step::Write(..) => Opcode::WRITE,
                    _ => Opcode::READ_RESPONSE,
                };
                let mut to = *to;
                for (n, len) in lens.iter().enumerate() {
                    let last = n + 1 == lens.len();
                    all.push((tagged(last, opcode, 0x77, to), body(*len)));
                    to = to.wrapping_add(*len as u64);
                    if !open_send.is_empty() {
                        all.push(open_send.remove(0));
                    }
                }
            }
            Step::Send(solicited, invalidate, lens) => {
                all.append(&mut open_send);
                let msn = outbound.next_msn(QueueNumber::SEND);
                let mut mo = 0;
                for (n, len) in lens.iter().enumerate() {
                    let header = Header::Untagged(Untagged {
                        last: n + 1 == lens.len(),
                        opcode: Opcode::send(*solicited, invalidate.is_some()),
                        invalidate: invalidate.unwrap_or(0),
                        qn: QueueNumber::SEND,
                        msn,
                        mo,
                    });
                    open_send.push((header, body(*len)));
                    mo += *len as u32;
                }
            }
            Step::Read => single(
                Opcode::READ_REQUEST,
                QueueNumber::READ_REQUEST,
                READ.to_octets().to_vec(),
                &mut open_send,
            ),
            Step::Immediate(data) => single(
                Opcode::IMMEDIATE_SOLICITED,
                QueueNumber::SEND,
                data.to_be_bytes().to_vec(),
                &mut open_send,
            ),
            Step::Atomic => {
                let request = AtomicRequest {
                    operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
                    identifier: 7,
                    stag: Stag(8),
                    to: 9,
                };
                let octets = request.to_octets().to_vec();
                single(
                    Opcode::ATOMIC_REQUEST,
                    QueueNumber::READ_REQUEST,
                    octets,
                    &mut open_send,
                );
            }
            Step::AtomicResponse => {
                let response = AtomicResponse {
                    identifier: 7,
                    original: 41,
                };
                let octets = response.to_octets().to_vec();
                single(
                    Opcode::ATOMIC_RESPONSE,
                    QueueNumber::ATOMIC_RESPONSE,
                    octets,
                    &mut open_send,
                );
            }
        }
    }
    all.append(&mut open_send);
    all
}

/// Octets behind the DDP header that belong to the message's own header.
fn body_header_len(message: &Message) -> usize {
    match message {
        Message::ReadRequest { .. } => ReadRequest::WIRE_LEN,
        Message::ImmediateData { .. } => crate::rdmap::IMMEDIATE_LEN,
        Message::AtomicRequest { .. } => AtomicRequest::WIRE_LEN,
        Message::AtomicResponse { .. } => AtomicResponse::WIRE_LEN,
        _ => 0,
    }
}

fn inbound(crc: bool, markers: bool) -> Inbound {
    Inbound::with_config(InboundConfig {
        crc,
        markers,
        rfc7306: true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What was sent comes out, whatever the reads give, with CRC and markers on and off, and with payload read
    /// straight to its place.
    #[test]
    fn any_split_gives_what_was_sent(
        steps in proptest::collection::vec(step(), 1..12),
        crc: bool, markers: bool, direct: bool,
        reads in proptest::collection::vec(prop_oneof![1usize..8, 1usize..100, 1usize..4000], 1..20),
    ) {
        let sent = segments(&steps);
        let octets = stream(&established(crc, markers), &sent);
        let mut inbound = inbound(crc, markers);
        let mut turns = reads.iter().cycle();
        let (seen, fault) = receive(&mut inbound, &octets, direct, || *turns.next().unwrap());
        prop_assert_eq!(fault, None);
        prop_assert_eq!(inbound.outstanding(), 0);
        prop_assert!(inbound.first_fpdu_seen());
        prop_assert_eq!(seen.len(), sent.len());
        for (seen, (header, body)) in seen.iter().zip(&sent) {
            prop_assert_eq!(&seen.header, header);
            prop_assert_eq!(usize::from(seen.ulpdu_len), header.wire_len() + body.len());
            prop_assert_eq!(&seen.payload, &body[body_header_len(&seen.message)..]);
            prop_assert!(message_matches(&seen.message, header), "{:?} from {:?}", seen.message, header);
        }
    }

    /// Any flipped bit is found by the CRC, and nothing of that FPDU is given.
    #[test]
    fn a_flipped_bit_is_found(len in 0usize..1000, markers: bool, at: prop::sample::Index, bit in 0u8..8) {
        let body = vec![0x5a; len];
        let sent = [(untagged(true, Opcode::SEND, 0, 1, 0), body)];
        let mut octets = stream(&established(true, markers), &sent);
        let at = at.index(octets.len());
        octets[at] ^= 1 << bit;
        let (seen, fault) = receive(&mut inbound(true, markers), &octets, false, || usize::MAX);
        prop_assert_eq!(seen.len(), 0);
        // A longer ULPDU_Length waits for octets that never come; all else is a wrong CRC.
        prop_assert!(fault.is_none_or(|fault| fault.fault == PeerFault::Crc));
        let length_field = if markers { 4..6 } else { 0..2 };
        prop_assert!(fault.is_some() || length_field.contains(&at));
    }
}

fn message_matches(message: &Message, header: &Header) -> bool {
    match (message, header) {
        (Message::Write { stag, to, last }, Header::Tagged(h)) => {
            h.opcode == Opcode::WRITE && (*stag, *to, *last) == (h.stag, h.to, h.last)
        }
        (Message::ReadResponse { stag, to, last }, Header::Tagged(h)) => {
            h.opcode == Opcode::READ_RESPONSE && (*stag, *to, *last) == (h.stag, h.to, h.last)
        }
        (
            Message::Send {
                msn,
                mo,
                last,
                solicited,
                invalidate,
                ..
            },
            Header::Untagged(h),
        ) => {
            (*msn, *mo, *last) == (h.msn, h.mo, h.last)
                && h.opcode == Opcode::send(*solicited, invalidate.is_some())
                && invalidate.is_none_or(|stag| stag.0 == h.invalidate)
        }
        (Message::ReadRequest { msn, request }, Header::Untagged(h)) => {
            *msn == h.msn && *request == READ
        }
        (Message::ImmediateData { msn, solicited, .. }, Header::Untagged(h)) => {
            *msn == h.msn && *solicited
        }
        (Message::AtomicRequest { msn, request }, Header::Untagged(h)) => {
            *msn == h.msn && request.identifier == 7
        }
        (Message::AtomicResponse { msn, response }, Header::Untagged(h)) => {
            *msn == h.msn && response.original == 41
        }
        _ => false,
    }
}

/// What the segments give in every configuration and under any split: the fault, and how many segments came before.
fn fault_of(fpdus: &[(Header, Vec<u8>)]) -> (usize, Option<Fault>) {
    let mut results = Vec::new();
    for (crc, markers) in [(false, false), (true, false), (false, true), (true, true)] {
        let octets = stream(&established(crc, markers), fpdus);
        for read in [1, 7, usize::MAX] {
            let config = InboundConfig {
                crc,
                markers,
                rfc7306: false,
            };
            let (seen, fault) = receive(&mut Inbound::with_config(config), &octets, false, || read);
            results.push((seen.len(), fault));
        }
    }
    assert!(results.iter().all(|r| *r == results[0]), "{results:?}");
    results[0]
}

/// The last of the segments, and none before, is refused with this fault; its Terminate carries its header.
fn refused(fpdus: &[(Header, Vec<u8>)], fault: PeerFault, field: &str) -> Fault {
    let (good, found) = fault_of(fpdus);
    let found = found.unwrap_or_else(|| panic!("no fault, expected {fault:?}"));
    assert_eq!((good, found.fault), (fpdus.len() - 1, fault));
    assert!(
        found.field.contains(field),
        "{} does not name {field}",
        found.field
    );
    let (header, body) = &fpdus[good];
    let ulpdu_len = (header.wire_len() + body.len()) as u16;
    assert_eq!(found.segment, Some((ulpdu_len, *header)));
    found
}

fn send(last: bool, msn: u32, mo: u32, len: usize) -> (Header, Vec<u8>) {
    (untagged(last, Opcode::SEND, 0, msn, mo), vec![1; len])
}

fn write(last: bool, to: u64, len: usize) -> (Header, Vec<u8>) {
    (tagged(last, Opcode::WRITE, 0x77, to), vec![2; len])
}

fn read(msn: u32) -> (Header, Vec<u8>) {
    (
        untagged(true, Opcode::READ_REQUEST, 1, msn, 0),
        READ.to_octets().to_vec(),
    )
}

#[test]
fn opcodes_out_of_place() {
    let unexpected = PeerFault::UnexpectedOpcode;
    for opcode in [3, 4, 5, 6, 7, 8, 0xf].map(Opcode) {
        refused(
            &[(tagged(true, opcode, 1, 0), vec![])],
            unexpected,
            "opcode",
        );
    }
    for opcode in [0, 2, 8, 9, 0xa, 0xb, 0xc, 0xd, 0xe, 0xf].map(Opcode) {
        refused(
            &[(untagged(true, opcode, 0, 1, 0), vec![0; 60])],
            unexpected,
            "opcode",
        );
    }
}

#[test]
fn queues_and_numbers() {
    refused(
        &[(untagged(true, Opcode::SEND, 1, 1, 0), vec![])],
        PeerFault::QueueNumber,
        "QN",
    );
    refused(
        &[(untagged(true, Opcode::SEND, 4, 1, 0), vec![])],
        PeerFault::QueueNumber,
        "QN",
    );
    let request = READ.to_octets().to_vec();
    refused(
        &[(
            untagged(true, Opcode::READ_REQUEST, 0, 1, 0),
            request.clone(),
        )],
        PeerFault::QueueNumber,
        "QN",
    );
    refused(&[send(true, 2, 0, 4)], PeerFault::MsnRange, "MSN");
    refused(&[send(true, 0, 0, 4)], PeerFault::MsnRange, "MSN");
    refused(
        &[send(true, 1, 0, 4), send(true, 1, 0, 4)],
        PeerFault::MsnRange,
        "MSN",
    );
    refused(&[read(1), read(3)], PeerFault::MsnRange, "MSN");
    refused(&[send(true, 1, 4, 4)], PeerFault::MessageOffset, "MO");
    refused(
        &[send(false, 1, 0, 4), send(true, 1, 8, 4)],
        PeerFault::MessageOffset,
        "MO",
    );
    refused(
        &[send(false, 1, 0, 4), send(true, 2, 0, 4)],
        PeerFault::MsnRange,
        "MSN",
    );
    refused(
        &[(untagged(true, Opcode::READ_REQUEST, 1, 1, 4), request)],
        PeerFault::MessageOffset,
        "MO",
    );
}

#[test]
fn messages_of_fixed_length() {
    let body = |len: usize| vec![0; len];
    let read = |last, len| (untagged(last, Opcode::READ_REQUEST, 1, 1, 0), body(len));
    refused(&[read(false, 28)], PeerFault::MessageTooLong, "L flag");
    refused(&[read(true, 29)], PeerFault::MessageTooLong, "ULPDU_Length");
    refused(&[read(true, 27)], PeerFault::MessageLength, "ULPDU_Length");
    refused(&[read(true, 0)], PeerFault::MessageLength, "ULPDU_Length");
}

#[test]
fn messages_stay_in_one_piece() {
    let unexpected = PeerFault::UnexpectedOpcode;
    let response = (tagged(true, Opcode::READ_RESPONSE, 0x77, 4), vec![3; 4]);
    refused(&[write(false, 0, 4), response], unexpected, "opcode");
    let other = (untagged(true, Opcode::SEND_SOLICITED, 0, 1, 4), vec![3; 4]);
    refused(&[send(false, 1, 0, 4), other], unexpected, "opcode");
    let elsewhere = (tagged(true, Opcode::WRITE, 0x78, 4), vec![3; 4]);
    refused(
        &[write(false, 0, 4), elsewhere],
        PeerFault::TaggedStag,
        "STag",
    );
    refused(
        &[write(false, 0, 4), write(true, 8, 4)],
        PeerFault::TaggedBounds,
        "TO",
    );
}

/// STag and TO of an empty tagged segment must not be checked (RFC 5041 section 5.2).
#[test]
fn an_empty_segment_may_name_any_place() {
    let empty = (tagged(true, Opcode::WRITE, 0, 99), vec![]);
    assert_eq!(fault_of(&[write(false, 0, 4), empty.clone()]), (2, None));
    assert_eq!(fault_of(&[empty]), (1, None));
}

#[test]
fn a_send_beyond_the_largest_message() {
    let mut sequence = Sequence::new(false);
    sequence.open_send_at(u32::MAX - 2);
    let mut octets = Vec::new();
    untagged(true, Opcode::SEND, 0, 1, u32::MAX - 2).encode(&mut octets);
    let fault = sequence
        .check(18 + 3, &octets, drop)
        .expect_err("beyond 2^32");
    assert_eq!(fault.fault, PeerFault::MessageTooLong);
    assert!(sequence.check(18 + 2, &octets, drop).is_ok());
}

#[test]
fn terminates_that_cannot_be() {
    let good = Terminate::bare(PeerFault::Crc.code());
    let mut body = Vec::new();
    good.encode(&mut body);
    let terminate = |last, qn, msn, mo| untagged(last, Opcode::TERMINATE, qn, msn, mo);
    let bad = |header, body: &[u8], field| {
        let fault = refused(&[(header, body.to_vec())], PeerFault::Terminate, field);
        assert_eq!(fault.terminate(), None);
    };
    bad(terminate(true, 0, 1, 0), &body, "QN");
    bad(terminate(true, 2, 2, 0), &body, "MSN");
    bad(terminate(true, 2, 1, 4), &body, "MO");
    bad(terminate(false, 2, 1, 0), &body, "L flag");
    bad(terminate(true, 2, 1, 0), &body[..3], "ULPDU_Length");
    bad(terminate(true, 2, 1, 0), &[0; 200], "ULPDU_Length");
    assert_eq!(fault_of(&[(terminate(true, 2, 1, 0), body)]), (1, None));
}

/// Others may put more behind the headers than the RFC does; 128 octets with the DDP header are taken.
#[test]
fn a_terminate_has_128_octets_at_most() {
    let header = untagged(true, Opcode::TERMINATE, 2, 1, 0);
    let longest = vec![0; 128 - Header::UNTAGGED_LEN];
    let longer = vec![0; longest.len() + 1];
    assert_eq!(fault_of(&[(header, longest)]), (1, None));
    refused(&[(header, longer)], PeerFault::Terminate, "ULPDU_Length");
}

/// One that announces more than any Terminate has is refused when its headers are there, not when all of it is.
#[test]
fn a_terminate_without_end() {
    let header = untagged(true, Opcode::TERMINATE, 2, 1, 0);
    let octets = stream(&established(false, false), &[(header, vec![0; 60_000])]);
    let (_, fault) = receive(&mut inbound(false, false), &octets[..200], false, || 1);
    assert_eq!(fault.map(|fault| fault.fault), Some(PeerFault::Terminate));
}

/// The messages of RFC 7306, where they are in use, are checked like the others.
#[test]
fn extensions_out_of_place() {
    let refused = |fpdus: &[(Header, Vec<u8>)], expected: PeerFault, field: &str| {
        let octets = stream(&established(true, false), fpdus);
        let (seen, fault) = receive(&mut inbound(true, false), &octets, false, || 50);
        let fault = fault.expect("a fault");
        assert_eq!((seen.len(), fault.fault), (fpdus.len() - 1, expected));
        assert!(
            fault.field.contains(field),
            "{} does not name {field}",
            fault.field
        );
    };
    let immediate = |qn, msn, len| (untagged(true, Opcode::IMMEDIATE, qn, msn, 0), vec![0; len]);
    refused(
        &[send(false, 1, 0, 4), immediate(0, 1, 8)],
        PeerFault::UnexpectedOpcode,
        "opcode",
    );
    refused(
        &[immediate(0, 1, 7)],
        PeerFault::MessageLength,
        "ULPDU_Length",
    );
    refused(
        &[immediate(0, 1, 9)],
        PeerFault::MessageTooLong,
        "ULPDU_Length",
    );
    refused(&[immediate(3, 1, 8)], PeerFault::QueueNumber, "QN");
    refused(
        &[immediate(0, 1, 8), immediate(0, 1, 8)],
        PeerFault::MsnRange,
        "MSN",
    );
    let atomic = |operation, msn| {
        let mut body = vec![0; AtomicRequest::WIRE_LEN];
        body[3] = operation;
        (untagged(true, Opcode::ATOMIC_REQUEST, 1, msn, 0), body)
    };
    refused(&[atomic(1, 1)], PeerFault::UnexpectedOpcode, "AOpCode");
    refused(&[read(1), atomic(0, 1)], PeerFault::MsnRange, "MSN");
    let response = (
        untagged(true, Opcode::ATOMIC_RESPONSE, 3, 1, 0),
        vec![0; 13],
    );
    refused(&[response], PeerFault::MessageTooLong, "ULPDU_Length");
    refused(
        &[(untagged(true, Opcode(0xc), 0, 1, 0), vec![])],
        PeerFault::UnexpectedOpcode,
        "opcode",
    );
}

/// A Terminate comes through in the middle of a message: its sender could not finish it.
#[test]
fn a_terminate_interrupts_a_message() {
    let mut body = Vec::new();
    Terminate::bare(PeerFault::NoBuffer.code()).encode(&mut body);
    let terminate = (untagged(true, Opcode::TERMINATE, 2, 1, 0), body);
    assert_eq!(
        fault_of(&[send(false, 1, 0, 4), write(false, 0, 4), terminate]),
        (3, None)
    );
}

/// Versions other than 1 are refused, and handed back as they came.
#[test]
fn versions() {
    let cases = [
        (
            write(true, 0, 8),
            0,
            0x03,
            0x02,
            PeerFault::TaggedVersion,
            (1, 1, 4),
        ),
        (
            send(true, 1, 0, 8),
            0,
            0x03,
            0x00,
            PeerFault::UntaggedVersion,
            (1, 2, 6),
        ),
        (
            send(true, 1, 0, 8),
            1,
            0xc0,
            0x00,
            PeerFault::RdmapVersion,
            (0, 2, 5),
        ),
        (
            write(true, 0, 8),
            1,
            0xc0,
            0x80,
            PeerFault::RdmapVersion,
            (0, 2, 5),
        ),
    ];
    for (fpdu, octet, mask, value, fault, (layer, etype, code)) in cases {
        let mut octets = stream(&established(false, false), &[fpdu]);
        let at = LENGTH_LEN + octet;
        octets[at] = octets[at] & !mask | value;
        for read in [1, usize::MAX] {
            let (seen, found) = receive(&mut inbound(false, false), &octets, false, || read);
            let found = found.expect("a fault");
            assert_eq!((seen.len(), found.fault), (0, fault));
            let mut body = Vec::new();
            found.terminate().expect("a Terminate").encode(&mut body);
            assert_eq!(body[..2], [layer << 4 | etype, code]);
            // Control word, segment length, then the header octet by octet.
            assert_eq!(body[6..8], octets[LENGTH_LEN..][..2]);
        }
    }
}

/// A ULPDU that cannot hold its header is found without waiting for octets that will not come.
#[test]
fn segments_too_short_for_their_header() {
    let cases: [&[u8]; 4] = [
        &[0x00, 0x00],
        &[0x00, 0x0d],
        &[
            0x00, 0x11, 0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
        &[0x00, 0x0e, 0x41, 0x47, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ];
    for octets in cases {
        for read in [1, usize::MAX] {
            let (_, fault) = receive(&mut inbound(false, false), octets, false, || read);
            let fault = fault.expect("a fault");
            assert_eq!(fault.fault, PeerFault::SegmentTooShort);
            let mut body = Vec::new();
            fault.terminate().expect("a Terminate").encode(&mut body);
            assert_eq!(body, [0x10, 0x00, 0x00, 0x00]);
        }
    }
}

/// A valid CRC with a marker that points elsewhere is the marker's fault; without the CRC it is seen too.
#[test]
fn markers_that_point_elsewhere() {
    for crc in [false, true] {
        for (at, len) in [(2, 4), (514, 600), (1026, 1200)] {
            let mut octets = stream(&established(crc, true), &[send(true, 1, 0, len)]);
            octets[at] ^= 0x40;
            let end = octets.len() - CRC_LEN;
            if crc {
                let field = crc32c(&octets[..end]).to_le_bytes();
                octets[end..].copy_from_slice(&field);
            }
            let (_, fault) = receive(&mut inbound(crc, true), &octets, false, || 100);
            let fault = fault.expect("a fault");
            assert_eq!(fault.fault, PeerFault::Marker);
            assert_eq!(
                fault.terminate(),
                Some(Terminate::bare(PeerFault::Marker.code()))
            );
        }
    }
}

#[test]
fn msn_wraps_on_every_queue() {
    let mut inbound = inbound(false, false);
    inbound.sequence.expect_everywhere(Msn(u32::MAX));
    let fpdus = [
        send(false, u32::MAX, 0, 4),
        send(true, u32::MAX, 4, 4),
        read(u32::MAX),
        send(true, 0, 0, 4),
        read(0),
        send(true, 1, 0, 4),
    ];
    let octets = stream(&established(false, false), &fpdus);
    let (seen, fault) = receive(&mut inbound, &octets, false, || 3);
    assert_eq!((seen.len(), fault), (fpdus.len(), None));
}

/// A message may end at 2^64; whether its region reaches that far is not for this layer.
#[test]
fn tagged_offsets_near_the_top() {
    let top = u64::MAX - 7;
    assert_eq!(
        fault_of(&[write(false, top, 4), write(true, top + 4, 4)]),
        (2, None)
    );
    assert_eq!(
        fault_of(&[write(false, top, 8), write(true, 0, 4)]),
        (2, None)
    );
    refused(
        &[write(false, top, 8), write(true, 4, 4)],
        PeerFault::TaggedBounds,
        "TO",
    );
}

#[test]
fn the_first_fpdu_counts_when_it_is_whole() {
    for (crc, markers) in [(false, false), (true, false), (true, true)] {
        let octets = stream(&established(crc, markers), &[write(true, 0, 5)]);
        let mut inbound = inbound(crc, markers);
        let mut staged = Vec::new();
        for (n, octet) in octets.iter().enumerate() {
            staged.push(*octet);
            assert!(!inbound.first_fpdu_seen(), "before octet {n}");
            loop {
                let consumed = match inbound.parse(&mut staged).expect("a good stream") {
                    Parse::Need { .. } => break,
                    Parse::Segment(Segment { consumed, .. })
                    | Parse::More(Continuation { consumed, .. }) => consumed,
                    Parse::Consumed { octets } => octets,
                };
                staged.drain(..consumed);
            }
        }
        assert!(inbound.first_fpdu_seen());
    }
}

/// The staging area behind a direct read never takes payload of the next segment of the same message.
#[test]
fn reading_straight_to_the_target() {
    let fpdus = [write(false, 0, 1001), write(true, 1001, 999)];
    let octets = stream(&established(false, false), &fpdus);
    let mut inbound = inbound(false, false);
    let (mut at, mut target) = (16, Vec::new());
    let mut staged = octets[..at].to_vec();
    let mut segments = 0;
    loop {
        if let Parse::Segment(segment) = inbound.parse(&mut staged).expect("a good stream") {
            assert!(segment.payload.is_empty());
            segments += 1;
        }
        if inbound.outstanding() == 0 {
            break;
        }
        let (payload, behind) = (inbound.outstanding(), inbound.trailer_and_header());
        target.extend_from_slice(&octets[at..at + payload]);
        inbound.placed(payload);
        at += payload;
        let end = octets.len().min(at + behind);
        staged = octets[at..end].to_vec();
        at = end;
    }
    assert_eq!((segments, target.len(), at), (2, 2000, octets.len()));
    assert_eq!(target[..1001], fpdus[0].1);
}

#[test]
#[should_panic(expected = "placed more than the segment has")]
fn placing_too_much_is_the_callers_mistake() {
    inbound(false, false).placed(1);
}

/// A stream of one Write of `octets` octets, and behind it the first octet of another FPDU.
fn one_write(established: &Established, octets: usize) -> Vec<u8> {
    let header = tagged(true, Opcode::WRITE, 7, 0x1000);
    let mut octets = stream(established, &[(header, vec![9; octets])]);
    octets.push(0);
    octets
}

#[test]
fn a_write_that_is_one_segment_and_there_whole_is_found_without_a_parse() {
    let plain = established(false, false);
    for octets in [1, 2, 3, 4, 64, 1448] {
        let buf = one_write(&plain, octets);
        let found = Inbound::new(&plain).whole_write(&buf).expect("a Write");
        assert_eq!((found.stag, found.to), (Stag(7), 0x1000));
        assert_eq!(buf[found.payload], vec![9; octets]);
        assert_eq!(found.consumed, buf.len() - 1);
    }
}

#[test]
fn what_needs_a_closer_look_is_no_whole_write() {
    let plain = established(false, false);
    let inbound = Inbound::new(&plain);
    let buf = one_write(&plain, 64);
    assert_eq!(inbound.whole_write(&[]), None);
    for there in 0..buf.len() - 1 {
        assert_eq!(inbound.whole_write(&buf[..there]), None, "{there} octets");
    }
    assert_eq!(inbound.whole_write(&one_write(&plain, 0)), None);
    for (header, at) in [
        (tagged(false, Opcode::WRITE, 7, 0), "not the last"),
        (tagged(true, Opcode::READ_RESPONSE, 7, 0), "a response"),
        (untagged(true, Opcode::SEND, 0, 1, 0), "a Send"),
    ] {
        let buf = stream(&plain, &[(header, vec![9; 64])]);
        assert_eq!(inbound.whole_write(&buf), None, "{at}");
    }
    // Its CRC is to be checked, or it has markers.
    for (crc, markers) in [(true, false), (false, true)] {
        let other = established(crc, markers);
        let buf = one_write(&other, 64);
        assert_eq!(Inbound::new(&other).whole_write(&buf), None);
    }
    // Another message is open, or another FPDU.
    let first = (tagged(false, Opcode::WRITE, 7, 0), vec![9; 8]);
    let mut open = Inbound::new(&plain);
    let mut octets = stream(&plain, core::slice::from_ref(&first));
    assert!(matches!(open.parse(&mut octets), Ok(Parse::Segment(_))));
    assert_eq!(open.whole_write(&buf), None);
    for missing in [1, 4, 5] {
        let mut open = Inbound::new(&plain);
        let mut octets = one_write(&plain, 8);
        octets.truncate(octets.len() - 1 - missing);
        assert!(matches!(open.parse(&mut octets), Ok(Parse::Segment(_))));
        assert_eq!(open.whole_write(&buf), None, "{missing} missing");
    }
}
