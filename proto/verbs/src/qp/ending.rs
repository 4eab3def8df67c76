//! How a stream ends, and what happens to the work that is posted.
//!
//! | cause | the peer gets | local work |
//! | --- | --- | --- |
//! | the peer broke a rule | a Terminate that says which, then FIN | flushed, async event |
//! | a local request or buffer was at fault | Terminate 0/0/00, then FIN | that request's status, rest flushed |
//! | the peer's Terminate | FIN | the request it blames, rest flushed |
//! | the program disconnects | what is framed, then FIN | flushed |
//! | the stream ended or broke | nothing | flushed, but not before messages that wait for receives have them |
//!
//! In every case the queue pair is in the error state afterwards, as `ibv_modify_qp` to ERR
//! leaves it; it can be reset and used again.

use weft_iwarp::{Fault, PeerFault, Terminate};

use super::peer::MeetingNumber;
use crate::types::{AsyncEventKind, WcStatus};

/// How far the end of the stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Not ending.
    Open,
    /// Nothing more arrives, and messages that arrived wait for receives (decision 0011). Everything else goes on, as
    /// far as the transport takes it: the peer's FIN does not close this side's direction.
    HalfClosed,
    /// What is framed goes out, then FIN; what arrives is discarded.
    Draining,
    /// The transport can be closed, or is.
    Closed,
}

impl Ending {
    /// Neither a fault nor this side has ended the stream: messages are delivered and framed.
    #[inline]
    pub fn is_live(self) -> bool {
        matches!(self, Ending::Open | Ending::HalfClosed)
    }
}

/// What happened to a queue pair that its driver or connection manager has to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QpEvent {
    /// The responder saw the initiator's first FPDU: the connection is usable both ways.
    FirstFpdu,
    /// The peer broke a rule; a Terminate says so to it.
    PeerFault(Fault),
    /// A local request or buffer was at fault; the stream is ending.
    LocalFault(WcStatus),
    /// The peer's Terminate.
    Terminated(Terminate),
    /// Messages that waited for receives at the end of the stream are lost: the wait was long enough.
    Unreceived(usize),
    /// The peer says where the ends meet, if they are on one machine.
    Meeting(MeetingNumber),
}

/// What the program hears when the peer broke a rule.
pub(super) fn async_event_of(fault: PeerFault) -> AsyncEventKind {
    match (fault.code().layer, fault.code().etype) {
        (0 | 1, 1) => AsyncEventKind::QpAccessError,
        _ => AsyncEventKind::QpRequestError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_that_is_refused_is_told_from_other_faults() {
        for fault in [PeerFault::TaggedStag, PeerFault::RemoteAccess] {
            assert_eq!(async_event_of(fault), AsyncEventKind::QpAccessError);
        }
        let others = [
            PeerFault::NoBuffer,
            PeerFault::UnexpectedOpcode,
            PeerFault::IrdExceeded,
        ];
        for fault in others {
            assert_eq!(async_event_of(fault), AsyncEventKind::QpRequestError);
        }
    }
}
