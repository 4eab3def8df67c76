//! Requests that complete when the peer has them, for queue pairs that the program brings up itself.
//!
//! On iWARP a Write or a Send is complete when the transport has it (RFC 5040 section 5.5). A program for InfiniBand
//! takes the completion for the peer's acknowledgement, and may go on over another queue pair: MPI's one-sided calls
//! do. So a reliable queue pair of such a program asks: behind its Writes goes a Read of no length, which every peer
//! answers after it has placed what came before (RFC 5040 section 5.5, rules 5 and 20), and its response completes
//! them. One is under way at a time, and speaks for everything framed before it; so does the response to any Read or
//! atomic of the program's. Nothing is asked for requests that no completion waits for.
//!
//! Sends are asked for only where the program bounds how often they may find no receive (an RNR retry count below 7):
//! the question then tells the peer that count, the peer refuses a message that waits longer, and the Send has the
//! error.

use weft_iwarp::Rtr;

use super::{peer, Qp};
use crate::types::SendOp;
use crate::wqe::SendWqe;

/// How far the peer has answered for this side's requests, which are named by their number since the queue was made.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    /// Requests before this one are placed or delivered.
    acknowledged: u64,
    /// Requests before this one that have to be answered for are framed completely.
    framed: u64,
    /// A completion waits for the answer for those before this one.
    wanted: u64,
    /// An answer is awaited.
    requested: bool,
    /// How often a Send may find no receive, where that is bounded.
    retries: Option<u8>,
}

impl Acknowledgements {
    /// Everything before `sequence` has been answered for.
    pub(super) fn note_acknowledged(&mut self, sequence: u64) {
        self.acknowledged = self.acknowledged.max(sequence);
    }

    /// The question is not answered, and will not be: the stream is gone.
    pub(super) fn forget_request(&mut self) {
        self.requested = false;
    }

    fn concern(&self, op: &SendOp) -> bool {
        match op {
            SendOp::Write { .. } | SendOp::WriteWithImm { .. } => true,
            SendOp::Send | SendOp::SendWithInvalidate { .. } | SendOp::SendWithImm { .. } => {
                self.retries.is_some()
            }
            _ => false,
        }
    }
}

impl Qp {
    /// How often the peer is to be asked to receive a Send of this side's before it fails with
    /// [`crate::types::WcStatus::RnrRetryExceeded`]; `None` for as often as it takes. For queue pairs that the program
    /// brings up itself.
    pub fn set_rnr_retries(&mut self, retries: Option<u8>) {
        self.acknowledgements.retries = retries;
    }

    /// Whether requests of a queue pair that the program brings up itself complete when the peer has them, which is
    /// how it begins.
    pub fn set_acknowledge(&mut self, acknowledge: bool) {
        self.acknowledge = acknowledge;
    }

    fn acknowledges(&self) -> bool {
        self.out_of_band && !self.unreliable && self.acknowledge
    }

    /// Whether `wqe`, which the transport has, is complete.
    pub(super) fn is_acknowledged(&self, wqe: &SendWqe) -> bool {
        let awaited = &self.acknowledgements;
        !self.acknowledges() || !awaited.concern(&wqe.op) || wqe.sequence < awaited.acknowledged
    }

    /// A request is framed completely.
    pub(super) fn note_framed(&mut self, op: &SendOp, sequence: u64, signaled: bool) {
        if !self.acknowledges() {
            return;
        }
        if self.acknowledgements.concern(op) {
            self.acknowledgements.framed = sequence + 1;
        }
        if signaled || self.sq_sig_all {
            self.acknowledgements.wanted = self.acknowledgements.framed;
        }
    }

    /// Whether the peer was asked for an acknowledgement and has not given it.
    pub fn awaits_acknowledgement(&self) -> bool {
        self.acknowledgements.requested
    }

    /// Whether the peer is to be asked, and may be.
    pub(super) fn acknowledgement_request_due(&self) -> bool {
        let waiting = &self.acknowledgements;
        let room = |ord: u16| self.reads.len() < usize::from(ord.max(1));
        !waiting.requested
            && waiting.wanted > waiting.acknowledged
            && self.stream.as_ref().is_some_and(|s| room(s.ord))
    }

    /// Asks, between messages.
    pub(super) fn frame_acknowledgement_request(&mut self) {
        if !self.acknowledgement_request_due() {
            return;
        }
        let Some(stream) = &mut self.stream else {
            return;
        };
        let to = self.acknowledgements.retries.map_or(0, peer::retries_told);
        self.acknowledgements.requested = true;
        self.reads
            .expect_acknowledgement(self.acknowledgements.framed);
        self.outgoing
            .append(|out| stream.outbound.rtr(Rtr::Read, to, out));
    }

    /// The answer.
    pub(super) fn note_acknowledgement(&mut self, sequence: u64) {
        self.acknowledgements.requested = false;
        self.acknowledgements.note_acknowledged(sequence);
    }
}
