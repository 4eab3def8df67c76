//! Immediate Data (RFC 7306 section 6, decision 0006).
//!
//! A write with immediate is an RDMA Write and an Immediate Data message behind it, which
//! consumes a receive. A send with immediate has no form in the RFC. Between Weft peers it is an
//! Immediate Data message *before* the Send, marked in the four octets that the 32-bit value
//! leaves: it consumes no receive, and its value is the next Send's.

use weft_iwarp::{Opcode, QueueNumber};

use super::framing::Framer;

/// The lower half of Immediate Data that belongs to the Send behind it.
const JOINED: u32 = 0x5745_4654;

/// The octets of a value that consumes a receive of the peer's.
pub(super) const fn of_write(imm: u32) -> u64 {
    (imm as u64) << 32
}

/// The octets of a value that the next Send brings.
pub(super) const fn of_next_send(imm: u32) -> u64 {
    of_write(imm) | JOINED as u64
}

/// The value that octets have.
pub(super) const fn value(octets: u64) -> u32 {
    (octets >> 32) as u32
}

/// Whether the value is the next Send's, if a Weft peer sent it.
pub(super) const fn is_of_next_send(octets: u64) -> bool {
    octets as u32 == JOINED
}

/// Frames Immediate Data.
pub(super) fn frame(opcode: Opcode, octets: u64, framer: &mut Framer<'_>) {
    let qn = QueueNumber::SEND;
    let msn = framer.next_msn(qn);
    framer.message(opcode, qn, msn, &octets.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stands_in_the_upper_half_and_the_mark_in_the_lower() {
        for imm in [0, 1, JOINED, u32::MAX] {
            assert_eq!(value(of_write(imm)), imm);
            assert_eq!(value(of_next_send(imm)), imm);
            assert!(is_of_next_send(of_next_send(imm)) && !is_of_next_send(of_write(imm)));
        }
    }
}
