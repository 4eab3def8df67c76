//! The requester: from send work requests to framed segments.

use weft_iwarp::ddp::{Header, Tagged, Untagged};
use weft_iwarp::rdmap::ReadRequest;
use weft_iwarp::{AtomicOperation, Msn, Opcode, QueueNumber, Rtr, Stag};

use super::{peer, Qp, Stream};
use crate::host::{Host, MemoryFault, RegionFault, Scope};
use crate::outgoing::Outgoing;
use crate::scatter::pieces;
use crate::types::{Access, Bind, QpState, SendOp, Sge, WcStatus};
use crate::wqe::Progress;

/// Payloads at least this long go by reference; shorter ones are copied beside their header,
/// because an element of a gather list costs more than the copy.
pub(crate) const BY_REFERENCE_AT: usize = 1024;

/// Who sends the next message when both the send queue and Read Responses wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Turn {
    #[default]
    Requester,
    Responder,
}

/// The message of the send queue that is being framed.
#[derive(Debug, Default)]
pub(super) struct Requester {
    /// Octets of the current message that are framed.
    offset: u32,
    /// Sequence number of the current untagged message, once allocated.
    pub(super) msn: Option<Msn>,
    turn: Turn,
    /// A ready-to-receive message that is due.
    rtr: Option<(Rtr, u64)>,
    /// A zero-length Write that is due, with its tagged offset.
    announce: Option<u64>,
}

impl Requester {
    pub(super) fn control_pending(&self) -> bool {
        self.rtr.is_some() || self.announce.is_some()
    }

    pub(super) fn queue_rtr(&mut self, kind: Rtr, to: u64) {
        self.rtr = Some((kind, to));
    }

    /// A zero-length Write that says nothing. One that waits already serves as well.
    pub(super) fn queue_probe(&mut self) {
        self.announce.get_or_insert(0);
    }

    /// A zero-length Write that says `to`; a probe that waits need not leave beside it.
    pub(super) fn queue_announcement(&mut self, to: u64) {
        self.announce = Some(to);
    }

    pub(super) fn in_message(&self) -> bool {
        self.offset > 0
    }
}

/// Where a segment's payload comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Gather {
        sges: &'a [Sge],
        offset: u32,
        /// What the regions have to grant.
        access: Access,
    },
    Inline(&'a [u8]),
}

/// Why a segment could not be framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FrameFault {
    Region(RegionFault),
    Memory,
}

impl From<RegionFault> for FrameFault {
    fn from(fault: RegionFault) -> Self {
        FrameFault::Region(fault)
    }
}

impl From<MemoryFault> for FrameFault {
    fn from(_: MemoryFault) -> Self {
        FrameFault::Memory
    }
}

/// What the front of the send queue needs next.
pub(super) enum Step {
    /// A segment was framed, or the request needed none.
    Progress,
    /// Nothing can be framed now.
    Blocked,
    /// The request failed.
    Failed(WcStatus),
}

impl Qp {
    /// Frames what is due until about `budget` octets wait in [`Qp::outgoing`].
    pub fn fill(&mut self, budget: usize, host: &mut impl Host) {
        self.delayed.note_sent();
        if !self.may_frame() {
            return;
        }
        self.frame_control();
        while self.outgoing.queued() < budget && self.may_frame_messages() {
            if !self.frame_next(host) {
                break;
            }
        }
        if !self.requester.in_message() && !self.responder.in_message() {
            self.frame_acknowledgement_request();
        }
    }

