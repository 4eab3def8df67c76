//! What a peer can do wrong, and the Terminate message that tells it so (RFC 5040 sections 4.8 and 7, RFC 5041
//! section 7.2, RFC 5044 section 8, RFC 6581 section 8).

use crate::ddp::{Header, Versions};
use crate::rdmap::ReadRequest;
use crate::wire::u16_at;
use alloc::vec::Vec;
use core::fmt;

/// Layer, error type and error code of a Terminate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 LLP (MPA). Four bits.
    pub layer: u8,
    /// Error type within the layer. Four bits.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

impl TerminateCode {
    /// Something failed here that is not the peer's fault (RFC 5040 section 4.8).
    pub const LOCAL_CATASTROPHIC: TerminateCode = TerminateCode::new(0, 0, 0);

    /// A code from its three parts.
    pub const fn new(layer: u8, etype: u8, code: u8) -> TerminateCode {
        TerminateCode { layer, etype, code }
    }

    /// The name of the code in the tables of the RFCs; `None` when they have no such code.
    pub const fn name(self) -> Option<&'static str> {
        Some(match (self.layer, self.etype, self.code) {
            (0, 0, _) => "RDMAP: local catastrophic error",
            (0, 1, 0x00) => "RDMAP remote protection: invalid STag",
            (0, 1, 0x01) => "RDMAP remote protection: base or bounds violation",
            (0, 1, 0x02) => "RDMAP remote protection: access rights violation",
            (0, 1, 0x03) => "RDMAP remote protection: STag not associated with RDMAP stream",
            (0, 1, 0x04) => "RDMAP remote protection: TO wrap",
            (0, 1, 0x09) => "RDMAP remote protection: STag cannot be invalidated",
            (0, 1, 0xff) => "RDMAP remote protection: unspecified error",
            (0, 2, 0x05) => "RDMAP remote operation: invalid RDMAP version",
            (0, 2, 0x06) => "RDMAP remote operation: unexpected opcode",
            (0, 2, 0x07) => "RDMAP remote operation: catastrophic error, localized to RDMAP stream",
            (0, 2, 0x08) => "RDMAP remote operation: catastrophic error, global",
            (0, 2, 0x09) => "RDMAP remote operation: STag cannot be invalidated",
            (0, 2, 0xff) => "RDMAP remote operation: unspecified error",
            (1, 0, 0x00) => "DDP: local catastrophic error",
            (1, 1, 0x00) => "DDP tagged: invalid STag",
            (1, 1, 0x01) => "DDP tagged: base or bounds violation",
            (1, 1, 0x02) => "DDP tagged: STag not associated with DDP stream",
            (1, 1, 0x03) => "DDP tagged: TO wrap",
            (1, 1, 0x04) => "DDP tagged: invalid DDP version",
            (1, 2, 0x01) => "DDP untagged: invalid QN",
            (1, 2, 0x02) => "DDP untagged: invalid MSN, no buffer available",
            (1, 2, 0x03) => "DDP untagged: invalid MSN, MSN range is not valid",
            (1, 2, 0x04) => "DDP untagged: invalid MO",
            (1, 2, 0x05) => "DDP untagged: DDP message too long for available buffer",
            (1, 2, 0x06) => "DDP untagged: invalid DDP version",
            // Chelsio and Intel RNICs send error type 3 for the LLP; the RFCs and IANA say 0.
            (2, 0 | 3, 0x01) => "MPA: TCP connection closed, terminated or lost",
            (2, 0 | 3, 0x02) => "MPA: CRC mismatch",
            (2, 0 | 3, 0x03) => "MPA: marker and ULPDU length disagree",
            (2, 0 | 3, 0x04) => "MPA: invalid Request or Reply frame",
            (2, 0 | 3, 0x05) => "MPA: local catastrophic error",
            (2, 0 | 3, 0x06) => "MPA: insufficient IRD resources",
            (2, 0 | 3, 0x07) => "MPA: no matching RTR option",
            _ => return None,
        })
    }

    /// The other reading of a Terminate that carries no header, where its sender may be Linux siw.
    ///
    /// siw writes the control word bit-mirrored; without header bits nothing on the wire tells the two forms
    /// apart. `None` when the other reading is not a code of the tables.
    pub fn mirrored(self) -> Option<TerminateCode> {
        let other = TerminateCode::new(self.etype, self.layer, self.code);
        (other != self && other.name().is_some()).then_some(other)
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name().unwrap_or("unknown error");
        write!(
            f,
            "{name} ({}/{}/{:02x})",
            self.layer, self.etype, self.code
        )
    }
}

