//! UD queue pairs, on loopback.

#[path = "peers/network.rs"]
mod network;
#[path = "peers/raw.rs"]
mod raw;

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_engine::mem::Registered;
use weft_engine::types::{
    Access, Completion, Payload, QpCap, QpNumber, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Sge, WcStatus,
};
use weft_engine::ud::{grh_ends, GRH_LEN};
use weft_engine::{Context, Cq, Mr, Pd, QpInit, UdQp, UdTarget};

const HERE: &str = "127.0.0.1";
const DEPTH: u32 = 128;
const CAP: QpCap = QpCap {
    max_send_wr: DEPTH,
    max_recv_wr: DEPTH,
    max_send_sge: 2,
    max_recv_sge: 1,
    max_inline_data: 64,
};

/// The test's own: numbers of queue pairs are side by side in one process, and given again.
fn qkey() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static OWN: u32 = std::process::id() << 8 | NEXT.fetch_add(2, Ordering::Relaxed));
    OWN.with(|own| *own)
}

struct End {
    pd: Arc<Pd>,
    send_cq: Arc<Cq>,
    recv_cq: Arc<Cq>,
    qp: Arc<UdQp>,
}

impl End {
    fn new() -> End {
        network::start();
        let context = Context::open().unwrap();
        let pd = context.alloc_pd();
        let send_cq = context.create_cq(512, None, 1).unwrap();
        let recv_cq = context.create_cq(512, None, 2).unwrap();
        let qp = pd
            .create_ud_qp(QpInit {
                send_cq: send_cq.clone(),
                recv_cq: recv_cq.clone(),
                srq: None,
                cap: CAP,
                sq_sig_all: true,
                cookie: 9,
            })
            .unwrap();
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            qp.modify_state(state).unwrap();
        }
        qp.set_qkey(qkey());
        End {
            pd,
            send_cq,
            recv_cq,
            qp,
        }
    }

    fn memory(&self, octets: usize) -> Arc<Mr> {
        let memory = Registered::allocate(octets).unwrap();
        let iova = memory.addr();
        self.pd.register(memory, iova, Access::LOCAL_WRITE).unwrap()
    }

    fn receive_at(&self, mr: &Mr, at: u64, length: u32, wr_id: u64) {
        let scatter = [sge(mr, at, length)];
        let request = RecvRequest {
            wr_id,
            scatter: &scatter,
        };
        self.qp.post_recv(&request).unwrap();
    }

    fn target(&self, address: &str) -> UdTarget {
        let address: IpAddr = address.parse().unwrap();
        UdTarget {
            local: address,
            peer: address,
            qp: QpNumber(self.qp.number()),
            qkey: qkey(),
        }
    }
}

fn sge(mr: &Mr, at: u64, length: u32) -> Sge {
    Sge {
        addr: mr.memory().addr() + at,
        length,
        lkey: mr.stag().0,
    }
}

fn send<'a>(wr_id: u64, payload: Payload<'a>) -> SendRequest<'a> {
    SendRequest {
        wr_id,
        op: SendOp::Send,
        flags: SendFlags::default(),
        payload,
    }
}

/// Sends a datagram to a queue pair that need not be there.
pub fn send_to_number(number: u32) {
    let end = End::new();
    let target = UdTarget {
        qp: QpNumber(number),
        ..end.target(HERE)
    };
    let request = send(1, Payload::Inline(b"x"));
    end.qp.post_send(&request, target).unwrap();
    assert_eq!(wait(&end.send_cq).status, WcStatus::Success);
}

/// A socket of the kernel's, for who is no queue pair; none where the test runs over another network.
fn stranger() -> Option<UdpSocket> {
    if network::is_in_memory() {
        eprintln!("skipped: a plain socket is not on this network");
        return None;
    }
    Some(UdpSocket::bind((HERE, 0)).unwrap())
}

fn poll(cq: &Cq) -> Option<Completion> {
    let mut found = None;
    cq.poll(1, |c| found = Some(c)).unwrap();
    found
}

fn wait(cq: &Cq) -> Completion {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(completion) = poll(cq) {
            return completion;
        }
        assert!(Instant::now() < deadline, "no completion");
    }
}

