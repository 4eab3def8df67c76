//! RDMAP headers behind the DDP header: Read Request (RFC 5040 section 4.4), Immediate Data and atomic
//! operations (RFC 7306 sections 5 and 6). All fields are big-endian.

use crate::num::Stag;
use crate::wire::{u32_at, u64_at};
use alloc::vec::Vec;

/// Octets of an Immediate Data header (RFC 7306 section 6.1).
pub const IMMEDIATE_LEN: usize = 8;

/// RDMA Read Request header, 28 octets (RFC 5040 section 4.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadRequest {
    /// The requester's region; comes back uninterpreted in the Read Response.
    pub sink_stag: Stag,
    /// Where in the requester's region.
    pub sink_to: u64,
    /// Octets to read. With 0 the source is not checked and the response is empty.
    pub size: u32,
    /// The responder's region.
    pub source_stag: Stag,
    /// Where in the responder's region.
    pub source_to: u64,
}

impl ReadRequest {
    /// Octets on the wire.
    pub const WIRE_LEN: usize = 28;

    /// The 28 octets.
    #[inline]
    pub fn to_octets(&self) -> [u8; ReadRequest::WIRE_LEN] {
        let mut octets = [0; ReadRequest::WIRE_LEN];
        octets[..4].copy_from_slice(&self.sink_stag.0.to_be_bytes());
        octets[4..12].copy_from_slice(&self.sink_to.to_be_bytes());
        octets[12..16].copy_from_slice(&self.size.to_be_bytes());
        octets[16..20].copy_from_slice(&self.source_stag.0.to_be_bytes());
        octets[20..28].copy_from_slice(&self.source_to.to_be_bytes());
        octets
    }

    /// Appends the 28 octets.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_octets());
    }

    /// Reads the header at the front of `octets`; `None` when there are fewer than 28.
    #[inline]
    pub fn decode(octets: &[u8]) -> Option<ReadRequest> {
        let octets = octets.get(..ReadRequest::WIRE_LEN)?;
        Some(ReadRequest {
            sink_stag: Stag(u32_at(octets, 0)),
            sink_to: u64_at(octets, 4),
            size: u32_at(octets, 12),
            source_stag: Stag(u32_at(octets, 16)),
            source_to: u64_at(octets, 20),
        })
    }
}

/// What an Atomic Request does with the 64-bit value at its target (RFC 7306 section 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AtomicOperation {
    /// Adds. A one bit in the mask marks the most significant bit of a field, where the carry is dropped.
    FetchAdd {
        /// What to add.
        add: u64,
        /// Field boundaries; 0 is a plain 64-bit addition.
        mask: u64,
    },
    /// Swaps the masked bits if the masked bits compare equal.
    CompareSwap {
        /// New bits.
        swap: u64,
        /// Which bits to replace.
        swap_mask: u64,
        /// Expected bits.
        compare: u64,
        /// Which bits to compare.
        compare_mask: u64,
    },
}

impl AtomicOperation {
    const FETCH_ADD: u32 = 0;
    const COMPARE_SWAP: u32 = 2;

    /// The value the target holds afterwards when it held `old` before.
    pub const fn apply(&self, old: u64) -> u64 {
        match *self {
            AtomicOperation::FetchAdd { add, mask } => masked_add(old, add, mask),
            AtomicOperation::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => {
                if (compare ^ old) & compare_mask == 0 {
                    (old & !swap_mask) | (swap & swap_mask)
                } else {
                    old
                }
            }
        }
    }
}

/// Adds in fields whose most significant bits are the ones of `mask`.
const fn masked_add(old: u64, add: u64, mask: u64) -> u64 {
    // With the top bit of each field cleared no carry can leave a field: it stands in the top bit's place, and
    // the top bits themselves are added by exclusive or.
    let low = (old & !mask).wrapping_add(add & !mask);
    low ^ ((old ^ add) & mask)
}

/// Atomic Request header, 52 octets (RFC 7306 section 5.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicRequest {
    /// What to do.
    pub operation: AtomicOperation,
    /// The requester's choice; echoed in the response.
    pub identifier: u32,
    /// The responder's region.
    pub stag: Stag,
    /// Where in the region; must name a 64-bit aligned address.
    pub to: u64,
}

impl AtomicRequest {
    /// Octets on the wire.
    pub const WIRE_LEN: usize = 52;

