//! Messages that find no receive.

use crate::foreign_peer::Foreign;
use crate::pair::{post, recv, sge, time_out, Config, Pair, ALL};
use weft_verbs::iwarp::{Opcode, PeerFault, QueueNumber};
use weft_verbs::qp::{Ending, QpEvent};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{
    AsyncEventKind, Payload, QpState, RecvRequest, SendOp, WcOpcode, WcStatus,
};

#[test]
fn a_message_waits_for_its_receive_and_nothing_overtakes_it_but_writes() {
    for crc in [false, true] {
        let config = Config {
            crc,
            ..Config::default()
        };
        let mut pair = Pair::new(config, 1);
        let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(20_000, 0, ALL, 3));
        pair.ends[0].device.octets(a).fill(7);
        let gather = [sge(a, 0, 9000)];
        post(&mut pair, 0, 1, SendOp::Send, Payload::Gather(&gather));
        let write = SendOp::WriteWithImm {
            remote_addr: 10_000,
            rkey: b,
            imm: 5,
        };
        post(&mut pair, 0, 2, write, Payload::Gather(&gather));
        let send = SendOp::SendWithImm { imm: 6 };
        post(&mut pair, 0, 3, send, Payload::Inline(b"last"));
        let read = SendOp::Read {
            remote_addr: 10_000,
            rkey: b,
        };
        let sink = [sge(a, 10_000, 9000)];
        post(&mut pair, 0, 4, read, Payload::Gather(&sink));
        // The end that holds reads itself meanwhile.
        let back = SendOp::Read {
            remote_addr: 0,
            rkey: a,
        };
        post(
            &mut pair,
            1,
            5,
            back,
            Payload::Gather(&[sge(b, 19_000, 1000)]),
        );
        pair.drive();
        let held = pair.ends[1].qp.holding();
        assert!(held.is_some() && pair.ends[1].device.recvs.is_empty());
        assert_eq!(
            pair.ends[1].device.octets(b)[10_000],
            7,
            "the Write is placed"
        );
        assert_eq!(pair.ends[1].device.sends.len(), 1, "the response came");
        assert_eq!(pair.ends[0].device.sends.len(), 3, "the Read waits");

        recv(&mut pair, 1, 10, &[sge(b, 0, 9000)]);
        pair.drive();
        assert_eq!(pair.ends[1].device.recvs.len(), 1);
        assert!(pair.ends[1]
            .qp
            .holding()
            .is_some_and(|now| Some(now) != held));
        recv(&mut pair, 1, 11, &[]);
        recv(&mut pair, 1, 12, &[sge(b, 9500, 4)]);
        pair.drive();
        assert_eq!(pair.ends[1].qp.holding(), None);
        let seen: Vec<_> = pair.ends[1]
            .device
            .recvs
            .iter()
            .map(|c| (c.wr_id, c.opcode, c.byte_len, c.imm))
            .collect();
        let wanted = [
            (10, WcOpcode::Recv, 9000, None),
            (11, WcOpcode::RecvWriteWithImm, 9000, Some(5)),
            (12, WcOpcode::Recv, 4, Some(6)),
        ];
        assert_eq!(seen, wanted);
        assert!(pair.ends[1].device.octets(b)[..9000]
            .iter()
            .all(|o| *o == 7));
        assert_eq!(&pair.ends[1].device.octets(b)[9500..9504], b"last");
        assert_eq!(pair.ends[0].device.sends.len(), 4);
        pair.ends[1].device.check_canaries();
    }
}

#[test]
fn an_atomic_behind_a_held_message_is_carried_out_after_it() {
    let mut foreign = Foreign::weft();
    let cell = foreign.device.region(8, 0, ALL, 1);
    foreign.send();
    foreign.add((cell, 0));
    foreign.sent();
    assert_eq!(*foreign.device.octets(cell), [0; 8]);
    foreign.recv(1, &[]);
    foreign.sent();
    assert_eq!(*foreign.device.octets(cell), 1u64.to_ne_bytes());
}

