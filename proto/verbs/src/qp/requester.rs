//! The requester: from send work requests to framed segments, and to their completions. What is framed as it is posted
//! is in [`at_once`].

mod at_once;

use weft_iwarp::ddp::{Header, Tagged, Untagged};
use weft_iwarp::rdmap::ReadRequest;
use weft_iwarp::{AtomicOperation, AtomicRequest, Msn, Opcode, QueueNumber, Stag};

use super::acknowledgements::Acknowledgements;
use super::attributes::QpConfig;
use super::counters::QpCounters;
use super::framing::{Framer, Source};
use super::immediate;
use super::peer::Peer;
use super::reads::OutstandingReads;
use super::terminated::Terminated;
use crate::host::{Host, RegionFault};
use crate::types::{
    Access, Bind, Completion, PostError, QpCap, SendOp, SendRequest, WcOpcode, WcStatus,
};
use crate::wqe::{Progress, SendQueue, SendWqe};

/// The send queue, and the message of it that is being framed.
#[derive(Debug)]
pub(super) struct Requester {
    queue: SendQueue,
    /// Octets of the current message that are framed.
    offset: u32,
    /// Sequence number of the current untagged message, once allocated.
    msn: Option<Msn>,
}

/// What the front of the send queue came to.
pub(super) enum Step {
    /// A segment was framed, and its message goes on.
    Segment,
    /// The request is framed completely, or done without.
    Finished(Finished),
    /// Nothing can be framed now.
    Blocked,
    /// It has first to be known what the peer is.
    PeerUnknown,
    /// The request failed.
    Failed(WcStatus),
}

/// A request that needs no more of the requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Finished {
    pub(super) opcode: WcOpcode,
    pub(super) sequence: u64,
    pub(super) signaled: bool,
    /// Nothing of it went to the peer: it is complete.
    pub(super) is_local: bool,
}

/// A message with payload.
enum Kind {
    Send(Option<Stag>),
    Write {
        remote_addr: u64,
        rkey: Stag,
        /// Immediate Data follows.
        imm: Option<u32>,
    },
}

impl Kind {
    fn write(remote_addr: u64, rkey: Stag, imm: Option<u32>) -> Kind {
        Kind::Write {
            remote_addr,
            rkey,
            imm,
        }
    }

    fn tagged(&self) -> bool {
        matches!(self, Kind::Write { .. })
    }
}

impl Requester {
    pub(super) fn new(cap: &QpCap) -> Requester {
        Requester {
            queue: SendQueue::new(cap),
            offset: 0,
            msn: None,
        }
    }

    #[inline]
    pub(super) fn post(
        &mut self,
        request: &SendRequest<'_>,
        polled: impl FnOnce() -> u64,
    ) -> Result<(), PostError> {
        self.queue.push(request, polled)
    }

    /// Whether a request could be posted behind `earlier` others.
    pub(super) fn check(
        &mut self,
        request: &SendRequest<'_>,
        earlier: u32,
        polled: impl FnOnce() -> u64,
    ) -> Result<(), PostError> {
        self.queue.check(request, earlier, polled).map(|_| ())
    }

    /// Whether a message is framed in part.
    #[inline]
    pub(super) fn in_message(&self) -> bool {
        self.offset > 0
    }

