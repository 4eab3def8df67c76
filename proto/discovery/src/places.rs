//! Tables of fixed size: an entry has its place in one of a few *ways* of the *set* that its hash names.
//!
//! Nobody's entries push out those of everybody: who fills a set fills that one, and which it is depends on a seed that
//! only this machine knows.

use core::net::IpAddr;
use core::time::Duration;

use zerocopy::FromBytes;

/// The entries, all zero at first.
#[derive(Debug, FromBytes)]
#[repr(C)]
pub(crate) struct Places<E, const SETS: usize, const WAYS: usize> {
    sets: [[E; WAYS]; SETS],
}

impl<E, const SETS: usize, const WAYS: usize> Places<E, SETS, WAYS> {
    /// The ways of the set that a hash names.
    pub(crate) fn set(&mut self, hash: u64) -> &mut [E; WAYS] {
        const { assert!(SETS.is_power_of_two()) }
        &mut self.sets[hash as usize & (SETS - 1)]
    }

    /// All entries.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut E> {
        self.sets.iter_mut().flatten()
    }
}

/// A hash of octets that cannot be foreseen by who does not know `seed`: each eight octets are multiplied in, and the
/// two halves of the product folded into each other.
pub(crate) fn hash(seed: u64, octets: &[u8]) -> u64 {
    // Digits of pi, with as many ones as zeros.
    const ODD: u64 = 0x243F_6A88_85A3_08D3;
    const OTHER: u64 = 0x1319_8A2E_0370_7344;
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let mixed = octets.chunks(8).fold(seed ^ ODD, |state, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        fold(
            state ^ u64::from_le_bytes(word),
            OTHER ^ seed.rotate_left(32),
        )
    });
    fold(mixed ^ octets.len() as u64, ODD)
}

/// Who asks, as far as bounds for an address go: of IPv6 the network of 64 bits, whose addresses are one host's for the
/// asking. Never 0.
pub(crate) fn neighbour(address: IpAddr) -> u64 {
    match address.to_canonical() {
        // No network of IPv6 begins so: it would be that of IPv4-mapped addresses.
        IpAddr::V4(v4) => 0x0000_FFFF_0000_0000 | u64::from(v4.to_bits()),
        IpAddr::V6(v6) => ((v6.to_bits() >> 64) as u64).max(1),
    }
}

/// Microseconds, as entries keep times.
pub(crate) fn to_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hash_depends_on_the_seed_and_every_octet() {
        let octets = *b"nineteen octets....";
        let mut hashes =
            BTreeSet::from([hash(1, &octets), hash(2, &octets), hash(1, &octets[..18])]);
        for at in 0..octets.len() {
            let mut other = octets;
            other[at] ^= 0x10;
            hashes.insert(hash(1, &other));
        }
        assert_eq!(hashes.len(), 3 + octets.len());
    }

    #[test]
    fn a_network_of_ipv6_is_one_neighbour_and_an_ipv4_address_another() {
        let of = |text: &str| neighbour(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::3"), of("2001:db8:1:2:ffff::"));
        assert_ne!(of("2001:db8:1:2::3"), of("2001:db8:1:3::3"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_ne!(of("::1"), 0);
        assert_ne!(of("0.0.0.0"), 0);
    }
}
