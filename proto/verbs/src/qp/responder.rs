//! The responder: from inbound Read Requests to Read Responses, in request order
//! (RFC 5040 section 5.5, rule 20), with Atomic Requests among them (RFC 7306 section 7).

use alloc::collections::VecDeque;

use weft_iwarp::ddp::{Header, Tagged};
use weft_iwarp::{AtomicRequest, Fault, Opcode, PeerFault, ReadRequest};

use super::atomics;
use super::attributes::Attributes;
use super::framing::{Framer, Source};
use crate::host::{AccessFault, Host, RegionFault};
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
    /// Whether requests wait for their response.
    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Whether there are requests, and none asks for octets.
    #[inline]
    pub(super) fn only_acknowledgements(&self) -> bool {
        let of_none =
            |inbound: &Inbound| matches!(&inbound.request, Request::Read(read) if read.size == 0);
        self.is_pending() && self.requests.iter().all(of_none)
    }

    /// Whether a response is framed in part.
    #[inline]
    pub(super) fn in_message(&self) -> bool {
        self.offset > 0
    }

    pub(super) fn push(&mut self, request: Request, header: Header) {
        self.requests.push_back(Inbound { request, header });
    }

    /// The front request is answered.
    fn finish(&mut self) {
        self.requests.pop_front();
        self.offset = 0;
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.offset = 0;
    }
}

impl Responder {
    /// Looks at a request that came (RFC 5040 section 4.4, RFC 7306 section 5.4). `held` are the peer's requests that
    /// wait behind a message without a receive, and `ird` how many it may have outstanding in all.
    pub(super) fn check(
        &self,
        request: &Request,
        header: Header,
        (held, ird): (usize, u16),
        attributes: &Attributes,
        host: &impl Host,
    ) -> Result<(), Fault> {
        let outstanding = self.requests.len() + held;
        match request {
            Request::Read(request) => {
                // A ready-to-receive Read is answered even where the program allows no Reads.
                let allowed = if request.size == 0 { ird.max(1) } else { ird };
                if outstanding >= usize::from(allowed) {
                    let field = "Read Request: more outstanding than the IRD";
                    return Err(read_fault(PeerFault::IrdExceeded, *request, header, field));
                }
                check_source(request, attributes, host)
                    .map_err(|fault| source_fault(fault, *request, header))
            }
            Request::Atomic(_) if outstanding >= usize::from(ird) => Err(atomics::too_many(header)),
            Request::Atomic(request) => {
                atomics::check_target(request, header, attributes, host).map(|_| ())
            }
        }
    }

    /// Frames the next segment of the oldest response; false when there is none.
    #[inline]
    pub(super) fn frame(
        &mut self,
        framer: &mut Framer<'_>,
        attributes: &Attributes,
        host: &mut impl Host,
    ) -> Result<bool, Fault> {
        let Some(&Inbound { request, header }) = self.requests.front() else {
            return Ok(false);
        };
        match request {
            Request::Read(request) => self.frame_read_response(request, header, framer, host)?,
            Request::Atomic(request) => {
                atomics::answer(&request, header, framer, attributes, host)?;
                self.finish();
            }
        }
        Ok(true)
    }

    fn frame_read_response(
        &mut self,
        request: ReadRequest,
        header: Header,
        framer: &mut Framer<'_>,
        host: &mut impl Host,
    ) -> Result<(), Fault> {
        let offset = self.offset;
        let octets = ((request.size - offset) as usize).min(framer.max_payload(true));
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
        if let Err(fault) = framer.segment(&response, source, octets, host) {
            let left = rest_of(request, offset);
            return Err(match fault {
                AccessFault::Region(region) => source_fault(region, left, header),
                AccessFault::Memory => source_fault(RegionFault::Bounds, left, header),
            });
        }
        if last {
            self.finish();
        } else {
            self.offset = end;
        }
        Ok(())
    }
}

