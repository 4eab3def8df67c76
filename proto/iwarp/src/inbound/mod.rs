//! Received octets to checked DDP segments, for one direction of a connection.
//!
//! [`Inbound`] owns no buffer. The driver shows it the octets received and not yet consumed; it answers with
//! ranges in them. What it checks is what header and stream position show: framing, CRC, markers, versions,
//! opcodes, queues, lengths, MSN, MO and the continuity of messages. What needs to know memory, receive queues
//! or outstanding requests is the verbs layer's.
//!
//! With CRC or markers an FPDU is given when all of it is there, since no STag or TO may be trusted before. With
//! neither, a segment is given as soon as its header is there, so that its payload can be read from the socket
//! straight to its target.
//!
//! An FPDU that arrives before what precedes it may be looked at ahead of order ([`Inbound::fpdus_ahead`]), and
//! delivered when order has come to it without a second look at its payload ([`Inbound::deliver`]).

mod sequence;
#[cfg(test)]
mod tests;

use crate::ahead::{Envelope, FpdusAhead};
use crate::ddp::{Header, CONTROLS_OF_WHOLE_WRITE};
use crate::mpa::crc::CRC_LEN;
use crate::mpa::established::Established;
use crate::mpa::fpdu::{fpdu_len, pad_len, LENGTH_LEN};
use crate::mpa::marker;
use crate::mpa::whole::{crc_matches, Lengths};
use crate::num::{Msn, Stag};
use crate::rdmap::{AtomicRequest, AtomicResponse, ReadRequest};
use crate::terminate::{Fault, PeerFault, Terminate};
use crate::wire::{u16_at, u32_at, u64_at};
use core::ops::Range;
use sequence::{Checked, Sequence};

/// What [`Inbound`] has to know of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboundConfig {
    /// The CRC is used and must be checked.
    pub crc: bool,
    /// The peer puts markers into what it sends.
    pub markers: bool,
    /// Accept Immediate Data and atomic operations (RFC 7306, which negotiates nothing); without it they are
    /// unexpected opcodes.
    pub rfc7306: bool,
}

/// The receiving half of a connection.
#[derive(Clone, Debug)]
pub struct Inbound {
    config: InboundConfig,
    sequence: Sequence,
    /// Stream offset of the next octet, modulo the marker spacing. Kept only with markers.
    position: usize,
    rest: Rest,
}

/// What is still to come of an FPDU that is taken in parts.
#[derive(Clone, Debug, Default)]
struct Rest {
    /// Payload octets of the open segment.
    payload_left: usize,
    /// Padding and CRC octets behind it.
    trailer_left: usize,
    first_fpdu_seen: bool,
}

/// What [`Inbound::parse`] found at the front of the octets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parse {
    /// Nothing can be said before this many octets are there, counted from the front. More is welcome.
    Need {
        /// Octets the buffer must hold.
        octets: usize,
    },
    /// The header of a segment, checked, with as much of its payload as is there.
    Segment(Segment),
    /// More payload of the segment given last.
    More(Continuation),
    /// Padding and CRC of an FPDU that is otherwise done.
    Consumed {
        /// Octets to drop from the front.
        octets: usize,
    },
}

/// One DDP segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// What the segment is part of.
    pub message: Message,
    /// ULPDU_Length, for a [`Fault`] the driver finds.
    pub ulpdu_len: u16,
    /// The DDP header, for a [`Fault`] the driver finds.
    pub header: Header,
    /// Payload octets present, as a range of the buffer.
    pub payload: Range<usize>,
    /// Payload octets of the whole segment.
    pub payload_len: usize,
    /// Octets to drop from the front once the payload was taken.
    pub consumed: usize,
}

/// Further payload of the open segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Continuation {
    /// The payload, as a range of the buffer.
    pub payload: Range<usize>,
    /// Octets to drop from the front once the payload was taken.
    pub consumed: usize,
}

/// An RDMA Write that is one segment and has arrived whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WholeWrite {
    /// Target region.
    pub stag: Stag,
    /// Tagged offset of the payload.
    pub to: u64,
    /// The payload, as a range of the buffer. Not empty.
    pub payload: Range<usize>,
    /// Octets to drop from the front once the payload was taken.
    pub consumed: usize,
}

