//! UD queue pairs in memory: what is posted to one is handed to the other.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use weft_verbs::mr::RegionSpec;
use weft_verbs::qp::QpConfig;
use weft_verbs::simulated::{draws, Device, PD};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{
    Access, AsyncEventKind, Payload, PostError, QpCap, QpNumber, QpState, RecvRequest, SendFlags,
    SendOp, SendRequest, Sge, Stag, WcOpcode, WcStatus,
};
use weft_verbs::ud::grh::{ends, GRH_LEN};
use weft_verbs::ud::{Arrival, Debt, Fate, Target, UdQp, Why, MAX_DATAGRAM};

const NOW: Duration = Duration::from_secs(5);
const QKEY: u32 = 0x1234;
const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const CAP: QpCap = QpCap {
    max_send_wr: 8,
    max_recv_wr: 8,
    max_send_sge: 4,
    max_recv_sge: 4,
    max_inline_data: 64,
};

struct End {
    device: Device,
    qp: UdQp,
    stag: Stag,
}

fn end(number: u32, shared: bool) -> End {
    end_with(QpConfig {
        number: QpNumber(number),
        pd: PD,
        cap: CAP,
        sq_sig_all: true,
        shared_receive: shared,
    })
}

fn end_with(config: QpConfig) -> End {
    let mut device = Device::default();
    let stag = device.region(16_384, 0, Access::LOCAL_WRITE, config.number.0);
    if config.shared_receive {
        device.srq = Some(SharedReceiveQueue::new(8, 4));
    }
    let mut qp = UdQp::new(config);
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        qp.modify(state, &mut device).unwrap();
    }
    qp.set_qkey(QKEY);
    End { device, qp, stag }
}

impl End {
    fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: self.stag.0,
        }
    }

    fn post_recv(&mut self, wr_id: u64, scatter: &[Sge], now: Duration) -> Result<(), PostError> {
        let request = RecvRequest { wr_id, scatter };
        self.qp.post_recv(&request, now, &mut self.device)
    }

    fn send(&mut self, op: SendOp, payload: Payload<'_>, qkey: u32) -> Result<(), PostError> {
        self.post(SendFlags::default(), op, payload, qkey)
    }

    fn post(
        &mut self,
        flags: SendFlags,
        op: SendOp,
        payload: Payload<'_>,
        qkey: u32,
    ) -> Result<(), PostError> {
        let request = SendRequest {
            wr_id: 1,
            op,
            flags,
            payload,
        };
        let target = Target {
            local: A,
            peer: B,
            qp: QpNumber(2),
            qkey,
        };
        self.qp.post_send(&request, target, &mut self.device)
    }

    /// What waits first leaves: its message and payload.
    fn leave(&mut self) -> (weft_verbs::ud::header::Message, Vec<u8>) {
        let outgoing = self.qp.waiting(0).expect("a datagram");
        let mut octets = Vec::new();
        match outgoing.payload {
            Payload::Inline(inline) => octets.extend_from_slice(inline),
            Payload::Gather(list) => {
                for sge in list {
                    let span = self.qp.readable(sge, &self.device).expect("readable");
                    octets.extend_from_slice(self.device.octets_of(span).unwrap());
                }
            }
        }
        let message = outgoing.message;
        self.qp.sent(1, &mut self.device);
        (message, octets)
    }

    fn arrive(
        &mut self,
        message: weft_verbs::ud::header::Message,
        payload: &[u8],
        now: Duration,
    ) -> Fate {
        let arrival = Arrival {
            message,
            from: A,
            to: B,
            payload,
            debt: message.mark.map(|mark| Debt {
                to: SocketAddr::new(A, 9),
                from: B,
                mark,
            }),
        };
        self.qp.receive(&arrival, now, &mut self.device)
    }
}