#[test]
fn a_datagram_arrives_by_both_families() {
    let (a, b) = (End::new(), End::new());
    let into = b.memory(4096);
    for address in [HERE, "::1"] {
        if UdpSocket::bind((address, 0)).is_err() {
            eprintln!("skipped: this machine has no {address}");
            continue;
        }
        b.receive_at(&into, 0, 100, 5);
        let request = send(1, Payload::Inline(b"hello"));
        a.qp.post_send(&request, b.target(address)).unwrap();
        let received = wait(&b.recv_cq);
        assert_eq!((received.wr_id, received.byte_len), (5, 45));
        assert_eq!(received.source, Some(QpNumber(a.qp.number())));
        assert_eq!(wait(&a.send_cq).status, WcStatus::Success);
        let mut octets = [0; 45];
        into.memory().read(0, &mut octets).unwrap();
        let (area, payload) = octets.split_first_chunk::<GRH_LEN>().unwrap();
        let here: IpAddr = address.parse().unwrap();
        assert_eq!(grh_ends(area), Some((here, here)));
        assert_eq!(payload, b"hello");
    }
}

/// More than any buffer holds, and a receiver with few receives, which is kept from its core for a while: the sender is
/// held back. Neither end waits for longer than a second (decision 0008), so a burst in which this thread, which is
/// both programs, stood still for half of that says nothing, and is made again.
#[test]
fn a_long_burst_loses_nothing() {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !burst() {
        assert!(
            Instant::now() < deadline,
            "this thread was kept from the core in every burst"
        );
        let (a, b) = (End::new(), End::new());
        one_at_a_time(&a, &b, 300);
    }
}

/// Sends datagrams each of which is there before the next one leaves. What a burst that was given up had under way may
/// never be answered, and a sender that gets no answer stops waiting for its receiver; it waits again from the first
/// answer on, of which there are some here.
fn one_at_a_time(a: &End, b: &End, count: u64) {
    let (from, into) = (a.memory(4096), b.memory(4136));
    for n in 0..count {
        b.receive_at(&into, 0, 4136, n);
        let gather = [sge(&from, 0, 4096)];
        a.qp.post_send(&send(n, Payload::Gather(&gather)), b.target(HERE))
            .unwrap();
        assert_eq!(wait(&a.send_cq).status, WcStatus::Success);
        assert_eq!(wait(&b.recv_cq).wr_id, n);
    }
}

/// Sends and receives a burst; false when this thread stood still for so long that datagrams may be lost.
fn burst() -> bool {
    const COUNT: u32 = 20_000;
    const LEN: u32 = 4096;
    const STOOD_STILL: Duration = Duration::from_millis(500);
    const KEPT_AWAY: Duration = Duration::from_millis(250);
    let (a, b) = (End::new(), End::new());
    let from = a.memory(LEN as usize);
    let slot = u64::from(LEN) + 40;
    let into = b.memory(slot as usize * DEPTH as usize);
    let receive = |n: u64| b.receive_at(&into, slot * (n % u64::from(DEPTH)), slot as u32, n);
    (0..u64::from(DEPTH)).for_each(receive);
    let to = b.target(HERE);
    let (mut posted, mut done, mut received) = (0, 0, 0);
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = Instant::now();
    while received < COUNT {
        let now = Instant::now();
        if now - last > STOOD_STILL {
            return false;
        }
        last = now;
        while posted < COUNT && posted - done < DEPTH {
            let length = if posted % 7 == 0 { 100 } else { LEN };
            let gather = [sge(&from, 0, length)];
            let request = send(u64::from(posted), Payload::Gather(&gather));
            a.qp.post_send(&request, to).unwrap();
            posted += 1;
        }
        if poll(&a.send_cq).is_some() {
            done += 1;
        }
        if let Some(completion) = poll(&b.recv_cq) {
            // A pause within this turn may show here first.
            if last.elapsed() > STOOD_STILL {
                return false;
            }
            assert_eq!(completion.wr_id, u64::from(received), "in order");
            let length = if received % 7 == 0 { 100 } else { LEN };
            assert_eq!(completion.byte_len, length + 40);
            received += 1;
            if received % (COUNT / 4) == 0 {
                std::thread::sleep(KEPT_AWAY);
            }
            receive(completion.wr_id + u64::from(DEPTH));
        }
        assert!(now < deadline, "{received} of {COUNT} came");
    }
    true
}