/// The RDMAP message a segment belongs to. `last` marks the last segment of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// RDMA Write.
    Write {
        /// Target region. Not to be checked when the segment is empty.
        stag: Stag,
        /// Tagged offset of the payload.
        to: u64,
        /// L flag.
        last: bool,
    },
    /// RDMA Read Response.
    ReadResponse {
        /// Sink region of the request.
        stag: Stag,
        /// Tagged offset of the payload.
        to: u64,
        /// L flag.
        last: bool,
    },
    /// Any of the four Sends.
    Send {
        /// Number of the message; one receive buffer each.
        msn: Msn,
        /// The segment begins the message. The offset does not say that: behind an empty segment it is 0 again.
        first: bool,
        /// Offset of the payload in the message.
        mo: u32,
        /// L flag.
        last: bool,
        /// With Solicited Event.
        solicited: bool,
        /// With Invalidate: the region to invalidate after the message was delivered.
        invalidate: Option<Stag>,
    },
    /// RDMA Read Request.
    ReadRequest {
        /// Number of the message on its queue.
        msn: Msn,
        /// What to read.
        request: ReadRequest,
    },
    /// Terminate: the last message of the peer.
    Terminate(Terminate),
    /// Immediate Data (RFC 7306).
    ImmediateData {
        /// Number of the message, shared with the Sends.
        msn: Msn,
        /// The eight octets.
        data: u64,
        /// With Solicited Event.
        solicited: bool,
    },
    /// Atomic Request (RFC 7306).
    AtomicRequest {
        /// Number of the message, shared with the Read Requests.
        msn: Msn,
        /// What to do.
        request: AtomicRequest,
    },
    /// Atomic Response (RFC 7306).
    AtomicResponse {
        /// Number of the message on its queue.
        msn: Msn,
        /// The answer.
        response: AtomicResponse,
    },
}

impl Inbound {
    /// The receiving half of a connection whose start-up just ended.
    pub fn new(established: &Established) -> Inbound {
        Inbound::with_config(InboundConfig {
            crc: established.crc,
            markers: established.markers_rx,
            rfc7306: true,
        })
    }

    /// The receiving half of a stream at its first octet of Full Operation.
    pub fn with_config(config: InboundConfig) -> Inbound {
        Inbound {
            config,
            sequence: Sequence::new(config.rfc7306),
            position: 0,
            rest: Rest::default(),
        }
    }

    /// Looks at the octets received and not yet consumed, first octet first.
    ///
    /// Call it again with the rest after every answer but [`Parse::Need`]. The buffer is changed only where
    /// markers are taken out. After a fault the stream is of no more use: answer it and drop what follows.
    #[inline(always)]
    pub fn parse(&mut self, buf: &mut [u8]) -> Result<Parse, Fault> {
        if self.config.crc || self.config.markers {
            self.parse_whole(buf)
        } else {
            self.parse_flowing(buf)
        }
    }

    /// What [`Inbound::parse`] would find at the front of `buf`, if that is an RDMA Write of one segment which is there
    /// whole, on a stream without CRC and markers. Where messages are short that is most of what comes. Nothing changes
    /// by it: who has placed such Writes says so by [`Inbound::note_whole_writes`] before anything else is parsed.
    #[inline]
    pub fn whole_write(&self, buf: &[u8]) -> Option<WholeWrite> {
        const PAYLOAD: usize = LENGTH_LEN + Header::TAGGED_LEN;
        let front: &[u8; PAYLOAD] = buf.first_chunk()?;
        // First what tells other messages, which are looked at here in vain.
        if front[2..4] != CONTROLS_OF_WHOLE_WRITE {
            return None;
        }
        let ulpdu_len = usize::from(u16_at(front, 0));
        let consumed = fpdu_len(ulpdu_len);
        let is_whole = ulpdu_len > Header::TAGGED_LEN && consumed <= buf.len();
        let is_plain = !self.config.crc && !self.config.markers;
        // An FPDU that is open has its trailer to come at least.
        let is_next = self.rest.trailer_left == 0 && !self.sequence.tagged_message_open();
        (is_whole && is_plain && is_next).then(|| WholeWrite {
            stag: Stag(u32_at(front, 4)),
            to: u64_at(front, 8),
            payload: PAYLOAD..LENGTH_LEN + ulpdu_len,
            consumed,
        })
    }

    /// Writes that [`Inbound::whole_write`] found were taken.
    #[inline]
    pub fn note_whole_writes(&mut self) {
        self.rest.first_fpdu_seen = true;
    }

    /// Checks no CRC from here on: the octets come through memory of this machine. Between two calls of
    /// [`Inbound::parse`]; FPDUs keep their CRC field.
    pub fn stop_crc(&mut self) {
        self.config.crc = false;
    }

