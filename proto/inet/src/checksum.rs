//! The Internet checksum (RFC 1071).

use core::net::IpAddr;

/// A sum under way. Pieces may be added in any number, each at the parity its position has.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum {
    sum: u64,
    odd: bool,
}

impl Checksum {
    /// The sum of a pseudo header (RFC 9293 section 3.1, RFC 8200 section 8.1).
    pub fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> Checksum {
        let mut sum = Checksum::default();
        for address in [source, destination] {
            match address {
                IpAddr::V4(address) => sum.add(&address.octets()),
                IpAddr::V6(address) => sum.add(&address.octets()),
            }
        }
        sum.add(&(len as u32).to_be_bytes());
        sum.add(&[0, protocol]);
        sum
    }

    /// The same with a word of 32 bits more at an even position.
    #[inline]
    pub fn with_word(mut self, word: u32) -> Checksum {
        self.sum += u64::from(word >> 16) + u64::from(word & 0xffff);
        self
    }

    /// Adds octets.
    pub fn add(&mut self, mut octets: &[u8]) {
        if self.odd {
            let Some((first, rest)) = octets.split_first() else {
                return;
            };
            self.sum += u64::from(*first);
            octets = rest;
            self.odd = false;
        }
        let mut wide: u64 = 0;
        let (words, rest) = octets.as_chunks();
        for word in words {
            wide += u64::from(u32::from_be_bytes(*word));
        }
        self.sum += (wide & 0xffff_ffff) + (wide >> 32);
        match *rest {
            [a] => {
                self.sum += u64::from(a) << 8;
                self.odd = true;
            }
            [a, b] => self.sum += u64::from(u16::from_be_bytes([a, b])),
            [a, b, c] => {
                self.sum += u64::from(u16::from_be_bytes([a, b])) + (u64::from(c) << 8);
                self.odd = true;
            }
            _ => {}
        }
    }

    /// The sum, not complemented: what a device that finishes it wants to find in the field.
    pub fn partial(&self) -> u16 {
        let mut sum = self.sum;
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// The checksum.
    pub fn finish(&self) -> u16 {
        !self.partial()
    }

    /// The sum of octets that include their checksum is right. Under the fuzzer every sum is.
    #[allow(unexpected_cfgs, reason = "the fuzzer's build sets it")]
    pub fn is_valid(&self) -> bool {
        cfg!(fuzzing) || self.partial() == 0xffff
    }
}

/// The checksum of one piece.
pub fn of(octets: &[u8]) -> u16 {
    let mut sum = Checksum::default();
    sum.add(octets);
    sum.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plainly(octets: &[u8]) -> u16 {
        let sum: u64 = octets
            .chunks(2)
            .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
            .sum();
        !((sum % 0xffff) as u16)
    }

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(
            of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            !0xddf2
        );
    }

    proptest! {
        #[test]
        fn pieces_add_up(octets in proptest::collection::vec(any::<u8>(), 1..200), at in 0usize..200) {
            let (one, two) = octets.split_at(at.min(octets.len()));
            let mut sum = Checksum::default();
            sum.add(one);
            sum.add(two);
            prop_assert_eq!(sum.finish(), of(&octets));
            // Zero has two forms.
            prop_assert!(of(&octets) % 0xffff == plainly(&octets) % 0xffff);
        }
    }
}
