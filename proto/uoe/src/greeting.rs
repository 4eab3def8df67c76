//! What both ends say first on a carrier.
//!
//! | octets | what |
//! | --- | --- |
//! | 0..8 | `WeftUOE` and a zero |
//! | 8 | the lowest version that the end speaks: 1 |
//! | 9 | the highest |
//! | 10 | bit 0: it takes segments in any order; 1: UDP does not pass ([`Greeting::without_udp`]); 2: it wants times |
//! | 11 | 0; not looked at |
//! | 12..14 | the UDP port that the connecting end wants to reach first; 0 from the other |
//! | 14..16 | 0; not looked at |
//! | 16..24 | instance: random bits of the process, another one after each start |
//! | 24..32 | what was agreed on for this carrier's use: carriers of other uses are others |
//! | 32..48 | nonce: random bits of this end and this carrier |
//! | 48..64 | the address that the connecting end wants to reach, as IPv6 |
//!
//! Numbers are in network order. Frames follow, in the highest version that both speak.

use core::net::{IpAddr, Ipv6Addr};

use crate::end::End;
use crate::frame::Key;

/// Octets of a greeting.
pub const GREETING_LEN: usize = 64;

const MAGIC: [u8; 8] = *b"WeftUOE\0";
const VERSION: u8 = 1;
const TAKES_ANY_ORDER: u8 = 1;
const WITHOUT_UDP: u8 = 2;
const WANTS_TIMES: u8 = 4;

/// Which process: random bits that it drew when it began.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Instance(pub u64);

/// Random bits that nobody knows but the two ends.
pub type Nonce = [u8; 16];

/// What an end says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// Its process.
    pub instance: Instance,
    /// Its nonce for this carrier.
    pub nonce: Nonce,
    /// Carriers between two processes are shared by what has the same policy.
    pub policy: u64,
    /// It takes segments in any order, so what is sent to it begins each segment with a frame.
    pub takes_any_order: bool,
    /// What is too old is of no use to it: what is sent to it in any order has the time before it.
    pub wants_times: bool,
    /// Where UDP does not pass, no end can prove by it which address it has. If both ends say so, the address of the
    /// carrier counts, with the port that is claimed.
    pub without_udp: bool,
    /// Of the connecting end: whom it wants to reach.
    pub wanted: Option<End>,
}

/// Why octets are no greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoGreeting {
    /// Something else speaks there.
    #[error("what was said first is not of Weft")]
    Foreign,
    /// No version that both speak.
    #[error(
        "the other end speaks versions {0} to {1} of datagrams over carriers, this one {VERSION}"
    )]
    Version(u8, u8),
}

impl Greeting {
    /// The octets on the wire.
    pub fn to_octets(&self) -> [u8; GREETING_LEN] {
        let mut octets = [0; GREETING_LEN];
        octets[..8].copy_from_slice(&MAGIC);
        octets[8..10].copy_from_slice(&[VERSION, VERSION]);
        let any_order = u8::from(self.takes_any_order) * TAKES_ANY_ORDER;
        let without_udp = u8::from(self.without_udp) * WITHOUT_UDP;
        octets[10] = any_order | without_udp | (u8::from(self.wants_times) * WANTS_TIMES);
        octets[16..24].copy_from_slice(&self.instance.0.to_be_bytes());
        octets[24..32].copy_from_slice(&self.policy.to_be_bytes());
        octets[32..48].copy_from_slice(&self.nonce);
        if let Some(wanted) = self.wanted {
            let end = wanted.to_octets();
            octets[12..14].copy_from_slice(&end[16..]);
            octets[48..].copy_from_slice(&end[..16]);
        }
        octets
    }

