//! Queue pairs that the program brings up itself, and the ends of the streams under them.

use std::time::Duration;

use crate::foreign_peer::{responder, Foreign, IRD};
use crate::pair::{ends, sge, ALL};
use weft_verbs::iwarp::{Header, Msn, Opcode, Tagged};
use weft_verbs::qp::Ending;
use weft_verbs::types::{Payload, QpState, SendOp, WcStatus};

/// The stream ends; the state behind it, and whether the queue pair waits for another stream.
fn stream_ends(foreign: &mut Foreign) -> (QpState, bool) {
    let done = foreign.qp.stream_ended(&mut foreign.device);
    assert!(done);
    (foreign.qp.state(), foreign.qp.takes_stream())
}

#[test]
fn a_stream_that_ends_between_messages_leaves_the_queue_pair_as_it_is() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    foreign.recv(1, &[]);
    assert_eq!(stream_ends(&mut foreign), (QpState::Rts, true));
    assert_eq!(ends(&foreign.device.recvs), []);
}

#[test]
fn a_stream_that_ends_within_a_message_ends_the_queue_pair() {
    let within: [fn(&mut Foreign); 3] = [
        // A receive has the first segment.
        |foreign| {
            let region = foreign.device.region(64, 0, ALL, 1);
            foreign.recv(1, &[sge(region, 0, 64)]);
            foreign.send_segment(Msn::FIRST, 0, false, b"first");
        },
        // A Write has come but for two octets.
        |foreign| {
            let stag = foreign.device.region(64, 0, ALL, 1);
            let header = Header::Tagged(Tagged {
                last: true,
                opcode: Opcode::WRITE,
                stag,
                to: 0,
            });
            foreign.arrive_in_part(header, b"octets", 2);
            assert_eq!(foreign.qp.outstanding(), 2);
        },
        // The first segment waits for a receive.
        |foreign| {
            foreign.send_segment(Msn::FIRST, 0, false, b"first");
            assert!(foreign.qp.holding().is_some());
        },
    ];
    for within in within {
        let mut foreign = Foreign::out_of_band(&responder(IRD));
        within(&mut foreign);
        assert_eq!(stream_ends(&mut foreign), (QpState::Error, false));
    }
}

#[test]
fn the_oldest_request_of_a_stream_that_ended_was_not_answered() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    for wr_id in [1, 2] {
        foreign.post(wr_id, SendOp::Send, Payload::Inline(b"x"));
    }
    assert_eq!(stream_ends(&mut foreign), (QpState::Error, false));
    let wanted = [(1, WcStatus::RetryExceeded), (2, WcStatus::Flushed)];
    assert_eq!(ends(&foreign.device.sends), wanted);
}

#[test]
fn a_stream_that_ended_by_a_fault_is_over() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    foreign.qp.set_receive_wait(Duration::ZERO);
    foreign.send();
    assert!(foreign.fault().is_some());
    assert_eq!(stream_ends(&mut foreign), (QpState::Error, false));
    assert_eq!(foreign.qp.ending(), Ending::Closed);
}
