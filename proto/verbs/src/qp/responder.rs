//! The responder: from inbound Read Requests to Read Responses, in request order
//! (RFC 5040 section 5.5, rule 20), with Atomic Requests among them (RFC 7306 section 7).

use alloc::collections::VecDeque;

use weft_iwarp::ddp::{Header, Tagged};
use weft_iwarp::{AtomicRequest, Fault, Opcode, PeerFault, ReadRequest};

use super::requester::{frame_segment, FrameFault, Source};
use super::Qp;
use crate::host::{Host, RegionFault};
use crate::types::{Access, Sge};

/// Requests that wait for their response.
#[derive(Debug, Default)]
pub(super) struct Responder {
    requests: VecDeque<Inbound>,
    /// Octets of the front request's response that are framed.
    offset: u32,
}

/// A request of the peer's.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    Read(ReadRequest),
    Atomic(AtomicRequest),
}

#[derive(Clone, Copy, Debug)]
struct Inbound {
    request: Request,
    /// The request's header, for a Terminate that has to return it.
    header: Header,
}

impl Responder {
    #[inline]
    pub(super) fn pending(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether there are requests, and none asks for octets.
    #[inline]
    pub(super) fn only_acknowledgements(&self) -> bool {
        let of_none =
            |inbound: &Inbound| matches!(&inbound.request, Request::Read(read) if read.size == 0);
        self.pending() && self.requests.iter().all(of_none)
    }

    pub(super) fn in_message(&self) -> bool {
        self.offset > 0
    }

    /// Requests that wait: what counts against the IRD.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn push(&mut self, request: Request, header: Header) {
        self.requests.push_back(Inbound { request, header });
    }

    /// The front request is answered.
    pub(super) fn finish(&mut self) {
        self.requests.pop_front();
        self.offset = 0;
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.offset = 0;
    }
}

impl Qp {
    /// Takes a Read Request in (RFC 5040 section 4.4).
    pub(super) fn take_read_request(
        &mut self,
        request: ReadRequest,
        header: Header,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let ird = self.stream.as_ref().map_or(0, |s| s.ird);
        // A ready-to-receive Read is answered even where the program allows no Reads.
        let allowed = if request.size == 0 { ird.max(1) } else { ird };
        if self.responder.len() + self.receiving.rnr_queue.requests() >= usize::from(allowed) {
            return Err(read_fault(
                PeerFault::IrdExceeded,
                request,
                header,
                "Read Request: more outstanding than the IRD",
            ));
        }
        self.check_source(&request, request.size, host)
            .map_err(|fault| source_fault(fault, request, header))?;
        if self.must_hold() {
            self.hold_read(request, header);
        } else {
            self.responder.push(Request::Read(request), header);
        }
        Ok(())
    }

    /// The source of a Read: nothing is checked for size 0 (RFC 5040 section 5.2.1).
    fn check_source(
        &self,
        request: &ReadRequest,
        size: u32,
        host: &impl Host,
    ) -> Result<(), RegionFault> {
        if size == 0 {
            return Ok(());
        }
        if !self.access.contains(Access::REMOTE_READ) {
            return Err(RegionFault::Access);
        }
        let right = Access::REMOTE_READ;
        let (stag, to) = (request.source_stag, request.source_to);
        host.check(stag, to, size, right, self.scope()).map(|_| ())
    }

    /// Frames the next segment of the oldest response; false when there is none.
    pub(super) fn frame_response(&mut self, host: &mut impl Host) -> bool {
        let Some(&Inbound { request, header }) = self.responder.requests.front() else {
            return false;
        };
        match request {
            Request::Read(request) => self.frame_read_response(request, header, host),
            Request::Atomic(request) => self.frame_atomic_response(request, header, host),
        }
    }

    fn frame_read_response(
        &mut self,
        request: ReadRequest,
        header: Header,
        host: &mut impl Host,
    ) -> bool {
        let scope = self.scope();
        let Some(stream) = &mut self.stream else {
            return false;
        };
        let offset = self.responder.offset;
        let octets = ((request.size - offset) as usize).min(stream.outbound.max_payload(true));
        let end = offset + octets as u32;
        let last = end == request.size;
        let response = Header::Tagged(Tagged {
            last,
            opcode: Opcode::READ_RESPONSE,
            stag: request.sink_stag,
            to: request.sink_to.wrapping_add(u64::from(offset)),
        });
        let source = [Sge {
            addr: request.source_to,
            length: request.size,
            lkey: request.source_stag.0,
        }];
        let source = Source::Gather {
            sges: &source,
            offset,
            access: Access::REMOTE_READ,
        };
        let framed = frame_segment(
            stream,
            &mut self.outgoing,
            &response,
            source,
            octets,
            scope,
            host,
        );
        if let Err(fault) = framed {
            let left = rest_of(request, offset);
            let fault = match fault {
                FrameFault::Region(region) => source_fault(region, left, header),
                FrameFault::Memory => source_fault(RegionFault::Bounds, left, header),
            };
            self.end_at_fault(fault, host);
            return false;
        }
        self.counters.segments_out += 1;
        self.counters.octets_framed += octets as u64;
        if last {
            self.responder.finish();
        } else {
            self.responder.offset = end;
        }
        true
    }
}

/// What is left of a request when its response fails half-way: that is what the Terminate
/// returns (RFC 5040 section 4.8).
fn rest_of(request: ReadRequest, offset: u32) -> ReadRequest {
    ReadRequest {
        sink_to: request.sink_to.wrapping_add(u64::from(offset)),
        source_to: request.source_to.wrapping_add(u64::from(offset)),
        size: request.size - offset,
        ..request
    }
}

fn source_fault(fault: RegionFault, request: ReadRequest, header: Header) -> Fault {
    let (fault, field) = match fault {
        RegionFault::InvalidStag => (PeerFault::RemoteStag, "Read Request: SrcSTag"),
        RegionFault::WrongPd => (PeerFault::RemoteStream, "Read Request: SrcSTag"),
        RegionFault::Bounds => (PeerFault::RemoteBounds, "Read Request: SrcTO and RDMARDSZ"),
        RegionFault::Wrap => (PeerFault::RemoteToWrap, "Read Request: SrcTO"),
        RegionFault::Access => (PeerFault::RemoteAccess, "Read Request: SrcSTag"),
    };
    read_fault(fault, request, header, field)
}

fn read_fault(
    fault: PeerFault,
    request: ReadRequest,
    header: Header,
    field: &'static str,
) -> Fault {
    let segment_len = (header.wire_len() + ReadRequest::WIRE_LEN) as u16;
    Fault::new(fault, field)
        .in_segment(segment_len, header)
        .in_read_request(request)
}
