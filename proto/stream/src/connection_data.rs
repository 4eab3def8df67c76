//! What each end of a stream says of itself in the private data of its MPA frame.
//!
//! The layout is rsockets' (40 octets, version 1): byte order, credits, and where the peer may write. The three octets
//! that rsockets sends as zero and does not read tell a Weft peer from others.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Octets of the connection data.
pub const CONNECTION_DATA_LEN: usize = 40;
/// Octets of a [`Target`] where the peer keeps it.
pub const TARGET_LEN: usize = 16;
/// Targets that each end keeps for its peer to write into, in turn.
pub const TARGETS: usize = 2;

const VERSION: u8 = 1;
const BIG_ENDIAN: u8 = 0x01;
const MAPS: u8 = 0x02;
const MARK_AT: usize = 4;
/// `W`, `F` and the version of what Weft peers do beyond rsockets.
const MARK: [u8; 3] = [b'W', b'F', 2];
const MAP_ENTRIES_AT: usize = 7;
/// Above this the number of entries is given in units of 256.
const MAP_ENTRIES_LITERAL_MAX: u8 = 128;

/// Memory of the one end that the other may write to.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Target {
    /// Tagged offset of its first octet.
    pub to: u64,
    /// STag.
    pub stag: u32,
    /// Octets.
    pub len: u32,
}

impl Target {
    /// In network order, as in the connection data.
    fn to_be_octets(self) -> [u8; TARGET_LEN] {
        self.to_octets(true)
    }

    /// In the order of the end that keeps it, as in its memory.
    pub fn to_octets(self, big_endian: bool) -> [u8; TARGET_LEN] {
        let mut octets = [0; TARGET_LEN];
        let (to, stag, len) = if big_endian {
            (
                self.to.to_be_bytes(),
                self.stag.to_be_bytes(),
                self.len.to_be_bytes(),
            )
        } else {
            (
                self.to.to_le_bytes(),
                self.stag.to_le_bytes(),
                self.len.to_le_bytes(),
            )
        };
        octets[..8].copy_from_slice(&to);
        octets[8..12].copy_from_slice(&stag);
        octets[12..].copy_from_slice(&len);
        octets
    }

    /// Reads what [`Target::to_octets`] wrote.
    pub fn from_octets(octets: [u8; TARGET_LEN], big_endian: bool) -> Target {
        let [to @ .., s0, s1, s2, s3, l0, l1, l2, l3] = octets;
        let (stag, len) = ([s0, s1, s2, s3], [l0, l1, l2, l3]);
        if big_endian {
            Target {
                to: u64::from_be_bytes(to),
                stag: u32::from_be_bytes(stag),
                len: u32::from_be_bytes(len),
            }
        } else {
            Target {
                to: u64::from_le_bytes(to),
                stag: u32::from_le_bytes(stag),
                len: u32::from_le_bytes(len),
            }
        }
    }

    /// The tagged offset behind its last octet; `None` where there is no such offset.
    pub fn end(self) -> Option<u64> {
        self.to.checked_add(u64::from(self.len))
    }
}

/// What one end says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionData {
    /// Its numbers that are copied as they lie in memory have the highest octet first.
    pub big_endian: bool,
    /// It is Weft, and does what Weft peers do beyond rsockets.
    pub weft: bool,
    /// The other end may map memory of its own for it ([`Word::Map`](crate::Word::Map)).
    pub maps: bool,
    /// Messages that it takes before it gives more credit.
    pub credits: u16,
    /// Entries of its table of mapped memory; above 128 a multiple of 256.
    pub map_entries: u16,
    /// Where it keeps the [`TARGETS`] that the other end may change. `len` counts targets, not octets.
    pub targets: Target,
    /// The first target of its own, for the stream's octets.
    pub data: Target,
}

/// Why octets are no connection data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionDataError {
    /// Too few octets.
    #[error("the private data has {0} octets, and rsockets sends {CONNECTION_DATA_LEN}")]
    Length(usize),
    /// Another version of the protocol.
    #[error("the peer speaks version {0} of rsockets' protocol, and this end version {VERSION}")]
    Version(u8),
    /// The peer keeps no targets, or the one it gave lies at the end of all offsets.
    #[error("the peer's {0} lies nowhere")]
    Target(Place),
}

/// Which memory of the connection data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Where it keeps targets.
    Targets,
    /// Where the stream's octets go.
    Data,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Targets => "list of targets",
            Place::Data => "first target",
        })
    }
}

impl ConnectionData {
    /// The octets on the wire. Entries of mapped memory are rounded down to what can be said.
    pub fn to_octets(&self) -> [u8; CONNECTION_DATA_LEN] {
        let mut octets = [0; CONNECTION_DATA_LEN];
        octets[0] = VERSION;
        octets[1] = if self.big_endian { BIG_ENDIAN } else { 0 } | if self.maps { MAPS } else { 0 };
        octets[2..4].copy_from_slice(&self.credits.to_be_bytes());
        if self.weft {
            octets[MARK_AT..MAP_ENTRIES_AT].copy_from_slice(&MARK);
        }
        octets[MAP_ENTRIES_AT] = scale(self.map_entries);
        octets[8..24].copy_from_slice(&self.targets.to_be_octets());
        octets[24..].copy_from_slice(&self.data.to_be_octets());
        octets
    }

    /// The same of an end that has a table of so many entries for what the other end maps.
    pub fn with_map_entries(self, entries: u16) -> ConnectionData {
        ConnectionData {
            maps: entries > 0,
            map_entries: entries,
            ..self
        }
    }

