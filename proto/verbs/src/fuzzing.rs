//! The body of the fuzz target `connection`: a queue pair between a program and a peer that both do
//! anything they are able to, as a list of operations read from arbitrary octets.
//!
//! It panics when a promise is broken: an octet outside a region changed, a work request completed
//! twice, out of order or never, or what the queue pair sent is no valid stream.

pub mod placing;

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use weft_iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Established, Header, Inbound, InboundConfig,
    Message, Opcode, Outbound, Parse, QueueNumber, ReadRequest, Role, Rtr, Tagged, Untagged,
};

use crate::host::Host;
use crate::outgoing::Piece;
use crate::qp::{Ending, FpduPolicy, Qp, QpConfig};
use crate::simulated::{draws, Device, PD};
use crate::types::{
    Access, Bind, Completion, Payload, QpCap, QpNumber, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Sge, Stag, WindowKind,
};

const REGION_OCTETS: usize = 4096;
/// Where the two windows stand among the STags.
const WINDOWS: usize = 5;
/// Operations a run carries out at most.
const STEPS_MAX: usize = 400;
/// How long a message waits for a receive.
const RECEIVE_WAIT: Duration = Duration::from_secs(1);

/// The program's side: the device, and every STag it ever had.
struct Program {
    device: Device,
    stags: Vec<Stag>,
}

impl Program {
    fn new() -> Program {
        let mut program = Program {
            device: Device::default(),
            stags: Vec::new(),
        };
        let local = Access::LOCAL_WRITE;
        let both = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(local);
        for access in [
            Access::NONE,
            local,
            Access::REMOTE_READ,
            both,
            Access::from_bits_retain(0x1F),
        ] {
            program.register(access);
        }
        for kind in [WindowKind::One, WindowKind::Two] {
            let draw = program.next_stag(0x6600_0000);
            let regions = &mut program.device.regions;
            let window = regions.insert_window(kind, PD, draws(draw));
            program.stags.push(window.expect("a handful of windows"));
        }
        program
    }

    fn register(&mut self, access: Access) {
        let draw = self.next_stag(0x5500_0000);
        let stag = self.device.region(REGION_OCTETS, 0x1000, access, draw);
        self.stags.push(stag);
    }

    /// Predictable, so that a corpus keeps its meaning.
    fn next_stag(&self, high: u32) -> u32 {
        high | (self.stags.len() as u32 + 1) << 8
    }
}

/// Values drawn from the fuzzer's octets; zeros once they are used up.
struct Source<'a> {
    octets: &'a [u8],
}

impl Source<'_> {
    fn octet(&mut self) -> u8 {
        match self.octets.split_first() {
            Some((first, rest)) => {
                self.octets = rest;
                *first
            }
            None => 0,
        }
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.octet(), self.octet()])
    }

    /// A length that is often short, sometimes a few segments.
    fn length(&mut self) -> u32 {
        match self.octet() {
            n @ 0..=199 => u32::from(n),
            _ => u32::from(self.word()) % 5000,
        }
    }

    fn take(&mut self, most: usize) -> Vec<u8> {
        let n = most.min(self.octets.len());
        let (taken, rest) = self.octets.split_at(n);
        self.octets = rest;
        taken.to_vec()
    }
}

struct Run<'a> {
    source: Source<'a>,
    program: Program,
    qp: Qp,
    /// The peer's framing, kept valid so that most of what it sends gets past the framing.
    peer: Outbound,
    received: Vec<u8>,
    /// A Send of the peer's that has segments to come: the next one's header.
    open: Option<Untagged>,
    /// Checks what the queue pair sends; `None` once the peer is not to look any more.
    judge: Option<Inbound>,
    sent: Vec<u8>,
    posted_sends: Vec<u64>,
    posted_recvs: Vec<u64>,
    wr_id: u64,
}

fn established(role: Role, crc: bool) -> Established {
    Established {
        role,
        crc,
        markers_tx: false,
        markers_rx: false,
        revision: 2,
        peer_to_peer: true,
        rtr: (role == Role::Initiator).then_some(Rtr::Write),
        ird: 2,
        ord: 2,
        peer_ird: 2,
        peer_ord: 2,
        private_data: Vec::new(),
    }
}

