//! Sends from the peer: receive buffers and their completions.

use weft_iwarp::{Fault, Header, PeerFault, Stag};

use super::receive::Target;
use super::Qp;
use crate::host::{Host, RegionFault};
use crate::types::{AsyncEventKind, Completion, WcOpcode, WcStatus};
use crate::wqe::RecvWqe;

/// A message that is being received.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) wqe: RecvWqe,
    pub(super) received: u32,
    pub(super) solicited: bool,
    pub(super) invalidate: Option<Stag>,
    pub(super) imm: Option<u32>,
}

/// One segment of a Send, as the header says it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendSegment {
    /// It begins its message.
    pub(super) first: bool,
    pub(super) mo: u32,
    pub(super) len: usize,
    pub(super) solicited: bool,
    pub(super) invalidate: Option<Stag>,
    pub(super) header: Header,
}

impl SendSegment {
    pub(super) fn fault(&self, fault: PeerFault, field: &'static str) -> Fault {
        let ulpdu_len = (self.len + self.header.wire_len()) as u16;
        Fault::new(fault, field).in_segment(ulpdu_len, self.header)
    }
}

impl Qp {
    /// Finds the receive buffer for a Send segment and checks that it fits. Without one the message
    /// is held until there is, or lost.
    pub(super) fn begin_send_segment(
        &mut self,
        segment: SendSegment,
        host: &mut impl Host,
    ) -> Result<Target, Fault> {
        if segment.first {
            let wqe = match self.must_hold() {
                true => None,
                false => self.next_receive(host),
            };
            let Some(wqe) = wqe else {
                if self.loses_without_receive() {
                    self.receiving.joined = None;
                    self.receiving.losses.send = true;
                    return Ok(Target::Lost);
                }
                self.hold_send(segment)?;
                return Ok(Target::Held);
            };
            let imm = self.receiving.joined.take();
            self.receiving.begin(Filling {
                wqe,
                received: 0,
                solicited: segment.solicited,
                invalidate: segment.invalidate,
                imm,
            });
        } else if self.receiving.losses.send {
            return Ok(Target::Lost);
        } else if self.receiving.filling.is_none() && self.must_hold() {
            return Ok(Target::Held);
        }
        self.check_room(segment, host)?;
        Ok(Target::Receive)
    }

    /// A Send segment fits into the receive that is being filled.
    pub(super) fn check_room(
        &mut self,
        segment: SendSegment,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(filling) = &self.receiving.filling else {
            return Err(segment.fault(PeerFault::MessageOffset, "Send: MO"));
        };
        let end = u64::from(segment.mo) + segment.len as u64;
        if end > filling.wqe.capacity {
            self.fail_receive(WcStatus::LocalLength, host);
            return Err(segment.fault(
                PeerFault::MessageTooLong,
                "Send: longer than the receive buffer",
            ));
        }
        Ok(())
    }

    /// Takes the next receive. Whoever has it completes it ([`Qp::complete_receive`]).
    pub(super) fn next_receive(&mut self, host: &mut impl Host) -> Option<RecvWqe> {
        let wqe = match self.rq.pop() {
            None if self.shared_receive => host.take_shared_recv(),
            own => own,
        };
        self.receiving.in_hand += u32::from(wqe.is_some());
        wqe
    }

    /// Completes a receive that was taken.
    pub(super) fn complete_receive(&mut self, completion: Completion, host: &mut impl Host) {
        self.receiving.in_hand -= 1;
        host.complete_recv(completion);
    }

    /// The message that is being received ends with its stream, and the queue pair goes on: the receive is the next
    /// one's.
    pub(super) fn take_receive_back(&mut self) {
        if let Some(filling) = self.receiving.filling.take() {
            self.receiving.in_hand -= 1;
            self.rq.put_back(filling.wqe);
        }
    }

    /// The last octet of a Send is placed: invalidate what it asks for, then complete.
    pub(super) fn deliver_send(
        &mut self,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(filling) = self.receiving.filling.take() else {
            return Ok(());
        };
        if let Some(stag) = filling.invalidate {
            if let Err(fault) = host.invalidate_for_peer(stag, self.scope()) {
                self.receiving.filling = Some(filling);
                self.fail_receive(WcStatus::LocalQpOperation, host);
                return Err(invalidate_fault(fault, header));
            }
        }
        self.counters.recvs_completed += 1;
        let completion = Completion {
            wr_id: filling.wqe.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: filling.received,
            qp: self.number,
            slots: 0,
            invalidated: filling.invalidate,
            imm: filling.imm,
            solicited: filling.solicited,
            source: None,
        };
        self.complete_receive(completion, host);
        Ok(())
    }

    /// The receive that is being filled ends with `status`.
    pub(super) fn fail_receive(&mut self, status: WcStatus, host: &mut impl Host) {
        if let Some(filling) = self.receiving.filling.take() {
            self.report_receive(filling.wqe.wr_id, status, host);
        }
    }

    fn report_receive(&mut self, wr_id: u64, status: WcStatus, host: &mut impl Host) {
        if status != WcStatus::Flushed {
            self.counters.errors += 1;
        }
        let completion = Completion {
            wr_id,
            status,
            opcode: WcOpcode::Recv,
            byte_len: 0,
            qp: self.number,
            slots: 0,
            invalidated: None,
            imm: None,
            solicited: true,
            source: None,
        };
        self.complete_receive(completion, host);
    }

    /// Everything posted to the receive queue is flushed.
    pub(super) fn flush_recv_queue(&mut self, host: &mut impl Host) {
        self.fail_receive(WcStatus::Flushed, host);
        while let Some(wqe) = self.rq.pop() {
            self.receiving.in_hand += 1;
            self.report_receive(wqe.wr_id, WcStatus::Flushed, host);
        }
        debug_assert_eq!(
            self.receiving.in_hand, 0,
            "a receive was taken and never completed"
        );
        if self.shared_receive && !self.receiving.last_wqe_reported {
            self.receiving.last_wqe_reported = true;
            self.raise(AsyncEventKind::QpLastWqeReached, host);
        }
    }
}

fn invalidate_fault(fault: RegionFault, header: Header) -> Fault {
    let fault = match fault {
        RegionFault::WrongPd => PeerFault::InvalidateStream,
        _ => PeerFault::InvalidateStag,
    };
    let ulpdu_len = header.wire_len() as u16;
    Fault::new(fault, "Send with Invalidate: Invalidate STag").in_segment(ulpdu_len, header)
}
