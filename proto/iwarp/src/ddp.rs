//! DDP segment headers with the RDMAP control octet inside them (RFC 5041 section 4, RFC 5040 section 4.1).

use crate::num::{Msn, Opcode, QueueNumber, Stag};
use crate::wire::{u32_at, u64_at};
use alloc::vec::Vec;
use core::fmt;

/// T of the DDP control octet: the segment is tagged.
pub(crate) const TAGGED: u8 = 0x80;
/// L of the DDP control octet: the last segment of its message.
const LAST: u8 = 0x40;
/// DV of the DDP control octet.
const DDP_VERSION: u8 = 0x03;
/// RV of the RDMAP control octet, as a shift.
const RDMAP_VERSION_SHIFT: u8 = 6;
/// The opcode bits of the RDMAP control octet.
const OPCODE: u8 = 0x0f;

/// The two version fields of a header. Weft sends and accepts 1 and 1 (IETF); RDMAC peers have 0 and 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// DV, two bits (RFC 5041 section 4.1).
    pub ddp: u8,
    /// RV, two bits (RFC 5040 section 4.1).
    pub rdmap: u8,
}

impl Versions {
    /// The versions of RFC 5040 and RFC 5041.
    pub const IETF: Versions = Versions { ddp: 1, rdmap: 1 };
}

impl Default for Versions {
    fn default() -> Versions {
        Versions::IETF
    }
}

/// The DDP and the RDMAP control octet of a header.
const fn controls(versions: Versions, flags: u8, last: bool, opcode: Opcode) -> [u8; 2] {
    let ddp = flags | if last { LAST } else { 0 } | (versions.ddp & DDP_VERSION);
    let rdmap = (versions.rdmap << RDMAP_VERSION_SHIFT) | (opcode.0 & OPCODE);
    [ddp, rdmap]
}

/// The control octets of an RDMA Write that is one segment, its reserved bits as a source leaves them.
pub(crate) const CONTROLS_OF_WHOLE_WRITE: [u8; 2] =
    controls(Versions::IETF, TAGGED, true, Opcode::WRITE);

/// Tagged header, 14 octets (RFC 5041 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// RDMAP opcode.
    pub opcode: Opcode,
    /// The data sink's region.
    pub stag: Stag,
    /// Tagged offset of the first payload octet of this segment.
    pub to: u64,
}

/// Untagged header, 18 octets (RFC 5041 section 4.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Untagged {
    /// L: the last segment of its message.
    pub last: bool,
    /// RDMAP opcode.
    pub opcode: Opcode,
    /// Bits 8 to 39 of RsvdULP: the STag to invalidate for the two opcodes that have one, else 0 and ignored.
    pub invalidate: u32,
    /// Which untagged queue.
    pub qn: QueueNumber,
    /// Which message of that queue; the same in every segment of a message.
    pub msn: Msn,
    /// Octets of the message before the first payload octet of this segment.
    pub mo: u32,
}

/// The header at the front of every ULPDU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Header {
    /// The payload goes where STag and TO say.
    Tagged(Tagged),
    /// The payload goes to a buffer of a queue.
    Untagged(Untagged),
}

impl Header {
    /// Octets of a tagged header.
    pub const TAGGED_LEN: usize = 14;
    /// Octets of an untagged header.
    pub const UNTAGGED_LEN: usize = 18;