fn fresh_queue_pair() -> Qp {
    let mut qp = Qp::new(QpConfig {
        number: QpNumber(2),
        pd: PD,
        cap: QpCap {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        },
        sq_sig_all: true,
        shared_receive: false,
    });
    qp.set_receive_wait(RECEIVE_WAIT);
    qp
}

/// Runs the operations that `octets` tell.
pub fn connection(octets: &[u8]) {
    let mut source = Source { octets };
    let setup = source.octet();
    let crc = setup & 1 != 0;
    let role = if setup & 2 != 0 {
        Role::Initiator
    } else {
        Role::Responder
    };
    let mut program = Program::new();
    let mut qp = fresh_queue_pair();
    qp.modify(QpState::Init, &mut program.device).expect("INIT");
    let policy =
        [FpduPolicy::Auto, FpduPolicy::Emss, FpduPolicy::Large][usize::from(setup >> 2) % 3];
    qp.attach(&established(role, crc), 1448, policy, Duration::ZERO);
    if setup & 0x80 != 0 {
        qp.set_peer_is_weft();
    }
    let other = match role {
        Role::Initiator => Role::Responder,
        Role::Responder => Role::Initiator,
    };
    let mut run = Run {
        source,
        program,
        qp,
        peer: Outbound::new(&established(other, crc), 1448),
        received: Vec::new(),
        open: None,
        judge: Some(Inbound::with_config(InboundConfig {
            crc,
            rfc7306: true,
            ..InboundConfig::default()
        })),
        sent: Vec::new(),
        posted_sends: Vec::new(),
        posted_recvs: Vec::new(),
        wr_id: 0,
    };
    for _ in 0..STEPS_MAX {
        if run.source.octets.is_empty() {
            break;
        }
        run.operation();
        run.program.device.check_canaries();
    }
    run.finish();
}

