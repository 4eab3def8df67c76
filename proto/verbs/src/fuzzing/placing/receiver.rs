//! The receiving end: a program that has posted what it will, and its queue pair.

use alloc::vec::Vec;
use core::time::Duration;

use weft_iwarp::{
    Established, Inbound, InboundConfig, Message, Parse, PlacePolicy, ReadRequest, Role,
};

use super::super::{established, fresh_queue_pair, Program, RECEIVE_WAIT};
use crate::outgoing::Piece;
use crate::qp::{FpduPolicy, Qp, QpEvent};
use crate::simulated::Device;
use crate::types::{
    AsyncEventKind, Completion, Payload, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Sge,
    Stag,
};

/// Receives and Reads that are posted before anything arrives.
pub(super) const RECEIVES: u64 = 12;
const READS: u64 = 3;
/// Octets of a Read.
const READ_LEN: u32 = 900;
/// Where a region is that nothing is written to, the one that most Writes go to, and the one for what the program reads
/// and receives.
pub(super) const CLOSED: usize = 2;
pub(super) const OPEN: usize = 3;
pub(super) const OWN: usize = 4;

/// How the two are connected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) crc: bool,
    pub(super) markers: bool,
    pub(super) aligned: bool,
    pub(super) unreliable: bool,
    pub(super) weft: bool,
    pub(super) policy: PlacePolicy,
    /// The peer keeps to the rules.
    pub(super) calm: bool,
}

impl Setup {
    pub(super) fn established(&self) -> Established {
        Established {
            markers_rx: self.markers,
            peer_to_peer: false,
            rtr: None,
            ..established(Role::Initiator, self.crc)
        }
    }
}

/// What came of a stream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Completions of the send queue.
    pub sends: Vec<Completion>,
    /// Completions of the receive queue.
    pub recvs: Vec<Completion>,
    /// What happened to the queue pair.
    pub events: Vec<QpEvent>,
    /// What the program heard besides.
    pub async_events: Vec<AsyncEventKind>,
    /// What it sent.
    pub sent: Vec<u8>,
    /// All registered memory.
    pub memory: Vec<Vec<u8>>,
}

impl Outcome {
    /// A rule was broken, by whichever side.
    pub fn has_fault(&self) -> bool {
        self.events
            .iter()
            .any(|event| !matches!(event, QpEvent::FirstFpdu))
    }
}

/// A queue pair that receives, with its program.
pub struct Receiver {
    pub(super) program: Program,
    /// The queue pair.
    pub qp: Qp,
    /// Reads that the peer is asked for.
    pub(super) asked: Vec<ReadRequest>,
}

impl Receiver {
    pub(super) fn new(setup: Setup) -> Receiver {
        let mut program = Program::new();
        let mut qp = fresh_queue_pair();
        qp.modify(QpState::Init, &mut program.device).expect("INIT");
        let policy = FpduPolicy::Auto;
        qp.attach(&setup.established(), 1448, policy, Duration::ZERO);
        qp.set_unreliable(setup.unreliable);
        if setup.weft {
            qp.set_peer_is_weft();
        }
        let mut receiver = Receiver {
            program,
            qp,
            asked: Vec::new(),
        };
        for wr_id in 0..RECEIVES {
            receiver.post_recv(wr_id);
        }
        for wr_id in 0..READS {
            receiver.post_read(wr_id);
        }
        receiver.asked = requests(&receiver.sent(), setup.crc);
        receiver
    }

    fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge {
            addr,
            length,
            lkey: self.program.stags[OWN].0,
        }
    }

    /// Receives are of one element or of two, and some have the memory of others.
    fn post_recv(&mut self, wr_id: u64) {
        let at = 0x1000 + wr_id % 3 * 700;
        let list = [self.sge(at, 900), self.sge(at + 900, 400)];
        let request = RecvRequest {
            wr_id,
            scatter: &list[..1 + wr_id as usize % 2],
        };
        let posted = self.qp.post_recv(&request, &mut self.program.device);
        posted.expect("there is room");
    }

    fn post_read(&mut self, wr_id: u64) {
        let list = [self.sge(0x1000 + wr_id * 1000, READ_LEN)];
        let request = SendRequest {
            wr_id,
            op: SendOp::Read {
                remote_addr: 0,
                rkey: Stag(0x0101),
            },
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload: Payload::Gather(&list),
        };
        // A queue pair of type UC has no Reads.
        let _ = self.qp.post_send(&request, &mut self.program.device);
    }

    /// The queue pair with its device.
    pub fn parts(&mut self) -> (&mut Qp, &mut Device) {
        (&mut self.qp, &mut self.program.device)
    }

    /// What leaves.
    fn sent(&mut self) -> Vec<u8> {
        let device = &mut self.program.device;
        self.qp.fill(1 << 20, device);
        let mut octets = Vec::new();
        for piece in self.qp.outgoing().pieces() {
            match piece {
                Piece::Octets(held) => octets.extend_from_slice(held),
                Piece::Memory(span) => {
                    octets.extend_from_slice(device.octets_of(span).unwrap_or_default());
                }
            }
        }
        let queued = self.qp.outgoing().queued();
        self.qp.sent(queued, device);
        octets
    }

    /// The stream has come to its end.
    pub fn finish(mut self) -> Outcome {
        let sent = self.sent();
        let device = &mut self.program.device;
        if !self.qp.stream_ended(device) {
            device.now += RECEIVE_WAIT;
            let _ = self.qp.handle_timeout(device);
            assert!(self.qp.stream_ended(device));
        }
        device.check_canaries();
        let events = core::iter::from_fn(|| self.qp.poll_event()).collect();
        // Windows have no memory of their own, regions were registered first.
        let memory = (0..=OWN).map(|n| device.ever_registered(n).to_vec());
        Outcome {
            memory: memory.collect(),
            sends: device.sends.clone(),
            recvs: device.recvs.clone(),
            async_events: device.async_events.clone(),
            events,
            sent,
        }
    }
}

/// The Read Requests that a queue pair sent.
fn requests(sent: &[u8], crc: bool) -> Vec<ReadRequest> {
    let mut inbound = Inbound::with_config(InboundConfig {
        crc,
        ..InboundConfig::default()
    });
    let mut rest = sent.to_vec();
    let mut found = Vec::new();
    while let Ok(Parse::Segment(segment)) = inbound.parse(&mut rest) {
        if let Message::ReadRequest { request, .. } = segment.message {
            found.push(request);
        }
        rest.drain(..segment.consumed);
    }
    found
}
