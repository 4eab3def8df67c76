//! Pairs in memory: every combination of what two sides may want, in any pieces, and every way it can fail.

use super::*;
use crate::inbound::{Inbound, Message, Parse};
use crate::mpa::frame::{Enhanced, FrameError, FrameKind, RtrSet, StartFrame};
use crate::outbound::Outbound;
use crate::terminate::PeerFault;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

const NOW: Duration = Duration::from_secs(100);

fn config(revision: u8) -> StartConfig {
    StartConfig {
        revision,
        ..StartConfig::default()
    }
}

/// What both sides have after Request and Reply went between them in pieces of `size` octets.
fn connect(
    initiator: StartConfig,
    responder: StartConfig,
    size: usize,
) -> Result<(Established, Established), StartError> {
    let (ird, ord) = (responder.ird, responder.ord);
    let mut active = Initiator::new(initiator, NOW);
    let mut passive = Responder::new(responder, NOW);
    let request = active.poll_transmit().expect("a Request");
    for piece in request.chunks(size) {
        assert_eq!(passive.handle_bytes(piece, NOW), piece.len());
    }
    match passive.poll_event() {
        Some(ResponderEvent::Request(_)) => {}
        Some(ResponderEvent::Failed(error)) => return Err(error),
        None => panic!("the Request is whole"),
    }
    let accepted = passive
        .accept(b"reply".to_vec(), ird, ord)
        .expect("a good Reply");
    let mut reply = passive.poll_transmit().expect("a Reply");
    let reply_len = reply.len();
    // What follows the Reply is an FPDU and must be left alone.
    reply.extend_from_slice(&[0xee; 3]);
    let mut taken = 0;
    for piece in reply.chunks(size) {
        taken += active.handle_bytes(piece, NOW);
    }
    assert_eq!(taken, reply_len);
    match active.poll_event() {
        Some(InitiatorEvent::Accepted(established)) => Ok((established, accepted)),
        Some(InitiatorEvent::Failed(error)) => Err(error),
        other => panic!("no end of the start-up: {other:?}"),
    }
}

fn rtr_sets() -> Vec<RtrSet> {
    (0..8u8)
        .map(|bits| RtrSet {
            send: bits & 1 != 0,
            write: bits & 2 != 0,
            read: bits & 4 != 0,
        })
        .collect()
}

/// All combinations of revision, A, C, M and ready-to-receive on both sides; in each that gives a connection the
/// first FPDU goes through both ways.
#[test]
fn every_combination() {
    let mut connected = 0;
    let bools = [false, true];
    for (revision, peer_to_peer) in [(1, false), (1, true), (2, false), (2, true)] {
        for (crc_i, crc_r) in bools.iter().flat_map(|i| bools.map(|r| (*i, r))) {
            for (markers_i, markers_r) in bools.iter().flat_map(|i| bools.map(|r| (*i, r))) {
                for (offered, taken) in rtr_sets()
                    .iter()
                    .flat_map(|i| rtr_sets().into_iter().map(|r| (*i, r)))
                {
                    let initiator = StartConfig {
                        crc: crc_i,
                        markers: markers_i,
                        peer_to_peer,
                        rtr: offered,
                        ..config(revision)
                    };
                    let responder = StartConfig {
                        crc: crc_r,
                        markers: markers_r,
                        rtr: taken,
                        ..config(2)
                    };
                    let result = connect(initiator, responder, usize::MAX);
                    let asks = revision == 2 && peer_to_peer;
                    let possible =
                        !offered.and(taken).is_empty() || offered.write && taken.is_empty();
                    if asks && !possible {
                        assert_eq!(result, Err(StartError::NoMatchingRtr));
                        continue;
                    }
                    let (active, passive) = result.expect("a connection");
                    assert_eq!((active.crc, passive.crc), (crc_i || crc_r, crc_i || crc_r));
                    assert_eq!(
                        (active.markers_rx, passive.markers_tx),
                        (markers_i, markers_i)
                    );
                    assert_eq!(
                        (active.markers_tx, passive.markers_rx),
                        (markers_r, markers_r)
                    );
                    assert_eq!((active.revision, passive.revision), (revision, revision));
                    assert_eq!((active.peer_to_peer, passive.peer_to_peer), (asks, asks));
                    assert_eq!(active.rtr, passive.rtr);
                    assert_eq!(active.rtr.is_some(), asks);
                    assert_eq!(
                        (active.role, passive.role),
                        (Role::Initiator, Role::Responder)
                    );
                    assert_eq!(active.private_data, b"reply");
                    exchange_first_fpdus(&active, &passive);
                    connected += 1;
                }
            }
        }
    }
    assert!(connected > 2000, "{connected}");
}

