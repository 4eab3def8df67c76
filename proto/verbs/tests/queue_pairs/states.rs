//! What each state takes and refuses, and what a queue pair says of itself.

use crate::foreign_peer::{in_init, responder, Foreign, IRD};
use crate::pair::{ends, queue_pair, sge, ALL, CAP};
use weft_verbs::iwarp::{Established, Role, Stag};
use weft_verbs::qp::{Ending, Qp, QpConfig};
use weft_verbs::simulated::{Device, PD};
use weft_verbs::types::{
    Payload, PostError, QpNumber, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
    WcStatus,
};

const INVALID: Result<(), PostError> = Err(PostError::InvalidState);

fn modify(foreign: &mut Foreign, to: QpState) -> Result<(), PostError> {
    foreign.qp.modify(to, &mut foreign.device)
}

#[test]
fn only_a_queue_pair_without_a_connection_manager_is_walked_to_rts() {
    let (mut qp, _) = in_init(queue_pair(10, false));
    assert!(!qp.is_out_of_band());
    assert_eq!(qp.bring_to(QpState::Rts), INVALID, "RTR comes first");
    assert_eq!(qp.bring_to(QpState::Rtr), Ok(()));
    assert!(qp.is_out_of_band());
    assert_eq!(qp.bring_to(QpState::Rtr), INVALID);
    assert_eq!(qp.bring_to(QpState::Rts), Ok(()));
    assert_eq!(qp.bring_to(QpState::Rts), Ok(()), "it is there");

    let mut connected = Foreign::new(IRD).qp;
    assert_eq!(connected.bring_to(QpState::Rts), INVALID);
    assert!(!connected.is_out_of_band());
}

#[test]
fn a_state_may_be_asked_for_that_it_has_and_not_every_other() {
    let (mut qp, mut device) = in_init(queue_pair(10, false));
    assert_eq!(qp.modify(QpState::Init, &mut device), Ok(()));
    assert_eq!(qp.modify(QpState::Rts, &mut device), INVALID);
    let mut foreign = Foreign::new(IRD);
    assert_eq!(modify(&mut foreign, QpState::Rts), Ok(()));
    assert_eq!(modify(&mut foreign, QpState::Init), INVALID);
    assert!(foreign.is_open());
}

#[test]
fn a_connected_queue_pair_is_reset_when_its_stream_has_ended() {
    let (mut qp, mut device) = in_init(queue_pair(10, false));
    assert_eq!(qp.modify(QpState::Reset, &mut device), Ok(()), "no stream");
    assert_eq!(qp.state(), QpState::Reset);

    let mut foreign = Foreign::new(IRD);
    assert_eq!(modify(&mut foreign, QpState::Reset), INVALID);
    assert_eq!(foreign.qp.state(), QpState::Rts);
    foreign.qp.disconnect(&mut foreign.device);
    assert_eq!(modify(&mut foreign, QpState::Reset), INVALID, "it drains");
    assert!(foreign.qp.stream_ended(&mut foreign.device));
    assert_eq!(modify(&mut foreign, QpState::Reset), Ok(()));

    // A program that brings it up itself knows of no stream.
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    assert_eq!(modify(&mut foreign, QpState::Reset), Ok(()));
    assert_eq!(foreign.qp.state(), QpState::Reset);
}

#[test]
fn what_was_reset_is_not_reached_by_the_end_of_its_old_stream() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    modify(&mut foreign, QpState::Reset).expect("RESET");
    assert!(foreign.qp.stream_ended(&mut foreign.device));
    let state = (foreign.qp.state(), foreign.qp.ending());
    assert_eq!(state, (QpState::Reset, Ending::Open));
    modify(&mut foreign, QpState::Init).expect("INIT");
    foreign.qp.bring_to(QpState::Rtr).expect("RTR");
    foreign.qp.bring_to(QpState::Rts).expect("RTS");
    assert_eq!(foreign.qp.drain(false, &mut foreign.device), Ok(()));
}

#[test]
fn receives_are_refused_in_reset_beside_a_shared_queue_and_beyond_the_queues_sizes() {
    fn post(qp: &mut Qp, scatter: &[Sge]) -> Result<(), PostError> {
        let request = RecvRequest { wr_id: 1, scatter };
        qp.post_recv(&request, &mut Device::default())
    }
    assert_eq!(post(&mut queue_pair(10, false), &[]), INVALID);
    assert_eq!(post(&mut in_init(queue_pair(10, true)).0, &[]), INVALID);

    let (mut qp, _) = in_init(queue_pair(10, false));
    let long = [Sge::default(); CAP.max_recv_sge as usize + 1];
    assert_eq!(post(&mut qp, &long), Err(PostError::TooLarge));
    for _ in 0..CAP.max_recv_wr {
        assert_eq!(post(&mut qp, &[]), Ok(()));
    }
    assert_eq!(post(&mut qp, &[]), Err(PostError::QueueFull));
}

#[test]
fn a_request_that_is_only_checked_gets_the_same_answer() {
    let request = |op| SendRequest {
        wr_id: 1,
        op,
        flags: SendFlags::default(),
        payload: Payload::Gather(&[]),
    };
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: Stag(1),
    };
    let mut foreign = Foreign::new(IRD);
    let mut check = |op, earlier| {
        let device = &foreign.device;
        foreign.qp.check_send(&request(op), earlier, device)
    };
    assert_eq!(check(read, CAP.max_send_wr - 1), Ok(()));
    assert_eq!(check(read, CAP.max_send_wr), Err(PostError::QueueFull));

    foreign.qp.set_unreliable(true);
    let mut check = |op| foreign.qp.check_send(&request(op), 0, &foreign.device);
    assert_eq!(check(read), Err(PostError::Unsupported));
    assert_eq!(check(SendOp::Send), Ok(()));
    let (mut qp, device) = in_init(queue_pair(10, false));
    assert_eq!(qp.check_send(&request(SendOp::Send), 0, &device), INVALID);
}

