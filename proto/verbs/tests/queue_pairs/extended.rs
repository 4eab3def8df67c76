//! Immediate data, atomics and memory windows between two queue pairs.

use std::time::Duration;

use crate::pair::{post, queue_pair, recv, sge, start_up, Config, Pair, ALL};
use weft_verbs::iwarp::{Established, PeerFault, Rtr};
use weft_verbs::qp::{FpduPolicy, QpEvent};
use weft_verbs::simulated::{draws, Device, PD};
use weft_verbs::types::{
    Access, Bind, Payload, PostError, QpState, SendFlags, SendOp, SendRequest, Stag, WcOpcode,
    WcStatus, WindowKind,
};

/// Every way two Weft ends can start, those without a ready-to-receive message among them.
fn starts() -> Vec<Config> {
    let mut all = Vec::new();
    for policy in [FpduPolicy::Auto, FpduPolicy::Emss, FpduPolicy::Large] {
        for (revision, peer_to_peer) in [(1, false), (2, false), (2, true)] {
            all.push(Config {
                revision,
                peer_to_peer,
                policy,
                ..Config::default()
            });
        }
    }
    all
}

#[test]
fn immediate_values_arrive_with_their_messages_in_order() {
    for (seed, config) in starts().into_iter().enumerate() {
        let mut pair = Pair::new(config, seed as u64);
        let target = pair.ends[1].device.region(8192, 0, ALL, 2);
        let source = pair.ends[0].device.region(8192, 0, ALL, 1);
        pair.ends[0].device.octets(source).fill(0xAB);
        for wr_id in 0..4 {
            recv(&mut pair, 1, wr_id, &[sge(target, 4096, 4096)]);
        }
        let write = |imm| SendOp::WriteWithImm {
            remote_addr: 0,
            rkey: target,
            imm,
        };
        let gather = [sge(source, 0, 4000)];
        post(&mut pair, 0, 1, write(1), Payload::Gather(&gather));
        let send = SendOp::SendWithImm { imm: 0xAABB_CCDD };
        post(&mut pair, 0, 2, send, Payload::Inline(b"hello"));
        post(&mut pair, 0, 3, write(3), Payload::Inline(&[]));
        post(&mut pair, 0, 4, SendOp::Send, Payload::Inline(b"plain"));
        pair.drive();
        let [a, b] = &mut pair.ends;
        assert!(a.device.sends.iter().all(|c| c.status == WcStatus::Success));
        let seen: Vec<_> = b
            .device
            .recvs
            .iter()
            .map(|c| (c.wr_id, c.opcode, c.byte_len, c.imm))
            .collect();
        let wanted = [
            (0, WcOpcode::RecvWriteWithImm, 4000, Some(1)),
            (1, WcOpcode::Recv, 5, Some(0xAABB_CCDD)),
            (2, WcOpcode::RecvWriteWithImm, 0, Some(3)),
            (3, WcOpcode::Recv, 5, None),
        ];
        assert_eq!(seen, wanted, "{config:?}");
        assert!(b.device.octets(target)[..4000].iter().all(|o| *o == 0xAB));
        let known = a.qp.peer_is_weft() && b.qp.peer_is_weft();
        assert!(known, "the two have found each other: {config:?}");
        b.device.check_canaries();
    }
}

#[test]
fn the_responder_may_send_immediates_first() {
    for (seed, config) in starts().into_iter().enumerate() {
        let mut pair = Pair::new(config, seed as u64);
        recv(&mut pair, 0, 1, &[]);
        recv(&mut pair, 1, 2, &[]);
        let send = SendOp::SendWithImm { imm: 7 };
        post(&mut pair, 1, 5, send, Payload::Inline(&[]));
        post(&mut pair, 0, 6, SendOp::Send, Payload::Inline(&[]));
        pair.drive();
        let imm: Vec<_> = pair.ends[0].device.recvs.iter().map(|c| c.imm).collect();
        assert_eq!(imm, [Some(7)], "{config:?}");
    }
}

