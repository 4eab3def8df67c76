//! Where a datagram goes, as a program says it.

use crate::kernel::NAME_LEN;

/// Where a datagram goes: the address the program gave, or none for the connected peer.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub struct Destination {
    octets: [u8; NAME_ROOM],
    len: u8,
}

/// Whole words, so that two destinations are compared in a few instructions: what is behind the address is zero.
const NAME_ROOM: usize = NAME_LEN.next_multiple_of(8);
/// Octets of a socket address of IPv4.
const IPV4_NAME_LEN: usize = 16;

impl PartialEq for Destination {
    #[inline]
    fn eq(&self, other: &Destination) -> bool {
        let words = |name: &Destination| -> [u64; NAME_ROOM / 8] {
            let (words, _) = name.octets.as_chunks::<8>();
            core::array::from_fn(|index| u64::from_ne_bytes(words[index]))
        };
        let differ = words(self)
            .iter()
            .zip(words(other))
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        differ == 0 && self.len == other.len
    }
}

impl Eq for Destination {}

impl Destination {
    /// The connected peer.
    pub const CONNECTED: Destination = Destination {
        octets: [0; NAME_ROOM],
        len: 0,
    };

    /// An address as the program gave it; nothing if it is longer than UDP's are.
    #[inline]
    pub fn new(name: &[u8]) -> Option<Destination> {
        if name.len() > NAME_LEN {
            return None;
        }
        let mut octets = [0; NAME_ROOM];
        // Addresses of IPv4 by themselves: so many octets are two registers.
        match <&[u8; IPV4_NAME_LEN]>::try_from(name) {
            Ok(name) => octets[..IPV4_NAME_LEN].copy_from_slice(name),
            Err(_) => octets[..name.len()].copy_from_slice(name),
        }
        Some(Destination {
            octets,
            len: name.len() as u8,
        })
    }

    /// Whether this is the address, of which the connected peer has none.
    #[inline]
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        match name.is_empty() {
            true => self.len == 0,
            false => Destination::new(name).as_ref() == Some(self),
        }
    }

    /// The address, empty for the connected peer.
    #[inline]
    pub fn name(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_differ_in_every_octet_and_in_length() {
        let one = [7; NAME_LEN];
        for at in 0..NAME_LEN {
            let mut other = one;
            other[at] = 8;
            assert_ne!(Destination::new(&one), Destination::new(&other), "{at}");
        }
        assert_ne!(Destination::new(&[0; 4]), Some(Destination::CONNECTED));
        assert_eq!(Destination::new(&[]), Some(Destination::CONNECTED));
        assert_eq!(Destination::new(&one).unwrap().name(), one);
        assert_eq!(Destination::new(&[7; NAME_LEN + 1]), None);
    }
}