#[test]
fn a_message_arrives_behind_the_header_of_its_packet() {
    let (mut a, mut b) = (end(1, false), end(2, false));
    let list = [b.sge(0, 30), b.sge(100, 200)];
    b.post_recv(7, &list, NOW).unwrap();
    a.device.octets(a.stag)[..100].fill(0xAB);
    let gather = [a.sge(0, 40), a.sge(40, 60)];
    a.send(
        SendOp::SendWithImm { imm: 99 },
        Payload::Gather(&gather),
        QKEY,
    )
    .unwrap();
    let (message, octets) = a.leave();
    assert_eq!(b.arrive(message, &octets, NOW), Fate::Delivered);
    let received = b.device.recvs[0];
    assert_eq!((received.wr_id, received.status), (7, WcStatus::Success));
    assert_eq!(received.opcode, WcOpcode::Recv);
    assert_eq!(received.byte_len, 140);
    assert_eq!(received.imm, Some(99));
    assert_eq!(received.source, Some(QpNumber(1)));
    let placed = b.device.octets(b.stag);
    let mut area = [0; GRH_LEN];
    area[..30].copy_from_slice(&placed[..30]);
    area[30..].copy_from_slice(&placed[100..110]);
    assert_eq!(ends(&area), Some((A, B)));
    assert_eq!(placed[110..210], [0xAB; 100]);
    assert_eq!(placed[210], 0);
    assert_eq!(a.device.sends[0].status, WcStatus::Success);
    b.device.check_canaries();
}

#[test]
fn only_who_knows_the_queue_key_is_heard() {
    let (mut a, mut b) = (end(1, false), end(2, false));
    let list = [b.sge(0, 100)];
    b.post_recv(7, &list, NOW).unwrap();
    a.send(SendOp::Send, Payload::Inline(b"x"), QKEY + 1)
        .unwrap();
    let (message, octets) = a.leave();
    let fate = b.arrive(message, &octets, NOW);
    assert_eq!(fate, Fate::Dropped(Why::QKey));
    assert!(
        !fate.owes_credit(),
        "an answer would tell that the number exists"
    );
    assert!(b.device.recvs.is_empty());
    // The highest bit of a request's key stands for the sender's own.
    a.send(SendOp::Send, Payload::Inline(b"x"), 1 << 31)
        .unwrap();
    let (message, octets) = a.leave();
    assert_eq!(b.arrive(message, &octets, NOW), Fate::Delivered);
}

#[test]
fn a_datagram_that_finds_no_receive_is_lost() {
    let (mut a, mut b) = (end(1, false), end(2, false));
    a.send(SendOp::Send, Payload::Inline(b"x"), QKEY).unwrap();
    let (message, octets) = a.leave();
    let fate = b.arrive(message, &octets, NOW);
    assert_eq!(fate, Fate::Dropped(Why::NoReceive));
    assert!(fate.owes_credit(), "the sender has the key, and waits");
    let list = [b.sge(0, 100)];
    b.post_recv(7, &list, NOW).unwrap();
    assert!(b.device.recvs.is_empty());
}

#[test]
fn a_queue_that_ran_empty_may_be_filled_in_time() {
    let (mut a, mut b) = (end(1, false), end(2, false));
    let list = [b.sge(0, 100)];
    b.post_recv(1, &list, NOW).unwrap();
    a.send(SendOp::Send, Payload::Inline(b"abc"), QKEY).unwrap();
    let (mut message, octets) = a.leave();
    assert_eq!(b.arrive(message, &octets, NOW), Fate::Delivered);
    message.mark = Some(5);
    assert_eq!(b.arrive(message, b"in time", NOW), Fate::Held);
    assert_eq!(b.qp.take_debt(), None, "no answer before it is let go");
    b.post_recv(2, &list, NOW + Duration::from_millis(999))
        .unwrap();
    assert_eq!(b.device.recvs[1].byte_len, 47);
    assert_eq!(b.qp.take_debt().map(|debt| debt.mark), Some(5));
    assert_eq!(b.arrive(message, b"too late", NOW), Fate::Held);
    b.post_recv(3, &list, NOW + Duration::from_millis(1001))
        .unwrap();
    assert_eq!(b.device.recvs.len(), 2);
    assert_eq!(b.qp.take_debt().map(|debt| debt.mark), Some(5));
    assert_eq!(b.arrive(message, &octets, NOW), Fate::Delivered);
    assert_eq!(b.device.recvs[2].wr_id, 3);
}

