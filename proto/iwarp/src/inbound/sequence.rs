//! The checks a segment's header allows: versions, opcode, queue, lengths, and whether it is the next one of its
//! message and its queue (RFC 5041 sections 5 and 7, RFC 5040 sections 4 and 7).
//!
//! A source finishes a message before it starts the next of the same kind. So at most one tagged and one untagged
//! message are open at a time; between the segments of one, segments of the other kind may come.

use super::Message;
use crate::ddp::{Header, Tagged, Untagged, Versions};
use crate::mpa::fpdu::LENGTH_LEN;
use crate::num::{Msn, Opcode, QueueNumber, Stag};
use crate::rdmap::{AtomicRequest, AtomicResponse, ReadRequest, IMMEDIATE_LEN};
use crate::terminate::{Fault, PeerFault, Terminate};
use crate::wire::{u16_at, u64_at};

/// Where the segments of one direction have come to.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    rfc7306: bool,
    /// The message expected, or open, on each queue.
    expected: [Msn; QueueNumber::COUNT],
    send: Option<OpenSend>,
    tagged: Option<OpenTagged>,
}

/// A Send whose last segment is still to come. Its MSN is the expected one.
#[derive(Clone, Copy, Debug)]
struct OpenSend {
    opcode: Opcode,
    received: u32,
}

/// A Write or Read Response whose last segment is still to come.
#[derive(Clone, Copy, Debug)]
struct OpenTagged {
    opcode: Opcode,
    stag: Stag,
    next_to: u64,
}

/// A segment that passed.
pub(super) struct Checked {
    pub(super) message: Message,
    pub(super) header: Header,
    /// Octets of the DDP header and of the RDMAP header behind it.
    pub(super) header_len: usize,
}

impl Checked {
    /// `rdmap_len`: octets of the RDMAP header.
    #[inline(always)]
    fn new(message: Message, header: Header, rdmap_len: usize) -> Checked {
        Checked {
            message,
            header,
            header_len: header.wire_len() + rdmap_len,
        }
    }
}

/// The longest ULPDU a Terminate may have. The RFC's longest is 70 octets; some room for what peers append.
const MAX_TERMINATE: usize = 128;

impl Sequence {
    pub(super) fn new(rfc7306: bool) -> Sequence {
        Sequence {
            rfc7306,
            expected: [Msn::FIRST; QueueNumber::COUNT],
            send: None,
            tagged: None,
        }
    }

    /// A stream that has come to this number on every queue.
    #[cfg(test)]
    pub(super) fn expect_everywhere(&mut self, msn: Msn) {
        self.expected = [msn; QueueNumber::COUNT];
    }

    /// A stream in the middle of a Send of which this much has come.
    #[cfg(test)]
    pub(super) fn open_send_at(&mut self, received: u32) {
        self.send = Some(OpenSend {
            opcode: Opcode::SEND,
            received,
        });
    }

    #[inline]
    pub(super) fn tagged_message_open(&self) -> bool {
        self.tagged.is_some()
    }

    /// The Send with this number has begun, and its last segment is still to come.
    #[inline]
    pub(super) fn send_is_open(&self, msn: Msn) -> bool {
        self.send.is_some() && self.expected[0] == msn
    }

    /// Whether `fpdu`, which begins with ULPDU_Length, holds all that [`Sequence::check`] looks at. The inner
    /// value is the length field, or how many octets it takes to say more. A length that cannot be right is
    /// found here, so that nobody waits for octets that will not come.
    #[inline(always)]
    pub(super) fn header_available(&self, fpdu: &[u8]) -> Result<Result<u16, usize>, Fault> {
        const CONTROLS: usize = LENGTH_LEN + 2;
        if fpdu.len() < LENGTH_LEN {
            return Ok(Err(LENGTH_LEN));
        }
        let ulpdu_len = u16_at(fpdu, 0);
        if usize::from(ulpdu_len) < Header::TAGGED_LEN {
            return Err(too_short());
        }
        if fpdu.len() < CONTROLS {
            return Ok(Err(CONTROLS));
        }
        let headers = headers_len(fpdu[2], fpdu[3], ulpdu_len);
        // Whatever is shorter than its headers is a fault that the DDP header alone shows.
        let looked_at = LENGTH_LEN + headers.min(usize::from(ulpdu_len));
        Ok(if fpdu.len() < looked_at {
            Err(looked_at)
        } else {
            Ok(ulpdu_len)
        })
    }

