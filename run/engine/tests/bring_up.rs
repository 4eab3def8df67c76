//! Queue pairs brought up from an address and a number, without the connection manager.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_engine::bring_up::Destination;
use weft_engine::types::{
    Access, Completion, Payload, PostError, QpCap, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Sge, WcStatus,
};
use weft_engine::{Context, Cq, Mr, Pd, Qp, QpInit};

const HERE: &str = "127.0.0.1";
const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 1,
    max_recv_sge: 1,
    max_inline_data: 64,
};

fn wait(cq: &Cq) -> Completion {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let mut found = None;
        cq.poll(1, |c| found = Some(c)).unwrap();
        if let Some(completion) = found {
            return completion;
        }
        assert!(Instant::now() < deadline, "no completion");
    }
}

struct End {
    pd: Arc<Pd>,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
    psn: u32,
}

impl End {
    /// A queue pair in INIT, that peers can find.
    fn new(psn: u32) -> End {
        let context = Context::open().unwrap();
        let pd = context.alloc_pd();
        let cq = context.create_cq(512, None, 1).unwrap();
        let qp = pd
            .create_qp(QpInit {
                send_cq: cq.clone(),
                recv_cq: cq.clone(),
                srq: None,
                cap: CAP,
                sq_sig_all: true,
                cookie: 9,
            })
            .unwrap();
        let end = End { pd, cq, qp, psn };
        end.init();
        end
    }

    fn init(&self) {
        self.qp.listen_for_bring_up().unwrap();
        self.qp.modify_state(QpState::Init).unwrap();
    }

    fn to(&self, peer: &End, address: &str) -> Destination {
        let address: IpAddr = address.parse().unwrap();
        Destination {
            local: address,
            peer: address,
            peer_qp: peer.qp.number(),
            rq_psn: peer.psn,
        }
    }

    fn receive(&self, to: Destination) {
        self.qp.ready_to_receive(to).unwrap();
    }

    fn send(&self) {
        self.qp.ready_to_send(Some(self.psn), PATIENCE).unwrap();
    }

    fn memory(&self) -> Arc<Mr> {
        let memory = weft_engine::mem::Registered::allocate(4096).unwrap();
        let iova = memory.addr();
        self.pd.register(memory, iova, Access::LOCAL_WRITE).unwrap()
    }

    fn post_send(&self, wr_id: u64, octets: &[u8]) -> Result<(), PostError> {
        self.qp.post_send(&SendRequest {
            wr_id,
            op: SendOp::Send,
            flags: SendFlags::default(),
            payload: Payload::Inline(octets),
        })
    }

    fn post_recv(&self, memory: &Mr) {
        let scatter = [Sge {
            addr: memory.memory().addr(),
            length: 4096,
            lkey: memory.stag().0,
        }];
        self.qp
            .post_recv(&RecvRequest {
                wr_id: 1,
                scatter: &scatter,
            })
            .unwrap();
    }
}

/// Sends a message from each end to the other and looks at what arrives.
fn exchange(a: &End, b: &End) {
    for (from, to) in [(a, b), (b, a)] {
        let memory = to.memory();
        to.post_recv(&memory);
        from.post_send(7, b"over the same wire").unwrap();
        let sent = wait(&from.cq);
        assert_eq!((sent.wr_id, sent.status), (7, WcStatus::Success));
        let received = wait(&to.cq);
        assert_eq!(
            (received.status, received.byte_len),
            (WcStatus::Success, 18)
        );
        let mut back = [0; 18];
        memory.memory().read(0, &mut back).unwrap();
        assert_eq!(&back, b"over the same wire");
    }
}

fn pair() -> (End, End) {
    (End::new(11), End::new(22))
}

#[test]
fn both_ends_in_any_order_over_both_families() {
    for address in [HERE, "::1"] {
        for swapped in [false, true] {
            let (a, b) = pair();
            let (first, second) = if swapped { (&b, &a) } else { (&a, &b) };
            first.receive(first.to(second, address));
            first.send();
            second.receive(second.to(first, address));
            second.send();
            exchange(first, second);
        }
    }
}

#[test]
fn what_is_posted_before_the_other_end_is_there_waits_for_it() {
    let (a, b) = pair();
    a.receive(a.to(&b, HERE));
    assert_eq!(a.post_send(1, b"early"), Err(PostError::InvalidState));
    a.send();
    a.post_send(7, b"early").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let memory = b.memory();
    b.post_recv(&memory);
    b.receive(b.to(&a, HERE));
    assert_eq!(wait(&b.cq).byte_len, 5, "before its own RTS");
    assert_eq!(wait(&a.cq).status, WcStatus::Success);
    assert_eq!(b.qp.state(), QpState::Rtr);
    b.send();
    exchange(&a, &b);
}