#[test]
fn queue_pairs_of_one_port_are_told_apart() {
    let (a, others) = (End::new(), [End::new(), End::new(), End::new()]);
    let regions: Vec<_> = others.iter().map(|end| end.memory(4096)).collect();
    for (end, region) in others.iter().zip(&regions) {
        for wr_id in 0..8 {
            end.receive_at(region, wr_id * 100, 100, wr_id);
        }
    }
    {
        let mut batch = a.qp.send_batch();
        for n in 0..24u8 {
            let octets = [n];
            let request = send(u64::from(n), Payload::Inline(&octets));
            let to = others[usize::from(n) % 3].target(HERE);
            batch.post(&request, to).unwrap();
        }
    }
    for (index, (end, region)) in others.iter().zip(&regions).enumerate() {
        for wr_id in 0..8 {
            assert_eq!(wait(&end.recv_cq).wr_id, wr_id);
            let mut octet = [0];
            region.memory().read(wr_id * 100 + 40, &mut octet).unwrap();
            assert_eq!(usize::from(octet[0]), wr_id as usize * 3 + index);
        }
    }
}

#[test]
fn states_that_do_not_follow_each_other_are_refused() {
    let end = End::new();
    assert!(end.qp.modify_state(QpState::Init).is_err());
    assert_eq!(end.qp.state(), QpState::Rts);
}

#[test]
fn a_reset_and_nothing_else_forgets_what_completed() {
    let end = End::new();
    let memory = end.memory(4096);
    for forgotten in [false, true] {
        end.receive_at(&memory, 0, 100, 5);
        end.qp.modify_state(QpState::Error).unwrap();
        if !forgotten {
            end.qp.modify_state(QpState::Error).unwrap();
            assert_eq!(wait(&end.recv_cq).status, WcStatus::Flushed);
        }
        end.qp.modify_state(QpState::Reset).unwrap();
        assert_eq!(poll(&end.recv_cq), None);
        end.qp.modify_state(QpState::Init).unwrap();
    }
}

#[test]
fn a_receive_posted_after_an_error_is_flushed_at_once() {
    let end = End::new();
    let memory = end.memory(4096);
    end.qp.modify_state(QpState::Error).unwrap();
    end.receive_at(&memory, 0, 100, 5);
    let flushed = poll(&end.recv_cq).map(|completion| (completion.wr_id, completion.status));
    assert_eq!(flushed, Some((5, WcStatus::Flushed)));
}

#[test]
fn strangers_are_not_heard() {
    let Some(stranger) = stranger() else {
        return;
    };
    let b = End::new();
    let before = raw::counts().totals;
    let into = b.memory(4096);
    b.receive_at(&into, 0, 4096, 1);
    let to = (HERE, (b.qp.number() >> 8) as u16);
    let header = |magic: &[u8; 4], number: u32, qkey: u32| {
        let mut octets = magic.to_vec();
        octets.extend_from_slice(&[0; 4]);
        for word in [number, 7, qkey, 0, 0] {
            octets.extend_from_slice(&word.to_be_bytes());
        }
        octets
    };
    let number = b.qp.number();
    for octets in [
        vec![],
        vec![0; 2000],
        header(b"XUD\x01", number, qkey()),
        header(b"WUD\x02", number, qkey()),
        header(b"WUD\x01", number ^ 1, qkey()),
        header(b"WUD\x01", number, qkey() ^ 1),
        header(b"WUD\x01", number, qkey())[..27].to_vec(),
        [&b"WUD\x01\x02"[..], &[0xFF; 23]].concat(),
    ] {
        stranger.send_to(&octets, to).unwrap();
    }
    // Behind all that one that is right.
    stranger
        .send_to(&header(b"WUD\x01", number, qkey()), to)
        .unwrap();
    let received = wait(&b.recv_cq);
    assert_eq!((received.wr_id, received.byte_len), (1, 40));
    assert_eq!(received.source, Some(QpNumber(7)));
    assert_eq!(b.qp.state(), QpState::Rts);
    let deadline = Instant::now() + raw::TIMEOUT;
    loop {
        let now = raw::counts().totals;
        let dropped = now.datagrams_dropped > before.datagrams_dropped;
        if dropped && now.wrong_qkeys > before.wrong_qkeys {
            break;
        }
        assert!(Instant::now() < deadline, "not counted: {now:?}");
    }
}