impl Run<'_> {
    fn operation(&mut self) {
        match self.source.octet() {
            224..=233 => self.peer_sends_immediate(),
            234..=247 => self.peer_sends_atomic_request(),
            248.. => self.peer_sends_atomic_response(),
            shared => self.plain_operation(shared),
        }
    }

    fn plain_operation(&mut self, pick: u8) {
        match pick % 16 {
            0 | 1 => self.post_recv(),
            2..=4 => self.post_send(),
            5 => self.transmit(),
            6 => {
                let octets = self.source.take(64);
                self.arrive(&octets);
            }
            7 => self.peer_sends_send(),
            8 | 9 => self.peer_sends_tagged(Opcode::WRITE),
            10 => self.peer_sends_tagged(Opcode::READ_RESPONSE),
            11 | 12 => self.peer_sends_read_request(),
            13 => self.deregister_or_register(),
            14 => {
                self.transmit();
                if self.source.octet() == 0 {
                    self.time_goes_by();
                }
            }
            _ => {
                if self.source.octet() > 250 {
                    self.qp.disconnect(&mut self.program.device);
                } else {
                    self.transmit();
                }
            }
        }
    }

    fn stag(&mut self) -> Stag {
        let pick = usize::from(self.source.octet());
        match self.program.stags.get(pick % 12) {
            Some(stag) => *stag,
            None => Stag(u32::from(self.source.word()) << 8),
        }
    }

    fn list(&mut self) -> Vec<Sge> {
        let count = self.source.octet() % 5;
        (0..count)
            .map(|_| {
                let stag = self.stag();
                Sge {
                    addr: 0x1000 + u64::from(self.source.word() % 5000),
                    length: self.source.length(),
                    lkey: stag.0,
                }
            })
            .collect()
    }

    fn post_recv(&mut self) {
        let scatter = self.list();
        let request = RecvRequest {
            wr_id: self.wr_id,
            scatter: &scatter,
        };
        if self
            .qp
            .post_recv(&request, &mut self.program.device)
            .is_ok()
        {
            self.posted_recvs.push(self.wr_id);
        }
        self.wr_id += 1;
    }

    fn post_send(&mut self) {
        let rkey = self.stag();
        let remote_addr = 0x1000 + u64::from(self.source.word());
        let pick = self.source.octet();
        let op = match pick % 8 {
            _ if pick >= 160 => self.extended_operation(pick, remote_addr, rkey),
            0..=2 => SendOp::Send,
            3 => SendOp::SendWithInvalidate { stag: rkey },
            4 | 5 => SendOp::Write { remote_addr, rkey },
            6 => SendOp::Read { remote_addr, rkey },
            _ => SendOp::LocalInvalidate { stag: rkey },
        };
        let mut list = self.list();
        if op.awaits_response() && !matches!(op, SendOp::Read { .. }) {
            // Mostly the length that it takes.
            list.truncate(1);
            for sge in &mut list {
                sge.length = 8;
            }
        }
        let inline = self.source.take(usize::from(
            self.source.octets.first().copied().unwrap_or(0) % 80,
        ));
        let flags = self.source.octet();
        let request = SendRequest {
            wr_id: self.wr_id,
            op,
            flags: SendFlags {
                fence: flags & 1 != 0,
                signaled: true,
                solicited: flags & 2 != 0,
            },
            payload: if flags & 4 != 0 {
                Payload::Inline(&inline)
            } else {
                Payload::Gather(&list)
            },
        };
        if self
            .qp
            .post_send(&request, &mut self.program.device)
            .is_ok()
        {
            self.posted_sends.push(self.wr_id);
        }
        self.wr_id += 1;
    }

    fn extended_operation(&mut self, pick: u8, remote_addr: u64, rkey: Stag) -> SendOp {
        let imm = u32::from(pick);
        match pick % 6 {
            0 => SendOp::SendWithImm { imm },
            1 | 2 => SendOp::WriteWithImm {
                remote_addr,
                rkey,
                imm,
            },
            3 => SendOp::FetchAdd {
                remote_addr,
                rkey,
                add: 1,
            },
            4 => SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare: 0,
                swap: 1,
            },
            _ => SendOp::BindWindow(self.bind(remote_addr)),
        }
    }

    /// Binds one of the windows, or something that is none.
    fn bind(&mut self, addr: u64) -> Bind {
        let shape = self.source.octet();
        let at = WINDOWS + usize::from(shape & 1);
        let window = if shape & 2 == 0 {
            self.program.stags[at]
        } else {
            self.stag()
        };
        let rkey = Stag(window.0 & !0xFF | u32::from(self.source.octet()));
        if shape & 2 == 0 {
            self.program.stags[at] = rkey;
        }
        Bind {
            window,
            rkey,
            region: self.stag(),
            addr,
            len: u64::from(self.source.length()),
            access: Access::from_bits_retain(u32::from(shape >> 3)),
            zero_based: shape & 4 != 0,
        }
    }

    /// The transport takes some of what the queue pair has.
    fn transmit(&mut self) {
        self.qp.fill(8192, &mut self.program.device);
        let Some(mut octets) = self.outgoing() else {
            // Memory that was deregistered while posted: the driver cuts the stream.
            self.qp.stream_ended(&mut self.program.device);
            return;
        };
        let most = octets.len();
        octets.truncate(match self.source.octet() {
            255 => most,
            n => usize::from(n) * 16 % (most + 1),
        });
        self.qp.sent(octets.len(), &mut self.program.device);
        self.sent.extend_from_slice(&octets);
        self.judge();
    }

    fn outgoing(&self) -> Option<Vec<u8>> {
        let mut octets = Vec::new();
        for piece in self.qp.outgoing().pieces() {
            match piece {
                Piece::Octets(held) => octets.extend_from_slice(held),
                Piece::Memory(span) => {
                    octets.extend_from_slice(self.program.device.octets_of(span)?);
                }
            }
        }
        Some(octets)
    }

    /// What was sent has to be a stream that a receiver takes.
    fn judge(&mut self) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        let mut at = 0;
        while at < self.sent.len() {
            match judge.parse(&mut self.sent[at..]).expect("a valid stream") {
                Parse::Need { .. } => break,
                Parse::Consumed { octets } => at += octets,
                Parse::More(more) => at += more.consumed,
                Parse::Segment(segment) => {
                    at += segment.consumed;
                    if matches!(segment.message, Message::Terminate(_)) {
                        self.judge = None;
                        return;
                    }
                }
            }
        }
        self.sent.drain(..at);
    }

    /// Octets from the peer, cut somewhere, partly read straight to their target.
    fn arrive(&mut self, octets: &[u8]) {
        let mut rest = octets;
        while !rest.is_empty() && self.qp.ending() == Ending::Open {
            let cut = usize::from(self.source.octet()) * 8;
            let (now, later) = rest.split_at(cut.clamp(1, rest.len()));
            rest = later;
            let direct = self.qp.direct_target(&self.program.device);
            let now = match direct {
                Some(target) if self.received.is_empty() && cut % 3 == 0 => {
                    let (placed, behind) = now.split_at(target.octets.min(now.len()));
                    let mut left = placed;
                    for span in target.spans() {
                        let (part, more) = left.split_at((span.len as usize).min(left.len()));
                        let span = span.first(part.len() as u32);
                        self.program.device.write(span, part).expect("just checked");
                        left = more;
                    }
                    self.qp.placed(placed.len(), &mut self.program.device);
                    behind
                }
                _ => now,
            };
            self.received.extend_from_slice(now);
            let received = self
                .qp
                .receive(&mut self.received, &mut self.program.device);
            assert!(received.consumed <= self.received.len());
            self.received.drain(..received.consumed);
            let wanting = self.qp.ending() == Ending::Open;
            assert!(!wanting || received.need > self.received.len(), "stuck");
        }
    }

    fn framed(&mut self, header: &Header, body: &[u8], payload: &[u8]) {
        let mut fpdu = Vec::new();
        let start = self.peer.begin(&mut fpdu, header, body, payload.len());
        fpdu.extend_from_slice(payload);
        self.peer.seal(&mut fpdu, start);
        self.arrive(&fpdu);
    }

    fn payload(&mut self) -> Vec<u8> {
        let len = (self.source.length() as usize).min(1400);
        vec![self.source.octet(); len]
    }

    fn peer_sends_send(&mut self) {
        let shape = self.source.octet();
        let last = shape & 1 == 0;
        let header = match self.open.take() {
            // Mostly the message goes on as it should, empty segments included.
            Some(open) if shape & 16 == 0 => Untagged { last, ..open },
            _ => Untagged {
                last,
                opcode: Opcode::send(shape & 2 != 0, shape & 4 != 0),
                invalidate: if shape & 4 != 0 { self.stag().0 } else { 0 },
                qn: QueueNumber::SEND,
                msn: self.peer.next_msn(QueueNumber::SEND),
                mo: if shape & 8 != 0 {
                    u32::from(self.source.word())
                } else {
                    0
                },
            },
        };
        let payload = self.payload();
        self.open = (!last).then_some(Untagged {
            mo: header.mo.wrapping_add(payload.len() as u32),
            ..header
        });
        self.framed(&Header::Untagged(header), &[], &payload);
    }

    fn peer_sends_tagged(&mut self, opcode: Opcode) {
        let shape = self.source.octet();
        let header = Header::Tagged(Tagged {
            last: shape & 1 == 0,
            opcode,
            stag: self.stag(),
            to: match shape >> 1 & 3 {
                0 => u64::MAX - u64::from(self.source.octet()),
                _ => 0x0FF0 + u64::from(self.source.word() % 4200),
            },
        });
        let payload = self.payload();
        self.framed(&header, &[], &payload);
    }

    fn peer_sends_read_request(&mut self) {
        let request = ReadRequest {
            sink_stag: Stag(0x77),
            sink_to: 0,
            size: self.source.length(),
            source_stag: self.stag(),
            source_to: 0x0FF0 + u64::from(self.source.word() % 4200),
        };
        let header = Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::READ_REQUEST,
            invalidate: 0,
            qn: QueueNumber::READ_REQUEST,
            msn: self.peer.next_msn(QueueNumber::READ_REQUEST),
            mo: 0,
        });
        self.framed(&header, &request.to_octets(), &[]);
    }

    fn single(&mut self, opcode: Opcode, qn: QueueNumber) -> Header {
        Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn: self.peer.next_msn(qn),
            mo: 0,
        })
    }

    fn peer_sends_immediate(&mut self) {
        let shape = self.source.octet();
        let opcode = if shape & 1 != 0 {
            Opcode::IMMEDIATE_SOLICITED
        } else {
            Opcode::IMMEDIATE
        };
        // What a Weft peer marks the value of its next Send with.
        let low = if shape & 2 != 0 { *b"WEFT" } else { [0; 4] };
        let header = self.single(opcode, QueueNumber::SEND);
        self.framed(&header, &[[shape; 4], low].concat(), &[]);
    }

    fn peer_sends_atomic_request(&mut self) {
        let shape = self.source.octet();
        let (mask, value) = (u64::from(shape) << 31, u64::from(self.source.word()));
        let request = AtomicRequest {
            operation: if shape & 1 != 0 {
                AtomicOperation::FetchAdd { add: value, mask }
            } else {
                AtomicOperation::CompareSwap {
                    swap: value,
                    swap_mask: !mask,
                    compare: 0,
                    compare_mask: mask,
                }
            },
            identifier: u32::from(shape),
            stag: self.stag(),
            to: 0x0FF0 + u64::from(self.source.word() % 4200),
        };
        let header = self.single(Opcode::ATOMIC_REQUEST, QueueNumber::READ_REQUEST);
        self.framed(&header, &request.to_octets(), &[]);
    }

    fn peer_sends_atomic_response(&mut self) {
        let response = AtomicResponse {
            identifier: u32::from(self.source.octet()),
            original: u64::MAX,
        };
        let header = self.single(Opcode::ATOMIC_RESPONSE, QueueNumber::ATOMIC_RESPONSE);
        self.framed(&header, &response.to_octets(), &[]);
    }

    fn deregister_or_register(&mut self) {
        let pick = usize::from(self.source.octet());
        if pick < 128 && self.program.stags.len() < 12 {
            self.program.register(Access::from_bits_retain(
                u32::from(self.source.octet()) & 0x1F,
            ));
        } else if let Some(stag) = self.program.stags.get(pick % 12) {
            self.program.device.regions.remove(*stag);
        }
    }

    /// Longer than any message waits for a receive.
    fn time_goes_by(&mut self) {
        self.program.device.now += RECEIVE_WAIT;
        let _ = self.qp.handle_timeout(&mut self.program.device);
    }

    /// The transport ends: whatever was posted has completed exactly once, in order.
    fn finish(mut self) {
        if !self.qp.stream_ended(&mut self.program.device) {
            self.time_goes_by();
            assert!(self.qp.stream_ended(&mut self.program.device));
        }
        self.program.device.check_canaries();
        let ids = |completions: &[Completion]| -> Vec<u64> {
            completions.iter().map(|c| c.wr_id).collect()
        };
        assert_eq!(
            ids(&self.program.device.sends),
            self.posted_sends,
            "send completions"
        );
        assert_eq!(
            ids(&self.program.device.recvs),
            self.posted_recvs,
            "receive completions"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::{fs, println};

    #[test]
    fn the_corpus_keeps_its_promises() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/connection");
        let mut inputs = 0;
        for entry in fs::read_dir(folder).expect("the corpus") {
            let path = entry.expect("an entry").path();
            println!("{}", path.display());
            connection(&fs::read(path).expect("an input"));
            inputs += 1;
        }
        assert!(inputs >= 20, "{inputs} inputs");
    }

    #[test]
    fn random_operations_keep_their_promises() {
        for seed in 0..3000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let octets: Vec<u8> = (0..rng.usize(10..2000)).map(|_| rng.u8(..)).collect();
            println!("seed {seed}");
            connection(&octets);
        }
    }
}
