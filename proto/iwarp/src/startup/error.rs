//! How a start-up fails, sorted by who is at fault.

use crate::mpa::frame::{FrameError, FrameKind, MAX_PRIVATE_DATA};
use core::time::Duration;

/// Who has to change something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Blame {
    /// The peer broke the protocol.
    Peer,
    /// Both sides are right by their own settings; the settings do not go together.
    Settings,
    /// The network or the peer's host: nothing came, or the connection went away.
    Network,
    /// The caller on this side.
    Local,
}

/// Why a start-up ended without a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum StartError {
    /// The peer's octets are no frame, or not the one expected.
    #[error("peer sent no valid {expected}: {error}")]
    Frame {
        /// The frame expected.
        expected: FrameKind,
        /// What is wrong with it.
        error: FrameError,
    },
    /// The peer sent octets behind its Request before it had the Reply.
    #[error("peer sent {octets} octets behind its MPA Request before it had the Reply")]
    EarlyOctets {
        /// How many were seen.
        octets: usize,
    },
    /// The Responder set flag S though the Request did not have it.
    #[error("flag S of the MPA Reply is set, that of the Request was not")]
    UnexpectedEnhanced,
    /// Revision of the peer's frame is one this side does not speak.
    #[error("Rev of the {frame} is {revision}; this side takes 1 to {highest}")]
    Revision {
        /// The frame it stood in.
        frame: FrameKind,
        /// The value.
        revision: u8,
        /// The highest revision this side takes.
        highest: u8,
    },
    /// The Responder answered an enhanced Request without the enhanced block.
    #[error("MPA Reply has Rev {revision} and no enhanced block (flag S); for this peer set MPA revision 1")]
    EnhancedMissing {
        /// Revision of the Reply.
        revision: u8,
    },
    /// The Responder will have more Read Requests outstanding than this side can hold.
    #[error("ORD of the MPA Reply is {peer_ord}, this side's IRD can be {max_ird} at most")]
    InsufficientIrd {
        /// ORD of the Reply.
        peer_ord: u16,
        /// The most this side can hold.
        max_ird: u16,
    },
    /// The Reply selects no kind of ready-to-receive FPDU that was offered.
    #[error("MPA Reply (flags A, B, C, D) selects no ready-to-receive FPDU that was offered")]
    NoMatchingRtr,
    /// No whole frame came in time.
    #[error("no {waiting_for} within {} ms", timeout.as_millis())]
    TimedOut {
        /// The frame waited for.
        waiting_for: FrameKind,
        /// How long.
        timeout: Duration,
    },
    /// The peer closed the connection.
    #[error("peer closed the connection after {received} octets of the {waiting_for}{}", hint(*asked_enhanced, *received))]
    Closed {
        /// The frame waited for.
        waiting_for: FrameKind,
        /// Octets of it that had come.
        received: usize,
        /// This side asked with revision 2, which a peer that only knows revision 1 answers by closing.
        asked_enhanced: bool,
    },
    /// The private data is longer than the frame can hold.
    #[error("private data of {len} octets, an MPA frame holds {max}{}", with_enhanced_block(*max))]
    PrivateData {
        /// Its length in octets.
        len: usize,
        /// What the frame can hold.
        max: usize,
    },
    /// There is no such revision to ask with.
    #[error("MPA revision {0} asked for; there are 1 and 2")]
    OwnRevision(u8),
}

impl StartError {
    /// Who has to change something.
    pub const fn blame(&self) -> Blame {
        match self {
            StartError::Frame { .. }
            | StartError::EarlyOctets { .. }
            | StartError::UnexpectedEnhanced => Blame::Peer,
            StartError::Revision { .. }
            | StartError::EnhancedMissing { .. }
            | StartError::InsufficientIrd { .. }
            | StartError::NoMatchingRtr => Blame::Settings,
            StartError::TimedOut { .. } | StartError::Closed { .. } => Blame::Network,
            StartError::PrivateData { .. } | StartError::OwnRevision(_) => Blame::Local,
        }
    }
}

/// Why a Responder's decision was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum AcceptError {
    /// There is no Request to decide on: none came yet, it was decided on, or the start-up failed.
    #[error("no MPA Request to decide on")]
    NoRequest,
    /// The private data is longer than the Reply can hold.
    #[error("private data of {len} octets, an MPA frame holds {max}{}", with_enhanced_block(*max))]
    PrivateData {
        /// Its length in octets.
        len: usize,
        /// What the Reply can hold.
        max: usize,
    },
}

/// What to try with a peer that closes at the first frame it does not know.
fn hint(asked_enhanced: bool, received: usize) -> &'static str {
    match asked_enhanced && received == 0 {
        true => "; if it only knows MPA revision 1, set that",
        false => "",
    }
}

/// Why a frame holds less than [`MAX_PRIVATE_DATA`].
fn with_enhanced_block(max: usize) -> &'static str {
    match max < MAX_PRIVATE_DATA {
        true => " with the enhanced block",
        false => "",
    }
}