/// What a receiver can blame on its peer, one variant for each condition it can tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PeerFault {
    /// The CRC32c of an FPDU is wrong (RFC 5044 section 8).
    Crc,
    /// A marker does not point to the start of its FPDU (RFC 5044 section 8).
    Marker,
    /// The start-up frame is malformed. Answered by a close, never by a Terminate (RFC 5044 section 7.1.2).
    StartFrame,
    /// The Responder's ORD is above what this side can hold (RFC 6581 section 8).
    InsufficientIrd,
    /// The Responder offers no RTR this side can send (RFC 6581 section 8).
    NoMatchingRtr,

    /// ULPDU_Length is too small for the header it announces.
    SegmentTooShort,
    /// DV of a tagged segment is not 1.
    TaggedVersion,
    /// The STag of a Write or Read Response is unknown, has the wrong key or is invalidated.
    TaggedStag,
    /// A Write or Read Response reaches outside its region, or TO does not follow the segment before.
    TaggedBounds,
    /// The STag of a Write or Read Response belongs to another protection domain or connection.
    TaggedStream,
    /// TO plus length of a Write or Read Response passes 2^64.
    TaggedToWrap,
    /// The region of a Write lacks the remote write right. DDP has no code for it; the RDMAP one is sent.
    WriteAccess,
    /// DV of an untagged segment is not 1.
    UntaggedVersion,
    /// The queue does not exist or is not the opcode's.
    QueueNumber,
    /// No receive buffer for this message.
    NoBuffer,
    /// MSN is not the next one of its queue.
    MsnRange,
    /// MO is not the number of octets of the message received so far.
    MessageOffset,
    /// The message is longer than the buffer it goes to.
    MessageTooLong,

    /// RV is not 1.
    RdmapVersion,
    /// The opcode is unknown, not in use here, or not allowed at this place.
    UnexpectedOpcode,
    /// A message whose length the standard fixes has another length.
    MessageLength,
    /// A Read Response without an outstanding Read Request.
    UnexpectedReadResponse,
    /// More Read Requests outstanding than IRD.
    IrdExceeded,
    /// The source STag of a Read Request, or the target of an atomic, is unknown.
    RemoteStag,
    /// A Read Request or atomic reaches outside its region.
    RemoteBounds,
    /// The region lacks the remote read or remote atomic right.
    RemoteAccess,
    /// The region belongs to another protection domain or connection.
    RemoteStream,
    /// TO plus size of a Read Request passes 2^64.
    RemoteToWrap,
    /// The STag of a Send with Invalidate is unknown.
    InvalidateStag,
    /// The STag of a Send with Invalidate belongs to another protection domain, or must not be invalidated.
    InvalidateStream,
    /// The target of an atomic is not 64-bit aligned (RFC 7306 section 8).
    AtomicAlignment,
    /// A Terminate that cannot be one. Answered by a close, never by a Terminate.
    Terminate,
}

