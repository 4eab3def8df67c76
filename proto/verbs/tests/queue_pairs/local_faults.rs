//! Memory of the program that a request or a receive names and must not, or cannot, be reached.

use crate::foreign_peer::{Foreign, IRD};
use crate::pair::{ends, sge, ALL};
use weft_verbs::iwarp::{Header, Opcode, PeerFault, QueueNumber, Stag};
use weft_verbs::qp::QpEvent;
use weft_verbs::types::{Access, Payload, SendOp, WcStatus};

const FAULT: WcStatus = WcStatus::LocalProtection;
const RKEY: Stag = Stag(0x7700);

const READ: SendOp = SendOp::Read {
    remote_addr: 0x1000,
    rkey: RKEY,
};
const ADD: SendOp = SendOp::FetchAdd {
    remote_addr: 0x1000,
    rkey: RKEY,
    add: 1,
};

/// The program was at fault, and not the peer.
fn is_local(foreign: &mut Foreign) -> bool {
    let events: Vec<_> = std::iter::from_fn(|| foreign.qp.poll_event()).collect();
    events.contains(&QpEvent::LocalFault(FAULT))
        && !events.iter().any(|e| matches!(e, QpEvent::PeerFault(_)))
}

#[test]
fn what_would_be_answered_to_where_the_program_may_not_write_is_not_asked() {
    for op in [READ, ADD] {
        let mut foreign = Foreign::new(IRD);
        let sink = foreign.device.region(8, 0, Access::NONE, 1);
        foreign.post(1, op, Payload::Gather(&[sge(sink, 0, 8)]));
        let sent = foreign.segments();
        let is_request = |header: &Header| matches!(header, Header::Untagged(u) if u.qn == QueueNumber::READ_REQUEST);
        assert!(!sent.iter().any(|(header, _)| is_request(header)), "{op:?}");
        assert_eq!(ends(&foreign.device.sends), [(1, FAULT)]);
        assert!(is_local(&mut foreign));
    }
}

#[test]
fn an_element_of_no_octets_may_name_anything() {
    let mut foreign = Foreign::new(IRD);
    let sink = foreign.device.region(8, 0, ALL, 1);
    let scatter = [sge(Stag(0x9900), 0, 0), sge(sink, 0, 8)];
    foreign.post(1, READ, Payload::Gather(&scatter));
    assert_eq!(foreign.segments().len(), 1, "the request");
    assert!(foreign.is_open());
}

/// A Read or an atomic is under way, and its sink is taken away before the answer comes.
fn answered_without_its_sink(op: SendOp, take_away: fn(&mut Foreign, Stag)) {
    let mut foreign = Foreign::new(IRD);
    let sink = foreign.device.region(8, 0, ALL, 1);
    foreign.post(1, op, Payload::Gather(&[sge(sink, 0, 8)]));
    foreign.sent();
    take_away(&mut foreign, sink);
    if op == READ {
        foreign.tagged(Opcode::READ_RESPONSE, (sink, 0), true, &[7; 8]);
    } else {
        foreign.original(1, 7);
    }
    assert_eq!(ends(&foreign.device.sends), [(1, FAULT)], "{op:?}");
    assert!(is_local(&mut foreign));
}

#[test]
fn an_answer_whose_sink_has_gone_fails_its_request() {
    for op in [READ, ADD] {
        answered_without_its_sink(op, |foreign, sink| {
            foreign.device.regions.remove(sink);
        });
        answered_without_its_sink(op, |foreign, region| foreign.device.unmapped.push(region));
    }
}

#[test]
fn a_receive_whose_memory_has_gone_fails_and_the_peer_is_not_blamed() {
    let takes_away: [fn(&mut Foreign, Stag); 2] = [
        |foreign, region| {
            foreign.device.regions.remove(region);
        },
        |foreign, region| foreign.device.unmapped.push(region),
    ];
    for take_away in takes_away {
        for held in [false, true] {
            let mut foreign = Foreign::weft();
            let region = foreign.device.region(8, 0, ALL, 1);
            take_away(&mut foreign, region);
            if held {
                foreign.send_of(b"octets");
            }
            foreign.recv(1, &[sge(region, 0, 8)]);
            if !held {
                foreign.recv(2, &[]);
                foreign.send_of(b"octets");
            }
            assert_eq!(foreign.device.recvs[0].status, FAULT, "held: {held}");
            assert!(is_local(&mut foreign));
            // What was flushed behind it is no error of its own.
            assert_eq!(foreign.qp.counters().errors, 1);
        }
    }
}

#[test]
fn a_write_to_memory_that_was_unmapped_is_refused() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(8, 0, ALL, 1);
    foreign.device.unmapped.push(region);
    foreign.write((region, 0), b"octets");
    assert_eq!(foreign.fault(), Some(PeerFault::TaggedStag));
}

#[test]
fn a_payload_that_cannot_be_read_fails_its_request() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(8, 0, ALL, 1);
    foreign.device.unmapped.push(region);
    let gather = [sge(region, 0, 8)];
    foreign.post(1, SendOp::Send, Payload::Gather(&gather));
    foreign.sent();
    assert_eq!(ends(&foreign.device.sends), [(1, FAULT)]);
    assert!(is_local(&mut foreign));
}

#[test]
fn an_stag_that_is_not_there_is_not_invalidated() {
    let mut foreign = Foreign::new(IRD);
    let invalidate = SendOp::LocalInvalidate { stag: Stag(0x9900) };
    foreign.post(1, invalidate, Payload::Gather(&[]));
    foreign.sent();
    assert_eq!(ends(&foreign.device.sends), [(1, FAULT)]);
}