/// The source of a Read: nothing is checked for size 0 (RFC 5040 section 5.2.1).
fn check_source(
    request: &ReadRequest,
    attributes: &Attributes,
    host: &impl Host,
) -> Result<(), RegionFault> {
    if request.size == 0 {
        return Ok(());
    }
    let right = Access::REMOTE_READ;
    if !attributes.access().contains(right) {
        return Err(RegionFault::Access);
    }
    let (stag, to) = (request.source_stag, request.source_to);
    host.check(stag, to, request.size, right, attributes.scope())
        .map(|_| ())
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

#[cfg(test)]
mod tests {
    use super::super::attributes::tests::attributes;
    use super::super::framing::tests::Wire;
    use super::*;
    use crate::simulated::Device;
    use weft_iwarp::ddp::Untagged;
    use weft_iwarp::{AtomicOperation, Msn, QueueNumber, Stag};

    const IRD: u16 = 2;

    fn header() -> Header {
        Header::Untagged(Untagged {
            last: true,
            opcode: Opcode::READ_REQUEST,
            invalidate: 0,
            qn: QueueNumber::READ_REQUEST,
            msn: Msn(1),
            mo: 0,
        })
    }

    fn read(stag: Stag, size: u32) -> ReadRequest {
        ReadRequest {
            sink_stag: Stag(9),
            sink_to: 500,
            size,
            source_stag: stag,
            source_to: 0,
        }
    }

    fn add(stag: Stag) -> AtomicRequest {
        AtomicRequest {
            operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
            identifier: 1,
            stag,
            to: 0,
        }
    }

    #[test]
    fn what_waits_and_what_is_held_count_against_the_ird_together() {
        let (mut device, attributes) = (Device::default(), attributes(false));
        let all = Access::REMOTE_READ.union(Access::REMOTE_ATOMIC);
        let stag = device.region(4096, 0, all, 0x100);
        let mut responder = Responder::default();
        let looks = |responder: &Responder, held, ird| {
            let read = responder
                .check(
                    &Request::Read(read(stag, 8)),
                    header(),
                    (held, ird),
                    &attributes,
                    &device,
                )
                .map_err(|fault| fault.fault);
            let atomic = responder
                .check(
                    &Request::Atomic(add(stag)),
                    header(),
                    (held, ird),
                    &attributes,
                    &device,
                )
                .map_err(|fault| fault.fault);
            assert_eq!(read, atomic);
            read
        };
        let exceeded = Err(PeerFault::IrdExceeded);
        assert_eq!(looks(&responder, 1, IRD), Ok(()));
        assert_eq!(looks(&responder, 2, IRD), exceeded);
        responder.push(Request::Read(read(stag, 8)), header());
        assert_eq!(looks(&responder, 0, IRD), Ok(()));
        assert_eq!(looks(&responder, 1, IRD), exceeded);
        assert_eq!(looks(&Responder::default(), 0, 0), exceeded);
    }

    #[test]
    fn a_read_of_nothing_is_answered_whatever_it_names_and_where_no_read_is_allowed() {
        let (device, attributes) = (Device::default(), attributes(false));
        let mut responder = Responder::default();
        let empty = read(Stag(0x777), 0);
        let look = |responder: &Responder| {
            responder
                .check(
                    &Request::Read(empty),
                    header(),
                    (0, 0),
                    &attributes,
                    &device,
                )
                .is_ok()
        };
        assert!(look(&responder));
        responder.push(Request::Read(empty), header());
        assert!(!look(&responder), "one at a time");
    }

    #[test]
    fn only_reads_of_nothing_are_acknowledgements() {
        let mut responder = Responder::default();
        assert!(!responder.only_acknowledgements());
        responder.push(Request::Read(read(Stag(1), 0)), header());
        assert!(responder.only_acknowledgements());
        responder.push(Request::Read(read(Stag(1), 1)), header());
        assert!(!responder.only_acknowledgements());
    }

    #[test]
    fn a_response_goes_on_where_its_last_segment_ended() {
        let (mut device, attributes) = (Device::default(), attributes(false));
        let stag = device.region(4096, 0, Access::REMOTE_READ, 0x100);
        let (mut wire, mut responder) = (Wire::new(), Responder::default());
        responder.push(Request::Read(read(stag, 3000)), header());
        responder.push(Request::Read(read(stag, 0)), header());
        let mut segments = 0;
        while responder
            .frame(&mut wire.framer(), &attributes, &mut device)
            .expect("the region is there")
        {
            segments += 1;
            assert_eq!(responder.in_message(), segments < 3);
        }
        assert_eq!(segments, 4, "three of the first, one of the second");
        assert_eq!(wire.counters.octets_framed, 3000);
        assert!(!responder.is_pending());
    }

    #[test]
    fn a_response_that_fails_half_way_returns_the_request_moved_on() {
        let (mut device, attributes) = (Device::default(), attributes(false));
        let stag = device.region(4096, 0, Access::REMOTE_READ, 0x100);
        let (mut wire, mut responder) = (Wire::new(), Responder::default());
        responder.push(Request::Read(read(stag, 3000)), header());
        let first = responder.frame(&mut wire.framer(), &attributes, &mut device);
        assert_eq!(first, Ok(true));
        let done = wire.counters.octets_framed;
        device.regions.remove(stag);
        let fault = responder
            .frame(&mut wire.framer(), &attributes, &mut device)
            .expect_err("the region is gone");
        assert_eq!(fault.fault, PeerFault::RemoteStag);
        let left = fault.terminate().and_then(|t| t.read_request);
        let left = left.expect("a Read Request");
        assert_eq!((left.sink_to, left.source_to), (500 + done, done));
        assert_eq!(u64::from(left.size), 3000 - done);
    }

    #[test]
    fn an_atomic_without_the_right_changes_nothing() {
        let (mut device, attributes) = (Device::default(), attributes(false));
        let stag = device.region(8, 0, Access::REMOTE_WRITE, 0x100);
        let (mut wire, mut responder) = (Wire::new(), Responder::default());
        responder.push(Request::Atomic(add(stag)), header());
        let fault = responder
            .frame(&mut wire.framer(), &attributes, &mut device)
            .expect_err("no right");
        assert_eq!(fault.fault, PeerFault::RemoteAccess);
        assert_eq!(device.octets(stag), [0; 8]);
        assert!(wire.framer().is_idle());
    }
}
