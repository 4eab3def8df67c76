//! Headers and payload to FPDUs, for one direction of a connection.
//!
//! [`Outbound`] appends to a buffer of the caller's: [`Outbound::begin`] the length and headers, the caller the
//! payload, [`Outbound::seal`] padding, markers and CRC. Where neither CRC nor markers are in use the payload need
//! not pass through the buffer: [`Outbound::seal_reference`] appends only what follows it on the wire.

use crate::ddp::{Header, Tagged, Untagged};
use crate::mpa::crc::{crc32c, CRC_LEN};
use crate::mpa::established::{Established, Rtr};
use crate::mpa::fpdu::{mulpdu, pad_len, LENGTH_LEN, MAX_ULPDU, MIN_MULPDU};
use crate::mpa::marker;
use crate::num::{Msn, Opcode, QueueNumber, Stag};
use crate::rdmap::ReadRequest;
use crate::terminate::Terminate;
use alloc::vec::Vec;

/// Octets of padding at most.
const PAD_MAX: usize = 3;

/// The sending half of a connection.
#[derive(Clone, Debug)]
pub struct Outbound {
    crc: bool,
    markers: bool,
    /// Stream offset of the next FPDU, modulo the marker spacing. Kept only with markers.
    position: usize,
    mulpdu: usize,
    next_msn: [Msn; QueueNumber::COUNT],
}

impl Outbound {
    /// The sending half of a connection whose start-up just ended, with FPDUs to the EMSS (octets).
    pub fn new(established: &Established, emss: usize) -> Outbound {
        Outbound {
            crc: established.crc,
            markers: established.markers_tx,
            position: 0,
            mulpdu: mulpdu(emss, established.markers_tx),
            next_msn: [Msn::FIRST; QueueNumber::COUNT],
        }
    }

    /// Payload may go out of the application's memory by an I/O vector: no CRC covers it and no marker splits it.
    #[inline]
    pub fn by_reference(&self) -> bool {
        !self.crc && !self.markers
    }

    /// Computes no CRC from here on, for a peer that checks none: the field is zero. Between FPDUs.
    pub fn stop_crc(&mut self) {
        self.crc = false;
    }

    /// The largest ULPDU to make, octets.
    #[inline]
    pub fn mulpdu(&self) -> usize {
        self.mulpdu
    }

    /// The EMSS changed, to so many octets, with the path: FPDUs from here on fit it (RFC 5044 section 3).
    pub fn set_emss(&mut self, emss: usize) {
        self.mulpdu = mulpdu(emss, self.markers);
    }

    /// Changes the largest ULPDU for a peer that takes large FPDUs. The limits of the standard (128 to 64768) hold.
    pub fn set_mulpdu(&mut self, mulpdu: usize) {
        self.mulpdu = mulpdu.clamp(MIN_MULPDU, MAX_ULPDU);
    }

    /// The most payload one segment can take, octets.
    #[inline]
    pub fn max_payload(&self, tagged: bool) -> usize {
        self.mulpdu
            - if tagged {
                Header::TAGGED_LEN
            } else {
                Header::UNTAGGED_LEN
            }
    }

    /// Takes the number of the next message on a queue.
    ///
    /// # Panics
    ///
    /// When the standard has no such queue.
    #[inline]
    pub fn next_msn(&mut self, qn: QueueNumber) -> Msn {
        let next = &mut self.next_msn[qn.0 as usize];
        let msn = *next;
        *next = msn.next();
        msn
    }

    /// Appends ULPDU_Length, the DDP header and `body`, the RDMAP header where there is one. `payload_len` octets of
    /// payload will follow. Returns where in `out` this FPDU begins.
    ///
    /// # Panics
    ///
    /// When the ULPDU would be longer than its length field can say.
    #[inline(always)]
    pub fn begin(
        &mut self,
        out: &mut Vec<u8>,
        header: &Header,
        body: &[u8],
        payload_len: usize,
    ) -> usize {
        let start = out.len();
        let headers_len = header.wire_len() + body.len();
        let ulpdu_len = headers_len + payload_len;
        assert!(ulpdu_len <= MAX_ULPDU, "ULPDU of {ulpdu_len} octets");
        // All but the payload, which may not pass through here: a new buffer would grow with each of its parts.
        out.reserve(LENGTH_LEN + headers_len + PAD_MAX + CRC_LEN);
        header.encode_behind(ulpdu_len as u16, out);
        out.extend_from_slice(body);
        start
    }

