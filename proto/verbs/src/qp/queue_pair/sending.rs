//! What leaves: the turns of requester and responder, what the transport takes, and what is complete for it.

use super::Qp;
use crate::host::Host;
use crate::outgoing::Outgoing;
use crate::qp::acknowledgements::Acknowledgements;
use crate::qp::ending::Ending;
use crate::qp::framing::Framer;
use crate::qp::requester::{Finished, Step};
use crate::qp::turn::Turn;
use crate::types::AsyncEventKind;
use weft_iwarp::Rtr;

impl Qp {
    /// Octets that wait for the transport.
    #[inline]
    pub fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Whether [`Qp::fill`] would frame something.
    #[inline]
    pub fn wants_to_send(&self) -> bool {
        let due = self.has_requests_due() || self.responder.is_pending();
        self.outgoing.queued() > 0 || (due && self.lifecycle.is_live())
    }

    /// Whether there is something to frame of this side's own, beside responses.
    #[inline]
    fn has_requests_due(&self) -> bool {
        self.has_message_due() || self.control.is_pending() || self.acknowledgement_request_due()
    }

    /// Whether a request waits to be framed, and may be.
    #[inline]
    fn has_message_due(&self) -> bool {
        self.requester.is_due() && self.lifecycle.may_begin(self.requester.in_message())
    }

    /// Whether all that [`Qp::fill`] would frame is acknowledgements, of no octets, to a peer that asks whether its
    /// Writes are placed.
    #[inline]
    pub fn owes_only_acknowledgements(&self) -> bool {
        self.responder.only_acknowledgements()
            && !self.has_requests_due()
            && self.outgoing.queued() == 0
            && self.lifecycle.is_live()
    }

    /// Whether the driver is to send now: something is to be framed or sent, and it is not an acknowledgement that
    /// waits for what the program posts next. Asked once in each pass in which the program itself posts nothing.
    #[inline]
    pub fn is_due(&mut self, host: &impl Host) -> bool {
        if !self.wants_to_send() {
            return self.lifecycle.ending() == Ending::Draining;
        }
        let may_wait = self.lifecycle.is_out_of_band()
            && self.sends_one_at_a_time()
            && self.owes_only_acknowledgements();
        !(may_wait && self.delayed.delay(host.now(), &mut self.timers))
    }

    /// Whether an acknowledgement waits for what the program posts next. One that ends the stream sends it before.
    pub fn delays_acknowledgement(&self) -> bool {
        self.delayed.waits()
    }

    /// Frames what is due until about `budget` octets wait in [`Qp::outgoing`].
    pub fn fill(&mut self, budget: usize, host: &mut impl Host) {
        self.delayed.note_sent();
        // A responder sends no FPDU before it has one of the initiator's (RFC 5044 section 7.1.2).
        if !self.lifecycle.is_live() || !self.may_send() {
            return;
        }
        if self.control.is_pending() {
            self.frame_control();
        }
        while self.outgoing.queued() < budget && self.lifecycle.may_frame_messages() {
            if !self.frame_next(host) {
                break;
            }
        }
        if self.is_between_messages() {
            self.frame_acknowledgement_request();
        }
    }

    #[inline]
    fn is_between_messages(&self) -> bool {
        !self.requester.in_message() && !self.responder.in_message()
    }

    /// The ready-to-receive message goes before everything else, an announcement between
    /// messages.
    pub(super) fn frame_control(&mut self) {
        let is_between_messages = self.is_between_messages();
        let Some(mut framer) = Framer::new(
            &mut self.stream,
            &mut self.outgoing,
            &mut self.counters,
            self.attributes.scope(),
        ) else {
            return;
        };
        if let Some((kind, to)) = self.control.take_rtr() {
            if kind == Rtr::Read {
                self.reads.expect_rtr_response(to);
            }
            framer.introduction(kind, to);
        }
        if is_between_messages {
            while let Some(to) = self.control.take_announcement() {
                framer.zero_length(Rtr::Write, to);
            }
        }
    }

    /// Frames one segment of whoever's turn it is; false when nothing could be framed.
    fn frame_next(&mut self, host: &mut impl Host) -> bool {
        if self.requester.in_message() {
            return self.frame_request(host);
        }
        if self.responder.in_message() {
            return self.frame_response(host);
        }
        if self.control.is_pending() {
            // Before anything else that the peer may judge this side by.
            self.frame_control();
        }
        // A message never starts inside another (RFC 5041 section 5.3), so turns are taken here.
        match self.turn.take() {
            Turn::Requester => self.frame_request(host) || self.frame_response(host),
            Turn::Responder => self.frame_response(host) || self.frame_request(host),
        }
    }

    fn frame_request(&mut self, host: &mut impl Host) -> bool {
        if !self.has_message_due() {
            return false;
        }
        let Some(mut framer) = Framer::new(
            &mut self.stream,
            &mut self.outgoing,
            &mut self.counters,
            self.attributes.scope(),
        ) else {
            return false;
        };
        let step = self.requester.frame(&mut framer, &mut self.reads, host);
        match step {
            Step::Finished(finished) => {
                self.note_framed(finished);
                if finished.is_local {
                    self.complete_sends(host);
                }
                true
            }
            Step::Segment => true,
            _ => {
                self.follow_unframed(&step, host);
                false
            }
        }
    }

