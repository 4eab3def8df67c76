//! MPA start-up: Request and Reply, and what the two sides agree on (RFC 5044 section 7.1, RFC 6581).
//!
//! Both roles are driven alike: octets, time and decisions go in by `handle_*`, [`Responder::accept`] and
//! [`Responder::reject`]; octets to send and events come out by `poll_transmit` and `poll_event`. Every failure
//! is an event. After a failure send what `poll_transmit` still gives, then close.

mod error;
mod initiator;
mod reader;
mod responder;
#[cfg(test)]
mod tests;

pub use error::{AcceptError, Blame, StartError};
pub use initiator::{Initiator, InitiatorEvent};
pub use responder::{PeerRequest, Responder, ResponderEvent};

pub use crate::mpa::established::{Established, Role, Rtr};
use crate::mpa::frame::{RtrSet, NOT_NEGOTIATED};
use alloc::vec::Vec;
use core::time::Duration;

/// The revision that knows nothing but M, C, R and private data (RFC 5044).
pub const REVISION_5044: u8 = 1;
/// The revision with the enhanced block (RFC 6581).
pub const REVISION_6581: u8 = 2;

/// What this side wants of the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartConfig {
    /// Initiator: the revision to ask with, 1 or 2. Responder: the highest revision to take.
    pub revision: u8,
    /// Ask for the CRC. It is used when either side asks.
    pub crc: bool,
    /// Ask for markers in what the peer sends. They are sent whenever the peer asks.
    pub markers: bool,
    /// Initiator: send a ready-to-receive FPDU first, so that either side may talk first (revision 2 only).
    pub peer_to_peer: bool,
    /// The kinds of that FPDU to offer or to choose from.
    pub rtr: RtrSet,
    /// Read Requests this side is ready to hold. [`NOT_NEGOTIATED`] keeps the value out of the negotiation.
    pub ird: u16,
    /// Read Requests this side wants to have outstanding. [`NOT_NEGOTIATED`] keeps it out of the negotiation.
    pub ord: u16,
    /// How far the negotiation may raise IRD.
    pub max_ird: u16,
    /// The most ORD this side can use.
    pub max_ord: u16,
    /// How long to wait for the peer's frame.
    pub timeout: Duration,
    /// Initiator: private data of the Request, 512 octets at most, with revision 2 508. The Responder gives its own
    /// when it decides.
    pub private_data: Vec<u8>,
}

impl Default for StartConfig {
    /// What any RNIC takes: revision 2, CRC, peer-to-peer by Write or Read, no markers, 10 s.
    fn default() -> StartConfig {
        StartConfig {
            revision: REVISION_6581,
            crc: true,
            markers: false,
            peer_to_peer: true,
            rtr: RtrSet::WRITE_AND_READ,
            ird: 32,
            ord: 32,
            max_ird: 128,
            max_ord: 128,
            timeout: Duration::from_secs(10),
            private_data: Vec::new(),
        }
    }
}

/// The depth this side works with before negotiation.
fn own_depth(depth: u16, max: u16) -> u16 {
    if depth == NOT_NEGOTIATED {
        max
    } else {
        depth.min(max)
    }
}

/// A depth as its 14-bit field holds it. A number never becomes the special value.
fn depth_field(depth: u16) -> u16 {
    depth.min(NOT_NEGOTIATED - 1)
}
