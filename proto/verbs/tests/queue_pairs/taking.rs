//! What a queue pair takes from its stream, and which receive it takes for it.

use crate::foreign::asking;
use crate::foreign_peer::{responder, Foreign, IRD};
use crate::pair::{ends, queue_pair, sge, ALL};
use weft_verbs::iwarp::{Established, Opcode, PeerFault, QueueNumber, Rtr, Stag};
use weft_verbs::qp::DirectTarget;
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{Payload, RecvRequest, SendOp, WcOpcode, WcStatus};

/// Immediate Data that belongs to the Send behind it, between Weft peers (decision 0006).
const JOINED: [u8; 8] = *b"\0\0\0\x05WEFT";

fn immediate(foreign: &mut Foreign, octets: &[u8; 8]) {
    let header = foreign.untagged(Opcode::IMMEDIATE, QueueNumber::SEND);
    foreign.arrive(header, octets, &[]);
}

#[test]
fn an_empty_send_that_says_ready_to_receive_takes_no_receive() {
    let config = Established {
        rtr: Some(Rtr::Send),
        ..responder(IRD)
    };
    for (first, wanted) in [(b"".as_slice(), vec![6]), (b"octets", vec![6, 6])] {
        let mut foreign = Foreign::on(&config, queue_pair(10, false));
        let region = foreign.device.region(8, 0, ALL, 1);
        for wr_id in 1..=3 {
            foreign.recv(wr_id, &[sge(region, 0, 8)]);
        }
        foreign.send_of(first);
        foreign.send_of(b"second");
        let lengths: Vec<_> = foreign.device.recvs.iter().map(|c| c.byte_len).collect();
        assert_eq!(lengths, wanted);
    }
}

#[test]
fn a_weft_peers_value_belongs_to_the_send_behind_it_and_two_are_a_fault() {
    let mut foreign = Foreign::weft();
    foreign.recv(1, &[]);
    immediate(&mut foreign, &JOINED);
    foreign.send();
    assert_eq!(foreign.device.recvs[0].imm, Some(5));
    immediate(&mut foreign, &JOINED);
    assert_eq!(foreign.fault(), None);
    immediate(&mut foreign, &JOINED);
    assert_eq!(foreign.fault(), Some(PeerFault::UnexpectedOpcode));
}

#[test]
fn a_strangers_value_has_a_receive_of_its_own_whatever_its_octets_are() {
    let mut foreign = Foreign::new(IRD);
    foreign.recv(1, &[]);
    immediate(&mut foreign, &JOINED);
    let taken = foreign.device.recvs[0];
    assert_eq!(
        (taken.opcode, taken.imm),
        (WcOpcode::RecvWriteWithImm, Some(5))
    );
}

#[test]
fn a_queue_pair_with_its_own_receives_takes_none_of_a_shared_queue() {
    let mut foreign = Foreign::new(IRD);
    let mut srq = SharedReceiveQueue::new(1, 1);
    let request = RecvRequest {
        wr_id: 1,
        scatter: &[],
    };
    srq.push(&request).expect("room");
    foreign.device.srq = Some(srq);
    foreign.send();
    assert_eq!(ends(&foreign.device.recvs), []);
    assert_eq!(foreign.fault(), Some(PeerFault::NoBuffer));
}

#[test]
fn a_direct_read_scatters_to_as_many_elements_as_it_takes() {
    for elements in [1, 2, DirectTarget::MOST, DirectTarget::MOST + 2] {
        let mut foreign = Foreign::new(IRD);
        let region = foreign.device.region(64, 0, ALL, 1);
        let scatter: Vec<_> = (0..elements as u64)
            .map(|at| sge(region, 8 * at, 8))
            .collect();
        foreign.recv(1, &scatter);
        let header = foreign.untagged(Opcode::SEND, QueueNumber::SEND);
        let len = 8 * elements;
        foreign.arrive_in_part(header, &vec![7; len], len);
        let target = foreign.qp.direct_target(&foreign.device);
        let target = target.expect("payload is outstanding");
        let wanted = elements.min(DirectTarget::MOST);
        assert_eq!(target.spans().count(), wanted);
        assert_eq!(target.octets, 8 * wanted);
    }
}

/// A queue pair that has asked for a sum, with the identifier 1, and the region that it comes to.
fn adding() -> (Foreign, Stag) {
    let mut foreign = Foreign::new(IRD);
    let sink = foreign.device.region(8, 0, ALL, 1);
    let add = SendOp::FetchAdd {
        remote_addr: 0x9000,
        rkey: Stag(0x7700),
        add: 1,
    };
    foreign.post(1, add, Payload::Gather(&[sge(sink, 0, 8)]));
    foreign.sent();
    (foreign, sink)
}

#[test]
fn an_atomic_is_answered_by_its_own_response_and_no_other() {
    let (mut foreign, sink) = adding();
    foreign.original(1, 7);
    assert_eq!(foreign.fault(), None);
    assert_eq!(ends(&foreign.device.sends), [(1, WcStatus::Success)]);
    assert_eq!(*foreign.device.octets(sink), 7u64.to_ne_bytes());

    let wrong: [fn(&mut Foreign); 3] = [
        |foreign| foreign.original(2, 7),
        // The STag and TO that an atomic has nowhere.
        |foreign| foreign.tagged(Opcode::READ_RESPONSE, (Stag(0), 0), true, &[7; 8]),
        |foreign| foreign.tagged(Opcode::READ_RESPONSE, (Stag(0), 0), false, &[]),
    ];
    for wrong in wrong {
        let (mut foreign, sink) = adding();
        wrong(&mut foreign);
        assert_eq!(foreign.fault(), Some(PeerFault::UnexpectedReadResponse));
        assert_eq!(ends(&foreign.device.sends), [(1, WcStatus::Flushed)]);
        assert_eq!(*foreign.device.octets(sink), [0; 8]);
    }
    // Nor is a Read answered by an atomic's.
    let (mut foreign, _, sink) = asking();
    foreign.original(1, 7);
    assert_eq!(foreign.fault(), Some(PeerFault::UnexpectedReadResponse));
    assert!(foreign.device.octets(sink).iter().all(|o| *o == 0));
}
