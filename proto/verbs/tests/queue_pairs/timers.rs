//! Deadlines: what is awaited, until when, and what follows.

use std::time::Duration;

use weft_verbs::iwarp::{Established, Header, Opcode, Role, Rtr, Stag};
use weft_verbs::qp::{Close, Ending, FpduPolicy, LINGER};
use weft_verbs::types::{Payload, QpState, SendOp};

use crate::foreign_peer::{in_init, responder, Foreign, IRD};
use crate::pair::{queue_pair, time_out};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// An initiator whose peer has said nothing yet.
fn initiator() -> Foreign {
    let established = Established {
        role: Role::Initiator,
        ..responder(IRD)
    };
    Foreign::on(&established, queue_pair(10, false))
}

#[test]
fn a_peer_that_keeps_silent_is_probed_at_growing_distances_and_not_for_ever() {
    let mut foreign = initiator();
    assert_eq!(foreign.qp.deadline(), None, "nothing was sent yet");
    foreign.post(1, SendOp::Send, Payload::Inline(b"x"));
    foreign.sent();
    let mut pauses = Vec::new();
    while let Some(at) = foreign.qp.deadline() {
        pauses.push((at - foreign.device.now).as_millis());
        assert_eq!(time_out(&mut foreign.qp, &mut foreign.device), None);
        assert!(foreign.qp.wants_to_send());
        let probe = foreign.segments();
        assert!(probe.len() == 1 && probe[0].1.is_empty(), "an empty Write");
    }
    assert_eq!(pauses, [5, 20, 80, 320, 1280, 5120]);
}

#[test]
fn a_peer_that_was_heard_needs_no_probe() {
    let mut foreign = initiator();
    foreign.post(1, SendOp::Send, Payload::Inline(b"x"));
    foreign.sent();
    assert_eq!(foreign.qp.deadline(), Some(5 * MS));
    foreign.write((Stag(0), 0), b"");
    assert_eq!(foreign.qp.deadline(), None);
    foreign.post(2, SendOp::Send, Payload::Inline(b"x"));
    foreign.sent();
    assert_eq!(foreign.qp.deadline(), None);
}

/// The peer says that it is Weft while a probe waits, and is told the same.
#[test]
fn a_probe_that_waits_takes_no_announcements_place() {
    let mut foreign = initiator();
    foreign.post(1, SendOp::Send, Payload::Inline(b"x"));
    foreign.sent();
    time_out(&mut foreign.qp, &mut foreign.device);
    foreign.announce();
    let said = foreign
        .segments()
        .into_iter()
        .filter_map(|(header, _)| match header {
            Header::Tagged(write) if write.opcode == Opcode::WRITE => Some(write.to),
            _ => None,
        });
    let said: Vec<u64> = said.collect();
    assert!(said.len() == 1 && said[0] != 0, "{said:x?}");
}

/// A responder whose peer promised to speak first.
fn promised(timeout: Duration) -> Foreign {
    let established = Established {
        peer_to_peer: true,
        rtr: Some(Rtr::Write),
        ..responder(IRD)
    };
    let mut qp = queue_pair(10, false);
    qp.set_start_timeout(timeout);
    Foreign::on(&established, qp)
}

#[test]
fn a_peer_that_promised_a_message_first_has_a_time_for_it() {
    let mut foreign = promised(7 * MS);
    assert_eq!(foreign.qp.deadline(), Some(7 * MS));
    foreign.device.now = 6 * MS;
    assert_eq!(foreign.qp.handle_timeout(&mut foreign.device), None);
    let close = time_out(&mut foreign.qp, &mut foreign.device);
    assert_eq!(close, Some(Close::Abort));
    let mut foreign = promised(7 * MS);
    foreign.write((Stag(0), 0), b"");
    assert_eq!(foreign.qp.deadline(), None);
}

#[test]
fn a_stream_that_ends_is_not_waited_for_without_end() {
    let mut foreign = Foreign::new(IRD);
    foreign.device.now = MS;
    foreign.qp.disconnect(&mut foreign.device);
    assert_eq!(foreign.qp.ending(), Ending::Draining);
    assert_eq!(foreign.qp.deadline(), Some(MS + LINGER));
    foreign.device.now = 2 * MS;
    foreign.qp.disconnect(&mut foreign.device);
    assert_eq!(foreign.qp.deadline(), Some(MS + LINGER), "once");
    let close = time_out(&mut foreign.qp, &mut foreign.device);
    assert_eq!(close, Some(Close::Linger));
    assert!(foreign.qp.stream_ended(&mut foreign.device));
    assert_eq!(foreign.qp.deadline(), None);
}

#[test]
fn a_fault_and_a_terminate_bound_the_end_too() {
    let mut foreign = Foreign::new(IRD);
    foreign.send();
    assert_eq!(foreign.qp.ending(), Ending::Draining, "it found no receive");
    assert_eq!(foreign.qp.deadline(), Some(LINGER));
    let mut foreign = Foreign::new(IRD);
    foreign.terminate((0, 0, 0), None);
    assert_eq!(foreign.qp.deadline(), Some(LINGER));
}