/// The ready-to-receive FPDU (or any other) from the Initiator, then one back.
fn exchange_first_fpdus(active: &Established, passive: &Established) {
    let mut first = Vec::new();
    Outbound::new(active, 1448).rtr(active.rtr.unwrap_or(Rtr::Write), 0x77, &mut first);
    let message = only_message(passive, first);
    match active.rtr.unwrap_or(Rtr::Write) {
        Rtr::Write => assert!(matches!(
            message,
            Message::Write {
                to: 0x77,
                last: true,
                ..
            }
        )),
        Rtr::Read => {
            assert!(matches!(message, Message::ReadRequest { request, .. } if request.size == 0))
        }
        Rtr::Send => assert!(matches!(message, Message::Send { last: true, .. })),
    }
    let mut back = Vec::new();
    Outbound::new(passive, 1448).rtr(Rtr::Send, 0, &mut back);
    assert!(matches!(only_message(active, back), Message::Send { .. }));
}

fn only_message(receiver: &Established, mut octets: Vec<u8>) -> Message {
    match Inbound::new(receiver).parse(&mut octets) {
        Ok(Parse::Segment(segment)) if segment.consumed == octets.len() => segment.message,
        other => panic!("not one whole FPDU: {other:?}"),
    }
}

/// The Responder names one kind: Read before Write before Send.
#[test]
fn one_kind_of_rtr_is_selected() {
    let all = RtrSet {
        send: true,
        write: true,
        read: true,
    };
    for (offered, expected) in [
        (all, Rtr::Read),
        (RtrSet { read: false, ..all }, Rtr::Write),
        (RtrSet::from(Rtr::Send), Rtr::Send),
    ] {
        let initiator = StartConfig {
            rtr: offered,
            ..config(2)
        };
        let responder = StartConfig {
            rtr: all,
            ..config(2)
        };
        let (active, passive) = connect(initiator, responder, 5).unwrap();
        assert_eq!((active.rtr, passive.rtr), (Some(expected), Some(expected)));
    }
}

proptest! {
    /// However the octets are cut, both sides come to the same end.
    #[test]
    fn any_pieces(
        revision in 1u8..=2, crc: bool, markers: bool, peer_to_peer: bool, size in 1usize..40,
        private_data in proptest::collection::vec(any::<u8>(), 0..=508),
    ) {
        let initiator = StartConfig { crc, markers, peer_to_peer, private_data, ..config(revision) };
        let responder = StartConfig { crc: false, ..config(2) };
        let whole = connect(initiator.clone(), responder.clone(), usize::MAX).unwrap();
        prop_assert_eq!(&whole.1.private_data, &initiator.private_data);
        prop_assert_eq!(connect(initiator, responder, size).unwrap(), whole);
    }

    /// IRD and ORD of the two ends fit together and stay within what each allows (RFC 6581 section 9.1).
    #[test]
    fn depths_fit_together(
        ird_i in 0u16..200, ord_i in 0u16..200, ird_r in 0u16..200, ord_r in 0u16..200,
        max_i in 1u16..200, max_r in 1u16..200, peer_to_peer: bool,
    ) {
        let side = |ird, ord, max| StartConfig {
            ird, ord, max_ird: max, max_ord: max, peer_to_peer, ..config(2)
        };
        let (active, passive) = connect(side(ird_i, ord_i, max_i), side(ird_r, ord_r, max_r), usize::MAX).unwrap();
        prop_assert!(active.ord <= passive.ird && passive.ord <= active.ird);
        prop_assert!(active.ord <= max_i && active.ird <= max_i);
        prop_assert!(passive.ord <= max_r && passive.ird <= max_r);
        prop_assert_eq!((active.peer_ird, active.peer_ord), (passive.ird, passive.ord));
        // The Responder raises its IRD to the Initiator's wish where it can.
        prop_assert_eq!(active.ord, ord_i.min(max_i).max(u16::from(peer_to_peer)).min(passive.ird));
        prop_assert_eq!(passive.ird, ird_r.min(max_r).max(passive.peer_ord.min(max_r)).max(u16::from(peer_to_peer)));
    }
}

