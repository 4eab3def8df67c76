//! What is kept of an FPDU whose payload was placed.

use crate::ddp::Header;
use crate::mpa::crc::CRC_LEN;
use crate::mpa::fpdu::{pad_len, LENGTH_LEN};
use crate::mpa::marker;
use crate::wire::u16_at;
use alloc::vec::Vec;
use core::ops::Range;

/// Octets of ULPDU_Length and the longest header of a segment that can be placed ahead of order.
const HEAD_LEN_MAX: usize = LENGTH_LEN + Header::UNTAGGED_LEN;
/// Octets of the longest padding, and of the CRC field.
const TRAILER_LEN_MAX: usize = 3 + CRC_LEN;

/// An FPDU without its payload and its markers: length, DDP header, padding, CRC field, octet for octet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    head: [u8; HEAD_LEN_MAX],
    trailer: [u8; TRAILER_LEN_MAX],
    wire_len: u32,
}

impl Envelope {
    /// Of an FPDU whose octets without markers are `content`, with its payload in this range of them, and which took
    /// `wire_len` octets of the stream.
    pub(super) fn new(content: &[u8], payload: &Range<usize>, wire_len: usize) -> Envelope {
        let (front, behind) = (&content[..payload.start], &content[payload.end..]);
        let mut envelope = Envelope {
            head: [0; HEAD_LEN_MAX],
            trailer: [0; TRAILER_LEN_MAX],
            wire_len: wire_len as u32,
        };
        envelope.head[..front.len()].copy_from_slice(front);
        envelope.trailer[..behind.len()].copy_from_slice(behind);
        envelope
    }

    /// ULPDU_Length.
    pub fn ulpdu_len(&self) -> u16 {
        u16_at(&self.head, 0)
    }

    /// Octets of the stream that the FPDU takes, markers included.
    pub fn wire_len(&self) -> usize {
        self.wire_len as usize
    }

    /// The DDP header. A tagged one has octets behind it that mean nothing.
    pub(crate) fn header_octets(&self) -> &[u8] {
        &self.head[LENGTH_LEN..]
    }

    /// The FPDU as it came, at this offset of the stream, with or without markers, around the payload that it had.
    ///
    /// # Panics
    ///
    /// When the payload is not as long as the FPDU says.
    pub fn around(&self, payload: &[u8], at: u64, markers: bool) -> Vec<u8> {
        let header_len = Header::len_by_control(self.head[LENGTH_LEN]);
        let ulpdu_len = usize::from(self.ulpdu_len());
        assert_eq!(header_len + payload.len(), ulpdu_len, "another payload");
        let position = (at % marker::SPACING as u64) as usize;
        let leading = match markers {
            true => marker::leading(position),
            false => 0,
        };
        let (padding, crc) =
            self.trailer[..pad_len(ulpdu_len) + CRC_LEN].split_at(pad_len(ulpdu_len));
        let mut fpdu = Vec::with_capacity(self.wire_len());
        fpdu.resize(leading, 0);
        fpdu.extend_from_slice(&self.head[..LENGTH_LEN + header_len]);
        fpdu.extend_from_slice(payload);
        fpdu.extend_from_slice(padding);
        let content_len = fpdu.len() - leading;
        fpdu.resize(self.wire_len() - CRC_LEN, 0);
        if markers {
            marker::insert(&mut fpdu[leading..], position + leading, content_len);
        }
        fpdu.extend_from_slice(crc);
        fpdu
    }
}
