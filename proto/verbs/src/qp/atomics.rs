//! The responder's side of fetch-and-add and compare-and-swap (RFC 7306 section 5): carried out when their turn to be
//! answered comes.

use weft_iwarp::{AtomicRequest, AtomicResponse, Fault, Header, Opcode, PeerFault, QueueNumber};

use super::attributes::Attributes;
use super::framing::Framer;
use crate::host::{AtomicFault, Host, RegionFault, Span};
use crate::types::Access;

/// Octets of the value.
pub(super) const LEN: u32 = 8;

/// The target of an Atomic Request.
pub(super) fn check_target(
    request: &AtomicRequest,
    header: Header,
    attributes: &Attributes,
    host: &impl Host,
) -> Result<Span, Fault> {
    let right = Access::REMOTE_ATOMIC;
    let checked = match attributes.access().contains(right) {
        true => host.check(request.stag, request.to, LEN, right, attributes.scope()),
        false => Err(RegionFault::Access),
    };
    checked.map_err(|fault| target_fault(fault, header))
}

/// Carries a request out and frames its response.
pub(super) fn answer(
    request: &AtomicRequest,
    header: Header,
    framer: &mut Framer<'_>,
    attributes: &Attributes,
    host: &mut impl Host,
) -> Result<(), Fault> {
    let span = check_target(request, header, attributes, host)?;
    let original = host
        .atomic(span, &request.operation)
        .map_err(|fault| match fault {
            AtomicFault::Memory => target_fault(RegionFault::Bounds, header),
            AtomicFault::Alignment => request_fault(
                PeerFault::AtomicAlignment,
                "Atomic Request: Remote Tagged Offset",
                header,
            ),
        })?;
    let response = AtomicResponse {
        identifier: request.identifier,
        original,
    };
    let qn = QueueNumber::ATOMIC_RESPONSE;
    let msn = framer.next_msn(qn);
    framer.message(Opcode::ATOMIC_RESPONSE, qn, msn, &response.to_octets());
    Ok(())
}

/// The peer has more requests outstanding than it may.
pub(super) fn too_many(header: Header) -> Fault {
    let field = "Atomic Request: more outstanding than the IRD";
    request_fault(PeerFault::IrdExceeded, field, header)
}

/// The response is not of the oldest outstanding request.
pub(super) fn unexpected_response(header: Header) -> Fault {
    let ulpdu_len = (header.wire_len() + AtomicResponse::WIRE_LEN) as u16;
    let field = "Atomic Response: not of the oldest outstanding request";
    Fault::new(PeerFault::UnexpectedReadResponse, field).in_segment(ulpdu_len, header)
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