impl PeerFault {
    /// The code a Terminate carries for this fault.
    pub const fn code(self) -> TerminateCode {
        let (layer, etype, code) = match self {
            PeerFault::Crc => (2, 0, 0x02),
            PeerFault::Marker => (2, 0, 0x03),
            PeerFault::StartFrame => (2, 0, 0x04),
            PeerFault::InsufficientIrd => (2, 0, 0x06),
            PeerFault::NoMatchingRtr => (2, 0, 0x07),

            PeerFault::SegmentTooShort => (1, 0, 0x00),
            PeerFault::TaggedStag => (1, 1, 0x00),
            PeerFault::TaggedBounds => (1, 1, 0x01),
            PeerFault::TaggedStream => (1, 1, 0x02),
            PeerFault::TaggedToWrap => (1, 1, 0x03),
            PeerFault::TaggedVersion => (1, 1, 0x04),
            PeerFault::QueueNumber => (1, 2, 0x01),
            // The Read Request queue has IRD buffers: one request more finds none.
            PeerFault::NoBuffer | PeerFault::IrdExceeded => (1, 2, 0x02),
            PeerFault::MsnRange => (1, 2, 0x03),
            PeerFault::MessageOffset => (1, 2, 0x04),
            PeerFault::MessageTooLong => (1, 2, 0x05),
            PeerFault::UntaggedVersion => (1, 2, 0x06),

            PeerFault::RemoteStag => (0, 1, 0x00),
            PeerFault::RemoteBounds => (0, 1, 0x01),
            PeerFault::RemoteAccess | PeerFault::WriteAccess => (0, 1, 0x02),
            PeerFault::RemoteStream => (0, 1, 0x03),
            PeerFault::RemoteToWrap => (0, 1, 0x04),
            PeerFault::InvalidateStream => (0, 1, 0x09),
            PeerFault::RdmapVersion => (0, 2, 0x05),
            PeerFault::UnexpectedOpcode
            | PeerFault::MessageLength
            | PeerFault::UnexpectedReadResponse
            | PeerFault::Terminate => (0, 2, 0x06),
            PeerFault::AtomicAlignment => (0, 2, 0x07),
            PeerFault::InvalidateStag => (0, 2, 0x09),
        };
        TerminateCode::new(layer, etype, code)
    }

    /// Whether the peer reached for memory that it was not given, as one that guesses STags does.
    pub const fn is_refused_access(self) -> bool {
        matches!(
            self,
            PeerFault::TaggedStag
                | PeerFault::TaggedBounds
                | PeerFault::TaggedStream
                | PeerFault::TaggedToWrap
                | PeerFault::WriteAccess
                | PeerFault::RemoteStag
                | PeerFault::RemoteBounds
                | PeerFault::RemoteAccess
                | PeerFault::RemoteStream
                | PeerFault::RemoteToWrap
                | PeerFault::InvalidateStag
                | PeerFault::InvalidateStream
        )
    }

    /// False for the faults that are answered by closing alone.
    pub const fn is_terminated(self) -> bool {
        !matches!(self, PeerFault::StartFrame | PeerFault::Terminate)
    }
}

/// A peer's fault with all that its Terminate and a log line need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// What went wrong.
    pub fault: PeerFault,
    /// ULPDU_Length and header of the segment at fault, where it has one.
    pub segment: Option<(u16, Header)>,
    /// Version fields of that header.
    pub versions: Versions,
    /// The Read Request at fault, advanced by what was already answered.
    pub read_request: Option<ReadRequest>,
    /// The wire field that shows it, for the log line.
    pub field: &'static str,
}

impl Fault {
    /// A fault without a segment.
    #[cold]
    pub const fn new(fault: PeerFault, field: &'static str) -> Fault {
        Fault {
            fault,
            segment: None,
            versions: Versions::IETF,
            read_request: None,
            field,
        }
    }

    /// The same fault, seen in this segment.
    #[cold]
    #[must_use]
    pub const fn in_segment(mut self, ulpdu_len: u16, header: Header) -> Fault {
        self.segment = Some((ulpdu_len, header));
        self
    }

    /// The same fault, seen in this Read Request.
    #[must_use]
    pub const fn in_read_request(mut self, request: ReadRequest) -> Fault {
        self.read_request = Some(request);
        self
    }

    /// The Terminate to send; `None` where the standard wants a close without one.
    ///
    /// Headers are included as RFC 5040 Figure 10 lists them: none for the LLP and for local catastrophic
    /// errors, the DDP header for everything else, the Read Request too for a remote protection error in one.
    pub fn terminate(&self) -> Option<Terminate> {
        if !self.fault.is_terminated() {
            return None;
        }
        let code = self.fault.code();
        // The codes of the LLP and of local catastrophic errors have error type 0, and no others have.
        let has_headers = code.etype != 0;
        let ddp = self.segment.filter(|_| has_headers);
        let read_request = self
            .read_request
            .filter(|_| ddp.is_some() && code.layer == 0 && code.etype == 1);
        Some(Terminate {
            code,
            ddp,
            versions: self.versions,
            read_request,
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            // These two have no code that says it: they are not answered by a Terminate.
            PeerFault::Terminate => write!(f, "malformed Terminate: {}", self.field)?,
            _ => write!(f, "{}: {}", self.fault.code(), self.field)?,
        }
        if let Some((len, header)) = &self.segment {
            write!(f, " in {header}, ULPDU_Length {len}")?;
        }
        Ok(())
    }
}

impl core::error::Error for Fault {}

/// A Terminate message (RFC 5040 section 4.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terminate {
    /// Why.
    pub code: TerminateCode,
    /// DDP Segment Length and header of the offending segment. The length is the segment's ULPDU_Length; siw puts
    /// its payload length there, so do not rely on it.
    pub ddp: Option<(u16, Header)>,
    /// Version fields of that header.
    pub versions: Versions,
    /// The offending Read Request.
    pub read_request: Option<ReadRequest>,
}

