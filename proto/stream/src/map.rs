//! Memory that an end maps for the other one to write to.
//!
//! The end that maps writes an entry into a table of the other's, behind the targets that it gives there, and tells of
//! it by [`Word::Map`](crate::Word::Map). From then on the other may write there, by Writes that no message follows.

use weft_iwarp::Stag;

use crate::connection_data::{Target, TARGET_LEN};
use crate::fault::Fault;

/// Octets of an entry.
pub const ENTRY_LEN: usize = 8 + TARGET_LEN;
/// Entries of a table of ours at most. A multiple of 256, as the connection data tells such a number in units of that.
pub const ENTRIES_MAX: u16 = 1024;

/// A range of mapped memory. One of no octets is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Map {
    /// What whoever writes calls its first octet.
    pub offset: u64,
    /// Where it is.
    pub target: Target,
}

impl Map {
    /// As the end keeps it in whose table it is, in that end's order.
    pub fn to_octets(&self, big_endian: bool) -> [u8; ENTRY_LEN] {
        let mut octets = [0; ENTRY_LEN];
        let offset = match big_endian {
            true => self.offset.to_be_bytes(),
            false => self.offset.to_le_bytes(),
        };
        octets[..8].copy_from_slice(&offset);
        octets[8..].copy_from_slice(&self.target.to_octets(big_endian));
        octets
    }

    /// Reads what [`Map::to_octets`] wrote.
    pub fn from_octets(octets: [u8; ENTRY_LEN], big_endian: bool) -> Map {
        let (mut offset, mut target) = ([0; 8], [0; TARGET_LEN]);
        offset.copy_from_slice(&octets[..8]);
        target.copy_from_slice(&octets[8..]);
        Map {
            offset: match big_endian {
                true => u64::from_be_bytes(offset),
                false => u64::from_le_bytes(offset),
            },
            target: Target::from_octets(target, big_endian),
        }
    }

    /// Where a Write of the octet at `offset` goes, and how many octets there are from there on; nothing where it is
    /// not in here.
    pub fn place(&self, offset: u64) -> Option<(u64, u32)> {
        let at = offset.checked_sub(self.offset)?;
        let left = u64::from(self.target.len).checked_sub(at)?;
        (left > 0).then_some((self.target.to.wrapping_add(at), left as u32))
    }
}

/// Which octet of the memory behind `target` a Write of `len` octets at `to` begins with.
///
/// # Errors
/// It goes beyond that memory.
pub fn place_of_write(target: &Target, to: u64, len: u32) -> Result<usize, Fault> {
    let at = to.checked_sub(target.to);
    let fits = |at: &u64| at.saturating_add(len.into()) <= u64::from(target.len);
    let at = at.filter(fits).ok_or(Fault::Bounds {
        stag: Stag(target.stag),
        to,
        len,
    })?;
    Ok(at as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAP: Map = Map {
        offset: 1000,
        target: Target {
            to: 0x7000,
            stag: 9,
            len: 50,
        },
    };

    #[test]
    fn an_entry_is_what_rsockets_has_in_its_memory() {
        let octets = MAP.to_octets(false);
        assert_eq!(octets[..8], 1000u64.to_le_bytes());
        assert_eq!(octets[8..16], 0x7000u64.to_le_bytes());
        assert_eq!(octets[16..20], 9u32.to_le_bytes());
        assert_eq!(octets[20..], 50u32.to_le_bytes());
    }

    #[test]
    fn offsets_are_places_up_to_the_end() {
        assert_eq!(MAP.place(999), None);
        assert_eq!(MAP.place(1000), Some((0x7000, 50)));
        assert_eq!(MAP.place(1049), Some((0x7031, 1)));
        // rdma-core's riowrite goes on for ever at this one.
        assert_eq!(MAP.place(1050), None);
        assert_eq!(MAP.place(u64::MAX), None);
        assert_eq!(Map::default().place(0), None);
    }

    #[test]
    fn a_write_stays_within_its_memory() {
        let place = |to, len| place_of_write(&MAP.target, to, len).ok();
        assert_eq!(place(0x7000, 50), Some(0));
        assert_eq!(place(0x7031, 1), Some(49));
        for (to, len) in [
            (0x7000, 51),
            (0x7032, 1),
            (0x6fff, 1),
            (u64::MAX, 9),
            (0, u32::MAX),
        ] {
            assert_eq!(place(to, len), None, "{len} octets at {to:#x}");
        }
    }

    proptest! {
        #[test]
        fn entries_are_kept_in_either_order(octets: [u8; ENTRY_LEN], big_endian: bool) {
            prop_assert_eq!(Map::from_octets(octets, big_endian).to_octets(big_endian), octets);
        }
    }
}