#[test]
fn a_destination_that_is_not_there_ends_in_retry_exceeded() {
    for swapped in [false, true] {
        let (a, b) = pair();
        // The one end would dial, the other would be dialed: both give up.
        let (end, gone) = if swapped { (b, a) } else { (a, b) };
        let to = end.to(&gone, HERE);
        gone.qp.destroy();
        end.receive(to);
        let patience = Duration::from_millis(300);
        let started = Instant::now();
        end.qp.ready_to_send(Some(1), Some(patience)).unwrap();
        end.post_send(5, b"hello").unwrap();
        end.post_send(6, b"hello").unwrap();
        let (first, second) = (wait(&end.cq), wait(&end.cq));
        assert_eq!((first.wr_id, first.status), (5, WcStatus::RetryExceeded));
        assert_eq!((second.wr_id, second.status), (6, WcStatus::Flushed));
        assert!(started.elapsed() >= patience, "not before its time");
        assert_eq!(end.qp.state(), QpState::Error);
    }
}

#[test]
fn a_queue_pair_is_reset_and_used_again() {
    let (a, b) = pair();
    for round in 0..5 {
        a.receive(a.to(&b, HERE));
        b.receive(b.to(&a, HERE));
        a.send();
        b.send();
        exchange(&a, &b);
        let ends = if round % 2 == 0 { [&a, &b] } else { [&b, &a] };
        for end in ends {
            end.qp.modify_state(QpState::Reset).unwrap();
        }
        for end in ends {
            end.init();
        }
    }
}