    /// Checks the segment at the front of `ulpdu` and moves on to the next. `ulpdu` holds at least the headers. `found`
    /// makes the caller's answer of it.
    ///
    /// The answer is made where the kind of message is known: one that came back from here first would be copied twice
    /// on its way, which costs as much as all the checks.
    #[inline(always)]
    pub(super) fn check<R>(
        &mut self,
        ulpdu_len: u16,
        ulpdu: &[u8],
        found: impl FnOnce(Checked) -> R,
    ) -> Result<R, Fault> {
        let Some((header, versions)) = Header::decode(ulpdu) else {
            return Err(too_short());
        };
        if versions != Versions::IETF {
            return Err(wrong_version(ulpdu_len, header, versions));
        }
        let blame = match &header {
            Header::Tagged(tagged) => match self.check_tagged(tagged, ulpdu_len) {
                Ok(message) => return Ok(found(Checked::new(message, header, 0))),
                Err(blame) => blame,
            },
            Header::Untagged(untagged) => {
                let body_len = usize::from(ulpdu_len) - Header::UNTAGGED_LEN;
                if is_send(untagged.opcode) {
                    match self.check_send(untagged, body_len) {
                        Ok(message) => return Ok(found(Checked::new(message, header, 0))),
                        Err(blame) => blame,
                    }
                } else {
                    let body = &ulpdu[Header::UNTAGGED_LEN..];
                    match self.check_rest(untagged, body_len, body) {
                        Ok((message, len)) => return Ok(found(Checked::new(message, header, len))),
                        Err(blame) => blame,
                    }
                }
            }
        };
        Err(blamed(blame, ulpdu_len, header))
    }

    #[inline(always)]
    fn check_tagged(&mut self, h: &Tagged, ulpdu_len: u16) -> Result<Message, Blame> {
        let message = match h.opcode {
            Opcode::WRITE => Message::Write {
                stag: h.stag,
                to: h.to,
                last: h.last,
            },
            Opcode::READ_RESPONSE => Message::ReadResponse {
                stag: h.stag,
                to: h.to,
                last: h.last,
            },
            _ => {
                return Err((
                    PeerFault::UnexpectedOpcode,
                    "RDMAP opcode of a tagged segment",
                ))
            }
        };
        let payload_len = u64::from(ulpdu_len) - Header::TAGGED_LEN as u64;
        if let Some(open) = &self.tagged {
            open.check_next(h, payload_len)?;
        }
        self.tagged = (!h.last).then(|| OpenTagged {
            opcode: h.opcode,
            stag: h.stag,
            next_to: h.to.wrapping_add(payload_len),
        });
        Ok(message)
    }

    /// An untagged segment that is not a Send's.
    fn check_rest(&mut self, h: &Untagged, body_len: usize, body: &[u8]) -> Outcome {
        match h.opcode {
            Opcode::READ_REQUEST => {
                self.check_single(
                    h,
                    QueueNumber::READ_REQUEST,
                    body_len,
                    ReadRequest::WIRE_LEN,
                )?;
                let request = ReadRequest::decode(body).ok_or(WRONG_LENGTH)?;
                Ok((
                    Message::ReadRequest {
                        msn: h.msn,
                        request,
                    },
                    ReadRequest::WIRE_LEN,
                ))
            }
            Opcode::TERMINATE => check_terminate(h, body_len, body),
            _ if self.rfc7306 => self.check_rfc7306(h, body_len, body),
            _ => Err(UNKNOWN_OPCODE),
        }
    }