/// A zero-length Read Response, vector G of the wire tests.
const READ_RESPONSE: [u8; 20] = [
    0x00, 0x0e, 0xc1, 0x42, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x21, 0xa3, 0xe8, 0x3e,
];

#[test]
fn a_send_with_immediate_to_a_foreign_peer_is_refused() {
    let mut device = Device::default();
    let request = SendRequest {
        wr_id: 1,
        op: SendOp::SendWithImm { imm: 7 },
        flags: SendFlags::default(),
        payload: Payload::Inline(b"x"),
    };
    let [active, _] = start_up(&Config::default());
    let mut qp = queue_pair(10, false);
    qp.modify(QpState::Init, &mut device).expect("INIT");
    let write_first = Established {
        rtr: Some(Rtr::Write),
        ..active.clone()
    };
    qp.attach(&write_first, 1448, FpduPolicy::Auto, Duration::ZERO);
    qp.post_send(&request, &mut device).expect("posted");
    qp.fill(1 << 20, &mut device);
    // The ready-to-receive Write, and the Read that asks the peer what it is.
    assert_eq!(qp.outgoing().queued(), 20 + 52);
    qp.sent(20 + 52, &mut device);
    qp.fill(1 << 20, &mut device);
    assert_eq!(
        qp.outgoing().queued(),
        0,
        "asked once, and nothing sent yet"
    );
    let mut answer = READ_RESPONSE;
    assert_eq!(qp.receive(&mut answer, &mut device).consumed, 20);
    qp.fill(1 << 20, &mut device);
    let statuses: Vec<_> = device.sends.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::LocalQpOperation]);

    // Once the peer is known it is refused when posted, and nothing ends.
    let mut qp = queue_pair(11, false);
    qp.modify(QpState::Init, &mut device).expect("INIT");
    let read_first = Established {
        rtr: Some(Rtr::Read),
        ..active
    };
    qp.attach(&read_first, 1448, FpduPolicy::Auto, Duration::ZERO);
    qp.fill(1 << 20, &mut device);
    qp.sent(52, &mut device);
    let mut answer = READ_RESPONSE;
    qp.receive(&mut answer, &mut device);
    let refused = qp.post_send(&request, &mut device);
    assert_eq!(refused, Err(PostError::Unsupported));
    assert_eq!(qp.state(), QpState::Rts);
}

#[test]
fn an_immediate_without_a_receive_ends_as_a_send_does() {
    let mut pair = Pair::new(Config::default(), 1);
    pair.ends[1].qp.set_receive_wait(Duration::ZERO);
    let target = pair.ends[1].device.region(8, 0, ALL, 2);
    let write = SendOp::WriteWithImm {
        remote_addr: 0,
        rkey: target,
        imm: 1,
    };
    post(&mut pair, 0, 1, write, Payload::Inline(b"x"));
    pair.drive();
    assert_eq!(fault(&pair, 1), Some(PeerFault::NoBuffer));
}

fn fault(pair: &Pair, side: usize) -> Option<PeerFault> {
    pair.ends[side].events.iter().find_map(|e| match e {
        QpEvent::PeerFault(f) => Some(f.fault),
        _ => None,
    })
}

fn number(octets: &[u8]) -> u64 {
    u64::from_ne_bytes(octets.try_into().expect("eight octets"))
}