/// 0x3FFF keeps a value out of the negotiation on both sides, in either direction.
#[test]
fn depths_that_are_not_negotiated() {
    let side = |ird, ord| StartConfig {
        ird,
        ord,
        max_ird: 60,
        max_ord: 50,
        ..config(2)
    };
    let (active, passive) = connect(side(NOT_NEGOTIATED, 7), side(3, 40), 1).unwrap();
    assert_eq!((passive.peer_ird, passive.peer_ord), (NOT_NEGOTIATED, 7));
    assert_eq!((passive.ird, passive.ord), (7, 40));
    assert_eq!((active.peer_ird, active.peer_ord), (7, NOT_NEGOTIATED));
    assert_eq!((active.ird, active.ord), (60, 7));

    let (active, passive) = connect(side(5, NOT_NEGOTIATED), side(3, 40), 1).unwrap();
    assert_eq!((passive.peer_ird, passive.peer_ord), (5, NOT_NEGOTIATED));
    assert_eq!((passive.ird, passive.ord), (3, 5));
    assert_eq!((active.peer_ird, active.peer_ord), (NOT_NEGOTIATED, 5));
    assert_eq!((active.ird, active.ord), (5, 50));
}

/// The two ends of the range in which this side can follow: it raises its IRD to the Responder's ORD as far as it
/// is allowed, and does not look at it where it does not negotiate.
#[test]
fn initiator_follows_the_responders_ord() {
    let accepted = |ird, max_ird, ord| {
        let side = StartConfig {
            ird,
            max_ird,
            peer_to_peer: false,
            ..config(2)
        };
        let block = Enhanced {
            ird: 1,
            ord,
            ..Enhanced::default()
        };
        match answered(side, &reply(2, Some(block)).encode().unwrap()).1 {
            Some(InitiatorEvent::Accepted(established)) => Some(established.ird),
            _ => None,
        }
    };
    assert_eq!(accepted(4, 16, 3), Some(4));
    assert_eq!(accepted(4, 16, 16), Some(16));
    assert_eq!(accepted(4, 16, 17), None);
    assert_eq!(accepted(NOT_NEGOTIATED, 16, 17), Some(16));
    assert_eq!(accepted(4, 16, NOT_NEGOTIATED), Some(4));
}

/// 0x3FFF in the Reply says nothing about the Responder's IRD: it is no bound on this side's ORD.
#[test]
fn initiator_keeps_its_ord_where_the_responder_tells_no_ird() {
    let side = StartConfig {
        ord: 20_000,
        max_ord: u16::MAX,
        peer_to_peer: false,
        ..config(2)
    };
    let ord = |ird| {
        let block = Enhanced {
            ird,
            ord: 1,
            ..Enhanced::default()
        };
        match answered(side.clone(), &reply(2, Some(block)).encode().unwrap()).1 {
            Some(InitiatorEvent::Accepted(established)) => established.ord,
            other => panic!("not accepted: {other:?}"),
        }
    };
    assert_eq!(ord(NOT_NEGOTIATED - 1), NOT_NEGOTIATED - 1);
    assert_eq!(ord(NOT_NEGOTIATED), 20_000);
}

/// A Responder that asks for a Read as ready-to-receive can hold one, whatever its ULP and the Initiator want.
#[test]
fn a_read_rtr_takes_one_place() {
    let mut request = reply(
        2,
        Some(Enhanced {
            peer_to_peer: true,
            rtr: Rtr::Read.into(),
            ird: 0,
            ord: 0,
        }),
    );
    request.kind = FrameKind::Request;
    let mut responder = Responder::new(config(2), NOW);
    responder.handle_bytes(&request.encode().unwrap(), NOW);
    let established = responder.accept(Vec::new(), 0, 0).unwrap();
    assert_eq!((established.ird, established.ord), (1, 0));
    let octets = responder.poll_transmit().unwrap();
    let reply = StartFrame::parse(FrameKind::Reply, &octets)
        .unwrap()
        .unwrap();
    assert_eq!(reply.enhanced.unwrap().ird, 1);
}

/// A depth too large for its field is not taken for 0x3FFF.
#[test]
fn depths_too_large_for_their_field() {
    let initiator = StartConfig {
        ird: 20_000,
        max_ird: u16::MAX,
        ..config(2)
    };
    let request = Initiator::new(initiator, NOW).poll_transmit().unwrap();
    let frame = StartFrame::parse(FrameKind::Request, &request)
        .unwrap()
        .unwrap();
    assert_eq!(frame.enhanced.unwrap().ird, 0x3ffe);
}