#[test]
fn a_message_waits_for_its_receive_as_long_as_was_set_and_no_other_pays_for_it() {
    let mut foreign = Foreign::weft();
    foreign.qp.set_receive_wait(10 * MS);
    foreign.device.now = MS;
    foreign.send();
    assert_eq!(foreign.qp.deadline(), Some(11 * MS));
    foreign.device.now = 9 * MS;
    foreign.send();
    assert_eq!(foreign.qp.deadline(), Some(11 * MS));
    foreign.recv(1, &[]);
    assert_eq!(foreign.qp.deadline(), Some(19 * MS), "the second one's own");
    foreign.recv(2, &[]);
    assert_eq!(foreign.qp.deadline(), None);
    foreign.send();
    time_out(&mut foreign.qp, &mut foreign.device);
    assert_eq!(foreign.qp.state(), QpState::Error);
}

#[test]
fn seven_retries_of_this_side_wait_without_end_until_the_peer_has_gone() {
    let mut foreign = Foreign::weft();
    foreign.qp.set_receive_wait(10 * MS);
    foreign.qp.set_rnr_retry(7);
    foreign.send();
    assert_eq!(foreign.qp.deadline(), None);
    assert!(!foreign.qp.stream_ended(&mut foreign.device));
    assert_eq!(foreign.qp.deadline(), Some(10 * MS));
    foreign.qp.set_rnr_retry(3);
    let mut other = Foreign::weft();
    other.qp.set_receive_wait(10 * MS);
    other.qp.set_rnr_retry(7);
    other.qp.set_rnr_retry(6);
    other.send();
    assert_eq!(other.qp.deadline(), Some(10 * MS), "no longer without end");
}

#[test]
fn what_unreliable_messages_wait_for_is_given_up_soon() {
    let mut foreign = Foreign::weft();
    foreign.qp.set_unreliable(true);
    foreign.recv(1, &[]);
    foreign.send();
    foreign.send();
    assert_eq!(foreign.qp.deadline(), Some(100 * MS));
    time_out(&mut foreign.qp, &mut foreign.device);
    assert_eq!(
        (foreign.qp.holding(), foreign.qp.state()),
        (None, QpState::Rts)
    );
    assert_eq!(foreign.qp.deadline(), None);
}

#[test]
fn a_new_stream_begins_without_deadlines_of_the_one_before() {
    let mut foreign = initiator();
    foreign.post(1, SendOp::Send, Payload::Inline(b"x"));
    foreign.sent();
    foreign.qp.stream_ended(&mut foreign.device);
    assert_eq!(foreign.qp.deadline(), None);
    let (mut qp, mut device) = in_init(queue_pair(10, false));
    qp.set_receive_wait(3 * MS);
    qp.modify(QpState::Reset, &mut device).expect("RESET");
    qp.modify(QpState::Init, &mut device).expect("INIT");
    qp.attach(&responder(IRD), 1448, FpduPolicy::Auto, Duration::ZERO);
    qp.set_peer_is_weft();
    let mut foreign = Foreign::of(qp, device);
    foreign.send();
    let kept = "what was set outlives a reset";
    assert_eq!(foreign.qp.deadline(), Some(3 * MS), "{kept}");
}

/// A peer asks whether its Writes are placed, and this side posts `pause` after each acknowledgement.
fn written_in_turn(foreign: &mut Foreign, rounds: u64, pause: Duration) {
    for round in 0..rounds {
        foreign.device.now += MS;
        foreign.ask((Stag(0), 0), 0);
        assert!(foreign.qp.is_due(&foreign.device), "round {round}");
        foreign.sent();
        foreign.device.now += pause;
        foreign.post(round, SendOp::Send, Payload::Inline(b"x"));
        foreign.sent();
    }
}

#[test]
fn an_acknowledgement_waits_for_the_post_that_follows_closely() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    written_in_turn(&mut foreign, 8, 10 * US);
    foreign.ask((Stag(0), 0), 0);
    assert!(!foreign.qp.is_due(&foreign.device));
    assert!(foreign.qp.delays_acknowledgement());
    let at = foreign.device.now + 100 * US;
    assert_eq!(foreign.qp.deadline(), Some(at));
    foreign.device.now += 5 * US;
    foreign.post(9, SendOp::Send, Payload::Inline(b"x"));
    assert!(foreign.qp.is_due(&foreign.device));
    assert_eq!(foreign.segments().len(), 2, "both leave together");
    assert!(!foreign.qp.delays_acknowledgement());
}

#[test]
fn one_that_waits_in_vain_leaves_in_time_and_later_ones_at_once() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    written_in_turn(&mut foreign, 8, 10 * US);
    foreign.ask((Stag(0), 0), 0);
    assert!(!foreign.qp.is_due(&foreign.device));
    time_out(&mut foreign.qp, &mut foreign.device);
    assert!(foreign.qp.wants_to_send() && !foreign.qp.delays_acknowledgement());
    foreign.sent();
    written_in_turn(&mut foreign, 15, 10 * US);
    foreign.ask((Stag(0), 0), 0);
    assert!(
        foreign.qp.is_due(&foreign.device),
        "sixteen have to follow now"
    );
}

#[test]
fn it_does_not_wait_where_posts_come_later_or_the_connection_managers_program_asks() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    written_in_turn(&mut foreign, 50, 60 * US);
    foreign.ask((Stag(0), 0), 0);
    assert!(foreign.qp.is_due(&foreign.device));
    let mut foreign = Foreign::new(IRD);
    written_in_turn(&mut foreign, 50, 10 * US);
    foreign.ask((Stag(0), 0), 0);
    assert!(foreign.qp.is_due(&foreign.device));
}
