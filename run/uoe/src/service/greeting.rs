//! What this end says of itself on a new carrier, and what the carrier is for.

use std::net::IpAddr;

use weft_os::random_u64;
use weft_uoe::greeting::Instance;
use weft_uoe::{End, Greeting};

use super::nonce;

/// What a carrier is for that this end connects: others have others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Use {
    /// It is of sockets that are bound to this address.
    pub(crate) bound: Option<IpAddr>,
    /// Addresses on it are those of the connection.
    pub(crate) without_udp: bool,
    /// Its connection is the adapter's.
    pub(crate) over_adapter: bool,
    /// It has the rate of one socket, and is that one's alone.
    pub(crate) is_rated: bool,
    /// This end forgives what is missing for too long.
    pub(crate) forgives: bool,
}

impl Use {
    /// As it is said to the other end: different for different uses.
    fn policy(self) -> u64 {
        let address = match self.bound {
            None => 0,
            Some(IpAddr::V4(address)) => 1 << 32 | u64::from(address.to_bits()),
            Some(IpAddr::V6(address)) => {
                // The networks of a host and its addresses in each may both be several, with the same small numbers.
                const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
                let (network, host) = ((address.to_bits() >> 64) as u64, address.to_bits() as u64);
                1 << 62 | (network.wrapping_mul(SPREAD) ^ host) >> 2
            }
        };
        let policy = address << 1 | u64::from(self.without_udp);
        match self.over_adapter {
            true => !policy,
            false => policy,
        }
    }
}

/// What this end says of itself on a new carrier.
pub(crate) fn greeting(instance: Instance, wanted: Option<End>, of: Use) -> Greeting {
    Greeting {
        instance,
        nonce: nonce(),
        // The other end does not take two such carriers for one.
        policy: of.policy() ^ if of.is_rated { random_u64() } else { 0 },
        takes_any_order: of.over_adapter,
        wants_times: of.over_adapter && of.forgives,
        without_udp: of.without_udp,
        wanted,
    }
}
