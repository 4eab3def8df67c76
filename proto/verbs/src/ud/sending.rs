//! The send queue of a UD queue pair.

use core::net::IpAddr;

use super::header::Message;
use super::{UdQp, MAX_DATAGRAM};
use crate::host::{Host, Span};
use crate::types::{
    Access, Completion, Payload, PostError, QpNumber, QpState, SendOp, SendRequest, Sge, WcStatus,
};

/// The highest bit of a Q_Key in a work request: the queue pair's own is meant (InfiniBand 3.5.3).
const OWN_QKEY: u32 = 1 << 31;

/// Where a datagram goes: an address handle's addresses, and what the work request adds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The address of this end.
    pub local: IpAddr,
    /// The address of the other end.
    pub peer: IpAddr,
    /// The queue pair there.
    pub qp: QpNumber,
    /// The Q_Key it is told.
    pub qkey: u32,
}

/// A datagram that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Where it goes.
    pub target: Target,
    /// Its header, without a mark.
    pub message: Message,
    /// Octets of payload.
    pub len: usize,
    /// The payload.
    pub payload: Payload<'a>,
}

impl UdQp {
    /// Posts to the send queue. Nothing is sent before the driver asks for it.
    ///
    /// # Errors
    /// See [`PostError`]. In the error states the request is taken and flushed at once.
    pub fn post_send(
        &mut self,
        request: &SendRequest<'_>,
        target: Target,
        host: &mut impl Host,
    ) -> Result<(), PostError> {
        self.check_send(request, 0, host)?;
        self.sq.push(request, || host.polled_slots())?;
        self.targets.push_back(target);
        if matches!(self.state, QpState::Error | QpState::Sqe) {
            self.flush_sends(host);
        }
        Ok(())
    }

    /// Whether [`UdQp::post_send`] would take a request if `earlier` others went before it.
    ///
    /// # Errors
    /// Those that posting it would give.
    pub fn check_send(
        &mut self,
        request: &SendRequest<'_>,
        earlier: u32,
        host: &impl Host,
    ) -> Result<(), PostError> {
        if matches!(self.state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(PostError::InvalidState);
        }
        if !matches!(request.op, SendOp::Send | SendOp::SendWithImm { .. }) {
            return Err(PostError::Unsupported);
        }
        let len = self.sq.check(request, earlier, || host.polled_slots())?;
        if len as usize > MAX_DATAGRAM {
            return Err(PostError::TooLarge);
        }
        Ok(())
    }

    /// The datagram that waits behind `ahead` others.
    pub fn waiting(&self, ahead: usize) -> Option<Outgoing<'_>> {
        if self.state != QpState::Rts {
            return None;
        }
        let wqe = self.sq.get(ahead)?;
        let target = *self.targets.get(ahead)?;
        let imm = match wqe.op {
            SendOp::SendWithImm { imm } => Some(imm),
            _ => None,
        };
        let payload = self.sq.payload(wqe);
        Some(Outgoing {
            target,
            message: Message {
                to: target.qp,
                from: self.number,
                qkey: match target.qkey & OWN_QKEY {
                    0 => target.qkey,
                    _ => self.qkey,
                },
                imm,
                solicited: wqe.flags.solicited,
                mark: None,
            },
            len: wqe.len as usize,
            payload,
        })
    }

    /// The memory that an element of a waiting datagram's list names, if it may be read.
    pub fn readable(&self, sge: &Sge, host: &impl Host) -> Option<Span> {
        self.local(sge, Access::NONE, host)
    }

    /// The first `count` of what waits were handed over, or are lost: they are done.
    pub fn sent(&mut self, count: usize, host: &mut impl Host) {
        for _ in 0..count {
            self.finish_front(WcStatus::Success, host);
        }
    }

    /// The first of what waits cannot be sent: this side's memory is at fault. What is behind it is
    /// flushed until the program brings the queue pair back to RTS.
    pub fn fail_front(&mut self, host: &mut impl Host) {
        self.finish_front(WcStatus::LocalProtection, host);
        self.state = QpState::Sqe;
        self.flush_sends(host);
    }

    pub(super) fn flush_sends(&mut self, host: &mut impl Host) {
        while self.sq.front().is_some() {
            self.finish_front(WcStatus::Flushed, host);
        }
    }

    fn finish_front(&mut self, status: WcStatus, host: &mut impl Host) {
        self.targets.pop_front();
        let Some(wqe) = self.sq.pop_front() else {
            return;
        };
        if status == WcStatus::Success && !wqe.flags.signaled && !self.sq_sig_all {
            return;
        }
        host.complete_send(Completion {
            wr_id: wqe.wr_id,
            status,
            opcode: wqe.opcode(),
            byte_len: wqe.len,
            qp: self.number,
            slots: self.sq.take_slots(),
            invalidated: None,
            imm: None,
            solicited: status != WcStatus::Success,
            source: None,
        });
    }
}
