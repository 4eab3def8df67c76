//! Requests that complete when the peer has them, for queue pairs that the program brings up itself.
//!
//! On iWARP a Write or a Send is complete when the transport has it (RFC 5040 section 5.5). A program for InfiniBand
//! takes the completion for the peer's acknowledgement, and may go on over another queue pair: MPI's one-sided calls
//! do. So a reliable queue pair of such a program asks: behind its Writes goes a Read of no length, which every peer
//! answers after it has placed what came before (RFC 5040 section 5.5, rules 5 and 20), and its response completes
//! them. One such Read is under way at a time, and speaks for everything framed before it; so does the response to any
//! Read or atomic of the program's. Nothing is asked for requests that no completion waits for.
//!
//! Sends are asked for only where the program bounds how often they may find no receive (an RNR retry count below 7):
//! the request then tells the peer that count, the peer refuses a message that waits longer, and the Send has the
//! error.
//!
//! Apart from that a driver may withhold the completion of one Write until something comes from the peer
//! ([`Acknowledgements::withhold`]): it expects an answer, and a program that polls for the completion reads it.

use super::peer;
use crate::types::WcOpcode;
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
    /// The driver withholds what would be complete.
    withheld: bool,
}

impl Acknowledgements {
    /// Sets how often a Send may find no receive, where that is bounded.
    pub(super) fn set_retries(&mut self, retries: Option<u8>) {
        self.retries = retries;
    }

    /// An answer is awaited.
    #[inline]
    pub(super) fn is_requested(&self) -> bool {
        self.requested
    }

    /// A request is framed completely; `signaled` says that a completion waits for it.
    #[inline]
    pub(super) fn note_framed(&mut self, opcode: WcOpcode, sequence: u64, signaled: bool) {
        if self.concern(opcode) {
            self.framed = sequence + 1;
        }
        if signaled {
            self.wanted = self.framed;
        }
    }

    /// Whether a request that the transport has needs no answer, or has it.
    #[inline]
    pub(super) fn has_answer_for(&self, wqe: &SendWqe) -> bool {
        !self.concern(wqe.opcode()) || wqe.sequence < self.acknowledged
    }

    /// Whether the peer is to be asked.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        !self.requested && self.wanted > self.acknowledged
    }

    /// Asks: the number of the first request that the answer does not speak for, and the tagged offset of the request.
    pub(super) fn request(&mut self) -> (u64, u64) {
        debug_assert!(self.is_due(), "one request is under way at a time");
        self.requested = true;
        (self.framed, self.retries.map_or(0, peer::retries_told))
    }

    /// The answer to the acknowledgement request, which speaks for everything before `sequence`.
    pub(super) fn note_answer(&mut self, sequence: u64) {
        debug_assert!(
            self.requested && sequence <= self.framed,
            "an answer that nobody asked for"
        );
        self.requested = false;
        self.note_acknowledged(sequence);
    }

    /// Everything before `sequence` has been answered for.
    pub(super) fn note_acknowledged(&mut self, sequence: u64) {
        self.acknowledged = self.acknowledged.max(sequence);
    }

    /// The acknowledgement request is not answered, and will not be: the stream is gone.
    pub(super) fn forget_request(&mut self) {
        self.requested = false;
    }

    /// Nothing completes from now on.
    pub(super) fn withhold(&mut self) {
        self.withheld = true;
    }

    /// Whether nothing completes for now.
    #[inline]
    pub(super) fn are_withheld(&self) -> bool {
        self.withheld
    }

    /// What is withheld may complete.
    pub(super) fn stop_withholding(&mut self) {
        self.withheld = false;
    }

    fn concern(&self, opcode: WcOpcode) -> bool {
        match opcode {
            WcOpcode::Write => true,
            WcOpcode::Send => self.retries.is_some(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_completion_waits_for_is_not_asked_for() {
        let mut awaited = Acknowledgements::default();
        awaited.note_framed(WcOpcode::Write, 0, false);
        assert!(!awaited.is_due());
        // A Send needs no answer, its completion tells of the Write before it.
        awaited.note_framed(WcOpcode::Send, 1, true);
        assert!(awaited.is_due());
        assert_eq!(awaited.request(), (1, 0));
    }

    #[test]
    fn one_request_is_under_way_and_speaks_for_everything_framed_before() {
        let mut awaited = Acknowledgements::default();
        awaited.note_framed(WcOpcode::Write, 0, true);
        awaited.note_framed(WcOpcode::Write, 1, true);
        assert_eq!(awaited.request(), (2, 0));
        awaited.note_framed(WcOpcode::Write, 2, true);
        assert!(awaited.is_requested() && !awaited.is_due());
        awaited.note_answer(2);
        assert!(!awaited.is_requested() && awaited.is_due(), "the third");
        // The response to a Read behind it says the same.
        awaited.note_acknowledged(3);
        assert!(!awaited.is_due());
        awaited.note_acknowledged(1);
        assert!(!awaited.is_due(), "an answer is not taken back");
    }

    #[test]
    fn sends_are_asked_for_where_their_retries_are_bounded() {
        let mut awaited = Acknowledgements::default();
        awaited.note_framed(WcOpcode::Send, 0, true);
        assert!(!awaited.is_due());
        awaited.set_retries(Some(3));
        awaited.note_framed(WcOpcode::Send, 1, true);
        assert_eq!(awaited.request(), (2, peer::retries_told(3)));
    }

    #[test]
    fn a_request_that_went_with_its_stream_is_asked_again() {
        let mut awaited = Acknowledgements::default();
        awaited.note_framed(WcOpcode::Write, 0, true);
        awaited.request();
        awaited.forget_request();
        assert!(awaited.is_due());
    }

    #[test]
    fn reads_and_what_is_local_have_other_answers() {
        let mut awaited = Acknowledgements::default();
        for opcode in [
            WcOpcode::Read,
            WcOpcode::FetchAdd,
            WcOpcode::CompareSwap,
            WcOpcode::LocalInvalidate,
            WcOpcode::BindWindow,
        ] {
            awaited.note_framed(opcode, 0, true);
            assert!(!awaited.is_due(), "{opcode:?}");
        }
    }
}
