//! Queue pairs of type UC: messages are lost, the connection is not.

use crate::pair::{post, recv, sge, time_out, Config, Pair, ALL};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{
    Payload, PostError, QpState, SendFlags, SendOp, SendRequest, Stag, WcOpcode, WcStatus,
};

fn pair(crc: bool) -> (Pair, [Stag; 2]) {
    let config = Config {
        crc,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 1);
    for end in &mut pair.ends {
        end.qp.set_unreliable(true);
    }
    let regions = [0, 1].map(|side| pair.ends[side].device.region(20_000, 0, ALL, 3));
    pair.ends[0].device.octets(regions[0]).fill(7);
    (pair, regions)
}

fn is_well(pair: &Pair) {
    for end in &pair.ends {
        assert_eq!(end.qp.state(), QpState::Rts);
        assert!(end.device.async_events.is_empty());
        end.device.check_canaries();
    }
}

#[test]
fn a_send_without_a_receive_is_lost() {
    for crc in [false, true] {
        let (mut pair, [a, b]) = pair(crc);
        let long = [sge(a, 0, 9000)];
        post(&mut pair, 0, 1, SendOp::Send, Payload::Gather(&long));
        let imm = SendOp::SendWithImm { imm: 5 };
        post(&mut pair, 0, 2, imm, Payload::Inline(b"lost too"));
        pair.drive();
        assert_eq!(pair.ends[1].qp.holding(), None);
        recv(&mut pair, 1, 10, &[sge(b, 0, 9000)]);
        post(&mut pair, 0, 3, SendOp::Send, Payload::Inline(b"heard"));
        pair.drive();
        let heard = pair.ends[1].device.recvs[0];
        assert_eq!((heard.wr_id, heard.byte_len, heard.imm), (10, 5, None));
        assert_eq!(pair.ends[0].device.sends.len(), 3);
        is_well(&pair);
    }
}

#[test]
fn so_is_an_immediate_value_and_its_write_is_placed() {
    let (mut pair, [_, b]) = pair(false);
    let write = SendOp::WriteWithImm {
        remote_addr: 0,
        rkey: b,
        imm: 5,
    };
    post(&mut pair, 0, 1, write, Payload::Inline(b"placed"));
    pair.drive();
    assert_eq!(pair.ends[1].qp.holding(), None);
    assert_eq!(&pair.ends[1].device.octets(b)[..6], b"placed");
    is_well(&pair);
}

/// Nobody tells the queue pair of receives that are posted there.
#[test]
fn a_shared_queue_is_waited_for_from_the_beginning() {
    let config = Config {
        shared_receive: true,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 1);
    pair.ends[1].qp.set_unreliable(true);
    pair.ends[1].device.srq = Some(SharedReceiveQueue::new(1, 1));
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b"x"));
    pair.drive();
    assert!(pair.ends[1].qp.holding().is_some());
    is_well(&pair);
}

#[test]
fn a_queue_that_ran_empty_is_waited_for_and_then_the_messages_are_lost() {
    let (mut pair, [a, b]) = pair(false);
    recv(&mut pair, 1, 10, &[sge(b, 0, 9000)]);
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b"one"));
    let long = [sge(a, 0, 9000)];
    post(&mut pair, 0, 2, SendOp::Send, Payload::Gather(&long));
    pair.drive();
    assert!(pair.ends[1].qp.holding().is_some());
    recv(&mut pair, 1, 11, &[sge(b, 0, 9000)]);
    post(&mut pair, 0, 3, SendOp::Send, Payload::Inline(b"three"));
    pair.drive();
    assert_eq!(pair.ends[1].device.recvs[1].byte_len, 9000);
    assert!(pair.ends[1].qp.holding().is_some());
    let end = &mut pair.ends[1];
    time_out(&mut end.qp, &mut end.device);
    recv(&mut pair, 1, 12, &[sge(b, 0, 9000)]);
    post(&mut pair, 0, 4, SendOp::Send, Payload::Inline(b"four!!"));
    pair.drive();
    assert_eq!(pair.ends[1].device.recvs[2].byte_len, 6);
    is_well(&pair);
}

