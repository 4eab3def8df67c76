//! The verbs API between two ends in one process, and of one that exits.

#[path = "peers/attributes.rs"]
mod attributes;
pub(crate) mod common;
#[path = "peers/silent.rs"]
mod silent_peer;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::{expect, listener, pair, pair_on, sge, End, ALL};
use weft_engine::cm::{ConnParam, EventChannel, EventKind, Id};
use weft_engine::types::{
    Access, Payload, PostError, QpState, RecvRequest, SendFlags, SendOp, SendRequest, WcOpcode,
    WcStatus,
};
use weft_engine::{Mr, QpAttrMask, QpModifier, QpType};

const SIGNALED: SendFlags = SendFlags {
    fence: false,
    signaled: true,
    solicited: false,
};

fn send(end: &End, op: SendOp, sges: &[weft_engine::types::Sge]) {
    end.qp
        .post_send(&SendRequest {
            wr_id: 77,
            op,
            flags: SIGNALED,
            payload: Payload::Gather(sges),
        })
        .unwrap();
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 251) as u8 ^ seed).collect()
}

/// As programs do with what `rdma_init_qp_attr(3)` gives them, once they are told that they are connected.
#[test]
fn a_program_that_takes_a_connected_queue_pair_to_rts_changes_nothing() {
    let (a, b) = pair();
    let attr = attributes::to(QpState::Rts, QpAttrMask::RNR_RETRY);
    QpModifier::new(QpType::Rc).modify(&a.qp, &attr).unwrap();
    let (source, target) = (
        a.memory(64, Access::NONE),
        b.memory(64, Access::LOCAL_WRITE),
    );
    b.qp.post_recv(&RecvRequest {
        wr_id: 1,
        scatter: &[sge(&target, 0, 64)],
    })
    .unwrap();
    send(&a, SendOp::Send, &[sge(&source, 0, 64)]);
    assert_eq!(a.wait_send().status, WcStatus::Success);
    assert_eq!(b.wait_recv().byte_len, 64);
}

#[test]
fn sends_of_every_size_arrive_whole() {
    let (a, b) = pair();
    let source = a.memory(4 << 20, Access::NONE);
    let target = b.memory(4 << 20, Access::LOCAL_WRITE);
    for len in [
        0,
        1,
        3,
        64,
        1000,
        1442,
        4096,
        65_000,
        70_001,
        1 << 20,
        4 << 20,
    ] {
        let octets = pattern(len, len as u8);
        source.memory().write(0, &octets).unwrap();
        let scatter = [sge(&target, 0, 4 << 20)];
        let request = RecvRequest {
            wr_id: len as u64,
            scatter: &scatter,
        };
        b.qp.post_recv(&request).unwrap();
        send(&a, SendOp::Send, &[sge(&source, 0, len as u32)]);
        let received = b.wait_recv();
        assert_eq!(received.status, WcStatus::Success, "{len}");
        assert_eq!(
            (received.wr_id, received.byte_len),
            (len as u64, len as u32)
        );
        let mut back = vec![0; len];
        target.memory().read(0, &mut back).unwrap();
        assert!(back == octets, "{len} octets differ");
        assert_eq!(a.wait_send().opcode, WcOpcode::Send);
    }
}

#[test]
fn writes_and_reads_move_memory_one_sided() {
    let (a, b) = pair_on("[::1]");
    let local = a.memory(300_000, Access::LOCAL_WRITE);
    let remote = b.memory(300_000, ALL);
    let octets = pattern(200_000, 5);
    local.memory().write(0, &octets).unwrap();
    let remote_addr = remote.memory().addr() + 17;
    let rkey = remote.stag();
    send(
        &a,
        SendOp::Write { remote_addr, rkey },
        &[sge(&local, 0, 100_000), sge(&local, 100_000, 100_000)],
    );
    assert_eq!(a.wait_send().status, WcStatus::Success);
    // The read is behind the write and comes back through another scatter list.
    local.memory().write(0, &vec![0; 300_000]).unwrap();
    send(
        &a,
        SendOp::Read { remote_addr, rkey },
        &[sge(&local, 250_000, 7), sge(&local, 0, 199_993)],
    );
    let served = std::thread::spawn(move || (b.send_cq.poll(1, |_| ()).unwrap(), b));
    let read = a.wait_send();
    assert_eq!(
        (read.status, read.opcode),
        (WcStatus::Success, WcOpcode::Read)
    );
    let mut back = vec![0; 200_000];
    local.memory().read(250_000, &mut back[..7]).unwrap();
    local.memory().read(0, &mut back[7..]).unwrap();
    assert!(back == octets);
    served.join().unwrap();
}

