//! A sender that is done and leaves: what was complete for it is received, whenever the receives come.

mod common;

use std::time::Duration;

use common::{pair, sge, End, ALL};
use weft_engine::cm::EventKind;
use weft_engine::types::{
    Access, Payload, QpState, RecvRequest, SendFlags, SendOp, SendRequest, WcStatus,
};
use weft_engine::Mr;

/// Messages of 64 KiB: more than the 1 MiB that a receiver without receives holds, and with that no more than any
/// transport takes (a ring 256 KiB, the kernel's TCP some MiB).
const LARGE_MESSAGES: usize = 18;

/// The octets of the `number`th message.
fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 7 + at) as u8).collect()
}

/// Sends `count` messages and waits until each is complete.
fn send_all(end: &End, count: usize, len: usize) {
    let source = end.memory(count * len, Access::NONE);
    for number in 0..count {
        let at = (number * len) as u64;
        source.memory().write(at, &pattern(number, len)).unwrap();
        let request = SendRequest {
            wr_id: number as u64,
            op: SendOp::Send,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[sge(&source, at, len as u32)]),
        };
        end.qp.post_send(&request).unwrap();
    }
    for number in 0..count {
        let completion = end.wait_send();
        let wanted = (number as u64, WcStatus::Success);
        assert_eq!((completion.wr_id, completion.status), wanted);
    }
}

fn leave(end: &End) {
    end.id.disconnect().unwrap();
    end.qp.destroy();
    end.id.destroy();
}

fn post_recv(end: &End, target: &Mr, len: usize) {
    let scatter = [sge(target, 0, len as u32)];
    let request = RecvRequest {
        wr_id: 5,
        scatter: &scatter,
    };
    end.qp.post_recv(&request).unwrap();
}

/// Posts receives one at a time for messages `from` to `to`, and compares.
fn receive_all(end: &End, target: &Mr, from: usize, to: usize, len: usize) {
    for number in from..to {
        post_recv(end, target, len);
        let received = end.wait_recv();
        assert_eq!(received.status, WcStatus::Success, "message {number}");
        let mut octets = vec![0; len];
        target.memory().read(0, &mut octets).unwrap();
        assert!(octets == pattern(number, len), "message {number} differs");
    }
}

#[test]
fn what_was_complete_is_received_behind_the_goodbye() {
    // The last are more than is held, and wait in the transport.
    for (count, len) in [(1, 1), (8, 64), (LARGE_MESSAGES, 64 * 1024)] {
        let (a, b) = pair();
        let target = b.memory(len, ALL);
        send_all(&a, count, len);
        leave(&a);
        receive_all(&b, &target, 0, count, len);
        post_recv(&b, &target, len);
        assert_eq!(b.wait_recv().status, WcStatus::Flushed);
        b.expect(EventKind::Disconnected);
        assert_eq!(b.qp.state(), QpState::Error);
    }
}

/// The sender's engine lets go of the connection after three seconds. What the kernel has then goes on its way.
#[test]
fn a_receiver_that_is_slow_loses_nothing() {
    let (count, len) = (LARGE_MESSAGES, 64 * 1024);
    let (a, b) = pair();
    let target = b.memory(len, ALL);
    send_all(&a, count, len);
    a.id.disconnect().unwrap();
    a.expect(EventKind::Disconnected);
    receive_all(&b, &target, 0, count, len);
    b.expect(EventKind::Disconnected);
}

/// Whoever answers a sender that has gone is reset. What had arrived is received all the same.
#[test]
fn a_reset_behind_what_is_held_takes_nothing_back() {
    let (count, len) = (8, 1000);
    let (a, b) = pair();
    let target = b.memory(len, ALL);
    send_all(&a, count, len);
    a.id.disconnect().unwrap();
    receive_all(&b, &target, 0, 1, len);
    a.expect(EventKind::Disconnected);
    // This answer is complete for its sender: the transport has it. It meets a socket that is closed.
    send_all(&b, 1, 8);
    receive_all(&b, &target, 1, count, len);
    b.expect(EventKind::Disconnected);
}

#[test]
fn without_receives_the_end_is_told_when_the_wait_is_over() {
    let (a, b) = pair();
    b.qp.set_receive_wait(Duration::from_millis(50));
    send_all(&a, 3, 64);
    leave(&a);
    b.expect(EventKind::Disconnected);
    assert_eq!(b.qp.state(), QpState::Error);
    let target = b.memory(64, ALL);
    post_recv(&b, &target, 64);
    assert_eq!(b.wait_recv().status, WcStatus::Flushed);
}

#[test]
fn a_receiver_that_leaves_too_waits_for_nothing() {
    for destroys in [false, true] {
        let (a, b) = pair();
        b.qp.set_receive_wait(Duration::from_secs(3600));
        send_all(&a, 3, 64);
        leave(&a);
        let target = b.memory(64, ALL);
        receive_all(&b, &target, 0, 1, 64);
        assert_eq!(b.qp.state(), QpState::Rts, "two more wait");
        if destroys {
            b.qp.destroy();
        } else {
            b.id.disconnect().unwrap();
        }
        b.expect(EventKind::Disconnected);
        assert!(!b.qp.is_connected());
    }
}
