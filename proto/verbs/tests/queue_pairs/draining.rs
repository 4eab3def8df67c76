//! SQD: the send queue at rest.

use crate::foreign::asking;
use crate::foreign_peer::{Foreign, IRD};
use crate::pair::{post, recv, sge, Config, Pair, ALL};
use weft_verbs::iwarp::Opcode;
use weft_verbs::types::{AsyncEventKind, Payload, PostError, QpState, SendOp, WcStatus};

fn drained(pair: &Pair) -> usize {
    let is_it = |k: &&AsyncEventKind| **k == AsyncEventKind::SqDrained;
    pair.ends[0]
        .device
        .async_events
        .iter()
        .filter(is_it)
        .count()
}

#[test]
fn what_is_begun_ends_and_what_is_posted_waits() {
    for seed in 0..50 {
        let mut pair = Pair::new(Config::default(), seed);
        let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(60_000, 0, ALL, 3));
        for wr_id in 0..3 {
            recv(&mut pair, 1, wr_id, &[sge(b, 0, 20_000)]);
        }
        let gather = [sge(a, 0, 20_000)];
        post(&mut pair, 0, 1, SendOp::Send, Payload::Gather(&gather));
        post(&mut pair, 0, 2, SendOp::Send, Payload::Gather(&gather));
        for _ in 0..seed % 12 {
            pair.step();
        }
        let end = &mut pair.ends[0];
        end.qp.drain(true, &mut end.device).expect("from RTS");
        assert_eq!(end.qp.state(), QpState::Sqd);
        post(&mut pair, 0, 3, SendOp::Send, Payload::Gather(&gather));
        pair.drive();
        assert!(!pair.ends[0].qp.is_draining());
        assert!(!pair.ends[0].qp.wants_to_send(), "it rests");
        assert_eq!(drained(&pair), 1, "seed {seed}");
        let done = pair.ends[0].device.sends.len();
        assert!(done < 3 && done == pair.ends[1].device.recvs.len());
        // Receives and the peer's requests go on.
        recv(&mut pair, 0, 9, &[sge(a, 50_000, 100)]);
        post(&mut pair, 1, 8, SendOp::Send, Payload::Inline(b"go on"));
        let read = SendOp::Read {
            remote_addr: 0,
            rkey: a,
        };
        let sink = [sge(b, 30_000, 1000)];
        post(&mut pair, 1, 7, read, Payload::Gather(&sink));
        pair.drive();
        assert_eq!(pair.ends[0].device.recvs.len(), 1);
        assert_eq!(pair.ends[1].device.sends.len(), 2);
        assert_eq!(pair.ends[0].device.sends.len(), done);

        pair.ends[0].qp.resume().expect("from SQD");
        pair.drive();
        let sends = &pair.ends[0].device.sends;
        let seen: Vec<_> = sends.iter().map(|c| (c.wr_id, c.status)).collect();
        let good = WcStatus::Success;
        assert_eq!(seen, [(1, good), (2, good), (3, good)]);
        assert_eq!(drained(&pair), 1);
    }
}

#[test]
fn an_idle_queue_is_at_rest_at_once_and_says_so_only_if_asked() {
    for notify in [false, true] {
        let mut pair = Pair::new(Config::default(), 1);
        pair.drive();
        let end = &mut pair.ends[0];
        assert_eq!(end.qp.resume(), Err(PostError::InvalidState));
        end.qp.drain(notify, &mut end.device).expect("from RTS");
        let again = end.qp.drain(notify, &mut end.device);
        assert_eq!(again, Err(PostError::InvalidState));
        assert_eq!(drained(&pair), usize::from(notify));
    }
}

/// Drains a queue that is not at rest, which nobody is told before it is.
fn drain_under_way(foreign: &mut Foreign) {
    assert!(!foreign.qp.is_draining(), "nobody asked for it");
    let drained = foreign.qp.drain(true, &mut foreign.device);
    drained.expect("from RTS");
    assert!(foreign.qp.is_draining() && foreign.device.async_events.is_empty());
}

fn rests(foreign: &Foreign) -> bool {
    !foreign.qp.is_draining() && foreign.device.async_events == [AsyncEventKind::SqDrained]
}

#[test]
fn a_queue_is_not_at_rest_while_an_answer_is_awaited() {
    let (mut foreign, asked, _) = asking();
    drain_under_way(&mut foreign);
    let sink = (asked.sink_stag, asked.sink_to);
    foreign.tagged(Opcode::READ_RESPONSE, sink, true, &[7; 16]);
    assert!(rests(&foreign));
}

#[test]
fn a_queue_is_not_at_rest_while_a_message_is_sent_in_part() {
    let mut foreign = Foreign::new(IRD);
    let region = foreign.device.region(4000, 0, ALL, 1);
    let gather = [sge(region, 0, 4000)];
    foreign.post(1, SendOp::Send, Payload::Gather(&gather));
    foreign.qp.fill(1, &mut foreign.device);
    drain_under_way(&mut foreign);
    foreign.sent();
    assert!(rests(&foreign));
}

#[test]
fn it_is_no_rest_while_the_peer_has_not_answered() {
    let mut pair = Pair::new(Config::default(), 3);
    pair.drive();
    let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(100, 0, ALL, 3));
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: b,
    };
    post(&mut pair, 0, 1, read, Payload::Gather(&[sge(a, 0, 100)]));
    let end = &mut pair.ends[0];
    end.qp.fill(1000, &mut end.device);
    end.qp.drain(true, &mut end.device).expect("from RTS");
    assert!(end.qp.is_draining());
    assert_eq!(drained(&pair), 0);
    pair.drive();
    assert_eq!(pair.ends[0].device.sends.len(), 1);
    assert_eq!(drained(&pair), 1);
}

#[test]
fn a_queue_at_rest_is_flushed_like_any_other() {
    let mut pair = Pair::new(Config::default(), 2);
    pair.drive();
    let end = &mut pair.ends[0];
    end.qp.drain(false, &mut end.device).expect("from RTS");
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b"never"));
    pair.cut();
    pair.drive();
    assert_eq!(pair.ends[0].device.sends[0].status, WcStatus::Flushed);
    assert_eq!(pair.ends[0].qp.state(), QpState::Error);
}
