//! Programs that post at random over every kind of stream: every work request completes exactly
//! once and in order, every octet arrives, none lands outside a region.
//!
//! `WEFT_SEEDS=N` runs N seeds; a failure names its seed.

use std::collections::VecDeque;

use crate::pair::{sge, Config, Pair, ALL};
use weft_verbs::qp::{FpduPolicy, QpEvent};
use weft_verbs::types::{
    Payload, RecvRequest, SendFlags, SendOp, SendRequest, Sge, Stag, WcOpcode, WcStatus,
};

const REGION: usize = 1 << 17;
/// Values that atomics work on, an end.
const CELLS: usize = 3;

/// What has to be true once everything is done.
#[derive(Default)]
struct Expected {
    /// Signalled sends in posting order.
    sends: VecDeque<(u64, WcOpcode)>,
    /// Receives in arrival order: identifier, octets, immediate value.
    recvs: VecDeque<(u64, u32, Option<u32>)>,
    /// Where octets must be at the end: side, offset, octets.
    contents: Vec<(usize, usize, Vec<u8>)>,
}

fn config(rng: &mut fastrand::Rng) -> Config {
    Config {
        crc: rng.bool(),
        markers: rng.u8(0..4) == 0,
        emss: [536, 1448, 8948, 65_483][rng.usize(0..4)],
        revision: rng.u8(1..=2),
        peer_to_peer: rng.bool(),
        ird: rng.u16(1..8),
        ord: rng.u16(1..8),
        policy: [FpduPolicy::Auto, FpduPolicy::Emss, FpduPolicy::Large][rng.usize(0..3)],
        shared_receive: false,
        out_of_band: rng.bool(),
    }
}

/// Cuts `len` octets at `addr` into up to four elements.
fn cut(rng: &mut fastrand::Rng, stag: Stag, addr: u64, len: u32) -> Vec<Sge> {
    let mut list = Vec::new();
    let mut at = 0;
    while at < len && list.len() < 3 {
        let piece = rng.u32(0..=len - at);
        list.push(sge(stag, addr + u64::from(at), piece));
        at += piece;
    }
    list.push(sge(stag, addr + u64::from(at), len - at));
    list
}

fn length(rng: &mut fastrand::Rng) -> usize {
    match rng.u8(0..10) {
        0 => 0,
        1..=4 => rng.usize(1..100),
        5..=7 => rng.usize(100..5000),
        _ => rng.usize(5000..40_000),
    }
}

fn post_receives(pair: &mut Pair, late: &mut [VecDeque<(u64, Vec<Sge>)>; 2]) {
    for (end, late) in pair.ends.iter_mut().zip(late) {
        for (wr_id, scatter) in late.drain(..) {
            let request = RecvRequest {
                wr_id,
                scatter: &scatter,
            };
            end.qp.post_recv(&request, &mut end.device).expect("room");
        }
    }
}

