//! Two ends on one machine: their octets go through memory that both share, and nothing else is different.

#[allow(dead_code, reason = "other tests use all of it")]
mod common;
#[path = "peers/raw.rs"]
mod raw;

use std::sync::Once;
use std::time::{Duration, Instant};

use common::{pair, sge, End, ALL};
use weft_engine::cm::EventKind;
use weft_engine::settings::Settings;
use weft_engine::types::{
    Access, Payload, QpState, RecvRequest, SendFlags, SendOp, SendRequest, WcStatus,
};
use weft_engine::Mr;

const TIMEOUT: Duration = Duration::from_secs(20);
/// More than both rings and their connection hold.
const LARGE: usize = 24 << 20;

fn uses_rings(end: &End) -> bool {
    let qp = u64::from(end.qp.number());
    let connections = raw::counts().connections;
    connections.iter().any(|one| one.qp == qp && one.rings)
}

/// Two ends that are about to share memory.
fn fresh() -> (End, End) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let settings = Settings {
            same_host: true,
            ..Settings::default()
        };
        weft_engine::start_with(settings).unwrap();
    });
    pair()
}

/// Two ends that share memory. Either end has to be served for that, which nobody but the service thread does here.
fn sharing() -> (End, End) {
    let (a, b) = fresh();
    let deadline = Instant::now() + TIMEOUT;
    while !(uses_rings(&a) && uses_rings(&b)) {
        assert!(Instant::now() < deadline, "they stay on TCP");
        std::thread::sleep(Duration::from_millis(1));
    }
    (a, b)
}

fn post_recv(end: &End, target: &Mr, len: usize) {
    end.qp
        .post_recv(&RecvRequest {
            wr_id: 9,
            scatter: &[sge(target, 0, len as u32)],
        })
        .unwrap();
}

fn post(end: &End, op: SendOp, source: &Mr, len: usize) {
    end.qp
        .post_send(&SendRequest {
            wr_id: 7,
            op,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[sge(source, 0, len as u32)]),
        })
        .unwrap();
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 31 + at / 251 + seed) as u8)
        .collect()
}

fn octets(memory: &Mr, len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    memory.memory().read(0, &mut octets).unwrap();
    octets
}

#[test]
fn messages_of_every_size_arrive_as_they_were() {
    let (a, b) = sharing();
    let source = a.memory(LARGE, Access::NONE);
    let target = b.memory(LARGE, ALL);
    for (seed, len) in [
        0,
        1,
        63,
        64,
        2047,
        2048,
        4096,
        65_000,
        300_000,
        1 << 20,
        LARGE,
    ]
    .into_iter()
    .enumerate()
    {
        let sent = pattern(len, seed);
        source.memory().write(0, &sent).unwrap();
        post_recv(&b, &target, LARGE);
        post(&a, SendOp::Send, &source, len);
        let received = b.wait_recv();
        assert_eq!(
            (received.status, received.byte_len as usize),
            (WcStatus::Success, len)
        );
        assert_eq!(a.wait_send().status, WcStatus::Success);
        assert!(octets(&target, len) == sent, "{len} octets");
    }
}

#[test]
fn writes_and_reads_reach_the_others_memory() {
    let (a, b) = sharing();
    let (here, there) = (a.memory(LARGE, ALL), b.memory(LARGE, ALL));
    let len = 3 << 20;
    let (rkey, remote_addr) = (there.stag(), there.memory().addr());
    here.memory().write(0, &pattern(len, 1)).unwrap();
    post(&a, SendOp::Write { remote_addr, rkey }, &here, len);
    assert_eq!(a.wait_send().status, WcStatus::Success);
    let back = a.memory(LARGE, ALL);
    post(&a, SendOp::Read { remote_addr, rkey }, &back, len);
    assert_eq!(a.wait_send().status, WcStatus::Success);
    assert!(octets(&back, len) == pattern(len, 1));
    assert!(octets(&there, len) == pattern(len, 1));
}

/// Many messages under way in both directions, so that rings run full and writers wait for room.
#[test]
fn both_directions_go_on_when_rings_are_full() {
    let (a, b) = sharing();
    const MESSAGES: usize = 64;
    const LEN: usize = 100_000;
    let memories = [&a, &b].map(|end| (end.memory(LEN, Access::NONE), end.memory(LEN, ALL)));
    for (end, (source, target)) in [&a, &b].iter().zip(&memories) {
        source.memory().write(0, &pattern(LEN, 5)).unwrap();
        (0..MESSAGES).for_each(|_| post_recv(end, target, LEN));
    }
    for (end, (source, _)) in [&a, &b].iter().zip(&memories) {
        (0..MESSAGES).for_each(|_| post(end, SendOp::Send, source, LEN));
    }
    for (end, (_, target)) in [&a, &b].iter().zip(&memories) {
        (0..MESSAGES).for_each(|_| assert_eq!(end.wait_recv().status, WcStatus::Success));
        (0..MESSAGES).for_each(|_| assert_eq!(end.wait_send().status, WcStatus::Success));
        assert!(octets(target, LEN) == pattern(LEN, 5));
    }
}

