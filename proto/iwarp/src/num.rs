//! Numbers of the wire that must not be mixed up.

use core::fmt;

/// Steering tag: names a registered memory region or window (RFC 5041 section 4.2).
///
/// The RFCs give it no structure; the verbs split it into a 24-bit index and an 8-bit key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stag(pub u32);

impl Stag {
    /// The STag of every ready-to-receive FPDU Weft sends. Some RNICs fail any tagged segment with STag 0, an
    /// empty one too.
    pub const RTR: Stag = Stag(1);

    /// The upper 24 bits: which region.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 >> 8
    }

    /// The lower 8 bits: the consumer's key.
    #[inline]
    pub const fn key(self) -> u8 {
        self.0 as u8
    }
}

impl fmt::Display for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

impl fmt::Debug for Stag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stag(0x{:08x})", self.0)
    }
}

/// Message sequence number of one untagged queue in one direction (RFC 5041 section 4.3).
///
/// Counts messages, not segments, and wraps from 0xFFFFFFFF to 0; hence no order on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Msn(pub u32);

impl Msn {
    /// The number of the first message on every queue.
    pub const FIRST: Msn = Msn(1);

    /// The number of the message after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Msn {
        Msn(self.0.wrapping_add(1))
    }
}

impl fmt::Display for Msn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Untagged queue number (RFC 5041 section 4.3; the assignments are RFC 5040's and RFC 7306's).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QueueNumber(pub u32);

impl QueueNumber {
    /// The Send family and Immediate Data.
    pub const SEND: QueueNumber = QueueNumber(0);
    /// RDMA Read Requests and Atomic Requests.
    pub const READ_REQUEST: QueueNumber = QueueNumber(1);
    /// Terminate.
    pub const TERMINATE: QueueNumber = QueueNumber(2);
    /// Atomic Responses.
    pub const ATOMIC_RESPONSE: QueueNumber = QueueNumber(3);
    /// How many queues have a use.
    pub(crate) const COUNT: usize = 4;
}

impl fmt::Display for QueueNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// RDMAP opcode, four bits (RFC 5040 section 4.3, RFC 7306 section 4.1). Open: any value can arrive.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Opcode(pub u8);

impl Opcode {
    /// RDMA Write.
    pub const WRITE: Opcode = Opcode(0x0);
    /// RDMA Read Request.
    pub const READ_REQUEST: Opcode = Opcode(0x1);
    /// RDMA Read Response.
    pub const READ_RESPONSE: Opcode = Opcode(0x2);
    /// Send.
    pub const SEND: Opcode = Opcode(0x3);
    /// Send with Invalidate.
    pub const SEND_INVALIDATE: Opcode = Opcode(0x4);
    /// Send with Solicited Event.
    pub const SEND_SOLICITED: Opcode = Opcode(0x5);
    /// Send with Solicited Event and Invalidate.
    pub const SEND_SOLICITED_INVALIDATE: Opcode = Opcode(0x6);
    /// Terminate.
    pub const TERMINATE: Opcode = Opcode(0x7);
    /// Immediate Data.
    pub const IMMEDIATE: Opcode = Opcode(0x8);
    /// Immediate Data with Solicited Event.
    pub const IMMEDIATE_SOLICITED: Opcode = Opcode(0x9);
    /// Atomic Request.
    pub const ATOMIC_REQUEST: Opcode = Opcode(0xA);
    /// Atomic Response.
    pub const ATOMIC_RESPONSE: Opcode = Opcode(0xB);

    /// The Send opcode with these two properties.
    #[inline]
    pub const fn send(solicited: bool, invalidate: bool) -> Opcode {
        match (solicited, invalidate) {
            (false, false) => Opcode::SEND,
            (false, true) => Opcode::SEND_INVALIDATE,
            (true, false) => Opcode::SEND_SOLICITED,
            (true, true) => Opcode::SEND_SOLICITED_INVALIDATE,
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Opcode::WRITE => "RDMA Write",
            Opcode::READ_REQUEST => "RDMA Read Request",
            Opcode::READ_RESPONSE => "RDMA Read Response",
            Opcode::SEND => "Send",
            Opcode::SEND_INVALIDATE => "Send with Invalidate",
            Opcode::SEND_SOLICITED => "Send with Solicited Event",
            Opcode::SEND_SOLICITED_INVALIDATE => "Send with Solicited Event and Invalidate",
            Opcode::TERMINATE => "Terminate",
            Opcode::IMMEDIATE => "Immediate Data",
            Opcode::IMMEDIATE_SOLICITED => "Immediate Data with Solicited Event",
            Opcode::ATOMIC_REQUEST => "Atomic Request",
            Opcode::ATOMIC_RESPONSE => "Atomic Response",
            Opcode(other) => return write!(f, "opcode 0x{other:x}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn stag_splits_into_index_and_key() {
        let stag = Stag(0xcafe_01a5);
        assert_eq!((stag.index(), stag.key()), (0x00ca_fe01, 0xa5));
        assert_eq!(stag.to_string(), "0xcafe01a5");
    }

    #[test]
    fn msn_wraps_to_zero() {
        assert_eq!(Msn(u32::MAX).next(), Msn(0));
        assert_eq!(Msn::FIRST.next(), Msn(2));
    }

    #[test]
    fn send_opcodes() {
        assert_eq!(Opcode::send(false, false).0, 3);
        assert_eq!(Opcode::send(false, true).0, 4);
        assert_eq!(Opcode::send(true, false).0, 5);
        assert_eq!(Opcode::send(true, true).0, 6);
        assert_eq!(Opcode(0xf).to_string(), "opcode 0xf");
    }
}
