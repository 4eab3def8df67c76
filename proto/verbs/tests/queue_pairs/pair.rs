//! Two devices in memory, joined by a byte stream on virtual time.
//!
//! The stream delivers in order after a delay and cuts octets anywhere; each end sends as much as
//! a socket would take now and receives with buffered and direct reads mixed at random. Regions
//! lie in one arena an end, with canaries between them.

use std::collections::VecDeque;
use std::time::Duration;

use weft_verbs::host::{Host, MemoryFault, RegionFault, Span};
use weft_verbs::iwarp::{
    Established, Initiator, InitiatorEvent, Responder, ResponderEvent, Role, RtrSet, StartConfig,
};
use weft_verbs::mr::{RegionSpec, Regions};
use weft_verbs::outgoing::Piece;
use weft_verbs::qp::{Ending, FpduPolicy, Qp, QpConfig, QpEvent};
use weft_verbs::srq::SharedReceiveQueue;
use weft_verbs::types::{
    Access, AsyncEventKind, Completion, PdId, QpCap, QpNumber, QpState, Sge, Stag,
};
use weft_verbs::wqe::RecvWqe;

pub const PD: PdId = PdId(1);
pub const ALL: Access = Access(0xF);
const CANARY: u8 = 0xC5;
const GAP: usize = 64;

/// An end's memory and what its queue pair reported.
#[derive(Default)]
pub struct Device {
    pub arena: Vec<u8>,
    pub regions: Regions<usize>,
    granted: Vec<(usize, usize)>,
    pub sends: Vec<Completion>,
    pub recvs: Vec<Completion>,
    pub async_events: Vec<AsyncEventKind>,
    pub srq: Option<SharedReceiveQueue>,
}

impl Device {
    /// Registers `len` octets under the address `iova`.
    pub fn region(&mut self, len: usize, iova: u64, access: Access, random: u32) -> Stag {
        self.arena.resize(self.arena.len() + GAP, CANARY);
        let at = self.arena.len();
        self.arena.resize(at + len, 0);
        self.arena.resize(at + len + GAP, CANARY);
        self.granted.push((at, len));
        let spec = RegionSpec {
            iova,
            len: len as u64,
            access,
            pd: PD,
        };
        self.regions.insert(spec, at, random).expect("a region")
    }

    pub fn octets(&mut self, stag: Stag) -> &mut [u8] {
        let region = self.regions.get(stag).expect("a region");
        let (at, len) = (region.memory, region.len as usize);
        &mut self.arena[at..at + len]
    }

    /// No octet outside a region was ever touched.
    pub fn check_canaries(&self) {
        let mut at = 0;
        for (start, len) in &self.granted {
            assert!(self.arena[at..*start].iter().all(|o| *o == CANARY));
            at = start + len;
        }
        assert!(self.arena[at..].iter().all(|o| *o == CANARY));
    }
}

impl Host for Device {
    fn check(
        &self,
        stag: Stag,
        addr: u64,
        len: u32,
        access: Access,
        pd: PdId,
    ) -> Result<Span, RegionFault> {
        self.regions.check(stag, addr, len, access, pd)
    }

    fn read(&mut self, span: Span, out: &mut Vec<u8>) -> Result<(), MemoryFault> {
        let at = self.regions.get(span.stag).ok_or(MemoryFault)?.memory + span.offset as usize;
        out.extend_from_slice(&self.arena[at..at + span.len as usize]);
        Ok(())
    }

    fn write(&mut self, span: Span, octets: &[u8]) -> Result<(), MemoryFault> {
        let at = self.regions.get(span.stag).ok_or(MemoryFault)?.memory + span.offset as usize;
        self.arena[at..at + octets.len()].copy_from_slice(octets);
        Ok(())
    }

    fn invalidate(&mut self, stag: Stag, pd: PdId) -> Result<(), RegionFault> {
        self.regions.invalidate(stag, pd)
    }

    fn complete_send(&mut self, completion: Completion) {
        self.sends.push(completion);
    }

    fn complete_recv(&mut self, completion: Completion) {
        self.recvs.push(completion);
    }

    fn take_shared_recv(&mut self) -> Option<RecvWqe> {
        self.srq.as_mut()?.pop().0
    }