/// How many datagrams with these octets are held, of very many.
fn held_of(octets: &[u8]) -> usize {
    let (mut a, mut b) = (end(1, false), end(2, false));
    let list = [b.sge(0, 100)];
    b.post_recv(1, &list, NOW).unwrap();
    a.send(SendOp::Send, Payload::Inline(b"x"), QKEY).unwrap();
    let (message, first) = a.leave();
    assert_eq!(b.arrive(message, &first, NOW), Fate::Delivered);
    (0..10_000)
        .take_while(|_| b.arrive(message, octets, NOW) == Fate::Held)
        .count()
}

#[test]
fn what_is_held_is_bounded() {
    assert_eq!(held_of(b"x"), 4096);
}

#[test]
fn eight_mebibytes_are_held_at_most() {
    assert_eq!(held_of(&[0; MAX_DATAGRAM]) * MAX_DATAGRAM, 8 << 20);
}

#[test]
fn what_does_not_fit_is_lost_and_the_receive_stays() {
    let mut b = end(2, false);
    let mut a = end(1, false);
    a.send(SendOp::Send, Payload::Inline(b"0123456789"), QKEY)
        .unwrap();
    let (message, octets) = a.leave();
    let list = [b.sge(0, 49)];
    b.post_recv(7, &list, NOW).unwrap();
    assert_eq!(b.arrive(message, &octets, NOW), Fate::Dropped(Why::TooLong));
    assert_eq!(b.device.octets(b.stag)[..64], [0; 64], "nothing is written");
    assert_eq!(b.arrive(message, &octets[..9], NOW), Fate::Delivered);
    assert_eq!(b.device.recvs[0].wr_id, 7);
    let long = vec![0; MAX_DATAGRAM + 1];
    assert_eq!(b.arrive(message, &long, NOW), Fate::Dropped(Why::TooLong));
}

#[test]
fn only_sends_of_a_datagrams_length_are_taken() {
    let mut a = end(1, false);
    let read = SendOp::Read {
        remote_addr: 0,
        rkey: Stag(0),
    };
    assert_eq!(
        a.send(read, Payload::Gather(&[]), QKEY),
        Err(PostError::Unsupported)
    );
    let long = [a.sge(0, MAX_DATAGRAM as u32 + 1)];
    assert_eq!(
        a.send(SendOp::Send, Payload::Gather(&long), QKEY),
        Err(PostError::TooLarge)
    );
    let longest = [a.sge(0, MAX_DATAGRAM as u32)];
    for _ in 0..8 {
        a.send(SendOp::Send, Payload::Gather(&longest), QKEY)
            .unwrap();
    }
    assert_eq!(
        a.send(SendOp::Send, Payload::Gather(&longest), QKEY),
        Err(PostError::QueueFull)
    );
}

#[test]
fn each_state_takes_what_it_may_be_posted() {
    let mut a = end(1, false);
    let list = [a.sge(0, 100)];
    let posted = |a: &mut End| {
        let sent = a.send(SendOp::Send, Payload::Inline(b"x"), QKEY);
        (a.post_recv(1, &list, NOW), sent)
    };
    let not_now = Err(PostError::InvalidState);
    a.qp.modify(QpState::Reset, &mut a.device).unwrap();
    assert_eq!(posted(&mut a), (not_now, not_now));
    for state in [QpState::Init, QpState::Rtr] {
        a.qp.modify(state, &mut a.device).unwrap();
        assert_eq!(posted(&mut a), (Ok(()), not_now));
    }
    a.qp.modify(QpState::Rts, &mut a.device).unwrap();
    assert_eq!(posted(&mut a), (Ok(()), Ok(())));
}

