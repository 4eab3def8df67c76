//! Short messages that are framed as they are posted, and Writes that are placed without a parse of each.

use crate::foreign_peer::{responder, Foreign, ANNOUNCEMENT, IRD};
use crate::pair::{ends, queue_pair, queue_pair_of, sge, ALL, CAP};
use weft_verbs::iwarp::{Established, Header, Opcode, PeerFault, Role, Rtr, Stag};
use weft_verbs::types::{Access, Payload, QpCap, SendFlags, SendOp, SendRequest, WcStatus};

const RKEY: Stag = Stag(0x7700);
const WRITE: SendOp = SendOp::Write {
    remote_addr: 0x1000,
    rkey: RKEY,
};

/// What each segment that leaves is: its opcode, and its message's number if it has one.
fn kinds(foreign: &mut Foreign) -> Vec<(Opcode, u32)> {
    let number = |header: &Header| match header {
        Header::Tagged(_) => 0,
        Header::Untagged(u) => u.msn.0,
    };
    let segments = foreign.segments();
    let kind = |(header, _): &(Header, Vec<u8>)| (header.opcode(), number(header));
    segments.iter().map(kind).collect()
}

fn waits(foreign: &Foreign) -> usize {
    foreign.qp.outgoing().queued()
}

#[test]
fn a_short_message_is_what_it_was_when_it_was_posted() {
    for op in [SendOp::Send, WRITE] {
        let mut foreign = Foreign::new(IRD);
        let region = foreign.device.region(64, 0, Access::NONE, 1);
        foreign.device.octets(region).fill(b'a');
        let list = [sge(region, 0, 3), sge(region, 8, 0), sge(region, 16, 2)];
        foreign.post(1, op, Payload::Inline(b"inline"));
        foreign.post(2, op, Payload::Gather(&list[..1]));
        foreign.post(3, op, Payload::Gather(&list));
        assert!(waits(&foreign) > 0);
        assert_eq!(ends(&foreign.device.sends), [], "the transport has nothing");
        foreign.device.octets(region).fill(b'b');
        let segments = foreign.segments();
        for ((header, octets), wanted) in segments.iter().zip([&b"inline"[..], b"aaa", b"aaaaa"]) {
            assert_eq!(octets, wanted);
            assert!(header.last());
            if let Header::Tagged(write) = header {
                assert_eq!((write.stag, write.to), (RKEY, 0x1000));
            }
        }
        let done = [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Success));
        assert_eq!(ends(&foreign.device.sends), done);
    }
}

#[test]
fn messages_keep_their_order_and_their_numbers_whichever_way_they_go() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(4096, 0, ALL, 1);
    let (short, long) = ([sge(region, 0, 8)], [sge(region, 0, 3000)]);
    for (wr_id, list) in [&short, &long, &short, &short, &long]
        .into_iter()
        .enumerate()
    {
        foreign.post(wr_id as u64, SendOp::Send, Payload::Gather(list));
    }
    let numbers: Vec<u32> = kinds(&mut foreign).iter().map(|(_, msn)| *msn).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    let mut each = numbers.clone();
    each.dedup();
    assert_eq!(each, [1, 2, 3, 4, 5]);
    let done = [0, 1, 2, 3, 4].map(|wr_id| (wr_id, WcStatus::Success));
    assert_eq!(ends(&foreign.device.sends), done);
}

/// Posts a Send of one octet.
fn post_one(foreign: &mut Foreign, flags: SendFlags) {
    let request = SendRequest {
        wr_id: 9,
        op: SendOp::Send,
        flags,
        payload: Payload::Inline(b"x"),
    };
    let posted = foreign.qp.post_send(&request, &mut foreign.device);
    posted.expect("posted");
}