/// The wire allows requests between the segments of a Send.
#[test]
fn a_held_message_is_whole_however_requests_come_between_its_segments() {
    for late in [false, true] {
        let mut foreign = Foreign::weft();
        let region = foreign.device.region(64, 0, ALL, 1);
        let msn = foreign.peer.next_msn(QueueNumber::SEND);
        foreign.send_segment(msn, 0, false, b"first, ");
        foreign.ask((region, 0), 8);
        if !late {
            foreign.send_segment(msn, 7, true, b"last");
        }
        foreign.recv(1, &[sge(region, 0, 32)]);
        if late {
            foreign.send_segment(msn, 7, true, b"last");
        }
        foreign.recv(2, &[sge(region, 32, 32)]);
        foreign.send_of(b"next");
        let seen: Vec<_> = foreign.device.recvs.iter().map(|c| c.byte_len).collect();
        assert_eq!(seen, [11, 4], "late: {late}");
        assert_eq!(foreign.device.octets(region)[..11], *b"first, last");
        assert_eq!(foreign.segments().len(), 1, "the response");
    }
}

#[test]
fn the_wait_ends_in_a_terminate_that_says_why() {
    let mut pair = Pair::new(Config::default(), 2);
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b"x"));
    pair.drive();
    assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
    let end = &mut pair.ends[1];
    time_out(&mut end.qp, &mut end.device);
    pair.drive();
    let [a, b] = &pair.ends;
    let is = |e: &QpEvent| matches!(e, QpEvent::PeerFault(f) if f.fault == PeerFault::NoBuffer);
    assert!(b.events.iter().any(is));
    assert_eq!(b.device.async_events, [AsyncEventKind::QpRequestError]);
    assert_eq!(b.qp.holding(), None);
    assert!(a.events.iter().any(|e| matches!(e, QpEvent::Terminated(_))));
    assert_eq!(a.qp.state(), QpState::Error);
}

#[test]
fn a_held_message_that_is_too_long_fails_its_receive() {
    let mut pair = Pair::new(Config::default(), 3);
    let target = pair.ends[1].device.region(10, 0, ALL, 2);
    post(
        &mut pair,
        0,
        1,
        SendOp::Send,
        Payload::Inline(b"eleven octs"),
    );
    pair.drive();
    recv(&mut pair, 1, 3, &[sge(target, 0, 10)]);
    pair.drive();
    let statuses: Vec<_> = pair.ends[1].device.recvs.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::LocalLength]);
    assert_eq!(pair.ends[1].qp.state(), QpState::Error);
    let is =
        |e: &QpEvent| matches!(e, QpEvent::PeerFault(f) if f.fault == PeerFault::MessageTooLong);
    assert!(pair.ends[1].events.iter().any(is), "as without a wait");
    pair.ends[1].device.check_canaries();
}

#[test]
fn a_shared_queue_lets_go_when_it_is_told() {
    let config = Config {
        shared_receive: true,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 4);
    pair.ends[1].device.srq = Some(SharedReceiveQueue::new(4, 1));
    for _ in 0..3 {
        post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(&[]));
    }
    pair.drive();
    let end = &mut pair.ends[1];
    let srq = end.device.srq.as_mut().expect("a shared queue");
    for wr_id in 0..2 {
        let request = RecvRequest {
            wr_id,
            scatter: &[],
        };
        srq.push(&request).expect("room");
    }
    end.qp.on_receives(&mut end.device);
    let ids: Vec<u64> = end.device.recvs.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, [0, 1]);
    assert!(end.qp.holding().is_some(), "the third still waits");
}

/// Two messages wait at end 1, and the connection ends there.
fn with_two_held(config: Config, end: fn(&mut Pair)) -> Pair {
    let mut pair = Pair::new(config, 5);
    for text in [b"one", b"two"] {
        post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(text));
    }
    pair.drive();
    assert_eq!(pair.ends[0].device.sends.len(), 2, "complete");
    end(&mut pair);
    pair.drive();
    pair
}

fn disconnect(pair: &mut Pair, side: usize) {
    let end = &mut pair.ends[side];
    end.qp.disconnect(&mut end.device);
}

/// FIN and reset: what is complete for the sender is received, whenever the receives come, and the end is told behind
/// it.
#[test]
fn what_is_held_outlives_the_connection() {
    let ends: [fn(&mut Pair); 2] = [|pair| disconnect(pair, 0), Pair::cut];
    for end in ends {
        let mut pair = with_two_held(Config::default(), end);
        assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
        assert_eq!(pair.ends[1].qp.ending(), Ending::HalfClosed);
        let target = pair.ends[1].device.region(64, 0, ALL, 2);
        for wr_id in 10..13 {
            recv(&mut pair, 1, wr_id, &[sge(target, 8 * (wr_id - 10), 8)]);
            pair.drive();
        }
        let b = &mut pair.ends[1];
        let seen: Vec<_> = b.device.recvs.iter().map(|c| (c.wr_id, c.status)).collect();
        let wanted = [
            (10, WcStatus::Success),
            (11, WcStatus::Success),
            (12, WcStatus::Flushed),
        ];
        assert_eq!(seen, wanted);
        assert_eq!(&b.device.octets(target)[..3], b"one");
        assert_eq!(&b.device.octets(target)[8..11], b"two");
        assert_eq!((b.qp.state(), b.qp.holding()), (QpState::Error, None));
        assert!(b.ended && b.device.async_events.is_empty());
    }
}

