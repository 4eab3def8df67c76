//! Markers: four octets at every 512th octet of the stream, each pointing back to the start of the FPDU it lies
//! in (RFC 5044 sections 4.2 and 4.3).
//!
//! Positions are stream offsets modulo 512, counted from the first octet of Full Operation. FPDUs and markers are
//! multiples of four octets long, so a marker never splits an aligned group of four, and no field of four octets.

use core::ops::Range;

/// Octets of a marker.
pub(crate) const LEN: usize = 4;
/// From the start of one marker to the start of the next.
pub(crate) const SPACING: usize = 512;
/// Other octets between two markers.
const GAP: usize = SPACING - LEN;

/// Octets of the marker in front of an FPDU that begins at `position`: that of the last FPDU's end belongs to
/// this one.
#[inline]
pub(crate) const fn leading(position: usize) -> usize {
    if position == 0 {
        LEN
    } else {
        0
    }
}

/// The markers inside an FPDU of `fpdu_len` octets whose ULPDU_Length is at `position`, which is not 0.
#[inline]
const fn inner(position: usize, fpdu_len: usize) -> usize {
    let before_first = SPACING - position;
    if fpdu_len <= before_first {
        0
    } else {
        1 + (fpdu_len - before_first - 1) / GAP
    }
}

/// Octets on the wire of an FPDU of `fpdu_len` octets, markers included, that begins at `position`.
#[inline]
pub(crate) const fn wire_len(position: usize, fpdu_len: usize) -> usize {
    let leading = leading(position);
    leading + fpdu_len + LEN * inner(position + leading, fpdu_len)
}

/// The position behind `octets` more octets.
#[inline]
pub(crate) const fn advance(position: usize, octets: usize) -> usize {
    (position + octets) % SPACING
}

/// The octets of a marker `distance` octets behind its ULPDU_Length.
#[inline]
fn octets(distance: usize) -> [u8; LEN] {
    let pointer = (distance as u16).to_be_bytes();
    [0, 0, pointer[0], pointer[1]]
}

/// Puts the inner markers into an FPDU. `fpdu` begins with ULPDU_Length at `position`, holds all but the CRC
/// field, and has room at its end for as many markers as [`inner`] says.
pub(crate) fn insert(fpdu: &mut [u8], position: usize, content_len: usize) {
    let before_first = SPACING - position;
    let mut end = content_len;
    for n in (0..inner(position, content_len + super::crc::CRC_LEN)).rev() {
        let start = before_first + n * GAP;
        let at = start + n * LEN;
        fpdu.copy_within(start..end, at + LEN);
        fpdu[at..at + LEN].copy_from_slice(&octets(at));
        end = start;
    }
}

/// Takes the inner markers out of a whole FPDU that begins with ULPDU_Length at `position`; its `fpdu_len` octets
/// then lie together at the front. False when a marker points elsewhere than to the front.
pub(crate) fn remove(fpdu: &mut [u8], position: usize, fpdu_len: usize) -> bool {
    let before_first = SPACING - position;
    for n in 0..inner(position, fpdu_len) {
        let start = before_first + n * GAP;
        let at = start + n * LEN;
        if !points_back(&fpdu[at..at + LEN], at) {
            return false;
        }
        let end = (start + GAP).min(fpdu_len);
        fpdu.copy_within(at + LEN..at + LEN + (end - start), start);
    }
    true
}

/// The octets between the inner markers of an FPDU that begins with ULPDU_Length at `position` and takes `wire_len`
/// octets from there on, markers included: ranges of those, in order.
pub(crate) fn runs(position: usize, wire_len: usize) -> impl Iterator<Item = Range<usize>> {
    let first = 0..(SPACING - position).min(wire_len);
    core::iter::successors(Some(first), move |before| {
        let start = before.end + LEN;
        (start < wire_len).then(|| start..(start + GAP).min(wire_len))
    })
}

/// Every inner marker of an FPDU points to its front, in the octets that Weft itself would write there. `fpdu` begins
/// with ULPDU_Length at `position`.
pub(crate) fn agree(fpdu: &[u8], position: usize) -> bool {
    (SPACING - position..fpdu.len())
        .step_by(SPACING)
        .all(|at| fpdu.get(at..at + LEN) == Some(&octets(at)))
}

/// The marker says that its FPDU began `distance` octets before it. Its two low bits count as 0, its reserved
/// half is not looked at.
pub(crate) fn points_back(marker: &[u8], distance: usize) -> bool {
    crate::wire::u16_at(marker, 2) & !3 == distance as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Lays the octets out one at a time, as the standard words it.
    fn slow_insert(content: &[u8], position: usize) -> Vec<u8> {
        let mut wire = Vec::new();
        for octet in content {
            if (position + wire.len()).is_multiple_of(SPACING) {
                wire.extend_from_slice(&octets(wire.len()));
            }
            wire.push(*octet);
        }
        wire
    }

    proptest! {
        #[test]
        fn insert_and_remove(len in 3usize..1000, position in 1usize..128, seed: u8) {
            let (len, position) = (4 * len, 4 * position);
            let content: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(7).wrapping_add(seed)).collect();
            let expected = slow_insert(&content, position);
            prop_assert_eq!(wire_len(position, len), expected.len());

            let mut wire = vec![0; expected.len() - 4];
            wire[..len - 4].copy_from_slice(&content[..len - 4]);
            insert(&mut wire, position, len - 4);
            wire.extend_from_slice(&content[len - 4..]);
            prop_assert_eq!(&wire, &expected);

            prop_assert!(agree(&wire, position));
            let between: Vec<u8> = runs(position, wire.len()).flat_map(|run| wire[run].to_vec()).collect();
            prop_assert_eq!(&between, &content);

            prop_assert!(remove(&mut wire, position, len));
            prop_assert_eq!(&wire[..len], &content[..]);
        }
    }

    #[test]
    fn a_marker_at_the_end_belongs_to_the_next_fpdu() {
        assert_eq!(wire_len(4, 508), 508);
        assert_eq!(wire_len(4, 512), 516);
        assert_eq!(wire_len(0, 508), 512);
    }

    #[test]
    fn low_bits_and_reserved_half_are_ignored() {
        assert!(points_back(&[0xff, 0xff, 0x01, 0xff], 0x1fc));
        assert!(!points_back(&[0, 0, 0x01, 0xf8], 0x1fc));
        let mut fpdu = vec![0; 516];
        fpdu[508..512].copy_from_slice(&[0, 0, 0x01, 0xfc]);
        assert!(agree(&fpdu, 4));
        fpdu[511] = 0xff;
        assert!(!agree(&fpdu, 4), "not what Weft writes");
    }
}