#[test]
fn what_has_something_to_wait_for_is_not_framed_at_once() {
    let plain = SendFlags::default();
    let fenced = SendFlags {
        fence: true,
        ..plain
    };
    let with = |prepare: fn(&mut Foreign), flags| {
        let mut foreign = Foreign::new(IRD);
        prepare(&mut foreign);
        let before = waits(&foreign);
        post_one(&mut foreign, flags);
        waits(&foreign) - before
    };
    assert!(with(|_| {}, plain) > 0);
    assert_eq!(with(|_| {}, fenced), 0, "a fence");
    let long_before: fn(&mut Foreign) = |foreign| {
        let region = foreign.device.region(4096, 0, ALL, 1);
        foreign.post(1, SendOp::Send, Payload::Gather(&[sge(region, 0, 4096)]));
    };
    assert_eq!(with(long_before, plain), 0, "a request before it");
    let asked: fn(&mut Foreign) = |foreign| {
        let region = foreign.device.region(64, 0, ALL, 1);
        foreign.ask((region, 0), 64);
    };
    assert_eq!(with(asked, plain), 0, "an answer whose turn it may be");
    let drains: fn(&mut Foreign) = |foreign| {
        let drained = foreign.qp.drain(false, &mut foreign.device);
        drained.expect("from RTS");
    };
    assert_eq!(with(drains, plain), 0, "SQD");
    let announced: fn(&mut Foreign) = |foreign| foreign.write((Stag::RTR, ANNOUNCEMENT), b"");
    assert_eq!(with(announced, plain), 0, "an announcement");
    let empty: fn(&mut Foreign) = |foreign| foreign.post(1, WRITE, Payload::Gather(&[]));
    let mut foreign = Foreign::new(IRD);
    empty(&mut foreign);
    assert_eq!(waits(&foreign), 0, "no octets");
}

#[test]
fn a_responder_that_has_heard_nothing_frames_nothing() {
    let mut foreign = Foreign::on(&responder(IRD), queue_pair(10, false));
    post_one(&mut foreign, SendFlags::default());
    assert_eq!(waits(&foreign), 0);
    let region = foreign.device.region(64, 0, ALL, 1);
    foreign.write((region, 0), b"the first");
    assert_eq!(kinds(&mut foreign).last(), Some(&(Opcode::SEND, 1)));
}

#[test]
fn a_ready_to_receive_message_goes_before_what_is_posted() {
    let initiator = Established {
        role: Role::Initiator,
        peer_to_peer: true,
        rtr: Some(Rtr::Write),
        ..responder(IRD)
    };
    let mut foreign = Foreign::on(&initiator, queue_pair(10, false));
    post_one(&mut foreign, SendFlags::default());
    let kinds = kinds(&mut foreign);
    assert_eq!(kinds.first(), Some(&(Opcode::WRITE, 0)), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&(Opcode::SEND, 1)), "{kinds:?}");
}

#[test]
fn what_waits_for_the_transport_is_bounded_and_nothing_is_lost() {
    let posts = 70;
    let deep = QpCap {
        max_send_wr: posts as u32,
        ..CAP
    };
    let mut foreign = Foreign::on(&responder(IRD), queue_pair_of(deep, 10, false));
    foreign.write((Stag(0), 0), b"");
    let payload = [7; 1000];
    let mut framed = 0;
    for wr_id in 0..posts {
        let region = foreign.device.region(1000, 0, ALL, 1 + wr_id as u32);
        foreign.device.octets(region).copy_from_slice(&payload);
        let before = waits(&foreign);
        foreign.post(
            wr_id,
            SendOp::Send,
            Payload::Gather(&[sge(region, 0, 1000)]),
        );
        framed += u64::from(waits(&foreign) > before);
    }
    assert!(framed < posts && waits(&foreign) < 66 * 1024, "{framed}");
    let numbers: Vec<u32> = kinds(&mut foreign).iter().map(|(_, msn)| *msn).collect();
    assert_eq!(numbers, (1..=posts as u32).collect::<Vec<_>>());
    assert_eq!(foreign.device.sends.len(), posts as usize);
}

#[test]
fn memory_that_cannot_be_read_fails_as_it_does_for_any_request() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(64, 0, ALL, 1);
    let gone = [sge(region, 0, 4), sge(Stag(0x9900), 0, 4)];
    foreign.post(1, SendOp::Send, Payload::Inline(b"good"));
    foreign.post(2, SendOp::Send, Payload::Gather(&gone));
    foreign.post(3, SendOp::Send, Payload::Inline(b"late"));
    let sent = kinds(&mut foreign);
    let sends: Vec<_> = sent.iter().filter(|(o, _)| *o == Opcode::SEND).collect();
    assert_eq!(sends, [&(Opcode::SEND, 1)]);
    let wanted = [
        (1, WcStatus::Success),
        (2, WcStatus::LocalProtection),
        (3, WcStatus::Flushed),
    ];
    assert!(ends(&foreign.device.sends).ends_with(&wanted[1..]));
}

