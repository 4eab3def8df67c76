//! The FPDUs of a stream, and how long they are (RFC 5044 section 4, RFC 5041 section 4).
//!
//! There are no markers on a stream: an end that asks for them is refused at the start.

use weft_iwarp::ddp::{Header, Tagged, Untagged};
use weft_iwarp::mpa::fpdu::{crc32c, fpdu_len, pad_len, CRC_LEN, LENGTH_LEN};
use weft_iwarp::rdmap::ReadRequest;
use weft_iwarp::{Msn, Opcode, QueueNumber, Stag};

use crate::connection_data::TARGET_LEN;
use crate::map::ENTRY_LEN;
use crate::word::{Word, WORD_LEN};

/// Octets before the payload of a Write.
pub const WRITE_HEADER_LEN: usize = LENGTH_LEN + Header::TAGGED_LEN;
/// Octets of the FPDU of a message word.
pub const MESSAGE_LEN: usize = fpdu_len(Header::UNTAGGED_LEN + WORD_LEN);
/// Octets of the FPDU that writes one target into the peer's list.
pub const TARGET_WRITE_LEN: usize = write_len(TARGET_LEN);
/// Octets of the FPDU that writes one entry into the peer's table of mapped memory.
pub const ENTRY_WRITE_LEN: usize = write_len(ENTRY_LEN);
/// Octets of an FPDU of a tagged message without payload.
pub const EMPTY_WRITE_LEN: usize = write_len(0);
/// Octets of the FPDU of a Read Request.
pub const READ_REQUEST_LEN: usize = fpdu_len(Header::UNTAGGED_LEN + ReadRequest::WIRE_LEN);
/// The most octets behind the payload of a Write: padding and CRC.
pub const TRAILER_LEN_MAX: usize = 3 + CRC_LEN;

/// Octets behind so many octets of payload of a Write: padding and CRC.
pub const fn trailer_len(payload: usize) -> usize {
    pad_len(Header::TAGGED_LEN + payload) + CRC_LEN
}

/// Octets of the FPDU of a Write with so many octets of payload.
pub const fn write_len(payload: usize) -> usize {
    fpdu_len(Header::TAGGED_LEN + payload)
}

/// The most octets of payload of a Write whose ULPDU has so many octets.
pub const fn payload_max(mulpdu: usize) -> usize {
    mulpdu.saturating_sub(Header::TAGGED_LEN)
}

/// What stands before the payload of a Write.
#[inline]
pub fn write_header(stag: u32, to: u64, payload: usize) -> [u8; WRITE_HEADER_LEN] {
    tagged_header(Opcode::WRITE, stag, to, payload)
}

fn tagged_header(opcode: Opcode, stag: u32, to: u64, payload: usize) -> [u8; WRITE_HEADER_LEN] {
    let ulpdu_len = Header::TAGGED_LEN + payload;
    debug_assert!(ulpdu_len <= usize::from(u16::MAX));
    let mut octets = [0; WRITE_HEADER_LEN];
    octets[..LENGTH_LEN].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
    let header = Tagged {
        last: true,
        opcode,
        stag: Stag(stag),
        to,
    };
    Header::Tagged(header).put(&mut octets[LENGTH_LEN..]);
    octets
}

/// What stands behind the payload of a Write, and its length. `crc` is that of everything before it with its padding;
/// without one the field is zero.
#[inline]
pub fn trailer(payload: usize, crc: u32) -> ([u8; TRAILER_LEN_MAX], usize) {
    let len = trailer_len(payload);
    let mut octets = [0; TRAILER_LEN_MAX];
    octets[len - CRC_LEN..len].copy_from_slice(&crc.to_le_bytes());
    (octets, len)
}