    /// The driver read `octets` of the open segment's payload straight to their target.
    ///
    /// # Panics
    ///
    /// When that is more than [`Inbound::outstanding`].
    #[inline]
    pub fn placed(&mut self, octets: usize) {
        assert!(
            octets <= self.rest.payload_left,
            "placed more than the segment has"
        );
        self.rest.payload_left -= octets;
    }

    /// Payload octets of the open segment still to come.
    #[inline]
    pub fn outstanding(&self) -> usize {
        self.rest.payload_left
    }

    /// Octets to read behind the payload of the open segment: its trailer and the next segment's header, where
    /// that header is expected to be as long as it is within a message. Payload of the next segment then stays
    /// in the socket.
    #[inline]
    pub fn trailer_and_header(&self) -> usize {
        let header = if self.sequence.tagged_message_open() {
            Header::TAGGED_LEN
        } else {
            Header::UNTAGGED_LEN
        };
        self.rest.trailer_left + LENGTH_LEN + header
    }

    /// An FPDU has arrived whole and was found valid. A Responder sends nothing before (RFC 5044 section 7.1.2).
    #[inline]
    pub fn first_fpdu_seen(&self) -> bool {
        self.rest.first_fpdu_seen
    }

    /// Every octet that was parsed or placed belongs to an FPDU that is there whole: the next octet is the first of
    /// another one.
    #[inline]
    pub fn is_between_fpdus(&self) -> bool {
        // Whatever lacks payload lacks its CRC field too.
        self.rest.trailer_left == 0
    }

    /// The Send with this number has begun, and its last segment is still to come.
    #[inline]
    pub fn send_is_open(&self, msn: Msn) -> bool {
        self.sequence.send_is_open(msn)
    }

    /// The FPDUs in octets that arrived before what precedes them. `at` is the offset of the first octet in the stream,
    /// counted from the first octet of Full Operation; `aligned` says that the peer promised whole FPDUs in each
    /// segment. `None` where neither that promise nor a CRC tells an FPDU from octets that look like one.
    pub fn fpdus_ahead<'a>(
        &self,
        at: u64,
        octets: &'a [u8],
        aligned: bool,
    ) -> Option<FpdusAhead<'a>> {
        (self.config.crc || aligned)
            .then(|| FpdusAhead::new(self.config.crc, self.config.markers, at, octets))
    }

    /// Order has come to an FPDU that was framed ahead of it and whose payload was placed: what its header shows is
    /// checked as if it arrived now. The segment has no payload in a buffer, and nothing to drop.
    ///
    /// # Errors
    ///
    /// The fault that arrival in order would have shown.
    ///
    /// # Panics
    ///
    /// In debug builds, within an FPDU.
    pub fn deliver(&mut self, placed: &Envelope) -> Result<Segment, Fault> {
        debug_assert!(self.is_between_fpdus(), "delivered within an FPDU");
        let ulpdu_len = placed.ulpdu_len();
        let octets = placed.header_octets();
        let segment = self.sequence.check(ulpdu_len, octets, |checked| Segment {
            message: checked.message,
            ulpdu_len,
            header: checked.header,
            payload: 0..0,
            payload_len: usize::from(ulpdu_len) - checked.header_len,
            consumed: 0,
        })?;
        self.rest.first_fpdu_seen = true;
        self.position = marker::advance(self.position, placed.wire_len());
        Ok(segment)
    }

    /// With CRC or markers: one whole FPDU or nothing.
    fn parse_whole(&mut self, buf: &mut [u8]) -> Result<Parse, Fault> {
        let lengths = match Lengths::of(self.config.markers, self.position, buf) {
            Ok(lengths) => lengths,
            Err(octets) => return Ok(Parse::Need { octets }),
        };
        let Lengths {
            leading,
            ulpdu_len,
            fpdu_len,
            wire_len: consumed,
        } = lengths;
        let Some(wire) = buf.get_mut(..consumed) else {
            return Ok(Parse::Need { octets: consumed });
        };
        if self.config.crc && !crc_matches(wire) {
            return Err(Fault::new(PeerFault::Crc, "CRC field"));
        }
        if self.config.markers {
            self.take_markers_out(wire, leading, fpdu_len)?;
        }
        let ulpdu = &wire[leading + LENGTH_LEN..][..usize::from(ulpdu_len)];
        let rest = &mut self.rest;
        self.sequence.check(ulpdu_len, ulpdu, |checked| {
            rest.first_fpdu_seen = true;
            let payload_start = leading + LENGTH_LEN + checked.header_len;
            let payload_len = usize::from(ulpdu_len) - checked.header_len;
            Parse::Segment(Segment {
                message: checked.message,
                ulpdu_len,
                header: checked.header,
                payload: payload_start..payload_start + payload_len,
                payload_len,
                consumed,
            })
        })
    }

    fn take_markers_out(
        &mut self,
        wire: &mut [u8],
        leading: usize,
        fpdu_len: usize,
    ) -> Result<(), Fault> {
        let leading_points_here = leading == 0 || marker::points_back(wire, 0);
        let position = self.position + leading;
        if !leading_points_here || !marker::remove(&mut wire[leading..], position, fpdu_len) {
            return Err(Fault::new(PeerFault::Marker, "FPDUPTR of a marker"));
        }
        self.position = marker::advance(self.position, wire.len());
        Ok(())
    }

    /// Without CRC and markers: whatever is there, header by header.
    ///
    /// Not inlined, so that the answer is built in its final place: copying it right after it was written costs
    /// as much as all the rest.
    #[inline(never)]
    fn parse_flowing(&mut self, buf: &[u8]) -> Result<Parse, Fault> {
        if self.rest.payload_left > 0 {
            return Ok(self.rest.take_payload(buf.len()));
        }
        let skipped = self.rest.skip_trailer(buf.len());
        let fpdu = &buf[skipped..];
        match self.sequence.header_available(fpdu)? {
            Ok(ulpdu_len) => {
                let ulpdu = &fpdu[LENGTH_LEN..];
                let ulpdu = &ulpdu[..ulpdu.len().min(usize::from(ulpdu_len))];
                let rest = &mut self.rest;
                self.sequence.check(ulpdu_len, ulpdu, |checked| {
                    rest.open_segment(ulpdu_len, &checked, skipped, buf.len())
                })
            }
            Err(_) if skipped > 0 => Ok(Parse::Consumed { octets: skipped }),
            Err(_) if self.rest.trailer_left > 0 => Ok(Parse::Need {
                octets: self.rest.trailer_left,
            }),
            Err(octets) => Ok(Parse::Need { octets }),
        }
    }
}