    /// Ends the FPDU that began at `start` and whose payload was appended: padding, markers, CRC.
    #[inline(always)]
    pub fn seal(&mut self, out: &mut Vec<u8>, start: usize) {
        let ulpdu_len = out.len() - start - LENGTH_LEN;
        debug_assert_eq!(usize::from(crate::wire::u16_at(out, start)), ulpdu_len);
        if self.by_reference() {
            // Padding and a CRC field of zero; a length that is known costs less than the three octets too many.
            let end = out.len() + pad_len(ulpdu_len) + CRC_LEN;
            out.extend_from_slice(&[0; PAD_MAX + CRC_LEN]);
            out.truncate(end);
        } else {
            self.seal_with_crc_and_markers(out, start, ulpdu_len);
        }
    }

    fn seal_with_crc_and_markers(&mut self, out: &mut Vec<u8>, start: usize, ulpdu_len: usize) {
        out.extend_from_slice(&[0; PAD_MAX][..pad_len(ulpdu_len)]);
        if self.markers {
            self.put_markers_in(out, start);
        }
        let crc = if self.crc { crc32c(&out[start..]) } else { 0 };
        out.extend_from_slice(&crc.to_le_bytes());
        if self.markers {
            self.position = marker::advance(self.position, out.len() - start);
        }
    }

    /// Ends an FPDU whose payload stays where it is: appends the padding and a CRC field of zero. `header_len` is the
    /// DDP header with the RDMAP header behind it.
    #[inline]
    pub fn seal_reference(&mut self, out: &mut Vec<u8>, payload_len: usize, header_len: usize) {
        debug_assert!(self.by_reference());
        let trailer = pad_len(header_len + payload_len) + CRC_LEN;
        out.extend_from_slice(&[0; PAD_MAX + CRC_LEN][..trailer]);
    }

    /// Appends a whole ready-to-receive FPDU (RFC 6581 section 9.2). `to` is the TO of a Write and of both ends of a
    /// Read; no peer may check it.
    pub fn rtr(&mut self, kind: Rtr, to: u64, out: &mut Vec<u8>) {
        let (header, body) = match kind {
            Rtr::Write => {
                let header = Tagged {
                    last: true,
                    opcode: Opcode::WRITE,
                    stag: Stag::RTR,
                    to,
                };
                (Header::Tagged(header), None)
            }
            Rtr::Read => {
                let request = ReadRequest {
                    sink_stag: Stag::RTR,
                    sink_to: to,
                    size: 0,
                    source_stag: Stag::RTR,
                    source_to: to,
                };
                let header = self.single_segment(Opcode::READ_REQUEST, QueueNumber::READ_REQUEST);
                (header, Some(request.to_octets()))
            }
            Rtr::Send => (self.single_segment(Opcode::SEND, QueueNumber::SEND), None),
        };
        let body: &[u8] = body.as_ref().map_or(&[], |octets| octets);
        let start = self.begin(out, &header, body, 0);
        self.seal(out, start);
    }

    /// Appends a whole Terminate FPDU. Nothing may be sent behind it.
    pub fn terminate(&mut self, terminate: &Terminate, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(Terminate::MAX_LEN);
        terminate.encode(&mut body);
        let header = self.single_segment(Opcode::TERMINATE, QueueNumber::TERMINATE);
        let start = self.begin(out, &header, &body, 0);
        self.seal(out, start);
    }

    /// The header of the next message of a queue, where the message is one segment.
    fn single_segment(&mut self, opcode: Opcode, qn: QueueNumber) -> Header {
        Header::Untagged(Untagged {
            last: true,
            opcode,
            invalidate: 0,
            qn,
            msn: self.next_msn(qn),
            mo: 0,
        })
    }

    /// Spreads the FPDU at `start`, complete but for its CRC field, to make place for its markers.
    #[cold]
    fn put_markers_in(&mut self, out: &mut Vec<u8>, start: usize) {
        let content_len = out.len() - start;
        let leading = marker::leading(self.position);
        let wire_len = marker::wire_len(self.position, content_len + CRC_LEN) - CRC_LEN;
        out.resize(start + wire_len, 0);
        if leading > 0 {
            out.copy_within(start..start + content_len, start + leading);
            out[start..start + leading].fill(0);
        }
        marker::insert(
            &mut out[start + leading..],
            self.position + leading,
            content_len,
        );
    }
}