#[test]
fn the_wait_of_what_outlives_its_connection_ends() {
    let mut pair = with_two_held(Config::default(), |pair| disconnect(pair, 0));
    recv(&mut pair, 1, 10, &[]);
    // Too short for its message: a fault, and the end.
    assert_eq!(pair.ends[1].device.recvs[0].status, WcStatus::LocalLength);
    let mut pair = with_two_held(Config::default(), |pair| disconnect(pair, 0));
    let end = &mut pair.ends[1];
    time_out(&mut end.qp, &mut end.device);
    pair.drive();
    let end = &pair.ends[1];
    assert!(end.events.contains(&QpEvent::Unreceived(2)));
    assert!(end.ended && end.qp.state() == QpState::Error);
    assert!(end.device.async_events.is_empty(), "the peer did no wrong");
}

/// Nobody waits for the answers, so they are no messages that are lost either.
#[test]
fn requests_behind_what_is_held_end_with_the_connection() {
    let mut foreign = Foreign::weft();
    let region = foreign.device.region(8, 0, ALL, 1);
    foreign.send();
    foreign.ask((region, 0), 8);
    assert!(!foreign.qp.stream_ended(&mut foreign.device));
    time_out(&mut foreign.qp, &mut foreign.device);
    let told = std::iter::from_fn(|| foreign.qp.poll_event()).last();
    assert_eq!(told, Some(QpEvent::Unreceived(1)));
}

#[test]
fn a_program_may_send_and_end_while_it_still_receives() {
    let mut pair = with_two_held(Config::default(), |pair| disconnect(pair, 0));
    post(&mut pair, 1, 7, SendOp::Send, Payload::Inline(b"late"));
    pair.drive();
    let sent: Vec<_> = pair.ends[1].device.sends.iter().map(|c| c.status).collect();
    assert_eq!(sent, [WcStatus::Success], "this direction is open");
    disconnect(&mut pair, 1);
    pair.drive();
    let end = &mut pair.ends[1];
    assert_eq!((end.qp.state(), end.qp.holding()), (QpState::Error, None));
    assert!(end.ended);
    let request = RecvRequest {
        wr_id: 9,
        scatter: &[],
    };
    end.qp.post_recv(&request, &mut end.device).expect("taken");
    assert_eq!(end.device.recvs[0].status, WcStatus::Flushed);
}

/// A queue pair that the program brings up itself waits for another stream, after it has what the last one left.
#[test]
fn by_gid_the_queue_pair_survives_behind_what_was_held() {
    let config = Config {
        out_of_band: true,
        ..Config::default()
    };
    let mut pair = with_two_held(config, |pair| disconnect(pair, 0));
    assert!(!pair.ends[1].ended);
    let target = pair.ends[1].device.region(64, 0, ALL, 2);
    for wr_id in 10..13 {
        recv(&mut pair, 1, wr_id, &[sge(target, 0, 8)]);
    }
    pair.drive();
    let b = &pair.ends[1];
    assert_eq!(b.device.recvs.len(), 2, "and the third waits on");
    assert!(b.ended && b.qp.state() == QpState::Rts && b.qp.takes_stream());
}

/// A message that had not arrived whole is not complete for its sender either, and takes no receive.
#[test]
fn what_was_cut_off_is_not_waited_for() {
    let mut pair = Pair::new(Config::default(), 8);
    let source = pair.ends[0].device.region(60_000, 0, ALL, 3);
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b"whole"));
    let gather = [sge(source, 0, 60_000)];
    post(&mut pair, 0, 2, SendOp::Send, Payload::Gather(&gather));
    while pair.ends[1].qp.holding().is_none() || pair.ends[1].qp.counters().segments_in < 5 {
        pair.step();
    }
    pair.cut();
    pair.drive();
    assert_eq!(pair.ends[1].qp.ending(), Ending::HalfClosed);
    let target = pair.ends[1].device.region(8, 0, ALL, 2);
    for wr_id in [10, 11] {
        recv(&mut pair, 1, wr_id, &[sge(target, 0, 8)]);
    }
    pair.drive();
    let statuses: Vec<_> = pair.ends[1].device.recvs.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::Success, WcStatus::Flushed]);
}