#[test]
fn a_write_out_of_bounds_ends_the_connection_and_touches_nothing() {
    let (a, b) = pair();
    let local = a.memory(64, Access::NONE);
    let remote = b.memory(64, ALL);
    local.memory().write(0, &[0xAA; 64]).unwrap();
    send(
        &a,
        SendOp::Write {
            remote_addr: remote.memory().addr() + 1,
            rkey: remote.stag(),
        },
        &[sge(&local, 0, 64)],
    );
    b.expect(EventKind::Disconnected);
    a.expect(EventKind::Disconnected);
    let mut octets = [0; 64];
    remote.memory().read(0, &mut octets).unwrap();
    assert_eq!(octets, [0; 64]);
    assert_eq!(a.qp.state(), QpState::Error);
    assert_eq!(b.qp.state(), QpState::Error);
}

#[test]
fn a_refused_read_reports_remote_access() {
    let (a, b) = pair();
    let local = a.memory(64, Access::LOCAL_WRITE);
    let remote = b.memory(64, Access::LOCAL_WRITE);
    send(
        &a,
        SendOp::Read {
            remote_addr: remote.memory().addr(),
            rkey: remote.stag(),
        },
        &[sge(&local, 0, 64)],
    );
    assert_eq!(a.wait_send().status, WcStatus::RemoteAccess);
    a.expect(EventKind::Disconnected);
}

#[test]
fn disconnecting_flushes_what_is_posted_on_both_sides() {
    let (a, b) = pair();
    let memory = b.memory(64, Access::LOCAL_WRITE);
    for wr_id in 0..3 {
        let scatter = [sge(&memory, 0, 64)];
        let request = RecvRequest {
            wr_id,
            scatter: &scatter,
        };
        b.qp.post_recv(&request).unwrap();
    }
    a.id.disconnect().unwrap();
    b.expect(EventKind::Disconnected);
    a.expect(EventKind::Disconnected);
    for wr_id in 0..3 {
        let flushed = b.wait_recv();
        assert_eq!((flushed.wr_id, flushed.status), (wr_id, WcStatus::Flushed));
    }
    // Posting to a queue pair in error is taken and flushed.
    send(&a, SendOp::Send, &[]);
    assert_eq!(a.wait_send().status, WcStatus::Flushed);
}

