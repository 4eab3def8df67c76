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

use super::frame::{RtrSet, NOT_NEGOTIATED};
use alloc::vec::Vec;
use core::time::Duration;

/// The revision that knows nothing but M, C, R and private data (RFC 5044).
pub const REVISION_5044: u8 = 1;
/// The revision with the enhanced block (RFC 6581).
pub const REVISION_6581: u8 = 2;

/// Which end of the start-up this side is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// Sent the Request.
    Initiator,
    /// Sent the Reply.
    Responder,
}

/// One kind of ready-to-receive FPDU (RFC 6581 section 9.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rtr {
    /// A zero-length Send.
    Send,
    /// A zero-length RDMA Write.
    Write,
    /// A zero-length RDMA Read.
    Read,
}

impl From<Rtr> for RtrSet {
    fn from(kind: Rtr) -> RtrSet {
        RtrSet {
            send: kind == Rtr::Send,
            write: kind == Rtr::Write,
            read: kind == Rtr::Read,
        }
    }
}

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

/// What both sides agreed on. The stream is in Full Operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Established {
    /// Which side this is.
    pub role: Role,
    /// The CRC is generated and checked, both ways.
    pub crc: bool,
    /// This side puts markers in.
    pub markers_tx: bool,
    /// The peer puts markers in.
    pub markers_rx: bool,
    /// Revision of the Reply.
    pub revision: u8,
    /// The Initiator sends a ready-to-receive FPDU.
    pub peer_to_peer: bool,
    /// Initiator: the ready-to-receive FPDU that must be sent first. Responder: the kind it selected; the peer's
    /// first FPDU may be any.
    pub rtr: Option<Rtr>,
    /// Read Requests this side holds, after negotiation.
    pub ird: u16,
    /// Read Requests this side may have outstanding, after negotiation.
    pub ord: u16,
    /// The peer's IRD as it told; [`NOT_NEGOTIATED`] when it did not.
    pub peer_ird: u16,
    /// The peer's ORD as it told; [`NOT_NEGOTIATED`] when it did not.
    pub peer_ord: u16,
    /// Private data of the peer's frame, without the enhanced block.
    pub private_data: Vec<u8>,
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
