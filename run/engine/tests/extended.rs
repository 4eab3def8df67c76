//! Immediate data, atomics, memory windows, waiting for receives and places of the send queue,
//! over loopback.

mod common;

use std::time::{Duration, Instant};

use common::{pair, sge, wait, End, ALL, CAP};
use weft_engine::types::{
    Access, Bind, Payload, PostError, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Stag,
    WcOpcode, WcStatus, WindowKind,
};

fn post(end: &End, op: SendOp, payload: Payload<'_>) -> Result<(), PostError> {
    end.qp.post_send(&SendRequest {
        wr_id: 77,
        op,
        flags: SendFlags {
            signaled: true,
            ..SendFlags::default()
        },
        payload,
    })
}

fn receive(end: &End, wr_id: u64) {
    let request = RecvRequest {
        wr_id,
        scatter: &[],
    };
    end.qp.post_recv(&request).unwrap();
}

#[test]
fn counters_of_several_connections_lose_nothing() {
    let rounds = 500;
    let (a, b) = pair();
    let (c, d) = pair();
    let memory = weft_engine::mem::Registered::allocate(64).unwrap();
    let all = ALL;
    let cell_of = |end: &End| end.pd.register(memory.clone(), 0, all).unwrap();
    let (at_b, at_d) = (cell_of(&b), cell_of(&d));
    std::thread::scope(|scope| {
        for (end, cell) in [(&a, &at_b), (&c, &at_d)] {
            scope.spawn(move || {
                let sink = end.memory(8, Access::LOCAL_WRITE);
                for _ in 0..rounds {
                    let add = SendOp::FetchAdd {
                        remote_addr: 8,
                        rkey: cell.stag(),
                        add: 1,
                    };
                    post(end, add, Payload::Gather(&[sge(&sink, 0, 8)])).unwrap();
                    let done = end.wait_send();
                    assert_eq!(
                        (done.opcode, done.status),
                        (WcOpcode::FetchAdd, WcStatus::Success)
                    );
                }
            });
        }
        for _ in 0..rounds {
            memory.update(8, |old| old + 1).unwrap();
        }
    });
    assert_eq!(memory.update(8, |old| old), Ok(3 * rounds));
}

#[test]
fn a_window_is_bound_through_a_queue_pair_and_opens_its_part() {
    let (a, b) = pair();
    let region = b.memory(4096, ALL.union(Access::MW_BIND));
    let window = b.pd.alloc_window(WindowKind::Two).unwrap();
    let bind = Bind {
        window: window.stag(),
        rkey: Stag(window.stag().0 ^ 1),
        region: region.stag(),
        addr: region.memory().addr() + 100,
        len: 100,
        access: Access::REMOTE_WRITE,
        zero_based: true,
    };
    post(&b, SendOp::BindWindow(bind), Payload::Gather(&[])).unwrap();
    assert_eq!(b.wait_send().status, WcStatus::Success);
    assert!(region.deregister().is_err(), "a window is bound to it");
    let write = SendOp::WriteWithImm {
        remote_addr: 10,
        rkey: bind.rkey,
        imm: 0x0102_0304,
    };
    receive(&b, 1);
    post(&a, write, Payload::Inline(b"through")).unwrap();
    let came = b.wait_recv();
    assert_eq!((came.byte_len, came.imm), (7, Some(0x0102_0304)));
    let mut octets = [0; 7];
    region.memory().read(110, &mut octets).unwrap();
    assert_eq!(&octets, b"through");
    let gone = SendOp::LocalInvalidate { stag: bind.rkey };
    post(&b, gone, Payload::Gather(&[])).unwrap();
    assert_eq!(b.wait_send().status, WcStatus::Success);
    region.deregister().unwrap();
}

#[test]
fn a_message_waits_for_a_receive_that_is_posted_late() {
    let (a, b) = pair();
    let imm = SendOp::SendWithImm { imm: 9 };
    post(&a, imm, Payload::Inline(b"")).unwrap();
    assert_eq!(a.wait_send().status, WcStatus::Success);
    std::thread::sleep(Duration::from_millis(50));
    receive(&b, 5);
    let came = b.wait_recv();
    assert_eq!((came.wr_id, came.imm), (5, Some(9)));
}