    fn async_event(&mut self, kind: AsyncEventKind) {
        self.async_events.push(kind);
    }
}

/// One direction of the byte stream.
#[derive(Default)]
struct Pipe {
    in_flight: VecDeque<(Duration, Vec<u8>)>,
    arrived: VecDeque<u8>,
    closed: bool,
}

/// A queue pair with its device and its receive buffer.
pub struct End {
    pub qp: Qp,
    pub device: Device,
    buffer: Vec<u8>,
    pub events: Vec<QpEvent>,
    fin_sent: bool,
    pub ended: bool,
}

/// What the two ends are connected with.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub crc: bool,
    pub markers: bool,
    pub emss: usize,
    pub revision: u8,
    pub peer_to_peer: bool,
    pub ird: u16,
    pub ord: u16,
    pub policy: FpduPolicy,
    pub shared_receive: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            crc: true,
            markers: false,
            emss: 1448,
            revision: 2,
            peer_to_peer: true,
            ird: 4,
            ord: 4,
            policy: FpduPolicy::Auto,
            shared_receive: false,
        }
    }
}

pub struct Pair {
    pub ends: [End; 2],
    pipes: [Pipe; 2],
    pub now: Duration,
    pub latency: Duration,
    pub rng: fastrand::Rng,
}

pub const CAP: QpCap = QpCap {
    max_send_wr: 64,
    max_recv_wr: 64,
    max_send_sge: 16,
    max_recv_sge: 16,
    max_inline_data: 256,
};

/// Runs MPA start-up in memory.
pub fn start_up(config: &Config) -> [Established; 2] {
    let start = StartConfig {
        revision: config.revision,
        crc: config.crc,
        markers: config.markers,
        peer_to_peer: config.peer_to_peer,
        rtr: RtrSet::WRITE_AND_READ,
        ird: config.ird,
        ord: config.ord,
        max_ird: 128,
        max_ord: 128,
        timeout: Duration::from_secs(10),
        private_data: Vec::new(),
    };
    let now = Duration::ZERO;
    let mut initiator = Initiator::new(start.clone(), now);
    let mut responder = Responder::new(start, now);
    let request = initiator.poll_transmit().expect("a request");
    responder.handle_bytes(&request, now);
    assert!(matches!(
        responder.poll_event(),
        Some(ResponderEvent::Request(_))
    ));
    let passive = responder
        .accept(Vec::new(), config.ird, config.ord)
        .expect("accepted");
    let reply = responder.poll_transmit().expect("a reply");
    initiator.handle_bytes(&reply, now);
    match initiator.poll_event() {
        Some(InitiatorEvent::Accepted(active)) => [active, passive],
        other => panic!("{other:?}"),
    }
}