#[test]
fn revision_1_negotiates_no_depths() {
    let (active, passive) = connect(config(1), config(2), 1).unwrap();
    assert_eq!((active.ird, active.ord), (32, 32));
    assert_eq!(
        (passive.peer_ird, passive.peer_ord),
        (NOT_NEGOTIATED, NOT_NEGOTIATED)
    );
    assert_eq!(
        (active.peer_ird, active.peer_ord),
        (NOT_NEGOTIATED, NOT_NEGOTIATED)
    );
}

/// An Initiator that has sent its Request and now gets these octets.
fn answered(config: StartConfig, reply: &[u8]) -> (Initiator, Option<InitiatorEvent>) {
    let mut initiator = Initiator::new(config, NOW);
    initiator.poll_transmit().expect("a Request");
    for octet in reply {
        initiator.handle_bytes(&[*octet], NOW);
    }
    let event = initiator.poll_event();
    (initiator, event)
}

fn failure(config: StartConfig, reply: &[u8]) -> StartError {
    match answered(config, reply).1 {
        Some(InitiatorEvent::Failed(error)) => error,
        other => panic!("no failure: {other:?}"),
    }
}

fn reply(revision: u8, enhanced: Option<Enhanced>) -> StartFrame {
    StartFrame {
        kind: FrameKind::Reply,
        markers: false,
        crc: true,
        rejected: false,
        reserved: 0,
        revision,
        enhanced,
        private_data: Vec::new(),
    }
}

/// Revisions of the Reply an Initiator takes, and what it says of those it does not.
#[test]
fn revisions_of_the_reply() {
    let accepted = |asked, frame: &StartFrame| {
        let (_, event) = answered(config(asked), &frame.encode().unwrap());
        matches!(event, Some(InitiatorEvent::Accepted(_)))
    };
    assert!(accepted(1, &reply(1, None)));
    assert!(accepted(1, &reply(2, None)));
    let read = Enhanced {
        peer_to_peer: true,
        rtr: Rtr::Read.into(),
        ird: 1,
        ord: 1,
    };
    assert!(accepted(2, &reply(2, Some(read))));

    let error = failure(config(2), &reply(1, None).encode().unwrap());
    assert_eq!(error, StartError::EnhancedMissing { revision: 1 });
    assert!(error.to_string().contains("set MPA revision 1"));
    let error = failure(config(2), &reply(2, None).encode().unwrap());
    assert_eq!(error, StartError::EnhancedMissing { revision: 2 });
    let error = failure(config(1), &reply(2, Some(read)).encode().unwrap());
    assert_eq!(error, StartError::UnexpectedEnhanced);
    for revision in [0, 3, 255] {
        let error = failure(config(2), &reply(revision, None).encode().unwrap());
        assert!(matches!(error, StartError::Revision { revision: r, .. } if r == revision));
    }
}

/// Revisions of the Request a Responder takes, and the revision it answers with.
#[test]
fn revisions_of_the_request() {
    let answer = |highest: u8, revision: u8, enhanced: Option<Enhanced>| {
        let mut request = reply(revision, enhanced);
        request.kind = FrameKind::Request;
        let mut responder = Responder::new(config(highest), NOW);
        responder.handle_bytes(&request.encode().unwrap(), NOW);
        match responder.poll_event() {
            Some(ResponderEvent::Request(_)) => {
                responder.accept(Vec::new(), 1, 1).unwrap();
                let octets = responder.poll_transmit().unwrap();
                let reply = StartFrame::parse(FrameKind::Reply, &octets)
                    .unwrap()
                    .unwrap();
                Ok((reply.revision, reply.enhanced.is_some()))
            }
            Some(ResponderEvent::Failed(error)) => Err(error),
            None => panic!("the Request is whole"),
        }
    };
    let block = Some(Enhanced::default());
    assert_eq!(answer(2, 1, None), Ok((1, false)));
    assert_eq!(answer(2, 2, block), Ok((2, true)));
    assert_eq!(answer(2, 2, None), Ok((2, false)));
    assert_eq!(answer(1, 1, None), Ok((1, false)));
    assert_eq!(answer(1, 2, None), Ok((1, false)));
    for (highest, revision, enhanced) in [(1, 2, block), (2, 0, None), (2, 3, block), (2, 3, None)]
    {
        let error = answer(highest, revision, enhanced).unwrap_err();
        assert!(matches!(error, StartError::Revision { revision: r, .. } if r == revision));
        assert_eq!(error.blame(), Blame::Settings);
    }
}