    /// Whether requests wait to be framed.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.queue.unencoded() > 0
    }

    /// Requests that are not done.
    #[inline]
    pub(super) fn outstanding(&self) -> usize {
        self.queue.len()
    }

    /// Whether a Write whose completion the program wants is the only request that is not done.
    #[inline]
    pub(super) fn has_one_write(&self, config: &QpConfig) -> bool {
        let is_write = |wqe: &SendWqe| matches!(wqe.op, SendOp::Write { .. });
        let is_wanted = |wqe: &SendWqe| wqe.flags.signaled || config.sq_sig_all;
        let front = self.queue.front().filter(|_| self.queue.len() == 1);
        front.is_some_and(|front| is_write(front) && is_wanted(front))
    }

    /// Whether a request was begun that is not complete.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.queue.under_way() || self.in_message()
    }

    /// Frames the next segment of the request at the front, or what it takes.
    #[inline]
    pub(super) fn frame(
        &mut self,
        framer: &mut Framer<'_>,
        reads: &mut OutstandingReads,
        host: &mut impl Host,
    ) -> Step {
        let outstanding = reads.len();
        let Some(wqe) = self.queue.next_to_encode() else {
            return Step::Blocked;
        };
        if wqe.flags.fence && outstanding > 0 {
            return Step::Blocked;
        }
        match wqe.op {
            SendOp::Write { remote_addr, rkey } => {
                self.frame_message(Kind::write(remote_addr, rkey, None), framer, host)
            }
            SendOp::Send => self.frame_message(Kind::Send(None), framer, host),
            op => self.frame_any(op, framer, reads, host),
        }
    }

    /// Frames the next segment of any request. Apart from plain Writes and Sends, so that those two are told from each
    /// other by a comparison that is foreseen, and not by a table.
    #[inline(never)]
    fn frame_any(
        &mut self,
        op: SendOp,
        framer: &mut Framer<'_>,
        reads: &mut OutstandingReads,
        host: &mut impl Host,
    ) -> Step {
        let (ord, _) = framer.stream().read_limits();
        if op.awaits_response() && reads.len() >= usize::from(ord) {
            return Step::Blocked;
        }
        match op {
            SendOp::Send => self.frame_message(Kind::Send(None), framer, host),
            SendOp::Write { remote_addr, rkey } => {
                self.frame_message(Kind::write(remote_addr, rkey, None), framer, host)
            }
            SendOp::Read { remote_addr, rkey } => {
                self.frame_read(remote_addr, rkey, framer, reads, host)
            }
            SendOp::LocalInvalidate { stag } => self.invalidate_locally(stag, framer, host),
            SendOp::SendWithInvalidate { stag } => {
                self.frame_message(Kind::Send(Some(stag)), framer, host)
            }
            SendOp::WriteWithImm {
                remote_addr,
                rkey,
                imm,
            } => self.frame_message(Kind::write(remote_addr, rkey, Some(imm)), framer, host),
            SendOp::SendWithImm { imm } => self.frame_send_with_imm(imm, framer, host),
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add,
            } => {
                let operation = AtomicOperation::FetchAdd { add, mask: 0 };
                self.frame_atomic(operation, (rkey, remote_addr), framer, reads, host)
            }
            SendOp::CompareSwap {
                remote_addr,
                rkey,
                compare,
                swap,
            } => {
                let operation = AtomicOperation::CompareSwap {
                    swap,
                    swap_mask: u64::MAX,
                    compare,
                    compare_mask: u64::MAX,
                };
                self.frame_atomic(operation, (rkey, remote_addr), framer, reads, host)
            }
            SendOp::BindWindow(bind) => self.bind_window(&bind, framer, host),
        }
    }

    /// Invalidation is ordered behind everything posted before, which includes octets that the
    /// transport has not taken and that may lie in the region.
    fn invalidate_locally(
        &mut self,
        stag: Stag,
        framer: &Framer<'_>,
        host: &mut impl Host,
    ) -> Step {
        if !framer.is_idle() {
            return Step::Blocked;
        }
        match host.invalidate(stag, framer.scope()) {
            Ok(()) => self.finish(Progress::Done),
            Err(_) => Step::Failed(WcStatus::LocalProtection),
        }
    }

    /// Binding is ordered as invalidation is: octets that wait may have come through the window.
    fn bind_window(&mut self, bind: &Bind, framer: &Framer<'_>, host: &mut impl Host) -> Step {
        if !framer.is_idle() {
            return Step::Blocked;
        }
        match host.bind(bind, framer.scope()) {
            Ok(()) => self.finish(Progress::Done),
            Err(_) => Step::Failed(WcStatus::MwBind),
        }
    }

    fn frame_read(
        &mut self,
        remote_addr: u64,
        rkey: Stag,
        framer: &mut Framer<'_>,
        reads: &mut OutstandingReads,
        host: &impl Host,
    ) -> Step {
        let Some(wqe) = self.queue.next_to_encode() else {
            return Step::Blocked;
        };
        if check_scatter(wqe, framer, host).is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        let first = wqe.gather.as_slice().first().copied().unwrap_or_default();
        let request = ReadRequest {
            sink_stag: if first.lkey == 0 {
                Stag::RTR
            } else {
                Stag(first.lkey)
            },
            sink_to: first.addr,
            size: wqe.len,
            source_stag: rkey,
            source_to: remote_addr,
        };
        let qn = QueueNumber::READ_REQUEST;
        let msn = framer.next_msn(qn);
        framer.message(Opcode::READ_REQUEST, qn, msn, &request.to_octets());
        reads.push(&request, wqe.gather.clone(), wqe.len);
        self.finish(Progress::AwaitingResponse)
    }

    /// An Atomic Request (RFC 7306 section 5) shares queue, limits and order with Read Requests.
    fn frame_atomic(
        &mut self,
        operation: AtomicOperation,
        (stag, to): (Stag, u64),
        framer: &mut Framer<'_>,
        reads: &mut OutstandingReads,
        host: &impl Host,
    ) -> Step {
        let Some(wqe) = self.queue.next_to_encode() else {
            return Step::Blocked;
        };
        if check_scatter(wqe, framer, host).is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        let qn = QueueNumber::READ_REQUEST;
        let msn = framer.next_msn(qn);
        let request = AtomicRequest {
            operation,
            identifier: msn.0,
            stag,
            to,
        };
        framer.message(Opcode::ATOMIC_REQUEST, qn, msn, &request.to_octets());
        reads.push_atomic(request.identifier, wqe.gather.clone());
        self.finish(Progress::AwaitingResponse)
    }

    /// Frames the next part of a send with immediate, if the peer is one that knows them.
    fn frame_send_with_imm(
        &mut self,
        imm: u32,
        framer: &mut Framer<'_>,
        host: &mut impl Host,
    ) -> Step {
        match framer.stream().peer() {
            Peer::Weft => {}
            Peer::Unknown => return Step::PeerUnknown,
            Peer::Foreign => return Step::Failed(WcStatus::LocalQpOperation),
        }
        if self.msn.is_none() {
            let octets = immediate::of_next_send(imm);
            immediate::frame(Opcode::IMMEDIATE, octets, framer);
        }
        self.frame_message(Kind::Send(None), framer, host)
    }

    /// Frames the next segment of a Send or Write.
    fn frame_message(&mut self, kind: Kind, framer: &mut Framer<'_>, host: &mut impl Host) -> Step {
        let Some(wqe) = self.queue.next_to_encode() else {
            return Step::Blocked;
        };
        let offset = self.offset;
        let room = framer.max_payload(kind.tagged());
        let octets = ((wqe.len - offset) as usize).min(room);
        let end = offset + octets as u32;
        let last = end == wqe.len;
        let solicited = wqe.flags.solicited;
        let len = wqe.len;
        let header = match kind {
            Kind::Write {
                remote_addr, rkey, ..
            } => Header::Tagged(Tagged {
                last,
                opcode: Opcode::WRITE,
                // A zero-length Write may carry any STag; hardware wants one that is not 0.
                stag: if len == 0 && rkey.0 == 0 {
                    Stag::RTR
                } else {
                    rkey
                },
                to: remote_addr.wrapping_add(u64::from(offset)),
            }),
            Kind::Send(invalidate) => Header::Untagged(Untagged {
                last,
                opcode: Opcode::send(solicited, invalidate.is_some()),
                invalidate: invalidate.map_or(0, |stag| stag.0),
                qn: QueueNumber::SEND,
                msn: *self
                    .msn
                    .get_or_insert_with(|| framer.next_msn(QueueNumber::SEND)),
                mo: offset,
            }),
        };
        let source = Source::of(self.queue.payload_to_encode(), offset, end);
        if framer.segment(&header, source, octets, host).is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        if !last {
            self.offset = end;
            return Step::Segment;
        }
        if let Kind::Write { imm: Some(imm), .. } = kind {
            let opcode = match solicited {
                true => Opcode::IMMEDIATE_SOLICITED,
                false => Opcode::IMMEDIATE,
            };
            immediate::frame(opcode, immediate::of_write(imm), framer);
        }
        self.finish(Progress::SentAt(framer.end()))
    }

    /// The request at the front of the unencoded ones is framed completely.
    fn finish(&mut self, progress: Progress) -> Step {
        let Some(wqe) = self.queue.next_to_encode() else {
            return Step::Blocked;
        };
        wqe.progress = progress;
        wqe.msn = self.msn.take();
        let finished = Finished {
            opcode: wqe.opcode(),
            sequence: wqe.sequence,
            signaled: wqe.flags.signaled,
            is_local: progress == Progress::Done,
        };
        self.queue.advance();
        self.offset = 0;
        Step::Finished(finished)
    }

    /// The request at the front failed: it gets `status` when the queue is flushed.
    pub(super) fn fail_current(&mut self, status: WcStatus) {
        if let Some(wqe) = self.queue.next_to_encode() {
            wqe.status = status;
        }
    }

    /// Nobody answers: the oldest request gets the status for it when the queue is flushed.
    pub(super) fn fail_unanswered(&mut self) {
        self.queue.blame(WcStatus::RetryExceeded, |_| true);
    }

    /// The response to the oldest request that awaits one cannot be placed.
    pub(super) fn fail_oldest_awaiting(&mut self, status: WcStatus) {
        let awaits = |wqe: &SendWqe| wqe.progress == Progress::AwaitingResponse;
        self.queue.blame(status, awaits);
    }

    /// The peer's Terminate: gives the request that it is about its status, and its number.
    pub(super) fn fail_terminated(&mut self, terminated: &Terminated) -> Option<u64> {
        let status = terminated.status();
        self.queue
            .blame(status, |wqe| terminated.names(wqe))
            .or_else(|| self.queue.blame(status, |wqe| terminated.blames(wqe)))
    }

    /// The oldest request that awaits a response has it; its number.
    pub(super) fn note_answered(&mut self) -> Option<u64> {
        self.queue.finish_oldest_awaiting()
    }

    /// Reports finished requests in posting order (RFC 5040 section 5.5, rule 15): those whose octets are `released`
    /// and, where they are awaited, acknowledged.
    #[inline]
    pub(super) fn complete(
        &mut self,
        released: u64,
        awaited: Option<&Acknowledgements>,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) {
        while let Some(front) = self.queue.front() {
            match front.progress {
                Progress::Done => {}
                Progress::SentAt(at)
                    if at <= released && awaited.is_none_or(|a| a.has_answer_for(front)) => {}
                _ => break,
            }
            counters.sends_completed += 1;
            let is_reported = front.flags.signaled || config.sq_sig_all;
            let (wr_id, opcode, byte_len) = (front.wr_id, front.opcode(), front.len);
            self.queue.drop_front();
            if is_reported {
                host.complete_send(Completion {
                    wr_id,
                    status: WcStatus::Success,
                    opcode,
                    byte_len,
                    qp: config.number,
                    slots: self.queue.take_slots(),
                    invalidated: None,
                    imm: None,
                    solicited: false,
                    source: None,
                });
            }
        }
    }

    /// Reports everything that is left, in posting order: one that failed with its status, the others as flushed.
    pub(super) fn flush(
        &mut self,
        config: &QpConfig,
        counters: &mut QpCounters,
        host: &mut impl Host,
    ) {
        while let Some(wqe) = self.queue.pop_front() {
            let status = match wqe.status {
                WcStatus::Success => WcStatus::Flushed,
                own => own,
            };
            if status != WcStatus::Flushed {
                counters.errors += 1;
            }
            host.complete_send(Completion {
                wr_id: wqe.wr_id,
                status,
                opcode: wqe.opcode(),
                byte_len: 0,
                qp: config.number,
                slots: self.queue.take_slots(),
                invalidated: None,
                imm: None,
                solicited: true,
                source: None,
            });
        }
        self.forget_message();
    }

    /// What is framed of the current message has gone with its stream.
    pub(super) fn forget_message(&mut self) {
        self.offset = 0;
        self.msn = None;
    }
}

/// Whether the program may have a response written to the scatter list of a request.
fn check_scatter(wqe: &SendWqe, framer: &Framer<'_>, host: &impl Host) -> Result<(), RegionFault> {
    for sge in wqe.gather.as_slice().iter().filter(|s| s.length > 0) {
        let access = Access::LOCAL_WRITE;
        host.check(Stag(sge.lkey), sge.addr, sge.length, access, framer.scope())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