#[test]
fn who_keeps_the_channel_alone_hears_of_the_end_and_then_nothing_is_kept() {
    let (a, b) = pair();
    let channels = [&a, &b].map(|end| end.channel.clone());
    let ids = [&a, &b].map(|end| Arc::downgrade(&end.id));
    let first = a.id.clone();
    drop((a, b));
    assert!(ids.iter().all(|id| id.upgrade().is_some()), "connected");
    first.disconnect().unwrap();
    drop(first);
    for (channel, id) in channels.iter().zip(ids) {
        drop(expect(channel, EventKind::Disconnected));
        let deadline = Instant::now() + Duration::from_secs(10);
        while id.upgrade().is_some() {
            assert!(Instant::now() < deadline, "somebody has it still");
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_send_without_a_posted_receive_is_terminated() {
    let (a, b) = pair();
    send(&a, SendOp::Send, &[]);
    a.expect(EventKind::Disconnected);
    b.expect(EventKind::Disconnected);
}

#[test]
fn invalidation_local_and_remote() {
    let (a, b) = pair();
    let memory = b.memory(4096, ALL);
    let mine = a.memory(4096, ALL);
    b.qp.post_recv(&RecvRequest {
        wr_id: 1,
        scatter: &[],
    })
    .unwrap();
    let stag = memory.stag();
    send(&a, SendOp::SendWithInvalidate { stag }, &[]);
    assert_eq!(b.wait_recv().invalidated, Some(stag));
    assert_eq!(a.wait_send().status, WcStatus::Success);
    send(&a, SendOp::LocalInvalidate { stag: mine.stag() }, &[]);
    assert_eq!(a.wait_send().opcode, WcOpcode::LocalInvalidate);
    let op = SendOp::Write {
        remote_addr: memory.memory().addr(),
        rkey: stag,
    };
    let inline = a.qp.post_send(&SendRequest {
        wr_id: 3,
        op,
        flags: SIGNALED,
        payload: Payload::Inline(b"too late"),
    });
    inline.unwrap();
    b.expect(EventKind::Disconnected);
}

#[test]
fn inline_octets_may_be_overwritten_at_once_and_unsignalled_work_is_silent() {
    let (a, b) = pair();
    let target = b.memory(4096, ALL);
    for i in 0..100u8 {
        let mut octets = [i; 100];
        let flags = SendFlags {
            signaled: i == 99,
            ..SendFlags::default()
        };
        a.qp.post_send(&SendRequest {
            wr_id: u64::from(i),
            op: SendOp::Write {
                remote_addr: target.memory().addr() + u64::from(i),
                rkey: target.stag(),
            },
            flags,
            payload: Payload::Inline(&octets),
        })
        .unwrap();
        octets.fill(0xEE);
    }
    assert_eq!(a.wait_send().wr_id, 99);
    assert_eq!(a.send_cq.poll(1, |_| ()).unwrap(), 0);
    let read = b.memory(0, Access::NONE);
    drop(read);
    // A Send behind the writes: what it follows is placed when it is delivered.
    b.qp.post_recv(&RecvRequest {
        wr_id: 0,
        scatter: &[],
    })
    .unwrap();
    send(&a, SendOp::Send, &[]);
    b.wait_recv();
    let mut placed = [0; 199];
    target.memory().read(0, &mut placed).unwrap();
    for i in 0..99u8 {
        assert_eq!(placed[usize::from(i)], i);
    }
    assert_eq!(placed[99..], [99; 100]);
}

#[test]
fn a_full_send_queue_says_so() {
    let (a, _b) = pair();
    // Reads beyond ORD wait in the queue.
    let local = a.memory(64, Access::LOCAL_WRITE);
    let mut outcome = Ok(());
    for _ in 0..1000 {
        let sges = [sge(&local, 0, 8)];
        outcome = a.qp.post_send(&SendRequest {
            wr_id: 0,
            op: SendOp::Read {
                remote_addr: 0,
                rkey: weft_engine::types::Stag(1 << 8),
            },
            flags: SIGNALED,
            payload: Payload::Gather(&sges),
        });
        if outcome.is_err() || a.qp.state() == QpState::Error {
            break;
        }
    }
    assert!(matches!(outcome, Err(PostError::QueueFull)) || a.qp.state() == QpState::Error);
}

#[test]
fn rejection_carries_private_data() {
    let (listen_channel, _listen_id, addr) = listener("127.0.0.1");
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, addr, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    let end = End::new(channel, id);
    end.id.connect(ConnParam::default()).unwrap();
    let request = expect(&listen_channel, EventKind::ConnectRequest);
    request.id.reject(b"not today").unwrap();
    let rejected = end.expect(EventKind::Rejected);
    assert_eq!(rejected.private_data, b"not today");
    assert!(rejected.status < 0);
}

/// Held while a process is started, and by who closes a port: what is about to be another program holds this one's
/// listeners.
static STARTING: Mutex<()> = Mutex::new(());

fn while_nothing_starts() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A loopback address that only test `number` of this process uses: a port that it closes stays nobody's until it is
/// opened again. Of 127.0.0.1 another test or program may be given it meanwhile.
fn own_host(number: u8) -> String {
    let [.., third, fourth] = std::process::id().to_be_bytes();
    format!("127.{number}.{third}.{fourth}")
}

/// An end that connects to `addr`, from `source` if there is one.
fn connecting(addr: SocketAddr, source: Option<SocketAddr>) -> End {
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(source, addr, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let end = End::new(channel, id);
    end.id
        .connect(ConnParam {
            private_data: b"",
            responder_resources: 1,
            initiator_depth: 1,
        })
        .unwrap();
    end
}

/// perftest's server closes its listener after a first connection and opens another on the same port.
#[test]
fn a_listener_that_is_opened_again_is_found() {
    let _closes = while_nothing_starts();
    let (channel, first, addr) = listener(&own_host(1));
    drop(channel);
    first.destroy();
    // The longer one: a server that stood still in between.
    let pauses = [5, 300].map(Duration::from_millis);
    let sources = [None, Some("127.0.0.1:0".parse().unwrap())];
    for (source, pause) in sources.into_iter().zip(pauses) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !is_found_when_opened_again(addr, source, pause) {
            assert!(Instant::now() < deadline, "every try took long");
        }
    }
}

/// Whether a listener is found that is opened while somebody connects. False says nothing: it was opened so late that
/// the other end, which tries for a second, may have given up.
fn is_found_when_opened_again(
    addr: SocketAddr,
    source: Option<SocketAddr>,
    pause: Duration,
) -> bool {
    let begun = Instant::now();
    let end = connecting(addr, source);
    std::thread::sleep(pause);
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.bind(addr).unwrap();
    id.listen(8).unwrap();
    let in_time = begun.elapsed() < Duration::from_millis(800);
    if in_time {
        let request = expect(&channel, EventKind::ConnectRequest);
        request.id.reject(b"found").unwrap();
        let told_first = end.expect(EventKind::Rejected);
        assert_eq!(told_first.private_data, b"found");
    }
    end.id.destroy();
    id.destroy();
    in_time
}

#[test]
fn an_id_may_be_destroyed_between_two_attempts() {
    let (channel, listener, addr) = listener(&own_host(2));
    drop(channel);
    listener.destroy();
    let end = connecting(addr, None);
    std::thread::sleep(Duration::from_millis(2));
    end.id.destroy();
}

#[test]
fn nobody_listening_is_a_rejection() {
    let _closes = while_nothing_starts();
    let (_channel, id, addr) = listener(&own_host(3));
    id.destroy();
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, addr, None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    let end = End::new(channel, id);
    end.id.connect(ConnParam::default()).unwrap();
    assert_eq!(end.expect(EventKind::Rejected).status, -111);
}

#[test]
fn who_loses_its_own_port_between_two_attempts_is_told_of_a_rejection() {
    if common::network::is_in_memory() {
        return; // The port is taken by a plain socket.
    }
    let _closes = while_nothing_starts();
    let [addr, source] = [4, 5].map(|number| {
        let (_channel, id, addr) = listener(&own_host(number));
        id.destroy();
        addr
    });
    let end = connecting(addr, Some(source));
    // Each attempt binds it anew: between two it is free.
    let _taken = loop {
        if let Ok(taken) = std::net::TcpListener::bind(source) {
            break taken;
        }
    };
    assert_eq!(end.expect(EventKind::Rejected).status, -111);
}

/// The listener's event for a peer that is a plain socket; the private data names the peer. The request is closed:
/// those that the program leaves unanswered count on the backlog.
fn request_of(channel: &EventChannel) -> (Vec<u8>, Instant) {
    let event = channel.get_event().unwrap();
    let told = Instant::now();
    assert_eq!(event.kind, EventKind::ConnectRequest);
    event.id.destroy();
    (event.private_data, told)
}

fn mpa_request(name: u8) -> Vec<u8> {
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([0x00, 1, 0, 1, name]);
    frame
}

#[test]
fn requests_are_told_in_the_order_of_the_connects_and_a_silent_one_is_not_waited_for_long() {
    if common::network::is_in_memory() {
        return; // The clients are plain sockets.
    }
    use std::io::Write;
    let (channel, id, address) = listener("127.0.0.1");
    let connect = || std::net::TcpStream::connect(address).unwrap();
    // The first is waited for 50 ms: a try that took as long says nothing of the order.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let begun = Instant::now();
        let (mut first, mut second) = (connect(), connect());
        second.write_all(&mpa_request(2)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        first.write_all(&mpa_request(1)).unwrap();
        let told = [request_of(&channel).0, request_of(&channel).0];
        if begun.elapsed() < Duration::from_millis(50) {
            assert_eq!(told, [[1], [2]]);
            break;
        }
        assert!(Instant::now() < deadline, "every try took long");
    }

    let started = Instant::now();
    let (_silent, mut third) = (connect(), connect());
    third.write_all(&mpa_request(3)).unwrap();
    let (name, told) = request_of(&channel);
    assert_eq!(name, [3]);
    assert!(
        told - started >= Duration::from_millis(40),
        "held for a while"
    );
    id.destroy();
}

/// Where the other process, which is this program once more, connects to.
const PEER: &str = "EXITING_TEST_PEER";
/// Bursts of so many messages: the first ones leave at once, later ones gather.
const BURST: u32 = 8;
const BURSTS: u32 = 4;
const ROUNDS: u32 = 20;
const OCTETS: u32 = 64;

fn send_burst(end: &End, memory: &Mr) {
    for _ in 0..BURST {
        end.qp
            .post_send(&SendRequest {
                wr_id: 0,
                op: SendOp::Send,
                flags: SendFlags::default(),
                payload: Payload::Gather(&[sge(memory, 0, OCTETS)]),
            })
            .unwrap();
    }
}

fn post_and_exit(peer: &str) -> ! {
    let channel = EventChannel::new().unwrap();
    let id = Id::new(Some(&channel), 0).unwrap();
    id.resolve_addr(None, peer.parse().unwrap(), None).unwrap();
    expect(&channel, EventKind::AddrResolved);
    id.resolve_route().unwrap();
    expect(&channel, EventKind::RouteResolved);
    let end = End::new(channel, id);
    end.id.connect(ConnParam::default()).unwrap();
    end.expect(EventKind::Established);
    let memory = end.memory(OCTETS as usize, Access::NONE);
    for _ in 0..BURSTS {
        // A poll between bursts makes them bursts, and nothing behind the last one sends it.
        end.send_cq.poll(1, drop).unwrap();
        send_burst(&end, &memory);
    }
    std::process::exit(0);
}

#[test]
fn what_was_posted_leaves_when_the_process_exits() {
    if common::network::is_in_memory() {
        return; // The other end is another process.
    }
    if let Ok(peer) = std::env::var(PEER) {
        post_and_exit(&peer);
    }
    let (channel, _listener, addr) = listener("127.0.0.1");
    for round in 0..ROUNDS {
        let starts = while_nothing_starts();
        let mut other = Command::new(std::env::current_exe().unwrap())
            .args([
                "what_was_posted_leaves_when_the_process_exits",
                "--exact",
                "--nocapture",
            ])
            .env(PEER, addr.to_string())
            .spawn()
            .unwrap();
        drop(starts);
        let request = expect(&channel, EventKind::ConnectRequest);
        let end = End::new(channel.clone(), request.id);
        let memory = end.memory(OCTETS as usize, Access::LOCAL_WRITE);
        for _ in 0..BURST * BURSTS {
            let scatter = [sge(&memory, 0, OCTETS)];
            end.qp
                .post_recv(&RecvRequest {
                    wr_id: 0,
                    scatter: &scatter,
                })
                .unwrap();
        }
        end.id.accept(ConnParam::default()).unwrap();
        for message in 0..BURST * BURSTS {
            let received = end.wait_recv();
            assert_eq!(
                (received.status, received.opcode),
                (WcStatus::Success, WcOpcode::Recv),
                "message {message} of round {round}"
            );
        }
        assert!(other.wait().unwrap().success(), "round {round}");
        end.expect(EventKind::Established);
        end.expect(EventKind::Disconnected);
    }
}
