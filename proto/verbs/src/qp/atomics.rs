//! Fetch-and-add and compare-and-swap, both sides (RFC 7306 section 5).
//!
//! Atomic Requests share the queue, the limits and the order of Read Requests; they are carried
//! out when their turn to be answered comes.

use weft_iwarp::{
    AtomicOperation, AtomicRequest, AtomicResponse, Fault, Header, Opcode, PeerFault, QueueNumber,
    Stag, Untagged,
};

use super::requester::Step;
use super::responder::Request;
use super::Qp;
use crate::host::{AtomicFault, Host, RegionFault, Span};
use crate::scatter::pieces;
use crate::types::{Access, SgList, WcStatus};
use crate::wqe::Progress;

/// Octets of the value.
const LEN: u32 = 8;

impl Qp {
    pub(super) fn frame_atomic_request(
        &mut self,
        operation: AtomicOperation,
        to: u64,
        stag: Stag,
        host: &mut impl Host,
    ) -> Step {
        if self.check_scatter(host).is_err() {
            return Step::Failed(WcStatus::LocalProtection);
        }
        let (Some(stream), Some(wqe)) = (&mut self.stream, self.sq.next_to_encode()) else {
            return Step::Blocked;
        };
        let msn = stream.outbound.next_msn(QueueNumber::READ_REQUEST);
        let request = AtomicRequest {
            operation,
            identifier: msn.0,
            stag,
            to,
        };
        let header = single_segment(Opcode::ATOMIC_REQUEST, QueueNumber::READ_REQUEST, msn);
        self.outgoing.append(|out| {
            let start = stream.outbound.begin(out, &header, &request.to_octets(), 0);
            stream.outbound.seal(out, start);
        });
        self.reads
            .push_atomic(request.identifier, wqe.gather.clone());
        self.counters.segments_out += 1;
        self.finish_encoding(Progress::AwaitingResponse);
        Step::Progress
    }

    pub(super) fn take_atomic_request(
        &mut self,
        request: AtomicRequest,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let ird = self.stream.as_ref().map_or(0, |s| s.ird);
        if self.responder.len() + self.receiving.rnr_queue.requests() >= usize::from(ird) {
            return Err(request_fault(
                PeerFault::IrdExceeded,
                "Atomic Request: more outstanding than the IRD",
                header,
            ));
        }
        self.check_target(&request, host)
            .map_err(|fault| target_fault(fault, header))?;
        if self.must_hold() {
            self.hold_atomic(request, header);
        } else {
            self.responder.push(Request::Atomic(request), header);
        }
        Ok(())
    }

    fn check_target(&self, request: &AtomicRequest, host: &impl Host) -> Result<Span, RegionFault> {
        let right = Access::REMOTE_ATOMIC;
        if !self.access.contains(right) {
            return Err(RegionFault::Access);
        }
        host.check(request.stag, request.to, LEN, right, self.scope())
    }

    /// Carries out the request at the front and frames its response; false when it cannot be.
    pub(super) fn frame_atomic_response(
        &mut self,
        request: AtomicRequest,
        header: Header,
        host: &mut impl Host,
    ) -> bool {
        let checked = self
            .check_target(&request, host)
            .map_err(|fault| target_fault(fault, header));
        let done = checked.and_then(|span| {
            host.atomic(span, &request.operation)
                .map_err(|fault| match fault {
                    AtomicFault::Memory => target_fault(RegionFault::Bounds, header),
                    AtomicFault::Alignment => request_fault(
                        PeerFault::AtomicAlignment,
                        "Atomic Request: Remote Tagged Offset",
                        header,
                    ),
                })
        });
        let original = match done {
            Ok(original) => original,
            Err(fault) => {
                self.end_at_fault(fault, host);
                return false;
            }
        };
        let Some(stream) = &mut self.stream else {
            return false;
        };
        let response = AtomicResponse {
            identifier: request.identifier,
            original,
        };
        let qn = QueueNumber::ATOMIC_RESPONSE;
        let header = single_segment(Opcode::ATOMIC_RESPONSE, qn, stream.outbound.next_msn(qn));
        self.outgoing.append(|out| {
            let start = stream
                .outbound
                .begin(out, &header, &response.to_octets(), 0);
            stream.outbound.seal(out, start);
        });
        self.counters.segments_out += 1;
        self.responder.finish();
        true
    }

    pub(super) fn take_atomic_response(
        &mut self,
        response: AtomicResponse,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let Some(scatter) = self.reads.take_atomic(response.identifier) else {
            let ulpdu_len = (header.wire_len() + AtomicResponse::WIRE_LEN) as u16;
            return Err(Fault::new(
                PeerFault::UnexpectedReadResponse,
                "Atomic Response: not of the oldest outstanding request",
            )
            .in_segment(ulpdu_len, header));
        };
        if self
            .write_original(response.original, &scatter, host)
            .is_err()
        {
            self.blame_oldest_read(WcStatus::LocalProtection);
            self.end_locally(host);
            return Ok(());
        }
        self.counters.octets_placed += u64::from(LEN);
        self.answered(host);
        Ok(())
    }

    /// The value goes to the program in the machine's own byte order.
    fn write_original(
        &self,
        original: u64,
        scatter: &SgList,
        host: &mut impl Host,
    ) -> Result<(), RegionFault> {
        let octets = original.to_ne_bytes();
        let mut rest = &octets[..];
        for piece in pieces(scatter.as_slice(), 0, LEN) {
            let (now, later) = rest.split_at(piece.length as usize);
            let right = Access::LOCAL_WRITE;
            let stag = Stag(piece.lkey);
            let span = host.check(stag, piece.addr, piece.length, right, self.scope())?;
            host.write(span, now)
                .map_err(|_| RegionFault::InvalidStag)?;
            rest = later;
        }
        Ok(())
    }
}

fn single_segment(opcode: Opcode, qn: QueueNumber, msn: weft_iwarp::Msn) -> Header {
    Header::Untagged(Untagged {
        last: true,
        opcode,
        invalidate: 0,
        qn,
        msn,
        mo: 0,
    })
}

/// Errors of these messages return the DDP header alone (RFC 7306 section 8.1).
fn request_fault(fault: PeerFault, field: &'static str, header: Header) -> Fault {
    let ulpdu_len = (header.wire_len() + AtomicRequest::WIRE_LEN) as u16;
    Fault::new(fault, field).in_segment(ulpdu_len, header)
}

fn target_fault(fault: RegionFault, header: Header) -> Fault {
    let (fault, field) = match fault {
        RegionFault::InvalidStag => (PeerFault::RemoteStag, "Atomic Request: Remote STag"),
        RegionFault::WrongPd => (PeerFault::RemoteStream, "Atomic Request: Remote STag"),
        RegionFault::Bounds => (
            PeerFault::RemoteBounds,
            "Atomic Request: Remote Tagged Offset",
        ),
        RegionFault::Wrap => (
            PeerFault::RemoteToWrap,
            "Atomic Request: Remote Tagged Offset",
        ),
        RegionFault::Access => (PeerFault::RemoteAccess, "Atomic Request: Remote STag"),
    };
    request_fault(fault, field, header)
}
