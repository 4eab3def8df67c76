//! Writes that complete when they are placed, for queue pairs that the program brings up itself.
//!
//! On iWARP a Write is complete when the transport has it (RFC 5040 section 5.5). A program for InfiniBand takes the
//! completion for the peer's acknowledgement, and may go on over another queue pair: MPI's one-sided calls do. So a
//! reliable queue pair of such a program asks: behind its Writes goes a Read of no length, which every peer answers
//! after it has placed what came before (RFC 5040 section 5.5, rules 5 and 20), and its response completes them. One is under way at a
//! time, and speaks for every Write framed before it; so does the response to any Read or atomic of the program's.

use weft_iwarp::Rtr;

use super::Qp;
use crate::types::SendOp;
use crate::wqe::SendWqe;

/// How far the peer has placed this side's Writes. Requests are named by their number since the queue was made.
#[derive(Debug, Default)]
pub(super) struct Acknowledgements {
    /// Writes before this one are placed.
    placed: u64,
    /// Writes before this one are framed completely.
    framed: u64,
    /// An answer is awaited.
    asked: bool,
}

impl Acknowledgements {
    /// Everything before `sequence` has been answered or placed.
    pub(super) fn note_placed(&mut self, sequence: u64) {
        self.placed = self.placed.max(sequence);
    }

    /// The question is not answered, and will not be: the stream is gone.
    pub(super) fn forget_question(&mut self) {
        self.asked = false;
    }
}

fn is_write(op: &SendOp) -> bool {
    matches!(op, SendOp::Write { .. } | SendOp::WriteWithImm { .. })
}

impl Qp {
    /// Whether Writes complete when they are placed.
    fn acknowledges(&self) -> bool {
        self.by_hand && !self.unreliable
    }

    /// Whether `wqe`, which the transport has, is complete.
    pub(super) fn is_placed(&self, wqe: &SendWqe) -> bool {
        !self.acknowledges() || !is_write(&wqe.op) || wqe.sequence < self.acknowledgements.placed
    }

    /// The request at the front of the unencoded ones is framed.
    pub(super) fn note_framed_write(&mut self, op: &SendOp, sequence: u64) {
        if self.acknowledges() && is_write(op) {
            self.acknowledgements.framed = sequence + 1;
        }
    }

    /// Whether the peer is to be asked, and may be.
    pub(super) fn question_due(&self) -> bool {
        let waiting = &self.acknowledgements;
        let room = |ord: u16| self.reads.len() < usize::from(ord.max(1));
        !waiting.asked
            && waiting.framed > waiting.placed
            && self.stream.as_ref().is_some_and(|s| room(s.ord))
    }

    /// Asks, between messages.
    pub(super) fn frame_question(&mut self) {
        if !self.question_due() {
            return;
        }
        let Some(stream) = &mut self.stream else {
            return;
        };
        self.acknowledgements.asked = true;
        self.reads
            .expect_acknowledgement(self.acknowledgements.framed);
        self.outgoing
            .append(|out| stream.outbound.rtr(Rtr::Read, 0, out));
    }

    /// The answer.
    pub(super) fn note_acknowledgement(&mut self, sequence: u64) {
        self.acknowledgements.asked = false;
        self.acknowledgements.note_placed(sequence);
    }
}