    /// Reads connection data. Octets behind it are ignored.
    ///
    /// # Errors
    /// The octets are none, or of a peer that nothing can be sent to.
    pub fn from_octets(octets: &[u8]) -> Result<ConnectionData, ConnectionDataError> {
        let whole = octets.first_chunk::<CONNECTION_DATA_LEN>();
        let octets = whole.ok_or(ConnectionDataError::Length(octets.len()))?;
        if octets[0] != VERSION {
            return Err(ConnectionDataError::Version(octets[0]));
        }
        let target = |at: usize| {
            let mut target = [0; TARGET_LEN];
            target.copy_from_slice(&octets[at..at + TARGET_LEN]);
            Target::from_octets(target, true)
        };
        let data = ConnectionData {
            big_endian: octets[1] & BIG_ENDIAN != 0,
            weft: octets[MARK_AT..MAP_ENTRIES_AT] == MARK,
            maps: octets[1] & MAPS != 0,
            credits: u16::from_be_bytes([octets[2], octets[3]]),
            map_entries: unscale(octets[MAP_ENTRIES_AT]),
            targets: target(8),
            data: target(24),
        };
        let list_octets = u64::from(data.targets.len) * TARGET_LEN as u64;
        if data.targets.len == 0 || data.targets.to.checked_add(list_octets).is_none() {
            return Err(ConnectionDataError::Target(Place::Targets));
        }
        if data.data.end().is_none() {
            return Err(ConnectionDataError::Target(Place::Data));
        }
        Ok(data)
    }
}

fn scale(entries: u16) -> u8 {
    match u8::try_from(entries) {
        Ok(entries) if entries <= MAP_ENTRIES_LITERAL_MAX => entries,
        Ok(_) => MAP_ENTRIES_LITERAL_MAX,
        Err(_) => 0x80 | (entries >> 8).min(0x7f) as u8,
    }
}

fn unscale(scaled: u8) -> u16 {
    if scaled <= MAP_ENTRIES_LITERAL_MAX {
        u16::from(scaled)
    } else {
        u16::from(scaled & 0x7f) << 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn target()(to in 0..u64::MAX - (1 << 40), stag: u32, len in 1u32..) -> Target {
            Target { to, stag, len }
        }
    }

    prop_compose! {
        fn data()(
            big_endian: bool, weft: bool, maps: bool, credits: u16,
            map_entries in prop_oneof![0u16..=128, (1u16..=127).prop_map(|blocks| blocks << 8)],
            targets in target(), data in target(),
        ) -> ConnectionData {
            ConnectionData { big_endian, weft, maps, credits, map_entries, targets, data }
        }
    }

    proptest! {
        #[test]
        fn round_trip(data in data(), behind in proptest::collection::vec(any::<u8>(), 0..9)) {
            let mut octets = data.to_octets().to_vec();
            octets.extend(behind);
            prop_assert_eq!(ConnectionData::from_octets(&octets), Ok(data));
        }

        #[test]
        fn targets_are_kept_in_either_order(target in target(), big_endian: bool) {
            prop_assert_eq!(Target::from_octets(target.to_octets(big_endian), big_endian), target);
        }

        #[test]
        fn anything_at_all_is_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = ConnectionData::from_octets(&octets);
        }
    }

    /// What librdmacm's rstream sends with its defaults.
    #[test]
    fn the_layout_is_rsockets() {
        let octets = [
            1, 0, 0x01, 0x80, 0, 0, 0, 0, // version, flags, 384 credits
            0, 0, 0x55, 0x55, 0xaa, 0xbb, 0xcc, 0x10, 0, 0, 0x12, 0x34, 0, 0, 0,
            2, // two targets
            0, 0, 0x7f, 0xff, 0, 0, 0x10, 0, 0, 0, 0x56, 0x78, 0, 1, 0, 0, // 65,536 octets
        ];
        let data = ConnectionData::from_octets(&octets).unwrap();
        assert!(!data.weft && !data.big_endian && !data.maps);
        assert_eq!(data.credits, 384);
        let targets = Target {
            to: 0x5555_aabb_cc10,
            stag: 0x1234,
            len: 2,
        };
        let first = Target {
            to: 0x7fff_0000_1000,
            stag: 0x5678,
            len: 65536,
        };
        assert_eq!((data.targets, data.data), (targets, first));
        assert_eq!(data.to_octets(), octets);
    }

    #[test]
    fn who_cannot_be_written_to_is_refused() {
        let good = ConnectionData {
            big_endian: false,
            weft: true,
            maps: false,
            credits: 1,
            map_entries: 0,
            targets: Target {
                to: 16,
                stag: 1,
                len: 2,
            },
            data: Target {
                to: 0,
                stag: 2,
                len: 1,
            },
        };
        let refusal =
            |data: ConnectionData| ConnectionData::from_octets(&data.to_octets()).unwrap_err();
        let mut none = good;
        none.targets.len = 0;
        assert_eq!(refusal(none), ConnectionDataError::Target(Place::Targets));
        let mut high = good;
        high.targets.to = u64::MAX - 31;
        assert_eq!(refusal(high), ConnectionDataError::Target(Place::Targets));
        let mut high = good;
        high.data.to = u64::MAX;
        assert_eq!(refusal(high), ConnectionDataError::Target(Place::Data));
        let mut octets = good.to_octets();
        assert_eq!(
            ConnectionData::from_octets(&octets[..39]),
            Err(ConnectionDataError::Length(39))
        );
        octets[0] = 2;
        assert_eq!(
            ConnectionData::from_octets(&octets),
            Err(ConnectionDataError::Version(2))
        );
    }
}
