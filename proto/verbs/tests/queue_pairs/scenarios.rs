//! Two queue pairs in memory on virtual time.

use std::time::Duration;

use crate::pair::{post, recv, sge, Config, Pair, ALL, CAP};
use weft_verbs::iwarp::PeerFault;
use weft_verbs::qp::{FpduPolicy, QpEvent};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{
    Access, AsyncEventKind, Payload, PostError, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Stag, WcOpcode, WcStatus,
};

fn configs() -> Vec<Config> {
    let mut all = Vec::new();
    for crc in [false, true] {
        for markers in [false, true] {
            for (revision, peer_to_peer) in [(1, false), (2, false), (2, true)] {
                for policy in [FpduPolicy::Auto, FpduPolicy::Emss] {
                    all.push(Config {
                        crc,
                        markers,
                        revision,
                        peer_to_peer,
                        policy,
                        ..Config::default()
                    });
                }
            }
        }
    }
    all
}

#[test]
fn a_send_and_a_write_arrive_with_every_kind_of_start_up() {
    for (seed, config) in configs().into_iter().enumerate() {
        let mut pair = Pair::new(config, seed as u64);
        let octets: Vec<u8> = (0..20_000u32).map(|i| (i * 7) as u8).collect();
        let source = pair.ends[0].device.region(20_000, 0x1000, Access::NONE, 1);
        pair.ends[0].device.octets(source).copy_from_slice(&octets);
        let target = pair.ends[1].device.region(40_000, 0x9000, ALL, 2);
        recv(&mut pair, 1, 5, &[sge(target, 0x9000, 20_000)]);
        let write = SendOp::Write {
            remote_addr: 0x9000 + 20_000,
            rkey: target,
        };
        let gather = [sge(source, 0x1000, 20_000)];
        post(&mut pair, 0, 1, write, Payload::Gather(&gather));
        post(&mut pair, 0, 2, SendOp::Send, Payload::Gather(&gather));
        pair.drive();
        let [a, b] = &mut pair.ends;
        let done: Vec<_> = a.device.sends.iter().map(|c| (c.wr_id, c.status)).collect();
        assert_eq!(
            done,
            [(1, WcStatus::Success), (2, WcStatus::Success)],
            "{config:?}"
        );
        assert_eq!(b.device.recvs.len(), 1, "{config:?}");
        assert_eq!(b.device.recvs[0].byte_len, 20_000);
        let placed = b.device.octets(target);
        assert!(placed[..20_000] == octets && placed[20_000..] == octets);
        b.device.check_canaries();
        let grows = config.peer_to_peer && config.policy == FpduPolicy::Auto;
        let large = a.qp.mulpdu().expect("connected") > 2000;
        assert_eq!(large, grows, "{config:?}");
    }
}

/// The path may change under a stream. Large FPDUs do not follow it.
#[test]
fn fpdus_follow_the_emss_where_they_fit_it() {
    for policy in [FpduPolicy::Emss, FpduPolicy::Auto, FpduPolicy::Large] {
        let config = Config {
            policy,
            ..Config::default()
        };
        let mut pair = Pair::new(config, 3);
        pair.drive();
        let before = pair.ends[0].qp.mulpdu().expect("connected");
        for (emss, fitting) in [(700, 694), (9000, 8994), (64, 128)] {
            pair.ends[0].qp.set_emss(emss);
            let after = pair.ends[0].qp.mulpdu().expect("connected");
            let wanted = match policy {
                FpduPolicy::Emss => fitting,
                _ => before,
            };
            assert_eq!(after, wanted, "{policy:?}, {emss}");
        }
    }
}

#[test]
fn the_responder_may_post_first_and_its_octets_wait_for_the_first_fpdu() {
    let config = Config {
        peer_to_peer: false,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 3);
    recv(&mut pair, 0, 1, &[]);
    recv(&mut pair, 1, 2, &[]);
    post(&mut pair, 1, 7, SendOp::Send, Payload::Inline(&[]));
    pair.drive();
    assert!(
        pair.ends[0].device.recvs.is_empty(),
        "nothing may be sent yet"
    );
    post(&mut pair, 0, 8, SendOp::Send, Payload::Inline(&[]));
    pair.drive();
    assert_eq!(pair.ends[0].device.recvs.len(), 1);
    assert_eq!(pair.ends[1].device.recvs.len(), 1);
    assert!(pair.ends[1].events.contains(&QpEvent::FirstFpdu));
}