#[test]
fn what_waits_is_not_sent_in_sqd() {
    let mut a = end(1, false);
    a.send(SendOp::Send, Payload::Inline(b"later"), QKEY)
        .unwrap();
    a.qp.modify(QpState::Sqd, &mut a.device).unwrap();
    assert!(a.qp.waiting(0).is_none());
    a.qp.modify(QpState::Rts, &mut a.device).unwrap();
    assert_eq!(a.leave().1, b"later");
}

#[test]
fn an_unsignalled_send_is_reported_only_if_it_fails() {
    let mut a = end_with(QpConfig {
        number: QpNumber(1),
        pd: PD,
        cap: CAP,
        sq_sig_all: false,
        shared_receive: false,
    });
    let signaled = SendFlags {
        signaled: true,
        ..SendFlags::default()
    };
    for flags in [SendFlags::default(), signaled, SendFlags::default()] {
        a.post(flags, SendOp::Send, Payload::Inline(b"x"), QKEY)
            .unwrap();
    }
    let ended = |a: &End| -> Vec<_> {
        let sends = a.device.sends.iter();
        sends.map(|c| (c.status, c.slots)).collect()
    };
    a.leave();
    assert_eq!(ended(&a), []);
    a.leave();
    let both = (WcStatus::Success, 2);
    assert_eq!(ended(&a), [both]);
    a.qp.modify(QpState::Error, &mut a.device).unwrap();
    assert_eq!(ended(&a), [both, (WcStatus::Flushed, 1)]);
}

#[test]
fn a_full_receive_queue_takes_no_more() {
    let mut b = end(2, false);
    let list = [b.sge(0, 100)];
    for wr_id in 0..8 {
        b.post_recv(wr_id, &list, NOW).unwrap();
    }
    assert_eq!(b.post_recv(8, &list, NOW), Err(PostError::QueueFull));
}

#[test]
fn a_send_at_fault_holds_up_the_rest_until_the_program_goes_on() {
    let mut a = end(1, false);
    let foreign = a.device.regions.insert(
        RegionSpec {
            iova: 0,
            len: 0,
            access: Access::NONE,
            pd: PD,
        },
        0,
        draws(3),
    );
    let bad = [Sge {
        addr: 0,
        length: 8,
        lkey: foreign.unwrap().0,
    }];
    a.send(SendOp::Send, Payload::Gather(&bad), QKEY).unwrap();
    a.send(SendOp::Send, Payload::Inline(b"behind"), QKEY)
        .unwrap();
    assert_eq!(a.qp.readable(&bad[0], &a.device), None);
    a.qp.fail_front(&mut a.device);
    let statuses: Vec<_> = a.device.sends.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::LocalProtection, WcStatus::Flushed]);
    assert_eq!(a.qp.state(), QpState::Sqe);
    a.send(SendOp::Send, Payload::Inline(b"flushed"), QKEY)
        .unwrap();
    assert_eq!(a.device.sends[2].status, WcStatus::Flushed);
    a.qp.modify(QpState::Rts, &mut a.device).unwrap();
    a.send(SendOp::Send, Payload::Inline(b"again"), QKEY)
        .unwrap();
    assert_eq!(a.leave().1, b"again");
}

#[test]
fn the_error_state_flushes_everything_and_hears_nobody() {
    let (mut a, mut b) = (end(1, false), end(2, false));
    let list = [b.sge(0, 100)];
    b.post_recv(7, &list, NOW).unwrap();
    b.qp.modify(QpState::Error, &mut b.device).unwrap();
    assert_eq!(b.device.recvs[0].status, WcStatus::Flushed);
    b.post_recv(8, &list, NOW).unwrap();
    assert_eq!(b.device.recvs[1].status, WcStatus::Flushed, "at once");
    assert_eq!(b.device.async_events, [], "the queue is its own");
    a.send(SendOp::Send, Payload::Inline(b"x"), QKEY).unwrap();
    let (message, octets) = a.leave();
    let fate = b.arrive(message, &octets, NOW);
    assert_eq!(fate, Fate::Dropped(Why::State));
    assert!(
        !fate.owes_credit(),
        "an answer would tell that the number exists"
    );
    assert_eq!(
        b.qp.modify(QpState::Rts, &mut b.device),
        Err(PostError::InvalidState)
    );
    b.qp.modify(QpState::Reset, &mut b.device).unwrap();
    assert_eq!(b.qp.state(), QpState::Reset);
}