#[test]
fn atomics_take_turns_with_reads_and_respect_ord() {
    let config = Config {
        ord: 2,
        ird: 2,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 3);
    let sink = pair.ends[0].device.region(128, 0, Access::LOCAL_WRITE, 1);
    let cell = pair.ends[1].device.region(64, 0x1000, ALL, 2);
    pair.ends[1].device.octets(cell)[8..16].copy_from_slice(&100u64.to_ne_bytes());
    let (remote_addr, rkey) = (0x1008, cell);
    for at in 0..12u64 {
        let op = match at % 3 {
            0 => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: at + 1,
            },
            1 => SendOp::Read { remote_addr, rkey },
            _ => SendOp::CompareSwap {
                remote_addr,
                rkey,
                // Every other one expects the wrong value.
                compare: if at % 2 == 0 { 101 } else { 9999 },
                swap: 1000 + at,
            },
        };
        let scatter = [sge(sink, at * 8, 3), sge(sink, at * 8 + 3, 5)];
        post(&mut pair, 0, at, op, Payload::Gather(&scatter));
    }
    pair.drive();
    let [a, b] = &mut pair.ends;
    let done: Vec<_> = a
        .device
        .sends
        .iter()
        .map(|c| (c.wr_id, c.status, c.byte_len))
        .collect();
    let wanted: Vec<_> = (0..12).map(|at| (at, WcStatus::Success, 8)).collect();
    assert_eq!(done, wanted);
    let seen: Vec<u64> = a.device.octets(sink)[..96].chunks(8).map(number).collect();
    // 100+1, swapped to 1002, +4, +7 and +10.
    let originals = [
        100, 101, 101, 1002, 1006, 1006, 1006, 1013, 1013, 1013, 1023, 1023,
    ];
    assert_eq!(seen, originals);
    assert_eq!(number(&b.device.octets(cell)[8..16]), 1023);
    a.device.check_canaries();
    b.device.check_canaries();
}

#[test]
fn each_refused_atomic_has_its_terminate_and_changes_nothing() {
    let local = Access::LOCAL_WRITE;
    let cases = [
        (
            ALL,
            0x1004,
            PeerFault::AtomicAlignment,
            WcStatus::RemoteInvalidRequest,
        ),
        (ALL, 0x1040, PeerFault::RemoteBounds, WcStatus::RemoteAccess),
        (
            ALL,
            u64::MAX - 3,
            PeerFault::RemoteToWrap,
            WcStatus::RemoteAccess,
        ),
        (
            local.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ),
            0x1000,
            PeerFault::RemoteAccess,
            WcStatus::RemoteAccess,
        ),
    ];
    for (access, remote_addr, wanted, status) in cases {
        let mut pair = Pair::new(Config::default(), 4);
        let sink = pair.ends[0].device.region(8, 0, local, 1);
        let cell = pair.ends[1].device.region(64, 0x1000, access, 2);
        let add = SendOp::FetchAdd {
            remote_addr,
            rkey: cell,
            add: 1,
        };
        post(&mut pair, 0, 1, add, Payload::Gather(&[sge(sink, 0, 8)]));
        pair.drive();
        assert_eq!(fault(&pair, 1), Some(wanted));
        let [a, b] = &mut pair.ends;
        assert_eq!(a.device.sends[0].status, status, "{wanted:?}");
        assert!(b.device.octets(cell).iter().all(|o| *o == 0));
        let terminate = a.events.iter().find_map(|e| match e {
            QpEvent::Terminated(t) => Some(*t),
            _ => None,
        });
        let terminate = terminate.expect("a Terminate");
        // RFC 7306 section 8.1: the DDP header, never the RDMA header.
        assert_eq!(terminate.code, wanted.code());
        assert!(terminate.ddp.is_some() && terminate.read_request.is_none());
    }
}

#[test]
fn an_atomic_has_eight_octets_and_a_queue_pair_that_allows_it() {
    let mut pair = Pair::new(Config::default(), 5);
    let sink = pair.ends[0].device.region(16, 0, ALL, 1);
    let cell = pair.ends[1].device.region(8, 0, ALL, 2);
    let add = SendOp::FetchAdd {
        remote_addr: 0,
        rkey: cell,
        add: 1,
    };
    let end = &mut pair.ends[0];
    for len in [0, 7, 9, 16] {
        let gather = [sge(sink, 0, len)];
        let request = SendRequest {
            wr_id: 1,
            op: add,
            flags: SendFlags::default(),
            payload: Payload::Gather(&gather),
        };
        let posted = end.qp.post_send(&request, &mut end.device);
        assert_eq!(posted, Err(PostError::InvalidLength), "{len} octets");
    }
    pair.ends[1].qp.set_access(Access::from_bits_retain(7));
    post(&mut pair, 0, 2, add, Payload::Gather(&[sge(sink, 0, 8)]));
    pair.drive();
    assert_eq!(fault(&pair, 1), Some(PeerFault::RemoteAccess));
}