impl Terminate {
    /// The DDP Segment Length is valid.
    const M: u8 = 0x80;
    /// The DDP header is present.
    const D: u8 = 0x40;
    /// The Read Request header is present.
    const R: u8 = 0x20;
    /// The longest body: control, length, untagged header, Read Request.
    pub const MAX_LEN: usize = 4 + 2 + Header::UNTAGGED_LEN + ReadRequest::WIRE_LEN;

    /// A Terminate that carries no header.
    pub const fn bare(code: TerminateCode) -> Terminate {
        Terminate {
            code,
            ddp: None,
            versions: Versions::IETF,
            read_request: None,
        }
    }

    /// Appends what follows the DDP header: 4 to 52 octets, in the form of the RFC.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut bits = 0;
        // The Read Request header stands behind the DDP header and never alone.
        let read_request = self.read_request.filter(|_| self.ddp.is_some());
        if self.ddp.is_some() {
            bits |= Terminate::M | Terminate::D;
        }
        if read_request.is_some() {
            bits |= Terminate::R;
        }
        let kind = (self.code.layer << 4) | (self.code.etype & 0x0f);
        out.extend_from_slice(&[kind, self.code.code, bits, 0]);
        if let Some((len, header)) = &self.ddp {
            out.extend_from_slice(&len.to_be_bytes());
            header.encode_as(self.versions, out);
        }
        if let Some(request) = read_request {
            request.encode(out);
        }
    }

    /// Reads what follows the DDP header; `None` when not even the control word is there.
    ///
    /// Takes the bit-mirrored control word of siw too. A header that is announced but cut short is left out: a
    /// Terminate is acted upon for its code.
    pub fn decode(octets: &[u8]) -> Option<Terminate> {
        let [kind, code, bits, _] = *octets.first_chunk()?;
        let upright = TerminateCode::new(kind >> 4, kind & 0x0f, code);
        let (code, bits) = if bits & 0xe0 == 0 && bits & 0x07 != 0 {
            let swapped = TerminateCode::new(upright.etype, upright.layer, code);
            (swapped, mirror_header_bits(bits))
        } else if bits & 0xe0 == 0 && upright.name().is_none() {
            (upright.mirrored().unwrap_or(upright), bits)
        } else {
            (upright, bits)
        };
        let mut terminate = Terminate::bare(code);
        if let Some(headers) = octets.get(4..) {
            terminate.decode_headers(bits, headers);
        }
        Some(terminate)
    }

    fn decode_headers(&mut self, bits: u8, octets: &[u8]) {
        if bits & Terminate::D == 0 || octets.len() < 2 {
            return;
        }
        let (len, rest) = (u16_at(octets, 0), &octets[2..]);
        let Some((header, versions)) = Header::decode(rest) else {
            return;
        };
        self.ddp = Some((len, header));
        self.versions = versions;
        if bits & Terminate::R != 0 {
            self.read_request = ReadRequest::decode(&rest[header.wire_len()..]);
        }
    }
}

/// siw's three header bits, which it has at the other end of the octet, in their own places.
const fn mirror_header_bits(bits: u8) -> u8 {
    bits.reverse_bits() & (Terminate::M | Terminate::D | Terminate::R)
}

impl fmt::Display for Terminate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if let Some((len, header)) = &self.ddp {
            write!(f, " for {header}, segment length {len}")?;
        } else if let Some(other) = self.code.mirrored() {
            write!(f, ", or as Linux siw writes it {other}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
