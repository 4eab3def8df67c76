//! Numbers that must not be guessed: initial sequence numbers (RFC 6528), timestamp offsets (RFC 7323 section 5.4),
//! ephemeral ports (RFC 6056), identifications of fragments (RFC 7739).

use super::connection::Secrets;
use super::seq::Seq;
use core::hash::Hasher;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use siphasher::sip::SipHasher24;

/// The two ends of a connection, as this side sees them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tuple {
    /// This side.
    pub local: SocketAddr,
    /// The other.
    pub remote: SocketAddr,
}

/// A secret from which everything unguessable is derived. 16 octets of real randomness, made once by the owner.
#[derive(Clone, Copy)]
pub struct Secret(pub [u8; 16]);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What a hash is for: the same input gives unrelated numbers for each purpose.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Purpose {
    Initial,
    Clock,
    Port,
    Cookie,
    Fragment,
}

impl Secret {
    /// Initial number and clock offset of a new connection.
    ///
    /// ISN = M + F(addresses, ports, secret) with M counting 4 microseconds (RFC 6528 section 3): a new connection of
    /// the same two ends begins above an old one.
    pub fn for_connection(&self, tuple: &Tuple, now: Duration) -> Secrets {
        let ticks = (now.as_micros() / 4) as u32;
        Secrets {
            initial: Seq(ticks.wrapping_add(self.hash(Purpose::Initial, tuple, &[]) as u32)),
            clock_offset: self.clock_offset(tuple),
        }
    }

    /// The clock offset of a connection: the same each time, so that its clock never goes back (RFC 7323 section 5.4).
    pub fn clock_offset(&self, tuple: &Tuple) -> u32 {
        self.hash(Purpose::Clock, tuple, &[]) as u32
    }

    /// Where to begin the search for an ephemeral port towards `remote` (RFC 6056 section 3.3.3).
    pub fn port_offset(&self, local: IpAddr, remote: SocketAddr) -> u16 {
        let tuple = Tuple {
            local: SocketAddr::new(local, 0),
            remote,
        };
        self.hash(Purpose::Port, &tuple, &[]) as u16
    }

    /// Identification of the packet of this number that leaves in fragments (RFC 7739 section 5.3).
    pub(crate) fn fragment_identification(
        &self,
        source: IpAddr,
        destination: IpAddr,
        number: u32,
    ) -> u32 {
        let tuple = Tuple {
            local: SocketAddr::new(source, 0),
            remote: SocketAddr::new(destination, 0),
        };
        let first = self.hash(Purpose::Fragment, &tuple, &[]) as u32;
        first.wrapping_add(number)
    }

    pub(super) fn hash(&self, purpose: Purpose, tuple: &Tuple, more: &[u32]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write_u8(purpose as u8);
        for end in [&tuple.local, &tuple.remote] {
            match end.ip() {
                IpAddr::V4(address) => hasher.write(&address.octets()),
                IpAddr::V6(address) => hasher.write(&address.octets()),
            }
            hasher.write_u16(end.port());
        }
        more.iter().for_each(|word| hasher.write_u32(*word));
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple {
            local: SocketAddr::from(([10, 0, 0, 1], 80)),
            remote: SocketAddr::from(([10, 0, 0, 2], port)),
        }
    }

    #[test]
    fn numbers_grow_for_one_pair_and_are_unrelated_between_pairs() {
        let secret = Secret([7; 16]);
        let first = secret.for_connection(&tuple(1000), Duration::from_secs(1));
        let later = secret.for_connection(&tuple(1000), Duration::from_secs(2));
        assert_eq!(later.initial.distance_from(first.initial), 250_000);
        assert_eq!(first.clock_offset, later.clock_offset);
        let other = secret.for_connection(&tuple(1001), Duration::from_secs(1));
        assert!(other.initial.distance_from(first.initial).unsigned_abs() > 1_000_000);
        let stranger = Secret([8; 16]).for_connection(&tuple(1000), Duration::from_secs(1));
        assert_ne!(stranger.initial, first.initial);
    }
}