#[test]
fn an_atomic_response_that_nobody_asked_for_is_a_fault() {
    let config = Config {
        crc: false,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 6);
    pair.drive();
    // Atomic Response, QN 3, MSN 1, identifier 1.
    let mut fpdu = vec![0x00, 0x1E, 0x41, 0x4B, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1];
    fpdu.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
    fpdu.extend_from_slice(&[0; 8]);
    fpdu.extend_from_slice(&[0; 4]);
    pair.inject(0, &fpdu);
    pair.drive();
    assert_eq!(fault(&pair, 0), Some(PeerFault::UnexpectedReadResponse));
}

fn bind(window: Stag, key: u8, region: Stag, access: Access) -> Bind {
    Bind {
        window,
        rkey: Stag(window.0 & !0xFF | u32::from(key)),
        region,
        addr: 0x1010,
        len: 0x20,
        access,
        zero_based: false,
    }
}

#[test]
fn a_window_is_bound_written_through_and_invalidated_by_the_peer() {
    let mut pair = Pair::new(Config::default(), 7);
    let region = pair.ends[1].device.region(0x100, 0x1000, ALL, 2);
    let regions = &mut pair.ends[1].device.regions;
    let window = regions
        .insert_window(WindowKind::Two, PD, draws(77 << 8))
        .expect("room");
    let bound = bind(window, 0x42, region, Access::REMOTE_WRITE);
    let op = SendOp::BindWindow(bound);
    post(&mut pair, 1, 1, op, Payload::Gather(&[]));
    pair.drive();
    assert_eq!(pair.ends[1].device.sends[0].opcode, WcOpcode::BindWindow);
    assert_eq!(pair.ends[1].device.sends[0].status, WcStatus::Success);

    recv(&mut pair, 1, 2, &[]);
    let write = SendOp::Write {
        remote_addr: 0x1010,
        rkey: bound.rkey,
    };
    post(
        &mut pair,
        0,
        3,
        write,
        Payload::Inline(b"through the window"),
    );
    let send = SendOp::SendWithInvalidate { stag: bound.rkey };
    post(&mut pair, 0, 4, send, Payload::Inline(&[]));
    pair.drive();
    let b = &mut pair.ends[1].device;
    assert_eq!(&b.octets(region)[0x10..0x22], b"through the window");
    assert_eq!(b.recvs[0].invalidated, Some(bound.rkey));

    // Bound again with another key; the old one opens nothing.
    let again = SendOp::BindWindow(bind(window, 0x43, region, Access::REMOTE_WRITE));
    post(&mut pair, 1, 5, again, Payload::Gather(&[]));
    pair.drive();
    assert_eq!(pair.ends[1].device.sends[1].status, WcStatus::Success);
    post(&mut pair, 0, 6, write, Payload::Inline(b"too late"));
    pair.drive();
    assert_eq!(fault(&pair, 1), Some(PeerFault::TaggedStag));
}

#[test]
fn a_bad_binding_fails_with_its_own_status() {
    let mut pair = Pair::new(Config::default(), 8);
    let region = pair.ends[0]
        .device
        .region(0x100, 0x1000, Access::from_bits_retain(0xF), 2);
    let regions = &mut pair.ends[0].device.regions;
    let window = regions
        .insert_window(WindowKind::One, PD, draws(77 << 8))
        .expect("room");
    let op = SendOp::BindWindow(bind(window, 1, region, Access::REMOTE_READ));
    post(&mut pair, 0, 1, op, Payload::Gather(&[]));
    post(&mut pair, 0, 2, SendOp::Send, Payload::Inline(b"behind"));
    pair.drive();
    let statuses: Vec<_> = pair.ends[0].device.sends.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::MwBind, WcStatus::Flushed]);
}