/// The ULP's private data reaches the Initiator with the refusal, whatever the revision.
#[test]
fn rejection() {
    for (revision, depth) in [(1, NOT_NEGOTIATED), (2, 32)] {
        let mut active = Initiator::new(config(revision), NOW);
        let mut passive = Responder::new(config(2), NOW);
        passive.handle_bytes(&active.poll_transmit().unwrap(), NOW);
        assert!(matches!(
            passive.poll_event(),
            Some(ResponderEvent::Request(_))
        ));
        passive.reject(b"not today".to_vec()).unwrap();
        assert_eq!(passive.reject(Vec::new()), Err(AcceptError::NoRequest));
        let reply = passive.poll_transmit().unwrap();
        assert_eq!(active.handle_bytes(&reply, NOW), reply.len());
        let expected = InitiatorEvent::Rejected {
            private_data: b"not today".to_vec(),
            ird: depth,
            ord: depth,
        };
        assert_eq!(active.poll_event(), Some(expected));
        assert_eq!(active.poll_transmit(), None);
    }
}

/// siw refuses markers with this frame.
#[test]
fn rejection_by_siw() {
    let (_, event) = answered(
        config(2),
        b"MPA ID Rep Frame\x30\x02\x00\x04\x00\x00\x00\x00",
    );
    let expected = InitiatorEvent::Rejected {
        private_data: Vec::new(),
        ird: 0,
        ord: 0,
    };
    assert_eq!(event, Some(expected));
}

/// Terminate bytes follow the failure: they are the last the peer gets.
#[test]
fn replies_that_end_in_a_terminate() {
    let too_deep = Enhanced {
        peer_to_peer: true,
        rtr: Rtr::Write.into(),
        ird: 1,
        ord: 200,
    };
    let no_rtr = Enhanced {
        peer_to_peer: true,
        rtr: Rtr::Send.into(),
        ird: 1,
        ord: 1,
    };
    let client_server = Enhanced {
        peer_to_peer: false,
        ..too_deep
    };
    for (block, fault, field) in [
        (
            too_deep,
            PeerFault::InsufficientIrd,
            "ORD of the MPA Reply is 200",
        ),
        (no_rtr, PeerFault::NoMatchingRtr, "flags A, B, C, D"),
        (client_server, PeerFault::NoMatchingRtr, "flags A, B, C, D"),
    ] {
        let (mut initiator, event) = answered(config(2), &reply(2, Some(block)).encode().unwrap());
        let Some(InitiatorEvent::Failed(error)) = event else {
            panic!("no failure: {event:?}");
        };
        assert!(error.to_string().contains(field), "{error}");
        let code = fault.code();
        let mut terminate = initiator.poll_transmit().expect("a Terminate FPDU");
        assert_eq!(terminate.len(), 28);
        assert_eq!(
            terminate[20..24],
            [code.layer << 4 | code.etype, code.code, 0, 0]
        );
        // The CRC is on, since the Reply asked for it.
        let receiver = Established {
            role: Role::Responder,
            ..connect(config(2), config(2), 9).unwrap().1
        };
        let mut inbound = Inbound::new(&receiver);
        assert!(matches!(
            inbound.parse(&mut terminate),
            Ok(Parse::Segment(segment)) if matches!(segment.message, Message::Terminate(t) if t.code == code)
        ));
    }
}

/// A Responder that answers A = 1 to A = 0 changes nothing.
#[test]
fn flag_a_that_was_not_asked_for() {
    let block = Enhanced {
        peer_to_peer: true,
        rtr: Rtr::Write.into(),
        ird: 1,
        ord: 1,
    };
    let client_server = StartConfig {
        peer_to_peer: false,
        ..config(2)
    };
    let (_, event) = answered(client_server, &reply(2, Some(block)).encode().unwrap());
    let Some(InitiatorEvent::Accepted(established)) = event else {
        panic!("not accepted: {event:?}");
    };
    assert_eq!((established.peer_to_peer, established.rtr), (false, None));
}