/// The FPDU of a message word.
#[inline]
pub fn message(msn: Msn, word: Word, crc: bool) -> [u8; MESSAGE_LEN] {
    let ulpdu_len = Header::UNTAGGED_LEN + WORD_LEN;
    let mut octets = [0; MESSAGE_LEN];
    octets[..LENGTH_LEN].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
    let header = Untagged {
        last: true,
        opcode: Opcode::SEND,
        invalidate: 0,
        qn: QueueNumber::SEND,
        msn,
        mo: 0,
    };
    Header::Untagged(header).put(&mut octets[LENGTH_LEN..]);
    let behind = LENGTH_LEN + Header::UNTAGGED_LEN;
    octets[behind..behind + WORD_LEN].copy_from_slice(&word.to_octets());
    seal(&mut octets, crc);
    octets
}

/// The FPDU that writes `target` at `to` of the peer's list; its octets are in the peer's order.
pub fn target_write(
    stag: u32,
    to: u64,
    target: [u8; TARGET_LEN],
    crc: bool,
) -> [u8; TARGET_WRITE_LEN] {
    let mut octets = [0; TARGET_WRITE_LEN];
    octets[..WRITE_HEADER_LEN].copy_from_slice(&write_header(stag, to, TARGET_LEN));
    octets[WRITE_HEADER_LEN..WRITE_HEADER_LEN + TARGET_LEN].copy_from_slice(&target);
    seal(&mut octets, crc);
    octets
}

/// The FPDU that writes `entry` at `to` of the peer's table of mapped memory; its octets are in the peer's order.
pub fn entry_write(stag: u32, to: u64, entry: [u8; ENTRY_LEN], crc: bool) -> [u8; ENTRY_WRITE_LEN] {
    let mut octets = [0; ENTRY_WRITE_LEN];
    octets[..WRITE_HEADER_LEN].copy_from_slice(&write_header(stag, to, ENTRY_LEN));
    octets[WRITE_HEADER_LEN..WRITE_HEADER_LEN + ENTRY_LEN].copy_from_slice(&entry);
    seal(&mut octets, crc);
    octets
}

/// The ready-to-receive FPDU of a stream: a Write of nothing (RFC 6581 section 9.2).
pub fn ready_to_receive(crc: bool) -> [u8; EMPTY_WRITE_LEN] {
    empty(Opcode::WRITE, Stag::RTR.0, 0, crc)
}

/// The same as a Read of nothing, for peers that want it so.
pub fn ready_to_receive_by_read(crc: bool) -> [u8; READ_REQUEST_LEN] {
    let ulpdu_len = Header::UNTAGGED_LEN + ReadRequest::WIRE_LEN;
    let mut octets = [0; READ_REQUEST_LEN];
    octets[..LENGTH_LEN].copy_from_slice(&(ulpdu_len as u16).to_be_bytes());
    let header = Untagged {
        last: true,
        opcode: Opcode::READ_REQUEST,
        invalidate: 0,
        qn: QueueNumber::READ_REQUEST,
        msn: Msn::FIRST,
        mo: 0,
    };
    Header::Untagged(header).put(&mut octets[LENGTH_LEN..]);
    let request = ReadRequest {
        sink_stag: Stag::RTR,
        sink_to: 0,
        size: 0,
        source_stag: Stag::RTR,
        source_to: 0,
    };
    octets[LENGTH_LEN + Header::UNTAGGED_LEN..LENGTH_LEN + ulpdu_len]
        .copy_from_slice(&request.to_octets());
    seal(&mut octets, crc);
    octets
}

/// The answer to a Read Request for nothing, which is another peer's ready-to-receive FPDU.
pub fn empty_read_response(stag: u32, to: u64, crc: bool) -> [u8; EMPTY_WRITE_LEN] {
    empty(Opcode::READ_RESPONSE, stag, to, crc)
}

fn empty(opcode: Opcode, stag: u32, to: u64, crc: bool) -> [u8; EMPTY_WRITE_LEN] {
    let mut octets = [0; EMPTY_WRITE_LEN];
    octets[..WRITE_HEADER_LEN].copy_from_slice(&tagged_header(opcode, stag, to, 0));
    seal(&mut octets, crc);
    octets
}