    fn may_frame_messages(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd)
    }

    fn may_frame(&self) -> bool {
        self.ending.is_live() && self.stream.as_ref().is_some_and(|s| s.may_send)
    }

    /// The ready-to-receive message goes before everything else, an announcement between
    /// messages.
    pub(super) fn frame_control(&mut self) {
        let Some(stream) = &mut self.stream else {
            return;
        };
        if let Some((kind, to)) = self.requester.rtr.take() {
            if kind == Rtr::Read {
                self.reads.expect_rtr_response(to);
                stream.detection_sent = true;
            }
            stream.announced |= peer::announced(to).is_some();
            self.outgoing
                .append(|out| stream.outbound.rtr(kind, to, out));
        }
        if !self.requester.in_message() && !self.responder.in_message() {
            if let Some(to) = self.requester.announce.take() {
                self.outgoing
                    .append(|out| stream.outbound.rtr(Rtr::Write, to, out));
            }
        }
    }

    /// Frames one segment of whoever's turn it is; false when nothing could be framed.
    fn frame_next(&mut self, host: &mut impl Host) -> bool {
        if self.requester.in_message() {
            return self.frame_request(host);
        }
        if self.responder.in_message() {
            return self.frame_response(host);
        }
        if self.requester.control_pending() {
            // Before anything else that the peer may judge this side by.
            self.frame_control();
        }
        // A message never starts inside another (RFC 5041 section 5.3), so turns are taken here.
        match self.requester.turn {
            Turn::Requester => {
                self.requester.turn = Turn::Responder;
                self.frame_request(host) || self.frame_response(host)
            }
            Turn::Responder => {
                self.requester.turn = Turn::Requester;
                self.frame_response(host) || self.frame_request(host)
            }
        }
    }

    fn frame_request(&mut self, host: &mut impl Host) -> bool {
        if !self.may_begin() {
            return false;
        }
        match self.step_request(host) {
            Step::Progress => true,
            Step::Blocked => false,
            Step::Failed(status) => {
                self.fail_current_request(status, host);
                false
            }
        }
    }

    fn step_request(&mut self, host: &mut impl Host) -> Step {
        let outstanding = self.reads.len();
        let Some(stream) = &mut self.stream else {
            return Step::Blocked;
        };
        let Some(wqe) = self.sq.next_to_encode() else {
            return Step::Blocked;
        };
        if wqe.flags.fence && outstanding > 0 {
            return Step::Blocked;
        }
        if wqe.op.awaits_response() && outstanding >= usize::from(stream.ord) {
            return Step::Blocked;
        }
        match wqe.op {
            SendOp::Read { remote_addr, rkey } => self.frame_read(remote_addr, rkey, host),
            SendOp::LocalInvalidate { stag } => self.invalidate_locally(stag, host),
            SendOp::Send => self.frame_message(Kind::Send(None), host),
            SendOp::SendWithInvalidate { stag } => self.frame_message(Kind::Send(Some(stag)), host),
            SendOp::Write { remote_addr, rkey } => {
                self.frame_message(Kind::write(remote_addr, rkey, None), host)
            }
            SendOp::WriteWithImm {
                remote_addr,
                rkey,
                imm,
            } => self.frame_message(Kind::write(remote_addr, rkey, Some(imm)), host),
            SendOp::SendWithImm { imm } => self.frame_send_with_imm(imm, host),
            SendOp::FetchAdd {
                remote_addr,
                rkey,
                add,
            } => {
                let operation = AtomicOperation::FetchAdd { add, mask: 0 };
                self.frame_atomic_request(operation, remote_addr, rkey, host)
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
                self.frame_atomic_request(operation, remote_addr, rkey, host)
            }
            SendOp::BindWindow(bind) => self.bind_window(&bind, host),
        }
    }

    /// Invalidation is ordered behind everything posted before, which includes octets that the
    /// transport has not taken and that may lie in the region.
    fn invalidate_locally(&mut self, stag: Stag, host: &mut impl Host) -> Step {
        if self.outgoing.queued() > 0 {
            return Step::Blocked;
        }
        if host.invalidate(stag, self.scope()).is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        self.finish_encoding(Progress::Done);
        self.complete_sends(host);
        Step::Progress
    }

    /// Binding is ordered as invalidation is: octets that wait may have come through the window.
    fn bind_window(&mut self, bind: &Bind, host: &mut impl Host) -> Step {
        if self.outgoing.queued() > 0 {
            return Step::Blocked;
        }
        if host.bind(bind, self.scope()).is_err() {
            return Step::Failed(WcStatus::MwBind);
        }
        self.finish_encoding(Progress::Done);
        self.complete_sends(host);
        Step::Progress
    }

    /// Whether the program may have a response written to the scatter list of the request at the
    /// front.
    pub(super) fn check_scatter(&mut self, host: &impl Host) -> Result<(), RegionFault> {
        let scope = self.scope();
        let Some(wqe) = self.sq.next_to_encode() else {
            return Ok(());
        };
        for sge in wqe.gather.as_slice().iter().filter(|s| s.length > 0) {
            let access = Access::LOCAL_WRITE;
            host.check(Stag(sge.lkey), sge.addr, sge.length, access, scope)?;
        }
        Ok(())
    }

    fn frame_read(&mut self, remote_addr: u64, rkey: Stag, host: &mut impl Host) -> Step {
        if self.check_scatter(host).is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        let (Some(stream), Some(wqe)) = (&mut self.stream, self.sq.next_to_encode()) else {
            return Step::Blocked;
        };
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
        let header = Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::READ_REQUEST,
            invalidate: 0,
            qn: QueueNumber::READ_REQUEST,
            msn: stream.outbound.next_msn(QueueNumber::READ_REQUEST),
            mo: 0,
        });
        self.outgoing.append(|out| {
            let start = stream.outbound.begin(out, &header, &request.to_octets(), 0);
            stream.outbound.seal(out, start);
        });
        self.reads.push(&request, wqe.gather.clone(), wqe.len);
        self.counters.segments_out += 1;
        self.finish_encoding(Progress::AwaitingResponse);
        Step::Progress
    }

    /// Frames the next segment of a Send or Write.
    pub(super) fn frame_message(&mut self, kind: Kind, host: &mut impl Host) -> Step {
        let scope = self.scope();
        let (Some(stream), Some(wqe)) = (&mut self.stream, self.sq.next_to_encode()) else {
            return Step::Blocked;
        };
        let offset = self.requester.offset;
        let room = stream.outbound.max_payload(kind.tagged());
        let octets = ((wqe.len - offset) as usize).min(room);
        let end = offset + octets as u32;
        let last = end == wqe.len;
        let solicited = wqe.flags.solicited;
        let len = wqe.len;
        let (sequence, inline_len, gather) = (wqe.sequence, wqe.inline_len, wqe.gather.clone());
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
                    .requester
                    .msn
                    .get_or_insert_with(|| stream.outbound.next_msn(QueueNumber::SEND)),
                mo: offset,
            }),
        };
        let source = if inline_len > 0 {
            let octets_of = self.sq.inline_octets(sequence, inline_len);
            Source::Inline(&octets_of[offset as usize..end as usize])
        } else {
            Source::Gather {
                sges: gather.as_slice(),
                offset,
                access: Access::NONE,
            }
        };
        let framed = frame_segment(
            stream,
            &mut self.outgoing,
            &header,
            source,
            octets,
            scope,
            host,
        );
        if framed.is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        self.counters.segments_out += 1;
        self.counters.octets_framed += octets as u64;
        if last {
            if let Kind::Write { imm: Some(imm), .. } = kind {
                self.frame_immediate(imm, solicited);
            }
            self.finish_encoding(Progress::SentAt(self.outgoing.end()));
        } else {
            self.requester.offset = end;
        }
        Step::Progress
    }

    /// The request at the front of the unencoded ones is framed completely.
    pub(super) fn finish_encoding(&mut self, progress: Progress) {
        if let Some(wqe) = self.sq.next_to_encode() {
            wqe.progress = progress;
            wqe.msn = self.requester.msn;
            let (op, sequence, signaled) = (wqe.op, wqe.sequence, wqe.flags.signaled);
            self.note_framed(&op, sequence, signaled);
        }
        self.sq.advance();
        self.requester.offset = 0;
        self.requester.msn = None;
    }

    /// A local error: the failed request gets its status, the peer a Terminate.
    fn fail_current_request(&mut self, status: WcStatus, host: &mut impl Host) {
        if let Some(wqe) = self.sq.next_to_encode() {
            wqe.status = status;
        }
        self.end_locally(host);
    }
}

