//! An address with the length of its network's prefix, as people write it: 10.0.0.1/24.

use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;

/// An address and how many of its bits name the network (RFC 4632 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Cidr {
    /// The address, all bits of it.
    pub address: IpAddr,
    /// Bits of the network: at most 32 or 128.
    pub prefix: u8,
}

/// A text is no address with a prefix length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CidrError;

impl Cidr {
    /// An address in a network. A prefix longer than the address counts as long as it.
    pub fn new(address: impl Into<IpAddr>, prefix: u8) -> Cidr {
        let address = address.into();
        Cidr {
            address,
            prefix: prefix.min(bits(address)),
        }
    }

    /// The other address is in the same network.
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let host = u32::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
                (u32::from(own) ^ u32::from(other)) & !host == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let host = u128::MAX.checked_shr(self.prefix.into()).unwrap_or(0);
                (u128::from(own) ^ u128::from(other)) & !host == 0
            }
            _ => false,
        }
    }
}

fn bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    /// Reads `10.0.0.1/24` or `fd00::1/64`. The prefix has to be there: which neighbours are on the link cannot be
    /// guessed.
    fn from_str(text: &str) -> Result<Cidr, CidrError> {
        let (address, prefix) = text.split_once('/').ok_or(CidrError)?;
        let address: IpAddr = address.parse().map_err(|_| CidrError)?;
        let prefix: u8 = prefix.parse().map_err(|_| CidrError)?;
        if prefix > bits(address) {
            return Err(CidrError);
        }
        Ok(Cidr { address, prefix })
    }
}

impl fmt::Display for CidrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an address with a prefix length, such as 10.0.0.1/24 or fd00::1/64")
    }
}

impl core::error::Error for CidrError {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_end_where_the_prefix_says() {
        for (network, inside, outside) in [
            ("10.0.0.1/24", "10.0.0.255", "10.0.1.0"),
            ("10.0.0.1/32", "10.0.0.1", "10.0.0.2"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("fd00::1/64", "fd00::ffff", "fd00:0:0:1::1"),
            ("fd00::1/128", "fd00::1", "fd00::2"),
            ("::/0", "ffff::", "10.0.0.1"),
        ] {
            let (inside, outside) = (inside.parse().unwrap(), outside.parse().unwrap());
            assert!(cidr(network).contains(inside), "{network} {inside}");
            assert!(!cidr(network).contains(outside), "{network} {outside}");
        }
    }

    #[test]
    fn texts_are_read_and_written() {
        for text in ["10.0.0.1/24", "fd00::1/64", "::/0"] {
            assert_eq!(cidr(text).to_string(), text);
        }
        for text in [
            "10.0.0.1",
            "10.0.0.1/33",
            "::1/129",
            "10.0.0/8",
            "a/8",
            "10.0.0.1/-1",
        ] {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError), "{text}");
        }
    }
}
