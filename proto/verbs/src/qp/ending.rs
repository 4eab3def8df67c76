//! How a stream ends, and what happens to the work that is posted.
//!
//! | cause | the peer gets | local work |
//! | --- | --- | --- |
//! | the peer broke a rule | a Terminate that says which, then FIN | flushed, async event |
//! | a local request or buffer was at fault | Terminate 0/0/00, then FIN | that request's status, rest flushed |
//! | the peer's Terminate | FIN | the request it blames, rest flushed |
//! | the program disconnects | what is framed, then FIN | flushed |
//! | the stream ended or broke | nothing | flushed, but not before messages that wait for receives have them |
//!
//! In every case the queue pair is in the error state afterwards, as `ibv_modify_qp` to ERR
//! leaves it; it can be reset and used again.

use weft_iwarp::{
    Established, Fault, Header, Opcode, PeerFault, QueueNumber, Role, Rtr, Terminate,
};

use super::{peer, Qp};
use crate::host::Host;
use crate::types::{AsyncEventKind, Completion, PostError, QpState, SendOp, WcStatus};
use crate::wqe::{Progress, SendWqe};

/// How far the end of the stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Not ending.
    Open,
    /// Nothing more arrives, and messages that arrived wait for receives (decision 0011). Everything else goes on, as
    /// far as the transport takes it: the peer's FIN does not close this side's direction.
    HalfClosed,
    /// What is framed goes out, then FIN; what arrives is discarded.
    Draining,
    /// The transport can be closed, or is.
    Closed,
}

impl Ending {
    /// Neither a fault nor this side has ended the stream: messages are delivered and framed.
    #[inline]
    pub fn is_live(self) -> bool {
        matches!(self, Ending::Open | Ending::HalfClosed)
    }
}

/// What happened to a queue pair that its driver or connection manager has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// The responder saw the initiator's first FPDU: the connection is usable both ways.
    FirstFpdu,
    /// The peer broke a rule; a Terminate says so to it.
    PeerFault(Fault),
    /// A local request or buffer was at fault; the stream is ending.
    LocalFault(WcStatus),
    /// The peer's Terminate.
    Terminated(Terminate),
    /// Messages that waited for receives at the end of the stream are lost: the wait was long enough.
    Unreceived(usize),
}

/// A Terminate that arrived, and whom it blames.
pub(super) struct Terminated {
    terminate: Terminate,
}

impl Terminated {
    pub(super) fn new(terminate: Terminate) -> Terminated {
        Terminated { terminate }
    }

    /// The status of the request that the Terminate is about.
    fn status(&self) -> WcStatus {
        let code = self.terminate.code;
        match (code.layer, code.etype, code.code) {
            (0, 1 | 2, 0x09) => WcStatus::RemoteInvalidate,
            (0 | 1, 1, _) => WcStatus::RemoteAccess,
            // The last: an atomic at an address that is not aligned (RFC 7306 section 8).
            (1, 2, 0x05) | (0, 2, 0x07) => WcStatus::RemoteInvalidRequest,
            (1, 2, 0x02) if self.is_of_send() => WcStatus::RnrRetryExceeded,
            (1, 2, 0x02) => WcStatus::RemoteInvalidRequest,
            _ => WcStatus::RemoteOperation,
        }
    }

    /// Whether a message that takes a receive is at fault.
    fn is_of_send(&self) -> bool {
        let header = self.terminate.ddp.map(|(_, header)| header);
        matches!(header, Some(Header::Untagged(u)) if u.qn == QueueNumber::SEND)
    }

    /// Whether the segment that the peer refused is certainly of this request.
    fn names(&self, wqe: &SendWqe) -> bool {
        match (self.terminate.ddp.map(|(_, header)| header), wqe.op) {
            (
                Some(Header::Tagged(t)),
                SendOp::Write { remote_addr, rkey }
                | SendOp::WriteWithImm {
                    remote_addr, rkey, ..
                },
            ) if t.opcode == Opcode::WRITE => {
                t.stag == rkey && t.to.wrapping_sub(remote_addr) < u64::from(wqe.len)
            }
            (Some(Header::Untagged(u)), _) if u.qn == QueueNumber::SEND => wqe.msn == Some(u.msn),
            _ => false,
        }
    }

