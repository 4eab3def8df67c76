//! Queue pairs of type UC: what a reliable one would end the connection for is lost, and the
//! connection stays.
//!
//! Lost are Sends and Immediate Data that find no receive, and Writes to where the peer may not
//! write, with the Immediate Data behind them. A receive queue that ran empty is waited for as a
//! reliable one's is, for a shorter time; one that never had a receive is not.
//!
//! A peer that is told nothing could try STag after STag on one connection. So no more than [`REFUSED_MAX`] Writes are
//! refused in silence: the next one ends the connection as a reliable one's would. Of a Write that was refused once
//! nothing more is placed.

use super::Qp;
use crate::types::SendOp;

/// Writes to where the peer may not write that a connection outlives.
pub const REFUSED_MAX: u64 = 16;

/// What is being lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// A Send whose last segment is to come.
    pub(super) send: bool,
    /// The newest Write, wholly or in part.
    pub(super) write: bool,
    /// A receive was posted at some time.
    fed: bool,
}

impl Losses {
    pub(super) fn note_receive(&mut self) {
        self.fed = true;
    }
}

impl Qp {
    /// Makes it a queue pair of type UC, or of type RC again.
    pub fn set_unreliable(&mut self, unreliable: bool) {
        self.unreliable = unreliable;
        if unreliable {
            self.shorten_receive_wait();
        }
    }

    /// Whether messages may be lost.
    pub(super) fn may_lose(&self) -> bool {
        self.unreliable
    }

    /// Loses a Write to where the peer may not write; false when the connection has to end for it.
    pub(super) fn loses_write(&mut self) -> bool {
        let loses = self.unreliable && self.counters.refused_accesses < REFUSED_MAX;
        if loses {
            self.receiving.losses.write = true;
            self.counters.refused_accesses += 1;
        }
        loses
    }

    /// Whether what finds no receive now is lost at once.
    pub(super) fn loses_without_receive(&self) -> bool {
        let waits = self.receiving.losses.fed || self.shared_receive;
        self.unreliable && !(waits && self.may_hold())
    }

    /// UC has no operation that is answered (InfiniBand 9.6).
    pub(super) fn beyond_its_type(&self, op: &SendOp) -> bool {
        self.unreliable && op.awaits_response()
    }
}