impl Rest {
    /// Payload of the open segment, of which `available` octets are there.
    fn take_payload(&mut self, available: usize) -> Parse {
        if available == 0 {
            return Parse::Need { octets: 1 };
        }
        let present = self.payload_left.min(available);
        self.payload_left -= present;
        let trailer = self.skip_trailer(available - present);
        Parse::More(Continuation {
            payload: 0..present,
            consumed: present + trailer,
        })
    }

    /// The segment at `skipped`, whose header was found good, with what `available` octets hold of it.
    #[inline(always)]
    fn open_segment(
        &mut self,
        ulpdu_len: u16,
        checked: &Checked,
        skipped: usize,
        available: usize,
    ) -> Parse {
        let payload_len = usize::from(ulpdu_len) - checked.header_len;
        let start = skipped + LENGTH_LEN + checked.header_len;
        let end = skipped + fpdu_len(usize::from(ulpdu_len));
        let (present, consumed) = if end <= available {
            self.first_fpdu_seen = true;
            (payload_len, end)
        } else {
            self.open_partly(ulpdu_len, payload_len, start, available)
        };
        Parse::Segment(Segment {
            message: checked.message,
            ulpdu_len,
            header: checked.header,
            payload: start..start + present,
            payload_len,
            consumed,
        })
    }

    /// Remembers what of a segment is still to come. Gives the payload octets present, and the octets to drop.
    fn open_partly(
        &mut self,
        ulpdu_len: u16,
        payload_len: usize,
        start: usize,
        available: usize,
    ) -> (usize, usize) {
        let present = payload_len.min(available - start);
        self.payload_left = payload_len - present;
        self.trailer_left = pad_len(usize::from(ulpdu_len)) + CRC_LEN;
        let end = start + present;
        (present, end + self.skip_trailer(available - end))
    }

    /// Passes over the trailer of an FPDU whose payload is complete, as far as `available` octets hold it.
    #[inline]
    fn skip_trailer(&mut self, available: usize) -> usize {
        if self.payload_left > 0 || self.trailer_left == 0 {
            return 0;
        }
        let skipped = self.trailer_left.min(available);
        self.trailer_left -= skipped;
        self.first_fpdu_seen |= self.trailer_left == 0;
        skipped
    }
}
