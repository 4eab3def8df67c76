//! A queue pair and a peer that frames what it likes.

use std::time::Duration;

use crate::pair::queue_pair;
use weft_verbs::iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Established, Header, Msn, Opcode, Outbound,
    PeerFault, QueueNumber, ReadRequest, Role, Stag, Tagged, Terminate, TerminateCode, Untagged,
};
use weft_verbs::outgoing::Piece;
use weft_verbs::qp::{Ending, FpduPolicy, Qp, QpEvent};
use weft_verbs::simulated::Device;
use weft_verbs::types::{Payload, QpState, RecvRequest, SendFlags, SendOp, SendRequest, Sge};

/// What a Weft initiator says of itself in its first message (decision 0004).
pub const ANNOUNCEMENT: u64 = 0x5745_4654_0001_0000;
/// Requests that the peer may have open.
pub const IRD: u16 = 4;

pub struct Foreign {
    pub qp: Qp,
    pub device: Device,
    /// The peer's framing.
    pub peer: Outbound,
}

/// A responder without CRC, markers and a ready-to-receive message.
pub fn responder(ird: u16) -> Established {
    Established {
        role: Role::Responder,
        crc: false,
        markers_tx: false,
        markers_rx: false,
        revision: 2,
        peer_to_peer: false,
        rtr: None,
        ird,
        ord: 4,
        peer_ird: 4,
        peer_ord: 4,
        private_data: Vec::new(),
    }
}

/// A queue pair in INIT, and its device.
pub fn in_init(mut qp: Qp) -> (Qp, Device) {
    let mut device = Device::default();
    qp.modify(QpState::Init, &mut device).expect("INIT");
    (qp, device)
}

impl Foreign {
    /// A queue pair that is connected and has heard its peer once, so that it may send.
    pub fn new(ird: u16) -> Foreign {
        let mut foreign = Foreign::on(&responder(ird), queue_pair(10, false));
        foreign.write((Stag(0), 0), b"");
        foreign
    }

    /// The same, with a peer that gave itself away as Weft: its messages wait for a receive.
    pub fn weft() -> Foreign {
        let mut foreign = Foreign::new(IRD);
        foreign.qp.set_peer_is_weft();
        foreign
    }

    /// A queue pair that was in RESET, on a stream on which nothing has come.
    pub fn on(config: &Established, qp: Qp) -> Foreign {
        let (qp, device) = in_init(qp);
        Foreign::attach(config, qp, device)
    }

    /// A queue pair that the program brings up itself, with a peer that it knows to be Weft.
    pub fn out_of_band(config: &Established) -> Foreign {
        let (mut qp, device) = in_init(queue_pair(10, false));
        qp.bring_to(QpState::Rtr).expect("RTR");
        let mut foreign = Foreign::attach(config, qp, device);
        foreign.qp.bring_to(QpState::Rts).expect("RTS");
        foreign.qp.set_peer_is_weft();
        foreign.write((Stag(0), 0), b"");
        foreign
    }

    fn attach(config: &Established, mut qp: Qp, device: Device) -> Foreign {
        qp.attach(config, 1448, FpduPolicy::Auto, Duration::ZERO);
        Foreign::with(config, qp, device)
    }

    /// The peer of a queue pair that is on a stream already, as a responder.
    pub fn of(qp: Qp, device: Device) -> Foreign {
        Foreign::with(&responder(IRD), qp, device)
    }

    fn with(config: &Established, qp: Qp, device: Device) -> Foreign {
        let theirs = Established {
            role: Role::Initiator,
            ..config.clone()
        };
        Foreign {
            qp,
            device,
            peer: Outbound::new(&theirs, 1448),
        }
    }

    fn framed(&mut self, header: Header, body: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut fpdu = Vec::new();
        let start = self.peer.begin(&mut fpdu, &header, body, payload.len());
        fpdu.extend_from_slice(payload);
        self.peer.seal(&mut fpdu, start);
        fpdu
    }

