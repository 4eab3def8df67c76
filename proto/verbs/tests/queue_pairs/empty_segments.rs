//! Messages that begin with segments of no octets: the offset behind one is 0 again, and the message is still one.

use crate::pair::{recv, sge, start_up, Config, Pair, ALL};
use weft_verbs::iwarp::{Header, Opcode, Outbound, QueueNumber, Untagged};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{QpState, RecvRequest, WcStatus};

/// The FPDUs of a Send: so many empty segments, and a last one.
fn send_behind(empty: usize, payload: &[u8], config: &Config) -> Vec<u8> {
    let [initiator, _] = start_up(config);
    let mut outbound = Outbound::new(&initiator, 1448);
    let msn = outbound.next_msn(QueueNumber::SEND);
    let mut octets = Vec::new();
    for segment in 0..=empty {
        let last = segment == empty;
        let payload = if last { payload } else { &[] };
        let header = Header::Untagged(Untagged {
            last,
            opcode: Opcode::SEND,
            invalidate: 0,
            qn: QueueNumber::SEND,
            msn,
            mo: 0,
        });
        let start = outbound.begin(&mut octets, &header, &[], payload.len());
        octets.extend_from_slice(payload);
        outbound.seal(&mut octets, start);
    }
    octets
}

/// Three receives, before the message or behind it: one has the message, and each completes once.
fn takes_one_receive(unreliable: bool, late: bool, crc: bool) {
    let config = Config {
        crc,
        ..Config::default()
    };
    for empty in [1, 2, 5] {
        let mut pair = Pair::new(config, 1);
        pair.drive();
        pair.ends[1].qp.set_unreliable(unreliable);
        let target = pair.ends[1].device.region(64, 0, ALL, 3);
        let receives = |pair: &mut Pair| {
            for wr_id in 10..13 {
                recv(pair, 1, wr_id, &[sge(target, 0, 8)]);
            }
        };
        if !late {
            receives(&mut pair);
        }
        pair.inject(1, &send_behind(empty, b"abc", &config));
        pair.drive();
        if late {
            receives(&mut pair);
            pair.drive();
        }
        let end = &mut pair.ends[1];
        assert_eq!(end.qp.state(), QpState::Rts);
        let seen: Vec<_> = end
            .device
            .recvs
            .iter()
            .map(|c| (c.wr_id, c.byte_len))
            .collect();
        assert_eq!(seen, [(10, 3)], "{empty} empty segments");
        end.qp.modify(QpState::Error, &mut end.device).expect("ERR");
        let ids: Vec<_> = end.device.recvs.iter().map(|c| c.wr_id).collect();
        assert_eq!(ids, [10, 11, 12], "each once");
        end.device.check_canaries();
    }
}

#[test]
fn a_message_takes_one_receive_however_it_begins() {
    for crc in [false, true] {
        for unreliable in [false, true] {
            takes_one_receive(unreliable, false, crc);
        }
    }
}

#[test]
fn so_does_one_that_waited_for_its_receive() {
    for crc in [false, true] {
        takes_one_receive(false, true, crc);
    }
}

#[test]
fn a_stranger_empties_no_shared_queue() {
    let config = Config {
        shared_receive: true,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 2);
    pair.drive();
    let mut srq = SharedReceiveQueue::new(8, 1);
    for wr_id in 0..8 {
        let request = RecvRequest {
            wr_id,
            scatter: &[],
        };
        srq.push(&request).expect("room");
    }
    pair.ends[1].device.srq = Some(srq);
    pair.inject(1, &send_behind(100, b"", &config));
    pair.drive();
    let end = &mut pair.ends[1];
    let seen: Vec<_> = end
        .device
        .recvs
        .iter()
        .map(|c| (c.wr_id, c.status))
        .collect();
    assert_eq!(seen, [(0, WcStatus::Success)]);
    let left = end.device.srq.as_mut().expect("made").pop().0;
    assert_eq!(left.expect("seven are left").wr_id, 1);
}

/// A queue pair that the program brings up itself loses its stream in the middle of a message, and takes another: the
/// receive is the next message's.
#[test]
fn a_receive_outlives_the_stream_that_ended_in_its_message() {
    let config = Config {
        out_of_band: true,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 3);
    pair.drive();
    let target = pair.ends[1].device.region(64, 0, ALL, 3);
    for wr_id in [10, 11] {
        recv(&mut pair, 1, wr_id, &[sge(target, 0, 8)]);
    }
    let message = send_behind(1, b"abc", &config);
    let begun = message.len() - send_behind(0, b"abc", &config).len();
    pair.inject(1, &message[..begun]);
    pair.drive();
    let end = &mut pair.ends[1];
    end.qp.forget_stream();
    end.qp.modify(QpState::Error, &mut end.device).expect("ERR");
    let ids: Vec<_> = end.device.recvs.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, [10, 11], "each once, in order");
}