    #[inline(always)]
    fn check_send(&mut self, h: &Untagged, body_len: usize) -> Result<Message, Blame> {
        if h.qn != QueueNumber::SEND {
            return Err(WRONG_QUEUE);
        }
        if h.msn != self.expected[0] {
            return Err(WRONG_MSN);
        }
        let first = self.send.is_none();
        let received = match self.send {
            None => 0,
            Some(open) if open.opcode != h.opcode => {
                return Err((PeerFault::UnexpectedOpcode, "RDMAP opcode within a message"));
            }
            Some(open) => open.received,
        };
        if h.mo != received {
            return Err(WRONG_MO);
        }
        let Some(received) = received.checked_add(body_len as u32) else {
            return Err((PeerFault::MessageTooLong, "MO plus payload, beyond 2^32"));
        };
        if h.last {
            self.expected[0] = h.msn.next();
            self.send = None;
        } else {
            self.send = Some(OpenSend {
                opcode: h.opcode,
                received,
            });
        }
        Ok(Message::Send {
            msn: h.msn,
            first,
            mo: h.mo,
            last: h.last,
            solicited: matches!(
                h.opcode,
                Opcode::SEND_SOLICITED | Opcode::SEND_SOLICITED_INVALIDATE
            ),
            invalidate: matches!(
                h.opcode,
                Opcode::SEND_INVALIDATE | Opcode::SEND_SOLICITED_INVALIDATE
            )
            .then_some(Stag(h.invalidate)),
        })
    }

    /// A message that is one segment of a fixed length: MSN the next, MO 0, L set.
    fn check_single(
        &mut self,
        h: &Untagged,
        qn: QueueNumber,
        len: usize,
        right_len: usize,
    ) -> Result<(), Blame> {
        if h.qn != qn {
            return Err(WRONG_QUEUE);
        }
        let expected = &mut self.expected[qn.0 as usize];
        if h.msn != *expected {
            return Err(WRONG_MSN);
        }
        if h.mo != 0 {
            return Err(WRONG_MO);
        }
        // The buffer of such a message holds its header and no more.
        if !h.last {
            return Err((
                PeerFault::MessageTooLong,
                "L flag of a message that is one segment",
            ));
        }
        if len > right_len {
            return Err((PeerFault::MessageTooLong, "ULPDU_Length"));
        }
        if len < right_len {
            return Err(WRONG_LENGTH);
        }
        *expected = h.msn.next();
        Ok(())
    }

    #[cold]
    fn check_rfc7306(&mut self, h: &Untagged, len: usize, body: &[u8]) -> Outcome {
        match h.opcode {
            Opcode::IMMEDIATE | Opcode::IMMEDIATE_SOLICITED => {
                if self.send.is_some() {
                    return Err((PeerFault::UnexpectedOpcode, "RDMAP opcode within a message"));
                }
                self.check_single(h, QueueNumber::SEND, len, IMMEDIATE_LEN)?;
                let message = Message::ImmediateData {
                    msn: h.msn,
                    data: u64_at(body, 0),
                    solicited: h.opcode == Opcode::IMMEDIATE_SOLICITED,
                };
                Ok((message, IMMEDIATE_LEN))
            }
            Opcode::ATOMIC_REQUEST => {
                self.check_single(h, QueueNumber::READ_REQUEST, len, AtomicRequest::WIRE_LEN)?;
                let request = AtomicRequest::decode(body)
                    .ok_or((PeerFault::UnexpectedOpcode, "AOpCode of an Atomic Request"))?;
                Ok((
                    Message::AtomicRequest {
                        msn: h.msn,
                        request,
                    },
                    AtomicRequest::WIRE_LEN,
                ))
            }
            Opcode::ATOMIC_RESPONSE => {
                self.check_single(
                    h,
                    QueueNumber::ATOMIC_RESPONSE,
                    len,
                    AtomicResponse::WIRE_LEN,
                )?;
                let response = AtomicResponse::decode(body).ok_or(WRONG_LENGTH)?;
                Ok((
                    Message::AtomicResponse {
                        msn: h.msn,
                        response,
                    },
                    AtomicResponse::WIRE_LEN,
                ))
            }
            _ => Err(UNKNOWN_OPCODE),
        }
    }
}