    fn blames(&self, wqe: &SendWqe) -> bool {
        let sending = matches!(wqe.progress, Progress::SentAt(_) | Progress::Queued);
        match self.terminate.ddp.map(|(_, header)| header) {
            Some(Header::Tagged(t)) if t.opcode == Opcode::WRITE => {
                sending && matches!(wqe.op, SendOp::Write { .. } | SendOp::WriteWithImm { .. })
            }
            Some(Header::Untagged(u)) if u.opcode == Opcode::ATOMIC_REQUEST => {
                wqe.progress == Progress::AwaitingResponse && !matches!(wqe.op, SendOp::Read { .. })
            }
            Some(Header::Untagged(u)) if u.qn == QueueNumber::READ_REQUEST => {
                wqe.progress == Progress::AwaitingResponse
            }
            Some(Header::Untagged(u)) if u.qn == QueueNumber::SEND => {
                sending
                    && matches!(
                        wqe.op,
                        SendOp::Send
                            | SendOp::SendWithInvalidate { .. }
                            | SendOp::SendWithImm { .. }
                            | SendOp::WriteWithImm { .. }
                    )
            }
            _ => false,
        }
    }
}

impl Qp {
    /// What the first FPDU of a new stream is, and what is awaited from the peer.
    pub(super) fn start_stream(&mut self, established: &Established) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        self.ending = Ending::Open;
        match (established.role, established.rtr) {
            (Role::Initiator, Some(kind)) => {
                let to = peer::announcement(stream.fpdu_policy);
                self.requester.queue_rtr(kind, to);
                // Framed now: it goes out even if the program disconnects at once.
                self.frame_control();
            }
            (Role::Responder, Some(Rtr::Send)) => stream.swallow_rtr_send = true,
            _ => {}
        }
    }

    /// How far the end of the stream has come. When it is [`Ending::Draining`] and nothing is
    /// outgoing, the driver sends FIN; when it is [`Ending::Closed`], it closes.
    #[inline]
    pub fn ending(&self) -> Ending {
        self.ending
    }

    /// The peer broke a rule: tell it, then end (RFC 5040 section 7.1).
    #[cold]
    pub(super) fn end_at_fault(&mut self, fault: Fault, host: &mut impl Host) {
        if !self.ending.is_live() {
            return;
        }
        self.drain_with(fault.terminate(), host);
        self.raise(async_event_of(fault.fault), host);
        self.counters.errors += 1;
        self.counters.refused_accesses += u64::from(fault.fault.is_refused_access());
        self.events.push_back(QpEvent::PeerFault(fault));
        self.enter_error(host);
    }

    /// A request or buffer of this side was at fault.
    #[cold]
    pub(super) fn end_locally(&mut self, host: &mut impl Host) {
        if !self.ending.is_live() {
            return;
        }
        let terminate = Fault::new(PeerFault::SegmentTooShort, "").terminate();
        let local = terminate.map(|t| Terminate {
            code: weft_iwarp::TerminateCode::new(0, 0, 0),
            ddp: None,
            read_request: None,
            ..t
        });
        self.drain_with(local, host);
        self.events
            .push_back(QpEvent::LocalFault(WcStatus::LocalProtection));
        self.enter_error(host);
    }

    /// The peer's Terminate: never answered by another one.
    #[cold]
    pub(super) fn end_terminated(&mut self, terminated: Terminated, host: &mut impl Host) {
        let status = terminated.status();
        let blamed = self
            .sq
            .blame(status, |wqe| terminated.names(wqe))
            .or_else(|| self.sq.blame(status, |wqe| terminated.blames(wqe)));
        if let Some(sequence) = blamed {
            // The peer came as far as this one.
            self.acknowledgements.note_acknowledged(sequence);
            self.complete_sends(host);
        }
        self.outgoing.clear();
        self.ending = Ending::Draining;
        self.linger(host);
        self.raise(AsyncEventKind::QpFatal, host);
        self.events
            .push_back(QpEvent::Terminated(terminated.terminate));
        self.enter_error(host);
    }

    /// The program wants the connection to end: what is framed still goes out.
    pub fn disconnect(&mut self, host: &mut impl Host) {
        if !self.ending.is_live() || self.stream.is_none() {
            return;
        }
        self.drain_with(None, host);
        self.enter_error(host);
    }

    /// The transport ended: FIN, reset or a local failure. Whether the queue pair has done with it. It has not while
    /// messages that arrived wait for receives ([`Ending::HalfClosed`]): the driver calls again once none does
    /// ([`Qp::holding`]).
    ///
    /// Their sender has been told that they are complete, and comes to no other end if their receives are posted late.
    pub fn stream_ended(&mut self, host: &mut impl Host) -> bool {
        if self.state == QpState::Reset {
            // It was reset before the end of its stream was seen.
            return true;
        }
        if self.goes_on_receiving(host) {
            self.ending = Ending::HalfClosed;
            self.follow_rnr(host);
            return false;
        }
        if self.survives_its_stream() {
            return true;
        }
        self.ending = Ending::Closed;
        self.forget_time();
        self.outgoing.clear();
        self.enter_error(host);
        true
    }

    /// Lets go of the buffers that wait, appends `terminate` and begins to drain.
    fn drain_with(&mut self, terminate: Option<Terminate>, host: &mut impl Host) {
        self.ending = Ending::Draining;
        let may_send = self.stream.as_ref().is_some_and(|s| s.may_send);
        if !may_send || self.outgoing.detach(host).is_err() {
            // A stream that cannot go on at an FPDU boundary is cut.
            self.outgoing.clear();
            self.ending = Ending::Closed;
            return;
        }
        self.linger(host);
        if let (Some(terminate), Some(stream)) = (terminate, &mut self.stream) {
            self.outgoing
                .append(|out| stream.outbound.terminate(&terminate, out));
        }
    }

    /// Error state: everything posted is flushed, in order, send queue first.
    pub(super) fn enter_error(&mut self, host: &mut impl Host) {
        self.state = QpState::Error;
        self.flush_send_queue(host);
        self.reads.clear();
        self.responder.clear();
        self.receiving.clear();
        self.flush_recv_queue(host);
    }

    pub(super) fn flush_send_queue(&mut self, host: &mut impl Host) {
        self.complete_sends(host);
        while let Some(wqe) = self.sq.pop_front() {
            let status = match wqe.status {
                WcStatus::Success => WcStatus::Flushed,
                own => own,
            };
            if status != WcStatus::Flushed {
                self.counters.errors += 1;
            }
            host.complete_send(Completion {
                wr_id: wqe.wr_id,
                status,
                opcode: wqe.opcode(),
                byte_len: 0,
                qp: self.number,
                slots: self.sq.take_slots(),
                invalidated: None,
                imm: None,
                solicited: true,
                source: None,
            });
        }
        self.requester = super::requester::Requester::default();
        self.acknowledgements.forget_request();
    }

    pub(super) fn blame_oldest_read(&mut self, status: WcStatus) {
        self.sq
            .blame(status, |w| w.progress == Progress::AwaitingResponse);
    }

    /// A state change that the program asks for. RTR and RTS are entered by [`Qp::attach`].
    ///
    /// # Errors
    /// The transition does not exist, or needs a connection.
    pub fn modify(&mut self, to: QpState, host: &mut impl Host) -> Result<(), PostError> {
        match (self.state, to) {
            (from, to) if from == to && to != QpState::Reset => {}
            (QpState::Reset, QpState::Init) => self.state = QpState::Init,
            (_, QpState::Error) => {
                self.disconnect(host);
                self.enter_error(host);
            }
            // iWARP's Closing; InfiniBand's state of that name is entered by [`Qp::drain`].
            (QpState::Rts, QpState::Sqd) => self.disconnect(host),
            (_, QpState::Reset)
                if self.out_of_band || self.ending == Ending::Closed || self.stream.is_none() =>
            {
                self.reset();
            }
            _ => return Err(PostError::InvalidState),
        }
        Ok(())
    }

    /// Back to RESET: queues empty, no completion for what was posted.
    fn reset(&mut self) {
        let fresh = Qp::new(super::QpConfig {
            number: self.number,
            pd: self.pd,
            cap: self.cap,
            sq_sig_all: self.sq_sig_all,
            shared_receive: self.shared_receive,
        });
        let (access, rnr, unreliable) = (self.access, self.rnr.reset(), self.unreliable);
        let (acknowledge, start_timeout) = (self.acknowledge, self.start_timeout);
        *self = fresh;
        self.start_timeout = start_timeout;
        self.acknowledge = acknowledge;
        self.unreliable = unreliable;
        self.access = access;
        self.rnr = rnr;
    }
}

fn async_event_of(fault: PeerFault) -> AsyncEventKind {
    match (fault.code().layer, fault.code().etype) {
        (0 | 1, 1) => AsyncEventKind::QpAccessError,
        _ => AsyncEventKind::QpRequestError,
    }
}