fn seal(fpdu: &mut [u8], crc: bool) {
    if crc {
        let (content, field) = fpdu.split_at_mut(fpdu.len() - CRC_LEN);
        field.copy_from_slice(&crc32c(content).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;
    use weft_iwarp::{Established, Inbound, Message, Outbound, Parse, Role};

    fn established(crc: bool) -> Established {
        Established {
            role: Role::Initiator,
            crc,
            markers_tx: false,
            markers_rx: false,
            revision: 2,
            peer_to_peer: false,
            rtr: None,
            ird: 1,
            ord: 1,
            peer_ird: 1,
            peer_ord: 1,
            private_data: Vec::new(),
        }
    }

    /// What the verbs would send.
    fn reference(header: Header, payload: &[u8], crc: bool) -> Vec<u8> {
        let mut octets = Vec::new();
        let mut outbound = Outbound::new(&established(crc), 65_000);
        let start = outbound.begin(&mut octets, &header, &[], payload.len());
        octets.extend_from_slice(payload);
        outbound.seal(&mut octets, start);
        octets
    }

    proptest! {
        #[test]
        fn a_write_is_what_the_verbs_make_of_it(stag: u32, to: u64, len in 0usize..600, crc: bool) {
            let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut octets = write_header(stag, to, len).to_vec();
            octets.extend_from_slice(&payload);
            let padding = trailer_len(len) - CRC_LEN;
            octets.resize(octets.len() + padding, 0);
            let value = if crc { crc32c(&octets) } else { 0 };
            octets.truncate(octets.len() - padding);
            let (trailer, trailer_len) = trailer(len, value);
            octets.extend_from_slice(&trailer[..trailer_len]);
            prop_assert_eq!(octets.len(), write_len(len));
            let header = Tagged { last: true, opcode: Opcode::WRITE, stag: Stag(stag), to };
            prop_assert_eq!(octets, reference(Header::Tagged(header), &payload, crc));
        }

        #[test]
        fn a_message_is_a_send_of_a_word(msn: u32, octets in 0u32..1 << 29, crc: bool) {
            let header = Untagged {
                last: true, opcode: Opcode::SEND, invalidate: 0, qn: QueueNumber::SEND, msn: Msn(msn), mo: 0,
            };
            let word = Word::Data(octets);
            let sent = reference(Header::Untagged(header), &word.to_octets(), crc);
            prop_assert_eq!(message(Msn(msn), word, crc).to_vec(), sent);
        }
    }

    #[test]
    fn sizes_are_those_that_the_low_water_mark_stands_on() {
        assert_eq!(
            (WRITE_HEADER_LEN, MESSAGE_LEN, EMPTY_WRITE_LEN),
            (16, 28, 20)
        );
        assert_eq!((TARGET_WRITE_LEN, ENTRY_WRITE_LEN), (36, 44));
        // The end of payload that needs no padding, and the message behind it.
        assert_eq!(trailer_len(4) + MESSAGE_LEN, 32);
    }

    #[test]
    fn empty_messages_are_read_by_the_verbs() {
        for crc in [false, true] {
            let mut inbound = Inbound::new(&established(crc));
            let mut octets = ready_to_receive(crc).to_vec();
            let Ok(Parse::Segment(segment)) = inbound.parse(&mut octets) else {
                panic!("no segment");
            };
            let write = Message::Write {
                stag: Stag::RTR,
                to: 0,
                last: true,
            };
            assert_eq!(segment.message, write);
            let answer = empty_read_response(7, 9, crc);
            let header = Tagged {
                last: true,
                opcode: Opcode::READ_RESPONSE,
                stag: Stag(7),
                to: 9,
            };
            assert_eq!(answer.to_vec(), reference(Header::Tagged(header), &[], crc));
        }
    }
}
