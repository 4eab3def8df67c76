//! Receives, and the messages that wait for them.

use weft_iwarp::{Fault, PeerFault};

use super::Qp;
use crate::host::Host;
use crate::qp::ending::{Ending, QpEvent};
use crate::qp::receives::SendSegment;
use crate::qp::rnr_queue::{HeldSend, Message};
use crate::types::WcStatus;
use crate::wqe::RecvWqe;

impl Qp {
    /// Names the message that waits for a receive, if one does: another number, another message.
    #[inline]
    pub fn holding(&self) -> Option<u64> {
        self.rnr_queue.holding()
    }

    /// How often the peer lets a message of its own find no receive before it is to be refused, where it told
    /// ([`Qp::set_rnr_retries`]).
    #[inline]
    pub fn rnr_retries_of_peer(&self) -> Option<u8> {
        self.rnr.retries_of_peer()
    }

    /// Whether so much is held that no more should be received until some of it goes on. What is received all the same
    /// is held too, up to a bound.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.rnr_queue.is_full()
    }

    /// Whether octets that come are best left in the transport for a moment, because messages wait for receives. What
    /// is received all the same is taken. A program that has requests under way may wait for what stands behind those
    /// messages, so nothing is left then.
    #[inline]
    pub fn pauses(&self) -> bool {
        self.pause.lasts() && !self.rnr_queue.is_empty() && !self.has_sends_outstanding()
    }

    /// Receives were posted to the shared receive queue: what no longer has to wait goes on.
    // Rare, and apart: inlined into the post of a receive, what it prepares would be prepared for each.
    #[inline(never)]
    pub fn on_receives(&mut self, host: &mut impl Host) {
        self.let_go(host);
        self.follow_rnr(host);
    }

    /// Whether a message may wait: a Weft peer's may.
    pub(super) fn may_hold(&self) -> bool {
        self.rnr.waits() && self.peer_is_weft() && self.rnr_queue.has_room()
    }

    /// Whether what finds no receive now is lost at once, as an unreliable queue pair may.
    pub(super) fn loses_without_receive(&self) -> bool {
        let waits = self.receives.are_awaited(self.attributes.config()) && self.may_hold();
        self.attributes.is_unreliable() && !waits
    }

    /// Octets of the Send that is held and has not come whole. With UC it is lost when it is too long.
    pub(super) fn hold_octets(&mut self, more: &[u8], host: &mut impl Host) -> Result<(), Fault> {
        let Err(segment) = self.rnr_queue.append(more) else {
            return Ok(());
        };
        if !self.attributes.is_unreliable() {
            let field = "Send: no posted receive, and more than is held";
            return Err(segment.fault(PeerFault::NoBuffer, field));
        }
        self.rnr_queue.drop_incomplete();
        self.arriving.lose_the_rest();
        self.let_go(host);
        Ok(())
    }

    /// Lets go of what no longer has to wait.
    pub(super) fn let_go(&mut self, host: &mut impl Host) {
        while self.lifecycle.is_live() && !self.rnr_queue.is_empty() {
            if let Some((request, header)) = self.rnr_queue.pop_request() {
                self.responder.push(request, header);
                continue;
            }
            match self.deliver_held(host) {
                Ok(true) => {}
                Ok(false) => return,
                Err(fault) => return self.end_at_fault(fault, host),
            }
        }
    }

    /// Delivers the message at the front if there is a receive for it now.
    fn deliver_held(&mut self, host: &mut impl Host) -> Result<bool, Fault> {
        let config = self.attributes.config();
        let Some(wqe) = self.receives.take(config, host) else {
            return Ok(false);
        };
        match self.rnr_queue.pop() {
            Some(Message::Send(held)) => return self.deliver_held_send(wqe, &held, host),
            Some(Message::Immediate(immediate, _)) => {
                self.receives
                    .deliver_immediate(&wqe, immediate, config, &mut self.counters, host);
            }
            Some(Message::Request(..)) | None => {}
        }
        Ok(true)
    }

    /// A Send that was held has its receive. If it has arrived in part, the rest goes there when it comes.
    fn deliver_held_send(
        &mut self,
        wqe: RecvWqe,
        held: &HeldSend,
        host: &mut impl Host,
    ) -> Result<bool, Fault> {
        // The rest of a segment that has begun goes to the receive without another look at its length.
        let to_come = match self.arriving.is_held() && !held.is_complete {
            true => self.outstanding(),
            false => 0,
        };
        self.receives.begin(wqe, &held.segment, held.imm);
        let whole = SendSegment {
            len: held.octets.len() + to_come,
            ..held.segment
        };
        let config = self.attributes.config();
        self.receives
            .check_room(&whole, config, &mut self.counters, host)?;
        let scope = self.attributes.scope();
        if self.receives.place(&held.octets, scope, host).is_err() {
            self.fail_receive(WcStatus::LocalProtection, host);
            self.end_locally(host);
            return Ok(false);
        }
        self.receives.received(held.octets.len() as u32);
        self.counters.octets_placed += held.octets.len() as u64;
        match held.is_complete {
            true => self.deliver_send(held.segment.header, host)?,
            false => self.arriving.receive_the_rest(),
        }
        Ok(true)
    }

    /// The stream is over: whether messages of it wait for receives.
    pub(super) fn goes_on_receiving(&mut self, host: &mut impl Host) -> bool {
        if !self.lifecycle.is_live() || self.stream.is_none() {
            return false;
        }
        self.rnr_queue.end_of_stream();
        // A shared receive queue may have receives that nobody told of.
        self.let_go(host);
        !self.rnr_queue.is_empty() && self.lifecycle.is_live()
    }

    /// The wait was long enough: the peer hears that there is no receive for its message. With UC, and of a peer that
    /// has gone, all that waits is lost.
    pub(super) fn give_up_holding(&mut self, host: &mut impl Host) {
        let Some(header) = self.rnr_queue.front_header() else {
            return;
        };
        if self.attributes.is_unreliable() {
            self.arriving.lose_held(self.rnr_queue.is_incomplete());
            self.rnr_queue.drop_all();
            return;
        }
        if self.lifecycle.ending() == Ending::HalfClosed {
            let lost = self.rnr_queue.len();
            self.events.push_back(QpEvent::Unreceived(lost));
            self.rnr_queue.drop_all();
            return;
        }
        let fault = Fault::new(PeerFault::NoBuffer, "Send: no receive was posted in time")
            .in_segment(header.wire_len() as u16, header);
        self.end_at_fault(fault, host);
    }

    /// Bounds the wait of the message that finds no receive, if one does.
    #[inline]
    pub(super) fn follow_rnr(&mut self, host: &impl Host) {
        let holding = self.rnr_queue.holding();
        let peer_has_gone = self.lifecycle.ending() == Ending::HalfClosed;
        self.rnr
            .follow(holding, peer_has_gone, || host.now(), &mut self.timers);
        self.pause
            .follow(&self.rnr_queue, || host.now(), &mut self.timers);
    }
}