    /// Octets of this header on the wire: 14 or 18.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        match self {
            Header::Tagged(_) => Header::TAGGED_LEN,
            Header::Untagged(_) => Header::UNTAGGED_LEN,
        }
    }

    /// The length of the header that begins with this DDP control octet.
    #[inline]
    pub(crate) const fn len_by_control(control: u8) -> usize {
        if control & TAGGED != 0 {
            Header::TAGGED_LEN
        } else {
            Header::UNTAGGED_LEN
        }
    }

    /// The RDMAP opcode.
    #[inline]
    pub const fn opcode(&self) -> Opcode {
        match self {
            Header::Tagged(h) => h.opcode,
            Header::Untagged(h) => h.opcode,
        }
    }

    /// L: the last segment of its message.
    #[inline]
    pub const fn last(&self) -> bool {
        match self {
            Header::Tagged(h) => h.last,
            Header::Untagged(h) => h.last,
        }
    }

    /// Appends the header, 14 or 18 octets, with DV = 1 and RV = 1.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_as(Versions::IETF, out);
    }

    /// Appends the header with these version fields, to hand a peer's header back as it came.
    #[inline]
    pub fn encode_as(&self, versions: Versions, out: &mut Vec<u8>) {
        // Lengths that the compiler knows: this is in the path of every message.
        match self {
            Header::Tagged(_) => {
                let mut octets = [0; Header::TAGGED_LEN];
                self.put_as(versions, &mut octets);
                out.extend_from_slice(&octets);
            }
            Header::Untagged(_) => {
                let mut octets = [0; Header::UNTAGGED_LEN];
                self.put_as(versions, &mut octets);
                out.extend_from_slice(&octets);
            }
        }
    }

    /// Appends ULPDU_Length and the header behind it, with DV = 1 and RV = 1: how every FPDU begins. In whole words,
    /// since this is in the path of every message.
    #[inline(always)]
    pub(crate) fn encode_behind(&self, ulpdu_len: u16, out: &mut Vec<u8>) {
        let (flags, opcode, word) = match self {
            Header::Tagged(h) => (TAGGED, h.opcode, h.stag.0),
            Header::Untagged(h) => (0, h.opcode, h.invalidate),
        };
        let [ddp, rdmap] = controls(Versions::IETF, flags, self.last(), opcode);
        let first = u64::from(ulpdu_len) << 48
            | u64::from(ddp) << 40
            | u64::from(rdmap) << 32
            | u64::from(word);
        match self {
            Header::Tagged(h) => {
                let mut octets = [0; 2 + Header::TAGGED_LEN];
                octets[..8].copy_from_slice(&first.to_be_bytes());
                octets[8..].copy_from_slice(&h.to.to_be_bytes());
                out.extend_from_slice(&octets);
            }
            Header::Untagged(h) => {
                let mut octets = [0; 2 + Header::UNTAGGED_LEN];
                let second = u64::from(h.qn.0) << 32 | u64::from(h.msn.0);
                octets[..8].copy_from_slice(&first.to_be_bytes());
                octets[8..16].copy_from_slice(&second.to_be_bytes());
                octets[16..].copy_from_slice(&h.mo.to_be_bytes());
                out.extend_from_slice(&octets);
            }
        }
    }

    /// Writes the header with DV = 1 and RV = 1 to the front of `out`.
    ///
    /// # Panics
    ///
    /// When `out` is shorter than [`Header::wire_len`].
    #[inline]
    pub fn put(&self, out: &mut [u8]) {
        self.put_as(Versions::IETF, out);
    }

    #[inline(always)]
    fn put_as(&self, versions: Versions, out: &mut [u8]) {
        let control = |flags, last, opcode| controls(versions, flags, last, opcode);
        match self {
            Header::Tagged(h) => {
                let octets = &mut out[..Header::TAGGED_LEN];
                octets[..2].copy_from_slice(&control(TAGGED, h.last, h.opcode));
                octets[2..6].copy_from_slice(&h.stag.0.to_be_bytes());
                octets[6..].copy_from_slice(&h.to.to_be_bytes());
            }
            Header::Untagged(h) => {
                let octets = &mut out[..Header::UNTAGGED_LEN];
                octets[..2].copy_from_slice(&control(0, h.last, h.opcode));
                octets[2..6].copy_from_slice(&h.invalidate.to_be_bytes());
                octets[6..10].copy_from_slice(&h.qn.0.to_be_bytes());
                octets[10..14].copy_from_slice(&h.msn.0.to_be_bytes());
                octets[14..].copy_from_slice(&h.mo.to_be_bytes());
            }
        }
    }

    /// Reads the header at the front of `octets`; the reserved bits are ignored, the versions not judged.
    /// `None` when there are fewer octets than the header has.
    #[inline(always)]
    pub fn decode(octets: &[u8]) -> Option<(Header, Versions)> {
        let control = *octets.first()?;
        let octets = octets.get(..Header::len_by_control(control))?;
        let rdmap = octets[1];
        let versions = Versions {
            ddp: control & DDP_VERSION,
            rdmap: rdmap >> RDMAP_VERSION_SHIFT,
        };
        let last = control & LAST != 0;
        let opcode = Opcode(rdmap & OPCODE);
        let header = if control & TAGGED != 0 {
            Header::Tagged(Tagged {
                last,
                opcode,
                stag: Stag(u32_at(octets, 2)),
                to: u64_at(octets, 6),
            })
        } else {
            Header::Untagged(Untagged {
                last,
                opcode,
                invalidate: u32_at(octets, 2),
                qn: QueueNumber(u32_at(octets, 6)),
                msn: Msn(u32_at(octets, 10)),
                mo: u32_at(octets, 14),
            })
        };
        Some((header, versions))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = if self.last() { ", last" } else { "" };
        match self {
            Header::Tagged(h) => write!(f, "{} STag {} TO 0x{:x}{last}", h.opcode, h.stag, h.to),
            Header::Untagged(h) => {
                write!(
                    f,
                    "{} QN {} MSN {} MO {}{last}",
                    h.opcode, h.qn, h.msn, h.mo
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn tagged()(last: bool, opcode in 0u8..16, stag: u32, to: u64) -> Header {
            Header::Tagged(Tagged { last, opcode: Opcode(opcode), stag: Stag(stag), to })
        }
    }

    prop_compose! {
        fn untagged()(last: bool, opcode in 0u8..16, invalidate: u32, qn: u32, msn: u32, mo: u32) -> Header {
            Header::Untagged(Untagged {
                last, opcode: Opcode(opcode), invalidate, qn: QueueNumber(qn), msn: Msn(msn), mo,
            })
        }
    }

    proptest! {
        #[test]
        fn round_trip(header in prop_oneof![tagged(), untagged()], ddp in 0u8..4, rdmap in 0u8..4) {
            let versions = Versions { ddp, rdmap };
            let mut octets = Vec::new();
            header.encode_as(versions, &mut octets);
            prop_assert_eq!(octets.len(), header.wire_len());
            prop_assert_eq!(Header::decode(&octets), Some((header, versions)));
            for cut in 0..octets.len() {
                prop_assert_eq!(Header::decode(&octets[..cut]), None);
            }
        }

        #[test]
        fn reserved_bits_are_ignored(header in prop_oneof![tagged(), untagged()], ddp in 0u8..16, rdmap in 0u8..4) {
            let mut octets = Vec::new();
            header.encode(&mut octets);
            octets[0] |= ddp << 2;
            octets[1] |= rdmap << 4;
            prop_assert_eq!(Header::decode(&octets), Some((header, Versions::IETF)));
        }
    }

    #[test]
    fn control_octets_of_the_standard() {
        let mut octets = Vec::new();
        let write = Tagged {
            last: true,
            opcode: Opcode::WRITE,
            stag: Stag(1),
            to: 0,
        };
        Header::Tagged(write).encode(&mut octets);
        assert_eq!(octets[..2], [0xc1, 0x40]);
    }
}
