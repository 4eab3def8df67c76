//! A whole FPDU in octets of the stream: how many octets it takes, and whether its CRC is right (RFC 5044 section 4).
//!
//! Nothing of the stream is needed for that but the position modulo the marker spacing, so it can be asked of octets in
//! order and ahead of it.

use super::crc::{crc32c, CRC_LEN};
use super::fpdu::{fpdu_len, LENGTH_LEN};
use super::marker;
use crate::wire::u16_at;

/// How many octets an FPDU takes, by its ULPDU_Length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lengths {
    /// Octets of the marker in front of it.
    pub(crate) leading: usize,
    /// ULPDU_Length.
    pub(crate) ulpdu_len: u16,
    /// Octets without any marker.
    pub(crate) fpdu_len: usize,
    /// Octets with all of its markers.
    pub(crate) wire_len: usize,
}

impl Lengths {
    /// Of the FPDU at the front of `octets`, which is at `position` of the stream modulo the marker spacing. The error
    /// is how many octets it takes to say that.
    #[inline(always)]
    pub(crate) fn of(markers: bool, position: usize, octets: &[u8]) -> Result<Lengths, usize> {
        let leading = if markers {
            marker::leading(position)
        } else {
            0
        };
        let Some(length) = octets.get(leading..leading + LENGTH_LEN) else {
            return Err(leading + LENGTH_LEN);
        };
        let ulpdu_len = u16_at(length, 0);
        let fpdu_len = fpdu_len(usize::from(ulpdu_len));
        let wire_len = if markers {
            marker::wire_len(position, fpdu_len)
        } else {
            fpdu_len
        };
        Ok(Lengths {
            leading,
            ulpdu_len,
            fpdu_len,
            wire_len,
        })
    }
}

/// The last four octets are the CRC of those before. While fuzzing every CRC is right, or nothing behind it would
/// ever be reached.
#[inline]
#[allow(unexpected_cfgs, reason = "the fuzzer's build sets it")]
pub(crate) fn crc_matches(wire: &[u8]) -> bool {
    let (covered, field) = wire.split_at(wire.len() - CRC_LEN);
    cfg!(fuzzing) || crc32c(covered).to_le_bytes() == field
}
