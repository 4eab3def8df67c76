//! Queue pairs over two hosts whose cable loses, doubles and reorders frames: on the same seeds they come to the same
//! completions and the same memory, whether octets are placed as they come or in order.
//!
//! Every run is a process of its own, as an engine's settings are its process's. `SEEDS=1..=20` runs these.

#![allow(
    clippy::duplicate_mod,
    reason = "what the engine's tests are helped by has a copy in each of them"
)]

#[allow(dead_code, reason = "a part of it is used")]
#[path = "../../engine/tests/common/mod.rs"]
mod common;

use std::fmt::Write;
use std::process::Command;

use common::{pair, sge, ALL};
use weft_engine::stats;
use weft_engine::types::{Payload, RecvRequest, SendFlags, SendOp, SendRequest};

/// Octets of memory that is written to, and that is read from.
const OCTETS: u64 = 2 << 20;
/// Work requests of a run.
const REQUESTS: u64 = 60;

#[derive(Clone, Copy)]
struct Draw(u64);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn hash(octets: &[u8]) -> u64 {
    let add = |sum: u64, octet: &u8| (sum ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3);
    octets.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

fn snapshot() -> stats::Snapshot {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_it = |path: &std::path::Path| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains(stats::NAME))
    };
    let path = files.map(|file| file.path()).find(|path| is_it(path));
    stats::read(&path.expect("statistics")).unwrap()
}

/// One run; says on its output what came of it.
#[test]
#[ignore = "a part of the other test, in a process of its own"]
fn one_run() {
    let mut draw = Draw(std::env::var("CABLE_SEED").unwrap().parse().unwrap());
    let (a, b) = pair();
    let source = a.memory(OCTETS as usize, ALL);
    let pattern: Vec<u8> = (0..OCTETS).map(|_| draw.below(256) as u8).collect();
    source.memory().write(0, &pattern).unwrap();
    let sink = a.memory(OCTETS as usize, ALL);
    let target = b.memory(OCTETS as usize, ALL);
    let origin = b.memory(OCTETS as usize, ALL);
    origin.memory().write(0, &pattern).unwrap();
    let messages = b.memory(OCTETS as usize, ALL);
    let mut said = String::new();
    let (mut received, mut sent) = (0, 0);
    for wr_id in 0..REQUESTS {
        let kind = draw.below(6);
        let len = (1 + draw.below(200_000)) as u32;
        let from = draw.below(OCTETS - u64::from(len));
        // Writes go over each other: the later one stays. What is read nobody writes to.
        let to = draw.below(OCTETS - u64::from(len));
        let (op, payload) = match kind {
            0 => {
                b.qp.post_recv(&RecvRequest {
                    wr_id,
                    scatter: &[sge(&messages, to, len)],
                })
                .unwrap();
                received += 1;
                (SendOp::Send, sge(&source, from, len))
            }
            1 => (
                SendOp::Read {
                    rkey: origin.stag(),
                    remote_addr: origin.memory().addr() + from,
                },
                sge(&sink, to, len),
            ),
            _ => (
                SendOp::Write {
                    rkey: target.stag(),
                    remote_addr: target.memory().addr() + to,
                },
                sge(&source, from, len),
            ),
        };
        a.qp.post_send(&SendRequest {
            wr_id,
            op,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&[payload]),
        })
        .unwrap();
        sent += 1;
        // Some go alone, most behind each other.
        if draw.below(8) == 0 {
            for _ in 0..std::mem::take(&mut sent) {
                let done = a.wait_send();
                writeln!(said, "sent {} {:?}", done.wr_id, done.status).unwrap();
            }
        }
    }
    for _ in 0..sent {
        let done = a.wait_send();
        writeln!(said, "sent {} {:?}", done.wr_id, done.status).unwrap();
    }
    // The last message is behind all that was written.
    b.qp.post_recv(&RecvRequest {
        wr_id: REQUESTS,
        scatter: &[],
    })
    .unwrap();
    a.qp.post_send(&SendRequest {
        wr_id: REQUESTS,
        op: SendOp::Send,
        flags: SendFlags::default(),
        payload: Payload::Inline(b""),
    })
    .unwrap();
    for _ in 0..=received {
        let done = b.wait_recv();
        writeln!(
            said,
            "received {} {:?} {}",
            done.wr_id, done.status, done.byte_len
        )
        .unwrap();
    }
    for memory in [&target, &messages, &sink] {
        let mut octets = vec![0; OCTETS as usize];
        memory.memory().read(0, &mut octets).unwrap();
        writeln!(said, "memory {:x}", hash(&octets)).unwrap();
    }
    let counts = snapshot();
    let sum = |of: fn(&stats::Connection) -> u64| counts.connections.iter().map(of).sum::<u64>();
    let again = |c: &stats::Connection| c.path.map_or(0, |path| path.retransmissions);
    println!("[{said}]");
    println!(
        "counts {} {} {} {}",
        sum(|c| c.placed_ahead),
        sum(|c| c.copied),
        sum(|c| c.buffered),
        sum(again)
    );
    assert_eq!(counts.interfaces.len(), 2);
}

/// What came of a run, and its counts: octets placed ahead, copied, buffered at the end, segments sent again.
fn run(seed: u64, crc: &str, place: &str) -> (String, [u64; 4]) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "one_run", "--nocapture"])
        .env("CABLE_SEED", seed.to_string())
        .env("WEFT_CRC", crc)
        .env("WEFT_PLACE", place)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = || {
        format!(
            "seed {seed}, crc {crc}, {place}: {text}{}",
            String::from_utf8_lossy(&output.stderr)
        )
    };
    assert!(output.status.success(), "{}", complaint());
    let said = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    let said = said
        .unwrap_or_else(|| panic!("{}", complaint()))
        .0
        .to_owned();
    let counts = text
        .split_once("counts ")
        .unwrap()
        .1
        .lines()
        .next()
        .unwrap();
    let counts: Vec<u64> = counts
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    (said, counts.try_into().unwrap())
}

fn seeds() -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("SEEDS") else {
        return 1..=2;
    };
    let (from, to) = text.split_once("..=").expect("SEEDS=1..=20");
    from.parse().unwrap()..=to.parse().unwrap()
}

#[test]
fn on_the_same_seeds_every_policy_comes_to_the_same() {
    let seeds = seeds();
    for crc in ["on", "off"] {
        let mut placed = [0; 2];
        for seed in seeds.clone() {
            let (expected, [ahead, ..]) = run(seed, crc, "in-order");
            assert_eq!(ahead, 0);
            let memories = expected.lines().filter(|line| line.starts_with("memory"));
            assert_eq!(memories.count(), 3);
            for (placed, place) in placed.iter_mut().zip(["safe", "eager"]) {
                let (said, counts) = run(seed, crc, place);
                println!("seed {seed}, crc {crc}, {place}: placed, copied, buffered, sent again {counts:?}");
                assert_eq!(said, expected, "seed {seed}, crc {crc}, {place}");
                assert_eq!(counts[2], 0, "nothing waits at the end");
                *placed += counts[0];
            }
        }
        // Without a CRC only segments of whole FPDUs show where one begins.
        assert!(
            placed.iter().all(|octets| *octets > 0),
            "crc {crc}: {placed:?}"
        );
    }
}