#[test]
fn receives_may_be_shared() {
    let (mut a, mut b) = (end(1, false), end(2, true));
    let list = [b.sge(0, 100)];
    for wr_id in [3, 4] {
        let request = RecvRequest {
            wr_id,
            scatter: &list,
        };
        b.device.srq.as_mut().unwrap().push(&request).unwrap();
    }
    a.send(SendOp::Send, Payload::Inline(b"x"), QKEY).unwrap();
    let (message, octets) = a.leave();
    assert_eq!(b.arrive(message, &octets, NOW), Fate::Delivered);
    assert_eq!(
        b.arrive(message, &[0; 61], NOW),
        Fate::Dropped(Why::TooLong)
    );
    let ended: Vec<_> = b.device.recvs.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(ended, [(3, WcStatus::Success), (4, WcStatus::LocalLength)]);
    let fate = b.arrive(message, &octets, NOW);
    assert_eq!(fate, Fate::Dropped(Why::NoReceive));
    let own = b.post_recv(5, &list, NOW);
    assert_eq!(own, Err(PostError::InvalidState), "it has no other queue");
    for _ in 0..2 {
        b.qp.modify(QpState::Error, &mut b.device).unwrap();
        let once = [AsyncEventKind::QpLastWqeReached];
        assert_eq!(b.device.async_events, once);
    }
}

#[test]
fn a_receive_of_foreign_memory_is_an_error_and_writes_nothing() {
    let (mut a, mut b) = (end(1, false), end(2, false));
    let read_only = b.device.region(100, 0, Access::NONE, 77);
    let list = [Sge {
        addr: 0,
        length: 100,
        lkey: read_only.0,
    }];
    b.post_recv(7, &list, NOW).unwrap();
    a.send(SendOp::Send, Payload::Inline(b"x"), QKEY).unwrap();
    let (message, octets) = a.leave();
    b.arrive(message, &octets, NOW);
    assert_eq!(b.device.recvs[0].status, WcStatus::LocalProtection);
    assert_eq!(b.qp.state(), QpState::Error);
    assert_eq!(b.device.octets(read_only), [0; 100]);
}

#[test]
fn a_receive_is_at_fault_if_any_of_its_memory_is() {
    type Spoil = fn(&mut End) -> Stag;
    let read_only: Spoil = |b| b.device.region(GRH_LEN, 0, Access::NONE, 77);
    let unmapped: Spoil = |b| {
        let stag = b.device.region(GRH_LEN, 0, Access::LOCAL_WRITE, 77);
        b.device.unmapped.push(stag);
        stag
    };
    for (spoil, before) in [(read_only, 0), (read_only, GRH_LEN), (unmapped, GRH_LEN)] {
        let (mut a, mut b) = (end(1, false), end(2, false));
        let bad = Sge {
            addr: 0,
            length: GRH_LEN as u32,
            lkey: spoil(&mut b).0,
        };
        let list = [b.sge(0, before as u32), bad, b.sge(0, 100)];
        b.post_recv(7, &list, NOW).unwrap();
        a.send(SendOp::Send, Payload::Inline(b"x"), QKEY).unwrap();
        let (message, octets) = a.leave();
        b.arrive(message, &octets, NOW);
        assert_eq!(b.device.recvs[0].status, WcStatus::LocalProtection);
        assert_eq!(b.qp.state(), QpState::Error);
    }
}
