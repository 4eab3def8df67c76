//! What stacks with a TCP of their own are told: at which ends, and with which address.

use std::net::IpAddr;

use crate::path::Host;

/// How long the FPDUs of an adapter are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fpdu {
    /// As it is unless told otherwise: they fit segments, so that they can be placed ahead of order.
    Emss,
    /// Longer.
    Large,
}

/// The ends with an adapter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Adapters {
    Both,
    Client,
    Server,
}

impl Adapters {
    /// Between `weft` and the CRC in the name: the client sends.
    pub(super) fn name(self) -> &'static str {
        match self {
            Adapters::Both => "inline",
            Adapters::Client => "inline to kernel",
            Adapters::Server => "kernel to inline",
        }
    }
}

/// The adapter's address at a host: one that the kernel does not have, in the same network.
pub(super) fn beside(host: &Host) -> IpAddr {
    match host.address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            IpAddr::from([a, b, c, d ^ 128])
        }
        address @ IpAddr::V6(_) => address,
    }
}