fn run(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut config = config(&mut rng);
    config.peer_to_peer &= config.revision == 2;
    if config.revision == 1 {
        // Revision 1 negotiates no depths: the programs have to agree.
        config.ord = config.ord.min(config.ird);
    }
    let mut pair = Pair::new(config, seed);
    // Without a ready-to-receive message the initiator has to speak first.
    let speakers: &[usize] = if config.peer_to_peer { &[0, 1] } else { &[0] };
    let regions = [0, 1].map(|side| {
        let octets = pair.ends[side]
            .device
            .region(REGION, 1 << 20, ALL, rng.u32(..));
        let sources = pair.ends[side]
            .device
            .region(REGION, 1 << 30, ALL, rng.u32(..));
        rng.fill(pair.ends[side].device.octets(sources));
        (octets, sources)
    });
    let mut cells = [0, 1].map(|side| {
        let device = &mut pair.ends[side].device;
        (device.region(8 * CELLS, 0, ALL, rng.u32(..)), [0u64; CELLS])
    });
    let mut expected = [Expected::default(), Expected::default()];
    // Receives that are posted only after their message may have come.
    let mut late: [VecDeque<(u64, Vec<Sge>)>; 2] = Default::default();
    // Each transfer has a target range of its own.
    let mut next_free = [0usize; 2];
    for wr_id in 0..rng.u64(1..40) {
        let side = speakers[rng.usize(0..speakers.len())];
        let peer = 1 - side;
        let len = length(&mut rng);
        let source_at = rng.usize(0..=REGION - len);
        let signaled = rng.bool();
        let imm = rng.bool().then(|| rng.u32(..));
        let kind = rng.u8(0..4);
        if kind == 3 && next_free[side] + 8 > REGION {
            break;
        }
        if kind == 3 {
            let cell = rng.usize(0..CELLS);
            let add = rng.bool();
            let value = rng.u64(0..4);
            let original = cells[peer].1[cell];
            let (remote_addr, rkey) = (8 * cell as u64, cells[peer].0);
            let (op, opcode, after) = if add {
                let op = SendOp::FetchAdd {
                    remote_addr,
                    rkey,
                    add: value,
                };
                (op, WcOpcode::FetchAdd, original.wrapping_add(value))
            } else {
                let op = SendOp::CompareSwap {
                    remote_addr,
                    rkey,
                    compare: value,
                    swap: wr_id,
                };
                let after = if original == value { wr_id } else { original };
                (op, WcOpcode::CompareSwap, after)
            };
            cells[peer].1[cell] = after;
            let sink_at = next_free[side];
            next_free[side] += 8;
            let list = cut(&mut rng, regions[side].0, (1 << 20) + sink_at as u64, 8);
            let request = SendRequest {
                wr_id,
                op,
                flags: SendFlags {
                    signaled,
                    fence: rng.u8(0..5) == 0,
                    solicited: false,
                },
                payload: Payload::Gather(&list),
            };
            let end = &mut pair.ends[side];
            end.qp.post_send(&request, &mut end.device).expect("room");
            if signaled {
                expected[side].sends.push_back((wr_id, opcode));
            }
            let octets = original.to_ne_bytes().to_vec();
            expected[side].contents.push((side, sink_at, octets));
            continue;
        }
        let target_side = if kind == 2 { side } else { peer };
        if next_free[target_side] + len > REGION {
            break;
        }
        let target_at = next_free[target_side];
        next_free[target_side] += len;
        let source_side = if kind == 2 { peer } else { side };
        let source = regions[source_side].1;
        let octets =
            pair.ends[source_side].device.octets(source)[source_at..source_at + len].to_vec();
        let (local_stag, local_addr) = if kind == 2 {
            (regions[side].0, (1 << 20) + target_at as u64)
        } else {
            (source, (1 << 30) + source_at as u64)
        };
        let list = cut(&mut rng, local_stag, local_addr, len as u32);
        let (op, opcode) = match kind {
            0 => {
                let addr = (1 << 20) + target_at as u64;
                let scatter = cut(&mut rng, regions[peer].0, addr, len as u32);
                late[peer].push_back((wr_id, scatter));
                expected[peer].recvs.push_back((wr_id, len as u32, imm));
                let op = match imm {
                    Some(imm) => SendOp::SendWithImm { imm },
                    None => SendOp::Send,
                };
                (op, WcOpcode::Send)
            }
            1 => {
                let (remote_addr, rkey) = ((1 << 20) + target_at as u64, regions[peer].0);
                let op = match imm {
                    Some(imm) => {
                        late[peer].push_back((wr_id, Vec::new()));
                        expected[peer]
                            .recvs
                            .push_back((wr_id, len as u32, Some(imm)));
                        SendOp::WriteWithImm {
                            remote_addr,
                            rkey,
                            imm,
                        }
                    }
                    None => SendOp::Write { remote_addr, rkey },
                };
                (op, WcOpcode::Write)
            }
            _ => (
                SendOp::Read {
                    remote_addr: (1 << 30) + source_at as u64,
                    rkey: source,
                },
                WcOpcode::Read,
            ),
        };
        let inline = kind != 2 && len <= 256 && rng.bool();
        let request = SendRequest {
            wr_id,
            op,
            flags: SendFlags {
                signaled,
                fence: rng.u8(0..5) == 0,
                solicited: rng.bool(),
            },
            payload: if inline {
                Payload::Inline(&octets)
            } else {
                Payload::Gather(&list)
            },
        };
        // Two that know each other hold messages; with others the receive has to be there first.
        if !config.peer_to_peer || rng.bool() {
            post_receives(&mut pair, &mut late);
        }
        let end = &mut pair.ends[side];
        end.qp.post_send(&request, &mut end.device).expect("room");
        if signaled {
            expected[side].sends.push_back((wr_id, opcode));
        }
        expected[target_side]
            .contents
            .push((target_side, target_at, octets));
        for _ in 0..rng.u8(0..4) {
            pair.step();
        }
    }
    if rng.bool() {
        pair.drive();
    }
    post_receives(&mut pair, &mut late);
    pair.drive();
    for (side, expected) in expected.into_iter().enumerate() {
        let end = &mut pair.ends[side];
        let bad = end.events.iter().find(|e| **e != QpEvent::FirstFpdu);
        assert!(bad.is_none(), "end {side}: {bad:?} with {config:?}");
        let sends: Vec<_> = end
            .device
            .sends
            .iter()
            .map(|c| (c.wr_id, c.opcode, c.status))
            .collect();
        let wanted: Vec<_> = expected
            .sends
            .into_iter()
            .map(|(id, op)| (id, op, WcStatus::Success))
            .collect();
        assert_eq!(sends, wanted, "send completions of end {side}");
        let recvs: Vec<_> = end
            .device
            .recvs
            .iter()
            .map(|c| (c.wr_id, c.byte_len, c.imm))
            .collect();
        assert_eq!(recvs, Vec::from(expected.recvs), "receives of end {side}");
        for (_, at, octets) in &expected.contents {
            let placed = &end.device.octets(regions[side].0)[*at..*at + octets.len()];
            assert!(placed == octets, "octets at {at} of end {side}");
        }
        let (stag, values) = cells[side];
        let held: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert!(end.device.octets(stag) == held, "cells of end {side}");
        end.device.check_canaries();
    }
}

#[test]
fn every_request_completes_once_in_order_with_its_octets() {
    let seeds = std::env::var("WEFT_SEEDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(400);
    for seed in 0..seeds {
        if std::panic::catch_unwind(|| run(seed)).is_err() {
            panic!("seed {seed} failed; run it alone by starting the loop there");
        }
    }
}