    /// Reads a greeting. The first eight octets are enough to know a foreign one: see [`Greeting::may_begin_with`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(octets: &[u8; GREETING_LEN]) -> Result<Greeting, NoGreeting> {
        if octets[..8] != MAGIC {
            return Err(NoGreeting::Foreign);
        }
        let (lowest, highest) = (octets[8], octets[9]);
        if !(lowest..=highest).contains(&VERSION) {
            return Err(NoGreeting::Version(lowest, highest));
        }
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&octets[at..at + 8]);
            u64::from_be_bytes(word)
        };
        let (mut nonce, mut address) = ([0; 16], [0; 16]);
        nonce.copy_from_slice(&octets[32..48]);
        address.copy_from_slice(&octets[48..]);
        let port = u16::from_be_bytes([octets[12], octets[13]]);
        let address = IpAddr::from(Ipv6Addr::from(address));
        Ok(Greeting {
            instance: Instance(word(16)),
            nonce,
            policy: word(24),
            takes_any_order: octets[10] & TAKES_ANY_ORDER != 0,
            wants_times: octets[10] & WANTS_TIMES != 0,
            without_udp: octets[10] & WITHOUT_UDP != 0,
            wanted: (port != 0).then(|| End::new(address, port)),
        })
    }

    /// Whether a greeting may begin with these octets, so that one who speaks something else is found out at once.
    pub fn may_begin_with(octets: &[u8]) -> bool {
        let len = octets.len().min(MAGIC.len());
        octets[..len] == MAGIC[..len]
    }

    /// The key of what this end sends to the other.
    pub fn key_to(&self, other: &Greeting) -> Key {
        Key::new(&self.nonce, &other.nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::SocketAddr;

    fn greeting() -> Greeting {
        Greeting {
            instance: Instance(0x0102_0304_0506_0708),
            nonce: *b"sixteen octets!!",
            policy: 9,
            takes_any_order: true,
            wants_times: false,
            without_udp: false,
            wanted: Some("192.0.2.7:5004".parse::<SocketAddr>().unwrap().into()),
        }
    }

    #[test]
    fn the_octets_are_those_of_the_table() {
        let mut wanted = std::vec::Vec::new();
        wanted.extend(b"WeftUOE\0\x01\x01\x01\0\x13\x8c\0\0");
        wanted.extend(b"\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\x09");
        wanted.extend(b"sixteen octets!!\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x07");
        assert_eq!(greeting().to_octets()[..], wanted);
        assert_eq!(Greeting::parse(&greeting().to_octets()), Ok(greeting()));
    }

    #[test]
    fn others_are_told_apart_at_once() {
        let mut octets = greeting().to_octets();
        assert!((0..=64).all(|len| Greeting::may_begin_with(&octets[..len])));
        assert!(!Greeting::may_begin_with(b"S"));
        assert!(!Greeting::may_begin_with(b"WeftUOE\x01more"));
        octets[..4].copy_from_slice(b"SSH-");
        assert_eq!(Greeting::parse(&octets), Err(NoGreeting::Foreign));
    }

    #[test]
    fn a_range_of_versions_has_this_one_in_it() {
        let with = |lowest, highest| {
            let mut octets = greeting().to_octets();
            octets[8..10].copy_from_slice(&[lowest, highest]);
            Greeting::parse(&octets).map(|_| ())
        };
        assert_eq!(with(0, 1), Ok(()));
        assert_eq!(with(1, 9), Ok(()));
        assert_eq!(with(2, 9), Err(NoGreeting::Version(2, 9)));
        assert_eq!(with(0, 0), Err(NoGreeting::Version(0, 0)));
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_said(
            instance: u64, policy: u64, nonce: [u8; 16], flags: [bool; 3],
            wanted in prop::option::of((any::<[u8; 16]>(), 1u16..)),
        ) {
            let greeting = Greeting {
                instance: Instance(instance), nonce, policy,
                takes_any_order: flags[0], wants_times: flags[1], without_udp: flags[2],
                wanted: wanted.map(|(address, port)| End::new(address.into(), port)),
            };
            prop_assert_eq!(Greeting::parse(&greeting.to_octets()), Ok(greeting));
        }
    }
}