#[test]
fn a_send_that_is_given_up_in_its_middle_is_lost_to_its_end() {
    let (mut pair, [a, b]) = pair(false);
    recv(&mut pair, 1, 10, &[]);
    post(&mut pair, 0, 1, SendOp::Send, Payload::Inline(b""));
    pair.drive();
    let long = [sge(a, 0, 20_000)];
    post(&mut pair, 0, 2, SendOp::Send, Payload::Gather(&long));
    let mut steps = 0;
    while pair.ends[1].qp.holding().is_none() {
        pair.step();
        steps += 1;
        assert!(steps < 10_000, "the first segment came");
    }
    let end = &mut pair.ends[1];
    // The pause in receiving ends before the wait does.
    while end.qp.holding().is_some() {
        time_out(&mut end.qp, &mut end.device);
    }
    pair.drive();
    recv(&mut pair, 1, 11, &[sge(b, 0, 20_000)]);
    post(&mut pair, 0, 3, SendOp::Send, Payload::Inline(b"next"));
    pair.drive();
    let heard = pair.ends[1].device.recvs[1];
    assert_eq!((heard.wr_id, heard.byte_len), (11, 4));
    is_well(&pair);
}

#[test]
fn a_write_to_a_wrong_place_is_lost_with_its_immediate() {
    for crc in [false, true] {
        let (mut pair, [a, b]) = pair(crc);
        recv(&mut pair, 1, 10, &[]);
        let gather = [sge(a, 0, 9000)];
        for (rkey, remote_addr) in [(Stag(b.0 ^ 1), 0), (b, 15_000)] {
            let write = SendOp::WriteWithImm {
                remote_addr,
                rkey,
                imm: 1,
            };
            post(&mut pair, 0, 1, write, Payload::Gather(&gather));
            let write = SendOp::Write { remote_addr, rkey };
            post(&mut pair, 0, 2, write, Payload::Gather(&gather));
        }
        pair.drive();
        assert!(pair.ends[1].device.recvs.is_empty());
        let write = SendOp::WriteWithImm {
            remote_addr: 0,
            rkey: b,
            imm: 2,
        };
        post(&mut pair, 0, 5, write, Payload::Gather(&gather));
        pair.drive();
        let told = pair.ends[1].device.recvs[0];
        assert_eq!(
            (told.opcode, told.imm),
            (WcOpcode::RecvWriteWithImm, Some(2))
        );
        assert_eq!(told.byte_len, 9000);
        assert_eq!(pair.ends[1].device.octets(b)[8999], 7);
        let ends: Vec<_> = pair.ends[0].device.sends.iter().map(|c| c.status).collect();
        assert_eq!(ends, [WcStatus::Success; 5]);
        is_well(&pair);
    }
}

/// One that tries STag after STag is not told, but neither is it let go on for ever.
#[test]
fn refused_writes_are_counted_and_one_too_many_ends_the_connection() {
    let (mut pair, [_, b]) = pair(false);
    let guess = |n: u32| SendOp::Write {
        remote_addr: 0,
        rkey: Stag(b.0 ^ (1 + n)),
    };
    for n in 0..16 {
        post(&mut pair, 0, 1, guess(n), Payload::Inline(b"guess"));
        pair.drive();
        let counted = pair.ends[1].qp.counters().refused_accesses;
        assert_eq!(counted, u64::from(n) + 1);
    }
    is_well(&pair);
    post(&mut pair, 0, 1, guess(16), Payload::Inline(b"guess"));
    pair.drive();
    let end = &pair.ends[1];
    assert_eq!(end.qp.state(), QpState::Error);
    assert_eq!(end.qp.counters().refused_accesses, 17);
    end.device.check_canaries();
}

/// A long Write that begins where it may not is lost where it may, too: nobody finds a region by writing across it.
#[test]
fn of_a_refused_write_nothing_more_is_placed() {
    let (mut pair, [a, _]) = pair(false);
    let end = &mut pair.ends[1];
    let far = end.device.region(20_000, 1 << 20, ALL, 3);
    let across = SendOp::Write {
        remote_addr: (1 << 20) - 10_000,
        rkey: far,
    };
    post(
        &mut pair,
        0,
        1,
        across,
        Payload::Gather(&[sge(a, 0, 20_000)]),
    );
    pair.drive();
    let end = &mut pair.ends[1];
    assert!(end.device.octets(far).iter().all(|o| *o == 0));
    assert_eq!(end.qp.counters().refused_accesses, 1);
    is_well(&pair);
}

#[test]
fn nothing_that_is_answered_can_be_posted() {
    let (mut pair, [a, b]) = pair(false);
    let sink = [sge(a, 0, 8)];
    let (remote_addr, rkey) = (0, b);
    for op in [
        SendOp::Read { remote_addr, rkey },
        SendOp::FetchAdd {
            remote_addr,
            rkey,
            add: 1,
        },
    ] {
        let request = SendRequest {
            wr_id: 1,
            op,
            flags: SendFlags::default(),
            payload: Payload::Gather(&sink),
        };
        let end = &mut pair.ends[0];
        let posted = end.qp.post_send(&request, &mut end.device);
        assert_eq!(posted, Err(PostError::Unsupported));
    }
}