/// The octets of a datagram without payload that asks for an answer.
fn asking(number: u32, qkey: u32, mark: u32) -> Vec<u8> {
    let mut octets = b"WUD\x01\x00\x02\x00\x00".to_vec();
    for word in [number, 7, qkey, 0, mark] {
        octets.extend_from_slice(&word.to_be_bytes());
    }
    octets
}

/// Who has not the Q_Key of a queue pair that receives hears nothing, so that an answer does not say which numbers
/// exist.
#[test]
fn only_who_has_the_queue_key_is_answered() {
    let Some(stranger) = stranger() else {
        return;
    };
    let (b, early, failed) = (End::new(), End::new(), End::new());
    let into = b.memory(4096);
    b.receive_at(&into, 0, 100, 1);
    early.qp.modify_state(QpState::Reset).unwrap();
    early.qp.modify_state(QpState::Init).unwrap();
    early.qp.set_qkey(qkey());
    failed.qp.modify_state(QpState::Error).unwrap();
    let to = (HERE, (b.qp.number() >> 8) as u16);
    stranger
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let gone = {
        let end = End::new();
        end.qp.destroy();
        end.qp.number()
    };
    let number = b.qp.number();
    let silent = [
        (number, qkey() ^ 1),
        (number, 0),
        (early.qp.number(), qkey()),
        (failed.qp.number(), qkey()),
        (gone, qkey()),
    ];
    for (mark, (number, qkey)) in (100..).zip(silent) {
        let port = (number >> 8) as u16;
        assert_eq!(
            port, to.1,
            "one socket, so that what is sent last is answered last"
        );
        stranger.send_to(&asking(number, qkey, mark), to).unwrap();
    }
    // Behind them one that fits, and one that finds no receive: who has the key is told how far this end has read.
    for mark in [200, 201] {
        stranger.send_to(&asking(number, qkey(), mark), to).unwrap();
    }
    let mut answer = [0; 100];
    let octets = stranger.recv(&mut answer).unwrap();
    assert_eq!((octets, &answer[..5]), (28, &b"WUD\x01\x02"[..]));
    let mark = u32::from_be_bytes(answer[24..28].try_into().unwrap());
    assert_eq!(mark, 200, "marks below are the strangers'");
    assert_eq!(wait(&b.recv_cq).byte_len, 40);
    b.receive_at(&into, 0, 100, 2);
    let octets = stranger.recv(&mut answer).unwrap();
    let mark = u32::from_be_bytes(answer[24..28].try_into().unwrap());
    assert_eq!((octets, mark), (28, 201));
}

#[test]
fn nobody_there_loses_datagrams_and_stops_nobody() {
    let (a, b) = (End::new(), End::new());
    let to = b.target(HERE);
    b.qp.destroy();
    let free = UdpSocket::bind((HERE, 0)).unwrap().local_addr().unwrap();
    let nobody = UdTarget {
        qp: QpNumber(u32::from(free.port()) << 8),
        ..to
    };
    for n in 0..1000 {
        for target in [to, nobody] {
            let request = send(n, Payload::Inline(b"x"));
            a.qp.post_send(&request, target).unwrap();
            assert_eq!(wait(&a.send_cq).status, WcStatus::Success);
        }
    }
}

#[test]
fn memory_at_fault_is_the_programs_error() {
    let (a, b) = (End::new(), End::new());
    let from = a.memory(64);
    let to = b.target(HERE);
    let gather = [sge(&from, 60, 8)];
    a.qp.post_send(&send(3, Payload::Gather(&gather)), to)
        .unwrap();
    let failed = wait(&a.send_cq);
    assert_eq!(
        (failed.wr_id, failed.status),
        (3, WcStatus::LocalProtection)
    );
    assert_eq!(a.qp.state(), QpState::Sqe);
    a.qp.modify_state(QpState::Rts).unwrap();
    a.qp.post_send(&send(4, Payload::Inline(b"x")), to).unwrap();
    assert_eq!(wait(&a.send_cq).status, WcStatus::Success);
}
