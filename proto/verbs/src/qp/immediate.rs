//! Immediate data (RFC 7306 section 6, decision 0006).
//!
//! A write with immediate is an RDMA Write and an Immediate Data message behind it, which
//! consumes a receive. A send with immediate has no form in the RFC. Between Weft peers it is an
//! Immediate Data message *before* the Send, marked in the four octets that the 32-bit value
//! leaves: it consumes no receive, and its value is the next Send's.

use weft_iwarp::{Fault, Header, Opcode, PeerFault, QueueNumber, Untagged};

use super::requester::{Kind, Step};
use super::{Peer, Qp};
use crate::host::Host;
use crate::types::{Completion, SendOp, WcOpcode, WcStatus};
use crate::wqe::RecvWqe;

/// The lower half of Immediate Data that belongs to the Send behind it.
const JOINED: u32 = 0x5745_4654;

impl Qp {
    /// Whether a request is known to be beyond the peer, or the queue pair's type.
    pub(super) fn refuses(&self, op: &SendOp) -> bool {
        let foreign = |s: &super::Stream| s.peer == Peer::Foreign;
        let joined = matches!(op, SendOp::SendWithImm { .. });
        joined && self.stream.as_ref().is_some_and(foreign) || self.beyond_its_type(op)
    }

    /// Frames Immediate Data that consumes a receive of the peer's.
    pub(super) fn frame_immediate(&mut self, imm: u32, solicited: bool) {
        let opcode = if solicited {
            Opcode::IMMEDIATE_SOLICITED
        } else {
            Opcode::IMMEDIATE
        };
        self.frame_immediate_octets(opcode, u64::from(imm) << 32);
    }

    fn frame_immediate_octets(&mut self, opcode: Opcode, octets: u64) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        let header = Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn: QueueNumber::SEND,
            msn: stream.outbound.next_msn(QueueNumber::SEND),
            mo: 0,
        });
        self.outgoing.append(|out| {
            let start = stream
                .outbound
                .begin(out, &header, &octets.to_be_bytes(), 0);
            stream.outbound.seal(out, start);
        });
        self.counters.segments_out += 1;
    }

    /// Frames the next part of a send with immediate, if the peer is one that knows them.
    pub(super) fn frame_send_with_imm(&mut self, imm: u32, host: &mut impl Host) -> Step {
        let begun = self.requester.msn.is_some();
        match self.stream.as_ref().map(|s| s.peer) {
            Some(Peer::Weft) => {}
            Some(Peer::Unknown) => return self.detect_peer(),
            Some(Peer::Foreign) | None => return Step::Failed(WcStatus::LocalQpOperation),
        }
        if !begun {
            let octets = u64::from(imm) << 32 | u64::from(JOINED);
            self.frame_immediate_octets(Opcode::IMMEDIATE, octets);
        }
        self.frame_message(Kind::Send(None), host)
    }

    /// Takes Immediate Data: the value of the next Send, or of a receive of its own.
    pub(super) fn take_immediate(
        &mut self,
        octets: u64,
        solicited: bool,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let ulpdu_len = (header.wire_len() + weft_iwarp::rdmap::IMMEDIATE_LEN) as u16;
        let fault = |fault, field| Fault::new(fault, field).in_segment(ulpdu_len, header);
        let imm = (octets >> 32) as u32;
        if self.receiving.joined.is_some() {
            return Err(fault(
                PeerFault::UnexpectedOpcode,
                "RDMAP opcode between an immediate value and its Send",
            ));
        }
        if octets as u32 == JOINED && self.peer_is_weft() {
            self.receiving.joined = Some(imm);
            return Ok(());
        }
        let octets = core::mem::take(&mut self.receiving.write_octets);
        if core::mem::take(&mut self.receiving.losses.write) {
            return Ok(());
        }
        let wqe = match self.must_hold() {
            true => None,
            false => self.next_receive(host),
        };
        match wqe {
            Some(wqe) => self.deliver_immediate(wqe, imm, octets, solicited, host),
            None if self.loses_without_receive() => {}
            None => self.hold_immediate(imm, octets, solicited, header)?,
        }
        Ok(())
    }

    pub(super) fn deliver_immediate(
        &mut self,
        wqe: RecvWqe,
        imm: u32,
        octets: u32,
        solicited: bool,
        host: &mut impl Host,
    ) {
        self.counters.recvs_completed += 1;
        let completion = Completion {
            wr_id: wqe.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::RecvWriteWithImm,
            byte_len: octets,
            qp: self.number,
            slots: 0,
            invalidated: None,
            imm: Some(imm),
            solicited,
            source: None,
        };
        self.complete_receive(completion, host);
    }
}