#[test]
fn what_was_framed_and_not_taken_is_flushed() {
    let mut foreign = Foreign::new(IRD);
    for wr_id in 1..=3 {
        foreign.post(wr_id, WRITE, Payload::Inline(b"octets"));
    }
    foreign.qp.stream_ended(&mut foreign.device);
    let flushed = [1, 2, 3].map(|wr_id| (wr_id, WcStatus::Flushed));
    assert_eq!(ends(&foreign.device.sends), flushed);
}

/// FPDUs of Writes, one behind the other.
fn writes(foreign: &mut Foreign, targets: &[(Stag, u64)], payload: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    for target in targets {
        octets.extend(foreign.fpdu_of_write(*target, payload));
    }
    octets
}

#[test]
fn of_many_writes_in_one_buffer_those_before_a_wrong_one_are_placed() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(64, 0x1000, ALL, 1);
    let targets = [0x1000, 0x1010, 0x103D, 0x1020].map(|to| (region, to));
    let mut octets = writes(&mut foreign, &targets, b"four");
    let before = *foreign.qp.counters();
    foreign.qp.receive(&mut octets, &mut foreign.device);
    assert_eq!(foreign.fault(), Some(PeerFault::TaggedBounds));
    let placed = foreign.device.octets(region).to_vec();
    assert_eq!(
        (&placed[..4], &placed[0x10..0x14]),
        (&b"four"[..], &b"four"[..])
    );
    assert_eq!(placed.iter().filter(|o| **o != 0).count(), 8);
    let counters = *foreign.qp.counters();
    assert_eq!(counters.octets_placed - before.octets_placed, 8);
    assert_eq!(counters.segments_in - before.segments_in, 3);
}

#[test]
fn writes_that_come_in_pieces_are_all_placed() {
    for cut in 1..60 {
        let mut foreign = Foreign::new(IRD);
        let region = foreign.device.region(64, 0, ALL, 1);
        let targets = [0, 5, 10, 15].map(|to| (region, to));
        let octets = writes(&mut foreign, &targets, b"fives");
        let (mut staged, rest) = (octets[..cut].to_vec(), &octets[cut..]);
        let first = foreign.qp.receive(&mut staged, &mut foreign.device);
        let mut left = staged[first.consumed..].to_vec();
        left.extend_from_slice(rest);
        let second = foreign.qp.receive(&mut left, &mut foreign.device);
        assert_eq!(
            (first.consumed + second.consumed, foreign.is_open()),
            (octets.len(), true)
        );
        assert_eq!(
            foreign.device.octets(region)[..20],
            *b"fivesfivesfivesfives"
        );
    }
}

#[test]
fn a_write_within_a_message_is_the_fault_that_it_is() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(64, 0, ALL, 1);
    foreign.tagged(Opcode::WRITE, (region, 0), false, b"part");
    foreign.write((region, 32), b"other");
    assert!(!foreign.is_open());
    assert_eq!(foreign.device.octets(region)[32..37], [0; 5]);
}

#[test]
fn a_message_that_is_longer_than_a_segment_is_framed_in_several() {
    for op in [SendOp::Send, WRITE] {
        let mut foreign = Foreign::new(IRD);
        foreign.qp.set_emss(300);
        let region = foreign.device.region(1000, 0, ALL, 1);
        foreign.post(1, op, Payload::Gather(&[sge(region, 0, 1000)]));
        assert_eq!(waits(&foreign), 0);
        let segments = foreign.segments();
        assert!(segments.iter().all(|(_, octets)| octets.len() < 300));
        let octets: usize = segments.iter().map(|(_, octets)| octets.len()).sum();
        assert_eq!(octets, 1000);
    }
}

#[test]
fn behind_a_fault_nothing_is_placed() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(64, 0, ALL, 1);
    foreign.write((region, 63), b"beyond");
    assert!(!foreign.is_open());
    foreign.write((region, 0), b"late");
    assert_eq!(foreign.device.octets(region), [0; 64]);
}