#[test]
fn a_peer_that_goes_with_nothing_outstanding_leaves_the_queue_pair_as_it_is() {
    let (a, b) = pair();
    a.receive(a.to(&b, HERE));
    b.receive(b.to(&a, HERE));
    a.send();
    b.send();
    exchange(&a, &b);
    b.qp.destroy();
    // What is posted before that goes to a peer that may still be there.
    let deadline = Instant::now() + Duration::from_secs(10);
    while a.qp.is_connected() {
        assert!(Instant::now() < deadline, "the end was not seen");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(a.qp.state(), QpState::Rts);
    a.qp.ready_to_send(None, Some(Duration::from_millis(200)))
        .unwrap();
    a.post_send(8, b"to nobody").unwrap();
    assert_eq!(wait(&a.cq).status, WcStatus::RetryExceeded);
}

/// A stranger's dial: the MPA Request of somebody who says `from` -> `to`; whether he is answered by
/// an accepting Reply. Who is not hears that, or the end of the stream.
fn strangers_dial(to: u32, from: u32, expects: u32) -> Option<TcpStream> {
    let mut socket = TcpStream::connect((HERE, (to >> 8) as u16)).unwrap();
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([0x50, 2, 0, 24, 0x80, 1, 0xC0, 1]);
    frame.extend(b"WEFTQP\x00\x01");
    for word in [to, from, expects] {
        frame.extend(word.to_be_bytes());
    }
    socket.write_all(&frame).unwrap();
    socket.set_read_timeout(PATIENCE).unwrap();
    let mut reply = [0; 20];
    match socket.read_exact(&mut reply) {
        Ok(()) if reply[16] & 0x20 == 0 => Some(socket),
        Ok(()) => None,
        Err(error) => {
            let ended = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
            assert!(ended.contains(&error.kind()), "no answer: {error}");
            None
        }
    }
}

#[test]
fn strangers_are_refused_and_change_nothing() {
    let (a, b) = pair();
    // The end that is dialed, so that the other one's dial is what comes late.
    let (low, high) = if a.qp.number() < b.qp.number() {
        (&a, &b)
    } else {
        (&b, &a)
    };
    high.receive(high.to(low, HERE));
    high.send();
    let to = high.qp.number();
    assert!(
        strangers_dial(to, low.qp.number() ^ 1, high.psn).is_none(),
        "another number"
    );
    assert!(
        strangers_dial(to, low.qp.number(), high.psn + 1).is_none(),
        "another PSN"
    );
    assert!(
        strangers_dial(to ^ 0x80, low.qp.number(), high.psn).is_none(),
        "no such queue pair"
    );
    let mut garbage = TcpStream::connect((HERE, (to >> 8) as u16)).unwrap();
    garbage
        .write_all(b"GET / HTTP/1.1\r\nHost: weft\r\n\r\n")
        .unwrap();
    low.receive(low.to(high, HERE));
    low.send();
    exchange(low, high);
    assert!(
        strangers_dial(to, low.qp.number(), high.psn).is_none(),
        "it has its peer"
    );
    exchange(high, low);
}

#[test]
fn a_gid_of_somebody_else_is_refused() {
    let (a, b) = pair();
    let (low, high) = if a.qp.number() < b.qp.number() {
        (&a, &b)
    } else {
        (&b, &a)
    };
    let mut to = high.to(low, HERE);
    // The program named a peer at another address; the dial comes from 127.0.0.1.
    to.peer = "127.0.0.99".parse().unwrap();
    high.receive(to);
    high.send();
    assert!(strangers_dial(high.qp.number(), low.qp.number(), high.psn).is_none());
    assert_eq!(high.qp.state(), QpState::Rts);
    assert!(!high.qp.is_connected());
}

#[test]
fn an_impostor_who_came_before_the_sequence_number_was_known_is_dropped() {
    // The number becomes known while the impostor is being attached: now before that, now behind it.
    for _ in 0..100 {
        let (a, b) = pair();
        let (low, high) = if a.qp.number() < b.qp.number() {
            (&a, &b)
        } else {
            (&b, &a)
        };
        high.receive(high.to(low, HERE));
        let impostor = strangers_dial(high.qp.number(), low.qp.number(), high.psn + 1);
        assert!(impostor.is_some(), "at RTR nobody can tell");
        high.send();
        assert!(!high.qp.is_connected(), "at RTS it shows");
        low.receive(low.to(high, HERE));
        low.send();
        exchange(low, high);
    }
}

#[test]
fn many_pairs_between_the_same_two_addresses_do_not_mix() {
    let ends: Vec<(End, End)> = (0..100).map(|_| pair()).collect();
    for (a, b) in &ends {
        a.receive(a.to(b, HERE));
        a.send();
    }
    for (a, b) in ends.iter().rev() {
        b.receive(b.to(a, HERE));
        b.send();
    }
    for (a, b) in &ends {
        exchange(a, b);
    }
}

#[test]
fn an_rnr_retry_count_of_seven_waits_without_end() {
    let (a, b) = pair();
    a.receive(a.to(&b, HERE));
    b.receive(b.to(&a, HERE));
    a.send();
    b.send();
    exchange(&a, &b);
    b.qp.set_receive_wait(Duration::from_millis(20));
    b.qp.set_rnr_retry(7);
    a.post_send(8, b"patience").unwrap();
    assert_eq!(wait(&a.cq).status, WcStatus::Success);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(b.qp.state(), QpState::Rts);
    let region = b.memory();
    b.post_recv(&region);
    assert_eq!(wait(&b.cq).byte_len, 8);
    b.qp.set_receive_wait(Duration::from_millis(20));
    a.post_send(10, b"no more").unwrap();
    let ended = wait(&a.cq).status;
    assert_eq!(ended, WcStatus::Success, "handed over");
    let deadline = Instant::now() + Duration::from_secs(10);
    while a.qp.state() == QpState::Rts {
        assert!(Instant::now() < deadline, "the wait is over");
        a.cq.poll(1, |_| {}).unwrap();
    }
}

#[test]
fn an_rnr_retry_count_below_seven_is_kept_to() {
    for (count, code, least) in [(0, 31, 0), (2, 20, 20)] {
        let (a, b) = pair();
        a.receive(a.to(&b, HERE));
        b.receive(b.to(&a, HERE));
        a.send();
        b.send();
        exchange(&a, &b);
        a.qp.set_rnr_retry(count);
        b.qp.set_min_rnr_timer(code);
        // A receive that is there in time, and one that is not.
        let region = b.memory();
        b.post_recv(&region);
        a.post_send(8, b"in time!").unwrap();
        assert_eq!(wait(&a.cq).status, WcStatus::Success);
        assert_eq!(wait(&b.cq).byte_len, 8);
        let before = Instant::now();
        a.post_send(8, b"too late").unwrap();
        assert_eq!(wait(&a.cq).status, WcStatus::RnrRetryExceeded);
        let waited = before.elapsed();
        assert!(
            waited >= Duration::from_millis(least),
            "{count} times {code}: {waited:?}"
        );
    }
}

#[test]
fn a_queue_pair_may_be_its_own_peer() {
    let a = End::new(11);
    for _ in 0..3 {
        a.receive(a.to(&a, HERE));
        a.send();
        let region = a.memory();
        a.post_recv(&region);
        a.post_send(7, b"to itself").unwrap();
        let mut seen = [wait(&a.cq), wait(&a.cq)];
        seen.sort_by_key(|completion| completion.wr_id);
        assert_eq!(seen.map(|c| c.status), [WcStatus::Success; 2]);
        assert_eq!((seen[0].wr_id, seen[0].byte_len), (1, 9));
        a.qp.modify_state(QpState::Reset).unwrap();
        a.init();
    }
}