/// A message with payload.
pub(super) enum Kind {
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

/// Frames one segment, by reference where the stream and the size allow it.
pub(super) fn frame_segment(
    stream: &mut Stream,
    outgoing: &mut Outgoing,
    header: &Header,
    source: Source<'_>,
    octets: usize,
    scope: Scope,
    host: &mut impl Host,
) -> Result<(), FrameFault> {
    match source {
        Source::Gather {
            sges,
            offset,
            access,
        } if octets >= BY_REFERENCE_AT && stream.outbound.by_reference() => {
            for piece in pieces(sges, offset, octets as u32) {
                host.check(Stag(piece.lkey), piece.addr, piece.length, access, scope)?;
            }
            outgoing.append(|out| stream.outbound.begin(out, header, &[], octets));
            for piece in pieces(sges, offset, octets as u32) {
                outgoing.append_memory(host.check(
                    Stag(piece.lkey),
                    piece.addr,
                    piece.length,
                    access,
                    scope,
                )?);
            }
            outgoing.append(|out| {
                stream
                    .outbound
                    .seal_reference(out, octets, header.wire_len());
            });
            Ok(())
        }
        _ => frame_copied(stream, outgoing, header, source, octets, scope, host),
    }
}

/// Frames one segment with its payload copied beside the header: what the CRC covers is then
/// what is sent, whatever the program does to its buffer meanwhile.
fn frame_copied(
    stream: &mut Stream,
    outgoing: &mut Outgoing,
    header: &Header,
    source: Source<'_>,
    octets: usize,
    scope: Scope,
    host: &mut impl Host,
) -> Result<(), FrameFault> {
    let mark = outgoing.mark();
    let framed = outgoing.append(|out| {
        let start = stream.outbound.begin(out, header, &[], octets);
        match source {
            Source::Inline(payload) => out.extend_from_slice(payload),
            Source::Gather {
                sges,
                offset,
                access,
            } => {
                for piece in pieces(sges, offset, octets as u32) {
                    let span =
                        host.check(Stag(piece.lkey), piece.addr, piece.length, access, scope)?;
                    host.read(span, out)?;
                }
            }
        }
        stream.outbound.seal(out, start);
        Ok(())
    });
    if framed.is_err() {
        outgoing.undo_octets(mark);
    }
    framed
}
