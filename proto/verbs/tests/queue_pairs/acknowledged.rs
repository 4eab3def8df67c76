//! Writes of queue pairs that the program brings up itself: complete when they are placed.

use crate::foreign_peer::{responder, Foreign, IRD};
use crate::pair::{post, recv, sge, time_out, Config, Pair, ALL};
use weft_verbs::iwarp::{Established, Opcode};
use weft_verbs::qp::Qp;
use weft_verbs::types::{Payload, SendFlags, SendOp, SendRequest, Sge, Stag, WcStatus};

fn out_of_band() -> Config {
    Config {
        out_of_band: true,
        ..Config::default()
    }
}

fn write_to(rkey: Stag, remote_addr: u64) -> SendOp {
    SendOp::Write { remote_addr, rkey }
}

#[test]
fn a_write_is_complete_when_its_last_octet_is_placed() {
    for (len, ord) in [(1, 4), (5000, 4), (60_000, 0)] {
        let config = Config {
            ord,
            ird: ord,
            ..out_of_band()
        };
        let mut pair = Pair::new(config, 1);
        let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(60_000, 0, ALL, 3));
        pair.ends[0].device.octets(a).fill(7);
        let gather = [sge(a, 0, len)];
        post(&mut pair, 0, 1, write_to(b, 0), Payload::Gather(&gather));
        let mut waited = false;
        for _ in 0..10_000 {
            pair.step();
            let placed = pair.ends[1].device.octets(b)[len as usize - 1] == 7;
            let done = !pair.ends[0].device.sends.is_empty();
            assert!(placed || !done, "complete, and not placed");
            let all_sent = pair.ends[0].qp.outgoing().queued() == 0;
            waited |= all_sent && !done;
            if done {
                break;
            }
        }
        assert!(waited, "the transport had it before");
        assert_eq!(pair.ends[0].device.sends.len(), 1, "{len} octets");
    }
}

#[test]
fn one_request_speaks_for_many_writes_and_order_is_kept() {
    let mut pair = Pair::new(out_of_band(), 2);
    let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(10_000, 0, ALL, 3));
    for wr_id in 0..20 {
        let gather = [sge(a, 0, 100)];
        let op = match wr_id % 5 {
            4 => SendOp::Read {
                remote_addr: 0,
                rkey: b,
            },
            _ => write_to(b, 100 * wr_id),
        };
        post(&mut pair, 0, wr_id, op, Payload::Gather(&gather));
    }
    pair.drive();
    let ids: Vec<u64> = pair.ends[0].device.sends.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, (0..20).collect::<Vec<u64>>());
    assert!(!pair.ends[0].qp.wants_to_send());
}

#[test]
fn a_refused_write_has_the_status_itself() {
    let mut pair = Pair::new(out_of_band(), 3);
    let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(1000, 0, ALL, 3));
    let gather = [sge(a, 0, 100)];
    post(&mut pair, 0, 1, write_to(b, 0), Payload::Gather(&gather));
    post(&mut pair, 0, 2, write_to(b, 950), Payload::Gather(&gather));
    post(&mut pair, 0, 3, write_to(b, 0), Payload::Gather(&gather));
    pair.drive();
    let seen: Vec<_> = pair.ends[0]
        .device
        .sends
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    let wanted = [
        (1, WcStatus::Success),
        (2, WcStatus::RemoteAccess),
        (3, WcStatus::Flushed),
    ];
    assert_eq!(seen, wanted);
}

#[test]
fn with_the_connection_manager_a_write_is_complete_when_the_transport_has_it() {
    let mut pair = Pair::new(Config::default(), 4);
    let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(1000, 0, ALL, 3));
    let gather = [sge(a, 0, 100)];
    post(&mut pair, 0, 1, write_to(b, 0), Payload::Gather(&gather));
    let before = pair.now;
    while pair.ends[0].device.sends.is_empty() {
        pair.step();
        assert!(pair.now - before < pair.latency * 40);
    }
}

#[test]
fn of_uc_and_where_the_program_wants_it_so_no_write_is_asked_for() {
    let ways: [fn(&mut Qp); 2] = [|qp| qp.set_unreliable(true), |qp| qp.set_acknowledge(false)];
    for way in ways {
        let mut pair = Pair::new(out_of_band(), 4);
        way(&mut pair.ends[0].qp);
        let b = pair.ends[1].device.region(8, 0, ALL, 3);
        pair.drive();
        let before = pair.ends[1].qp.counters().segments_out;
        post(&mut pair, 0, 1, write_to(b, 0), Payload::Inline(b"x"));
        pair.drive();
        assert_eq!(pair.ends[0].device.sends[0].status, WcStatus::Success);
        let after = pair.ends[1].qp.counters().segments_out;
        assert_eq!(after, before, "nobody was asked");
    }
}

