//! CRC32c as MPA uses it (RFC 5044 section 4.4): the iSCSI digest, on the wire least significant octet first.
//!
//! Two crates share the work on x86-64, because neither is fastest everywhere: `crc-fast` folds with carry-less
//! multiplication and wins on short FPDUs and, with AVX-512, on all; `crc32c` interleaves three streams of the
//! SSE 4.2 instruction and wins on long FPDUs of CPUs without AVX-512. Without the feature `std`, which asks the
//! CPU what it can do, a table is used.

/// Octets of the CRC field.
pub const CRC_LEN: usize = 4;

/// CRC32c of `octets`; `to_le_bytes` gives the order of the wire.
#[inline]
pub fn crc32c(octets: &[u8]) -> u32 {
    imp::crc32c(octets)
}

/// Finds out what the CPU can do, which else the first CRC does. A process that may fork calls this before it has a
/// second thread: `crc-fast` finds it out under a lock, and a child that is forked amid that, by another thread, would
/// wait for ever for a thread that it does not have.
#[inline]
pub fn prepare() {
    core::hint::black_box(crc32c(b"weft"));
}

/// CRC32c of octets that come in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// The CRC of nothing yet.
    #[inline]
    pub const fn new() -> Crc {
        Crc(0)
    }

    /// Takes the next octets.
    #[inline]
    pub fn update(&mut self, octets: &[u8]) {
        self.0 = imp::append(self.0, octets);
    }

    /// The CRC of all octets taken; `to_le_bytes` gives the order of the wire.
    #[inline]
    pub const fn finish(self) -> u32 {
        self.0
    }
}

#[cfg(feature = "std")]
mod imp {
    use crc_fast::{crc32_iscsi, CrcAlgorithm, Digest};

    /// From here on the interleaved SSE 4.2 code is ahead of 128-bit folding.
    #[cfg(target_arch = "x86_64")]
    const LONG: usize = 512;

    #[inline]
    pub(super) fn crc32c(octets: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if octets.len() >= LONG && !folds_wide() {
            return crc32c::crc32c(octets);
        }
        crc32_iscsi(octets)
    }

    #[inline]
    pub(super) fn append(crc: u32, octets: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if !folds_wide() {
            return crc32c::crc32c_append(crc, octets);
        }
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
        digest.update(octets);
        digest.finalize() as u32
    }

    /// `crc-fast` uses 512-bit carry-less multiplication on this CPU.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn folds_wide() -> bool {
        std::is_x86_feature_detected!("avx512vl") && std::is_x86_feature_detected!("vpclmulqdq")
    }
}

#[cfg(not(feature = "std"))]
use portable as imp;

/// Eight octets at a time by table, for any CPU.
#[cfg(any(test, not(feature = "std")))]
mod portable {
    /// The polynomial 0x1EDC6F41, reflected.
    const POLYNOMIAL: u32 = 0x82f6_3b78;

    /// `TABLES[n][octet]`: what `octet` contributes when `n` more octets follow it.
    static TABLES: [[u32; 256]; 8] = tables();

    const fn tables() -> [[u32; 256]; 8] {
        let mut tables = [[0; 256]; 8];
        let mut octet = 0;
        while octet < 256 {
            let mut crc = octet as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
                bit += 1;
            }
            tables[0][octet] = crc;
            octet += 1;
        }
        let mut n = 1;
        while n < 8 {
            octet = 0;
            while octet < 256 {
                let before = tables[n - 1][octet];
                tables[n][octet] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
                octet += 1;
            }
            n += 1;
        }
        tables
    }

    #[cfg_attr(feature = "std", allow(dead_code, reason = "the tests use append"))]
    pub(super) fn crc32c(octets: &[u8]) -> u32 {
        append(0, octets)
    }

    pub(super) fn append(crc: u32, octets: &[u8]) -> u32 {
        let mut crc = !crc;
        let (words, rest) = octets.as_chunks::<8>();
        for word in words {
            let mut folded = 0;
            for (n, octet) in word.iter().enumerate() {
                let mixed = octet ^ crc.to_le_bytes().get(n).copied().unwrap_or(0);
                folded ^= TABLES[7 - n][usize::from(mixed)];
            }
            crc = folded;
        }
        for octet in rest {
            crc = (crc >> 8) ^ TABLES[0][usize::from(crc as u8 ^ octet)];
        }
        !crc
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// RFC 7143 appendix A.4 and the customary check value, with the octets in the order of the wire.
    #[test]
    fn published_values() {
        let read_10: [u8; 48] = {
            let mut pdu = [0; 48];
            pdu[..2].copy_from_slice(&[0x01, 0xc0]);
            (pdu[16], pdu[22], pdu[27], pdu[31], pdu[32]) = (0x14, 0x04, 0x14, 0x18, 0x28);
            pdu[40] = 0x02;
            pdu
        };
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        let table: [(&[u8], u32, [u8; 4]); 6] = [
            (b"123456789", 0xe306_9283, [0x83, 0x92, 0x06, 0xe3]),
            (&[0; 32], 0x8a91_36aa, [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], 0x62a8_ab43, [0x43, 0xab, 0xa8, 0x62]),
            (&rising, 0x46dd_794e, [0x4e, 0x79, 0xdd, 0x46]),
            (&falling, 0x113f_db5c, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read_10, 0xd996_3a56, [0x56, 0x3a, 0x96, 0xd9]),
        ];
        for (octets, value, wire) in table {
            assert_eq!(crc32c(octets), value);
            assert_eq!(crc32c(octets).to_le_bytes(), wire);
            assert_eq!(portable::append(0, octets), value);
        }
    }

    proptest! {
        /// Every implementation agrees, on both sides of the length where the fast path changes over.
        #[test]
        fn implementations_agree(octets in proptest::collection::vec(any::<u8>(), 0..3000), cut: prop::sample::Index) {
            let cut = cut.index(octets.len() + 1);
            let whole = crc32c(&octets);
            prop_assert_eq!(portable::append(0, &octets), whole);
            let mut pieces = Crc::new();
            pieces.update(&octets[..cut]);
            pieces.update(&octets[cut..]);
            prop_assert_eq!(pieces.finish(), whole);
        }
    }
}