#[test]
fn wrong_frames() {
    let error = failure(config(2), b"HTTP/1.1 400 Bad Request");
    let expected = FrameKind::Reply;
    assert_eq!(
        error,
        StartError::Frame {
            expected,
            error: FrameError::Key
        }
    );
    assert_eq!(error.blame(), Blame::Peer);
    // Two Initiators find each other.
    let request = Initiator::new(config(2), NOW).poll_transmit().unwrap();
    let error = failure(config(2), &request);
    assert_eq!(
        error,
        StartError::Frame {
            expected,
            error: FrameError::OtherKind
        }
    );
    let error = failure(config(2), b"MPA ID Rep Frame\x00\x01\x02\x01");
    assert!(error.to_string().contains("PD_Length 513"), "{error}");

    let mut responder = Responder::new(config(2), NOW);
    responder.handle_bytes(b"GET / HTTP/1.1\r\n", NOW);
    assert!(matches!(
        responder.poll_event(),
        Some(ResponderEvent::Failed(_))
    ));
    assert_eq!(responder.poll_transmit(), None);
    assert_eq!(
        responder.accept(Vec::new(), 1, 1),
        Err(AcceptError::NoRequest)
    );
}

/// Octets behind the Request before the Reply break the protocol, in the same read or in a later one; behind the
/// Reply they are FPDUs and none of the Responder's business.
#[test]
fn octets_behind_the_request() {
    let mut request = Initiator::new(config(2), NOW).poll_transmit().unwrap();
    let whole = request.len();
    request.extend_from_slice(&[0; 20]);
    for split in [request.len(), whole] {
        let mut responder = Responder::new(config(2), NOW);
        responder.handle_bytes(&request[..split], NOW);
        responder.handle_bytes(&request[split..], NOW);
        let error = StartError::EarlyOctets { octets: 20 };
        assert_eq!(responder.poll_event(), Some(ResponderEvent::Failed(error)));
        assert_eq!(
            responder.accept(Vec::new(), 1, 1),
            Err(AcceptError::NoRequest)
        );
    }
    let mut responder = Responder::new(config(2), NOW);
    responder.handle_bytes(&request[..whole], NOW);
    responder.accept(Vec::new(), 1, 1).unwrap();
    assert_eq!(responder.handle_bytes(&request[whole..], NOW), 0);
}

/// What is behind a Request that cannot be served does not hide why.
#[test]
fn octets_behind_a_request_of_an_unknown_revision() {
    let mut request = reply(3, None);
    request.kind = FrameKind::Request;
    let mut octets = request.encode().unwrap();
    octets.extend_from_slice(&[0; 20]);
    let mut responder = Responder::new(config(2), NOW);
    assert_eq!(responder.handle_bytes(&octets, NOW), octets.len());
    assert!(matches!(
        responder.poll_event(),
        Some(ResponderEvent::Failed(StartError::Revision {
            revision: 3,
            ..
        }))
    ));
}

#[test]
fn timeouts() {
    let timeout = Duration::from_millis(2500);
    let patient = StartConfig {
        timeout,
        ..config(2)
    };
    let mut initiator = Initiator::new(patient.clone(), NOW);
    let deadline = initiator.deadline().unwrap();
    assert_eq!(deadline, NOW + timeout);
    initiator.handle_timeout(deadline - Duration::from_nanos(1));
    assert_eq!(initiator.poll_event(), None);
    initiator.handle_timeout(deadline);
    let Some(InitiatorEvent::Failed(error)) = initiator.poll_event() else {
        panic!("no failure");
    };
    assert_eq!(error.to_string(), "no MPA Reply within 2500 ms");
    assert_eq!(
        (error.blame(), initiator.deadline()),
        (Blame::Network, None)
    );

    let mut responder = Responder::new(patient, NOW);
    assert_eq!(responder.deadline(), Some(deadline));
    responder.handle_timeout(deadline);
    assert!(matches!(
        responder.poll_event(),
        Some(ResponderEvent::Failed(StartError::TimedOut { .. }))
    ));
}

