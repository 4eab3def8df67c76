//! What a start-up comes to.

use super::frame::RtrSet;
use alloc::vec::Vec;

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
    /// The peer's IRD as it told; [`NOT_NEGOTIATED`](super::frame::NOT_NEGOTIATED) when it did not.
    pub peer_ird: u16,
    /// The peer's ORD as it told; [`NOT_NEGOTIATED`](super::frame::NOT_NEGOTIATED) when it did not.
    pub peer_ord: u16,
    /// Private data of the peer's frame, without the enhanced block.
    pub private_data: Vec<u8>,
}