#[test]
fn it_wants_to_send_while_something_is_due() {
    let due: [fn(&mut Foreign); 2] = [
        |foreign| foreign.post(1, SendOp::Send, Payload::Inline(b"x")),
        |foreign| foreign.ask((Stag(0), 0), 0),
    ];
    for due in due {
        let mut foreign = Foreign::new(IRD);
        assert!(!foreign.qp.wants_to_send());
        due(&mut foreign);
        assert!(foreign.qp.wants_to_send());
        foreign.sent();
        assert!(!foreign.qp.wants_to_send());
    }
}

#[test]
fn it_owes_only_acknowledgements_while_nothing_else_is_due_or_on_its_way() {
    let asked = || {
        let mut foreign = Foreign::new(IRD);
        assert!(!foreign.qp.owes_only_acknowledgements());
        foreign.ask((Stag(0), 0), 0);
        assert!(foreign.qp.owes_only_acknowledgements());
        foreign
    };
    let mut posted = asked();
    posted.post(1, SendOp::Send, Payload::Inline(b"x"));
    assert!(!posted.qp.owes_only_acknowledgements());

    let mut on_its_way = asked();
    on_its_way.qp.fill(1 << 20, &mut on_its_way.device);
    on_its_way.ask((Stag(0), 0), 0);
    assert!(!on_its_way.qp.owes_only_acknowledgements());

    let mut of_octets = asked();
    let region = of_octets.device.region(8, 0, ALL, 1);
    of_octets.ask((region, 0), 8);
    assert!(!of_octets.qp.owes_only_acknowledgements());
}

#[test]
fn a_send_is_complete_when_the_transport_has_its_last_octet() {
    let mut foreign = Foreign::new(IRD);
    foreign.post(1, SendOp::Send, Payload::Inline(b"octets"));
    foreign.qp.fill(1 << 20, &mut foreign.device);
    let octets = foreign.qp.outgoing().queued();
    foreign.qp.sent(octets - 1, &mut foreign.device);
    assert_eq!(ends(&foreign.device.sends), []);
    foreign.qp.sent(1, &mut foreign.device);
    assert_eq!(ends(&foreign.device.sends), [(1, WcStatus::Success)]);
}

#[test]
fn every_request_completes_where_the_queue_pair_was_made_so() {
    for sq_sig_all in [false, true] {
        let qp = Qp::new(QpConfig {
            number: QpNumber(10),
            pd: PD,
            cap: CAP,
            sq_sig_all,
            shared_receive: false,
        });
        let mut foreign = Foreign::on(&responder(IRD), qp);
        foreign.write((Stag(0), 0), b"");
        let silent = SendRequest {
            wr_id: 1,
            op: SendOp::Send,
            flags: SendFlags::default(),
            payload: Payload::Inline(b"x"),
        };
        let posted = foreign.qp.post_send(&silent, &mut foreign.device);
        posted.expect("posted");
        foreign.sent();
        assert_eq!(foreign.device.sends.len(), usize::from(sq_sig_all));
    }
}

#[test]
fn it_says_how_much_work_is_not_done() {
    let mut foreign = Foreign::new(IRD);
    for (outstanding, one_at_a_time) in [(0, true), (1, true), (2, false)] {
        assert_eq!(foreign.qp.has_sends_outstanding(), outstanding > 0);
        assert_eq!(foreign.qp.sends_one_at_a_time(), one_at_a_time);
        foreign.post(1, SendOp::Send, Payload::Inline(b"x"));
    }
}

#[test]
fn a_responder_may_send_once_its_peer_has_and_an_initiator_at_once() {
    let (qp, _) = in_init(queue_pair(10, false));
    assert!(!qp.may_send(), "without a stream");
    let initiator = Established {
        role: Role::Initiator,
        ..responder(IRD)
    };
    assert!(Foreign::on(&initiator, queue_pair(10, false)).qp.may_send());
    let mut foreign = Foreign::on(&responder(IRD), queue_pair(10, false));
    assert!(!foreign.qp.may_send());
    foreign.write((Stag(0), 0), b"");
    assert!(foreign.qp.may_send());
}

#[test]
fn long_payloads_are_sent_from_where_they_are_unless_a_crc_covers_them() {
    let (qp, _) = in_init(queue_pair(10, false));
    assert!(!qp.sends_by_reference(), "without a stream");
    for crc in [false, true] {
        let config = Established {
            crc,
            ..responder(IRD)
        };
        let mut foreign = Foreign::on(&config, queue_pair(10, false));
        foreign.write((Stag(0), 0), b"");
        assert_eq!(foreign.qp.sends_by_reference(), !crc);
        let region = foreign.device.region(1024, 0, ALL, 1);
        for (len, referred) in [(1023, 0), (1024, usize::from(!crc))] {
            let gather = [sge(region, 0, len)];
            foreign.post(1, SendOp::Send, Payload::Gather(&gather));
            foreign.qp.fill(1 << 20, &mut foreign.device);
            assert_eq!(foreign.referred(), referred, "{len} octets, CRC: {crc}");
            foreign.sent();
        }
    }
}