#[test]
fn a_responder_that_is_told_so_speaks_first() {
    let config = Config {
        peer_to_peer: false,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 3);
    pair.ends[1].qp.speak_first();
    recv(&mut pair, 0, 1, &[]);
    post(&mut pair, 1, 7, SendOp::Send, Payload::Inline(&[]));
    pair.drive();
    assert_eq!(pair.ends[0].device.recvs.len(), 1);
    assert_eq!(pair.ends[1].events, [QpEvent::FirstFpdu]);
}

#[test]
fn reads_beyond_ord_wait_and_complete_in_order() {
    let config = Config {
        ord: 2,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 4);
    let sink = pair.ends[0].device.region(1000, 0, Access::LOCAL_WRITE, 1);
    let source = pair.ends[1].device.region(1000, 0, ALL, 2);
    for (i, octet) in pair.ends[1].device.octets(source).iter_mut().enumerate() {
        *octet = i as u8;
    }
    for i in 0..10u64 {
        let read = SendOp::Read {
            remote_addr: i * 100,
            rkey: source,
        };
        let scatter = [
            sge(sink, i * 100, 1),
            sge(sink, i * 100 + 1, 0),
            sge(sink, i * 100 + 1, 99),
        ];
        post(&mut pair, 0, i, read, Payload::Gather(&scatter));
    }
    let end = &mut pair.ends[0];
    let fenced = SendRequest {
        wr_id: 10,
        op: SendOp::LocalInvalidate { stag: sink },
        flags: SendFlags {
            fence: true,
            signaled: true,
            solicited: false,
        },
        payload: Payload::Gather(&[]),
    };
    end.qp.post_send(&fenced, &mut end.device).expect("posted");
    pair.drive();
    let a = &mut pair.ends[0];
    let order: Vec<u64> = a.device.sends.iter().map(|c| c.wr_id).collect();
    assert_eq!(order, (0..=10).collect::<Vec<_>>());
    assert!(a.device.sends.iter().all(|c| c.status == WcStatus::Success));
    assert!(
        a.device.regions.get(sink).is_none(),
        "invalidated behind the reads"
    );
    let expected: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    assert!(a.device.ever_registered(0) == expected);
}

#[test]
fn each_refused_access_has_its_terminate() {
    let cases: [(Access, u64, u32, PeerFault); 4] = [
        (Access::NONE, 0x100, 64, PeerFault::WriteAccess),
        (ALL, 0x101, 64, PeerFault::TaggedBounds),
        (ALL, 0xFF, 1, PeerFault::TaggedBounds),
        (ALL, u64::MAX, 2, PeerFault::TaggedToWrap),
    ];
    for (access, remote_addr, len, fault) in cases {
        let mut pair = Pair::new(Config::default(), 5);
        let source = pair.ends[0].device.region(64, 0, Access::NONE, 1);
        let target = pair.ends[1].device.region(64, 0x100, access, 2);
        let write = SendOp::Write {
            remote_addr,
            rkey: target,
        };
        let gather = [sge(source, 0, len)];
        post(&mut pair, 0, 1, write, Payload::Gather(&gather));
        pair.drive();
        let [a, b] = &pair.ends;
        let seen = b.events.iter().find_map(|e| match e {
            QpEvent::PeerFault(f) => Some(f.fault),
            _ => None,
        });
        assert_eq!(seen, Some(fault));
        assert!(a
            .events
            .iter()
            .any(|e| matches!(e, QpEvent::Terminated(t) if t.code == fault.code())));
        assert_eq!(b.device.async_events, [AsyncEventKind::QpAccessError]);
        assert_eq!(a.qp.state(), QpState::Error);
        assert!(a.ended && b.ended, "both directions closed");
        b.device.check_canaries();
    }
}