    /// A request is framed completely.
    #[inline]
    pub(super) fn note_framed(&mut self, finished: Finished) {
        if self.acknowledges() {
            let signaled = finished.signaled || self.attributes.config().sq_sig_all;
            let (opcode, sequence) = (finished.opcode, finished.sequence);
            self.acknowledgements
                .note_framed(opcode, sequence, signaled);
        }
    }

    /// Nothing was framed.
    #[cold]
    fn follow_unframed(&mut self, step: &Step, host: &mut impl Host) {
        match *step {
            Step::Finished(_) | Step::Segment | Step::Blocked => {}
            Step::PeerUnknown => self.ask_peer(),
            Step::Failed(status) => {
                // The failed request gets its status, the peer a Terminate.
                self.requester.fail_current(status);
                self.end_locally(host);
            }
        }
    }

    fn frame_response(&mut self, host: &mut impl Host) -> bool {
        if !self.responder.is_pending() {
            return false;
        }
        let Some(mut framer) = Framer::new(
            &mut self.stream,
            &mut self.outgoing,
            &mut self.counters,
            self.attributes.scope(),
        ) else {
            return false;
        };
        match self.responder.frame(&mut framer, &self.attributes, host) {
            Ok(framed) => framed,
            Err(fault) => {
                self.end_at_fault(fault, host);
                false
            }
        }
    }

    /// Whether a request is complete only when the peer has it (`acknowledgements`).
    #[inline]
    pub(super) fn acknowledges(&self) -> bool {
        self.lifecycle.is_out_of_band() && self.attributes.wants_acknowledgements()
    }

    /// Whether a completion waits for the peer: it was asked for an acknowledgement and has not given it, or the
    /// completion is withheld until it answers ([`Qp::withhold`]).
    pub fn awaits_acknowledgement(&self) -> bool {
        self.acknowledgements.is_requested() || self.acknowledgements.are_withheld()
    }

    /// Whether the peer is to be asked, and may be.
    #[inline]
    fn acknowledgement_request_due(&self) -> bool {
        let outstanding = self.reads.len();
        self.acknowledgements.is_due()
            && self
                .stream
                .as_ref()
                .is_some_and(|s| s.has_room_to_ask(outstanding))
    }

    /// Asks, between messages.
    #[inline]
    fn frame_acknowledgement_request(&mut self) {
        if !self.acknowledgement_request_due() {
            return;
        }
        let Some(mut framer) = Framer::new(
            &mut self.stream,
            &mut self.outgoing,
            &mut self.counters,
            self.attributes.scope(),
        ) else {
            return;
        };
        let (sequence, to) = self.acknowledgements.request();
        self.reads.expect_acknowledgement(sequence);
        framer.zero_length(Rtr::Read, to);
    }

    /// The transport took `octets` of [`Qp::outgoing`] and has copied them.
    #[inline]
    pub fn sent(&mut self, octets: usize, host: &mut impl Host) {
        self.taken(octets, 0, host);
    }

    /// The transport took `octets` of [`Qp::outgoing`]; it refers to the memory of the last `unreleased` octets of all
    /// that it has taken. A work request is not complete before its octets are released: the program may write over
    /// them then.
    #[inline]
    pub fn taken(&mut self, octets: usize, unreleased: usize, host: &mut impl Host) {
        self.outgoing.take(octets);
        self.outgoing.note_unreleased(unreleased);
        self.probes.note_spoken(|| host.now(), &mut self.timers);
        self.complete_sends(host);
    }

    /// The transport now refers to the memory of no more than the last `unreleased` octets that it has taken.
    pub fn released(&mut self, unreleased: usize, host: &mut impl Host) {
        self.outgoing.note_unreleased(unreleased);
        self.complete_sends(host);
    }

    /// Whether the only request outstanding is a Write whose completion the program wants, and that this side alone
    /// completes: the driver may withhold that ([`Qp::withhold`]).
    #[inline]
    pub fn may_withhold(&self) -> bool {
        let config = self.attributes.config();
        self.requester.has_one_write(config)
            && !self.lifecycle.is_out_of_band()
            && self.lifecycle.is_live()
    }

    /// Withholds the completion of the only request outstanding until [`Qp::release_withheld`], or the end of the
    /// stream. A transport may take its time over a completion (RFC 5040 section 5.5), and a device does.
    pub fn withhold(&mut self) {
        debug_assert!(self.may_withhold(), "one Write");
        self.acknowledgements.withhold();
    }

    /// Whether a completion is withheld.
    #[inline]
    pub fn withholds(&self) -> bool {
        self.acknowledgements.are_withheld()
    }

    /// Withholds nothing any more, and completes what is finished.
    pub fn release_withheld(&mut self, host: &mut impl Host) {
        self.acknowledgements.stop_withholding();
        self.complete_sends(host);
    }

    /// Reports finished send work requests, and that the send queue is at rest.
    pub(super) fn complete_sends(&mut self, host: &mut impl Host) {
        if self.acknowledgements.are_withheld() {
            return;
        }
        let awaited: Option<&Acknowledgements> =
            self.acknowledges().then_some(&self.acknowledgements);
        let released = self.outgoing.released();
        let config = self.attributes.config();
        self.requester
            .complete(released, awaited, config, &mut self.counters, host);
        self.note_rest(host);
    }

    /// Tells the program, once, that the send queue is at rest.
    #[inline]
    pub(super) fn note_rest(&mut self, host: &mut impl Host) {
        if self.lifecycle.take_rest(|| !self.requester.is_under_way()) {
            host.async_event(AsyncEventKind::SqDrained);
        }
    }
}