/// The question behind a Write waits for the end of the Read that is all the peer allows.
#[test]
fn an_acknowledgement_request_is_due_when_there_is_room_for_it() {
    let mut foreign = Foreign::out_of_band(&Established {
        ord: 1,
        ..responder(IRD)
    });
    let sink = foreign.device.region(8, 0, ALL, 1);
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: Stag(7),
    };
    foreign.post(1, read, Payload::Gather(&[sge(sink, 0, 8)]));
    foreign.post(2, write_to(Stag(7), 0), Payload::Inline(b"x"));
    assert_eq!(foreign.segments().len(), 2);
    assert!(!foreign.qp.wants_to_send() && !foreign.qp.awaits_acknowledgement());

    foreign.tagged(Opcode::READ_RESPONSE, (sink, 0), true, &[7; 8]);
    assert!(foreign.qp.wants_to_send());
    assert_eq!(foreign.segments().len(), 1, "the acknowledgement request");
    assert!(foreign.qp.awaits_acknowledgement() && foreign.device.sends.len() == 1);
    foreign.tagged(Opcode::READ_RESPONSE, (Stag::RTR, 0), true, &[]);
    assert!(!foreign.qp.awaits_acknowledgement() && foreign.device.sends.len() == 2);
}

#[test]
fn a_queue_pair_that_ends_asks_nothing_more() {
    let mut foreign = Foreign::out_of_band(&responder(IRD));
    foreign.post(1, write_to(Stag(7), 0), Payload::Inline(b"x"));
    assert_eq!(
        foreign.segments().len(),
        2,
        "the Write and the acknowledgement request"
    );
    foreign.qp.disconnect(&mut foreign.device);
    assert!(foreign.segments().is_empty());
}

/// Posts a request that asks for no completion.
fn post_unsignalled(pair: &mut Pair, op: SendOp, gather: &[Sge]) {
    let end = &mut pair.ends[0];
    let request = SendRequest {
        wr_id: 0,
        op,
        flags: SendFlags::default(),
        payload: Payload::Gather(gather),
    };
    end.qp
        .post_send(&request, &mut end.device)
        .expect("room in the queue");
}

#[test]
fn nothing_is_asked_for_writes_that_no_completion_waits_for() {
    let mut pair = Pair::new(out_of_band(), 5);
    let [a, b] = [0, 1].map(|side| pair.ends[side].device.region(1000, 0, ALL, 3));
    let gather = [sge(a, 0, 100)];
    pair.drive();
    let before = pair.ends[1].qp.counters().segments_out;
    for at in 0..10 {
        post_unsignalled(&mut pair, write_to(b, 100 * at), &gather);
    }
    pair.drive();
    assert_eq!(
        pair.ends[1].qp.counters().segments_out,
        before,
        "nobody was asked"
    );
    // A completion behind them speaks for them, whatever it is the completion of.
    recv(&mut pair, 1, 10, &[sge(b, 0, 100)]);
    post(&mut pair, 0, 7, SendOp::Send, Payload::Inline(b"done"));
    pair.drive();
    let done: Vec<u64> = pair.ends[0].device.sends.iter().map(|c| c.wr_id).collect();
    assert_eq!(done, [7]);
    assert_eq!(pair.ends[1].qp.counters().segments_out, before + 1);
}

/// Two ends of which the first bounds how often its Sends may find no receive.
fn bounded(retries: u8, seed: u64) -> Pair {
    let mut pair = Pair::new(out_of_band(), seed);
    pair.ends[0].qp.set_rnr_retries(Some(retries));
    pair
}

#[test]
fn a_send_with_bounded_retries_is_complete_when_it_is_received() {
    let mut pair = bounded(3, 6);
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b"patience"));
    pair.drive();
    assert!(pair.ends[0].device.sends.is_empty(), "it waits over there");
    assert_eq!(pair.ends[1].qp.rnr_retries_of_peer(), Some(3));
    assert!(pair.ends[1].qp.holding().is_some());
    let region = pair.ends[1].device.region(100, 0, ALL, 3);
    recv(&mut pair, 1, 10, &[sge(region, 0, 100)]);
    pair.drive();
    assert_eq!(pair.ends[0].device.sends[0].status, WcStatus::Success);
    assert_eq!(pair.ends[1].device.recvs[0].byte_len, 8);
}

#[test]
fn the_send_that_found_no_receive_is_the_one_that_fails() {
    for seed in 0..50 {
        let mut pair = bounded(0, seed);
        let region = pair.ends[1].device.region(100, 0, ALL, 3);
        for wr_id in 0..3 {
            recv(&mut pair, 1, wr_id, &[sge(region, 0, 100)]);
        }
        for wr_id in 0..6 {
            post(&mut pair, 0, wr_id, SendOp::Send, Payload::Inline(b"one"));
        }
        pair.drive();
        assert!(pair.ends[1].qp.holding().is_some());
        let end = &mut pair.ends[1];
        time_out(&mut end.qp, &mut end.device);
        pair.drive();
        let seen: Vec<_> = pair.ends[0]
            .device
            .sends
            .iter()
            .map(|c| (c.wr_id, c.status))
            .collect();
        let (good, failed) = (WcStatus::Success, WcStatus::RnrRetryExceeded);
        let flushed = WcStatus::Flushed;
        let wanted = [good, good, good, failed, flushed, flushed];
        let wanted: Vec<_> = (0..).zip(wanted).collect();
        assert_eq!(seen, wanted, "seed {seed}");
    }
}
