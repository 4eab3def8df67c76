//! Addresses and ports of a rule.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// An address, or the addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Leading bits that count: up to 32, for IPv6 up to 128.
    bits: u8,
}

/// Why a text is no [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNetwork {
    /// What stands before the slash is no address.
    Address,
    /// What stands behind the slash is no number of bits of such an address.
    Bits {
        /// The most that there are.
        most: u8,
    },
}

/// Bits before the IPv4 address in an IPv4-mapped one (RFC 4291 section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

impl Network {
    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    ///
    /// # Errors
    /// Which part of it is wrong.
    pub fn parse(text: &str) -> Result<Network, NotNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotNetwork::Address)?;
        let most = width(address);
        let bits = match bits {
            Some(bits) => number(bits)
                .filter(|bits| *bits <= most)
                .ok_or(NotNetwork::Bits { most })?,
            None => most,
        };
        // A socket of both families shows IPv4 addresses as mapped ones: in a rule too they are IPv4 addresses.
        Ok(match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(mapped)) if bits >= MAPPED_BITS => Network {
                address: mapped.into(),
                bits: bits - MAPPED_BITS,
            },
            _ => Network { address, bits },
        })
    }

    /// Whether `address` is in it; an IPv4-mapped address is the IPv4 address in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let number = |of: Ipv4Addr| leading(u128::from(u32::from(of)), 32, self.bits);
                number(network) == number(address)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                leading(network.into(), 128, self.bits) == leading(address.into(), 128, self.bits)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        match self.bits == width(self.address) {
            true => Ok(()),
            false => write!(f, "/{}", self.bits),
        }
    }
}

/// Bits of an address of this kind.
fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The `bits` leading bits of a number of `width` bits.
fn leading(of: u128, width: u32, bits: u8) -> u128 {
    // A shift by the whole width is none to Rust, and leaves nothing.
    of.checked_shr(width - u32::from(bits)).unwrap_or(0)
}

/// A port, or those from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Reads `N` or `N-M`, with N no greater than M.
    pub fn parse(text: &str) -> Option<Ports> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some(Ports { first, last })
    }

    /// Whether `port` is one of them.
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

/// A decimal number in digits alone.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|octet| octet.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}