impl Pair {
    /// Two connected ends; end 0 is the initiator.
    pub fn new(config: Config, seed: u64) -> Pair {
        let established = start_up(&config);
        let ends = established.map(|established| {
            let number = match established.role {
                Role::Initiator => 10,
                Role::Responder => 11,
            };
            let mut qp = Qp::new(QpConfig {
                number: QpNumber(number),
                pd: PD,
                cap: CAP,
                sq_sig_all: false,
                shared_receive: config.shared_receive,
            });
            let mut device = Device::default();
            qp.modify(QpState::Init, &mut device).expect("INIT");
            qp.attach(&established, config.emss, config.policy);
            End {
                qp,
                device,
                buffer: Vec::new(),
                events: Vec::new(),
                fin_sent: false,
                ended: false,
            }
        });
        Pair {
            ends,
            pipes: Default::default(),
            now: Duration::ZERO,
            latency: Duration::from_micros(50),
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// One turn: both ends send and receive what they can; time goes on by a little.
    pub fn step(&mut self) {
        for side in 0..2 {
            self.send(side);
        }
        self.now += self.latency / 4;
        for side in 0..2 {
            self.receive(side);
        }
    }

    /// Turns until nothing moves any more.
    pub fn drive(&mut self) {
        let mut quiet = 0;
        for _ in 0..2_000_000 {
            let before = self.activity();
            self.step();
            let waiting = |end: &End| !end.ended && end.qp.outgoing().queued() > 0;
            let moving =
                self.pipes.iter().any(|p| !p.in_flight.is_empty()) || self.ends.iter().any(waiting);
            quiet = if before == self.activity() && !moving {
                quiet + 1
            } else {
                0
            };
            if quiet > 8 {
                return;
            }
        }
        panic!("the pair never came to rest");
    }

    fn activity(&self) -> (u64, u64, usize) {
        let sent = |side: usize| self.ends[side].qp.outgoing().sent();
        let arrived = self.pipes.iter().map(|p| p.arrived.len()).sum();
        (sent(0), sent(1), arrived)
    }

    fn send(&mut self, side: usize) {
        let end = &mut self.ends[side];
        if end.ended {
            return;
        }
        let budget = self.rng.usize(1..100_000);
        end.qp.fill(budget, &mut end.device);
        let mut octets = Vec::new();
        for piece in end.qp.outgoing().pieces() {
            match piece {
                Piece::Octets(o) => octets.extend_from_slice(o),
                Piece::Memory(span) => end
                    .device
                    .regions
                    .get(span.stag)
                    .map(|r| r.memory + span.offset as usize)
                    .map(|at| {
                        octets.extend_from_slice(&end.device.arena[at..at + span.len as usize]);
                    })
                    .expect("memory of a posted request"),
            }
        }
        // A socket takes what it has room for.
        let taken = self.rng.usize(0..=octets.len());
        octets.truncate(taken);
        end.qp.sent(taken, &mut end.device);
        if taken > 0 {
            let due = self.now + self.latency;
            self.pipes[side].in_flight.push_back((due, octets));
        }
        let drained = end.qp.outgoing().queued() == 0 && !end.qp.wants_to_send();
        if end.qp.ending() == Ending::Draining && drained && !end.fin_sent {
            end.fin_sent = true;
            self.pipes[side].closed = true;
        }
        if end.qp.ending() == Ending::Closed {
            self.pipes[side].closed = true;
        }
    }

    fn receive(&mut self, side: usize) {
        let pipe = &mut self.pipes[1 - side];
        while pipe
            .in_flight
            .front()
            .is_some_and(|(due, _)| *due <= self.now)
        {
            let (_, octets) = pipe.in_flight.pop_front().expect("in flight");
            pipe.arrived.extend(octets);
        }
        let end = &mut self.ends[side];
        while !pipe.arrived.is_empty() && !end.ended {
            if self.rng.bool() && end.buffer.is_empty() {
                if let Some(target) = end.qp.direct_target(&end.device) {
                    let most = target.octets.min(pipe.arrived.len());
                    let octets: Vec<u8> = pipe.arrived.drain(..self.rng.usize(1..=most)).collect();
                    let mut at = 0;
                    for span in target.spans() {
                        let n = (span.len as usize).min(octets.len() - at);
                        let part = &octets[at..at + n];
                        end.device
                            .write(span.first(n as u32), part)
                            .expect("checked");
                        at += n;
                    }
                    end.qp.placed(octets.len(), &mut end.device);
                    continue;
                }
            }
            let n = self.rng.usize(1..=pipe.arrived.len());
            end.buffer.extend(pipe.arrived.drain(..n));
            let received = end.qp.receive(&mut end.buffer, &mut end.device);
            end.buffer.drain(..received.consumed);
        }
        if pipe.closed && pipe.in_flight.is_empty() && pipe.arrived.is_empty() && !end.ended {
            end.ended = true;
            end.qp.stream_ended(&mut end.device);
            self.pipes[side].closed = true;
        }
        while let Some(event) = end.qp.poll_event() {
            end.events.push(event);
        }
    }

    /// Octets from nowhere into the stream towards `side`.
    pub fn inject(&mut self, side: usize, octets: &[u8]) {
        self.pipes[1 - side]
            .in_flight
            .push_back((self.now, octets.to_vec()));
    }

    /// Cuts the connection.
    pub fn cut(&mut self) {
        for pipe in &mut self.pipes {
            *pipe = Pipe {
                closed: true,
                ..Pipe::default()
            };
        }
    }
}

/// The element that covers `len` octets from `offset` of a region registered under `iova`.
pub fn sge(stag: Stag, addr: u64, len: u32) -> Sge {
    Sge {
        addr,
        length: len,
        lkey: stag.0,
    }
}
