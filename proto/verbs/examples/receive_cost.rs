//! What a segment costs its receiver in instructions: octets of the stream to a queue pair, in memory.
//!
//!     cargo build --release -p weft-verbs --example receive_cost
//!     valgrind --tool=callgrind target/release/examples/receive_cost write 64 no-crc 100000
//!
//! Divide the difference of two counts by the difference of their numbers: start-up falls out. `write` is RDMA Writes
//! and `send` Sends of one segment with so many octets, with or without CRC. What the peer does to frame them is done
//! once. `ahead` is `write` through the reassembler of a stream whose octets arrive in order.

use std::time::Duration;

use weft_verbs::iwarp::{
    Established, Header, Msn, Opcode, Outbound, QueueNumber, Role, Tagged, Untagged,
};
use weft_verbs::placing::{PlacePolicy, Reassembler};
use weft_verbs::qp::{FpduPolicy, Qp, QpConfig};
use weft_verbs::simulated::{Device, PD};
use weft_verbs::types::{Access, QpCap, QpNumber, QpState, RecvRequest, Sge, Stag};

/// Segments of one pass over the framed octets.
const BATCH: u32 = 16;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, octets, crc, count] = &words[..] else {
        panic!("write|send|ahead OCTETS crc|no-crc SEGMENTS");
    };
    let octets: usize = octets.parse().expect("octets of a segment");
    let count: u32 = count.parse().expect("a number of segments");
    let mut end = End::new(crc == "crc", octets);
    match kind.as_str() {
        "write" => end.receive_writes(count, false),
        "ahead" => end.receive_writes(count, true),
        "send" => end.receive_sends(count),
        other => panic!("{other}: write, send or ahead"),
    }
    println!("{} octets placed", end.qp.counters().octets_placed);
}

/// The receiving end, and what its peer frames with.
struct End {
    qp: Qp,
    device: Device,
    stag: Stag,
    peer: Outbound,
    payload: Vec<u8>,
}

impl End {
    fn new(crc: bool, octets: usize) -> End {
        let established = Established {
            role: Role::Initiator,
            crc,
            markers_tx: false,
            markers_rx: false,
            revision: 2,
            peer_to_peer: false,
            rtr: None,
            ird: 4,
            ord: 4,
            peer_ird: 4,
            peer_ord: 4,
            private_data: Vec::new(),
        };
        let mut device = Device::default();
        let access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);
        let stag = device.region(1 << 16, 0, access, 0x100);
        let mut qp = Qp::new(QpConfig {
            number: QpNumber(1),
            pd: PD,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 64,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
            shared_receive: false,
        });
        qp.modify(QpState::Init, &mut device).expect("INIT");
        qp.attach(&established, 9000, FpduPolicy::Emss, Duration::ZERO);
        End {
            qp,
            device,
            stag,
            peer: Outbound::new(&established, 9000),
            payload: vec![7; octets],
        }
    }

    fn framed(&mut self, out: &mut Vec<u8>, header: &Header) {
        let start = self.peer.begin(out, header, &[], self.payload.len());
        out.extend_from_slice(&self.payload);
        self.peer.seal(out, start);
    }

    fn receive_writes(&mut self, count: u32, reassembled: bool) {
        let mut batch = Vec::new();
        for _ in 0..BATCH {
            let header = Header::Tagged(Tagged {
                last: true,
                opcode: Opcode::WRITE,
                stag: self.stag,
                to: 64,
            });
            self.framed(&mut batch, &header);
        }
        let mut reassembler = Reassembler::new(PlacePolicy::Safe);
        for _ in 0..count / BATCH {
            let (qp, device) = (&mut self.qp, &mut self.device);
            if reassembled {
                reassembler.arrive(reassembler.position(), &mut batch, qp, device);
            } else {
                let received = qp.receive(&mut batch, device);
                assert_eq!(received.consumed, batch.len());
            }
        }
    }

    fn receive_sends(&mut self, count: u32) {
        let mut batch = Vec::new();
        for round in 0..count / BATCH {
            batch.clear();
            for n in 0..BATCH {
                let header = Header::Untagged(Untagged {
                    last: true,
                    opcode: Opcode::SEND,
                    invalidate: 0,
                    qn: QueueNumber::SEND,
                    msn: Msn(round * BATCH + n + 1),
                    mo: 0,
                });
                self.framed(&mut batch, &header);
                let list = [Sge {
                    addr: 0,
                    length: 9000,
                    lkey: self.stag.0,
                }];
                let request = RecvRequest {
                    wr_id: u64::from(n),
                    scatter: &list,
                };
                let posted = self.qp.post_recv(&request, &mut self.device);
                posted.expect("there is room");
            }
            let received = self.qp.receive(&mut batch, &mut self.device);
            assert_eq!(received.consumed, batch.len());
            self.device.recvs.clear();
        }
    }
}