#[test]
fn a_stale_region_is_refused_and_a_deregistered_one_too() {
    let mut pair = Pair::new(Config::default(), 6);
    let target = pair.ends[1].device.region(64, 0, ALL, 2);
    pair.ends[1].device.regions.remove(target);
    let write = SendOp::Write {
        remote_addr: 0,
        rkey: target,
    };
    post(&mut pair, 0, 1, write, Payload::Inline(b"x"));
    pair.drive();
    assert_eq!(
        pair.ends[1].device.async_events,
        [AsyncEventKind::QpAccessError]
    );
}

#[test]
fn a_send_longer_than_the_receive_fails_both() {
    let mut pair = Pair::new(Config::default(), 7);
    let target = pair.ends[1].device.region(10, 0, ALL, 2);
    recv(&mut pair, 1, 3, &[sge(target, 0, 10)]);
    post(
        &mut pair,
        0,
        1,
        SendOp::Send,
        Payload::Inline(b"eleven octs"),
    );
    pair.drive();
    let b = &pair.ends[1];
    assert_eq!(b.device.recvs[0].status, WcStatus::LocalLength);
    assert_eq!(b.device.async_events, [AsyncEventKind::QpRequestError]);
    b.device.check_canaries();
}

#[test]
fn a_shared_queue_serves_in_order_and_the_last_receive_is_announced() {
    let config = Config {
        shared_receive: true,
        ..Config::default()
    };
    let mut pair = Pair::new(config, 8);
    for end in &mut pair.ends {
        end.device.srq = Some(SharedReceiveQueue::new(16, 1));
    }
    let srq = pair.ends[1].device.srq.as_mut().expect("a shared queue");
    for wr_id in 0..4 {
        srq.push(&RecvRequest {
            wr_id,
            scatter: &[],
        })
        .expect("room");
    }
    for _ in 0..3 {
        post(&mut pair, 0, 0, SendOp::Send, Payload::Inline(&[]));
    }
    pair.drive();
    let ids: Vec<u64> = pair.ends[1].device.recvs.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, [0, 1, 2]);
    pair.ends[1].qp.disconnect(&mut pair.ends[1].device);
    pair.drive();
    let end = &pair.ends[1];
    assert!(end.ended, "the end of the stream has come, too");
    assert_eq!(end.device.async_events, [AsyncEventKind::QpLastWqeReached]);
}

#[test]
fn a_cut_connection_flushes_everything_once_and_in_order() {
    let mut pair = Pair::new(Config::default(), 9);
    let sink = pair.ends[0].device.region(100_000, 0, ALL, 1);
    let source = pair.ends[1].device.region(100_000, 0, ALL, 2);
    for wr_id in 0..5 {
        recv(&mut pair, 0, 100 + wr_id, &[sge(sink, 0, 10)]);
        let read = SendOp::Read {
            remote_addr: 0,
            rkey: source,
        };
        let scatter = [sge(sink, 0, 100_000)];
        post(&mut pair, 0, wr_id, read, Payload::Gather(&scatter));
    }
    for _ in 0..20 {
        pair.step();
    }
    pair.cut();
    pair.drive();
    let a = &pair.ends[0].device;
    let sends: Vec<u64> = a.sends.iter().map(|c| c.wr_id).collect();
    let recvs: Vec<u64> = a.recvs.iter().map(|c| c.wr_id).collect();
    assert_eq!(sends, [0, 1, 2, 3, 4]);
    assert_eq!(recvs, [100, 101, 102, 103, 104]);
    let first_flushed = a.sends.iter().position(|c| c.status == WcStatus::Flushed);
    let first_flushed = first_flushed.expect("some were flushed");
    assert!(a.sends[first_flushed..]
        .iter()
        .all(|c| c.status == WcStatus::Flushed));
}