/// A receiver that is behind leaves the rest in its transport, for a moment and while it waits for nothing.
#[test]
fn receiving_pauses_while_messages_wait() {
    let mut pair = Pair::new(Config::default(), 8);
    let target = pair.ends[1].device.region(64, 0, ALL, 2);
    let source = pair.ends[0].device.region(64, 0, ALL, 3);
    let pauses = |pair: &Pair| pair.ends[1].qp.pauses();
    for wr_id in 0..20 {
        post(&mut pair, 0, wr_id, SendOp::Send, Payload::Inline(b"later"));
    }
    pair.drive();
    assert!(pauses(&pair));

    // The answer to what the program asked for stands behind the messages.
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: source,
    };
    post(
        &mut pair,
        1,
        50,
        read,
        Payload::Gather(&[sge(target, 0, 8)]),
    );
    assert!(!pauses(&pair));
    pair.drive();
    assert_eq!(pair.ends[1].device.sends.len(), 1, "the Read is answered");
    assert!(pauses(&pair));

    // The program posts nothing for a while: it has to hear what else there is.
    let end = &mut pair.ends[1];
    time_out(&mut end.qp, &mut end.device);
    assert!(!end.qp.pauses() && end.qp.holding().is_some());
    recv(&mut pair, 1, 100, &[sge(target, 0, 8)]);
    assert!(pauses(&pair), "the program is behind, and posts");
    for wr_id in 101..120 {
        assert!(pauses(&pair), "{wr_id}");
        recv(&mut pair, 1, wr_id, &[sge(target, 0, 8)]);
    }
    assert!(!pauses(&pair));
    assert_eq!(pair.ends[1].device.recvs.len(), 20);
}

/// A driver stops receiving when enough is held; even one that does not stop holds no more than a bound.
#[test]
fn how_much_is_held_is_bounded() {
    let mut pair = Pair::new(Config::default(), 6);
    let source = pair.ends[0].device.region(1 << 20, 0, ALL, 3);
    let gather = [sge(source, 0, 1 << 20)];
    post(&mut pair, 0, 1, SendOp::Send, Payload::Gather(&gather));
    pair.drive();
    assert!(pair.ends[1].qp.is_full(), "a megabyte is enough");
    for wr_id in 2..=15 {
        post(&mut pair, 0, wr_id, SendOp::Send, Payload::Gather(&gather));
    }
    pair.drive();
    assert_eq!(pair.ends[1].qp.state(), QpState::Rts);
    for wr_id in 16..=17 {
        post(&mut pair, 0, wr_id, SendOp::Send, Payload::Gather(&gather));
    }
    pair.drive();
    assert_eq!(pair.ends[1].qp.state(), QpState::Error);
    let is = |e: &QpEvent| matches!(e, QpEvent::PeerFault(f) if f.fault == PeerFault::NoBuffer);
    assert!(pair.ends[1].events.iter().any(is));
}

/// The receive is posted while the message's one segment arrives.
#[test]
fn a_held_message_that_is_longer_than_its_receive_is_an_error_however_much_of_it_has_come() {
    for room in [20, 60, 99, 100] {
        let mut foreign = Foreign::weft();
        let region = foreign.device.region(100, 0, ALL, 1);
        let header = foreign.untagged(Opcode::SEND, QueueNumber::SEND);
        foreign.arrive_in_part(header, &[7; 100], 40);
        assert!(foreign.qp.holding().is_some(), "{room}");
        foreign.recv(1, &[sge(region, 0, room)]);
        if room == 100 {
            assert!(foreign.device.recvs.is_empty(), "the rest is to come");
            assert_eq!(foreign.qp.outstanding(), 40);
            continue;
        }
        let ends: Vec<_> = foreign.device.recvs.iter().map(|c| c.status).collect();
        assert_eq!(ends, [WcStatus::LocalLength], "{room}");
        let fault = foreign.fault().expect("a fault");
        assert_eq!(fault, PeerFault::MessageTooLong);
    }
}