    /// A Write of one segment that has not arrived.
    pub fn fpdu_of_write(&mut self, (stag, to): (Stag, u64), payload: &[u8]) -> Vec<u8> {
        let header = Header::Tagged(Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag,
            to,
        });
        self.framed(header, &[], payload)
    }

    pub fn arrive(&mut self, header: Header, body: &[u8], payload: &[u8]) {
        let mut fpdu = self.framed(header, body, payload);
        self.qp.receive(&mut fpdu, &mut self.device);
    }

    /// The segment arrives but for its last octets.
    pub fn arrive_in_part(&mut self, header: Header, payload: &[u8], missing: usize) {
        let mut fpdu = self.framed(header, &[], payload);
        let there = 2 + header.wire_len() + payload.len() - missing;
        self.qp.receive(&mut fpdu[..there], &mut self.device);
    }

    pub fn tagged(&mut self, opcode: Opcode, (stag, to): (Stag, u64), last: bool, payload: &[u8]) {
        let header = Header::Tagged(Tagged {
            last,
            opcode,
            stag,
            to,
        });
        self.arrive(header, &[], payload);
    }

    pub fn write(&mut self, target: (Stag, u64), payload: &[u8]) {
        self.tagged(Opcode::WRITE, target, true, payload);
    }

    /// The header of the next message on a queue, which is one segment.
    pub fn untagged(&mut self, opcode: Opcode, qn: QueueNumber) -> Header {
        Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn: self.peer.next_msn(qn),
            mo: 0,
        })
    }

    pub fn send(&mut self) {
        self.send_of(&[]);
    }

    pub fn send_of(&mut self, payload: &[u8]) {
        let header = self.untagged(Opcode::SEND, QueueNumber::SEND);
        self.arrive(header, &[], payload);
    }

    /// One segment of the Send that the peer is in, or the first of the next one.
    pub fn send_segment(&mut self, msn: Msn, mo: usize, last: bool, payload: &[u8]) {
        let header = Header::Untagged(Untagged {
            last,
            opcode: Opcode::SEND,
            invalidate: 0,
            qn: QueueNumber::SEND,
            msn,
            mo: mo as u32,
        });
        self.arrive(header, &[], payload);
    }

    pub fn ask(&mut self, (source_stag, source_to): (Stag, u64), size: u32) {
        let request = ReadRequest {
            sink_stag: Stag(0x1234),
            sink_to: 0x5000,
            size,
            source_stag,
            source_to,
        };
        self.ask_for(&request);
    }

    pub fn ask_for(&mut self, request: &ReadRequest) {
        let header = self.untagged(Opcode::READ_REQUEST, QueueNumber::READ_REQUEST);
        self.arrive(header, &request.to_octets(), &[]);
    }

    /// The peer says that it is Weft, and asks the same.
    pub fn announce(&mut self) {
        self.ask_for(&ReadRequest {
            sink_stag: Stag::RTR,
            sink_to: ANNOUNCEMENT,
            size: 0,
            source_stag: Stag::RTR,
            source_to: ANNOUNCEMENT,
        });
    }

    pub fn add(&mut self, (stag, to): (Stag, u64)) {
        let request = AtomicRequest {
            operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
            identifier: 7,
            stag,
            to,
        };
        let header = self.untagged(Opcode::ATOMIC_REQUEST, QueueNumber::READ_REQUEST);
        self.arrive(header, &request.to_octets(), &[]);
    }

    /// The answer to an atomic.
    pub fn original(&mut self, identifier: u32, original: u64) {
        let response = AtomicResponse {
            identifier,
            original,
        };
        let header = self.untagged(Opcode::ATOMIC_RESPONSE, QueueNumber::ATOMIC_RESPONSE);
        self.arrive(header, &response.to_octets(), &[]);
    }

    /// The peer says that it refused the segment with this header.
    pub fn terminate(&mut self, (layer, etype, code): (u8, u8, u8), header: Option<Header>) {
        let terminate = Terminate {
            ddp: header.map(|header| (0, header)),
            ..Terminate::bare(TerminateCode::new(layer, etype, code))
        };
        let mut fpdu = Vec::new();
        self.peer.terminate(&terminate, &mut fpdu);
        self.qp.receive(&mut fpdu, &mut self.device);
    }

    /// Posts a signalled request; nothing of it leaves.
    pub fn post(&mut self, wr_id: u64, op: SendOp, payload: Payload<'_>) {
        let request = SendRequest {
            wr_id,
            op,
            flags: SendFlags {
                signaled: true,
                ..SendFlags::default()
            },
            payload,
        };
        let posted = self.qp.post_send(&request, &mut self.device);
        posted.expect("posted");
    }

    pub fn recv(&mut self, wr_id: u64, scatter: &[Sge]) {
        let request = RecvRequest { wr_id, scatter };
        let posted = self.qp.post_recv(&request, &mut self.device);
        posted.expect("posted");
    }

    /// Runs of octets that wait where the program has them.
    pub fn referred(&self) -> usize {
        let is_it = |piece: &Piece<'_>| matches!(piece, Piece::Memory(_));
        self.qp.outgoing().pieces().filter(is_it).count()
    }

    /// What leaves: FPDUs, headers and all.
    pub fn sent(&mut self) -> Vec<u8> {
        self.qp.fill(1 << 20, &mut self.device);
        let pieces = self.qp.outgoing().pieces();
        let octets: Vec<u8> = pieces
            .flat_map(|piece| match piece {
                Piece::Octets(octets) => octets.to_vec(),
                Piece::Memory(span) => self.device.octets_of(span).expect("memory").to_vec(),
            })
            .collect();
        self.qp.sent(octets.len(), &mut self.device);
        octets
    }

    /// The same: the header of each segment, and what stands behind it.
    pub fn segments(&mut self) -> Vec<(Header, Vec<u8>)> {
        let octets = self.sent();
        let mut rest = &octets[..];
        let mut segments = Vec::new();
        while let [high, low, ..] = *rest {
            let ulpdu_len = usize::from(u16::from_be_bytes([high, low]));
            let ulpdu = &rest[2..2 + ulpdu_len];
            let (header, _) = Header::decode(ulpdu).expect("a header");
            segments.push((header, ulpdu[header.wire_len()..].to_vec()));
            // Padding, and the CRC field.
            rest = &rest[(2 + ulpdu_len).next_multiple_of(4) + 4..];
        }
        segments
    }

    pub fn fault(&mut self) -> Option<PeerFault> {
        let events = std::iter::from_fn(|| self.qp.poll_event());
        let faults: Vec<PeerFault> = events
            .filter_map(|event| match event {
                QpEvent::PeerFault(fault) => Some(fault.fault),
                _ => None,
            })
            .collect();
        faults.first().copied()
    }

    pub fn is_open(&self) -> bool {
        self.qp.ending() == Ending::Open
    }
}
