//! A receiver that posts its receives late loses nothing, however much its peer has sent meanwhile.

#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../engine/tests/common/mod.rs"]
mod common;

use common::{pair, sge, End, ALL, CAP};
use weft_engine::types::{Payload, RecvRequest, SendFlags, SendOp, SendRequest, WcStatus};
use weft_engine::Mr;

/// Octets of a message.
const EACH: u32 = 64;
/// Messages: more than may be held of those without a receive, and less than a window.
const MESSAGES: u32 = 100_000;
/// Receives that are posted at a time.
const RECEIVES: u32 = 16;

fn send(end: &End, memory: &Mr, n: u32) {
    let at = u64::from(n % CAP.max_send_wr * EACH);
    memory.memory().write(at, &n.to_le_bytes()).unwrap();
    let flags = SendFlags {
        signaled: true,
        ..SendFlags::default()
    };
    let payload = [sge(memory, at, EACH)];
    let request = SendRequest {
        wr_id: u64::from(n),
        op: SendOp::Send,
        flags,
        payload: Payload::Gather(&payload),
    };
    end.qp.post_send(&request).unwrap();
}

fn receive(end: &End, memory: &Mr, place: u64) {
    let scatter = [sge(memory, place * u64::from(EACH), EACH)];
    let request = RecvRequest {
        wr_id: place,
        scatter: &scatter,
    };
    end.qp.post_recv(&request).unwrap();
}

#[test]
fn small_messages_wait_for_receives_that_come_late() {
    let (a, b) = pair();
    let from = a.memory((CAP.max_send_wr * EACH) as usize, ALL);
    let to = b.memory((RECEIVES * EACH) as usize, ALL);
    for n in 0..MESSAGES {
        if n >= CAP.max_send_wr {
            assert_eq!(a.wait_send().status, WcStatus::Success, "{n}");
        }
        send(&a, &from, n);
    }
    for place in 0..u64::from(RECEIVES) {
        receive(&b, &to, place);
    }
    for n in 0..MESSAGES {
        let done = b.wait_recv();
        assert_eq!(done.status, WcStatus::Success, "{n}");
        let mut octets = [0; 4];
        to.memory()
            .read(done.wr_id * u64::from(EACH), &mut octets)
            .unwrap();
        assert_eq!(u32::from_le_bytes(octets), n);
        receive(&b, &to, done.wr_id);
    }
}
