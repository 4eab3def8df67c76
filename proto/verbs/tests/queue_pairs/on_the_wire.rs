//! What leaves a queue pair, and in which order.

use crate::foreign_peer::{Foreign, IRD};
use crate::pair::{sge, ALL};
use weft_verbs::host::{Host, Scope};
use weft_verbs::iwarp::{Header, Opcode, ReadRequest, Stag};
use weft_verbs::simulated::{draws, PD};
use weft_verbs::types::{Access, Bind, Payload, QpNumber, SendOp, WindowKind};

/// Hardware wants an STag that is not 0, where the STag means nothing.
#[test]
fn only_where_no_octet_goes_anywhere_does_another_stag_stand_for_0() {
    for (octets, rkey, wanted) in [
        (b"".as_slice(), 0, Stag::RTR),
        (b"", 7, Stag(7)),
        (b"octets", 0, Stag(0)),
        (b"octets", 7, Stag(7)),
    ] {
        let mut foreign = Foreign::new(IRD);
        let write = SendOp::Write {
            remote_addr: 0,
            rkey: Stag(rkey),
        };
        foreign.post(1, write, Payload::Inline(octets));
        let [(Header::Tagged(sent), _)] = foreign.segments()[..] else {
            panic!("one tagged segment");
        };
        assert_eq!(sent.stag, wanted, "{octets:?} to {rkey}");
    }
}

#[test]
fn a_read_names_its_first_element_as_the_sink_and_one_without_elements_none() {
    let mut foreign = Foreign::new(IRD);
    let sink = foreign.device.region(8, 0x1000, ALL, 1);
    for (scatter, wanted) in [
        ([sge(sink, 0x1002, 6)].as_slice(), (sink, 0x1002)),
        (&[], (Stag::RTR, 0)),
    ] {
        let read = SendOp::Read {
            remote_addr: 0x9000,
            rkey: Stag(0x7700),
        };
        foreign.post(1, read, Payload::Gather(scatter));
        let (_, request) = foreign.segments().remove(0);
        let request = ReadRequest::decode(&request).expect("a Read Request");
        assert_eq!((request.sink_stag, request.sink_to), wanted);
    }
}

/// Octets that wait may lie in the region, or have come through the window.
#[test]
fn a_region_is_invalidated_and_a_window_bound_behind_everything_posted_before() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(4000, 0, ALL, 1);
    let regions = &mut foreign.device.regions;
    let window = regions.insert_window(WindowKind::Two, PD, draws(77 << 8));
    let window = window.expect("room");
    let bind = Bind {
        window,
        rkey: Stag(window.0 ^ 1),
        region,
        addr: 0,
        len: 4000,
        access: Access::REMOTE_READ,
        zero_based: false,
    };
    let opens = |foreign: &Foreign, stag, access| {
        let scope = Scope {
            pd: PD,
            qp: QpNumber(10),
        };
        foreign.device.check(stag, 0, 8, access, scope).is_ok()
    };
    let gather = [sge(region, 0, 4000)];
    foreign.post(1, SendOp::Send, Payload::Gather(&gather));
    foreign.post(2, SendOp::BindWindow(bind), Payload::Gather(&[]));
    foreign.qp.fill(1 << 20, &mut foreign.device);
    assert!(!opens(&foreign, bind.rkey, Access::REMOTE_READ));
    foreign.sent();
    foreign.sent();
    assert!(opens(&foreign, bind.rkey, Access::REMOTE_READ));

    let invalidate = SendOp::LocalInvalidate { stag: bind.rkey };
    foreign.post(3, SendOp::Send, Payload::Gather(&gather));
    foreign.post(4, invalidate, Payload::Gather(&[]));
    foreign.qp.fill(1 << 20, &mut foreign.device);
    assert!(opens(&foreign, bind.rkey, Access::REMOTE_READ));
    foreign.sent();
    foreign.sent();
    assert!(!opens(&foreign, bind.rkey, Access::REMOTE_READ));
    assert_eq!(foreign.device.sends.len(), 4);
}

/// A peer that asks takes an answer without an announcement before it for a stranger's.
#[test]
fn an_announcement_goes_behind_the_message_under_way_and_before_the_answer() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(4000, 0, ALL, 1);
    let gather = [sge(region, 0, 4000)];
    foreign.post(1, SendOp::Send, Payload::Gather(&gather));
    // One segment of three.
    foreign.qp.fill(1, &mut foreign.device);
    foreign.announce();
    assert!(foreign.qp.peer_is_weft());
    let opcodes: Vec<_> = foreign
        .segments()
        .iter()
        .map(|(header, _)| header.opcode())
        .collect();
    let (send, write, answer) = (Opcode::SEND, Opcode::WRITE, Opcode::READ_RESPONSE);
    assert_eq!(opcodes, [send, send, send, write, answer]);
}