impl OpenTagged {
    /// The segment goes on where the one before ended. STag and TO of an empty segment are not to be checked
    /// (RFC 5041 section 5.2).
    fn check_next(&self, h: &Tagged, payload_len: u64) -> Result<(), Blame> {
        if h.opcode != self.opcode {
            return Err((PeerFault::UnexpectedOpcode, "RDMAP opcode within a message"));
        }
        if payload_len == 0 {
            return Ok(());
        }
        if h.stag != self.stag {
            return Err((PeerFault::TaggedStag, "STag within a message"));
        }
        if h.to != self.next_to {
            return Err((PeerFault::TaggedBounds, "TO within a message"));
        }
        Ok(())
    }
}

/// A Terminate ends the stream whatever came before; one that cannot be right ends it without an answer.
#[cold]
fn check_terminate(h: &Untagged, len: usize, body: &[u8]) -> Outcome {
    let field = if h.qn != QueueNumber::TERMINATE {
        "QN"
    } else if h.msn != Msn::FIRST {
        "MSN"
    } else if h.mo != 0 {
        "MO"
    } else if !h.last {
        "L flag"
    } else if len + Header::UNTAGGED_LEN > MAX_TERMINATE {
        "ULPDU_Length"
    } else if let Some(terminate) = Terminate::decode(&body[..len]) {
        return Ok((Message::Terminate(terminate), len));
    } else {
        "ULPDU_Length"
    };
    Err((PeerFault::Terminate, field))
}

#[inline(always)]
fn is_send(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::SEND
            | Opcode::SEND_INVALIDATE
            | Opcode::SEND_SOLICITED
            | Opcode::SEND_SOLICITED_INVALIDATE
    )
}

#[cold]
fn blamed((fault, field): Blame, ulpdu_len: u16, header: Header) -> Fault {
    Fault::new(fault, field).in_segment(ulpdu_len, header)
}

/// A message and the octets of its RDMAP header, or whom to blame.
type Outcome = Result<(Message, usize), Blame>;
/// The fault and the field that shows it.
type Blame = (PeerFault, &'static str);

const UNKNOWN_OPCODE: Blame = (PeerFault::UnexpectedOpcode, "RDMAP opcode");
const WRONG_QUEUE: Blame = (PeerFault::QueueNumber, "QN");
const WRONG_MSN: Blame = (PeerFault::MsnRange, "MSN");
const WRONG_MO: Blame = (PeerFault::MessageOffset, "MO");
const WRONG_LENGTH: Blame = (PeerFault::MessageLength, "ULPDU_Length");

/// Octets of ULPDU that must be there to judge a segment with these control octets.
#[inline]
fn headers_len(ddp_control: u8, rdmap_control: u8, ulpdu_len: u16) -> usize {
    let ddp = Header::len_by_control(ddp_control);
    if ddp == Header::TAGGED_LEN {
        return ddp;
    }
    ddp + match Opcode(rdmap_control & 0x0f) {
        Opcode::READ_REQUEST => ReadRequest::WIRE_LEN,
        Opcode::TERMINATE => usize::from(ulpdu_len)
            .min(MAX_TERMINATE)
            .saturating_sub(ddp),
        Opcode::IMMEDIATE | Opcode::IMMEDIATE_SOLICITED => IMMEDIATE_LEN,
        Opcode::ATOMIC_REQUEST => AtomicRequest::WIRE_LEN,
        Opcode::ATOMIC_RESPONSE => AtomicResponse::WIRE_LEN,
        _ => 0,
    }
}

#[cold]
fn too_short() -> Fault {
    Fault::new(PeerFault::SegmentTooShort, "ULPDU_Length")
}

#[cold]
fn wrong_version(ulpdu_len: u16, header: Header, versions: Versions) -> Fault {
    let (fault, field) = match header {
        _ if versions.ddp == Versions::IETF.ddp => (PeerFault::RdmapVersion, "RV"),
        Header::Tagged(_) => (PeerFault::TaggedVersion, "DV of a tagged segment"),
        Header::Untagged(_) => (PeerFault::UntaggedVersion, "DV of an untagged segment"),
    };
    let mut fault = Fault::new(fault, field).in_segment(ulpdu_len, header);
    fault.versions = versions;
    fault
}