#[test]
fn a_broken_crc_is_terminated_and_nothing_of_it_is_placed() {
    let mut pair = Pair::new(Config::default(), 10);
    let target = pair.ends[1].device.region(64, 0, ALL, 2);
    pair.drive();
    // A Write of 8 octets to the region with a CRC of zeros.
    let mut fpdu = vec![0x00, 0x16, 0xC1, 0x40];
    fpdu.extend_from_slice(&target.0.to_be_bytes());
    fpdu.extend_from_slice(&[0; 8]);
    fpdu.extend_from_slice(b"corrupted");
    fpdu.truncate(24);
    fpdu.extend_from_slice(&[0; 4]);
    pair.inject(1, &fpdu);
    pair.drive();
    let [a, b] = &mut pair.ends;
    assert!(b
        .events
        .iter()
        .any(|e| matches!(e, QpEvent::PeerFault(f) if f.fault == PeerFault::Crc)));
    assert!(a.events.iter().any(|e| matches!(e, QpEvent::Terminated(_))));
    assert!(b.device.octets(target).iter().all(|o| *o == 0));
}

#[test]
fn a_queue_pair_can_be_reset_and_used_again() {
    let mut pair = Pair::new(Config::default(), 11);
    pair.ends[0].qp.disconnect(&mut pair.ends[0].device);
    pair.drive();
    let end = &mut pair.ends[0];
    assert_eq!(end.qp.state(), QpState::Error);
    end.qp
        .modify(QpState::Reset, &mut end.device)
        .expect("RESET");
    end.qp.modify(QpState::Init, &mut end.device).expect("INIT");
    let [active, _] = crate::pair::start_up(&Config::default());
    end.qp
        .attach(&active, 1448, FpduPolicy::Auto, Duration::ZERO);
    assert_eq!(end.qp.state(), QpState::Rts);
    assert_eq!(end.qp.cap(), CAP);
}

#[test]
fn a_local_fault_ends_with_its_own_status() {
    let mut pair = Pair::new(Config::default(), 12);
    let gather = [sge(Stag(0x7700), 0, 8)];
    post(&mut pair, 0, 1, SendOp::Send, Payload::Gather(&gather));
    post(&mut pair, 0, 2, SendOp::Send, Payload::Inline(b"behind"));
    pair.drive();
    let statuses: Vec<_> = pair.ends[0].device.sends.iter().map(|c| c.status).collect();
    assert_eq!(statuses, [WcStatus::LocalProtection, WcStatus::Flushed]);
    assert_eq!(pair.ends[0].device.sends[0].opcode, WcOpcode::Send);
    let errors = pair.ends[0].qp.counters().errors;
    assert_eq!(errors, 1, "what is flushed is no error of its own");
    assert!(pair.ends[1]
        .events
        .iter()
        .any(|e| matches!(e, QpEvent::Terminated(_))));
}

#[test]
fn a_place_in_the_send_queue_is_free_when_its_completion_is_polled() {
    let mut pair = Pair::new(Config::default(), 13);
    let depth = CAP.max_send_wr as usize;
    let target = pair.ends[1].device.region(8, 0, ALL, 1);
    let write = |pair: &mut Pair, signaled| {
        let end = &mut pair.ends[0];
        let request = SendRequest {
            wr_id: 1,
            op: SendOp::Write {
                remote_addr: 0,
                rkey: target,
            },
            flags: SendFlags {
                signaled,
                ..SendFlags::default()
            },
            payload: Payload::Inline(b"x"),
        };
        end.qp.post_send(&request, &mut end.device)
    };
    // Every fourth is signalled; all are done, and none is polled.
    pair.ends[0].device.unpolled = usize::MAX;
    for at in 1..=depth {
        assert_eq!(write(&mut pair, at % 4 == 0), Ok(()));
    }
    pair.drive();
    assert_eq!(pair.ends[0].device.sends.len(), depth / 4);
    assert_eq!(write(&mut pair, true), Err(PostError::QueueFull));
    // One is polled: it frees its own place and those of the three silent ones before it.
    pair.ends[0].device.unpolled = depth / 4 - 1;
    for at in 0..4 {
        assert_eq!(write(&mut pair, true), Ok(()), "{at}");
    }
    assert_eq!(write(&mut pair, true), Err(PostError::QueueFull));
}
