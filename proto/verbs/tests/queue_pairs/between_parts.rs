//! What parts of a queue pair say to each other, where the parts' own tests cannot hear it.

use std::time::Duration;

use crate::foreign_peer::{in_init, responder, Foreign, IRD};
use crate::pair::{ends, queue_pair, sge, ALL, CAP};
use weft_verbs::iwarp::{Header, Opcode, Stag};
use weft_verbs::qp::{FpduPolicy, Qp, QpConfig};
use weft_verbs::simulated::PD;
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{
    Payload, QpNumber, QpState, RecvRequest, SendFlags, SendOp, SendRequest, WcStatus,
};

const US: Duration = Duration::from_micros(1);

const WRITE: SendOp = SendOp::Write {
    remote_addr: 0,
    rkey: Stag(7),
};

/// A queue pair whose acknowledgements have been followed closely by posts: the next one may wait.
fn followed_closely() -> Foreign {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    for round in 0..8 {
        foreign.device.now += 1000 * US;
        foreign.ask((Stag(0), 0), 0);
        assert!(foreign.qp.is_due(&foreign.device));
        foreign.sent();
        foreign.device.now += 10 * US;
        foreign.post(round, SendOp::Send, Payload::Inline(b"x"));
        foreign.sent();
    }
    foreign
}

#[test]
fn nothing_is_due_where_nothing_is_to_be_sent() {
    let mut foreign = followed_closely();
    assert!(!foreign.qp.is_due(&foreign.device));
    assert!(!foreign.qp.delays_acknowledgement());
    let mut foreign = Foreign::new(IRD);
    assert!(!foreign.qp.is_due(&foreign.device));
}

#[test]
fn an_acknowledgement_waits_neither_beside_a_request_nor_for_a_program_that_posts_several() {
    let mut foreign = followed_closely();
    foreign.post(1, SendOp::Send, Payload::Inline(b"x"));
    foreign.ask((Stag(0), 0), 0);
    assert!(foreign.qp.is_due(&foreign.device));

    let mut foreign = followed_closely();
    foreign.post(1, WRITE, Payload::Inline(b"x"));
    foreign.post(2, WRITE, Payload::Inline(b"x"));
    foreign.sent();
    assert!(!foreign.qp.sends_one_at_a_time());
    foreign.ask((Stag(0), 0), 0);
    assert!(foreign.qp.owes_only_acknowledgements());
    assert!(foreign.qp.is_due(&foreign.device));
}

#[test]
fn an_announcement_waits_for_the_end_of_a_response() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(4096, 0, ALL, 1);
    foreign.ask((region, 0), 4000);
    foreign.qp.fill(1, &mut foreign.device);
    foreign.announce();
    let opcode = |header: &Header| match header {
        Header::Tagged(t) => (t.opcode, t.last),
        Header::Untagged(u) => (u.opcode, u.last),
    };
    let segments = foreign.segments();
    let left: Vec<_> = segments.iter().map(|(header, _)| opcode(header)).collect();
    let at = left.iter().position(|(opcode, _)| *opcode == Opcode::WRITE);
    let at = at.expect("an announcement");
    assert!(at > 1, "{left:?}");
    assert_eq!(left[at - 1], (Opcode::READ_RESPONSE, true), "{left:?}");
}

#[test]
fn what_is_local_is_complete_at_once() {
    let mut foreign = Foreign::new(IRD);
    let stag = foreign.device.region(64, 0, ALL, 1);
    foreign.post(1, SendOp::LocalInvalidate { stag }, Payload::Gather(&[]));
    foreign.qp.fill(1, &mut foreign.device);
    assert_eq!(ends(&foreign.device.sends), [(1, WcStatus::Success)]);
}

#[test]
fn where_every_request_is_signalled_the_peer_is_asked_for_those_without_the_flag_too() {
    let config = |sq_sig_all| QpConfig {
        number: QpNumber(10),
        pd: PD,
        cap: CAP,
        sq_sig_all,
        shared_receive: false,
    };
    for sq_sig_all in [false, true] {
        let (mut qp, mut device) = in_init(Qp::new(config(sq_sig_all)));
        qp.bring_to(QpState::Rtr).expect("RTR");
        qp.attach(&responder(IRD), 1448, FpduPolicy::Auto, Duration::ZERO);
        qp.bring_to(QpState::Rts).expect("RTS");
        qp.speak_first();
        let request = SendRequest {
            wr_id: 1,
            op: WRITE,
            flags: SendFlags::default(),
            payload: Payload::Inline(b"x"),
        };
        qp.post_send(&request, &mut device).expect("posted");
        qp.fill(1 << 20, &mut device);
        assert_eq!(qp.awaits_acknowledgement(), sq_sig_all);
    }
}

#[test]
fn a_stream_comes_once_and_not_to_a_queue_pair_that_failed() {
    let (mut qp, mut device) = in_init(queue_pair(10, false));
    qp.bring_to(QpState::Rtr).expect("RTR");
    assert!(qp.takes_stream());
    qp.attach(&responder(IRD), 1448, FpduPolicy::Auto, Duration::ZERO);
    assert!(!qp.takes_stream(), "it has one");
    let (mut qp, _) = in_init(queue_pair(10, false));
    assert!(qp.takes_stream());
    qp.modify(QpState::Error, &mut device).expect("ERR");
    assert!(!qp.takes_stream());
}

#[test]
fn nothing_overtakes_what_waits_though_a_shared_queue_was_fed_untold() {
    let mut foreign = Foreign::on(&responder(IRD), queue_pair(10, true));
    foreign.qp.set_peer_is_weft();
    foreign.device.srq = Some(SharedReceiveQueue::new(4, 1));
    let region = foreign.device.region(64, 0, ALL, 1);
    foreign.send_of(b"first");
    let srq = foreign.device.srq.as_mut().expect("a shared queue");
    for wr_id in 0..2 {
        let scatter = &[sge(region, 32 * wr_id, 32)];
        srq.push(&RecvRequest { wr_id, scatter }).expect("room");
    }
    foreign.send_of(b"next");
    foreign.qp.on_receives(&mut foreign.device);
    let octets: Vec<u32> = foreign.device.recvs.iter().map(|c| c.byte_len).collect();
    assert_eq!(octets, [5, 4]);
}

#[test]
fn of_uc_what_may_not_be_held_is_lost_though_there_were_receives() {
    let mut foreign = Foreign::new(IRD);
    foreign.qp.set_unreliable(true);
    foreign.recv(1, &[]);
    foreign.send();
    foreign.send();
    assert_eq!(ends(&foreign.device.recvs), [(1, WcStatus::Success)]);
    assert!(foreign.is_open(), "a strange peer's message is not held");
}