/// More is under way than the peer keeps without a receive. Then `act` makes the memory the program's again, which
/// writes over it: none of what arrives is that, and as many octets do as the peer keeps, the connection and the ring.
fn what_is_under_way_stays_what_it_was(act: impl Fn(&End, &Mr)) {
    const MESSAGES: usize = 40;
    const LEN: usize = 100_000;
    const ARRIVE_MIN: usize = ((1 << 20) + (256 << 10)) / LEN - 1;
    let (a, b) = sharing();
    let source = a.memory(LEN, Access::NONE);
    source.memory().write(0, &pattern(LEN, 6)).unwrap();
    (0..MESSAGES).for_each(|_| post(&a, SendOp::Send, &source, LEN));
    std::thread::sleep(Duration::from_millis(50));
    act(&a, &source);
    source.memory().write(0, &[0xEE; LEN]).unwrap();
    let target = b.memory(LEN, ALL);
    let came = (0..MESSAGES).take_while(|_| {
        post_recv(&b, &target, LEN);
        let is_whole = b.wait_recv().status == WcStatus::Success;
        assert!(!is_whole || octets(&target, LEN) == pattern(LEN, 6));
        is_whole
    });
    let came = came.count();
    assert!((ARRIVE_MIN..MESSAGES).contains(&came), "{came} messages");
}

#[test]
fn memory_that_is_deregistered_is_the_programs() {
    what_is_under_way_stays_what_it_was(|_, source| source.deregister().unwrap());
}

#[test]
fn memory_of_a_connection_that_ends_is_the_programs() {
    what_is_under_way_stays_what_it_was(|end, _| end.id.disconnect().unwrap());
}

#[test]
fn memory_of_a_queue_pair_that_is_destroyed_is_the_programs() {
    what_is_under_way_stays_what_it_was(|end, _| {
        end.id.disconnect().unwrap();
        end.qp.destroy();
        end.id.destroy();
    });
}

/// Nobody polls between two messages: whoever sleeps is woken by the bell, every time.
#[test]
fn who_sleeps_is_woken_for_each_message() {
    let (a, b) = sharing();
    let (source, target) = (a.memory(64, Access::NONE), b.memory(64, ALL));
    for round in 0..200u8 {
        source.memory().write(0, &[round; 64]).unwrap();
        let pushed = SendOp::Write {
            rkey: target.stag(),
            remote_addr: target.memory().addr(),
        };
        post(&a, pushed, &source, 64);
        let deadline = Instant::now() + TIMEOUT;
        // The service thread places it: this thread looks at memory alone.
        while octets(&target, 64)[63] != round {
            assert!(Instant::now() < deadline, "round {round}");
            std::thread::yield_now();
        }
        if round % 10 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        a.wait_send();
    }
}

#[test]
fn the_end_comes_behind_what_was_sent() {
    let (a, b) = sharing();
    let (source, target) = (a.memory(200_000, Access::NONE), b.memory(200_000, ALL));
    source.memory().write(0, &pattern(200_000, 3)).unwrap();
    post_recv(&b, &target, 200_000);
    post(&a, SendOp::Send, &source, 200_000);
    a.id.disconnect().unwrap();
    assert_eq!(b.wait_recv().status, WcStatus::Success);
    assert!(octets(&target, 200_000) == pattern(200_000, 3));
    b.expect(EventKind::Disconnected);
    a.expect(EventKind::Disconnected);
}

#[test]
fn a_terminate_takes_effect_behind_what_was_sent() {
    let (a, b) = sharing();
    let (source, target) = (a.memory(4096, Access::NONE), b.memory(4096, ALL));
    source.memory().write(0, &pattern(4096, 4)).unwrap();
    post_recv(&b, &target, 4096);
    post(&a, SendOp::Send, &source, 4096);
    // Nothing is registered there.
    let nowhere = SendOp::Write {
        rkey: target.stag(),
        remote_addr: target.memory().addr() + (1 << 40),
    };
    post(&a, nowhere, &source, 4096);
    assert_eq!(b.wait_recv().status, WcStatus::Success);
    a.expect(EventKind::Disconnected);
    b.expect(EventKind::Disconnected);
    assert_eq!(a.qp.state(), QpState::Error);
    assert!(octets(&target, 4096) == pattern(4096, 4));
}

/// Processor time of the service thread, nanoseconds.
fn service_time() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |name: &str, task: &std::path::Path| std::fs::read_to_string(task.join(name)).unwrap();
    tasks
        .map(|task| task.unwrap().path())
        .filter(|task| of("comm", task).trim() == "weft-service")
        .map(|task| {
            let times = of("schedstat", &task);
            times.split(' ').next().unwrap().parse::<u64>().unwrap()
        })
        .sum()
}

/// Neither end posts receives, each has more to send than there is room for, and some of it went by TCP: TCP then is
/// readable for good, and nobody reads it.
#[test]
fn who_waits_for_room_and_cannot_receive_sleeps() {
    const LEN: usize = 100_000;
    let (a, b) = fresh();
    let (from_a, from_b) = (a.memory(LEN, Access::NONE), b.memory(LEN, Access::NONE));
    post(&a, SendOp::Send, &from_a, LEN);
    (0..40).for_each(|_| post(&b, SendOp::Send, &from_b, LEN));
    std::thread::sleep(Duration::from_millis(300));
    (0..40).for_each(|_| post(&a, SendOp::Send, &from_a, LEN));
    std::thread::sleep(Duration::from_millis(300));
    let before = service_time();
    std::thread::sleep(Duration::from_millis(500));
    let took = Duration::from_nanos(service_time() - before);
    assert!(took < Duration::from_millis(150), "{took:?} of 500 ms");
    // And nothing is lost by it.
    for (end, messages) in [(&b, 41), (&a, 40)] {
        let target = end.memory(LEN, ALL);
        for _ in 0..messages {
            post_recv(end, &target, LEN);
            assert_eq!(end.wait_recv().status, WcStatus::Success);
        }
    }
}
