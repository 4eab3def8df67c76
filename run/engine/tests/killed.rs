//! The other end is another process, which is killed or stopped at any instruction. What arrived before is whole and in
//! order, the end is told, and nobody waits for good.
//!
//! `TEST_KILLS=10000` kills and stops that often instead of a few times.

#[allow(dead_code, reason = "other tests use all of it")]
mod common;
#[path = "peers/raw.rs"]
mod raw;

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use common::{expect, listener, sge, End, ALL};
use rustix::process::{kill_process, Pid, Signal};
use weft_engine::cm::{ConnParam, EventChannel, EventKind, Id};
use weft_engine::settings::Settings;
use weft_engine::stats::Connection;
use weft_engine::types::{
    Access, Completion, Payload, RecvRequest, SendFlags, SendOp, SendRequest, WcStatus,
};
use weft_engine::Mr;

const TIMEOUT: Duration = Duration::from_secs(30);
/// Where the child finds its parent.
const PARENT: &str = "TEST_PARENT";
/// Receives that the parent keeps posted.
const RECEIVES: usize = 32;
/// Messages of a process that ends before anybody has read them: more than have room.
const LAST_MESSAGES: u64 = 60;
/// Octets of the longest message.
const LEN_MAX: usize = 48_000;
/// Rounds, where nothing else is asked for.
const ROUNDS: usize = 24;

/// Of so many messages one is long.
const LONG_EVERY: u64 = 16;

/// Octets of a message: short ones, and now and then some that fill the ring.
fn len_of(number: u64) -> usize {
    match number % LONG_EVERY {
        0 => LEN_MAX,
        5 => 5000,
        _ => 64,
    }
}

fn message(number: u64) -> Vec<u8> {
    let mut octets = number.to_be_bytes().to_vec();
    octets.extend((8..len_of(number)).map(|at| (at as u64 * 13 + number) as u8));
    octets
}

/// This process's engine, with rings.
fn start_with_rings() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let settings = Settings {
            same_host: true,
            ..Settings::default()
        };
        weft_engine::start_with(settings).unwrap();
    });
}

/// What is told of an end's connection.
fn of_this_end(end: &End) -> impl Iterator<Item = Connection> {
    let qp = u64::from(end.qp.number());
    let connections = raw::counts().connections;
    connections.into_iter().filter(move |one| one.qp == qp)
}

/// The child's end of a connection to its parent; nothing in the parent.
fn connected() -> Option<End> {
    let parent = std::env::var(PARENT).ok()?;
    start_with_rings();
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, parent.parse().unwrap(), None)
        .unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let end = End::new(channel, id);
    end.id.connect(ConnParam::default()).unwrap();
    end.expect(EventKind::Established);
    Some(end)
}

/// The child: sends messages until it is killed.
#[test]
fn child_that_sends_for_ever() {
    let Some(end) = connected() else {
        return;
    };
    let source = end.memory(LEN_MAX, Access::NONE);
    let mut number = 0;
    loop {
        let octets = message(number);
        source.memory().write(0, &octets).unwrap();
        let request = SendRequest {
            wr_id: number,
            op: SendOp::Send,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[sge(&source, 0, octets.len() as u32)]),
        };
        end.qp.post_send(&request).unwrap();
        let mut done = false;
        while !done {
            end.send_cq
                .poll(1, |completion| {
                    assert_eq!(completion.status, WcStatus::Success);
                    done = true;
                })
                .unwrap();
        }
        number += 1;
    }
}

/// The child: sends messages that fill the ring, and its process ends before they are read.
#[test]
fn child_that_exits() {
    let Some(end) = connected() else {
        return;
    };
    let source = end.memory(LAST_MESSAGES as usize * LEN_MAX, Access::NONE);
    let deadline = Instant::now() + TIMEOUT;
    while !of_this_end(&end).any(|one| one.rings) {
        assert!(Instant::now() < deadline, "they stay on TCP");
    }
    for number in 0..LAST_MESSAGES {
        let at = number * LEN_MAX as u64;
        source
            .memory()
            .write(at, &message(number * LONG_EVERY))
            .unwrap();
        let request = SendRequest {
            wr_id: number,
            op: SendOp::Send,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[sge(&source, at, LEN_MAX as u32)]),
        };
        end.qp.post_send(&request).unwrap();
    }
    // By now the parent takes no more, and there is no room in the ring, or too little to go on for.
    std::thread::sleep(Duration::from_millis(300));
    let mut completed = 0;
    loop {
        let before = completed;
        let count = |completion: Completion| {
            assert_eq!(completion.status, WcStatus::Success);
            completed += 1;
        };
        end.send_cq.poll(8, count).unwrap();
        if completed == before {
            break;
        }
    }
    // Not as a test ends, which frees what it has made.
    std::process::exit(completed);
}

/// A child that sends, and this end of its connection.
struct Peer {
    child: Child,
    end: End,
    targets: Vec<Arc<Mr>>,
    /// Messages that came.
    received: u64,
    /// Each is so many numbers behind the one before.
    step: u64,
}

impl Peer {
    fn start() -> Peer {
        Peer::of("child_that_sends_for_ever", (RECEIVES, 1))
    }