/// A peer that sends its frame an octet at a time has no more time for it than another.
#[test]
fn an_octet_at_a_time_buys_no_time() {
    let timeout = Duration::from_secs(1);
    let config = StartConfig {
        timeout,
        ..config(2)
    };
    let request = Initiator::new(config.clone(), NOW).poll_transmit().unwrap();
    let mut passive = Responder::new(config.clone(), NOW);
    let mut active = Initiator::new(config, NOW);
    let reply = b"MPA ID Rep Frame";
    for (n, octet) in request[..16].iter().enumerate() {
        let now = NOW + timeout * n as u32 / 16;
        passive.handle_timeout(now);
        active.handle_timeout(now);
        assert_eq!(passive.handle_bytes(&[*octet], now), 1);
        assert_eq!(active.handle_bytes(&reply[n..n + 1], now), 1);
        assert_eq!(passive.deadline(), Some(NOW + timeout));
        assert_eq!(active.deadline(), Some(NOW + timeout));
        assert_eq!((passive.poll_event(), active.poll_event()), (None, None));
    }
    passive.handle_timeout(NOW + timeout);
    active.handle_timeout(NOW + timeout);
    assert!(matches!(
        passive.poll_event(),
        Some(ResponderEvent::Failed(StartError::TimedOut { .. }))
    ));
    assert!(matches!(
        active.poll_event(),
        Some(InitiatorEvent::Failed(StartError::TimedOut { .. }))
    ));
}

/// While the ULP decides no clock runs, and behind the end of the start-up neither.
#[test]
fn no_timeout_behind_the_peers_frame() {
    let mut active = Initiator::new(config(2), NOW);
    let mut passive = Responder::new(config(2), NOW);
    passive.handle_bytes(&active.poll_transmit().unwrap(), NOW);
    assert_eq!(passive.deadline(), None);
    passive.handle_timeout(NOW * 1000);
    assert!(matches!(
        passive.poll_event(),
        Some(ResponderEvent::Request(_))
    ));
    passive.accept(Vec::new(), 1, 1).unwrap();
    active.handle_bytes(&passive.poll_transmit().unwrap(), NOW);
    assert_eq!(active.deadline(), None);
    active.handle_timeout(NOW * 1000);
    active.handle_eof();
    assert!(matches!(
        active.poll_event(),
        Some(InitiatorEvent::Accepted(_))
    ));
    assert_eq!(active.poll_event(), None);
}

#[test]
fn closed_by_the_peer() {
    let mut initiator = Initiator::new(config(2), NOW);
    initiator.handle_eof();
    let Some(InitiatorEvent::Failed(error)) = initiator.poll_event() else {
        panic!("no failure");
    };
    assert!(error.to_string().contains("revision 1"), "{error}");

    let mut initiator = Initiator::new(config(1), NOW);
    initiator.handle_bytes(b"MPA ID", NOW);
    initiator.handle_eof();
    let Some(InitiatorEvent::Failed(error)) = initiator.poll_event() else {
        panic!("no failure");
    };
    assert_eq!(
        error.to_string(),
        "peer closed the connection after 6 octets of the MPA Reply"
    );

    let mut responder = Responder::new(config(2), NOW);
    responder.handle_eof();
    assert!(matches!(
        responder.poll_event(),
        Some(ResponderEvent::Failed(StartError::Closed {
            received: 0,
            ..
        }))
    ));
}

/// 512 octets of private data pass, with the enhanced block 508; one more is refused on this side.
#[test]
fn private_data_limits() {
    for (revision, max) in [(1, 512), (2, 508)] {
        let with = |len| StartConfig {
            private_data: vec![9; len],
            ..config(revision)
        };
        let (_, passive) = connect(with(max), config(2), 100).unwrap();
        assert_eq!(passive.private_data.len(), max);

        let mut initiator = Initiator::new(with(max + 1), NOW);
        assert_eq!(initiator.poll_transmit(), None);
        let error = StartError::PrivateData { len: max + 1, max };
        assert_eq!(initiator.poll_event(), Some(InitiatorEvent::Failed(error)));
        assert_eq!(error.blame(), Blame::Local);

        let mut passive = Responder::new(config(2), NOW);
        passive.handle_bytes(&Initiator::new(with(0), NOW).poll_transmit().unwrap(), NOW);
        let error = AcceptError::PrivateData { len: max + 1, max };
        assert_eq!(passive.accept(vec![9; max + 1], 1, 1), Err(error));
        assert_eq!(passive.reject(vec![9; max + 1]), Err(error));
        // The caller may try again with less.
        assert!(passive.accept(vec![9; max], 1, 1).is_ok());
    }
}

#[test]
fn revisions_there_are_none_of() {
    for revision in [0, 3] {
        let mut initiator = Initiator::new(config(revision), NOW);
        let error = StartError::OwnRevision(revision);
        assert_eq!(initiator.poll_event(), Some(InitiatorEvent::Failed(error)));
    }
}