    /// The 52 octets.
    pub fn to_octets(&self) -> [u8; AtomicRequest::WIRE_LEN] {
        let (code, words) = match self.operation {
            AtomicOperation::FetchAdd { add, mask } => {
                (AtomicOperation::FETCH_ADD, [add, mask, 0, u64::MAX])
            }
            AtomicOperation::CompareSwap {
                swap,
                swap_mask,
                compare,
                compare_mask,
            } => (
                AtomicOperation::COMPARE_SWAP,
                [swap, swap_mask, compare, compare_mask],
            ),
        };
        let mut octets = [0; AtomicRequest::WIRE_LEN];
        octets[..4].copy_from_slice(&code.to_be_bytes());
        octets[4..8].copy_from_slice(&self.identifier.to_be_bytes());
        octets[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        octets[12..20].copy_from_slice(&self.to.to_be_bytes());
        for (word, place) in words.iter().zip(octets[20..].as_chunks_mut::<8>().0) {
            *place = word.to_be_bytes();
        }
        octets
    }

    /// Reads the header at the front of `octets`; `None` when there are fewer than 52 or the operation is one
    /// RFC 7306 reserves.
    pub fn decode(octets: &[u8]) -> Option<AtomicRequest> {
        let octets = octets.get(..AtomicRequest::WIRE_LEN)?;
        let word = |n: usize| u64_at(octets, 20 + 8 * n);
        let operation = match u32_at(octets, 0) & 0xf {
            AtomicOperation::FETCH_ADD => AtomicOperation::FetchAdd {
                add: word(0),
                mask: word(1),
            },
            AtomicOperation::COMPARE_SWAP => AtomicOperation::CompareSwap {
                swap: word(0),
                swap_mask: word(1),
                compare: word(2),
                compare_mask: word(3),
            },
            _ => return None,
        };
        Some(AtomicRequest {
            operation,
            identifier: u32_at(octets, 4),
            stag: Stag(u32_at(octets, 8)),
            to: u64_at(octets, 12),
        })
    }
}

/// Atomic Response header, 12 octets (RFC 7306 section 5.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicResponse {
    /// The identifier of the request.
    pub identifier: u32,
    /// What the target held before.
    pub original: u64,
}

impl AtomicResponse {
    /// Octets on the wire.
    pub const WIRE_LEN: usize = 12;

    /// The 12 octets.
    pub fn to_octets(&self) -> [u8; AtomicResponse::WIRE_LEN] {
        let mut octets = [0; AtomicResponse::WIRE_LEN];
        octets[..4].copy_from_slice(&self.identifier.to_be_bytes());
        octets[4..].copy_from_slice(&self.original.to_be_bytes());
        octets
    }

    /// Reads the header at the front of `octets`; `None` when there are fewer than 12.
    pub fn decode(octets: &[u8]) -> Option<AtomicResponse> {
        let octets = octets.get(..AtomicResponse::WIRE_LEN)?;
        Some(AtomicResponse {
            identifier: u32_at(octets, 0),
            original: u64_at(octets, 4),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn operation() -> impl Strategy<Value = AtomicOperation> {
        prop_oneof![
            any::<(u64, u64)>().prop_map(|(add, mask)| AtomicOperation::FetchAdd { add, mask }),
            any::<[u64; 4]>().prop_map(|[swap, swap_mask, compare, compare_mask]| {
                AtomicOperation::CompareSwap {
                    swap,
                    swap_mask,
                    compare,
                    compare_mask,
                }
            }),
        ]
    }

    /// Field-wise addition, one field after the other, as RFC 7306 section 5.1.1 words it.
    fn slow_masked_add(old: u64, add: u64, mask: u64) -> u64 {
        let (mut sum, mut carry) = (0, 0);
        for bit in 0..64 {
            let total = ((old >> bit) & 1) + ((add >> bit) & 1) + carry;
            sum |= (total & 1) << bit;
            carry = if (mask >> bit) & 1 == 1 {
                0
            } else {
                total >> 1
            };
        }
        sum
    }

    proptest! {
        #[test]
        fn read_request_round_trip(sink: u32, sink_to: u64, size: u32, source: u32, source_to: u64) {
            let request = ReadRequest {
                sink_stag: Stag(sink), sink_to, size, source_stag: Stag(source), source_to,
            };
            let octets = request.to_octets();
            prop_assert_eq!(ReadRequest::decode(&octets), Some(request));
            prop_assert_eq!(ReadRequest::decode(&octets[..27]), None);
        }

        #[test]
        fn atomic_request_round_trip(operation in operation(), identifier: u32, stag: u32, to: u64) {
            let request = AtomicRequest { operation, identifier, stag: Stag(stag), to };
            let octets = request.to_octets();
            prop_assert_eq!(AtomicRequest::decode(&octets), Some(request));
            prop_assert_eq!(AtomicRequest::decode(&octets[..51]), None);
        }

        #[test]
        fn atomic_response_round_trip(identifier: u32, original: u64) {
            let response = AtomicResponse { identifier, original };
            let octets = response.to_octets();
            prop_assert_eq!(AtomicResponse::decode(&octets), Some(response));
            prop_assert_eq!(AtomicResponse::decode(&octets[..11]), None);
        }

        #[test]
        fn fetch_add_adds_in_fields(old: u64, add: u64, mask: u64) {
            let operation = AtomicOperation::FetchAdd { add, mask };
            prop_assert_eq!(operation.apply(old), slow_masked_add(old, add, mask));
        }
    }

    #[test]
    fn reserved_atomic_operation_is_refused() {
        let mut octets = [0; AtomicRequest::WIRE_LEN];
        octets[3] = 1;
        assert_eq!(AtomicRequest::decode(&octets), None);
    }

    #[test]
    fn compare_swap_looks_at_masked_bits_only() {
        let operation = AtomicOperation::CompareSwap {
            swap: 0xffff,
            swap_mask: 0x00f0,
            compare: 0x1234_0004,
            compare_mask: 0x0f,
        };
        assert_eq!(operation.apply(0x9904), 0x99f4);
        assert_eq!(operation.apply(0x9905), 0x9905);
    }
}
