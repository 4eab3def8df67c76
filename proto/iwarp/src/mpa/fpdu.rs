//! Sizes of FPDUs (RFC 5044 sections 4.1 and 4.5).

pub use super::crc::{crc32c, Crc, CRC_LEN};

/// Octets of the ULPDU_Length field.
pub const LENGTH_LEN: usize = 2;

/// The longest ULPDU a sender may make (RFC 5044 section 3). A receiver takes up to 65535.
pub const MAX_ULPDU: usize = 64768;

/// The smallest MULPDU, whatever the EMSS (RFC 5044 section 3).
pub const MIN_MULPDU: usize = 128;

/// The most octets one FPDU can take on the wire: ULPDU_Length 65535 and 130 markers. A receive buffer of this
/// size always holds what [`crate::Inbound::parse`] asks for.
pub const MAX_FPDU: usize = fpdu_len(u16::MAX as usize) + 130 * super::marker::LEN;

/// Octets of padding behind a ULPDU: the FPDU becomes a multiple of four.
#[inline]
pub const fn pad_len(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() & 3
}

/// Octets of an FPDU without markers: length, ULPDU, padding, CRC.
#[inline]
pub const fn fpdu_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad_len(ulpdu_len) + CRC_LEN
}

/// The largest ULPDU whose FPDU fits one TCP segment of `emss` octets, within the limits of the standard (RFC
/// 5044 section 4.5).
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    let markers = if markers {
        super::marker::LEN * emss.div_ceil(super::marker::SPACING)
    } else {
        0
    };
    let mulpdu = emss.saturating_sub(LENGTH_LEN + CRC_LEN + markers + emss % 4);
    if mulpdu < MIN_MULPDU {
        MIN_MULPDU
    } else if mulpdu > MAX_ULPDU {
        MAX_ULPDU
    } else {
        mulpdu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_makes_multiples_of_four() {
        assert_eq!([0, 1, 2, 3].map(pad_len), [2, 1, 0, 3]);
        for len in 14..2000 {
            assert_eq!(fpdu_len(len) % 4, 0);
            assert!(pad_len(len) < 4);
        }
        assert_eq!(fpdu_len(14), 20);
        assert_eq!(fpdu_len(65535), 65544);
    }

    /// The table of the wire reference; its first column is the EMSS.
    #[test]
    fn mulpdu_of_common_paths() {
        let table = [
            (536, 530, 522),
            (1440, 1434, 1422),
            (1448, 1442, 1430),
            (1460, 1454, 1442),
            (1461, 1454, 1442),
            (8948, 8942, 8870),
            (8960, 8954, 8882),
            (65483, 64768, 64768),
            (100, 128, 128),
            (0, 128, 128),
        ];
        for (emss, off, on) in table {
            assert_eq!(
                (mulpdu(emss, false), mulpdu(emss, true)),
                (off, on),
                "EMSS {emss}"
            );
        }
    }

    /// An FPDU of MULPDU octets fits the segment it is made for, wherever the markers fall.
    #[test]
    fn mulpdu_fits_the_segment() {
        for emss in 140..9000 {
            assert!(fpdu_len(mulpdu(emss, false)) <= emss);
            let len = fpdu_len(mulpdu(emss, true));
            for position in (0..512).step_by(4) {
                assert!(
                    crate::mpa::marker::wire_len(position, len) <= emss,
                    "{emss} at {position}"
                );
            }
        }
    }
}
