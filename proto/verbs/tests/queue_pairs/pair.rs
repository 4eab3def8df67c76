//! Two devices in memory, joined by a byte stream on virtual time.
//!
//! The stream delivers in order after a delay and cuts octets anywhere; each end sends as much as
//! a socket would take now and receives with buffered and direct reads mixed at random.

use std::collections::VecDeque;
use std::time::Duration;

use weft_verbs::host::Host;
use weft_verbs::iwarp::{
    Established, Initiator, InitiatorEvent, Responder, ResponderEvent, Role, RtrSet, StartConfig,
};
use weft_verbs::outgoing::Piece;
use weft_verbs::qp::{Close, Ending, FpduPolicy, Qp, QpConfig, QpEvent};
use weft_verbs::simulated::{Device, PD};
use weft_verbs::types::{
    Access, Completion, Payload, QpCap, QpNumber, QpState, RecvRequest, SendFlags, SendOp,
    SendRequest, Sge, Stag, WcStatus,
};

pub const ALL: Access = Access::from_bits_retain(0x1F);

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
    /// The programs walk the states themselves.
    pub out_of_band: bool,
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
            out_of_band: false,
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

/// A queue pair in RESET.
pub fn queue_pair(number: u32, shared_receive: bool) -> Qp {
    queue_pair_of(CAP, number, shared_receive)
}

/// The same, with queues of other sizes.
pub fn queue_pair_of(cap: QpCap, number: u32, shared_receive: bool) -> Qp {
    let mut qp = Qp::new(QpConfig {
        number: QpNumber(number),
        pd: PD,
        cap,
        sq_sig_all: false,
        shared_receive,
    });
    qp.set_receive_wait(RECEIVE_WAIT);
    qp
}

/// How long a message waits for a receive, where a test does not say otherwise.
pub const RECEIVE_WAIT: Duration = Duration::from_secs(1);

/// Time goes by until the next deadline of a queue pair.
pub fn time_out(qp: &mut Qp, device: &mut Device) -> Option<Close> {
    device.now = qp.deadline().expect("a deadline");
    qp.handle_timeout(device)
}

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
            let mut qp = queue_pair(number, config.shared_receive);
            let mut device = Device::default();
            qp.modify(QpState::Init, &mut device).expect("INIT");
            if config.out_of_band {
                qp.bring_to(QpState::Rtr).expect("RTR");
            }
            qp.attach(&established, config.emss, config.policy, Duration::ZERO);
            if config.out_of_band {
                qp.bring_to(QpState::Rts).expect("RTS");
            }
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
                Piece::Memory(span) => {
                    let memory = end.device.octets_of(span);
                    octets.extend_from_slice(memory.expect("memory of a posted request"));
                }
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
            // It may go on receiving what arrived.
            end.ended = end.qp.stream_ended(&mut end.device);
            self.pipes[side].closed |= end.ended;
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

fn flags() -> SendFlags {
    SendFlags {
        signaled: true,
        ..SendFlags::default()
    }
}

/// Posts a signalled send.
pub fn post(pair: &mut Pair, side: usize, wr_id: u64, op: SendOp, payload: Payload<'_>) {
    let end = &mut pair.ends[side];
    let request = SendRequest {
        wr_id,
        op,
        flags: flags(),
        payload,
    };
    end.qp.post_send(&request, &mut end.device).expect("posted");
}

/// Posts a receive.
pub fn recv(pair: &mut Pair, side: usize, wr_id: u64, scatter: &[Sge]) {
    let end = &mut pair.ends[side];
    let request = RecvRequest { wr_id, scatter };
    end.qp.post_recv(&request, &mut end.device).expect("posted");
}

/// What was reported, in order.
pub fn ends(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|c| (c.wr_id, c.status)).collect()
}