    fn of(test: &str, (receives, step): (usize, u64)) -> Peer {
        start_with_rings();
        let (channel, listening, address) = listener("127.0.0.1");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child
            .args(["--exact", test, "--test-threads=1"])
            .env(PARENT, address.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = child.spawn().unwrap();
        let request = expect(&channel, EventKind::ConnectRequest);
        let end = End::new(channel, request.id);
        let targets: Vec<_> = (0..RECEIVES).map(|_| end.memory(LEN_MAX, ALL)).collect();
        let peer = Peer {
            child,
            end,
            targets,
            received: 0,
            step,
        };
        (0..receives).for_each(|slot| peer.post(slot));
        peer.end.id.accept(ConnParam::default()).unwrap();
        peer.end.expect(EventKind::Established);
        listening.destroy();
        peer
    }

    fn post(&self, slot: usize) {
        let request = RecvRequest {
            wr_id: slot as u64,
            scatter: &[sge(&self.targets[slot], 0, LEN_MAX as u32)],
        };
        self.end.qp.post_recv(&request).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
    }

    /// Takes what is there and looks at every octet of it. False once the connection is over.
    fn take(&mut self) -> bool {
        let mut taken = Vec::new();
        self.end.recv_cq.poll(16, |one| taken.push(one)).unwrap();
        for completion in taken {
            if completion.status == WcStatus::Flushed {
                return false;
            }
            assert_eq!(completion.status, WcStatus::Success);
            let slot = completion.wr_id as usize;
            let wanted = message(self.received * self.step);
            assert_eq!(
                completion.byte_len as usize,
                wanted.len(),
                "message {}",
                self.received
            );
            let mut octets = vec![0; wanted.len()];
            self.targets[slot].memory().read(0, &mut octets).unwrap();
            assert!(octets == wanted, "message {} differs", self.received);
            self.received += 1;
            self.post(slot);
        }
        true
    }

    fn take_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            assert!(self.take(), "the connection ended by itself");
        }
    }

    fn take_until(&mut self, what: &str, is_so: impl Fn(&Peer) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !is_so(self) {
            assert!(Instant::now() < deadline, "{what}");
            assert!(self.take(), "the connection ended by itself");
        }
    }

    fn shares(&self) -> bool {
        of_this_end(&self.end).any(|one| one.rings)
    }

    /// It is dead: everything that it had sent comes, and then the end.
    fn end(mut self) -> u64 {
        self.child.wait().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while self.take() {
            assert!(Instant::now() < deadline, "the end is not told");
        }
        self.end.expect(EventKind::Disconnected);
        self.end.qp.destroy();
        self.end.id.destroy();
        self.received
    }
}

/// A time below a few milliseconds, another one each round.
fn moment(round: usize) -> Duration {
    let mixed = (round as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    Duration::from_micros(mixed % 4000)
}

fn rounds() -> usize {
    let asked = std::env::var("TEST_KILLS").ok();
    asked.map_or(ROUNDS, |text| text.parse().expect("a number"))
}

#[test]
fn a_peer_that_is_killed_leaves_whole_messages_and_an_end() {
    if std::env::var_os(PARENT).is_some() {
        return;
    }
    let mut messages = 0;
    for round in 0..rounds() {
        let mut peer = Peer::start();
        peer.take_until("they stay on TCP", Peer::shares);
        peer.take_for(moment(round));
        peer.signal(Signal::KILL);
        messages += peer.end();
    }
    assert!(messages > 0);
    println!("{messages} messages of {} peers", rounds());
}

/// Nobody reads its last messages before it is gone: this end has no receives, and holds what it has read already.
#[test]
fn a_peer_that_exits_leaves_all_that_is_in_the_ring() {
    const HELD_MAX: usize = 1 << 20;
    if std::env::var_os(PARENT).is_some() {
        return;
    }
    let mut peer = Peer::of("child_that_exits", (0, LONG_EVERY));
    let completed = peer.child.wait().unwrap().code().unwrap() as u64;
    assert!(
        completed < LAST_MESSAGES,
        "{completed}: no child, or not more than have room"
    );
    peer.post(0);
    let deadline = Instant::now() + TIMEOUT;
    while peer.take() {
        assert!(Instant::now() < deadline, "the end is not told");
    }
    let octets = completed as usize * LEN_MAX;
    assert!(
        octets > HELD_MAX,
        "{octets} octets: nothing is left in the ring"
    );
    assert!(
        peer.received >= completed,
        "{} of {completed} messages",
        peer.received
    );
}

#[test]
fn a_peer_that_is_stopped_goes_on_where_it_was() {
    if std::env::var_os(PARENT).is_some() {
        return;
    }
    let mut peer = Peer::start();
    peer.take_until("they stay on TCP", Peer::shares);
    for round in 0..rounds() {
        peer.take_for(moment(round));
        peer.signal(Signal::STOP);
        peer.take_for(moment(round + 1));
        peer.signal(Signal::CONT);
        let before = peer.received;
        peer.take_until("it does not go on", |peer| peer.received > before + 50);
    }
    peer.signal(Signal::STOP);
    peer.signal(Signal::KILL);
    peer.end();
}
