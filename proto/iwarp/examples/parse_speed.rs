//! How long it takes to make and to parse FPDUs, in nanoseconds each.
//!
//! `cargo run --release -p weft-iwarp --example parse_speed [PAYLOAD]`

use std::hint::black_box;
use std::time::{Duration, Instant};
use weft_iwarp::ddp::{Header, Tagged, Untagged};
use weft_iwarp::{Established, Inbound, Message, Opcode, Outbound, Parse, QueueNumber, Role, Stag};

const FPDUS: usize = 1000;
const ROUNDS: usize = 2000;

fn main() {
    println!(
        "{:>6} {:>5} {:>8} {:>6}  {:>9} {:>9}",
        "octets", "crc", "markers", "kind", "make", "parse"
    );
    for payload in std::env::args()
        .nth(1)
        .map_or(vec![0, 64, 1424, 64000], |n| vec![n.parse().unwrap()])
    {
        for (crc, markers) in [(false, false), (true, false), (true, true)] {
            for send in [true, false] {
                let (make, parse) = measure(payload, crc, markers, send);
                let kind = if send { "send" } else { "write" };
                println!(
                    "{payload:>6} {crc:>5} {markers:>8} {kind:>6}  {make:>6.1} ns {parse:>6.1} ns"
                );
            }
        }
    }
}

/// Nanoseconds to make and to parse one FPDU; the best of all rounds.
fn measure(payload: usize, crc: bool, markers: bool, send: bool) -> (f64, f64) {
    let established = established(crc, markers);
    let body = vec![0x5a; payload];
    let rounds = ROUNDS / (1 + payload / 500);
    let mut stream = Vec::new();
    let make = best(rounds, || {
        let mut outbound = Outbound::new(&established, 65483);
        stream.clear();
        for _ in 0..FPDUS {
            let header = header(&mut outbound, send);
            let start = outbound.begin(&mut stream, &header, &[], body.len());
            stream.extend_from_slice(&body);
            outbound.seal(&mut stream, start);
        }
    });
    let mut received = stream.clone();
    let parse = best(rounds, || {
        // Parsing takes the markers out, so it needs a fresh copy; without markers the first one stays good.
        if markers {
            received.copy_from_slice(&stream);
        }
        parse_all(Inbound::new(&established), black_box(&mut received));
    });
    (make, parse)
}

fn best(rounds: usize, mut round: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..rounds.max(3) {
        let started = Instant::now();
        round();
        best = best.min(started.elapsed());
    }
    best.as_nanos() as f64 / FPDUS as f64
}

fn parse_all(mut inbound: Inbound, stream: &mut [u8]) {
    let (mut at, mut seen, mut sum) = (0, 0, 0u64);
    while at < stream.len() {
        match inbound.parse(&mut stream[at..]).expect("valid stream") {
            Parse::Segment(segment) => {
                sum = sum.wrapping_add(match segment.message {
                    Message::Send { msn, mo, last, .. } => u64::from(msn.0 + mo) + u64::from(last),
                    Message::Write { stag, to, last } => u64::from(stag.0) + to + u64::from(last),
                    _ => unreachable!("only Sends and Writes were made"),
                });
                sum = sum.wrapping_add(segment.payload.end as u64);
                at += segment.consumed;
                seen += 1;
            }
            Parse::More(more) => at += more.consumed,
            Parse::Consumed { octets } => at += octets,
            Parse::Need { .. } => unreachable!("the stream is whole"),
        }
    }
    black_box(sum);
    assert_eq!(seen, FPDUS);
}

fn header(outbound: &mut Outbound, send: bool) -> Header {
    if send {
        Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::SEND,
            invalidate: 0,
            qn: QueueNumber::SEND,
            msn: outbound.next_msn(QueueNumber::SEND),
            mo: 0,
        })
    } else {
        Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag: Stag(0x1234),
            to: 0x10000,
        })
    }
}

fn established(crc: bool, markers: bool) -> Established {
    Established {
        role: Role::Initiator,
        crc,
        markers_tx: markers,
        markers_rx: markers,
        revision: 2,
        peer_to_peer: false,
        rtr: None,
        ird: 1,
        ord: 1,
        peer_ird: 1,
        peer_ord: 1,
        private_data: Vec::new(),
    }
}