/// So many messages wait that receiving pauses: a program that posts no receive and looks at memory sees the Write.
#[test]
fn a_write_arrives_behind_messages_that_wait() {
    let (a, b) = pair();
    let target = b.memory(8, ALL);
    for _ in 0..40 {
        post(&a, SendOp::Send, Payload::Inline(b"")).unwrap();
        assert_eq!(a.wait_send().status, WcStatus::Success);
    }
    // They are received, and held.
    std::thread::sleep(Duration::from_millis(50));
    let write = SendOp::Write {
        remote_addr: target.memory().addr(),
        rkey: target.stag(),
    };
    post(&a, write, Payload::Inline(b"arrives!")).unwrap();
    let begun = Instant::now();
    let mut octets = [0; 8];
    while octets != *b"arrives!" {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never came");
        std::thread::sleep(Duration::from_millis(1));
        target.memory().read(0, &mut octets).unwrap();
    }
    for wr_id in 0..40 {
        receive(&b, wr_id);
        let came = b.wait_recv();
        assert_eq!((came.wr_id, came.status), (wr_id, WcStatus::Success));
    }
}

#[test]
fn the_wait_for_a_receive_is_bounded() {
    let (a, b) = pair();
    b.qp.set_receive_wait(Duration::from_millis(60));
    let begun = Instant::now();
    post(&a, SendOp::Send, Payload::Inline(b"x")).unwrap();
    while a.qp.state() != QpState::Error {
        assert!(begun.elapsed() < Duration::from_secs(10), "it never ended");
        std::thread::sleep(Duration::from_millis(1));
        let _ = b.recv_cq.poll(1, |_| {});
    }
    assert!(begun.elapsed() >= Duration::from_millis(60));
}

#[test]
fn a_place_in_the_send_queue_comes_back_when_its_completion_is_polled() {
    let (a, b) = pair();
    let target = b.memory(8, ALL);
    let write = SendOp::Write {
        remote_addr: target.memory().addr(),
        rkey: target.stag(),
    };
    for _ in 0..CAP.max_send_wr {
        post(&a, write, Payload::Inline(b"x")).unwrap();
    }
    let first = wait(&a.send_cq);
    assert_eq!(first.status, WcStatus::Success);
    post(&a, write, Payload::Inline(b"x")).unwrap();
    assert_eq!(
        post(&a, write, Payload::Inline(b"x")),
        Err(PostError::QueueFull)
    );
    for _ in 0..CAP.max_send_wr {
        assert_eq!(wait(&a.send_cq).status, WcStatus::Success);
    }
    for _ in 0..CAP.max_send_wr {
        post(&a, write, Payload::Inline(b"x")).unwrap();
    }
}

#[test]
fn a_receiver_that_falls_behind_slows_its_peer_down() {
    const LEN: u64 = 64 * 1024;
    const MESSAGES: u64 = 500; // twice what is held at most
    let (a, b) = pair();
    let (source, target) = (a.memory(LEN as usize, ALL), b.memory(LEN as usize, ALL));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for sent in 0..MESSAGES {
                source.memory().write(0, &sent.to_be_bytes()).unwrap();
                post(
                    &a,
                    SendOp::Send,
                    Payload::Gather(&[sge(&source, 0, LEN as u32)]),
                )
                .unwrap();
                // The octets may be changed once the message is complete.
                assert_eq!(a.wait_send().status, WcStatus::Success);
            }
        });
        // What can come without a receive has come.
        std::thread::sleep(Duration::from_millis(100));
        for wanted in 0..MESSAGES {
            let request = RecvRequest {
                wr_id: wanted,
                scatter: &[sge(&target, 0, LEN as u32)],
            };
            b.qp.post_recv(&request).unwrap();
            let came = b.wait_recv();
            assert_eq!(
                (came.wr_id, came.status, u64::from(came.byte_len)),
                (wanted, WcStatus::Success, LEN)
            );
            let mut number = [0; 8];
            target.memory().read(0, &mut number).unwrap();
            assert_eq!(u64::from_be_bytes(number), wanted);
        }
    });
}

#[test]
fn a_message_larger_than_what_is_held_goes_on_to_its_late_receive() {
    const LEN: usize = 40 << 20;
    let (a, b) = pair();
    let (source, target) = (a.memory(LEN, ALL), b.memory(LEN, ALL));
    let ends = [1u8, 2, 3];
    source.memory().write(LEN as u64 - 3, &ends).unwrap();
    let payload = [sge(&source, 0, LEN as u32)];
    post(&a, SendOp::Send, Payload::Gather(&payload)).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let request = RecvRequest {
        wr_id: 1,
        scatter: &[sge(&target, 0, LEN as u32)],
    };
    b.qp.post_recv(&request).unwrap();
    let came = b.wait_recv();
    assert_eq!(
        (came.status, came.byte_len as usize),
        (WcStatus::Success, LEN)
    );
    let mut last = [0; 3];
    target.memory().read(LEN as u64 - 3, &mut last).unwrap();
    assert_eq!(last, ends);
}
